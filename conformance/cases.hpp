// Golden cases: what a golden file holds, read strictly. Anything unknown, missing or doubled is an error.
#pragma once

#include "generator.hpp"
#include "strict_json.hpp"

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

// One input: how it is made, what it is stored as and with which shape, and the SHA-256 of its bytes (64 hex digits).
struct CaseTensor {
  Input input;
  Storage storage = Storage::kFloat32;
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
  std::optional<std::uint32_t> softcap_bits;          // none: no softcap
  std::optional<std::vector<std::int64_t>> q_starts;  // [batch + 1], from 0 to q_len: ragged queries
  std::optional<std::vector<std::int64_t>> kv_starts; // [batch + 1]: ragged keys
  std::optional<std::int64_t> page_size;              // keys and values lie in pages
  std::vector<std::int64_t> resume;                   // where to stop and go on from the state; empty: nowhere
  bool fully_masked_zero = false;
};

struct AttentionHashes {
  std::string out;
  std::string lse;
  std::vector<std::string> states; // one for each edge of `resume`
};

struct AttentionCase {
  std::string id;
  std::string guards; // what it guards against
  Tier tier = Tier::kQuick;
  AttentionParams params;
  CaseTensor q, k, v;
  std::optional<CaseTensor> mask;      // each of the four sizes is full or 1 (broadcast)
  std::optional<CaseTensor> mask_bool; // bytes, of a shape like the mask's
  std::optional<CaseTensor> sinks;
  std::optional<CaseTensor> alibi;
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

// Shapes. Ragged queries have 1 for batch in all but the keys and values, ragged keys in these two.
std::vector<std::int64_t> query_shape(const AttentionParams &params); // [batch, heads, q_len, head_dim]
std::vector<std::int64_t> key_shape(const AttentionParams &params);   // [batch, kv_heads, kv_len, head_dim]
std::vector<std::int64_t> value_shape(const AttentionParams &params); // [batch, kv_heads, kv_len, value_dim]
std::vector<std::int64_t> score_shape(const AttentionParams &params); // [batch, heads, q_len, most_keys], a full mask
std::vector<std::int64_t> out_shape(const AttentionParams &params);   // [batch, heads, q_len, value_dim]
std::vector<std::int64_t> lse_shape(const AttentionParams &params);   // [batch, heads, q_len]

// Rows and keys of one sequence, whatever kv_lens says, and the most keys that a sequence has.
std::int64_t rows_of(const AttentionParams &params, std::int64_t sequence);
std::int64_t keys_of(const AttentionParams &params, std::int64_t sequence);
std::int64_t most_keys(const AttentionParams &params);

// Multiply-adds of the two products, as if every key of a row's sequence were visible.
std::int64_t multiply_adds(const AttentionParams &params);

using GoldenError = FormatError;

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
