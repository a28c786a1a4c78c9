#include "checks.hpp"

#include "overlap.hpp"
#include "state.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>

namespace exattn {

namespace {

constexpr std::int64_t kFloat = sizeof(float);
static_assert(kFloat == 4);

constexpr std::int64_t kHighest = INT64_MAX;

// Above this a worker's scratch could not be allocated anyway, and the arithmetic on its size stays far from overflow.
constexpr std::int64_t kMaxHeadSize = std::int64_t{1} << 40;

struct Shape {
  const char *text; // "[batch, heads, q_len, head_dim]"
  int rank;
  std::array<std::int64_t, 4> size;
};

// a / b rounded up, for a of 0 or more.
std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

bool is_aligned(const void *pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

// The number of elements; false when they do not fit in 63 bits of bytes. No element, when any size is 0.
bool count_elements(const Shape &shape, std::int64_t width, std::int64_t &elements) {
  for (int n = 0; n < shape.rank; ++n) {
    if (shape.size[static_cast<std::size_t>(n)] == 0) {
      elements = 0;
      return true;
    }
  }
  std::int64_t bytes = width;
  for (int n = 0; n < shape.rank; ++n) {
    if (__builtin_mul_overflow(bytes, shape.size[static_cast<std::size_t>(n)], &bytes)) {
      return false;
    }
  }
  elements = bytes / width;
  return true;
}

// The memory of a tensor that has elements; false when it does not lie within the address space, or reaches further
// than any memory does.
bool measure(const void *data, std::int64_t width, const Shape &shape, const std::int64_t *stride,
             Footprint &footprint) {
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
  footprint = {};
  footprint.empty = false;
  footprint.width = width;
  for (std::size_t n = 0; n < static_cast<std::size_t>(shape.rank); ++n) {
    const std::int64_t count = shape.size[n];
    if (count == 1) {
      continue;
    }
    if (stride[n] == 0) {
      footprint.repeats = true;
      continue;
    }
    std::int64_t step = 0;
    std::int64_t reach = 0;
    std::int64_t &end = stride[n] < 0 ? lowest : highest;
    if (__builtin_mul_overflow(stride[n], width, &step) || __builtin_mul_overflow(step, count - 1, &reach) ||
        __builtin_add_overflow(end, reach, &end) || end <= -kMaxExtent || end >= kMaxExtent) {
      return false;
    }
    const std::size_t rank = static_cast<std::size_t>(footprint.rank++);
    footprint.count[rank] = count;
    footprint.stride[rank] = step < 0 ? -step : step;
  }
  footprint.extent = highest - lowest;
  if (footprint.extent >= kMaxExtent) {
    return false;
  }
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t below = static_cast<std::uintptr_t>(-lowest);
  std::uintptr_t last = 0;
  if (below > address ||
      __builtin_add_overflow(address - below, static_cast<std::uintptr_t>(footprint.extent + width - 1), &last)) {
    return false;
  }
  footprint.first = address - below;
  return true;
}

// Strides as kernels get them: one that is never stepped may hold anything, so it is replaced by a harmless one.
void plan_strides(const Shape &shape, const std::int64_t *given, std::int64_t *stride) {
  for (int n = 0; n < shape.rank; ++n) {
    stride[n] = shape.size[static_cast<std::size_t>(n)] > 1 ? given[n] : (n + 1 == shape.rank ? 1 : 0);
  }
}

exattn_status check_layout(const char *name, const void *data, std::int64_t width, std::int32_t rank,
                           const std::int64_t *stride, const Shape &shape, Footprint &footprint, Message &message) {
  if (rank != shape.rank) {
    return message.fail(EXATTN_ERROR_STRIDES, "%s.rank is %d, must be %d: set %s.stride[0..%d] for %s", name, rank,
                        shape.rank, name, shape.rank - 1, shape.text);
  }
  std::int64_t elements = 0;
  if (!count_elements(shape, width, elements)) {
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
  if (!is_aligned(data, static_cast<std::size_t>(width))) { // every element type is aligned to its size
    return message.fail(EXATTN_ERROR_ALIGNMENT, "%s.data must be aligned to %" PRId64 " bytes", name, width);
  }
  if (!measure(data, width, shape, stride, footprint)) {
    return message.fail(EXATTN_ERROR_OVERFLOW,
                        "%s: its strides reach beyond the address space, or further than 64 bits can count", name);
  }
  return EXATTN_OK;
}

// Which element types an input may have.
enum class Elements { kFloat32, kFloats, kBytes };

exattn_status check_dtype(const char *name, std::int32_t dtype, Elements allowed, Message &message) {
  switch (allowed) {
  case Elements::kFloat32:
    return dtype == EXATTN_F32
               ? EXATTN_OK
               : message.fail(EXATTN_ERROR_ENUM, "%s.dtype is %d, must be EXATTN_F32 (%d)", name, dtype, EXATTN_F32);
  case Elements::kFloats:
    return dtype == EXATTN_F32 || dtype == EXATTN_BF16 || dtype == EXATTN_F16
               ? EXATTN_OK
               : message.fail(EXATTN_ERROR_ENUM,
                              "%s.dtype is %d, must be EXATTN_F32 (%d), EXATTN_BF16 (%d) or EXATTN_F16 (%d)", name,
                              dtype, EXATTN_F32, EXATTN_BF16, EXATTN_F16);
  default:
    return dtype == EXATTN_U8
               ? EXATTN_OK
               : message.fail(EXATTN_ERROR_ENUM, "%s.dtype is %d, must be EXATTN_U8 (%d)", name, dtype, EXATTN_U8);
  }
}

std::int64_t width_of(std::int32_t dtype) {
  return dtype == EXATTN_U8 ? 1 : dtype == EXATTN_F32 ? kFloat : 2;
}

Storage storage_of(std::int32_t dtype) {
  return dtype == EXATTN_BF16 ? Storage::kBfloat16 : dtype == EXATTN_F16 ? Storage::kFloat16 : Storage::kFloat32;
}

exattn_status check_input(const char *name, const exattn_tensor &tensor, Elements allowed, const Shape &shape,
                          Footprint &footprint, Message &message) {
  const exattn_status status = check_dtype(name, tensor.dtype, allowed, message);
  return status != EXATTN_OK ? status
                             : check_layout(name, tensor.data, width_of(tensor.dtype), tensor.rank, tensor.stride,
                                            shape, footprint, message);
}

exattn_status check_input(const char *name, const exattn_tensor &tensor, const Shape &shape, Strided &strided,
                          Footprint &footprint, Message &message) {
  strided.data = static_cast<const float *>(tensor.data);
  plan_strides(shape, tensor.stride, strided.stride);
  return check_input(name, tensor, Elements::kFloat32, shape, footprint, message);
}

exattn_status check_input(const char *name, const exattn_tensor &tensor, const Shape &shape, StridedStorage &strided,
                          Footprint &footprint, Message &message) {
  strided.data = tensor.data;
  strided.storage = storage_of(tensor.dtype);
  plan_strides(shape, tensor.stride, strided.stride);
  return check_input(name, tensor, Elements::kFloats, shape, footprint, message);
}

exattn_status check_input(const char *name, const exattn_tensor &tensor, const Shape &shape, StridedBytes &strided,
                          Footprint &footprint, Message &message) {
  strided.data = static_cast<const std::uint8_t *>(tensor.data);
  plan_strides(shape, tensor.stride, strided.stride);
  return check_input(name, tensor, Elements::kBytes, shape, footprint, message);
}

// Packed keys of that shape as a tensor whose rows are whole groups.
Shape packed_shape(const std::array<std::int64_t, 4> &size, bool paged, bool ragged) {
  return {paged    ? "[pages, kv_heads, page_size / 16, 16 * head_dim]"
          : ragged ? "[1, kv_heads, kv_len / 16 rounded up, 16 * head_dim]"
                   : "[batch, kv_heads, kv_len / 16 rounded up, 16 * head_dim]",
          4,
          {size[0], size[1], divide_up(size[2], kGroupKeys), size[3] * kGroupKeys}};
}

// The strides of packed keys become those of such rows, whose elements follow each other.
exattn_status to_rows(const char *name, std::int32_t rank, std::int64_t (&stride)[4], Message &message) {
  if (rank == 4 && stride[3] != kGroupKeys) {
    return message.fail(EXATTN_ERROR_STRIDES,
                        "%s.stride[3] is %" PRId64 ", must be %" PRId64
                        ", the distance between elements of a packed key",
                        name, stride[3], kGroupKeys);
  }
  stride[3] = 1;
  return EXATTN_OK;
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

// What is written: each element has an address of its own.
exattn_status check_apart(const char *name, const Shape &shape, const Footprint &footprint, Message &message) {
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

exattn_status check_output(const char *name, const exattn_output &output, const Shape &shape, StridedOutput &strided,
                           Footprint &footprint, Message &message) {
  if (output.reserved != 0) {
    return message.fail(EXATTN_ERROR_ENUM, "%s.reserved is %d, must be 0", name, output.reserved);
  }
  strided.data = output.data;
  const exattn_status status =
      check_layout(name, output.data, kFloat, output.rank, output.stride, shape, footprint, message);
  plan_strides(shape, output.stride, strided.stride);
  return status != EXATTN_OK ? status : check_apart(name, shape, footprint, message);
}

// A contiguous array, or null.
exattn_status check_array(const char *name, const void *data, std::size_t element_size, std::int64_t count,
                          Footprint &footprint, Message &message) {
  footprint = {};
  if (data == nullptr || count == 0) {
    return EXATTN_OK;
  }
  if (!is_aligned(data, element_size)) {
    return message.fail(EXATTN_ERROR_ALIGNMENT, "%s must be aligned to %zu bytes", name, element_size);
  }
  const std::int64_t stride = 1;
  if (!measure(data, static_cast<std::int64_t>(element_size), Shape{"", 1, {count}}, &stride, footprint)) {
    return message.fail(EXATTN_ERROR_OVERFLOW, "%s: %" PRId64 " elements reach beyond the address space", name, count);
  }
  return EXATTN_OK;
}

// Bytes at any address: scratch and states.
exattn_status check_bytes(const char *name, const void *data, std::size_t bytes, Footprint &footprint,
                          Message &message) {
  const std::int64_t stride = 1;
  footprint = {};
  if (bytes != 0 && (bytes > static_cast<std::size_t>(kMaxExtent) ||
                     !measure(data, 1, Shape{"", 1, {static_cast<std::int64_t>(bytes)}}, &stride, footprint))) {
    return message.fail(EXATTN_ERROR_OVERFLOW, "%s: %s_size reaches beyond the address space", name, name);
  }
  return EXATTN_OK;
}

exattn_status check_size(const char *name, std::int64_t size, std::int64_t least, Message &message) {
  return size >= least
             ? EXATTN_OK
             : message.fail(EXATTN_ERROR_SIZE, "%s is %" PRId64 ", must be %" PRId64 " or more", name, size, least);
}

constexpr std::uint32_t kInfinity = 0x7F800000;

// Of attention or of packing, whose fields for pages have the same names.
template <class Args>
std::int64_t pages_of_a_sequence(const Args &args) {
  return divide_up(args.kv_len, args.page_size);
}

// Entries of the page table, up to the last one that can be looked at: what lies between it and the next sequence's
// may serve other ends.
template <class Args>
std::int64_t page_entries(const Args &args) {
  std::int64_t entries = 0;
  if (args.page_table != nullptr && args.batch != 0 &&
      (__builtin_mul_overflow(args.batch - 1, args.page_table_stride, &entries) ||
       __builtin_add_overflow(entries, pages_of_a_sequence(args), &entries))) {
    return kHighest; // more than memory holds
  }
  return entries;
}

// A page's size must be a multiple of row_keys.
template <class Args>
exattn_status check_page_options(const Args &args, std::int64_t row_keys, Message &message) {
  if (args.page_table == nullptr) {
    const struct {
      const char *name;
      std::int64_t value;
    } fields[] = {{"page_table_stride", args.page_table_stride}, {"page_size", args.page_size}, {"pages", args.pages}};
    for (const auto &field : fields) {
      if (field.value != 0) {
        return message.fail(EXATTN_ERROR_OPTION, "%s is %" PRId64 ", but page_table is null: set both, or leave %s 0",
                            field.name, field.value, field.name);
      }
    }
    return EXATTN_OK;
  }
  exattn_status status = check_size("page_size", args.page_size, 1, message);
  if (status != EXATTN_OK || (status = check_size("pages", args.pages, 0, message)) != EXATTN_OK) {
    return status;
  }
  if (args.page_size % row_keys != 0) {
    return message.fail(EXATTN_ERROR_OPTION,
                        "page_size is %" PRId64 ", must be a multiple of %" PRId64 " where keys are packed",
                        args.page_size, row_keys);
  }
  const std::int64_t least = pages_of_a_sequence(args);
  if (args.page_table_stride < least) {
    return message.fail(EXATTN_ERROR_OPTION,
                        "page_table_stride is %" PRId64 ", must be %" PRId64 " or more: kv_len %" PRId64
                        " / page_size %" PRId64 " rounded up",
                        args.page_table_stride, least, args.kv_len, args.page_size);
  }
  return EXATTN_OK;
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
  const std::uint32_t softcap = std::bit_cast<std::uint32_t>(args.softcap);
  if (softcap >= kInfinity) {
    return message.fail(EXATTN_ERROR_OPTION,
                        "softcap is %s (bits %08" PRIX32 "), must be finite and above 0, or +0: none",
                        softcap << 1 > kInfinity << 1 ? "NaN"
                        : softcap == kInfinity        ? "infinite"
                        : softcap << 1 == 0           ? "-0"
                                                      : "negative",
                        softcap);
  }
  if (args.k_layout != EXATTN_K_ROWS && args.k_layout != EXATTN_K_PACKED) {
    return message.fail(EXATTN_ERROR_ENUM, "k_layout is %d, must be EXATTN_K_ROWS (%d) or EXATTN_K_PACKED (%d)",
                        args.k_layout, EXATTN_K_ROWS, EXATTN_K_PACKED);
  }
  if (args.reserved != 0) {
    return message.fail(EXATTN_ERROR_ENUM, "reserved is %d, must be 0", args.reserved);
  }
  if (args.page_table != nullptr && args.kv_starts != nullptr) {
    return message.fail(EXATTN_ERROR_OPTION, "page_table and kv_starts are both given, at most one of them is allowed");
  }
  return check_page_options(args, args.k_layout == EXATTN_K_PACKED ? kGroupKeys : 1, message);
}

// Where the sequences of a ragged batch start; gives the length of the longest. Without starts, all have that length.
exattn_status check_starts(const char *name, const std::int64_t *starts, std::int64_t batch, const char *length_name,
                           std::int64_t length, Footprint &footprint, std::int64_t &longest, Message &message) {
  longest = length;
  if (starts == nullptr) {
    return EXATTN_OK;
  }
  const std::int64_t count = batch == kHighest ? batch : batch + 1; // refused anyway
  if (const exattn_status status = check_array(name, starts, sizeof(std::int64_t), count, footprint, message);
      status != EXATTN_OK) {
    return status;
  }
  if (starts[0] < 0) {
    return message.fail(EXATTN_ERROR_OFFSET, "%s[0] is %" PRId64 ", must be 0 or more", name, starts[0]);
  }
  longest = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    if (starts[b + 1] < starts[b]) {
      return message.fail(EXATTN_ERROR_OFFSET,
                          "%s[%" PRId64 "] is %" PRId64 ", must be %s[%" PRId64 "], %" PRId64 ", or more", name, b + 1,
                          starts[b + 1], name, b, starts[b]);
    }
    longest = std::max(longest, starts[b + 1] - starts[b]);
  }
  if (starts[batch] > length) {
    return message.fail(EXATTN_ERROR_OFFSET, "%s[%" PRId64 "] is %" PRId64 ", must be at most %s, %" PRId64, name,
                        batch, starts[batch], length_name, length);
  }
  return EXATTN_OK;
}

// The positions of a sequence's rows.
exattn_status check_rows(const exattn_attention_args &args, std::int64_t b, Message &message) {
  const std::int64_t first = first_position_of(args, b);
  const std::int64_t rows = rows_of(args, b);
  std::int64_t end = 0;
  if (first >= 0 && !__builtin_add_overflow(first, rows, &end)) {
    return EXATTN_OK;
  }
  std::array<char, 48> name{"q_offset"};
  if (args.q_offsets != nullptr) {
    std::snprintf(name.data(), name.size(), "q_offsets[%" PRId64 "]", b);
  }
  if (first < 0) {
    return message.fail(EXATTN_ERROR_OFFSET, "%s is %" PRId64 ", must be 0 or more", name.data(), first);
  }
  if (args.q_starts != nullptr) {
    return message.fail(EXATTN_ERROR_OVERFLOW,
                        "%s %" PRId64 " + the %" PRId64 " rows of sequence %" PRId64 " does not fit in 64 bits",
                        name.data(), first, rows, b);
  }
  return message.fail(EXATTN_ERROR_OVERFLOW, "%s %" PRId64 " + q_len %" PRId64 " does not fit in 64 bits", name.data(),
                      first, rows);
}

// Positions and lengths that are given once or per sequence. No sequence has more than longest_keys.
exattn_status check_positions(const exattn_attention_args &args, std::int64_t longest_keys, Message &message) {
  if (args.q_offsets == nullptr && args.q_offset < 0) { // also without a sequence
    return message.fail(EXATTN_ERROR_OFFSET, "q_offset is %" PRId64 ", must be 0 or more", args.q_offset);
  }
  if (args.q_offsets == nullptr && args.q_starts == nullptr) {
    if (const exattn_status status = check_rows(args, 0, message); status != EXATTN_OK) {
      return status;
    }
  } else {
    for (std::int64_t b = 0; b < args.batch; ++b) {
      if (const exattn_status status = check_rows(args, b, message); status != EXATTN_OK) {
        return status;
      }
    }
  }
  for (std::int64_t b = 0; args.kv_lens != nullptr && b < args.batch; ++b) {
    if (args.kv_lens[b] < 0 || args.kv_lens[b] > keys_of(args, b)) {
      return message.fail(EXATTN_ERROR_OFFSET, "kv_lens[%" PRId64 "] is %" PRId64 ", must be 0 to %s, %" PRId64, b,
                          args.kv_lens[b], args.kv_starts == nullptr ? "kv_len" : "the sequence's number of keys",
                          keys_of(args, b));
    }
  }
  if (args.kv_offset < 0 || args.kv_offset % kBlockKeys != 0) {
    return message.fail(EXATTN_ERROR_OFFSET, "kv_offset is %" PRId64 ", must be 0 or more and a multiple of %" PRId64,
                        args.kv_offset, kBlockKeys);
  }
  // Up to the end of the last block, where it is needed.
  if ((args.kv_offset != 0 || args.state_out != nullptr) &&
      longest_keys > kHighest / kBlockKeys * kBlockKeys - args.kv_offset) {
    return message.fail(EXATTN_ERROR_OVERFLOW,
                        "kv_offset %" PRId64 " + %" PRId64 " keys, rounded up to a multiple of %" PRId64
                        ", does not fit in 64 bits",
                        args.kv_offset, longest_keys, kBlockKeys);
  }
  return EXATTN_OK;
}

// Sequences of packed keys, but for those without a key: a group holds keys of one alone.
exattn_status check_group_starts(const exattn_attention_args &args, Message &message) {
  if (args.k_layout != EXATTN_K_PACKED || args.kv_starts == nullptr) {
    return EXATTN_OK;
  }
  for (std::int64_t b = 0; b < args.batch; ++b) {
    if (args.kv_starts[b] % kGroupKeys != 0 && present_keys_of(args, b) != 0) {
      return message.fail(EXATTN_ERROR_OFFSET,
                          "kv_starts[%" PRId64 "] is %" PRId64 ", must be a multiple of %" PRId64
                          " where keys are packed: round up, and say in kv_lens how many keys there are",
                          b, args.kv_starts[b], kGroupKeys);
    }
  }
  return EXATTN_OK;
}

// The table's entries of pages that hold keys [first, end) of a sequence.
template <class Args>
exattn_status check_entries(const Args &args, std::int64_t b, std::int64_t first, std::int64_t end, Message &message) {
  const std::int32_t *const table = args.page_table + b * args.page_table_stride;
  for (std::int64_t n = first / args.page_size; n < divide_up(end, args.page_size); ++n) {
    if (table[n] < 0 || table[n] >= args.pages) {
      return message.fail(EXATTN_ERROR_PAGE,
                          "page_table: entry %" PRId64 " of sequence %" PRId64 " is %d, must be 0 or more and below "
                          "pages, %" PRId64,
                          n, b, table[n], args.pages);
    }
  }
  return EXATTN_OK;
}

// The table's entries of pages in which a row of their sequence sees a key, by position. No other is looked at.
exattn_status check_pages(const exattn_attention_args &args, Message &message) {
  if (args.page_table == nullptr || args.heads == 0) {
    return EXATTN_OK;
  }
  for (std::int64_t b = 0; b < args.batch; ++b) {
    const auto [first, end] = keys_seen(args, b, 0, rows_of(args, b));
    if (first >= end) {
      continue;
    }
    if (const exattn_status status = check_entries(args, b, first, end, message); status != EXATTN_OK) {
      return status;
    }
  }
  return EXATTN_OK;
}

// Rows of a state; their number overflows nowhere else either, where there is memory for them.
bool count_rows(const exattn_attention_args &args, std::int64_t &rows) {
  const Shape shape{"", 3, {args.q_starts == nullptr ? args.batch : 1, args.heads, args.q_len}};
  return count_elements(shape, 1, rows);
}

exattn_status measure_state(const exattn_attention_args &args, std::size_t &bytes, Message &message) {
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t end_bytes = 0;
  std::int64_t sum = 0;
  if (!count_rows(args, rows) || __builtin_mul_overflow(rows, state_row_bytes(args.value_dim), &row_bytes) ||
      __builtin_mul_overflow(args.batch, static_cast<std::int64_t>(kStateEndBytes), &end_bytes) ||
      __builtin_add_overflow(row_bytes, end_bytes, &sum) ||
      __builtin_add_overflow(sum, static_cast<std::int64_t>(kStateHeaderBytes), &sum)) {
    return message.fail(EXATTN_ERROR_OVERFLOW, "a state of these sizes has more bytes than 63 bits can count");
  }
  bytes = static_cast<std::size_t>(sum);
  return EXATTN_OK;
}

exattn_status check_state_header(const exattn_attention_args &args, const unsigned char *state, Message &message) {
  if (std::memcmp(state, kStateMagic, sizeof(kStateMagic)) != 0) {
    return message.fail(EXATTN_ERROR_STATE, "state_in does not begin with %.8s: it is no state of this definition",
                        reinterpret_cast<const char *>(kStateMagic));
  }
  const std::uint32_t flavour = load_le32(state + kStateFlavourAt);
  if (flavour != static_cast<std::uint32_t>(args.flavour)) {
    return message.fail(EXATTN_ERROR_STATE, "state_in is of the flavour %" PRIu32 ", must be that of this call, %d",
                        flavour, args.flavour);
  }
  if (load_le32(state + kStateZeroAt) != 0) {
    return message.fail(EXATTN_ERROR_STATE, "state_in is damaged: its bytes 12 to 15 are not 0");
  }
  const struct {
    const char *name;
    std::size_t at;
    std::int64_t wanted;
  } fields[] = {{"batch", kStateBatchAt, args.batch},
                {"heads", kStateHeadsAt, args.heads},
                {"q_len", kStateRowsAt, args.q_len},
                {"value_dim", kStateValueDimAt, args.value_dim},
                {"ragged", kStateRaggedAt, args.q_starts == nullptr ? 0 : 1},
                {"next key", kStateNextKeyAt, args.kv_offset}};
  for (const auto &field : fields) {
    const std::uint64_t value = load_le64(state + field.at);
    if (value == static_cast<std::uint64_t>(field.wanted)) {
      continue;
    }
    return field.at == kStateNextKeyAt
               ? message.fail(EXATTN_ERROR_STATE,
                              "kv_offset is %" PRId64 ", but state_in stopped at %" PRIu64 ": they must be the same",
                              field.wanted, value)
               : message.fail(EXATTN_ERROR_STATE,
                              "state_in has %s %" PRIu64 ", this call %" PRId64 ": they must be the same", field.name,
                              value, field.wanted);
  }
  return EXATTN_OK;
}

// What a state says about its sequences and rows, after its header and its size.
exattn_status check_state_contents(const exattn_attention_args &args, const unsigned char *state, std::size_t bytes,
                                   Message &message) {
  const unsigned char *part = state + kStateHeaderBytes;
  for (std::int64_t b = 0; b < args.batch; ++b, part += kStateEndBytes) {
    const std::uint64_t end = load_le64(part);
    if (end > static_cast<std::uint64_t>(args.kv_offset)) {
      return message.fail(EXATTN_ERROR_STATE,
                          "state_in is damaged: sequence %" PRId64 " ended at %" PRIu64
                          ", behind the next key, %" PRId64,
                          b, end, args.kv_offset);
    }
    if (end < static_cast<std::uint64_t>(args.kv_offset) && present_keys_of(args, b) != 0) {
      return message.fail(EXATTN_ERROR_STATE,
                          "state_in: sequence %" PRId64 " ended at %" PRIu64 ", before kv_offset, %" PRId64
                          ": it takes no more, but has %" PRId64 " keys in this call",
                          b, end, args.kv_offset, present_keys_of(args, b));
    }
  }
  constexpr std::uint32_t kOne = 0x3F800000;
  constexpr std::uint32_t kInfinite = 0x7F800000;
  constexpr std::uint32_t kNan = 0x7FC00000;
  constexpr std::uint32_t kMinusZero = 0x80000000;
  const std::int64_t row_bytes = state_row_bytes(args.value_dim);
  for (std::int64_t row = 0; part != state + bytes; ++row, part += row_bytes) {
    // A sum is 0, at least 1, or NaN (definition, sections 8 and 14); a maximum is neither -0 nor NaN.
    const std::uint32_t sum = load_le32(part + 4 * kStateSumWord);
    if (sum != 0 && sum != kNan && (sum < kOne || sum >= kInfinite)) {
      return message.fail(EXATTN_ERROR_STATE,
                          "state_in is damaged: row %" PRId64 " has a sum with the bits %08" PRIX32
                          ", must be 0, at least 1, or 7FC00000",
                          row, sum);
    }
    const std::uint32_t maximum = load_le32(part + 4 * kStateMaximumWord);
    if (maximum == kMinusZero || (maximum & ~kMinusZero) > kInfinite) {
      return message.fail(EXATTN_ERROR_STATE,
                          "state_in is damaged: row %" PRId64 " has a maximum with the bits %08" PRIX32
                          ", must be a number and not -0",
                          row, maximum);
    }
    const std::uint32_t flags = load_le32(part + 4 * kStateFlagsWord);
    if ((flags & ~(kStateSawKey | kStateHasSink)) != 0) {
      return message.fail(EXATTN_ERROR_STATE, "state_in is damaged: row %" PRId64 " has the flags %08" PRIX32, row,
                          flags);
    }
  }
  return EXATTN_OK;
}

exattn_status check_states(const exattn_attention_args &args, Footprint &in, Footprint &out, AttentionPlan &plan,
                           Message &message) {
  const struct {
    const char *name;
    const void *data;
    std::size_t size;
  } given[] = {{"state_in", args.state_in, args.state_in_size}, {"state_out", args.state_out, args.state_out_size}};
  for (const auto &one : given) {
    if (one.data == nullptr && one.size != 0) {
      return message.fail(EXATTN_ERROR_NULL, "%s is null, but %s_size is %zu: both or neither", one.name, one.name,
                          one.size);
    }
  }
  if (args.state_in == nullptr && args.state_out == nullptr) {
    return EXATTN_OK;
  }
  std::size_t bytes = 0;
  exattn_status status = measure_state(args, bytes, message);
  if (status != EXATTN_OK) {
    return status;
  }
  const std::size_t rows_at = kStateHeaderBytes + static_cast<std::size_t>(args.batch) * kStateEndBytes;
  if (args.state_in != nullptr) {
    const unsigned char *const state = static_cast<const unsigned char *>(args.state_in);
    if ((status = check_bytes("state_in", state, args.state_in_size, in, message)) != EXATTN_OK ||
        (args.state_in_size >= kStateHeaderBytes && (status = check_state_header(args, state, message)) != EXATTN_OK)) {
      return status;
    }
    if (args.state_in_size != bytes) {
      return message.fail(EXATTN_ERROR_STATE, "state_in_size is %zu, must be %zu", args.state_in_size, bytes);
    }
    if ((status = check_state_contents(args, state, bytes, message)) != EXATTN_OK) {
      return status;
    }
    plan.state_in = state + rows_at;
  }
  if (args.state_out != nullptr) {
    if (args.state_out_size < bytes) {
      return message.fail(EXATTN_ERROR_STATE, "state_out_size is %zu, must be %zu or more", args.state_out_size, bytes);
    }
    plan.state_out = static_cast<unsigned char *>(args.state_out) + rows_at;
    return check_bytes("state_out", args.state_out, bytes, out, message); // what is behind is left alone
  }
  return EXATTN_OK;
}

exattn_status check_caller_scratch(const exattn_attention_args &args, const Team &team, std::size_t slice_size,
                                   const SplitScratch &split, Footprint &footprint, Message &message) {
  if (args.scratch == nullptr) {
    return args.scratch_size == 0
               ? EXATTN_OK
               : message.fail(EXATTN_ERROR_NULL, "scratch is null, but scratch_size is %zu: both or neither",
                              args.scratch_size);
  }
  std::size_t needed = 0;
  const exattn_status status = measure_scratch(slice_size, team.threads, split, needed, message);
  if (status != EXATTN_OK) {
    return status;
  }
  if (args.scratch_size < needed) {
    return message.fail(EXATTN_ERROR_SCRATCH, "scratch_size is %zu, must be %zu or more", args.scratch_size, needed);
  }
  return check_bytes("scratch", args.scratch, args.scratch_size, footprint, message);
}

exattn_status check_sizes(const exattn_attention_args &args, Message &message) {
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
  return EXATTN_OK;
}

// The memory that a call uses.
struct Used {
  const char *name;
  Footprint footprint;
};

struct UsedMemory {
  Used q{"q", {}}, k{"k", {}}, v{"v", {}}, mask{"mask", {}}, mask_bool{"mask_bool", {}}, sinks{"sinks", {}},
      alibi_slopes{"alibi_slopes", {}}, q_offsets{"q_offsets", {}}, kv_lens{"kv_lens", {}}, q_starts{"q_starts", {}},
      kv_starts{"kv_starts", {}}, page_table{"page_table", {}}, state_in{"state_in", {}};
  Used out{"out", {}}, lse{"lse", {}}, state_out{"state_out", {}}, scratch{"scratch", {}};
};

// Whatever is written shares no memory with anything else, but that a state may be replaced by the next one.
exattn_status check_overlaps(const UsedMemory &used, bool state_in_place, Message &message) {
  const Used *const inputs[] = {&used.q,
                                &used.k,
                                &used.v,
                                &used.mask,
                                &used.mask_bool,
                                &used.sinks,
                                &used.alibi_slopes,
                                &used.q_offsets,
                                &used.kv_lens,
                                &used.q_starts,
                                &used.kv_starts,
                                &used.page_table,
                                &used.state_in};
  const Used *const outputs[] = {&used.out, &used.lse, &used.state_out, &used.scratch};
  for (const Used *const *output = std::begin(outputs); output != std::end(outputs); ++output) {
    const auto check = [&](const Used &other) {
      return check_disjoint((*output)->name, (*output)->footprint, other.name, other.footprint, message);
    };
    for (const Used *const *earlier = std::begin(outputs); earlier != output; ++earlier) {
      if (const exattn_status status = check(**earlier); status != EXATTN_OK) {
        return status;
      }
    }
    for (const Used *const input : inputs) {
      if (state_in_place && *output == &used.state_out && input == &used.state_in) {
        continue;
      }
      if (const exattn_status status = check(*input); status != EXATTN_OK) {
        return status;
      }
    }
  }
  return EXATTN_OK;
}

// Shapes of the tensors in memory: where sequences lie one after the other, as if there were one.
struct Shapes {
  Shape q, k, v, mask, out, lse;
};

Shapes shapes_of(const exattn_attention_args &args, std::int64_t mask_columns) {
  const bool ragged = args.q_starts != nullptr;
  const std::int64_t batch = ragged ? 1 : args.batch;
  const char *const columns = args.kv_starts != nullptr ? "keys of the longest sequence" : nullptr;
  Shapes shapes{{ragged ? "[1, heads, q_len, head_dim]" : "[batch, heads, q_len, head_dim]",
                 4,
                 {batch, args.heads, args.q_len, args.head_dim}},
                {"[batch, kv_heads, kv_len, head_dim]", 4, {args.batch, args.kv_heads, args.kv_len, args.head_dim}},
                {"[batch, kv_heads, kv_len, value_dim]", 4, {args.batch, args.kv_heads, args.kv_len, args.value_dim}},
                {columns == nullptr
                     ? (ragged ? "[1, heads, q_len, kv_len]" : "[batch, heads, q_len, kv_len]")
                     : (ragged ? "[1, heads, q_len, longest sequence]" : "[batch, heads, q_len, longest sequence]"),
                 4,
                 {batch, args.heads, args.q_len, mask_columns}},
                {ragged ? "[1, heads, q_len, value_dim]" : "[batch, heads, q_len, value_dim]",
                 4,
                 {batch, args.heads, args.q_len, args.value_dim}},
                {ragged ? "[1, heads, q_len]" : "[batch, heads, q_len]", 3, {batch, args.heads, args.q_len, 1}}};
  if (args.kv_starts != nullptr) {
    shapes.k.text = "[1, kv_heads, kv_len, head_dim]";
    shapes.v.text = "[1, kv_heads, kv_len, value_dim]";
    shapes.k.size[0] = shapes.v.size[0] = 1;
  }
  if (args.page_table != nullptr) {
    shapes.k.text = "[pages, kv_heads, page_size, head_dim]";
    shapes.v.text = "[pages, kv_heads, page_size, value_dim]";
    shapes.k.size[0] = shapes.v.size[0] = args.pages;
    shapes.k.size[2] = shapes.v.size[2] = args.page_size;
  }
  if (args.k_layout == EXATTN_K_PACKED) {
    shapes.k = packed_shape(shapes.k.size, args.page_table != nullptr, args.kv_starts != nullptr);
  }
  return shapes;
}

// Queries, keys, values and masks.
exattn_status check_tensors(const exattn_attention_args &args, const Shapes &shapes, UsedMemory &used,
                            AttentionPlan &plan, Message &message) {
  exattn_status status = EXATTN_OK;
  exattn_tensor k = args.k;
  if (args.k_layout == EXATTN_K_PACKED && (status = to_rows("k", k.rank, k.stride, message)) != EXATTN_OK) {
    return status;
  }
  if ((status = check_input("q", args.q, shapes.q, plan.q, used.q.footprint, message)) != EXATTN_OK ||
      (status = check_input("k", k, shapes.k, plan.k, used.k.footprint, message)) != EXATTN_OK ||
      (status = check_input("v", args.v, shapes.v, plan.v, used.v.footprint, message)) != EXATTN_OK) {
    return status;
  }
  if (args.mask.data != nullptr) {
    status = check_input("mask", args.mask, shapes.mask, plan.mask, used.mask.footprint, message);
  }
  if (status == EXATTN_OK && args.mask_bool.data != nullptr) {
    status = check_input("mask_bool", args.mask_bool, shapes.mask, plan.mask_bool, used.mask_bool.footprint, message);
  }
  return status;
}

// Contiguous arrays with an entry for each head or sequence.
exattn_status check_arrays(const exattn_attention_args &args, UsedMemory &used, Message &message) {
  const struct {
    Used &array;
    const void *data;
    std::size_t element_size;
    std::int64_t count;
  } arrays[] = {{used.sinks, args.sinks, sizeof(float), args.heads},
                {used.alibi_slopes, args.alibi_slopes, sizeof(float), args.heads},
                {used.q_offsets, args.q_offsets, sizeof(std::int64_t), args.batch},
                {used.kv_lens, args.kv_lens, sizeof(std::int64_t), args.batch},
                {used.page_table, args.page_table, sizeof(std::int32_t), page_entries(args)}};
  for (const auto &one : arrays) {
    const exattn_status status =
        check_array(one.array.name, one.data, one.element_size, one.count, one.array.footprint, message);
    if (status != EXATTN_OK) {
      return status;
    }
  }
  return EXATTN_OK;
}

exattn_status check_outputs(const exattn_attention_args &args, const Shapes &shapes, UsedMemory &used,
                            AttentionPlan &plan, Message &message) {
  exattn_status status = EXATTN_OK;
  if (args.out.data != nullptr || args.state_out == nullptr) {
    status = check_output("out", args.out, shapes.out, plan.out, used.out.footprint, message);
  }
  if (status == EXATTN_OK && args.lse.data != nullptr) {
    status = check_output("lse", args.lse, shapes.lse, plan.lse, used.lse.footprint, message);
  }
  return status;
}

// Sizes of a call that packs keys.
exattn_status check_pack_sizes(const exattn_pack_keys_args &args, Message &message) {
  const struct {
    const char *name;
    std::int64_t size;
    std::int64_t least;
  } sizes[] = {{"batch", args.batch, 0},
               {"kv_heads", args.kv_heads, 0},
               {"kv_len", args.kv_len, 0},
               {"head_dim", args.head_dim, 1},
               {"count", args.count, 0}};
  for (const auto &size : sizes) {
    if (const exattn_status status = check_size(size.name, size.size, size.least, message); status != EXATTN_OK) {
      return status;
    }
  }
  if (args.head_dim > kMaxHeadSize) {
    return message.fail(EXATTN_ERROR_OVERFLOW, "head_dim is %" PRId64 ", may be at most 2^40", args.head_dim);
  }
  if (args.count > args.kv_len) {
    return message.fail(EXATTN_ERROR_OFFSET, "count is %" PRId64 ", must be at most kv_len, %" PRId64, args.count,
                        args.kv_len);
  }
  return EXATTN_OK;
}

// The packed keys of such a call, all of them.
exattn_status check_packed(const exattn_pack_keys_args &args, Footprint &footprint, Message &message) {
  exattn_packed_keys packed = args.packed;
  exattn_status status = check_dtype("packed", packed.dtype, Elements::kFloats, message);
  if (status != EXATTN_OK) {
    return status;
  }
  if (packed.dtype != args.k.dtype && packed.dtype != EXATTN_F32) {
    return message.fail(EXATTN_ERROR_ENUM, "packed.dtype is %d, must be k's, %d, or EXATTN_F32 (%d)", packed.dtype,
                        args.k.dtype, EXATTN_F32);
  }
  const bool paged = args.page_table != nullptr;
  const Shape shape = packed_shape(
      {paged ? args.pages : args.batch, args.kv_heads, paged ? args.page_size : args.kv_len, args.head_dim}, paged,
      false);
  if ((status = to_rows("packed", packed.rank, packed.stride, message)) != EXATTN_OK ||
      (status = check_layout("packed", packed.data, width_of(packed.dtype), packed.rank, packed.stride, shape,
                             footprint, message)) != EXATTN_OK) {
    return status;
  }
  return check_apart("packed", shape, footprint, message);
}

// Slots [begin, end) of a page.
struct Slots {
  std::int32_t page;
  std::int64_t begin, end;
};

// No two keys may go to one slot. The call has entries for all that it writes.
exattn_status check_slots(const exattn_pack_keys_args &args, Message &message) {
  std::size_t most = 0;
  for (std::int64_t b = 0; b < args.batch; ++b) {
    const std::int64_t first = first_key_of(args, b);
    most += static_cast<std::size_t>(divide_up(first + args.count, args.page_size) - first / args.page_size);
  }
  const std::unique_ptr<Slots[]> written(new (std::nothrow) Slots[most]);
  if (written == nullptr) {
    return message.fail(EXATTN_ERROR_MEMORY, "no memory for a list of %zu pages", most);
  }
  Slots *last = written.get();
  for (std::int64_t b = 0; b < args.batch; ++b) {
    const std::int64_t end = first_key_of(args, b) + args.count;
    for (std::int64_t key = first_key_of(args, b); key < end; ++last) {
      const std::int64_t slot = key % args.page_size;
      const std::int64_t count = std::min(end - key, args.page_size - slot);
      *last = {args.page_table[b * args.page_table_stride + key / args.page_size], slot, slot + count};
      key += count;
    }
  }
  std::sort(written.get(), last,
            [](const Slots &a, const Slots &b) { return a.page != b.page ? a.page < b.page : a.begin < b.begin; });
  const Slots *const twice = std::adjacent_find(
      written.get(), last, [](const Slots &a, const Slots &b) { return a.page == b.page && b.begin < a.end; });
  return twice == last
             ? EXATTN_OK
             : message.fail(EXATTN_ERROR_OVERLAP,
                            "page_table: two keys of the call go to one slot of page %d, each must have its own",
                            twice->page);
}

// Where each sequence's keys go; and that nothing which says so lies among what is written.
exattn_status check_pack_places(const exattn_pack_keys_args &args, const Footprint &packed, Message &message) {
  Footprint first_keys;
  Footprint page_table;
  exattn_status status =
      check_array("first_keys", args.first_keys, sizeof(std::int64_t), args.batch, first_keys, message);
  if (status != EXATTN_OK || (status = check_array("page_table", args.page_table, sizeof(std::int32_t),
                                                   page_entries(args), page_table, message)) != EXATTN_OK) {
    return status;
  }
  for (std::int64_t b = 0; b < (args.first_keys == nullptr ? 1 : args.batch); ++b) {
    const std::int64_t first = first_key_of(args, b);
    if (first < 0 || first > args.kv_len - args.count) {
      std::array<char, 48> name{"first_key"};
      if (args.first_keys != nullptr) {
        std::snprintf(name.data(), name.size(), "first_keys[%" PRId64 "]", b);
      }
      return message.fail(EXATTN_ERROR_OFFSET, "%s is %" PRId64 ", must be 0 to kv_len %" PRId64 " - count %" PRId64,
                          name.data(), first, args.kv_len, args.count);
    }
  }
  if (args.page_table != nullptr && args.count != 0) {
    for (std::int64_t b = 0; b < args.batch; ++b) {
      const std::int64_t first = first_key_of(args, b);
      if ((status = check_entries(args, b, first, first + args.count, message)) != EXATTN_OK) {
        return status;
      }
    }
    if ((status = check_slots(args, message)) != EXATTN_OK) {
      return status;
    }
  }
  status = check_disjoint("packed", packed, "first_keys", first_keys, message);
  return status != EXATTN_OK ? status : check_disjoint("packed", packed, "page_table", page_table, message);
}

} // namespace

exattn_status check_attention_sizes(const exattn_attention_args &args, Team &team, std::size_t &slice_size,
                                    SplitScratch &split, Message &message) noexcept {
  exattn_status status = check_sizes(args, message);
  if (status != EXATTN_OK || (status = make_team(args.pool, args.executor, team, message)) != EXATTN_OK) {
    return status;
  }
  if (args.split_keys != EXATTN_SPLIT_KEYS_AUTO && args.split_keys != EXATTN_SPLIT_KEYS_NEVER &&
      args.split_keys != EXATTN_SPLIT_KEYS_ALWAYS) {
    return message.fail(EXATTN_ERROR_ENUM,
                        "split_keys is %d, must be EXATTN_SPLIT_KEYS_AUTO (%d), EXATTN_SPLIT_KEYS_NEVER (%d) or "
                        "EXATTN_SPLIT_KEYS_ALWAYS (%d)",
                        args.split_keys, EXATTN_SPLIT_KEYS_AUTO, EXATTN_SPLIT_KEYS_NEVER, EXATTN_SPLIT_KEYS_ALWAYS);
  }
  slice_size = attention_slice_bytes(args.head_dim, args.value_dim);
  split = attention_split_scratch(args, team.threads);
  return EXATTN_OK;
}

exattn_status measure_scratch(std::size_t slice_size, std::int32_t workers, const SplitScratch &split,
                              std::size_t &bytes, Message &message) noexcept {
  if (__builtin_mul_overflow(slice_size, static_cast<std::size_t>(workers), &bytes) ||
      __builtin_add_overflow(bytes, split.bytes, &bytes) ||
      __builtin_add_overflow(bytes, kScratchAlignment, &bytes)) { // room to align it
    return message.fail(EXATTN_ERROR_OVERFLOW, "the scratch of %d threads does not fit in size_t", workers);
  }
  return EXATTN_OK;
}

exattn_status check_state_size(const exattn_attention_args &args, std::size_t &bytes, Message &message) noexcept {
  const exattn_status status = check_sizes(args, message);
  return status != EXATTN_OK ? status : measure_state(args, bytes, message);
}

exattn_status check_attention(const exattn_attention_args &args, const Team &team, std::size_t slice_size,
                              const SplitScratch &split, AttentionPlan &plan, Cut &cut, Message &message) noexcept {
  plan = {};
  UsedMemory used;
  std::int64_t longest_rows = 0;
  std::int64_t longest_keys = 0;
  exattn_status status = check_options(args, message);
  if (status != EXATTN_OK ||
      (status = check_starts("q_starts", args.q_starts, args.batch, "q_len", args.q_len, used.q_starts.footprint,
                             longest_rows, message)) != EXATTN_OK ||
      (status = check_starts("kv_starts", args.kv_starts, args.batch, "kv_len", args.kv_len, used.kv_starts.footprint,
                             longest_keys, message)) != EXATTN_OK) {
    return status;
  }
  const Shapes shapes = shapes_of(args, longest_keys);
  if ((status = check_tensors(args, shapes, used, plan, message)) != EXATTN_OK ||
      (status = check_arrays(args, used, message)) != EXATTN_OK ||
      (status = check_positions(args, longest_keys, message)) != EXATTN_OK ||
      (status = check_group_starts(args, message)) != EXATTN_OK || (status = check_pages(args, message)) != EXATTN_OK ||
      (status = check_states(args, used.state_in.footprint, used.state_out.footprint, plan, message)) != EXATTN_OK ||
      (status = check_outputs(args, shapes, used, plan, message)) != EXATTN_OK ||
      (status = check_caller_scratch(args, team, slice_size, split, used.scratch.footprint, message)) != EXATTN_OK ||
      (status = check_overlaps(used, args.state_in == args.state_out, message)) != EXATTN_OK) {
    return status;
  }
  plan.k_packed = args.k_layout == EXATTN_K_PACKED;
  plan.batch = args.batch;
  plan.heads = args.heads;
  plan.kv_heads = args.kv_heads;
  plan.q_len = args.q_len;
  plan.kv_len = args.kv_len;
  plan.head_dim = args.head_dim;
  plan.value_dim = args.value_dim;
  plan.scale = args.scale;
  plan.softcap = args.softcap;
  plan.causal = args.causal != 0;
  plan.fully_masked_zero = args.fully_masked == EXATTN_FULLY_MASKED_ZERO;
  plan.q_offset = args.q_offset;
  plan.window = args.window;
  plan.sinks = args.sinks;
  plan.alibi_slopes = args.alibi_slopes;
  plan.q_offsets = args.q_offsets;
  plan.kv_lens = args.kv_lens;
  plan.q_starts = args.q_starts;
  plan.kv_starts = args.kv_starts;
  plan.page_table = args.page_table;
  plan.page_table_stride = args.page_table_stride;
  plan.page_size = args.page_size;
  plan.kv_offset = args.kv_offset;
  plan.split_rows = split.rows;
  plan.split_blocks = split.blocks;
  if (!cut_attention(args, team.threads, split, cut)) {
    return message.fail(EXATTN_ERROR_OVERFLOW, "batch %" PRId64 " sequences of %" PRId64 " rows are too many",
                        args.batch, longest_rows);
  }
  return EXATTN_OK;
}

exattn_status measure_packed_keys(std::int64_t batch, std::int64_t kv_heads, std::int64_t kv_len, std::int64_t head_dim,
                                  std::int32_t dtype, std::size_t &bytes) noexcept {
  Message unheard;
  const exattn_status status = check_dtype("", dtype, Elements::kFloats, unheard);
  if (status != EXATTN_OK) {
    return status;
  }
  if (batch < 0 || kv_heads < 0 || kv_len < 0 || head_dim < 1) {
    return EXATTN_ERROR_SIZE;
  }
  std::int64_t elements = 0;
  if (head_dim > kMaxHeadSize ||
      !count_elements(packed_shape({batch, kv_heads, kv_len, head_dim}, false, false), width_of(dtype), elements)) {
    return EXATTN_ERROR_OVERFLOW;
  }
  bytes = static_cast<std::size_t>(elements * width_of(dtype));
  return EXATTN_OK;
}

exattn_status check_pack_keys(const exattn_pack_keys_args &args, Message &message) noexcept {
  Footprint k;
  Footprint packed;
  exattn_status status = check_pack_sizes(args, message);
  if (status != EXATTN_OK || (status = check_page_options(args, kGroupKeys, message)) != EXATTN_OK ||
      (status = check_input(
           "k", args.k, Elements::kFloats,
           {"[batch, kv_heads, count, head_dim]", 4, {args.batch, args.kv_heads, args.count, args.head_dim}}, k,
           message)) != EXATTN_OK ||
      (status = check_packed(args, packed, message)) != EXATTN_OK ||
      (status = check_pack_places(args, packed, message)) != EXATTN_OK) {
    return status;
  }
  return check_disjoint("packed", packed, "k", k, message);
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
  count_elements(shape, kFloat, elements);
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

exattn_status check_merge(std::int64_t rows, std::int64_t value_dim, const float *a_out, const float *a_lse,
                          const float *b_out, const float *b_lse, const float *out, const float *lse) noexcept {
  if (rows < 0 || value_dim < 1) {
    return EXATTN_ERROR_SIZE;
  }
  if (rows == 0) {
    return EXATTN_OK;
  }
  std::int64_t numbers = 0;
  if (!count_elements(Shape{"", 2, {rows, value_dim}}, kFloat, numbers)) {
    return EXATTN_ERROR_OVERFLOW;
  }
  struct Part {
    const float *data;
    std::int64_t count;
    Footprint footprint;
  };
  Part inputs[] = {{a_out, numbers, {}}, {b_out, numbers, {}}, {a_lse, rows, {}}, {b_lse, rows, {}}};
  Part outputs[] = {{out, numbers, {}}, {lse, rows, {}}};
  Message unheard;
  for (Part *const part : {&inputs[0], &inputs[1], &inputs[2], &inputs[3], &outputs[0], &outputs[1]}) {
    if (part->data == nullptr) {
      return EXATTN_ERROR_NULL;
    }
    const exattn_status status = check_array("", part->data, sizeof(float), part->count, part->footprint, unheard);
    if (status != EXATTN_OK) {
      return status;
    }
  }
  for (const Part &output : outputs) {
    for (const Part &input : inputs) {
      const bool in_place = input.data == output.data && (&output - outputs == (&input - inputs) / 2);
      if (!in_place && find_overlap(output.footprint, input.footprint) != Overlap::kNone) {
        return EXATTN_ERROR_OVERLAP;
      }
    }
  }
  return find_overlap(outputs[0].footprint, outputs[1].footprint) == Overlap::kNone ? EXATTN_OK : EXATTN_ERROR_OVERLAP;
}

} // namespace exattn
