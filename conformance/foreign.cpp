#include "foreign.hpp"

#include "strict_json.hpp"

#include <nlohmann/json.hpp>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace exattn::conformance {
namespace {

using nlohmann::ordered_json;
using Shape = std::vector<std::int64_t>;

// What an answer may take beside its data: keys, shapes, white space, a reason.
constexpr std::size_t kRoom = std::size_t{64} << 10;

// ---- Text

// Text from outside, for reports: control characters would garble a terminal, and XML doesn't allow them.
std::string printable(std::string text) {
  constexpr std::size_t kMost = 400;
  if (text.size() > kMost) {
    std::size_t end = kMost;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) { // not inside of a character
      --end;
    }
    text = text.substr(0, end) + "...";
  }
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return text;
}

// ---- Base64

std::size_t encoded_size(std::size_t bytes) {
  return (bytes + 2) / 3 * 4;
}

// OpenSSL counts in int, so it gets a part at a time. Whole groups of 3 bytes and 4 characters go together.
constexpr std::size_t kGroups = std::size_t{1} << 20;

std::string encode(std::span<const unsigned char> bytes) {
  std::string text(encoded_size(bytes.size()), '\0');
  for (std::size_t at = 0; at < bytes.size(); at += 3 * kGroups) {
    const std::size_t count = std::min(3 * kGroups, bytes.size() - at);
    // It writes a zero behind the text: where the next part begins, or the string's own.
    EVP_EncodeBlock(reinterpret_cast<unsigned char *>(text.data()) + at / 3 * 4, bytes.data() + at,
                    static_cast<int>(count));
  }
  return text;
}

// Of so many bytes, or nothing. OpenSSL's decoder takes white space, any bits in the padding and padding as zeros, so
// what it gives has to encode to the same text.
std::vector<unsigned char> decode(const std::string &text, std::size_t size) {
  if (text.size() != encoded_size(size)) {
    return {};
  }
  std::vector<unsigned char> bytes(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4 * kGroups) {
    const std::size_t count = std::min(4 * kGroups, text.size() - at);
    if (EVP_DecodeBlock(bytes.data() + at / 4 * 3, reinterpret_cast<const unsigned char *>(text.data()) + at,
                        static_cast<int>(count)) < 0) {
      return {};
    }
  }
  bytes.resize(size);
  return encode(bytes) == text ? bytes : std::vector<unsigned char>{};
}

// Throws FormatError.
std::vector<unsigned char> bytes_of(StrictObject &object, const char *key, std::size_t size) {
  const std::string text = object.text(key);
  std::vector<unsigned char> bytes = decode(text, size);
  if (bytes.size() != size || text.size() != encoded_size(size)) {
    object.fail(std::string("\"") + key + "\" must be the Base64 of " + std::to_string(size) + " bytes, " +
                std::to_string(encoded_size(size)) + " characters with their padding; it has " +
                std::to_string(text.size()) +
                (text.size() == encoded_size(size) ? ", but they are not Base64, or not in its one form" : ""));
  }
  return bytes;
}

// ---- Tensors

std::size_t element_count(const Shape &shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, [](std::size_t product, std::int64_t size) {
    return product * static_cast<std::size_t>(size);
  });
}

// Calls visit(offset) for every element in C order; offsets are counted in elements.
template <class Visit>
void for_each_element(const Shape &shape, const std::int64_t *stride, const Visit &visit) {
  Shape index(shape.size(), 0);
  std::int64_t offset = 0;
  for (std::size_t left = element_count(shape); left > 0; --left) {
    visit(offset);
    for (std::size_t n = shape.size(); n-- > 0;) {
      offset += stride[n];
      if (++index[n] < shape[n]) {
        break;
      }
      offset -= index[n] * stride[n];
      index[n] = 0;
    }
  }
}

// An element to or from its bytes, least significant first.
void copy_element(unsigned char *to, const unsigned char *from, std::size_t size) {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(to, from, size);
  } else {
    std::reverse_copy(from, from + size, to);
  }
}

struct ElementType {
  const char *name;
  std::size_t size;
};

ElementType element_type(std::int32_t dtype) {
  switch (dtype) {
  case EXATTN_F32:
    return {"f32", 4};
  case EXATTN_F16:
    return {"f16", 2};
  case EXATTN_BF16:
    return {"bf16", 2};
  case EXATTN_U8:
    return {"u8", 1};
  default:
    throw std::logic_error("a tensor of no known type");
  }
}

// `shown` is the shape in the message, where it is another one of as many elements.
ordered_json tensor_message(const exattn_tensor &tensor, const Shape &shape, const Shape &shown) {
  const ElementType type = element_type(tensor.dtype);
  std::vector<unsigned char> bytes(element_count(shape) * type.size);
  const auto *data = static_cast<const unsigned char *>(tensor.data);
  unsigned char *to = bytes.data();
  for_each_element(shape, tensor.stride, [&](std::int64_t offset) {
    copy_element(to, data + offset * static_cast<std::int64_t>(type.size), type.size);
    to += type.size;
  });
  return {{"dtype", type.name}, {"shape", shown}, {"data", encode(bytes)}};
}

ordered_json tensor_message(const exattn_tensor &tensor, const Shape &shape) {
  return tensor_message(tensor, shape, shape);
}

// A mask, with 1 in the place of a size along which it is the same everywhere.
ordered_json mask_message(const exattn_tensor &mask, Shape shape) {
  if (element_count(shape) > 0) {
    for (std::size_t n = 0; n < shape.size(); ++n) {
      shape[n] = mask.stride[n] == 0 ? 1 : shape[n];
    }
  }
  return tensor_message(mask, shape);
}

ordered_json per_head_message(const float *values, std::int64_t heads) {
  return tensor_message({values, EXATTN_F32, 1, {1, 0, 0, 0}}, {heads});
}

std::string bits_message(const float &value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return hex_bits(bits);
}

// ---- Calls

// One output of a call: where the answer goes.
struct Wanted {
  const char *name;
  exattn_output to;
  Shape shape;
};

struct WantedState {
  void *to = nullptr; // null: not wanted
  std::size_t size = 0;
};

struct Answer {
  std::vector<std::vector<unsigned char>> tensors; // as wanted
  std::vector<unsigned char> state;
  std::string refusal, reason; // "unsupported" or "error", and why; empty: none
};

std::int64_t most_keys(const exattn_attention_args &args) {
  std::int64_t most = args.kv_starts != nullptr ? 0 : args.kv_len;
  for (std::int64_t b = 0; args.kv_starts != nullptr && b < args.batch; ++b) {
    most = std::max(most, args.kv_starts[b + 1] - args.kv_starts[b]);
  }
  return most;
}

ordered_json params_message(const exattn_attention_args &args) {
  ordered_json params = {{"batch", args.batch},        {"heads", args.heads},   {"kv_heads", args.kv_heads},
                         {"q_len", args.q_len},        {"kv_len", args.kv_len}, {"head_dim", args.head_dim},
                         {"value_dim", args.value_dim}};
  ordered_json storage = ordered_json::object();
  for (const auto &[name, tensor] : {std::pair{"q", &args.q}, {"k", &args.k}, {"v", &args.v}}) {
    if (tensor->dtype != EXATTN_F32) {
      storage[name] = element_type(tensor->dtype).name;
    }
  }
  if (!storage.empty()) {
    params["storage"] = std::move(storage);
  }
  params["scale"] = args.scale_mode == EXATTN_SCALE_GIVEN ? bits_message(args.scale) : "default";
  if (args.softcap != 0.0F) {
    params["softcap"] = bits_message(args.softcap);
  }
  params["causal"] = args.causal != 0;
  params["window"] = std::max<std::int64_t>(args.window, 0);
  params["q_offset"] = args.q_offset;
  const auto add = [&](const char *name, const std::int64_t *values, std::int64_t count) {
    if (values != nullptr) {
      params[name] = Shape(values, values + count);
    }
  };
  add("q_offsets", args.q_offsets, args.batch);
  add("kv_lens", args.kv_lens, args.batch);
  add("q_starts", args.q_starts, args.batch + 1);
  add("kv_starts", args.kv_starts, args.batch + 1);
  if (args.kv_offset != 0) {
    params["kv_offset"] = args.kv_offset;
  }
  params["fully_masked"] = args.fully_masked == EXATTN_FULLY_MASKED_ZERO ? "zero" : "nan";
  return params;
}

ordered_json inputs_message(const exattn_attention_args &args) {
  const std::int64_t q_batch = args.q_starts != nullptr ? 1 : args.batch;
  const std::int64_t kv_batch = args.kv_starts != nullptr ? 1 : args.batch;
  const Shape scores = {q_batch, args.heads, args.q_len, most_keys(args)};
  ordered_json inputs;
  inputs["q"] = tensor_message(args.q, {q_batch, args.heads, args.q_len, args.head_dim});
  inputs["k"] = tensor_message(args.k, {kv_batch, args.kv_heads, args.kv_len, args.head_dim});
  inputs["v"] = tensor_message(args.v, {kv_batch, args.kv_heads, args.kv_len, args.value_dim});
  if (args.mask.data != nullptr) {
    inputs["mask"] = mask_message(args.mask, scores);
  }
  if (args.mask_bool.data != nullptr) {
    inputs["mask_bool"] = mask_message(args.mask_bool, scores);
  }
  if (args.sinks != nullptr) {
    inputs["sinks"] = per_head_message(args.sinks, args.heads);
  }
  if (args.alibi_slopes != nullptr) {
    inputs["alibi"] = per_head_message(args.alibi_slopes, args.heads);
  }
  return inputs;
}

// What `read` makes of an answer, of which it has to ask for every member.
template <class Read>
auto reading(const std::string &where, const std::string &line, const Read &read) {
  try {
    nlohmann::json document;
    try {
      document = parse_strictly(line);
    } catch (const FormatError &error) {
      throw FormatError(where + ": " + error.what());
    }
    StrictObject answer(document, where);
    auto result = read(answer);
    answer.nothing_else();
    return result;
  } catch (const FormatError &error) {
    throw ForeignError(printable(error.what()));
  }
}

class Bridge {
public:
  explicit Bridge(Exchange carrier) : exchange(std::move(carrier)) {}

  Foreign greet() {
    const ordered_json message = {{"protocol", kProtocol}, {"definition", kDefinition}};
    return reading("the answer to the first message", ask(message, kRoom, "the first message"),
                   [](StrictObject &answer) {
                     if (const std::string protocol = answer.string("protocol"); protocol != kProtocol) {
                       answer.fail("\"protocol\" is \"" + protocol + "\", this program speaks \"" + kProtocol + "\"");
                     }
                     Foreign who{printable(answer.string("name")), printable(answer.text("version")), {}};
                     const nlohmann::json &flavours = answer.member("flavours");
                     for (const nlohmann::json &item : flavours.is_array() ? flavours : nlohmann::json::array()) {
                       for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
                         if (item == exattn_flavour_name(flavour) &&
                             std::count(who.flavours.begin(), who.flavours.end(), flavour) == 0) {
                           who.flavours.push_back(flavour);
                         }
                       }
                     }
                     if (who.flavours.empty() || who.flavours.size() != flavours.size()) {
                       answer.fail(R"("flavours" must be a list of "exact", "fast" or both)");
                     }
                     return who;
                   });
  }

  exattn_status attention(const exattn_attention_args &args) {
    if (args.page_table != nullptr || args.k_layout != EXATTN_K_ROWS) {
      throw std::logic_error("pages and packed keys have no place in the protocol");
    }
    ordered_json message = request("attention", args.flavour);
    message["params"] = params_message(args);
    message["inputs"] = inputs_message(args);
    if (args.state_in != nullptr) {
      message["state"] = encode({static_cast<const unsigned char *>(args.state_in), args.state_in_size});
    }
    const std::int64_t q_batch = args.q_starts != nullptr ? 1 : args.batch;
    std::vector<Wanted> wanted;
    if (args.out.data != nullptr) {
      wanted.push_back({"out", args.out, {q_batch, args.heads, args.q_len, args.value_dim}});
    }
    if (args.lse.data != nullptr) {
      wanted.push_back({"lse", args.lse, {q_batch, args.heads, args.q_len}});
    }
    WantedState state;
    if (args.state_out != nullptr) {
      if (const exattn_status status = exattn_attention_state_size(&args, &state.size); status != EXATTN_OK) {
        return status;
      }
      state.to = args.state_out;
    }
    call(std::move(message), wanted, state);
    return EXATTN_OK;
  }

  exattn_status softmax(const exattn_softmax_args &args) {
    const Shape shape(args.shape, args.shape + 4);
    const Shape rows = {shape[0] * shape[1] * shape[2], shape[3]};
    ordered_json message = request("softmax", args.flavour);
    message["params"] = {{"rows", rows[0]}, {"columns", rows[1]}};
    message["inputs"]["x"] = tensor_message(args.x, shape, rows);
    // A result is [rows, columns]; where it goes has the strides of all four sizes, of which the first two are 1.
    if (shape[0] != 1 || shape[1] != 1) {
      throw std::logic_error("softmax rows have two sizes in the protocol");
    }
    exattn_output y = args.y;
    y.rank = 2;
    y.stride[0] = args.y.stride[2];
    y.stride[1] = args.y.stride[3];
    call(std::move(message), {{"out", y, rows}}, {});
    return EXATTN_OK;
  }

private:
  ordered_json request(const char *operation, std::int32_t flavour) {
    return {{"request", ++number}, {"operation", operation}, {"flavour", exattn_flavour_name(flavour)}};
  }

  // Nothing is written before the whole answer has been read.
  void call(ordered_json message, const std::vector<Wanted> &wanted, const WantedState &state) {
    std::size_t most = kRoom + encoded_size(state.size);
    message["outputs"] = ordered_json::array();
    for (const Wanted &output : wanted) {
      message["outputs"].push_back(output.name);
      most += encoded_size(4 * element_count(output.shape));
    }
    if (state.to != nullptr) {
      message["outputs"].push_back("state");
    }
    const std::string what = "request " + std::to_string(number);
    const std::string line = ask(message, most, what);
    message.clear(); // large, as the answer is
    const Answer read = reading("the answer to " + what, line, [&](StrictObject &answer) {
      if (const nlohmann::json &echo = answer.member("request"); !echo.is_number_integer() || echo != number) {
        answer.fail("\"request\" must be " + std::to_string(number) + ", and is " + printable(echo.dump()));
      }
      Answer result;
      for (const char *key : {"unsupported", "error"}) {
        if (answer.has(key)) {
          result.refusal = key;
          result.reason = printable(answer.text(key));
          return result;
        }
      }
      StrictObject outputs = answer.object("outputs");
      for (const Wanted &output : wanted) {
        result.tensors.push_back(read_tensor(outputs, output));
      }
      if (state.to != nullptr) {
        result.state = bytes_of(outputs, "state", state.size);
      }
      outputs.nothing_else();
      return result;
    });
    if (read.refusal == "unsupported") {
      throw Unsupported(read.reason);
    }
    if (read.refusal == "error") {
      throw CallFailed(read.reason);
    }
    for (std::size_t n = 0; n < wanted.size(); ++n) {
      const unsigned char *from = read.tensors[n].data();
      for_each_element(wanted[n].shape, wanted[n].to.stride, [&](std::int64_t offset) {
        copy_element(reinterpret_cast<unsigned char *>(wanted[n].to.data + offset), from, sizeof(float));
        from += sizeof(float);
      });
    }
    if (state.to != nullptr) {
      std::copy(read.state.begin(), read.state.end(), static_cast<unsigned char *>(state.to));
    }
  }

  static std::vector<unsigned char> read_tensor(StrictObject &outputs, const Wanted &output) {
    StrictObject tensor = outputs.object(output.name);
    if (tensor.string("dtype") != "f32") {
      tensor.fail("\"dtype\" must be \"f32\"");
    }
    if (const nlohmann::json &shape = tensor.member("shape"); shape != nlohmann::json(output.shape)) {
      tensor.fail("\"shape\" must be " + nlohmann::json(output.shape).dump() + ", and is " + printable(shape.dump()));
    }
    std::vector<unsigned char> bytes = bytes_of(tensor, "data", 4 * element_count(output.shape));
    tensor.nothing_else();
    return bytes;
  }

  // What went wrong is said with the message that it went wrong with.
  std::string ask(const ordered_json &message, std::size_t most, const std::string &what) const {
    try {
      return exchange(message.dump(), most);
    } catch (const ForeignError &error) {
      throw ForeignError(what + ": " + error.what());
    }
  }

  Exchange exchange;
  std::int64_t number = 0; // of the last request
};

} // namespace

Implementation foreign_implementation(Exchange exchange) {
  const auto bridge = std::make_shared<Bridge>(std::move(exchange));
  Foreign who = bridge->greet();
  return {[bridge](const exattn_attention_args &args) { return bridge->attention(args); },
          [bridge](const exattn_softmax_args &args) { return bridge->softmax(args); }, std::move(who)};
}

} // namespace exattn::conformance
