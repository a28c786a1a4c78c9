// Golden cases: what a golden file holds, read strictly. Anything unknown, missing or doubled is an error.
#pragma once

#include "generator.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace exattn::conformance {

inline constexpr const char *kDefinition = "exattn-1";
inline constexpr const char *kAttentionFile = "attention.json";
inline constexpr const char *kSoftmaxFile = "softmax.json";
inline constexpr const char *kVersionFile = "VERSION"; // the definition that the cases follow
inline constexpr const char *kSumsFile = "SHA256SUMS"; // of the two, in the format of coreutils' sha256sum

enum class Tier { kQuick, kFull };

// One input: how it is made, the shape that it is stored with, and the SHA-256 of its bytes (64 hex digits).
struct CaseTensor {
  Input input;
  std::vector<std::int64_t> shape;
  std::string sha256;
};

struct AttentionParams {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q_len = 1;
  std::int64_t kv_len = 1;
  std::int64_t head_dim = 1;
  std::int64_t value_dim = 1;
  std::optional<std::uint32_t> scale_bits; // none: the default scale
  bool causal = false;
  std::int64_t window = 0;
  std::int64_t q_offset = 0;
  std::optional<std::vector<std::int64_t>> q_offsets; // [batch], replaces q_offset
  std::optional<std::vector<std::int64_t>> kv_lens;   // [batch]
  bool fully_masked_zero = false;
};

struct AttentionHashes {
  std::string out;
  std::string lse;
};

struct AttentionCase {
  std::string id;
  std::string guards; // what it guards against
  Tier tier = Tier::kQuick;
  AttentionParams params;
  CaseTensor q, k, v;
  std::optional<CaseTensor> mask; // each of the four sizes is full or 1 (broadcast)
  std::optional<CaseTensor> sinks;
  AttentionHashes exact, fast;
};

struct SoftmaxParams {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

struct SoftmaxHashes {
  std::string out;
};

struct SoftmaxCase {
  std::string id;
  std::string guards;
  Tier tier = Tier::kQuick;
  SoftmaxParams params;
  CaseTensor x;
  SoftmaxHashes exact, fast;
};

std::vector<std::int64_t> query_shape(const AttentionParams &params); // [batch, heads, q_len, head_dim]
std::vector<std::int64_t> key_shape(const AttentionParams &params);   // [batch, kv_heads, kv_len, head_dim]
std::vector<std::int64_t> value_shape(const AttentionParams &params); // [batch, kv_heads, kv_len, value_dim]
std::vector<std::int64_t> score_shape(const AttentionParams &params); // [batch, heads, q_len, kv_len], of a full mask
std::vector<std::int64_t> out_shape(const AttentionParams &params);   // [batch, heads, q_len, value_dim]
std::vector<std::int64_t> lse_shape(const AttentionParams &params);   // [batch, heads, q_len]

struct GoldenError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The text of one file; `name` is for messages. Throw GoldenError.
std::vector<AttentionCase> parse_attention_cases(std::string_view text, const std::string &name);
std::vector<SoftmaxCase> parse_softmax_cases(std::string_view text, const std::string &name);

struct Goldens {
  std::vector<AttentionCase> attention;
  std::vector<SoftmaxCase> softmax;
};

// Reads both files of a directory; VERSION beside them must name this definition, SHA256SUMS must list both and match.
// Ids are unique over both.
// Throws GoldenError.
Goldens read_goldens(const std::filesystem::path &directory);

} // namespace exattn::conformance
