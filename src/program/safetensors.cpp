#include "safetensors.hpp"

#include "program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>

namespace exattn::program {
namespace {

using nlohmann::json;

constexpr std::size_t kSizeBytes = 8;
constexpr std::size_t kMostHeaderBytes = 100'000'000; // the format's own limit
constexpr std::size_t kMostDimensions = 32;

struct Dtype {
  const char *name;
  std::size_t bytes;
};
constexpr std::array<Dtype, 14> kDtypes = {{{"BOOL", 1},
                                            {"U8", 1},
                                            {"I8", 1},
                                            {"F8_E5M2", 1},
                                            {"F8_E4M3", 1},
                                            {"I16", 2},
                                            {"U16", 2},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"I32", 4},
                                            {"U32", 4},
                                            {"F32", 4},
                                            {"F64", 8},
                                            {"I64", 8}}};

struct ReadType {
  const char *name;
  NpyType type;
};
constexpr std::array<ReadType, 7> kReadTypes = {{{"F32", NpyType::kFloat32},
                                                 {"F16", NpyType::kFloat16},
                                                 {"BF16", NpyType::kBfloat16},
                                                 {"BOOL", NpyType::kBool},
                                                 {"U8", NpyType::kUint8},
                                                 {"I32", NpyType::kInt32},
                                                 {"I64", NpyType::kInt64}}};

class Parser {
public:
  Parser(std::string_view file, const std::string &file_name) : bytes(file), name(file_name) {}

  SafetensorsHeader parse() {
    if (bytes.size() < kSizeBytes) {
      fail("is cut off: a safetensors file begins with 8 bytes that say how long its header is");
    }
    std::uint64_t size = 0;
    for (std::size_t n = kSizeBytes; n-- > 0;) {
      size = size << 8 | static_cast<unsigned char>(bytes[n]);
    }
    if (size > kMostHeaderBytes) {
      fail("its header would have " + std::to_string(size) + " bytes, at most " + std::to_string(kMostHeaderBytes) +
           " are allowed");
    }
    if (size > bytes.size() - kSizeBytes) {
      fail("is cut off: its header would have " + std::to_string(size) + " bytes, " +
           std::to_string(bytes.size() - kSizeBytes) + " are there");
    }
    SafetensorsHeader header;
    header.data_offset = kSizeBytes + static_cast<std::size_t>(size);
    const json document = read_json(bytes.substr(kSizeBytes, static_cast<std::size_t>(size)));
    for (const auto &[key, value] : document.items()) {
      if (key == "__metadata__") {
        check_metadata(value);
      } else {
        header.tensors.push_back(entry(key, value));
      }
    }
    check_layout(header);
    return header;
  }

private:
  [[noreturn]] void fail(const std::string &problem) const { throw InputError(name + ": " + problem); }

  // Nothing in a header is deeper than the list of sizes of a tensor. A name that occurs twice is refused: the JSON
  // library would keep the last in silence.
  json read_json(std::string_view text) const {
    std::vector<std::set<std::string>> keys;
    int depth = 0;
    constexpr int kDeepest = 3;
    const auto watch = [&](int, json::parse_event_t event, const json &parsed) {
      switch (event) {
      case json::parse_event_t::object_start:
        keys.emplace_back();
        ++depth;
        break;
      case json::parse_event_t::array_start:
        ++depth;
        break;
      case json::parse_event_t::object_end:
        keys.pop_back();
        --depth;
        break;
      case json::parse_event_t::array_end:
        --depth;
        break;
      case json::parse_event_t::key:
        if (!keys.back().insert(parsed.get<std::string>()).second) {
          fail("its header has \"" + parsed.get<std::string>() + "\" twice");
        }
        break;
      default:
        break;
      }
      if (depth > kDeepest) {
        fail("its header is no safetensors header: objects or lists lie too deep");
      }
      return true;
    };
    try {
      json document = json::parse(text, watch);
      if (!document.is_object()) {
        fail("its header is no JSON object");
      }
      return document;
    } catch (const json::exception &error) {
      fail(std::string("its header is no JSON: ") + error.what());
    }
  }

  void check_metadata(const json &value) const {
    const bool strings =
        value.is_object() && std::all_of(value.begin(), value.end(), [](const json &text) { return text.is_string(); });
    if (!strings) {
      fail("its __metadata__ must be an object of strings");
    }
  }

  SafetensorsEntry entry(const std::string &tensor, const json &value) const {
    const std::string what = "tensor \"" + tensor + "\": ";
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      fail(what + "must be an object with dtype, shape and data_offsets, and nothing else");
    }
    const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
    const auto count = [](const json &number) { return number.is_number_unsigned(); };
    if (!dtype.is_string()) {
      fail(what + "its dtype must be a string");
    }
    if (!shape.is_array() || shape.size() > kMostDimensions || !std::all_of(shape.begin(), shape.end(), count)) {
      fail(what + "its shape must be a list of at most 32 integers of 0 or more");
    }
    if (!offsets.is_array() || offsets.size() != 2 || !std::all_of(offsets.begin(), offsets.end(), count)) {
      fail(what + "its data_offsets must be two integers of 0 or more");
    }
    SafetensorsEntry result;
    result.name = tensor;
    result.dtype = dtype.get<std::string>();
    const auto known =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype &one) { return result.dtype == one.name; });
    if (known == kDtypes.end()) {
      fail(what + "its dtype \"" + result.dtype + "\" is none of the format's");
    }
    std::uint64_t size = known->bytes;
    bool empty = false;
    for (const json &number : shape) {
      const std::uint64_t n = number.get<std::uint64_t>();
      empty = empty || n == 0;
      constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
      if (n > kMost || (n > 0 && size > kMost / n)) {
        fail(what + "its shape does not fit in 63 bits");
      }
      size *= n > 0 ? n : 1;
      result.shape.push_back(static_cast<std::int64_t>(n));
    }
    size = empty ? 0 : size;
    const std::uint64_t begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
    if (begin > end || end - begin != size) {
      fail(what + "its shape takes " + std::to_string(size) + " bytes, its data_offsets are " + std::to_string(begin) +
           " to " + std::to_string(end));
    }
    result.begin = static_cast<std::size_t>(begin);
    result.end = static_cast<std::size_t>(end);
    return result;
  }

  void check_layout(SafetensorsHeader &header) const {
    std::vector<SafetensorsEntry> &tensors = header.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const SafetensorsEntry &a, const SafetensorsEntry &b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    const std::size_t there = bytes.size() - header.data_offset;
    std::size_t at = 0;
    for (const SafetensorsEntry &tensor : tensors) {
      if (tensor.end > there) {
        fail("tensor \"" + tensor.name + "\": its data_offsets end at " + std::to_string(tensor.end) +
             ", after the header are " + std::to_string(there) + " bytes");
      }
      if (tensor.begin != at) {
        fail("tensor \"" + tensor.name + "\" begins at byte " + std::to_string(tensor.begin) +
             ", must begin where the one before it ends, at " + std::to_string(at));
      }
      at = tensor.end;
    }
    if (at != there) {
      fail("has " + std::to_string(there - at) + " bytes at its end that belong to no tensor");
    }
  }

  std::string_view bytes;
  const std::string &name;
};

std::string names_of(const SafetensorsHeader &header) {
  constexpr std::size_t kMostNames = 20;
  std::vector<std::string> names(header.tensors.size());
  std::transform(header.tensors.begin(), header.tensors.end(), names.begin(),
                 [](const SafetensorsEntry &tensor) { return tensor.name; });
  std::sort(names.begin(), names.end());
  std::string text;
  for (std::size_t n = 0; n < std::min(names.size(), kMostNames); ++n) {
    text += (n == 0 ? "" : ", ") + names[n];
  }
  return names.empty() ? "it has no tensors"
                       : "it has " + text +
                             (names.size() > kMostNames ? " and " + std::to_string(names.size() - kMostNames) + " more"
                                                        : std::string());
}

NpyType find_type(const SafetensorsEntry &entry, const std::string &name, const NpyTypes &types) {
  const auto is_allowed = [&](NpyType type) {
    return std::count(types.allowed.begin(), types.allowed.end(), type) > 0 ||
           (type == NpyType::kBfloat16 &&
            std::count(types.allowed.begin(), types.allowed.end(), NpyType::kFloat16) > 0);
  };
  std::string allowed;
  for (const ReadType &read : kReadTypes) {
    if (!is_allowed(read.type)) {
      continue;
    }
    if (entry.dtype == read.name) {
      return read.type;
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(read.name);
  }
  throw InputError(name + ": its dtype is " + entry.dtype + "; allowed here: " + allowed);
}

constexpr std::string_view kSuffix = ".safetensors";

// Where the name of the tensor begins, behind the colon; npos where there is none.
std::size_t colon_of(const std::string &name) {
  const std::size_t suffix = name.find(std::string(kSuffix) + ":");
  return suffix == std::string::npos ? suffix : suffix + kSuffix.size();
}

} // namespace

SafetensorsHeader parse_safetensors(std::string_view bytes, const std::string &name) {
  return Parser(bytes, name).parse();
}

NpyArray read_safetensors(const std::string &path, const std::string &tensor, const NpyTypes &types) {
  MappedFile file = map_file(path);
  const SafetensorsHeader header = parse_safetensors(file.bytes, path);
  const auto found = std::find_if(header.tensors.begin(), header.tensors.end(),
                                  [&](const SafetensorsEntry &entry) { return entry.name == tensor; });
  if (found == header.tensors.end()) {
    throw InputError(path + ": has no tensor \"" + tensor + "\"; " + names_of(header));
  }
  NpyArray array;
  array.name = path + ":" + tensor;
  array.type = find_type(*found, array.name, types);
  array.shape = found->shape;
  array.strides = c_strides(array.shape);
  const std::string_view data = file.bytes.substr(header.data_offset + found->begin, found->end - found->begin);
  set_data(array, data, std::move(file));
  return array;
}

NpyArray read_tensor(const std::string &name, const NpyTypes &types) {
  const std::size_t colon = colon_of(name);
  if (colon != std::string::npos) {
    return read_safetensors(name.substr(0, colon), name.substr(colon + 1), types);
  }
  if (name.ends_with(kSuffix)) {
    throw InputError(name + ": which of its tensors? Name one after a colon, " + name + ":TENSOR; " +
                     names_of(parse_safetensors(map_file(name).bytes, name)));
  }
  return read_npy(name, types);
}

std::string file_of_tensor(const std::string &name) {
  return name.substr(0, colon_of(name));
}

} // namespace exattn::program
