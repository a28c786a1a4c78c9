// States (definition, section 14) written by hand, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace exattn::tests {

inline void append(std::vector<unsigned char> &bytes, std::uint64_t value, int count) {
  for (int n = 0; n < count; ++n) {
    bytes.push_back(static_cast<unsigned char>(value >> (8 * n)));
  }
}

struct StateBytes {
  std::uint32_t flavour;
  std::uint64_t batch, heads, q_len, value_dim, next_key, ragged;
  std::vector<std::uint64_t> ends;

  // With that many rows of zeros.
  std::vector<unsigned char> bytes(std::size_t rows) const {
    return bytes(std::vector<std::uint32_t>(rows * (3 + value_dim), 0));
  }

  // With rows of these words.
  std::vector<unsigned char> bytes(const std::vector<std::uint32_t> &words) const {
    std::vector<unsigned char> result;
    for (const char letter : std::string("exattn-1")) {
      result.push_back(static_cast<unsigned char>(letter));
    }
    append(result, flavour, 4);
    append(result, 0, 4);
    for (const std::uint64_t value : {batch, heads, q_len, value_dim, next_key, ragged}) {
      append(result, value, 8);
    }
    for (const std::uint64_t end : ends) {
      append(result, end, 8);
    }
    for (const std::uint32_t word : words) {
      append(result, word, 4);
    }
    return result;
  }
};

} // namespace exattn::tests
