#include "runner.hpp"

#include "exact/oracle.hpp"
#include "oracle_case.hpp"
#include "sha256.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

namespace exattn::conformance {
namespace {

// A signalling NaN that no kernel produces: an element that was not written changes the hash.
constexpr std::uint32_t kUnwritten = 0x7FA5A5A5u;

struct Output {
  const char *name;
  std::vector<std::int64_t> shape;
  std::string expected[2]; // by flavour
  std::vector<float> data;
};

// Where a case stops and goes on. The bytes are those of the state that the call left.
struct StateOutput {
  std::string name; // "state 64"
  std::string expected[2];
  std::vector<unsigned char> data;
};

struct OracleOutputs {
  std::vector<std::vector<float>> outputs; // one vector per output
  std::vector<std::vector<std::uint8_t>> states;
};

// What varies between the calls of one case, and where the answers go.
struct Call {
  std::int32_t flavour;
  std::int32_t lanes;
  exattn_pool *pool;
  bool packed;
  std::int32_t split_keys; // EXATTN_SPLIT_KEYS_*
  const char **kernel;
  std::span<char> message;
};

// A case with its inputs made: attention and softmax in the same shape.
struct Prepared {
  std::vector<Output> outputs;
  std::vector<StateOutput> states;
  // Fills the states in, which are this object's as it is now.
  std::function<exattn_status(const Call &call, std::vector<StateOutput> &states)> compute;
  std::function<OracleOutputs(std::int32_t flavour)> oracle;
  bool has_keys = false;
};

std::size_t element_count(const std::vector<std::int64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, [](std::size_t product, std::int64_t size) {
    return product * static_cast<std::size_t>(size);
  });
}

// Strides of an output: never 0, since no two elements may share memory.
std::vector<std::int64_t> output_strides_of(const std::vector<std::int64_t> &shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t n = shape.size(); n-- > 0;) {
    strides[n] = step;
    step *= std::max<std::int64_t>(shape[n], 1);
  }
  return strides;
}

std::int32_t dtype_of(Storage storage) {
  switch (storage) {
  case Storage::kFloat32:
    return EXATTN_F32;
  case Storage::kBfloat16:
    return EXATTN_BF16;
  case Storage::kFloat16:
    return EXATTN_F16;
  case Storage::kByte:
    return EXATTN_U8;
  }
  return -1; // which the library refuses
}

// Four strides; a tensor with fewer sizes gets leading zeros. `skip` keys of the last dimension are left out.
exattn_tensor input_tensor(const Elements &elements, const std::vector<std::int64_t> &shape, std::int64_t skip = 0) {
  static const float nothing = 0; // a tensor without elements still needs a pointer
  exattn_tensor tensor{};
  tensor.dtype = dtype_of(elements.storage);
  tensor.rank = 4;
  const std::vector<std::int64_t> strides = strides_of(shape);
  std::copy(strides.begin(), strides.end(), tensor.stride + (4 - strides.size()));
  if (elements.bytes.empty()) {
    tensor.data = &nothing;
  } else {
    const auto element_bytes = static_cast<std::int64_t>(element_size(elements.storage));
    tensor.data = elements.bytes.data() + skip * tensor.stride[3] * element_bytes;
  }
  return tensor;
}

// Packed keys of that shape (definition, section 3), in groups of 16.
constexpr std::int64_t kGroupKeys = 16;
exattn_tensor packed_tensor(const Elements &packed, const std::array<std::int64_t, 4> &shape) {
  const std::int64_t group = kGroupKeys * shape[3];
  const std::int64_t head = (shape[2] + kGroupKeys - 1) / kGroupKeys * group;
  return {packed.bytes.data(), dtype_of(packed.storage), 4, {shape[1] * head, head, group, kGroupKeys}};
}

const float *floats(const Elements &elements) {
  return reinterpret_cast<const float *>(elements.bytes.data());
}

exattn_output output_tensor(std::vector<float> &data, const std::vector<std::int64_t> &shape) {
  static float nothing = 0;
  exattn_output output{};
  output.data = data.empty() ? &nothing : data.data();
  output.rank = static_cast<std::int32_t>(shape.size());
  const std::vector<std::int64_t> strides = output_strides_of(shape);
  std::copy(strides.begin(), strides.end(), output.stride);
  return output;
}

int processors() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint32_t bits_of(const float &value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Makes an input and checks its hash; says in `problems` if it is not the golden file's.
Elements make_input(const char *name, const CaseTensor &tensor, std::vector<std::string> &problems) {
  Elements data = generate(tensor.input, tensor.shape, tensor.storage);
  const std::string hash = data.sha256();
  if (hash != tensor.sha256) {
    problems.push_back(std::string("input ") + name + " has SHA-256 " + hash + ", the golden file says " +
                       tensor.sha256);
  }
  return data;
}

template <class Args>
void apply(const Call &call, Args &args) {
  args.flavour = call.flavour;
  args.lanes = call.lanes;
  args.pool = call.pool;
  args.kernel = call.kernel;
  args.message = call.message.data();
  args.message_size = call.message.size();
}

// Keys and values in pages. What no key uses is NaN in every storage: the spare slots and pages.
struct Pages {
  std::int64_t pages = 0;
  std::int64_t table_stride = 0;
  std::vector<std::int32_t> table; // [batch, table_stride]; -1 where a sequence has no key
  Elements k, v;                   // [pages, kv_heads, page_size, size]
};

Pages put_into_pages(const AttentionParams &params, const KeyPart &part) {
  constexpr std::int64_t kSparePages = 2;
  constexpr std::uint64_t kPageSeed = 0x7061676573;
  constexpr int kNanByte = 0xFF;
  const std::int64_t page_size = *params.page_size;
  const auto pages_for = [&](std::int64_t keys) { return keys / page_size + (keys % page_size != 0 ? 1 : 0); };
  Pages result;
  result.table_stride = pages_for(part.kv_len) + 1;
  result.pages = kSparePages;
  for (const std::int64_t keys : part.kv_lens) {
    result.pages += pages_for(keys);
  }
  std::vector<std::int32_t> order(static_cast<std::size_t>(result.pages));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t n = order.size(); n > 1; --n) {
    std::swap(order[n - 1], order[random_word(kPageSeed, n) % n]);
  }
  result.table.assign(static_cast<std::size_t>(params.batch * result.table_stride), -1);
  const auto make = [&](Elements &to, const Elements &from, std::int64_t size) {
    to.storage = from.storage;
    const std::size_t row_bytes = static_cast<std::size_t>(size) * element_size(from.storage);
    to.bytes.assign(static_cast<std::size_t>(result.pages * params.kv_heads * page_size) * row_bytes, kNanByte);
    std::size_t next = 0;
    for (std::int64_t b = 0; b < params.batch; ++b) {
      const std::int64_t keys = part.kv_lens[static_cast<std::size_t>(b)];
      for (std::int64_t first = 0; first < keys; first += page_size) {
        const std::int32_t page = order[next++];
        result.table[static_cast<std::size_t>(b * result.table_stride + first / page_size)] = page;
        const std::int64_t count = std::min(page_size, keys - first);
        for (std::int64_t head = 0; head < params.kv_heads; ++head) {
          const std::int64_t source = (b * params.kv_heads + head) * part.kv_len + first;
          const std::int64_t target = (page * params.kv_heads + head) * page_size;
          std::memcpy(to.bytes.data() + static_cast<std::size_t>(target) * row_bytes,
                      from.bytes.data() + static_cast<std::size_t>(source) * row_bytes,
                      static_cast<std::size_t>(count) * row_bytes);
        }
      }
    }
  };
  make(result.k, part.k, params.head_dim);
  make(result.v, part.v, params.value_dim);
  return result;
}

// Whether a case's keys can be packed: a page holds whole groups.
bool can_be_packed(const AttentionCase &item) {
  return !item.params.page_size || *item.params.page_size % kGroupKeys == 0;
}
bool can_be_packed(const SoftmaxCase &) {
  return false;
}

std::int64_t work_of(const AttentionCase &item) {
  return multiply_adds(item.params);
}
std::int64_t work_of(const SoftmaxCase &item) {
  return item.params.rows * item.params.columns;
}

// Memory between what a case has: all bits set, which is NaN in every storage.
Elements unused(Storage storage, std::size_t bytes) {
  Elements elements;
  elements.storage = storage;
  elements.bytes.assign(bytes, 0xFF);
  return elements;
}

// Ragged keys once more, every sequence from a multiple of 16 on.
KeyPart from_whole_groups(const AttentionParams &params, const KeyPart &part) {
  KeyPart result = part;
  result.kv_len = 0;
  for (std::size_t b = 0; b < part.kv_starts.size(); ++b) {
    result.kv_len = (result.kv_len + kGroupKeys - 1) / kGroupKeys * kGroupKeys;
    result.kv_starts[b] = result.kv_len;
    result.kv_len += b + 1 < part.kv_starts.size() ? part.kv_starts[b + 1] - part.kv_starts[b] : 0;
  }
  const auto move = [&](Elements &to, const Elements &from, std::int64_t size) {
    const std::size_t row_bytes = static_cast<std::size_t>(size) * element_size(from.storage);
    to = unused(from.storage, static_cast<std::size_t>(params.kv_heads * result.kv_len) * row_bytes);
    for (std::int64_t head = 0; head < params.kv_heads; ++head) {
      for (std::size_t b = 0; b + 1 < part.kv_starts.size(); ++b) {
        const std::int64_t target = head * result.kv_len + result.kv_starts[b];
        const std::int64_t source = head * part.kv_len + part.kv_starts[b];
        const std::int64_t keys = part.kv_starts[b + 1] - part.kv_starts[b];
        if (keys > 0) {
          std::memcpy(to.bytes.data() + static_cast<std::size_t>(target) * row_bytes,
                      from.bytes.data() + static_cast<std::size_t>(source) * row_bytes,
                      static_cast<std::size_t>(keys) * row_bytes);
        }
      }
    }
  };
  move(result.k, part.k, params.head_dim);
  move(result.v, part.v, params.value_dim);
  return result;
}

// A mask over such keys: with a column for every place that they have, unless it has one for all.
struct Mask {
  Elements elements;
  std::vector<std::int64_t> shape;
};

Mask over_whole_groups(const Elements &elements, const std::vector<std::int64_t> &shape) {
  if (shape.back() == 1) {
    return {elements, shape};
  }
  const std::size_t width = element_size(elements.storage), from = static_cast<std::size_t>(shape.back()) * width;
  Mask mask{{}, shape};
  mask.shape.back() = (shape.back() + kGroupKeys - 1) / kGroupKeys * kGroupKeys;
  const std::size_t to = static_cast<std::size_t>(mask.shape.back()) * width;
  mask.elements = unused(elements.storage, element_count(mask.shape) * width);
  for (std::size_t row = 0; row * from < elements.bytes.size(); ++row) {
    std::memcpy(mask.elements.bytes.data() + row * to, elements.bytes.data() + row * from, from);
  }
  return mask;
}

// Keys of that shape, packed.
Elements pack(const Elements &k, const std::array<std::int64_t, 4> &shape) {
  std::size_t bytes = 0;
  exattn_pack_keys_args args{};
  args.struct_size = sizeof args;
  args.batch = shape[0];
  args.kv_heads = shape[1];
  args.kv_len = args.count = shape[2];
  args.head_dim = shape[3];
  args.k = input_tensor(k, {shape.begin(), shape.end()});
  exattn_status status = exattn_packed_keys_size(shape[0], shape[1], shape[2], shape[3], args.k.dtype, &bytes);
  Elements packed = unused(k.storage, std::max(bytes, sizeof(float)));
  const exattn_tensor to = packed_tensor(packed, shape);
  args.packed = {packed.bytes.data(), to.dtype, to.rank, {to.stride[0], to.stride[1], to.stride[2], to.stride[3]}};
  status = status == EXATTN_OK ? exattn_pack_keys(&args) : status;
  if (status != EXATTN_OK) {
    throw std::runtime_error(std::string("packing keys: ") + exattn_status_string(status));
  }
  return packed;
}

// The keys of one call, and where they lie.
struct CallPart {
  KeyPart keys;
  std::optional<Pages> pages;
  bool packed = false;
};

// A golden case for the library: one call, or one from each edge to the next.
class LibraryCase {
public:
  LibraryCase(const AttentionCase &which, bool in_pages, bool pack_too, std::vector<std::string> &problems)
      : item(which) {
    for (const auto &[name, tensor] : tensors_of(item)) {
      inputs[name] = make_input(name, *tensor, problems);
    }
    std::vector<std::int64_t> edges = {0};
    edges.insert(edges.end(), item.params.resume.begin(), item.params.resume.end());
    edges.push_back(most_keys(item.params));
    for (std::size_t n = 0; n + 1 < edges.size(); ++n) {
      CallPart part{key_part(item, inputs, edges[n], edges[n + 1]), {}};
      if (in_pages && item.params.page_size) {
        part.pages = put_into_pages(item.params, part.keys);
        part.keys.k = {};
        part.keys.v = {};
      }
      if (pack_too && can_be_packed(item)) {
        packed_parts.push_back(packed(part));
      }
      parts.push_back(std::move(part));
    }
    if (pack_too && item.params.kv_starts) {
      mask = item.mask ? over_whole_groups(inputs.mask, item.mask->shape) : Mask{};
      mask_bool = item.mask_bool ? over_whole_groups(inputs.mask_bool, item.mask_bool->shape) : Mask{};
    }
  }

  const AttentionInputs &all_inputs() const { return inputs; }

  // Outputs are written by the last call alone.
  exattn_status compute(const Implementation &implementation, const Call &call, const exattn_output &out,
                        const exattn_output &lse, std::vector<StateOutput> &states) const {
    std::vector<unsigned char> state(state_size(), kUnwrittenByte);
    exattn_status status = EXATTN_OK;
    for (std::size_t n = 0; n < parts.size() && status == EXATTN_OK; ++n) {
      exattn_attention_args args = arguments(call.packed ? packed_parts[n] : parts[n]);
      apply(call, args);
      args.split_keys = call.split_keys;
      if (n > 0) {
        args.state_in = state.data();
        args.state_in_size = state.size();
        args.sinks = nullptr; // they are in the state
      }
      if (n + 1 < parts.size()) {
        args.state_out = state.data();
        args.state_out_size = state.size();
      } else {
        args.out = out;
        args.lse = lse;
      }
      status = implementation.attention(args);
      if (n + 1 < parts.size()) {
        states[n].data = state;
      }
    }
    return status;
  }

private:
  static constexpr unsigned char kUnwrittenByte = 0xA5;

  // Definition, section 14.
  std::size_t state_size() const {
    const AttentionParams &params = item.params;
    return static_cast<std::size_t>(64 + 8 * params.batch) +
           4 * static_cast<std::size_t>(3 + params.value_dim) * element_count(lse_shape(params));
  }

  // The same part with packed keys.
  CallPart packed(const CallPart &part) const {
    CallPart result = part;
    result.packed = true;
    if (part.pages) {
      result.pages->k = pack(part.pages->k, key_shape(part));
    } else {
      result.keys = item.params.kv_starts ? from_whole_groups(item.params, part.keys) : part.keys;
      result.keys.k = pack(result.keys.k, key_shape(result));
    }
    return result;
  }

  std::array<std::int64_t, 4> key_shape(const CallPart &part) const {
    const AttentionParams &params = item.params;
    const std::int64_t sequences = params.kv_starts ? 1 : params.batch;
    return {part.pages ? part.pages->pages : sequences, params.kv_heads,
            part.pages ? *params.page_size : part.keys.kv_len, params.head_dim};
  }

  exattn_attention_args arguments(const CallPart &part) const {
    const AttentionParams &params = item.params;
    exattn_attention_args args{};
    args.struct_size = sizeof args;
    args.batch = params.batch;
    args.heads = params.heads;
    args.kv_heads = params.kv_heads;
    args.q_len = params.q_len;
    args.kv_len = part.keys.kv_len;
    args.head_dim = params.head_dim;
    args.value_dim = params.value_dim;
    args.q = input_tensor(inputs.q, item.q.shape);
    std::array<std::int64_t, 4> shape = key_shape(part);
    const Elements &k = part.pages ? part.pages->k : part.keys.k;
    args.k = part.packed ? packed_tensor(k, shape) : input_tensor(k, {shape.begin(), shape.end()});
    args.k_layout = part.packed ? EXATTN_K_PACKED : EXATTN_K_ROWS;
    shape[3] = params.value_dim;
    args.v = input_tensor(part.pages ? part.pages->v : part.keys.v, {shape.begin(), shape.end()});
    if (part.pages) {
      args.page_table = part.pages->table.data();
      args.page_table_stride = part.pages->table_stride;
      args.page_size = *params.page_size;
      args.pages = part.pages->pages;
    }
    const bool spread = part.packed && params.kv_starts;
    if (item.mask) {
      args.mask = spread ? input_tensor(mask.elements, mask.shape, part.keys.first)
                         : input_tensor(inputs.mask, item.mask->shape, part.keys.first);
    }
    if (item.mask_bool) {
      args.mask_bool = spread ? input_tensor(mask_bool.elements, mask_bool.shape, part.keys.first)
                              : input_tensor(inputs.mask_bool, item.mask_bool->shape, part.keys.first);
    }
    if (params.scale_bits) {
      args.scale_mode = EXATTN_SCALE_GIVEN;
      args.scale = float_of(*params.scale_bits);
    }
    args.softcap = params.softcap_bits ? float_of(*params.softcap_bits) : 0.0F;
    args.causal = params.causal ? 1 : 0;
    args.fully_masked = params.fully_masked_zero ? EXATTN_FULLY_MASKED_ZERO : EXATTN_FULLY_MASKED_NAN;
    args.q_offset = params.q_offset;
    args.window = params.window;
    args.sinks = item.sinks ? floats(inputs.sinks) : nullptr;
    args.alibi_slopes = item.alibi ? floats(inputs.alibi) : nullptr;
    args.q_offsets = params.q_offsets ? params.q_offsets->data() : nullptr;
    args.kv_lens = params.kv_lens || spread ? part.keys.kv_lens.data() : nullptr;
    args.q_starts = params.q_starts ? params.q_starts->data() : nullptr;
    args.kv_starts = params.kv_starts ? part.keys.kv_starts.data() : nullptr;
    args.kv_offset = part.keys.first;
    return args;
  }

  const AttentionCase &item;
  AttentionInputs inputs;
  std::vector<CallPart> parts, packed_parts;
  Mask mask, mask_bool; // for ragged keys that are packed
};

Prepared prepare(const AttentionCase &item, const Implementation &implementation, bool pack_too,
                 std::vector<std::string> &problems) {
  const auto library = std::make_shared<const LibraryCase>(item, !implementation.foreign, pack_too, problems);
  Prepared prepared;
  prepared.has_keys = true;
  prepared.outputs.push_back({"out", out_shape(item.params), {item.exact.out, item.fast.out}, {}});
  prepared.outputs.push_back({"lse", lse_shape(item.params), {item.exact.lse, item.fast.lse}, {}});
  for (Output &output : prepared.outputs) {
    output.data.resize(element_count(output.shape));
  }
  for (std::size_t n = 0; n < item.params.resume.size(); ++n) {
    prepared.states.push_back(
        {"state " + std::to_string(item.params.resume[n]), {item.exact.states[n], item.fast.states[n]}, {}});
  }
  const exattn_output out = output_tensor(prepared.outputs[0].data, prepared.outputs[0].shape);
  const exattn_output lse = output_tensor(prepared.outputs[1].data, prepared.outputs[1].shape);
  prepared.compute = [library, out, lse, &implementation](const Call &call, std::vector<StateOutput> &states) {
    return library->compute(implementation, call, out, lse, states);
  };
  prepared.oracle = [&item, library](std::int32_t flavour) {
    AttentionOutputs outputs = compute_by_oracle(item, library->all_inputs(), flavour == EXATTN_FAST, processors());
    return OracleOutputs{{std::move(outputs.out), std::move(outputs.lse)}, std::move(outputs.states)};
  };
  return prepared;
}

Prepared prepare(const SoftmaxCase &item, const Implementation &implementation, bool,
                 std::vector<std::string> &problems) {
  const SoftmaxParams &params = item.params;
  const auto x = std::make_shared<const Elements>(make_input("x", item.x, problems));

  Prepared prepared;
  prepared.outputs.push_back({"out", {params.rows, params.columns}, {item.exact.out, item.fast.out}, {}});
  prepared.outputs[0].data.resize(x->size());

  exattn_softmax_args args{};
  args.struct_size = sizeof args;
  args.shape[0] = args.shape[1] = 1;
  args.shape[2] = params.rows;
  args.shape[3] = params.columns;
  args.x = input_tensor(*x, {1, 1, params.rows, params.columns});
  args.y = output_tensor(prepared.outputs[0].data, {1, 1, params.rows, params.columns});

  prepared.oracle = [params, x](std::int32_t flavour) {
    OracleOutputs result{{std::vector<float>(x->size())}, {}};
    oracle::softmax(floats(*x), params.rows, params.columns,
                    flavour == EXATTN_FAST ? oracle::Flavour::fast : oracle::Flavour::exact, result.outputs[0].data());
    return result;
  };
  prepared.compute = [args, x, &implementation](const Call &call, std::vector<StateOutput> &) {
    exattn_softmax_args now = args;
    apply(call, now);
    return implementation.softmax(now);
  };
  return prepared;
}

struct Combination {
  std::int32_t flavour;
  std::int32_t lanes;
};

bool is_exact_only(std::int32_t lanes) {
  return lanes == EXATTN_LANES_SSE2 || lanes == EXATTN_LANES_AVX512N;
}

std::string combination_name(std::int32_t lanes, std::int32_t flavour) {
  return std::string(exattn_lanes_name(lanes)) + "/" + exattn_flavour_name(flavour);
}

std::vector<std::int32_t> flavours_of(const Selection &selection) {
  return selection.flavours.empty() ? std::vector<std::int32_t>{EXATTN_EXACT, EXATTN_FAST} : selection.flavours;
}

// A flavour that was asked for by name is never dropped in silence.
std::vector<Combination> select_combinations(const Selection &selection, const Foreign &foreign) {
  std::vector<Combination> combinations;
  for (const std::int32_t flavour : flavours_of(selection)) {
    if (std::count(foreign.flavours.begin(), foreign.flavours.end(), flavour) > 0) {
      combinations.push_back({flavour, EXATTN_LANES_AUTO});
    } else if (!selection.flavours.empty()) {
      throw SelectionError("\"" + foreign.name + "\" has no " + exattn_flavour_name(flavour) + " flavour");
    }
  }
  return combinations;
}

std::vector<Combination> select_combinations(const Selection &selection, const std::vector<LaneKind> &kinds) {
  const std::vector<std::int32_t> flavours = flavours_of(selection);
  for (const std::int32_t lanes : selection.lanes) {
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const LaneKind &k) { return k.lanes == lanes; });
    if (kind == kinds.end() || !kind->missing.empty()) {
      throw SelectionError("lane kind " + std::string(exattn_lanes_name(lanes)) + " is not usable here: " +
                           (kind == kinds.end() ? "it is not a lane kind of its own" : kind->missing));
    }
    for (const std::int32_t flavour : selection.flavours) {
      if (!kind->usable(flavour)) {
        throw SelectionError("lane kind " + std::string(exattn_lanes_name(lanes)) + " has no " +
                             exattn_flavour_name(flavour) + " flavour here");
      }
    }
  }
  std::vector<Combination> combinations;
  for (const std::int32_t flavour : flavours) {
    for (const LaneKind &kind : kinds) {
      const bool wanted =
          selection.lanes.empty() || std::count(selection.lanes.begin(), selection.lanes.end(), kind.lanes) > 0;
      if (wanted && kind.usable(flavour)) {
        combinations.push_back({flavour, kind.lanes});
      }
    }
  }
  return combinations;
}

struct PoolDeleter {
  void operator()(exattn_pool *pool) const { exattn_pool_destroy(pool); }
};

struct Threads {
  std::int32_t count;
  std::unique_ptr<exattn_pool, PoolDeleter> pool; // null for one thread: serial
};

// Without doubles: on two processors "2" and "all" are the same.
std::vector<Threads> make_threads(const Selection &selection, const Implementation &implementation) {
  std::vector<Threads> result;
  if (implementation.foreign) { // they are its own matter
    result.push_back({0, nullptr});
    return result;
  }
  const std::vector<std::int32_t> wanted =
      selection.threads.empty() ? std::vector<std::int32_t>{1, 2, 3, 0} : selection.threads;
  for (const std::int32_t count : wanted) {
    exattn_pool *made = nullptr;
    if (const exattn_status status = exattn_pool_create(count, &made); status != EXATTN_OK) {
      throw SelectionError("a pool of " + std::to_string(count) + " threads: " + exattn_status_string(status));
    }
    std::unique_ptr<exattn_pool, PoolDeleter> pool(made);
    const std::int32_t got = exattn_pool_threads(pool.get());
    if (std::none_of(result.begin(), result.end(), [&](const Threads &t) { return t.count == got; })) {
      result.push_back({got, got == 1 ? nullptr : std::move(pool)});
    }
  }
  std::sort(result.begin(), result.end(), [](const Threads &a, const Threads &b) { return a.count < b.count; });
  return result;
}

// Of two runs of bits or bytes: how many differ, and where the first of them is.
template <class Got, class Expected, class BitsOf>
std::optional<Difference> first_difference(const std::string &name, const Got &got, const Expected &expected,
                                           const BitsOf &bits) {
  std::size_t count = 0;
  std::size_t position = 0;
  for (std::size_t i = got.size(); i-- > 0;) {
    if (bits(got[i]) != bits(expected[i])) {
      ++count;
      position = i;
    }
  }
  if (count == 0) {
    return std::nullopt;
  }
  return Difference{name, {static_cast<std::int64_t>(position)}, bits(got[position]), bits(expected[position]), count};
}

// States first: they come before the outputs.
std::optional<Difference> first_difference(const Prepared &prepared, const OracleOutputs &oracle) {
  for (std::size_t n = 0; n < prepared.states.size(); ++n) {
    const auto byte = [](unsigned char value) { return std::uint32_t{value}; };
    if (auto found = first_difference(prepared.states[n].name, prepared.states[n].data, oracle.states[n], byte)) {
      return found;
    }
  }
  for (std::size_t n = 0; n < prepared.outputs.size(); ++n) {
    const Output &output = prepared.outputs[n];
    if (auto found = first_difference(output.name, output.data, oracle.outputs[n], bits_of)) {
      std::int64_t position = found->index[0];
      found->index.resize(output.shape.size());
      for (std::size_t d = output.shape.size(); d-- > 0;) {
        found->index[d] = position % output.shape[d];
        position /= output.shape[d];
      }
      return found;
    }
  }
  return std::nullopt;
}

std::string sha256_of_bytes(const std::vector<unsigned char> &bytes) {
  return sha256_of(std::string_view(reinterpret_cast<const char *>(bytes.data()), bytes.size()));
}

// The oracle's outputs and their hashes, computed when a mismatch first asks for them.
class Diagnosis {
public:
  explicit Diagnosis(const Prepared &item) : prepared(item) {}

  void explain(Result &result) {
    const auto flavour = static_cast<std::size_t>(result.flavour);
    if (!outputs[flavour]) {
      outputs[flavour] = prepared.oracle(result.flavour);
    }
    const auto compare = [&](const std::string &name, const std::string &hash, const std::string &expected) {
      if (hash != expected) {
        result.problems.push_back("the oracle disagrees with the golden as well: its " + name + " has SHA-256 " + hash);
      }
    };
    for (std::size_t n = 0; n < prepared.states.size(); ++n) {
      compare(prepared.states[n].name, sha256_of_bytes(outputs[flavour]->states[n]),
              prepared.states[n].expected[flavour]);
    }
    for (std::size_t n = 0; n < prepared.outputs.size(); ++n) {
      compare(prepared.outputs[n].name, sha256_of(outputs[flavour]->outputs[n]), prepared.outputs[n].expected[flavour]);
    }
    result.difference = first_difference(prepared, *outputs[flavour]);
    result.problems.push_back(result.difference ? describe(*result.difference)
                                                : "every element is the oracle's, bit for bit: the golden is wrong");
  }

private:
  const Prepared &prepared;
  std::array<std::optional<OracleOutputs>, 2> outputs;
};

void run_combination(Prepared &prepared, Diagnosis &diagnosis, exattn_pool *pool, std::int32_t split_keys,
                     bool allow_unsupported, Result &result) {
  result.passed = false;
  for (Output &output : prepared.outputs) {
    for (float &element : output.data) {
      std::memcpy(&element, &kUnwritten, sizeof element);
    }
  }
  const char *kernel = nullptr;
  std::array<char, 512> message{};
  const auto start = std::chrono::steady_clock::now();
  exattn_status status = EXATTN_OK;
  try {
    status = prepared.compute({result.flavour, result.lanes, pool, result.packed, split_keys, &kernel, message},
                              prepared.states);
  } catch (const Unsupported &lack) {
    (allow_unsupported ? result.unsupported : result.problems.emplace_back()) =
        std::string("unsupported: ") + lack.what();
  } catch (const CallFailed &failure) {
    result.problems.push_back(std::string("error: ") + failure.what());
  }
  result.milliseconds += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  result.kernel = kernel != nullptr ? kernel : "";
  if (!result.unsupported.empty() || !result.problems.empty()) {
    return;
  }
  if (status != EXATTN_OK) {
    result.problems.push_back(std::string(exattn_status_name(status)) + ": " +
                              (message[0] != '\0' ? message.data() : exattn_status_string(status)));
    return;
  }
  const std::string wanted = combination_name(result.lanes, result.flavour);
  if (result.implementation.empty() && result.kernel != wanted) {
    result.problems.push_back("the kernel " + wanted + " was asked for, and \"" + result.kernel + "\" ran");
  }
  bool same = true;
  const auto compare = [&](const std::string &name, const std::string &hash, const std::string &expected) {
    if (hash != expected) {
      same = false;
      result.problems.push_back(name + " has SHA-256 " + hash + ", the golden is " + expected);
    }
  };
  for (const StateOutput &state : prepared.states) {
    compare(state.name, sha256_of_bytes(state.data), state.expected[result.flavour]);
  }
  for (const Output &output : prepared.outputs) {
    compare(output.name, sha256_of(output.data), output.expected[result.flavour]);
  }
  if (!same) {
    diagnosis.explain(result);
  }
  result.passed = result.problems.empty();
}

class Run {
public:
  Run(const Selection &what, const Implementation &which, const Observer &who)
      : selection(what), implementation(which), observer(who), kinds(lane_kinds()),
        combinations(which.foreign ? select_combinations(what, *which.foreign) : select_combinations(what, kinds)),
        threads(make_threads(what, which)) {
    report.foreign = which.foreign;
    report.max_work = what.max_work;
  }

  template <class Case>
  void count(const std::vector<Case> &cases) {
    for (const Case &item : cases) {
      report.left_out += matches(item) && is_too_much(item) ? 1u : 0u;
      report.cases += chosen(item) ? 1u : 0u;
      total += chosen(item) ? results_of(item) : 0u;
    }
  }

  template <class Case>
  void execute(const std::vector<Case> &cases) {
    for (const Case &item : cases) {
      if (chosen(item)) {
        execute(item);
      }
    }
  }

  Report finish() {
    for (const std::int32_t lanes : selection.require) {
      for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
        const bool wanted = selection.flavours.empty()
                                ? flavour == EXATTN_EXACT || !is_exact_only(lanes)
                                : std::count(selection.flavours.begin(), selection.flavours.end(), flavour) > 0;
        if (wanted && executed.count({lanes, flavour}) == 0) {
          report.failures.push_back("required, but not executed: " + combination_name(lanes, flavour) +
                                    why_not(lanes, flavour));
        }
      }
    }
    if (executed.empty()) {
      report.failures.push_back("nothing was executed" + why_nothing());
    }
    report.failed += report.failures.size();
    return std::move(report);
  }

private:
  template <class Case>
  bool chosen(const Case &item) const {
    return matches(item) && !is_too_much(item);
  }

  template <class Case>
  bool is_too_much(const Case &item) const {
    return selection.max_work && work_of(item) > *selection.max_work;
  }

  template <class Case>
  bool matches(const Case &item) const {
    return (!selection.tier || *selection.tier == item.tier) && (!selection.matches || selection.matches(item.id));
  }

  template <class Case>
  void execute(const Case &item) {
    Result broken;
    broken.id = item.id;
    Prepared prepared = prepare(item, implementation, selection.packed, broken.problems);
    if (!broken.problems.empty()) {
      done += results_of(item);
      add(std::move(broken));
      return;
    }
    Diagnosis diagnosis(prepared);
    for (const Combination &combination : combinations) {
      for (const Threads &count : threads) {
        execute(item, prepared, diagnosis, combination, count, false);
      }
      if (packs(item)) {
        execute(item, prepared, diagnosis, combination, threads[0], true);
      }
    }
  }

  template <class Case>
  void execute(const Case &item, Prepared &prepared, Diagnosis &diagnosis, const Combination &combination,
               const Threads &count, bool packed) {
    Result result;
    result.id = item.id;
    result.flavour = combination.flavour;
    result.lanes = combination.lanes;
    result.threads = count.count;
    result.packed = packed;
    result.implementation = implementation.foreign ? implementation.foreign->name : "";
    if (observer.before) {
      observer.before(done, total, result);
    }
    try {
      run_combination(prepared, diagnosis, count.pool.get(), EXATTN_SPLIT_KEYS_NEVER, selection.allow_unsupported,
                      result);
    } catch (const ForeignError &error) {
      throw ForeignError(describe(result) + ": " + error.what());
    }
    if (result.passed && prepared.has_keys && count.pool != nullptr) { // and the other way to use threads
      run_combination(prepared, diagnosis, count.pool.get(), EXATTN_SPLIT_KEYS_ALWAYS, false, result);
      if (!result.passed) {
        result.problems.insert(result.problems.begin(), "with split keys:");
      }
    }
    if (result.unsupported.empty()) {
      executed.insert({combination.lanes, combination.flavour});
    }
    ++done;
    add(std::move(result));
  }

  template <class Case>
  bool packs(const Case &item) const {
    return selection.packed && can_be_packed(item);
  }

  template <class Case>
  std::size_t results_of(const Case &item) const {
    return combinations.size() * (threads.size() + (packs(item) ? 1 : 0));
  }

  void add(Result result) {
    if (observer.after) {
      observer.after(result);
    }
    ++(result.passed ? report.passed : result.failed() ? report.failed : report.unsupported);
    report.results.push_back(std::move(result));
  }

  std::string why_nothing() const {
    if (report.unsupported > 0) {
      return ": the implementation supports no case that was asked of it";
    }
    if (report.cases > 0) {
      return "";
    }
    return report.left_out > 0 ? ": every case that matches was left out as too much work" : ": no case matches";
  }

  std::string why_not(std::int32_t lanes, std::int32_t flavour) const {
    for (const LaneKind &kind : kinds) {
      if (kind.lanes == lanes && !kind.missing.empty()) {
        return " (" + kind.missing + ")";
      }
      if (kind.lanes == lanes && !kind.usable(flavour)) {
        return std::string(" (no ") + exattn_flavour_name(flavour) + " flavour here)";
      }
    }
    return " (not selected)";
  }

  const Selection &selection;
  const Implementation &implementation;
  const Observer &observer;
  std::vector<LaneKind> kinds;
  std::vector<Combination> combinations;
  std::vector<Threads> threads;
  std::set<std::pair<std::int32_t, std::int32_t>> executed; // lanes, flavour
  std::size_t done = 0;
  std::size_t total = 0;
  Report report;
};

std::string xml_text(const std::string &text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
    case '&':
      result += "&amp;";
      break;
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '"':
      result += "&quot;";
      break;
    default:
      result += c;
    }
  }
  return result;
}

std::string joined(const std::vector<std::string> &lines) {
  std::string text;
  for (const std::string &line : lines) {
    text += (text.empty() ? "" : "\n") + line;
  }
  return text;
}

std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

const char *packed_text(const Result &result) {
  return result.packed ? " packed" : "";
}

} // namespace

Implementation linked_library() {
  return {[](const exattn_attention_args &args) { return exattn_attention(&args); },
          [](const exattn_softmax_args &args) { return exattn_softmax(&args); }};
}

std::vector<LaneKind> lane_kinds() {
  std::vector<LaneKind> kinds;
  for (std::int32_t lanes = EXATTN_LANES_AUTO + 1; lanes < EXATTN_LANES_COUNT; ++lanes) {
    exattn_lanes_info info{};
    info.struct_size = sizeof info;
    if (exattn_lanes_query(lanes, &info) != EXATTN_OK) {
      continue;
    }
    LaneKind kind{lanes, info.exact != 0, info.fast != 0, {}};
    if (info.built == 0) {
      kind.missing = "not in this build";
    } else if (info.cpu == 0) {
      kind.missing = "not on this CPU";
    } else if (info.os == 0) {
      kind.missing = "not supported by this operating system";
    } else if (!kind.exact && !kind.fast) {
      kind.missing = "no flavour is usable";
    }
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

Report run(const Goldens &goldens, const Selection &selection, const Implementation &implementation,
           const Observer &observer) {
  Run state(selection, implementation, observer);
  state.count(goldens.attention);
  state.count(goldens.softmax);
  state.execute(goldens.attention);
  state.execute(goldens.softmax);
  return state.finish();
}

std::string describe(const Result &result) {
  if (result.inputs_alone()) {
    return result.id;
  }
  if (!result.implementation.empty()) {
    return result.id + " " + exattn_flavour_name(result.flavour) + " by " + result.implementation;
  }
  return result.id + " " + exattn_flavour_name(result.flavour) + " " + exattn_lanes_name(result.lanes) + " threads " +
         std::to_string(result.threads) + packed_text(result);
}

std::string hex_bits(std::uint32_t bits) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", static_cast<unsigned int>(bits));
  return text.data();
}

std::string describe(const Difference &difference) {
  if (difference.index.size() == 1) {
    std::array<char, 160> text{};
    std::snprintf(text.data(), text.size(), "[byte %lld] is %02x, the oracle has %02x; %zu %s",
                  static_cast<long long>(difference.index[0]), static_cast<unsigned int>(difference.bits),
                  static_cast<unsigned int>(difference.oracle_bits), difference.count,
                  difference.count == 1 ? "byte differs" : "bytes differ");
    return "first difference: " + difference.output + text.data();
  }
  static constexpr std::array<const char *, 4> kNames = {"b", "h", "row", "column"};
  // [b, h, row, column] for attention, [row, column] for softmax, [b, h, row] for the log-sum-exp
  const std::size_t first = difference.index.size() == 2 ? 2 : 0;
  std::string text = "first difference: " + difference.output + "[";
  for (std::size_t n = 0; n < difference.index.size(); ++n) {
    text += std::string(n == 0 ? "" : ", ") + kNames[first + n] + " " + std::to_string(difference.index[n]);
  }
  std::array<char, 96> values{};
  std::snprintf(values.data(), values.size(), "(%.9g), the oracle has %s (%.9g)",
                static_cast<double>(float_of(difference.bits)), hex_bits(difference.oracle_bits).c_str(),
                static_cast<double>(float_of(difference.oracle_bits)));
  return text + "] is " + hex_bits(difference.bits) + " " + values.data() + "; " + std::to_string(difference.count) +
         (difference.count == 1 ? " element differs" : " elements differ");
}

std::string to_json(const Report &report) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Result &result : report.results) {
    nlohmann::ordered_json item;
    item["case"] = result.id;
    if (!result.implementation.empty()) {
      item["flavour"] = exattn_flavour_name(result.flavour);
      item["implementation"] = result.implementation;
      item["milliseconds"] = result.milliseconds;
    } else if (!result.inputs_alone()) {
      item["flavour"] = exattn_flavour_name(result.flavour);
      item["lanes"] = exattn_lanes_name(result.lanes);
      item["threads"] = result.threads;
      item["packed"] = result.packed;
      item["kernel"] = result.kernel;
      item["milliseconds"] = result.milliseconds;
    }
    item["passed"] = result.passed;
    if (!result.unsupported.empty()) {
      item["not_run"] = result.unsupported;
    }
    if (!result.problems.empty()) {
      item["problems"] = result.problems;
    }
    if (result.difference) {
      item["first_difference"] = {{"output", result.difference->output},
                                  {"index", result.difference->index},
                                  {"bits", hex_bits(result.difference->bits)},
                                  {"oracle_bits", hex_bits(result.difference->oracle_bits)},
                                  {"elements", result.difference->count}};
    }
    results.push_back(std::move(item));
  }
  nlohmann::ordered_json document;
  document["version"] = exattn_version();
  document["definition"] = exattn_definition();
  if (report.foreign) {
    nlohmann::ordered_json flavours = nlohmann::ordered_json::array();
    for (const std::int32_t flavour : report.foreign->flavours) {
      flavours.push_back(exattn_flavour_name(flavour));
    }
    document["implementation"] = {
        {"name", report.foreign->name}, {"version", report.foreign->version}, {"flavours", std::move(flavours)}};
  } else {
    nlohmann::ordered_json lanes = nlohmann::ordered_json::object();
    for (const LaneKind &kind : lane_kinds()) {
      lanes[exattn_lanes_name(kind.lanes)] = {{"exact", kind.exact}, {"fast", kind.fast}, {"missing", kind.missing}};
    }
    document["lanes"] = std::move(lanes);
  }
  document["cases"] = report.cases;
  document["passed"] = report.passed;
  document["failed"] = report.failed;
  if (report.foreign) {
    document["not_run"] = report.unsupported;
    document["cases_left_out"] = report.left_out;
    if (report.max_work) {
      document["max_work"] = *report.max_work;
    }
  }
  // Everything that failed in one place: each combination, then what is wrong with the run as a whole.
  nlohmann::ordered_json failures = nlohmann::ordered_json::array();
  for (const Result &result : report.results) {
    if (result.failed()) {
      failures.push_back(result.inputs_alone() ? result.id + " inputs"
                         : !result.implementation.empty()
                             ? describe(result)
                             : result.id + " " + combination_name(result.lanes, result.flavour) + " threads " +
                                   std::to_string(result.threads) + packed_text(result));
    }
  }
  for (const std::string &failure : report.failures) {
    failures.push_back(failure);
  }
  document["failures"] = std::move(failures);
  document["results"] = std::move(results);
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_junit(const Report &report) {
  double seconds = 0;
  std::string cases;
  const auto add = [&](const std::string &suite, const std::string &name, double time, const std::string &inside) {
    cases += "  <testcase classname=\"exattn." + xml_text(suite) + "\" name=\"" + xml_text(name) + "\" time=\"" +
             fixed(time, 6) + "\"";
    cases += inside.empty() ? "/>\n" : ">\n    " + inside + "\n  </testcase>\n";
    seconds += time;
  };
  const auto failure = [](const std::string &problem) {
    return "<failure message=\"" + xml_text(problem.substr(0, problem.find('\n'))) + "\">" + xml_text(problem) +
           "</failure>";
  };
  for (const Result &result : report.results) {
    std::string suite = "inputs", name = result.id;
    if (!result.implementation.empty()) {
      suite = std::string(exattn_flavour_name(result.flavour)) + "." + result.implementation;
    } else if (!result.inputs_alone()) {
      suite = std::string(exattn_flavour_name(result.flavour)) + "." + exattn_lanes_name(result.lanes);
      name += " threads " + std::to_string(result.threads) + packed_text(result);
    }
    add(suite, name, result.milliseconds / 1000,
        result.failed()              ? failure(joined(result.problems))
        : result.unsupported.empty() ? ""
                                     : "<skipped message=\"" + xml_text(result.unsupported) + "\"/>");
  }
  for (const std::string &problem : report.failures) {
    add("run", "complete", 0, failure(problem));
  }
  std::string skipped, properties;
  if (report.foreign) {
    skipped = " skipped=\"" + std::to_string(report.unsupported) + "\"";
    const auto property = [&](const char *key, const std::string &value) {
      properties += std::string("    <property name=\"") + key + "\" value=\"" + xml_text(value) + "\"/>\n";
    };
    property("implementation", report.foreign->name);
    property("implementation version", report.foreign->version);
    property("cases left out", std::to_string(report.left_out));
    properties = "  <properties>\n" + properties + "  </properties>\n";
  }
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"exattn conformance\" tests=\"" +
         std::to_string(report.passed + report.failed + report.unsupported) + "\" failures=\"" +
         std::to_string(report.failed) + "\" errors=\"0\"" + skipped + " time=\"" + fixed(seconds, 6) + "\">\n" +
         properties + cases + "</testsuite>\n";
}

} // namespace exattn::conformance
