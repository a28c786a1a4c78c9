// A golden case's inputs, cut at the edges where it is resumed, and what the oracle computes of them: for minting, and
// for telling what is wrong with a kernel.
#pragma once

#include "cases.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace exattn::conformance {

// The tensors that a case has, with their names in the golden file.
template <class Case>
auto tensors_of(Case &item) {
  std::vector<std::pair<const char *, decltype(&item.q)>> result = {{"q", &item.q}, {"k", &item.k}, {"v", &item.v}};
  const auto add = [&](const char *name, auto &tensor) {
    if (tensor) {
      result.emplace_back(name, &*tensor);
    }
  };
  add("mask", item.mask);
  add("mask_bool", item.mask_bool);
  add("sinks", item.sinks);
  add("alibi", item.alibi);
  return result;
}

struct AttentionInputs {
  Elements q, k, v, mask, mask_bool, sinks, alibi; // those that the case lacks are empty

  Elements &operator[](const char *name); // as in the golden file
};

// Strides of a contiguous tensor; 0 along a size of 1, which therefore broadcasts.
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t> &shape);

// The keys first to last - 1 of every sequence.
struct KeyPart {
  std::int64_t first = 0;
  std::int64_t kv_len = 0;             // as a call's kv_len: of all sequences together if ragged
  Elements k, v;                       // [batch, kv_heads, kv_len, size], or [1, ...] if ragged
  std::vector<std::int64_t> kv_starts; // empty: not ragged
  std::vector<std::int64_t> kv_lens;   // [batch]
};

KeyPart key_part(const AttentionCase &item, const AttentionInputs &inputs, std::int64_t first, std::int64_t last);

struct AttentionOutputs {
  std::vector<float> out, lse;
  std::vector<std::vector<std::uint8_t>> states; // one for each edge of `resume`
};

AttentionOutputs compute_by_oracle(const AttentionCase &item, const AttentionInputs &inputs, bool fast, int threads);

} // namespace exattn::conformance
