#include "cases.hpp"

#include "sha256.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
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

// Refuses a key that occurs twice in one object: the JSON library would keep the last in silence.
class DuplicateKeys {
public:
  bool operator()(int, json::parse_event_t event, const json &parsed) {
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw GoldenError("key \"" + parsed.get<std::string>() + "\" occurs twice in one object");
    }
    return true;
  }

private:
  std::vector<std::set<std::string>> keys;
};

// A JSON object of which every member must be asked for.
class Object {
public:
  Object(const json &object, std::string name) : value(object), where(std::move(name)) {
    if (!value.is_object()) {
      throw GoldenError(where + ": must be an object");
    }
  }

  [[noreturn]] void fail(const std::string &problem) const { throw GoldenError(where + ": " + problem); }

  bool has(const char *key) const { return value.contains(key); }

  const json &member(const char *key) {
    const auto found = value.find(key);
    if (found == value.end()) {
      fail(std::string("\"") + key + "\" is missing");
    }
    asked.insert(key);
    return *found;
  }

  Object object(const char *key) { return Object(member(key), where + ": " + key); }

  std::string string(const char *key) {
    const json &found = member(key);
    if (!found.is_string() || found.get<std::string>().empty()) {
      fail(std::string("\"") + key + "\" must be a string that is not empty");
    }
    return found.get<std::string>();
  }

  // One of two words: false for the first, true for the second.
  bool choice(const char *key, const char *first, const char *second) {
    const std::string found = string(key);
    if (found != first && found != second) {
      fail(std::string("\"") + key + "\" must be \"" + first + "\" or \"" + second + "\"");
    }
    return found == second;
  }

  bool boolean(const char *key) {
    const json &found = member(key);
    if (!found.is_boolean()) {
      fail(std::string("\"") + key + "\" must be true or false");
    }
    return found.get<bool>();
  }

  std::int64_t integer(const char *key, std::int64_t least, std::int64_t most) {
    return to_integer(key, member(key), least, most);
  }

  std::vector<std::int64_t> integers(const char *key, std::int64_t least, std::int64_t most) {
    const json &found = member(key);
    if (!found.is_array()) {
      fail(std::string("\"") + key + "\" must be a list of integers");
    }
    std::vector<std::int64_t> result;
    for (const json &item : found) {
      result.push_back(to_integer(key, item, least, most));
    }
    return result;
  }

  std::string hex(const char *key, std::size_t digits) {
    std::string found = string(key);
    const bool right = found.size() == digits && std::all_of(found.begin(), found.end(), [](char c) {
                         return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f');
                       });
    if (!right) {
      fail(std::string("\"") + key + "\" must be " + std::to_string(digits) + " lower-case hex digits");
    }
    return found;
  }

  std::uint32_t bits(const char *key) { return static_cast<std::uint32_t>(std::stoul(hex(key, 8), nullptr, 16)); }

  void nothing_else() const {
    for (const auto &item : value.items()) {
      if (asked.count(item.key()) == 0) {
        fail("unknown key \"" + item.key() + "\"");
      }
    }
  }

private:
  std::int64_t to_integer(const char *key, const json &number, std::int64_t least, std::int64_t most) const {
    const bool fits =
        number.is_number_unsigned()
            ? number.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
            : number.is_number_integer();
    if (!fits || number.get<std::int64_t>() < least || number.get<std::int64_t>() > most) {
      fail(std::string("\"") + key + "\" must be an integer from " + std::to_string(least) + " to " +
           std::to_string(most));
    }
    return number.get<std::int64_t>();
  }

  const json &value;
  std::string where;
  std::set<std::string> asked;
};

// Large enough for any case, small enough that no product of two overflows.
constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 53;

Input read_input(Object &object) {
  Input input;
  const std::string kind = object.string("kind");
  if (kind == "normal") {
    input.kind = InputKind::kNormal;
  } else if (kind == "constant") {
    input.kind = InputKind::kConstant;
  } else if (kind == "bits") {
    input.kind = InputKind::kBits;
  } else {
    object.fail("\"kind\" must be \"normal\", \"constant\" or \"bits\"");
  }
  if (input.kind == InputKind::kConstant) {
    input.bits = object.bits("bits");
  } else {
    input.seed = static_cast<std::uint64_t>(object.integer("seed", 0, static_cast<std::int64_t>(kMaxSeed)));
  }
  if (input.kind == InputKind::kNormal && object.has("scale_exponent")) {
    input.scale_exponent = static_cast<int>(object.integer("scale_exponent", kMinScaleExponent, kMaxScaleExponent));
  }
  if (object.has("set")) {
    const json &boxes = object.member("set");
    if (!boxes.is_array()) {
      object.fail("\"set\" must be a list");
    }
    for (const json &item : boxes) {
      Object box(item, "a box of \"set\"");
      input.set.push_back({box.integers("from", 0, kMaxSize), box.integers("to", 0, kMaxSize), box.bits("bits")});
      box.nothing_else();
    }
  }
  return input;
}

CaseTensor read_tensor(Object &inputs, Object &hashes, const char *name, std::vector<std::int64_t> shape) {
  Object object = inputs.object(name);
  CaseTensor tensor;
  if (object.has("shape")) { // only a mask has a shape of its own; `shape` then holds the largest
    const std::vector<std::int64_t> own = object.integers("shape", 0, kMaxSize);
    bool fits = own.size() == shape.size();
    for (std::size_t n = 0; fits && n < own.size(); ++n) {
      fits = own[n] == shape[n] || own[n] == 1;
    }
    if (!fits) {
      object.fail("\"shape\" must hold batch, heads, q_len, kv_len, or 1 in the place of any of them");
    }
    shape = own;
  }
  tensor.input = read_input(object);
  tensor.shape = std::move(shape);
  object.nothing_else();
  if (const std::string problem = input_problem(tensor.input, tensor.shape); !problem.empty()) {
    object.fail(problem);
  }
  tensor.sha256 = hashes.hex(name, 64);
  return tensor;
}

AttentionParams read_attention_params(Object object) {
  AttentionParams params;
  params.batch = object.integer("batch", 0, kMaxSize);
  params.heads = object.integer("heads", 0, kMaxSize);
  params.kv_heads = object.integer("kv_heads", 1, kMaxSize);
  params.q_len = object.integer("q_len", 0, kMaxSize);
  params.kv_len = object.integer("kv_len", 0, kMaxSize);
  params.head_dim = object.integer("head_dim", 1, kMaxSize);
  params.value_dim = object.integer("value_dim", 1, kMaxSize);
  if (object.string("scale") != "default") {
    params.scale_bits = object.bits("scale");
  }
  params.causal = object.boolean("causal");
  params.window = object.integer("window", 0, kMaxPosition);
  params.q_offset = object.integer("q_offset", 0, kMaxPosition);
  if (object.has("q_offsets")) {
    params.q_offsets = object.integers("q_offsets", 0, kMaxPosition);
  }
  if (object.has("kv_lens")) {
    params.kv_lens = object.integers("kv_lens", 0, params.kv_len);
  }
  params.fully_masked_zero = object.choice("fully_masked", "nan", "zero");
  object.nothing_else();
  if (params.heads % params.kv_heads != 0) {
    object.fail("\"heads\" must be a multiple of \"kv_heads\"");
  }
  for (const auto &list : {params.q_offsets, params.kv_lens}) {
    if (list && static_cast<std::int64_t>(list->size()) != params.batch) {
      object.fail("\"q_offsets\" and \"kv_lens\" must hold one number per sequence of the batch");
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
  result.params = read_attention_params(object.object("params"));

  Object inputs = object.object("inputs");
  Object hashes = object.object("sha256");
  Object input_hashes = hashes.object("inputs");
  const auto read_fixed = [&](const char *name, std::vector<std::int64_t> shape) {
    if (inputs.object(name).has("shape")) {
      inputs.fail(std::string("\"") + name + "\" has the shape that the parameters say, and none of its own");
    }
    return read_tensor(inputs, input_hashes, name, std::move(shape));
  };
  result.q = read_fixed("q", query_shape(result.params));
  result.k = read_fixed("k", key_shape(result.params));
  result.v = read_fixed("v", value_shape(result.params));
  if (inputs.has("mask")) {
    if (!inputs.object("mask").has("shape")) {
      inputs.fail("\"mask\" must have a \"shape\"");
    }
    result.mask = read_tensor(inputs, input_hashes, "mask", score_shape(result.params));
  }
  if (inputs.has("sinks")) {
    result.sinks = read_fixed("sinks", {result.params.heads});
  }
  inputs.nothing_else();
  input_hashes.nothing_else();

  for (const auto &[name, target] : {std::pair{"exact", &result.exact}, std::pair{"fast", &result.fast}}) {
    Object outputs = hashes.object(name);
    target->out = outputs.hex("out", 64);
    target->lse = outputs.hex("lse", 64);
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
    json document;
    try {
      document = json::parse(text, DuplicateKeys());
    } catch (const json::exception &error) {
      throw GoldenError(std::string("not valid JSON: ") + error.what());
    }
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

std::vector<std::int64_t> query_shape(const AttentionParams &params) {
  return {params.batch, params.heads, params.q_len, params.head_dim};
}

std::vector<std::int64_t> key_shape(const AttentionParams &params) {
  return {params.batch, params.kv_heads, params.kv_len, params.head_dim};
}

std::vector<std::int64_t> value_shape(const AttentionParams &params) {
  return {params.batch, params.kv_heads, params.kv_len, params.value_dim};
}

std::vector<std::int64_t> score_shape(const AttentionParams &params) {
  return {params.batch, params.heads, params.q_len, params.kv_len};
}

std::vector<std::int64_t> out_shape(const AttentionParams &params) {
  return {params.batch, params.heads, params.q_len, params.value_dim};
}

std::vector<std::int64_t> lse_shape(const AttentionParams &params) {
  return {params.batch, params.heads, params.q_len};
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
