#include "checks.hpp"

#include "overlap.hpp"

#include <array>
#include <bit>
#include <cinttypes>
#include <cstddef>
#include <cstdint>

namespace exattn {

namespace {

constexpr std::int64_t kWord = 4;
static_assert(sizeof(float) == kWord);

// Above this a worker's scratch could not be allocated anyway, and the arithmetic on its size stays far from overflow.
constexpr std::int64_t kMaxHeadSize = std::int64_t{1} << 40;

struct Shape {
  const char *text; // "[batch, heads, q_len, head_dim]"
  int rank;
  std::array<std::int64_t, 4> size;
};

bool is_aligned(const void *pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

// The number of elements; false when they do not fit in 63 bits of bytes. No element, when any size is 0.
bool count_elements(const Shape &shape, std::int64_t &elements) {
  for (int n = 0; n < shape.rank; ++n) {
    if (shape.size[static_cast<std::size_t>(n)] == 0) {
      elements = 0;
      return true;
    }
  }
  std::int64_t bytes = kWord;
  for (int n = 0; n < shape.rank; ++n) {
    if (__builtin_mul_overflow(bytes, shape.size[static_cast<std::size_t>(n)], &bytes)) {
      return false;
    }
  }
  elements = bytes / kWord;
  return true;
}

// The memory of a tensor that has elements; false when it does not lie within the address space, or when a byte
// offset within it does not fit in 64 bits.
bool measure(const void *data, const Shape &shape, const std::int64_t *stride, Footprint &footprint) {
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
  footprint = {};
  footprint.empty = false;
  for (std::size_t n = 0; n < static_cast<std::size_t>(shape.rank); ++n) {
    const std::int64_t count = shape.size[n];
    if (count == 1) {
      continue;
    }
    if (stride[n] == 0) {
      footprint.repeats = true;
      continue;
    }
    std::int64_t reach = 0;
    std::int64_t reach_bytes = 0;
    std::int64_t &end = stride[n] < 0 ? lowest : highest;
    if (__builtin_mul_overflow(stride[n], count - 1, &reach) || __builtin_mul_overflow(reach, kWord, &reach_bytes) ||
        __builtin_add_overflow(end, reach, &end)) {
      return false;
    }
    const std::size_t rank = static_cast<std::size_t>(footprint.rank++);
    footprint.count[rank] = count;
    footprint.stride[rank] = stride[n] < 0 ? -stride[n] : stride[n];
  }
  std::int64_t bytes = 0;
  if (__builtin_sub_overflow(highest, lowest, &footprint.extent) ||
      __builtin_mul_overflow(footprint.extent, kWord, &bytes)) {
    return false;
  }
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t below = static_cast<std::uintptr_t>(-lowest * kWord);
  std::uintptr_t end = 0;
  if (below > address ||
      __builtin_add_overflow(address - below, static_cast<std::uintptr_t>(bytes) + kWord - 1, &end)) {
    return false;
  }
  footprint.first = static_cast<std::int64_t>((address - below) / kWord);
  return true;
}

// Strides as kernels get them: one that is never stepped may hold anything, so it is replaced by a harmless one.
void plan_strides(const Shape &shape, const std::int64_t *given, std::int64_t *stride) {
  for (int n = 0; n < shape.rank; ++n) {
    stride[n] = shape.size[static_cast<std::size_t>(n)] > 1 ? given[n] : (n + 1 == shape.rank ? 1 : 0);
  }
}

exattn_status check_layout(const char *name, const void *data, std::int32_t rank, const std::int64_t *stride,
                           const Shape &shape, Footprint &footprint, Message &message) {
  if (rank != shape.rank) {
    return message.fail(EXATTN_ERROR_STRIDES, "%s.rank is %d, must be %d: set %s.stride[0..%d] for %s", name, rank,
                        shape.rank, name, shape.rank - 1, shape.text);
  }
  std::int64_t elements = 0;
  if (!count_elements(shape, elements)) {
    return message.fail(EXATTN_ERROR_OVERFLOW, "%s %s has more bytes than 63 bits can count", name, shape.text);
  }
  footprint = {};
  if (elements == 0) {
    return EXATTN_OK;
  }
  if (data == nullptr) {
    return message.fail(EXATTN_ERROR_NULL, "%s.data is null, but %s has %" PRId64 " elements", name, shape.text,
                        elements);
  }
  if (!is_aligned(data, alignof(float))) {
    return message.fail(EXATTN_ERROR_ALIGNMENT, "%s.data must be aligned to %zu bytes", name, alignof(float));
  }
  if (!measure(data, shape, stride, footprint)) {
    return message.fail(EXATTN_ERROR_OVERFLOW,
                        "%s: its strides reach beyond the address space, or further than 64 bits can count", name);
  }
  return EXATTN_OK;
}

exattn_status check_input(const char *name, const exattn_tensor &tensor, const Shape &shape, Strided &strided,
                          Footprint &footprint, Message &message) {
  if (tensor.dtype != EXATTN_F32) {
    return message.fail(EXATTN_ERROR_ENUM, "%s.dtype is %d, must be EXATTN_F32 (%d)", name, tensor.dtype, EXATTN_F32);
  }
  strided.data = static_cast<const float *>(tensor.data);
  const exattn_status status = check_layout(name, tensor.data, tensor.rank, tensor.stride, shape, footprint, message);
  plan_strides(shape, tensor.stride, strided.stride);
  return status;
}

exattn_status check_disjoint(const char *name, const Footprint &footprint, const char *other_name,
                             const Footprint &other, Message &message) {
  switch (find_overlap(footprint, other)) {
  case Overlap::kNone:
    return EXATTN_OK;
  case Overlap::kFound:
    return message.fail(EXATTN_ERROR_OVERLAP, "%s overlaps %s, must share no memory with it", name, other_name);
  default:
    return message.fail(EXATTN_ERROR_OVERLAP,
                        "%s could not be proven not to overlap %s: their strides are too intricate, use others or "
                        "memory further apart",
                        name, other_name);
  }
}

exattn_status check_output(const char *name, const exattn_output &output, const Shape &shape, StridedOutput &strided,
                           Footprint &footprint, Message &message) {
  if (output.reserved != 0) {
    return message.fail(EXATTN_ERROR_ENUM, "%s.reserved is %d, must be 0", name, output.reserved);
  }
  strided.data = output.data;
  const exattn_status status = check_layout(name, output.data, output.rank, output.stride, shape, footprint, message);
  if (status != EXATTN_OK) {
    return status;
  }
  plan_strides(shape, output.stride, strided.stride);
  switch (find_self_overlap(footprint)) {
  case Overlap::kNone:
    return EXATTN_OK;
  case Overlap::kFound:
    return message.fail(EXATTN_ERROR_OVERLAP,
                        "%s.stride puts two elements of %s %s at one address, each must have its own", name, name,
                        shape.text);
  default:
    return message.fail(EXATTN_ERROR_OVERLAP,
                        "%s.stride could not be proven to give each element its own address: too intricate, use "
                        "other strides",
                        name);
  }
}

// A contiguous array of numbers, or null.
exattn_status check_array(const char *name, const void *data, std::size_t element_size, std::size_t alignment,
                          std::int64_t count, Footprint &footprint, Message &message) {
  footprint = {};
  if (data == nullptr || count == 0) {
    return EXATTN_OK;
  }
  if (!is_aligned(data, alignment)) {
    return message.fail(EXATTN_ERROR_ALIGNMENT, "%s must be aligned to %zu bytes", name, alignment);
  }
  const std::int64_t words = static_cast<std::int64_t>(element_size) / kWord;
  const std::int64_t stride = 1;
  Shape shape{"", 1, {}};
  if (__builtin_mul_overflow(count, words, &shape.size[0]) || !measure(data, shape, &stride, footprint)) {
    return message.fail(EXATTN_ERROR_OVERFLOW, "%s: %" PRId64 " elements reach beyond the address space", name, count);
  }
  return EXATTN_OK;
}

// The words that the caller's scratch touches, wholly or in part.
exattn_status check_scratch(const void *data, std::size_t bytes, Footprint &footprint, Message &message) {
  footprint = {};
  if (bytes == 0) {
    return EXATTN_OK;
  }
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(data);
  std::uintptr_t last = 0;
  if (__builtin_add_overflow(address, bytes - 1, &last)) {
    return message.fail(EXATTN_ERROR_OVERFLOW, "scratch: scratch_size reaches beyond the address space");
  }
  const std::int64_t words = static_cast<std::int64_t>(last / kWord - address / kWord) + 1;
  footprint.empty = false;
  footprint.first = static_cast<std::int64_t>(address / kWord);
  footprint.extent = words - 1;
  if (words > 1) {
    footprint.rank = 1;
    footprint.count[0] = words;
    footprint.stride[0] = 1;
  }
  return EXATTN_OK;
}

exattn_status check_size(const char *name, std::int64_t size, std::int64_t least, Message &message) {
  return size >= least
             ? EXATTN_OK
             : message.fail(EXATTN_ERROR_SIZE, "%s is %" PRId64 ", must be %" PRId64 " or more", name, size, least);
}

exattn_status check_options(const exattn_attention_args &args, Message &message) {
  if (args.scale_mode != EXATTN_SCALE_DEFAULT && args.scale_mode != EXATTN_SCALE_GIVEN) {
    return message.fail(EXATTN_ERROR_ENUM,
                        "scale_mode is %d, must be EXATTN_SCALE_DEFAULT (%d) or EXATTN_SCALE_GIVEN (%d)",
                        args.scale_mode, EXATTN_SCALE_DEFAULT, EXATTN_SCALE_GIVEN);
  }
  // By its bits: the caller's floating-point environment may take a subnormal number for 0, or trap.
  if (args.scale_mode == EXATTN_SCALE_DEFAULT && std::bit_cast<std::uint32_t>(args.scale) << 1 != 0) {
    return message.fail(EXATTN_ERROR_ENUM, "scale is set, but scale_mode is EXATTN_SCALE_DEFAULT: set scale_mode to "
                                           "EXATTN_SCALE_GIVEN, or leave scale 0");
  }
  if (args.causal != 0 && args.causal != 1) {
    return message.fail(EXATTN_ERROR_ENUM, "causal is %d, must be 0 or 1", args.causal);
  }
  if (args.fully_masked != EXATTN_FULLY_MASKED_NAN && args.fully_masked != EXATTN_FULLY_MASKED_ZERO) {
    return message.fail(EXATTN_ERROR_ENUM,
                        "fully_masked is %d, must be EXATTN_FULLY_MASKED_NAN (%d) or EXATTN_FULLY_MASKED_ZERO (%d)",
                        args.fully_masked, EXATTN_FULLY_MASKED_NAN, EXATTN_FULLY_MASKED_ZERO);
  }
  return EXATTN_OK;
}

// Positions and lengths that are given once or per sequence.
exattn_status check_positions(const exattn_attention_args &args, Message &message) {
  std::int64_t end = 0;
  if (args.q_offsets == nullptr) {
    if (args.q_offset < 0) {
      return message.fail(EXATTN_ERROR_OFFSET, "q_offset is %" PRId64 ", must be 0 or more", args.q_offset);
    }
    if (__builtin_add_overflow(args.q_offset, args.q_len, &end)) {
      return message.fail(EXATTN_ERROR_OVERFLOW, "q_offset %" PRId64 " + q_len %" PRId64 " does not fit in 64 bits",
                          args.q_offset, args.q_len);
    }
  }
  for (std::int64_t b = 0; b < args.batch; ++b) {
    if (args.q_offsets != nullptr) {
      if (args.q_offsets[b] < 0) {
        return message.fail(EXATTN_ERROR_OFFSET, "q_offsets[%" PRId64 "] is %" PRId64 ", must be 0 or more", b,
                            args.q_offsets[b]);
      }
      if (__builtin_add_overflow(args.q_offsets[b], args.q_len, &end)) {
        return message.fail(EXATTN_ERROR_OVERFLOW,
                            "q_offsets[%" PRId64 "] %" PRId64 " + q_len %" PRId64 " does not fit in 64 bits", b,
                            args.q_offsets[b], args.q_len);
      }
    }
    if (args.kv_lens != nullptr && (args.kv_lens[b] < 0 || args.kv_lens[b] > args.kv_len)) {
      return message.fail(EXATTN_ERROR_OFFSET, "kv_lens[%" PRId64 "] is %" PRId64 ", must be 0 to kv_len, %" PRId64, b,
                          args.kv_lens[b], args.kv_len);
    }
    if (args.q_offsets == nullptr && args.kv_lens == nullptr) {
      break;
    }
  }
  return EXATTN_OK;
}

} // namespace

exattn_status check_attention_sizes(const exattn_attention_args &args, Team &team, std::size_t &slice_size,
                                    Message &message) noexcept {
  const struct {
    const char *name;
    std::int64_t size;
    std::int64_t least;
  } sizes[] = {{"batch", args.batch, 0},        {"heads", args.heads, 0},   {"kv_heads", args.kv_heads, 0},
               {"q_len", args.q_len, 0},        {"kv_len", args.kv_len, 0}, {"head_dim", args.head_dim, 1},
               {"value_dim", args.value_dim, 1}};
  for (const auto &size : sizes) {
    if (const exattn_status status = check_size(size.name, size.size, size.least, message); status != EXATTN_OK) {
      return status;
    }
  }
  if (args.kv_heads == 0 ? args.heads != 0 : args.heads % args.kv_heads != 0) {
    return message.fail(EXATTN_ERROR_HEADS,
                        "heads is %" PRId64 " and kv_heads %" PRId64 ", heads must be a multiple of kv_heads",
                        args.heads, args.kv_heads);
  }
  if (args.head_dim > kMaxHeadSize || args.value_dim > kMaxHeadSize) {
    return message.fail(EXATTN_ERROR_OVERFLOW,
                        "head_dim is %" PRId64 " and value_dim %" PRId64 ", each may be at most 2^40", args.head_dim,
                        args.value_dim);
  }
  if (const exattn_status status = make_team(args.pool, args.executor, team, message); status != EXATTN_OK) {
    return status;
  }
  const std::size_t bytes = attention_scratch_bytes(args.head_dim, args.value_dim);
  slice_size = (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return EXATTN_OK;
}

exattn_status check_attention(const exattn_attention_args &args, const Team &team, std::size_t slice_size,
                              AttentionPlan &plan, Message &message) noexcept {
  exattn_status status = check_options(args, message);
  if (status != EXATTN_OK) {
    return status;
  }

  const Shape q_shape{"[batch, heads, q_len, head_dim]", 4, {args.batch, args.heads, args.q_len, args.head_dim}};
  const Shape k_shape{
      "[batch, kv_heads, kv_len, head_dim]", 4, {args.batch, args.kv_heads, args.kv_len, args.head_dim}};
  const Shape v_shape{
      "[batch, kv_heads, kv_len, value_dim]", 4, {args.batch, args.kv_heads, args.kv_len, args.value_dim}};
  const Shape mask_shape{"[batch, heads, q_len, kv_len]", 4, {args.batch, args.heads, args.q_len, args.kv_len}};
  const Shape out_shape{"[batch, heads, q_len, value_dim]", 4, {args.batch, args.heads, args.q_len, args.value_dim}};
  const Shape lse_shape{"[batch, heads, q_len]", 3, {args.batch, args.heads, args.q_len, 1}};

  struct Used {
    const char *name;
    Footprint footprint;
  };
  Used inputs[] = {{"q", {}}, {"k", {}}, {"v", {}}, {"mask", {}}, {"sinks", {}}, {"q_offsets", {}}, {"kv_lens", {}}};
  Used outputs[] = {{"out", {}}, {"lse", {}}};
  Used scratch{"scratch", {}};

  plan = {};
  if ((status = check_input("q", args.q, q_shape, plan.q, inputs[0].footprint, message)) != EXATTN_OK ||
      (status = check_input("k", args.k, k_shape, plan.k, inputs[1].footprint, message)) != EXATTN_OK ||
      (status = check_input("v", args.v, v_shape, plan.v, inputs[2].footprint, message)) != EXATTN_OK) {
    return status;
  }
  if (args.mask.data != nullptr) {
    status = check_input("mask", args.mask, mask_shape, plan.mask, inputs[3].footprint, message);
    if (status != EXATTN_OK) {
      return status;
    }
  }
  if ((status = check_array("sinks", args.sinks, sizeof(float), alignof(float), args.heads, inputs[4].footprint,
                            message)) != EXATTN_OK ||
      (status = check_array("q_offsets", args.q_offsets, sizeof(std::int64_t), alignof(std::int64_t), args.batch,
                            inputs[5].footprint, message)) != EXATTN_OK ||
      (status = check_array("kv_lens", args.kv_lens, sizeof(std::int64_t), alignof(std::int64_t), args.batch,
                            inputs[6].footprint, message)) != EXATTN_OK ||
      (status = check_positions(args, message)) != EXATTN_OK ||
      (status = check_output("out", args.out, out_shape, plan.out, outputs[0].footprint, message)) != EXATTN_OK) {
    return status;
  }
  if (args.lse.data != nullptr) {
    status = check_output("lse", args.lse, lse_shape, plan.lse, outputs[1].footprint, message);
    if (status != EXATTN_OK) {
      return status;
    }
  }

  if (args.scratch == nullptr && args.scratch_size != 0) {
    return message.fail(EXATTN_ERROR_NULL, "scratch is null, but scratch_size is %zu: both or neither",
                        args.scratch_size);
  }
  if (args.scratch != nullptr) {
    std::size_t needed = 0;
    if (!scratch_size(slice_size, team.threads, needed)) {
      return message.fail(EXATTN_ERROR_OVERFLOW, "the scratch of %d threads does not fit in size_t", team.threads);
    }
    if (args.scratch_size < needed) {
      return message.fail(EXATTN_ERROR_SCRATCH, "scratch_size is %zu, must be %zu or more", args.scratch_size, needed);
    }
    status = check_scratch(args.scratch, args.scratch_size, scratch.footprint, message);
    if (status != EXATTN_OK) {
      return status;
    }
  }

  for (const Used &output : outputs) {
    for (const Used &input : inputs) {
      status = check_disjoint(output.name, output.footprint, input.name, input.footprint, message);
      if (status != EXATTN_OK) {
        return status;
      }
    }
    status = check_disjoint("scratch", scratch.footprint, output.name, output.footprint, message);
    if (status != EXATTN_OK) {
      return status;
    }
  }
  for (const Used &input : inputs) {
    status = check_disjoint("scratch", scratch.footprint, input.name, input.footprint, message);
    if (status != EXATTN_OK) {
      return status;
    }
  }
  status = check_disjoint("lse", outputs[1].footprint, "out", outputs[0].footprint, message);
  if (status != EXATTN_OK) {
    return status;
  }

  plan.batch = args.batch;
  plan.heads = args.heads;
  plan.kv_heads = args.kv_heads;
  plan.q_len = args.q_len;
  plan.kv_len = args.kv_len;
  plan.head_dim = args.head_dim;
  plan.value_dim = args.value_dim;
  plan.scale = args.scale;
  plan.causal = args.causal != 0;
  plan.fully_masked_zero = args.fully_masked == EXATTN_FULLY_MASKED_ZERO;
  plan.q_offset = args.q_offset;
  plan.window = args.window;
  plan.sinks = args.sinks;
  plan.q_offsets = args.q_offsets;
  plan.kv_lens = args.kv_lens;
  plan.rows_per_item = attention_rows_per_item(args.head_dim, args.value_dim);
  if (args.batch != 0 && args.heads != 0 && args.q_len != 0) { // no product overflows: out's elements can be counted
    const std::int64_t rows = args.heads / args.kv_heads * args.q_len;
    plan.items_per_kv_head = (rows - 1) / plan.rows_per_item + 1;
    plan.items = args.batch * args.kv_heads * plan.items_per_kv_head;
  }
  return EXATTN_OK;
}

exattn_status check_softmax(const exattn_softmax_args &args, SoftmaxPlan &plan, std::int64_t &rows,
                            Message &message) noexcept {
  exattn_status status = EXATTN_OK;
  Shape shape{"shape[0..3]", 4, {}};
  for (std::size_t n = 0; n < 4; ++n) {
    constexpr const char *kNames[] = {"shape[0]", "shape[1]", "shape[2]", "shape[3]"};
    if ((status = check_size(kNames[n], args.shape[n], 0, message)) != EXATTN_OK) {
      return status;
    }
    shape.size[n] = args.shape[n];
  }
  Footprint x;
  Footprint y;
  plan = {};
  if ((status = check_input("x", args.x, shape, plan.x, x, message)) != EXATTN_OK ||
      (status = check_output("y", args.y, shape, plan.y, y, message)) != EXATTN_OK) {
    return status;
  }
  bool in_place = plan.x.data == plan.y.data;
  rows = 1;
  std::int64_t elements = 0;
  count_elements(shape, elements);
  for (std::size_t n = 0; n < 4; ++n) {
    plan.shape[n] = args.shape[n];
    in_place = in_place && plan.x.stride[n] == plan.y.stride[n];
    rows *= elements == 0 ? 0 : (n < 3 ? args.shape[n] : 1);
  }
  if (!in_place) {
    if (find_overlap(x, y) == Overlap::kFound && plan.x.data == plan.y.data) {
      return message.fail(EXATTN_ERROR_OVERLAP, "y is x, but with other strides: in place they must be the same");
    }
    status = check_disjoint("y", y, "x", x, message);
  }
  return status;
}

exattn_status check_evaluate(const float *x, const float *y, std::size_t n) noexcept {
  if (n == 0) {
    return EXATTN_OK;
  }
  if (x == nullptr || y == nullptr) {
    return EXATTN_ERROR_NULL;
  }
  if (!is_aligned(x, alignof(float)) || !is_aligned(y, alignof(float))) {
    return EXATTN_ERROR_ALIGNMENT;
  }
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(n, sizeof(float), &bytes)) {
    return EXATTN_ERROR_OVERFLOW;
  }
  const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(x);
  const std::uintptr_t to = reinterpret_cast<std::uintptr_t>(y);
  if (from > UINTPTR_MAX - bytes || to > UINTPTR_MAX - bytes) {
    return EXATTN_ERROR_OVERFLOW;
  }
  return from == to || from + bytes <= to || to + bytes <= from ? EXATTN_OK : EXATTN_ERROR_OVERLAP;
}

} // namespace exattn
