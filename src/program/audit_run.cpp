#include "audit_run.hpp"

#include "conformance/sha256.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>

namespace exattn::program {
namespace {

const char *dtype_name(NpyType type) {
  switch (type) {
  case NpyType::kFloat16:
    return "f16";
  case NpyType::kBits16:
  case NpyType::kBfloat16:
    return "bf16";
  case NpyType::kBool:
  case NpyType::kUint8:
    return "u8";
  default:
    return "f32";
  }
}

// As little-endian bytes.
void update(Sha256 &hash, const unsigned char *element, std::size_t size) {
  if constexpr (std::endian::native == std::endian::little) {
    hash.update(element, size);
  } else {
    std::array<unsigned char, 8> little{};
    std::reverse_copy(element, element + size, little.begin());
    hash.update(little.data(), size);
  }
}

template <class T>
std::string sha256_of_values(std::span<const T> values) {
  Sha256 hash;
  for (const T &value : values) {
    update(hash, reinterpret_cast<const unsigned char *>(&value), sizeof value);
  }
  return hash.finish();
}

AuditTensor tensor_of(const NpyArray &array) {
  const bool c_order = array.strides == c_strides(array.shape);
  return {dtype_name(array.type), array.shape, c_order ? "c" : "fortran", sha256_of(array)};
}

AuditTensor tensor_of(std::span<const float> values) {
  return {"f32", {static_cast<std::int64_t>(values.size())}, "c", exattn::sha256_of(values)};
}

// A position in a tensor: `count` elements of its type behind its first.
template <class Tensor>
void move_on(Tensor &tensor, std::int64_t elements) {
  std::int64_t size = 4;
  if constexpr (requires { tensor.dtype; }) {
    size = tensor.dtype == EXATTN_F32 ? 4 : tensor.dtype == EXATTN_U8 ? 1 : 2;
    if (tensor.data != nullptr) {
      tensor.data = static_cast<const unsigned char *>(tensor.data) + elements * size;
    }
  } else if (tensor.data != nullptr) {
    tensor.data += elements;
  }
}

// Rows [row, row + rows) of heads [head, head + heads), which share a key head or are whole groups, of sequence b: a
// call of its own, with the outputs of the whole if these are set. Not for states.
struct Part {
  std::int64_t b, head, heads, row, rows;
};

exattn_attention_args part_of(const AttentionCall &call, const Part &part) {
  exattn_attention_args args = call.args;
  const auto b = static_cast<std::size_t>(part.b);
  const std::int64_t group = args.heads / args.kv_heads, kv_head = part.head / group;
  const std::int64_t first_row = (args.q_starts != nullptr ? args.q_starts[b] : 0) + part.row;
  const std::int64_t q_batch = args.q_starts != nullptr ? 0 : part.b;
  const auto to_rows = [&](auto &tensor) {
    move_on(tensor, q_batch * tensor.stride[0] + part.head * tensor.stride[1] + first_row * tensor.stride[2]);
  };
  to_rows(args.q);
  to_rows(args.mask);
  to_rows(args.mask_bool);
  to_rows(args.out);
  if (args.lse.data != nullptr) {
    move_on(args.lse, q_batch * args.lse.stride[0] + part.head * args.lse.stride[1] + first_row * args.lse.stride[2]);
  }
  std::int64_t keys = args.kv_starts != nullptr ? args.kv_starts[b + 1] - args.kv_starts[b] : args.kv_len;
  if (args.kv_lens != nullptr) {
    keys = args.kv_lens[b];
  }
  for (exattn_tensor *tensor : {&args.k, &args.v}) {
    std::int64_t first = kv_head * tensor->stride[1];
    if (args.kv_starts != nullptr) {
      first += args.kv_starts[b] * tensor->stride[2];
    } else if (args.page_table == nullptr) {
      first += part.b * tensor->stride[0];
    }
    move_on(*tensor, first);
  }
  if (args.page_table != nullptr) {
    args.page_table += part.b * args.page_table_stride;
  }
  args.sinks = args.sinks != nullptr ? args.sinks + part.head : nullptr;
  args.alibi_slopes = args.alibi_slopes != nullptr ? args.alibi_slopes + part.head : nullptr;
  args.q_offset = (args.q_offsets != nullptr ? args.q_offsets[b] : args.q_offset) + part.row;
  args.q_offsets = args.kv_lens = args.q_starts = args.kv_starts = nullptr;
  args.batch = 1;
  args.heads = part.heads;
  args.kv_heads = std::max<std::int64_t>(1, part.heads / group);
  args.q_len = part.rows;
  args.kv_len = keys;
  return args;
}

void run(exattn_attention_args &args) {
  std::array<char, 512> message{};
  args.message = message.data();
  args.message_size = message.size();
  require_ok(exattn_attention(&args), message.data());
  args.message = nullptr;
  args.message_size = 0;
}

// Parts of a long call, each of about so many multiply-adds.
std::vector<Part> parts_of(const AttentionCall &call) {
  constexpr double kWork = 2e9;
  constexpr std::int64_t kRows = 1024;
  const exattn_attention_args &args = call.args;
  const double work = static_cast<double>(args.q_len) * static_cast<double>(args.kv_len) *
                      static_cast<double>(args.head_dim + args.value_dim) *
                      static_cast<double>(args.heads * (args.q_starts != nullptr ? 1 : args.batch));
  // In a packed k, kv_len of a part must still be that of the whole: parts would be refused.
  if (work < 2 * kWork || args.kv_heads == 0 || call.args.k_layout == EXATTN_K_PACKED) {
    return {};
  }
  std::vector<Part> parts;
  const std::int64_t group = args.heads / args.kv_heads;
  for (std::int64_t b = 0; b < args.batch; ++b) {
    const std::int64_t rows = args.q_starts != nullptr ? args.q_starts[b + 1] - args.q_starts[b] : args.q_len;
    for (std::int64_t head = 0; head < args.heads; head += group) {
      for (std::int64_t row = 0; row < rows; row += kRows) {
        parts.push_back({b, head, group, row, std::min(kRows, rows - row)});
      }
    }
  }
  return parts;
}

} // namespace

Progress::Progress(std::string text) : what(std::move(text)), shown(is_terminal(stderr)) {}

Progress::~Progress() {
  if (shown) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
}

void Progress::at(std::int64_t done, std::int64_t all) const {
  if (shown) {
    std::fprintf(stderr, "\r\033[K%s: %lld of %lld", what.c_str(), static_cast<long long>(done),
                 static_cast<long long>(all));
    std::fflush(stderr);
  }
}

std::string sha256_of(const NpyArray &array) {
  const std::size_t size = element_size(array.type);
  const auto *const data = static_cast<const unsigned char *>(array.data);
  Sha256 hash;
  if (std::endian::native == std::endian::little && array.strides == c_strides(array.shape)) {
    const Progress progress("hashing " + array.name);
    constexpr std::size_t kChunk = std::size_t{1} << 28;
    const std::size_t bytes = array.size() * size;
    for (std::size_t at = 0; at < bytes; at += kChunk) {
      progress.at(static_cast<std::int64_t>(at / kChunk), static_cast<std::int64_t>(bytes / kChunk + 1));
      hash.update(data + at, std::min(kChunk, bytes - at));
    }
    return hash.finish();
  }
  std::vector<std::int64_t> index(array.shape.size(), 0);
  for (std::size_t n = array.size(); n > 0; --n) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      at += index[d] * array.strides[d];
    }
    update(hash, data + at * static_cast<std::int64_t>(size), size);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < array.shape[d]) {
        break;
      }
      index[d] = 0;
    }
  }
  return hash.finish();
}

AuditOptions audit_options(const AttentionCall &call) {
  const exattn_attention_args &args = call.args;
  AuditOptions options;
  options.flavour = args.flavour;
  options.batch = args.batch;
  options.heads = args.heads;
  options.kv_heads = args.kv_heads;
  options.q_len = args.q_len;
  options.kv_len = args.kv_len;
  options.head_dim = args.head_dim;
  options.value_dim = args.value_dim;
  const float scale = args.scale_mode == EXATTN_SCALE_GIVEN ? args.scale : exattn_default_scale(args.head_dim);
  options.scale_bits = std::bit_cast<std::uint32_t>(scale);
  if (args.softcap != 0.0F) {
    options.softcap_bits = std::bit_cast<std::uint32_t>(args.softcap);
  }
  options.causal = args.causal != 0;
  options.window = args.window;
  options.q_offsets = call.q_offsets;
  options.q_offsets.resize(static_cast<std::size_t>(args.batch), args.q_offset);
  if (args.kv_lens != nullptr) {
    options.kv_lens = call.kv_lens;
  }
  if (call.ragged_q) {
    options.q_starts = call.q_starts;
  }
  if (call.ragged_kv) {
    options.kv_starts = call.kv_starts;
  }
  if (call.paged) {
    options.page_size = args.page_size;
  }
  options.kv_offset = args.kv_offset;
  options.fully_masked_zero = args.fully_masked == EXATTN_FULLY_MASKED_ZERO;
  return options;
}

AuditTensors audit_inputs(const AttentionCall &call) {
  const exattn_attention_args &args = call.args;
  AuditTensors inputs = {{"q", tensor_of(call.q)}, {"k", tensor_of(call.k)}, {"v", tensor_of(call.v)}};
  if (args.mask.data != nullptr) {
    inputs.emplace_back("mask", tensor_of(call.mask));
  }
  if (args.mask_bool.data != nullptr) {
    inputs.emplace_back("mask_bool", tensor_of(call.mask_bool));
  }
  if (args.sinks != nullptr) {
    inputs.emplace_back("sinks", tensor_of(std::span<const float>(call.sinks)));
  }
  if (args.alibi_slopes != nullptr) {
    inputs.emplace_back("alibi", tensor_of(std::span<const float>(call.alibi)));
  }
  if (call.paged) {
    inputs.emplace_back("page_table", AuditTensor{"i32", call.page_table_shape, "c",
                                                  sha256_of_values(std::span<const std::int32_t>(call.page_table))});
  }
  if (args.state_in != nullptr) {
    inputs.emplace_back("state", AuditTensor{"bytes",
                                             {static_cast<std::int64_t>(call.state.bytes.size())},
                                             "c",
                                             exattn::sha256_of(call.state.bytes)});
  }
  return inputs;
}

AuditOutputs compute_all(AttentionCall &call, bool state, const Pool &pool) {
  exattn_attention_args &args = call.args;
  AuditOutputs outputs;
  const FourSizes out4 = call.out_sizes();
  const std::array<std::int64_t, 3> lse3{out4[0], out4[1], out4[2]};
  outputs.out = allocate(out4, outputs.out_count);
  outputs.lse = allocate(lse3, outputs.lse_count);
  args.out = contiguous_output(outputs.out, out4);
  args.lse = contiguous_output(outputs.lse, lse3);
  const char *kernel = "";
  args.kernel = &kernel;
  args.pool = pool.get();
  if (state) {
    std::size_t bytes = 0;
    require_ok(exattn_attention_state_size(&args, &bytes));
    outputs.state.resize(bytes);
    args.state_out = outputs.state.data();
    args.state_out_size = bytes;
  }
  const std::vector<Part> parts = state || args.state_in != nullptr ? std::vector<Part>() : parts_of(call);
  if (parts.empty()) {
    run(args);
  } else {
    const Progress progress("computing");
    for (std::size_t n = 0; n < parts.size(); ++n) {
      progress.at(static_cast<std::int64_t>(n), static_cast<std::int64_t>(parts.size()));
      exattn_attention_args part = part_of(call, parts[n]);
      run(part);
    }
  }
  outputs.kernel = kernel;
  args.kernel = nullptr;
  return outputs;
}

ItemOutputs compute_item(const AttentionCall &call, const AuditItem &item, std::int32_t flavour, exattn_pool *pool) {
  ItemOutputs outputs;
  const std::int64_t width = call.args.value_dim;
  outputs.out.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, item.rows * width)));
  outputs.lse.resize(static_cast<std::size_t>(item.rows));
  exattn_attention_args args = part_of(call, {item.b, item.h, 1, item.row, item.rows});
  args.flavour = flavour;
  args.pool = pool;
  args.kernel = nullptr;
  args.out = contiguous_output(outputs.out, std::array<std::int64_t, 4>{1, 1, item.rows, width});
  args.lse = contiguous_output(outputs.lse, std::array<std::int64_t, 3>{1, 1, item.rows});
  run(args);
  outputs.out.resize(static_cast<std::size_t>(item.rows * width));
  return outputs;
}

std::string rows_hash(const AuditOptions &options, const AuditItem &item, const float *data, std::int64_t width) {
  const std::int64_t first = options.q_starts ? (*options.q_starts)[static_cast<std::size_t>(item.b)] : 0;
  const std::int64_t b = options.q_starts ? 0 : item.b;
  const std::int64_t at = ((b * options.heads + item.h) * options.q_len + first + item.row) * width;
  return exattn::sha256_of(std::span<const float>(data + at, static_cast<std::size_t>(item.rows * width)));
}

AuditLeaf leaf_of(const AuditOptions &options, const AuditItem &item, const AuditOutputs &outputs) {
  return {rows_hash(options, item, outputs.out.data(), options.value_dim),
          rows_hash(options, item, outputs.lse.data(), 1)};
}

AuditLeaf leaf_of(const ItemOutputs &outputs) {
  return {exattn::sha256_of(std::span<const float>(outputs.out)),
          exattn::sha256_of(std::span<const float>(outputs.lse))};
}

} // namespace exattn::program
