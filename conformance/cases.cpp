#include "cases.hpp"

#include "sha256.hpp"
#include "strict_json.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace exattn::conformance {
namespace {

using nlohmann::json;

using Object = StrictObject;

// Large enough for any case, small enough that no product of two overflows.
constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 53;
constexpr std::int64_t kResumeStep = 64; // the keys of a block
constexpr std::uint32_t kInfinity = 0x7F800000;

// As many hex digits as an element of that storage has.
std::uint32_t element_bits(Object &object, const char *key, Storage storage = Storage::kFloat32) {
  return static_cast<std::uint32_t>(std::stoul(object.hex(key, 2 * element_size(storage)), nullptr, 16));
}

Input read_input(Object &object, Storage storage) {
  Input input;
  const std::string kind = object.string("kind");
  if (kind == "normal") {
    input.kind = InputKind::kNormal;
  } else if (kind == "constant") {
    input.kind = InputKind::kConstant;
  } else if (kind == "bits") {
    input.kind = InputKind::kBits;
  } else if (kind == "visible") {
    input.kind = InputKind::kVisible;
  } else {
    object.fail("\"kind\" must be \"normal\", \"constant\", \"bits\" or \"visible\"");
  }
  if (input.kind == InputKind::kConstant) {
    input.bits = element_bits(object, "bits", storage);
  } else {
    input.seed = static_cast<std::uint64_t>(object.integer("seed", 0, static_cast<std::int64_t>(kMaxSeed)));
  }
  if (input.kind == InputKind::kNormal && object.has("scale_exponent")) {
    input.scale_exponent = static_cast<int>(object.integer("scale_exponent", kMinScaleExponent, kMaxScaleExponent));
  }
  if (input.kind == InputKind::kVisible) {
    input.per_256 = static_cast<int>(object.integer("per_256", 0, 256));
  }
  if (object.has("set")) {
    const json &boxes = object.member("set");
    if (!boxes.is_array()) {
      object.fail("\"set\" must be a list");
    }
    for (const json &item : boxes) {
      Object box(item, "a box of \"set\"");
      input.set.push_back(
          {box.integers("from", 0, kMaxSize), box.integers("to", 0, kMaxSize), element_bits(box, "bits", storage)});
      box.nothing_else();
    }
  }
  return input;
}

CaseTensor read_tensor(Object &inputs, Object &hashes, const char *name, std::vector<std::int64_t> shape,
                       Storage storage = Storage::kFloat32) {
  Object object = inputs.object(name);
  CaseTensor tensor;
  tensor.storage = storage;
  if (object.has("shape")) { // only a mask has a shape of its own; `shape` then holds the largest
    const std::vector<std::int64_t> own = object.integers("shape", 0, kMaxSize);
    bool fits = own.size() == shape.size();
    for (std::size_t n = 0; fits && n < own.size(); ++n) {
      fits = own[n] == shape[n] || own[n] == 1;
    }
    if (!fits) {
      object.fail("\"shape\" must hold batch, heads, q_len, kv_len, or 1 in the place of any of them; with q_starts "
                  "there is no batch, and with kv_starts kv_len is the most keys of a sequence");
    }
    shape = own;
  }
  tensor.input = read_input(object, storage);
  tensor.shape = std::move(shape);
  object.nothing_else();
  if (const std::string problem = input_problem(tensor.input, tensor.shape, storage); !problem.empty()) {
    object.fail(problem);
  }
  tensor.sha256 = hashes.hex(name, 64);
  return tensor;
}

// Ragged queries or keys: batch + 1 numbers that do not fall.
void check_starts(const Object &object, const char *key, const std::vector<std::int64_t> &starts, std::int64_t batch) {
  if (static_cast<std::int64_t>(starts.size()) != batch + 1 || !std::is_sorted(starts.begin(), starts.end())) {
    object.fail(std::string("\"") + key + "\" must hold batch + 1 numbers, none less than the one before it");
  }
}

void read_layout(Object &object, AttentionParams &params) {
  if (object.has("q_starts")) {
    params.q_starts = object.integers("q_starts", 0, params.q_len);
    check_starts(object, "q_starts", *params.q_starts, params.batch);
    if (params.q_starts->front() != 0 || params.q_starts->back() != params.q_len) {
      object.fail("\"q_starts\" must begin with 0 and end with q_len, so that every row is one of a sequence");
    }
  }
  if (object.has("kv_starts")) {
    params.kv_starts = object.integers("kv_starts", 0, params.kv_len);
    check_starts(object, "kv_starts", *params.kv_starts, params.batch);
  }
  if (object.has("page_size")) {
    params.page_size = object.integer("page_size", 1, kMaxSize);
    if (params.kv_starts) {
      object.fail("\"page_size\" and \"kv_starts\" exclude each other");
    }
  }
  if (object.has("resume")) {
    params.resume = object.integers("resume", kResumeStep, kMaxSize);
    const bool ascending =
        std::adjacent_find(params.resume.begin(), params.resume.end(), std::greater_equal<>()) == params.resume.end();
    const bool whole = std::all_of(params.resume.begin(), params.resume.end(),
                                   [](std::int64_t edge) { return edge % kResumeStep == 0; });
    if (params.resume.empty() || !ascending || !whole || params.resume.back() > most_keys(params)) {
      object.fail("\"resume\" must hold multiples of 64, each above the one before it, up to the keys of the longest "
                  "sequence");
    }
  }
}

Storage read_storage(Object &object, const char *key) {
  return !object.has(key)                    ? Storage::kFloat32
         : object.choice(key, "bf16", "f16") ? Storage::kFloat16
                                             : Storage::kBfloat16;
}

// Of q, k and v; the others are always binary32.
std::array<Storage, 3> read_storages(Object &params) {
  std::array<Storage, 3> storages = {Storage::kFloat32, Storage::kFloat32, Storage::kFloat32};
  if (params.has("storage")) {
    Object object = params.object("storage");
    storages = {read_storage(object, "q"), read_storage(object, "k"), read_storage(object, "v")};
    object.nothing_else();
    if (storages == std::array{Storage::kFloat32, Storage::kFloat32, Storage::kFloat32}) {
      object.fail("must name at least one of \"q\", \"k\" and \"v\"");
    }
  }
  return storages;
}

AttentionParams read_attention_params(Object &object) {
  AttentionParams params;
  params.batch = object.integer("batch", 0, kMaxSize);
  params.heads = object.integer("heads", 0, kMaxSize);
  params.kv_heads = object.integer("kv_heads", 1, kMaxSize);
  params.q_len = object.integer("q_len", 0, kMaxSize);
  params.kv_len = object.integer("kv_len", 0, kMaxSize);
  params.head_dim = object.integer("head_dim", 1, kMaxSize);
  params.value_dim = object.integer("value_dim", 1, kMaxSize);
  if (object.string("scale") != "default") {
    params.scale_bits = element_bits(object, "scale");
  }
  params.causal = object.boolean("causal");
  params.window = object.integer("window", 0, kMaxPosition);
  params.q_offset = object.integer("q_offset", 0, kMaxPosition);
  if (object.has("q_offsets")) {
    params.q_offsets = object.integers("q_offsets", 0, kMaxPosition);
  }
  if (object.has("softcap")) {
    params.softcap_bits = element_bits(object, "softcap");
    if (*params.softcap_bits == 0 || *params.softcap_bits >= kInfinity) {
      object.fail("\"softcap\" must be the bits of a finite number above 0");
    }
  }
  if (object.has("kv_lens")) {
    params.kv_lens = object.integers("kv_lens", 0, params.kv_len);
  }
  params.fully_masked_zero = object.choice("fully_masked", "nan", "zero");
  read_layout(object, params);
  if (params.heads % params.kv_heads != 0) {
    object.fail("\"heads\" must be a multiple of \"kv_heads\"");
  }
  for (const auto &list : {params.q_offsets, params.kv_lens}) {
    if (list && static_cast<std::int64_t>(list->size()) != params.batch) {
      object.fail("\"q_offsets\" and \"kv_lens\" must hold one number per sequence of the batch");
    }
  }
  for (std::int64_t b = 0; params.kv_lens && b < params.batch; ++b) {
    if ((*params.kv_lens)[static_cast<std::size_t>(b)] > keys_of(params, b)) {
      object.fail("\"kv_lens\" must not be more than the keys of their sequences by \"kv_starts\"");
    }
  }
  return params;
}

template <class Case>
void read_common(Object &object, Case &result) {
  result.guards = object.string("guards");
  result.tier = object.choice("tier", "quick", "full") ? Tier::kFull : Tier::kQuick;
}

AttentionCase read_attention_case(Object &object) {
  AttentionCase result;
  read_common(object, result);
  Object params = object.object("params");
  result.params = read_attention_params(params);
  const auto [q_storage, k_storage, v_storage] = read_storages(params);
  params.nothing_else();

  Object inputs = object.object("inputs");
  Object hashes = object.object("sha256");
  Object input_hashes = hashes.object("inputs");
  const auto read_fixed = [&](const char *name, std::vector<std::int64_t> shape, Storage storage) {
    if (inputs.object(name).has("shape")) {
      inputs.fail(std::string("\"") + name + "\" has the shape that the parameters say, and none of its own");
    }
    return read_tensor(inputs, input_hashes, name, std::move(shape), storage);
  };
  const auto read_mask = [&](const char *name, Storage storage) {
    if (!inputs.object(name).has("shape")) {
      inputs.fail(std::string("\"") + name + "\" must have a \"shape\"");
    }
    return read_tensor(inputs, input_hashes, name, score_shape(result.params), storage);
  };
  result.q = read_fixed("q", query_shape(result.params), q_storage);
  result.k = read_fixed("k", key_shape(result.params), k_storage);
  result.v = read_fixed("v", value_shape(result.params), v_storage);
  if (inputs.has("mask")) {
    result.mask = read_mask("mask", Storage::kFloat32);
  }
  if (inputs.has("mask_bool")) {
    result.mask_bool = read_mask("mask_bool", Storage::kByte);
  }
  if (inputs.has("sinks")) {
    result.sinks = read_fixed("sinks", {result.params.heads}, Storage::kFloat32);
  }
  if (inputs.has("alibi")) {
    result.alibi = read_fixed("alibi", {result.params.heads}, Storage::kFloat32);
  }
  inputs.nothing_else();
  input_hashes.nothing_else();

  for (const auto &[name, target] : {std::pair{"exact", &result.exact}, std::pair{"fast", &result.fast}}) {
    Object outputs = hashes.object(name);
    target->out = outputs.hex("out", 64);
    target->lse = outputs.hex("lse", 64);
    if (!result.params.resume.empty()) {
      target->states = outputs.hashes("states", result.params.resume.size());
    }
    outputs.nothing_else();
  }
  hashes.nothing_else();
  return result;
}

SoftmaxCase read_softmax_case(Object &object) {
  SoftmaxCase result;
  read_common(object, result);
  Object params = object.object("params");
  result.params.rows = params.integer("rows", 0, kMaxSize);
  result.params.columns = params.integer("columns", 0, kMaxSize);
  params.nothing_else();

  Object inputs = object.object("inputs");
  Object hashes = object.object("sha256");
  Object input_hashes = hashes.object("inputs");
  if (inputs.object("x").has("shape")) {
    inputs.fail("\"x\" has the shape that the parameters say, and none of its own");
  }
  result.x = read_tensor(inputs, input_hashes, "x", {result.params.rows, result.params.columns});
  inputs.nothing_else();
  input_hashes.nothing_else();

  for (const auto &[name, target] : {std::pair{"exact", &result.exact}, std::pair{"fast", &result.fast}}) {
    Object outputs = hashes.object(name);
    target->out = outputs.hex("out", 64);
    outputs.nothing_else();
  }
  hashes.nothing_else();
  return result;
}

bool is_id(const std::string &id) {
  return std::all_of(id.begin(), id.end(), [](char c) {
    return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '-' || c == '.' || c == '_';
  });
}

template <class Case, class Read>
std::vector<Case> parse_cases(std::string_view text, const std::string &name, const char *kind, Read read_case) {
  try {
    const json document = parse_strictly(text);
    Object top(document, "top level");
    if (const std::string definition = top.string("definition"); definition != kDefinition) {
      top.fail("\"definition\" is \"" + definition + "\", this program follows \"" + kDefinition + "\"");
    }
    if (top.string("kind") != kind) {
      top.fail(std::string("\"kind\" must be \"") + kind + "\"");
    }
    const json &list = top.member("cases");
    top.nothing_else();
    if (!list.is_array() || list.empty()) {
      top.fail("\"cases\" must be a list that is not empty");
    }
    std::vector<Case> cases;
    std::set<std::string> ids;
    for (const json &item : list) {
      std::string where = "case number " + std::to_string(cases.size() + 1);
      const std::string id = Object(item, where).string("id");
      if (!is_id(id)) {
        throw GoldenError(where + ": \"id\" may hold a-z, 0-9, '-', '.' and '_' only");
      }
      where = "case " + id;
      if (!ids.insert(id).second) {
        throw GoldenError(where + ": the id occurs twice");
      }
      try {
        Object object(item, where);
        object.string("id");
        cases.push_back(read_case(object));
        cases.back().id = id;
        object.nothing_else();
      } catch (const GoldenError &error) {
        const std::string message = error.what();
        throw message.starts_with(where) ? GoldenError(message) : GoldenError(where + ": " + message);
      }
    }
    return cases;
  } catch (const GoldenError &error) {
    throw GoldenError(name + ": " + error.what());
  }
}

std::string read_text(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw GoldenError(path.string() + ": cannot be read, or is empty");
  }
  return std::move(text).str();
}

// File name -> hash.
std::map<std::string, std::string> read_sums(const std::filesystem::path &path) {
  std::map<std::string, std::string> sums;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    // 64 hex digits, a space, a space or '*', the name.
    const bool right = line.size() > 66 && line.find_first_not_of("0123456789abcdef") == 64 && line[64] == ' ' &&
                       (line[65] == ' ' || line[65] == '*');
    if (!right || !sums.emplace(line.substr(66), line.substr(0, 64)).second) {
      throw GoldenError(path.string() + ": \"" + line +
                        "\" is not \"<64 hex digits>  <file name>\", or repeats a name");
    }
  }
  return sums;
}

} // namespace

std::int64_t rows_of(const AttentionParams &params, std::int64_t sequence) {
  const auto b = static_cast<std::size_t>(sequence);
  return params.q_starts ? (*params.q_starts)[b + 1] - (*params.q_starts)[b] : params.q_len;
}

std::int64_t keys_of(const AttentionParams &params, std::int64_t sequence) {
  const auto b = static_cast<std::size_t>(sequence);
  return params.kv_starts ? (*params.kv_starts)[b + 1] - (*params.kv_starts)[b] : params.kv_len;
}

std::int64_t most_keys(const AttentionParams &params) {
  if (!params.kv_starts) {
    return params.kv_len;
  }
  std::int64_t most = 0;
  for (std::int64_t b = 0; b < params.batch; ++b) {
    most = std::max(most, keys_of(params, b));
  }
  return most;
}

std::int64_t multiply_adds(const AttentionParams &params) {
  std::int64_t scores = 0;
  for (std::int64_t b = 0; b < params.batch; ++b) {
    scores += rows_of(params, b) * keys_of(params, b);
  }
  return params.heads * scores * (params.head_dim + params.value_dim);
}

std::vector<std::int64_t> query_shape(const AttentionParams &params) {
  return {params.q_starts ? 1 : params.batch, params.heads, params.q_len, params.head_dim};
}

std::vector<std::int64_t> key_shape(const AttentionParams &params) {
  return {params.kv_starts ? 1 : params.batch, params.kv_heads, params.kv_len, params.head_dim};
}

std::vector<std::int64_t> value_shape(const AttentionParams &params) {
  return {params.kv_starts ? 1 : params.batch, params.kv_heads, params.kv_len, params.value_dim};
}

std::vector<std::int64_t> score_shape(const AttentionParams &params) {
  return {params.q_starts ? 1 : params.batch, params.heads, params.q_len, most_keys(params)};
}

std::vector<std::int64_t> out_shape(const AttentionParams &params) {
  return {params.q_starts ? 1 : params.batch, params.heads, params.q_len, params.value_dim};
}

std::vector<std::int64_t> lse_shape(const AttentionParams &params) {
  return {params.q_starts ? 1 : params.batch, params.heads, params.q_len};
}

std::vector<AttentionCase> parse_attention_cases(std::string_view text, const std::string &name) {
  return parse_cases<AttentionCase>(text, name, "attention", read_attention_case);
}

std::vector<SoftmaxCase> parse_softmax_cases(std::string_view text, const std::string &name) {
  return parse_cases<SoftmaxCase>(text, name, "softmax", read_softmax_case);
}

Goldens read_goldens(const std::filesystem::path &directory) {
  const std::filesystem::path version_path = directory / kVersionFile;
  if (const std::string version = read_text(version_path); version != std::string(kDefinition) + "\n") {
    throw GoldenError(version_path.string() + ": is not the one line " + kDefinition +
                      "; these goldens are of another definition");
  }
  const std::filesystem::path sums_path = directory / kSumsFile;
  const std::map<std::string, std::string> sums = read_sums(sums_path);
  const auto read_checked = [&](const char *file) {
    std::string text = read_text(directory / file);
    const auto sum = sums.find(file);
    if (sum == sums.end()) {
      throw GoldenError(sums_path.string() + ": does not list " + file);
    }
    if (sum->second != sha256_of(text)) {
      throw GoldenError((directory / file).string() + ": its SHA-256 is not the one in " + sums_path.string() +
                        "; the file has been changed or cut");
    }
    return text;
  };
  Goldens goldens;
  goldens.attention = parse_attention_cases(read_checked(kAttentionFile), (directory / kAttentionFile).string());
  goldens.softmax = parse_softmax_cases(read_checked(kSoftmaxFile), (directory / kSoftmaxFile).string());
  std::set<std::string> ids;
  for (const AttentionCase &item : goldens.attention) {
    ids.insert(item.id);
  }
  for (const SoftmaxCase &item : goldens.softmax) {
    if (ids.count(item.id) != 0) {
      throw GoldenError((directory / kSoftmaxFile).string() + ": case " + item.id + ": the id occurs twice, in " +
                        kAttentionFile + " too");
    }
  }
  return goldens;
}

} // namespace exattn::conformance
