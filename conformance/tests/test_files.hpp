// Files that tests make: temporary folders, golden files, .npy files.
#pragma once

#include "conformance/cases.hpp"
#include "conformance/sha256.hpp"

#include <unistd.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace exattn::tests {

inline std::string read_file(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::filesystem::path &path, const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A folder of its own that goes when the test does.
class TemporaryFolder {
public:
  TemporaryFolder() {
    static int count = 0;
    path = std::filesystem::temp_directory_path() /
           ("exattn-test-" + std::to_string(getpid()) + "-" + std::to_string(++count));
    std::filesystem::create_directories(path);
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  std::filesystem::path operator/(const std::string &name) const { return path / name; }
  const std::filesystem::path &get() const { return path; }

private:
  std::filesystem::path path;
};

inline std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) {
    throw std::logic_error("not in the text: " + from);
  }
  return text.replace(at, from.size(), to);
}

// Writes both files and the sums of what was written.
inline void write_goldens(const std::filesystem::path &folder, const std::string &attention,
                          const std::string &softmax) {
  write_file(folder / conformance::kAttentionFile, attention);
  write_file(folder / conformance::kSoftmaxFile, softmax);
  write_file(folder / conformance::kVersionFile, "exattn-1\n");
  write_file(folder / conformance::kSumsFile, sha256_of(attention) + "  " + conformance::kAttentionFile + "\n" +
                                                  sha256_of(softmax) + "  " + conformance::kSoftmaxFile + "\n");
}

// One key, so that the output is its value and lse the score 2 * 3 * 1.
// q is 2 everywhere [1,2,2,1], k is 3 [1,1,1,1], v is (0.5, -1.25) [1,1,1,2]; so out is (0.5, -1.25) four times and lse
// is 6 four times. The hashes are of those numbers, computed outside of this project.
inline const std::string kOneKeyGolden = R"({"definition": "exattn-1", "kind": "attention", "cases": [
{"id": "one-key", "guards": "one key: the output is its value", "tier": "quick",
 "params": {"batch": 1, "heads": 2, "kv_heads": 1, "q_len": 2, "kv_len": 1, "head_dim": 1, "value_dim": 2,
            "scale": "3f800000", "causal": false, "window": 0, "q_offset": 0, "fully_masked": "nan"},
 "inputs": {"q": {"kind": "constant", "bits": "40000000"}, "k": {"kind": "constant", "bits": "40400000"},
            "v": {"kind": "constant", "bits": "3f000000",
                  "set": [{"from": [0, 0, 0, 1], "to": [1, 1, 1, 2], "bits": "bfa00000"}]}},
 "sha256": {"inputs": {"q": "c3a6b1f08b0b05ac05390d6c257551ffd0cdcf40496f232b52df2498f915469e",
                       "k": "ea2845900b5856c9bf354b1aa9761b5aa6888e5ed61738fe9579ca42bc0f6054",
                       "v": "7b45a47d9278f40774a3ab7770cdadae80c58f0bc7e47b6ef7dd9835286ea052"},
            "exact": {"out": "cd4ceb387134564af8a52dca527c03c11fe991566a70f5929df324869e703095",
                      "lse": "cb5435a00323c2d1eda61e1ea1c83a7e8ac417dc87b54ec84b97cd941eb9ac57"},
            "fast": {"out": "cd4ceb387134564af8a52dca527c03c11fe991566a70f5929df324869e703095",
                     "lse": "cb5435a00323c2d1eda61e1ea1c83a7e8ac417dc87b54ec84b97cd941eb9ac57"}}}]})";

// Equal weights over 128 keys of value 1, all shown by a byte of 2; keys and values of 16 bits in pages of 48, and a
// stop at key 64. So out is (1, 1), lse is ln 128 (by the definition's steps, 409b43d5), and the state holds m 0, l 64,
// flag 1 and acc (64, 64). The hashes are of those numbers, computed outside of this project.
inline const std::string kStopGolden = R"({"definition": "exattn-1", "kind": "attention", "cases": [
{"id": "stop", "guards": "a stop and pages: the bits of one call", "tier": "quick",
 "params": {"batch": 1, "heads": 1, "kv_heads": 1, "q_len": 1, "kv_len": 128, "head_dim": 1, "value_dim": 2,
            "storage": {"k": "bf16", "v": "f16"}, "scale": "3f800000", "causal": false, "window": 0, "q_offset": 0,
            "page_size": 48, "resume": [64], "fully_masked": "nan"},
 "inputs": {"q": {"kind": "constant", "bits": "00000000"}, "k": {"kind": "constant", "bits": "3f80"},
            "v": {"kind": "constant", "bits": "3c00"},
            "mask_bool": {"shape": [1, 1, 1, 128], "kind": "constant", "bits": "02"}},
 "sha256": {"inputs": {"q": "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119",
                       "k": "1ede9ebfa1ad011b89a3e3df648a958674d64afa0726d98858a68b8a4da14ee0",
                       "v": "b52f1a391580ca061d258dac1af97a7a9c494c68059238948fc2f98f3d4e5028",
                       "mask_bool": "9e50f90fd035924a202c1f5c5246acc40ab0c3211366e89f0c5d9cf42a6a8d78"},
            "exact": {"out": "80b8fd6d60fa85fd14a38b5295cb92abd80dfec5ca406c9f969609a79d36809d",
                      "lse": "7dfe27cdbd04d2fa889eb2dc3ffb4b1e4fdd350457132bd1f730ae75e99dc384",
                      "states": ["119a093685aeb45d59a4811b0a2532d379b273005c44d511e15f3746556be9ce"]},
            "fast": {"out": "80b8fd6d60fa85fd14a38b5295cb92abd80dfec5ca406c9f969609a79d36809d",
                     "lse": "7dfe27cdbd04d2fa889eb2dc3ffb4b1e4fdd350457132bd1f730ae75e99dc384",
                     "states": ["fc7f6327dd934474f50fa4aef4970ed7019f6e369e215d142f5408a32009daae"]}}}]})";

// Two equal scores: 1/2 each.
inline const std::string kTwoEqualGolden = R"({"definition": "exattn-1", "kind": "softmax", "cases": [
{"id": "two-equal", "guards": "equal scores share evenly", "tier": "full", "params": {"rows": 2, "columns": 2},
 "inputs": {"x": {"kind": "constant", "bits": "40400000"}},
 "sha256": {"inputs": {"x": "24c60715698663563d76ecaf262778712879423eb057d12b74a037150009d619"},
            "exact": {"out": "1dc5c8e021c663cd8f7ecf1fb0c6d4112bc8d7f3c9e0095cd26bd7af7b8d7f13"},
            "fast": {"out": "1dc5c8e021c663cd8f7ecf1fb0c6d4112bc8d7f3c9e0095cd26bd7af7b8d7f13"}}}]})";

// A .npy file of the given version around a header, which is padded by the caller or not at all.
inline std::string npy_file(int version, const std::string &header, const std::string &data) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int byte = 0; byte < (version == 1 ? 2 : 4); ++byte) {
    file += static_cast<char>((header.size() >> (8 * byte)) & 0xFF);
  }
  return file + header + data;
}

// Pads a header so that the data starts at a multiple of `alignment` plus `rest`.
inline std::string padded(int version, std::string header, std::size_t alignment, std::size_t rest = 0) {
  const std::size_t start = version == 1 ? 10 : 12;
  while ((start + header.size() + 1) % alignment != rest) {
    header += ' ';
  }
  return header + "\n";
}

inline std::string little_endian(const std::vector<float> &values) {
  std::string bytes;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int byte = 0; byte < 4; ++byte) {
      bytes += static_cast<char>((bits >> (8 * byte)) & 0xFF);
    }
  }
  return bytes;
}

inline std::string npy_dict(const std::string &descr, const std::string &order, const std::string &shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

} // namespace exattn::tests
