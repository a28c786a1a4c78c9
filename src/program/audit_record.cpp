#include "audit_record.hpp"

#include "npy.hpp"
#include "program.hpp"

#include "conformance/runner.hpp"
#include "conformance/sha256.hpp"
#include "conformance/strict_json.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace exattn::program {
namespace {

using nlohmann::ordered_json;

constexpr const char *kFormat = "exattn-audit-1";
constexpr std::int64_t kMostItems = std::int64_t{1} << 40;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string bytes_of_hex(const std::string &hex) {
  std::string bytes;
  for (std::size_t n = 0; n + 1 < hex.size(); n += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(n, 2), nullptr, 16));
  }
  return bytes;
}

std::int64_t blocks_of(std::int64_t rows) {
  return rows / kAuditRows + (rows % kAuditRows != 0 ? 1 : 0);
}

std::int64_t rows_of(const AuditOptions &options, std::int64_t b) {
  const auto n = static_cast<std::size_t>(b);
  return options.q_starts ? (*options.q_starts)[n + 1] - (*options.q_starts)[n] : options.q_len;
}

template <class T>
ordered_json or_null(const std::optional<T> &value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json to_json(const AuditTensors &tensors) {
  ordered_json object = ordered_json::object();
  for (const auto &[name, tensor] : tensors) {
    ordered_json one = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
    if (!tensor.layout.empty()) {
      one["layout"] = tensor.layout;
    }
    one["sha256"] = tensor.sha256;
    object[name] = one;
  }
  return object;
}

ordered_json counted(const AuditRecord &record) {
  return {{"format", kFormat},
          {"definition", conformance::kDefinition},
          {"operation", "attention"},
          {"flavour", exattn_flavour_name(record.options.flavour)},
          {"options", program::to_json(record.options)},
          {"inputs", to_json(record.inputs)},
          {"outputs", to_json(record.outputs)},
          {"tree", {{"rows", kAuditRows}, {"items", record.items}, {"root", record.root}}}};
}

std::optional<std::vector<std::int64_t>> integers_or_null(StrictObject &object, const char *key) {
  if (object.member(key).is_null()) {
    return std::nullopt;
  }
  return object.integers(key, 0, kMost);
}

std::uint32_t bits(const std::string &hex) {
  return static_cast<std::uint32_t>(std::stoul(hex, nullptr, 16));
}

AuditOptions read_options(StrictObject object, std::int32_t flavour) {
  AuditOptions options;
  options.flavour = flavour;
  for (const auto &[key, value] : {std::pair{"batch", &options.batch},
                                   {"heads", &options.heads},
                                   {"kv_heads", &options.kv_heads},
                                   {"q_len", &options.q_len},
                                   {"kv_len", &options.kv_len},
                                   {"head_dim", &options.head_dim},
                                   {"value_dim", &options.value_dim},
                                   {"window", &options.window},
                                   {"kv_offset", &options.kv_offset}}) {
    *value = object.integer(key, 0, kMost);
  }
  options.scale_bits = bits(object.hex("scale", 8));
  if (!object.member("softcap").is_null()) {
    options.softcap_bits = bits(object.hex("softcap", 8));
  }
  options.causal = object.boolean("causal");
  options.q_offsets = object.integers("q_offsets", 0, kMost);
  options.kv_lens = integers_or_null(object, "kv_lens");
  options.q_starts = integers_or_null(object, "q_starts");
  options.kv_starts = integers_or_null(object, "kv_starts");
  if (!object.member("page_size").is_null()) {
    options.page_size = object.integer("page_size", 1, kMost);
  }
  options.fully_masked_zero = object.choice("fully_masked", "nan", "zero");
  object.nothing_else();
  const auto length = [&](const char *key, const std::vector<std::int64_t> &list, std::int64_t more) {
    if (static_cast<std::int64_t>(list.size()) - more != options.batch) {
      object.fail(std::string("\"") + key + "\" has " + std::to_string(list.size()) + " numbers, batch is " +
                  std::to_string(options.batch));
    }
  };
  length("q_offsets", options.q_offsets, 0);
  if (options.kv_lens) {
    length("kv_lens", *options.kv_lens, 0);
  }
  for (const auto &[key, starts] : {std::pair{"q_starts", &options.q_starts}, {"kv_starts", &options.kv_starts}}) {
    if (*starts) {
      length(key, **starts, 1);
      if (!std::is_sorted((*starts)->begin(), (*starts)->end())) {
        object.fail(std::string("\"") + key + "\" must not fall");
      }
    }
  }
  return options;
}

AuditTensors read_tensors(StrictObject object, std::span<const char *const> names, bool inputs) {
  AuditTensors tensors;
  for (const char *name : names) {
    if (!object.has(name)) {
      continue;
    }
    StrictObject one = object.object(name);
    AuditTensor tensor;
    tensor.dtype = one.string("dtype");
    tensor.shape = one.integers("shape", 0, kMost);
    if (inputs) {
      tensor.layout = one.choice("layout", "c", "fortran") ? "fortran" : "c";
    }
    tensor.sha256 = one.hex("sha256", 64);
    one.nothing_else();
    tensors.emplace_back(name, std::move(tensor));
  }
  object.nothing_else();
  return tensors;
}

AuditRecord parse_record(std::string_view text) {
  const nlohmann::json document = parse_strictly(text);
  StrictObject top(document, "record");
  if (const std::string format = top.string("format"); format != kFormat) {
    top.fail("\"format\" is \"" + format + "\", this program reads \"" + kFormat + "\"");
  }
  if (const std::string definition = top.string("definition"); definition != conformance::kDefinition) {
    top.fail("\"definition\" is \"" + definition + "\", this program follows \"" + conformance::kDefinition + "\"");
  }
  if (const std::string operation = top.string("operation"); operation != "attention") {
    top.fail("\"operation\" is \"" + operation + "\", must be \"attention\"");
  }
  AuditRecord record;
  const std::int32_t flavour = top.choice("flavour", "exact", "fast") ? EXATTN_FAST : EXATTN_EXACT;
  record.options = read_options(top.object("options"), flavour);
  constexpr std::array<const char *, 9> kInputs = {"q",     "k",     "v",          "mask", "mask_bool",
                                                   "sinks", "alibi", "page_table", "state"};
  constexpr std::array<const char *, 3> kOutputs = {"out", "lse", "state"};
  record.inputs = read_tensors(top.object("inputs"), kInputs, true);
  record.outputs = read_tensors(top.object("outputs"), kOutputs, false);
  for (const char *name : {"q", "k", "v"}) {
    if (find(record.inputs, name) == nullptr) {
      top.fail(std::string("input \"") + name + "\" is missing");
    }
  }
  for (const char *name : {"out", "lse"}) {
    if (find(record.outputs, name) == nullptr) {
      top.fail(std::string("output \"") + name + "\" is missing");
    }
  }
  StrictObject tree = top.object("tree");
  if (tree.integer("rows", 0, kMost) != kAuditRows) {
    tree.fail("\"rows\" must be " + std::to_string(kAuditRows));
  }
  record.items = tree.integer("items", 0, kMostItems);
  record.root = tree.hex("root", 64);
  tree.nothing_else();
  if (const std::int64_t items = count_items(record.options); items != record.items) {
    tree.fail("\"items\" is " + std::to_string(record.items) + ", the sizes give " +
              (items < 0 ? "more than 2^40" : std::to_string(items)));
  }
  const std::string hash = top.hex("record", 64);
  record.run = ordered_json::parse(top.object("run").whole().dump());
  top.nothing_else();
  if (hash != record_hash(record)) {
    top.fail("its own hash is " + hash + ", what it says has " + record_hash(record) +
             ": something in it was changed after it was made");
  }
  return record;
}

// [RFC 9162, 2.1.1] of leaves [first, first + count), count above 0.
std::string subtree(std::span<const AuditLeaf> leaves) {
  if (leaves.size() == 1) {
    return bytes_of_hex(sha256_of(std::string(1, '\0') + bytes_of_hex(leaves[0].out) + bytes_of_hex(leaves[0].lse)));
  }
  const std::size_t half = std::bit_ceil(leaves.size()) / 2;
  return bytes_of_hex(sha256_of('\1' + subtree(leaves.first(half)) + subtree(leaves.subspan(half))));
}

std::string hex_of_bytes(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return hex;
}

} // namespace

ordered_json to_json(const AuditOptions &options) {
  return {{"batch", options.batch},
          {"heads", options.heads},
          {"kv_heads", options.kv_heads},
          {"q_len", options.q_len},
          {"kv_len", options.kv_len},
          {"head_dim", options.head_dim},
          {"value_dim", options.value_dim},
          {"scale", conformance::hex_bits(options.scale_bits)},
          {"softcap", options.softcap_bits ? ordered_json(conformance::hex_bits(*options.softcap_bits)) : nullptr},
          {"causal", options.causal},
          {"window", options.window},
          {"q_offsets", options.q_offsets},
          {"kv_lens", or_null(options.kv_lens)},
          {"q_starts", or_null(options.q_starts)},
          {"kv_starts", or_null(options.kv_starts)},
          {"page_size", or_null(options.page_size)},
          {"kv_offset", options.kv_offset},
          {"fully_masked", options.fully_masked_zero ? "zero" : "nan"}};
}

const AuditTensor *find(const AuditTensors &tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto &one) { return one.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

std::int64_t count_items(const AuditOptions &options) {
  std::int64_t blocks = 0; // of all sequences
  if (!options.q_starts) {
    if (__builtin_mul_overflow(options.batch, blocks_of(options.q_len), &blocks)) {
      return -1;
    }
  } else {
    for (std::int64_t b = 0; b < options.batch; ++b) {
      blocks += blocks_of(rows_of(options, b)); // at most that of all rows, and one for each sequence
    }
  }
  std::int64_t items = 0;
  return __builtin_mul_overflow(blocks, options.heads, &items) || items > kMostItems ? -1 : items;
}

std::vector<AuditItem> audit_items(const AuditOptions &options) {
  std::vector<AuditItem> items;
  items.reserve(static_cast<std::size_t>(std::max<std::int64_t>(0, count_items(options))));
  for (std::int64_t b = 0; b < options.batch; ++b) {
    const std::int64_t rows = rows_of(options, b);
    for (std::int64_t h = 0; h < options.heads; ++h) {
      for (std::int64_t row = 0; row < rows; row += kAuditRows) {
        items.push_back({b, h, row, std::min(kAuditRows, rows - row)});
      }
    }
  }
  return items;
}

std::string describe(const AuditItem &item) {
  return "b " + std::to_string(item.b) + ", h " + std::to_string(item.h) + ", rows " + std::to_string(item.row) +
         " to " + std::to_string(item.row + item.rows - 1);
}

std::string tree_root(std::span<const AuditLeaf> leaves) {
  return leaves.empty() ? sha256_of("") : hex_of_bytes(subtree(leaves));
}

std::string record_hash(const AuditRecord &record) {
  return sha256_of(counted(record).dump());
}

std::string record_text(const AuditRecord &record) {
  ordered_json document = counted(record);
  document["record"] = record_hash(record);
  document["run"] = record.run;
  return document.dump(2) + "\n";
}

AuditRecord read_record(const std::string &path) {
  try {
    return parse_record(map_file(path).bytes);
  } catch (const FormatError &error) {
    throw InputError(path + ": " + error.what());
  }
}

std::string leaves_path(const std::string &record_path) {
  constexpr std::string_view kSuffix = ".json";
  return (record_path.ends_with(kSuffix) ? record_path.substr(0, record_path.size() - kSuffix.size()) : record_path) +
         ".leaves";
}

std::string leaves_text(std::span<const AuditLeaf> leaves) {
  std::string text;
  for (const AuditLeaf &leaf : leaves) {
    text += leaf.out + " " + leaf.lse + "\n";
  }
  return text;
}

std::vector<AuditLeaf> read_leaves(const std::string &record_path, const AuditRecord &record) {
  const std::string path = leaves_path(record_path);
  const MappedFile file = map_file(path);
  constexpr std::size_t kLine = 64 + 1 + 64 + 1;
  const std::string_view text = file.bytes;
  if (text.size() != static_cast<std::size_t>(record.items) * kLine) {
    throw InputError(path + ": has " + std::to_string(text.size()) + " bytes; " + std::to_string(record.items) +
                     " work items take " + std::to_string(static_cast<std::size_t>(record.items) * kLine));
  }
  std::vector<AuditLeaf> leaves;
  for (std::size_t at = 0; at < text.size(); at += kLine) {
    AuditLeaf leaf{std::string(text.substr(at, 64)), std::string(text.substr(at + 65, 64))};
    if (!is_hex(leaf.out, 64) || !is_hex(leaf.lse, 64) || text[at + 64] != ' ' || text[at + kLine - 1] != '\n') {
      throw InputError(path + ": line " + std::to_string(at / kLine + 1) + " must be two hashes of 64 hex digits");
    }
    leaves.push_back(std::move(leaf));
  }
  if (const std::string root = tree_root(leaves); root != record.root) {
    throw InputError(path + ": its tree has the root " + root + ", the record says " + record.root +
                     ": it is not this record's, or was changed");
  }
  return leaves;
}

} // namespace exattn::program
