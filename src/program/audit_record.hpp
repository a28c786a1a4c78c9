// Audit records: what was computed of what, as hashes. The format is docs/audit.md's.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace exattn::program {

inline constexpr std::int64_t kAuditRows = 32; // of a work item, at most

// Everything that decides the bits, but the tensors.
struct AuditOptions {
  std::int32_t flavour = 0;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0, value_dim = 0;
  std::uint32_t scale_bits = 0;
  std::optional<std::uint32_t> softcap_bits;
  bool causal = false;
  std::int64_t window = 0;
  std::vector<std::int64_t> q_offsets; // [batch]
  std::optional<std::vector<std::int64_t>> kv_lens, q_starts, kv_starts;
  std::optional<std::int64_t> page_size;
  std::int64_t kv_offset = 0;
  bool fully_masked_zero = false;

  bool operator==(const AuditOptions &) const = default;
};
nlohmann::ordered_json to_json(const AuditOptions &options); // without the flavour

struct AuditTensor {
  std::string dtype; // f32, f16, bf16, u8, i32; bytes
  std::vector<std::int64_t> shape;
  std::string layout; // of an input: "c" or "fortran", which changes nothing
  std::string sha256; // of its bytes in C order
};
using AuditTensors = std::vector<std::pair<std::string, AuditTensor>>;
const AuditTensor *find(const AuditTensors &tensors, std::string_view name);

// A work item: rows of one head of one sequence.
struct AuditItem {
  std::int64_t b = 0, h = 0;
  std::int64_t row = 0, rows = 0; // of the sequence
};
std::int64_t count_items(const AuditOptions &options); // -1: more than 2^40
std::vector<AuditItem> audit_items(const AuditOptions &options);
std::string describe(const AuditItem &item); // "b 0, h 3, rows 32 to 63"

// SHA-256 of an item's rows of both outputs, 64 hex digits each.
struct AuditLeaf {
  std::string out, lse;
  bool operator==(const AuditLeaf &) const = default;
};

// The root of the tree over the leaves, as in RFC 9162, section 2.1.1.
std::string tree_root(std::span<const AuditLeaf> leaves);

struct AuditRecord {
  AuditOptions options;
  AuditTensors inputs, outputs;
  std::int64_t items = 0;
  std::string root;
  nlohmann::ordered_json run; // information, not part of what is hashed
};

// The SHA-256 over all that counts.
std::string record_hash(const AuditRecord &record);
std::string record_text(const AuditRecord &record);
// Throws InputError.
AuditRecord read_record(const std::string &path);

// Beside the record: its name with .leaves in the place of .json.
std::string leaves_path(const std::string &record_path);
std::string leaves_text(std::span<const AuditLeaf> leaves);
// Throws InputError, also when they are not those of the record.
std::vector<AuditLeaf> read_leaves(const std::string &record_path, const AuditRecord &record);

} // namespace exattn::program
