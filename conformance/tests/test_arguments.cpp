// Every argument error: its status, its words, and that nothing has been written; and arguments that look wrong but
// are not. And values by hand, one case for each way to get attention wrong.
#include "problem.hpp"
#include "state.hpp"
#include "state_bytes.hpp"

#include "exact/oracle.hpp"
#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

using exattn::tests::GuardedOutput;
using exattn::tests::Problem;
using exattn::tests::StateBytes;

namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

// Batch 2, heads 4 on kv_heads 2, q_len 3, kv_len 5, head_dim 6, value_dim 7, with whatever an option needs.
struct Call : Problem {
  Call() : Problem(2, 4, 2, 3, 5, 6, 7) {}

  void use_mask_bool() { args.mask_bool = {mask_bool.data(), EXATTN_U8, 4, {60, 15, 5, 1}}; }
  void use_ragged_queries() { args.q_starts = q_starts.data(); }
  void use_ragged_keys() { args.kv_starts = kv_starts.data(); }
  void use_pages() {
    args.k = {page_numbers.data(), EXATTN_F32, 4, {24, 12, 6, 1}};
    args.v = {page_numbers.data(), EXATTN_F32, 4, {28, 14, 7, 1}};
    args.page_table = page_table.data();
    args.page_table_stride = 3;
    args.page_size = 2;
    args.pages = 6;
  }
  void use_state_out() {
    args.state_out = state_out.data();
    args.state_out_size = state_out.size();
  }
  // Of a call that stopped at key 64.
  void use_state_in() {
    args.state_in = state_in.data();
    args.state_in_size = state_in.size();
    args.kv_offset = 64;
  }

  std::vector<std::uint8_t> mask_bool = std::vector<std::uint8_t>(120, 1);
  std::vector<float> slopes = std::vector<float>(4, 0.5F);
  std::vector<std::int64_t> q_starts{0, 1, 3};
  std::vector<std::int64_t> kv_starts{0, 2, 5};
  std::vector<float> page_numbers = std::vector<float>(6 * 2 * 2 * 7, 0.25F);
  std::vector<std::int32_t> page_table{0, 2, 4, 1, 3, 5};
  std::vector<unsigned char> state_in = StateBytes{0, 2, 4, 3, 7, 64, 0, {64, 64}}.bytes(24);
  std::vector<unsigned char> state_out = std::vector<unsigned char>(64 + 2 * 8 + 24 * 4 * (3 + 7), 0xA5);
};

// An address that nothing may be read from or written to before the check that it is there to provoke.
template <class T>
T *fake_address(std::uintptr_t address) {
  return reinterpret_cast<T *>(address);
}

// Leaves the neighbours of a small array out of account.
void move_tensors_away(Call &p) {
  p.args.q.data = p.args.k.data = p.args.v.data = fake_address<void>(4096);
}

struct Provocation {
  const char *what;
  exattn_status status;
  const char *words; // in the message
  std::function<void(Call &)> spoil;
};

template <class T>
T *shifted(T *pointer, std::ptrdiff_t bytes) {
  return reinterpret_cast<T *>(reinterpret_cast<std::uintptr_t>(pointer) + static_cast<std::uintptr_t>(bytes));
}

void ignore_tasks(void *, std::size_t, void (*)(void *, std::size_t), void *) {}

exattn_executor an_executor{sizeof(exattn_executor), nullptr, ignore_tasks, 2};

exattn_pool *a_pool() {
  struct Destroy {
    void operator()(exattn_pool *pool) const { exattn_pool_destroy(pool); }
  };
  static const std::unique_ptr<exattn_pool, Destroy> pool([] {
    exattn_pool *made = nullptr;
    REQUIRE(exattn_pool_create(2, &made) == EXATTN_OK);
    return made;
  }());
  return pool.get();
}

const std::vector<Provocation> &provocations() {
  static const std::vector<Provocation> all = {
      // null
      {"q null", EXATTN_ERROR_NULL, "q.data is null, but [batch, heads, q_len, head_dim] has 144 elements",
       [](Call &p) { p.args.q.data = nullptr; }},
      {"k null", EXATTN_ERROR_NULL, "k.data is null", [](Call &p) { p.args.k.data = nullptr; }},
      {"v null", EXATTN_ERROR_NULL, "v.data is null", [](Call &p) { p.args.v.data = nullptr; }},
      {"out null", EXATTN_ERROR_NULL, "out.data is null", [](Call &p) { p.args.out.data = nullptr; }},
      {"scratch null, size not", EXATTN_ERROR_NULL, "scratch is null",
       [](Call &p) { p.args.scratch_size = 1 << 20; }},
      {"parallel_for null", EXATTN_ERROR_NULL, "parallel_for is null",
       [](Call &p) {
         static const exattn_executor executor{sizeof(exattn_executor), nullptr, nullptr, 2};
         p.args.executor = &executor;
       }},
      // struct_size
      {"struct_size 0", EXATTN_ERROR_STRUCT_SIZE, "", [](Call &p) { p.args.struct_size = 0; }},
      {"struct_size + 1", EXATTN_ERROR_STRUCT_SIZE, "", [](Call &p) { ++p.args.struct_size; }},
      {"struct_size - 1", EXATTN_ERROR_STRUCT_SIZE, "", [](Call &p) { --p.args.struct_size; }},
      {"executor struct_size", EXATTN_ERROR_STRUCT_SIZE, "executor.struct_size is 0",
       [](Call &p) {
         static const exattn_executor executor{0, nullptr, ignore_tasks, 2};
         p.args.executor = &executor;
       }},
      // sizes
      {"batch -1", EXATTN_ERROR_SIZE, "batch is -1, must be 0 or more", [](Call &p) { p.args.batch = -1; }},
      {"heads -1", EXATTN_ERROR_SIZE, "heads is -1", [](Call &p) { p.args.heads = -1; }},
      {"kv_heads -1", EXATTN_ERROR_SIZE, "kv_heads is -1", [](Call &p) { p.args.kv_heads = -1; }},
      {"q_len -1", EXATTN_ERROR_SIZE, "q_len is -1", [](Call &p) { p.args.q_len = -1; }},
      {"kv_len lowest", EXATTN_ERROR_SIZE, "kv_len is -9223372036854775808",
       [](Call &p) { p.args.kv_len = kLowest; }},
      {"head_dim 0", EXATTN_ERROR_SIZE, "head_dim is 0, must be 1 or more", [](Call &p) { p.args.head_dim = 0; }},
      {"value_dim 0", EXATTN_ERROR_SIZE, "value_dim is 0, must be 1 or more",
       [](Call &p) { p.args.value_dim = 0; }},
      {"value_dim -5", EXATTN_ERROR_SIZE, "value_dim is -5", [](Call &p) { p.args.value_dim = -5; }},
      // overflow: elements, strides, addresses, positions
      {"elements", EXATTN_ERROR_OVERFLOW, "q [batch, heads, q_len, head_dim] has more bytes",
       [](Call &p) { p.args.q_len = kHuge / 4; }},
      {"elements of k", EXATTN_ERROR_OVERFLOW, "k [batch, kv_heads, kv_len, head_dim] has more bytes",
       [](Call &p) { p.args.kv_len = std::int64_t{1} << 60; }},
      {"bytes, not elements", EXATTN_ERROR_OVERFLOW, "k [batch, kv_heads, kv_len, head_dim] has more bytes",
       [](Call &p) { p.args.kv_len = (std::int64_t{1} << 61) / (2 * 2 * 6) + 1; }},
      {"elements of the mask", EXATTN_ERROR_OVERFLOW, "mask [batch, heads, q_len, kv_len] has more bytes",
       [](Call &p) {
         p.use_mask();
         p.args.q_len = p.args.kv_len = std::int64_t{1} << 31;
         p.args.q.stride[2] = p.args.k.stride[2] = p.args.v.stride[2] = p.args.out.stride[2] = 0;
       }},
      {"head_dim", EXATTN_ERROR_OVERFLOW, "each may be at most 2^40",
       [](Call &p) { p.args.head_dim = (std::int64_t{1} << 40) + 1; }},
      {"value_dim", EXATTN_ERROR_OVERFLOW, "each may be at most 2^40", [](Call &p) { p.args.value_dim = kHuge; }},
      {"stride times size", EXATTN_ERROR_OVERFLOW, "q: its strides", [](Call &p) { p.args.q.stride[2] = kHuge / 2 + 1; }},
      {"stride times size in bytes", EXATTN_ERROR_OVERFLOW, "k: its strides",
       [](Call &p) { p.args.k.stride[0] = kHuge / 4 + 1; }},
      {"lowest stride", EXATTN_ERROR_OVERFLOW, "v: its strides", [](Call &p) { p.args.v.stride[1] = kLowest; }},
      {"sum of reaches", EXATTN_ERROR_OVERFLOW, "out: its strides",
       [](Call &p) { p.args.out.stride[0] = p.args.out.stride[1] = std::int64_t{1} << 60; }},
      {"reaches both ways", EXATTN_ERROR_OVERFLOW, "q: its strides",
       [](Call &p) {
         p.args.q.stride[0] = std::int64_t{1} << 60;
         p.args.q.stride[1] = -(std::int64_t{1} << 59);
       }},
      {"before address 0", EXATTN_ERROR_OVERFLOW, "q: its strides",
       [](Call &p) { p.args.q.stride[0] = -(std::int64_t{1} << 50); }},
      {"past the last address", EXATTN_ERROR_OVERFLOW, "k: its strides",
       [](Call &p) { p.args.k.data = fake_address<void>(UINTPTR_MAX - 15); }},
      {"q_offset + q_len", EXATTN_ERROR_OVERFLOW, "q_offset 9223372036854775805 + q_len 3",
       [](Call &p) { p.args.q_offset = kHuge - 2; }},
      {"q_offsets + q_len", EXATTN_ERROR_OVERFLOW, "q_offsets[1] 9223372036854775807 + q_len 3",
       [](Call &p) {
         p.q_offsets[1] = kHuge;
         p.args.q_offsets = p.q_offsets.data();
       }},
      {"sinks past the last address", EXATTN_ERROR_OVERFLOW, "sinks: 4 elements",
       [](Call &p) { p.args.sinks = fake_address<const float>(UINTPTR_MAX - 7); }},
      {"scratch past the last address", EXATTN_ERROR_OVERFLOW, "scratch_size",
       [](Call &p) {
         p.args.scratch = fake_address<void>(UINTPTR_MAX - 7);
         p.args.scratch_size = SIZE_MAX / 2;
       }},
      // strides
      {"q rank 0", EXATTN_ERROR_STRIDES, "q.rank is 0, must be 4: set q.stride[0..3]",
       [](Call &p) { p.args.q.rank = 0; }},
      {"k rank 3", EXATTN_ERROR_STRIDES, "k.rank is 3, must be 4", [](Call &p) { p.args.k.rank = 3; }},
      {"v rank 5", EXATTN_ERROR_STRIDES, "v.rank is 5, must be 4", [](Call &p) { p.args.v.rank = 5; }},
      {"out rank 0", EXATTN_ERROR_STRIDES, "out.rank is 0, must be 4", [](Call &p) { p.args.out.rank = 0; }},
      {"lse rank 4", EXATTN_ERROR_STRIDES, "lse.rank is 4, must be 3: set lse.stride[0..2]",
       [](Call &p) {
         p.use_lse();
         p.args.lse.rank = 4;
       }},
      {"mask rank 2", EXATTN_ERROR_STRIDES, "mask.rank is 2, must be 4",
       [](Call &p) {
         p.use_mask();
         p.args.mask.rank = 2;
       }},
      // overlap
      {"out on itself", EXATTN_ERROR_OVERLAP, "out.stride puts two elements",
       [](Call &p) { p.args.out.stride[2] = 6; }},
      {"out broadcast", EXATTN_ERROR_OVERLAP, "out.stride puts two elements",
       [](Call &p) { p.args.out.stride[0] = 0; }},
      {"lse on itself", EXATTN_ERROR_OVERLAP, "lse.stride puts two elements",
       [](Call &p) {
         p.use_lse();
         p.args.lse.stride[1] = -2;
         p.args.lse.data += 6;
       }},
      {"out on q", EXATTN_ERROR_OVERLAP, "out overlaps q", [](Call &p) { p.args.q.data = p.out.data() + 5; }},
      {"out on k", EXATTN_ERROR_OVERLAP, "out overlaps k", [](Call &p) { p.args.k.data = p.out.data() - 119; }},
      {"out on v", EXATTN_ERROR_OVERLAP, "out overlaps v", [](Call &p) { p.args.v.data = p.out.data() + 167; }},
      {"out on mask", EXATTN_ERROR_OVERLAP, "out overlaps mask",
       [](Call &p) {
         p.use_mask();
         p.args.mask.data = p.out.data();
       }},
      {"out on a broadcast mask", EXATTN_ERROR_OVERLAP, "out overlaps mask",
       [](Call &p) {
         p.use_mask();
         p.args.mask.data = p.out.data() + 9;
         std::memset(p.args.mask.stride, 0, sizeof(p.args.mask.stride));
       }},
      {"out on sinks", EXATTN_ERROR_OVERLAP, "out overlaps sinks", [](Call &p) { p.args.sinks = p.out.data() - 3; }},
      {"out on q_offsets", EXATTN_ERROR_OVERLAP, "out overlaps q_offsets",
       [](Call &p) {
         p.args.out.data = reinterpret_cast<float *>(p.q_offsets.data());
         p.args.q_offsets = p.q_offsets.data();
       }},
      {"out on kv_lens", EXATTN_ERROR_OVERLAP, "out overlaps kv_lens",
       [](Call &p) {
         p.args.out.data = reinterpret_cast<float *>(p.kv_lens.data()) + 3;
         p.args.kv_lens = p.kv_lens.data();
       }},
      {"lse on out", EXATTN_ERROR_OVERLAP, "lse overlaps out",
       [](Call &p) {
         p.use_lse();
         p.args.lse.data = p.out.data() + 20;
       }},
      {"lse on q", EXATTN_ERROR_OVERLAP, "lse overlaps q",
       [](Call &p) {
         p.use_lse();
         p.args.q.data = p.lse.data() + 23;
       }},
      {"scratch on out", EXATTN_ERROR_OVERLAP, "scratch overlaps out",
       [](Call &p) {
         p.args.scratch = shifted(p.out.data(), 167 * 4 + 3);
         p.args.scratch_size = 1 << 24;
       }},
      {"scratch on lse", EXATTN_ERROR_OVERLAP, "scratch overlaps lse",
       [](Call &p) {
         p.use_lse();
         p.args.scratch = shifted(p.lse.data(), 23 * 4 + 3);
         p.args.scratch_size = 1 << 20;
         p.args.out.data = fake_address<float>(64);
         p.args.q.data = p.args.k.data = p.args.v.data = fake_address<void>(4096);
       }},
      {"scratch on v", EXATTN_ERROR_OVERLAP, "scratch overlaps v",
       [](Call &p) {
         p.args.v.data = fake_address<void>(std::uintptr_t{1} << 30);
         p.args.scratch = fake_address<void>((std::uintptr_t{1} << 30) - (1 << 24) + 1);
         p.args.scratch_size = 1 << 24;
         p.args.out.data = fake_address<float>(64);
         p.args.q.data = p.args.k.data = fake_address<void>(4096);
       }},
      {"too intricate", EXATTN_ERROR_OVERLAP, "could not be proven not to overlap q",
       [](Call &p) {
         const std::int64_t base = std::int64_t{1} << 40;
         p.args.batch = p.args.heads = p.args.kv_heads = p.args.q_len = 20;
         p.args.head_dim = p.args.value_dim = 20;
         p.args.k.stride[1] = p.args.v.stride[1] = 0;
         const std::int64_t q[] = {base + 104729, base + 1299709, base + 15485863, base + 7919};
         const std::int64_t out[] = {base + 32452843, base + 49979687, base + 67867967, base + 86028121};
         std::memcpy(p.args.q.stride, q, sizeof(q));
         std::memcpy(p.args.out.stride, out, sizeof(out));
         p.args.q.data = fake_address<void>(1 << 20);
         p.args.out.data = fake_address<float>((1 << 20) + 4 * (11 * static_cast<std::uintptr_t>(base) + 3));
       }},
      // enumerations and fields that must be 0
      {"flavour 2", EXATTN_ERROR_ENUM, "flavour is 2, must be EXATTN_EXACT (0) or EXATTN_FAST (1)",
       [](Call &p) { p.args.flavour = 2; }},
      {"q dtype", EXATTN_ERROR_ENUM, "q.dtype is 3, must be EXATTN_F32 (0), EXATTN_BF16 (1) or EXATTN_F16 (2)",
       [](Call &p) { p.args.q.dtype = EXATTN_U8; }},
      {"k dtype", EXATTN_ERROR_ENUM, "k.dtype is -1", [](Call &p) { p.args.k.dtype = -1; }},
      {"v dtype", EXATTN_ERROR_ENUM, "v.dtype is 7", [](Call &p) { p.args.v.dtype = 7; }},
      {"mask dtype", EXATTN_ERROR_ENUM, "mask.dtype is 7",
       [](Call &p) {
         p.use_mask();
         p.args.mask.dtype = 7;
       }},
      {"mask of 16 bits", EXATTN_ERROR_ENUM, "mask.dtype is 1, must be EXATTN_F32 (0)",
       [](Call &p) {
         p.use_mask();
         p.args.mask.dtype = EXATTN_BF16;
       }},
      {"mask_bool dtype", EXATTN_ERROR_ENUM, "mask_bool.dtype is 0, must be EXATTN_U8 (3)",
       [](Call &p) {
         p.use_mask_bool();
         p.args.mask_bool.dtype = EXATTN_F32;
       }},
      {"out reserved", EXATTN_ERROR_ENUM, "out.reserved is 1, must be 0", [](Call &p) { p.args.out.reserved = 1; }},
      {"lse reserved", EXATTN_ERROR_ENUM, "lse.reserved is -1, must be 0",
       [](Call &p) {
         p.use_lse();
         p.args.lse.reserved = -1;
       }},
      {"scale_mode 2", EXATTN_ERROR_ENUM, "scale_mode is 2", [](Call &p) { p.args.scale_mode = 2; }},
      {"scale without its mode", EXATTN_ERROR_ENUM, "set scale_mode to EXATTN_SCALE_GIVEN",
       [](Call &p) { p.args.scale = 1.0F; }},
      {"a subnormal scale without its mode", EXATTN_ERROR_ENUM, "set scale_mode to EXATTN_SCALE_GIVEN",
       [](Call &p) { p.args.scale = std::numeric_limits<float>::denorm_min(); }},
      {"a NaN scale without its mode", EXATTN_ERROR_ENUM, "set scale_mode to EXATTN_SCALE_GIVEN",
       [](Call &p) { p.args.scale = std::numeric_limits<float>::quiet_NaN(); }},
      {"reserved 1", EXATTN_ERROR_ENUM, "reserved is 1, must be 0", [](Call &p) { p.args.reserved = 1; }},
      {"causal 2", EXATTN_ERROR_ENUM, "causal is 2, must be 0 or 1", [](Call &p) { p.args.causal = 2; }},
      {"fully_masked -1", EXATTN_ERROR_ENUM, "fully_masked is -1", [](Call &p) { p.args.fully_masked = -1; }},
      // heads
      {"5 heads on 2", EXATTN_ERROR_HEADS, "heads is 5 and kv_heads 2, heads must be a multiple of kv_heads",
       [](Call &p) { p.args.heads = 5; }},
      {"2 heads on 4", EXATTN_ERROR_HEADS, "heads is 2 and kv_heads 4",
       [](Call &p) {
         p.args.heads = 2;
         p.args.kv_heads = 4;
       }},
      {"4 heads on 0", EXATTN_ERROR_HEADS, "heads is 4 and kv_heads 0", [](Call &p) { p.args.kv_heads = 0; }},
      // offsets
      {"q_offset -1", EXATTN_ERROR_OFFSET, "q_offset is -1, must be 0 or more", [](Call &p) { p.args.q_offset = -1; }},
      {"q_offsets -1", EXATTN_ERROR_OFFSET, "q_offsets[1] is -1, must be 0 or more",
       [](Call &p) {
         p.q_offsets[1] = -1;
         p.args.q_offsets = p.q_offsets.data();
       }},
      {"kv_lens -1", EXATTN_ERROR_OFFSET, "kv_lens[0] is -1, must be 0 to kv_len, 5",
       [](Call &p) {
         p.kv_lens[0] = -1;
         p.args.kv_lens = p.kv_lens.data();
       }},
      {"kv_lens 6", EXATTN_ERROR_OFFSET, "kv_lens[1] is 6, must be 0 to kv_len, 5",
       [](Call &p) {
         p.kv_lens[1] = 6;
         p.args.kv_lens = p.kv_lens.data();
       }},
      // alignment
      {"q alignment", EXATTN_ERROR_ALIGNMENT, "q.data must be aligned to 4 bytes",
       [](Call &p) { p.args.q.data = shifted(p.q.data(), 1); }},
      {"k alignment", EXATTN_ERROR_ALIGNMENT, "k.data", [](Call &p) { p.args.k.data = shifted(p.k.data(), 2); }},
      {"v alignment", EXATTN_ERROR_ALIGNMENT, "v.data", [](Call &p) { p.args.v.data = shifted(p.v.data(), 3); }},
      {"mask alignment", EXATTN_ERROR_ALIGNMENT, "mask.data",
       [](Call &p) {
         p.use_mask();
         p.args.mask.data = shifted(p.mask.data(), 1);
       }},
      {"out alignment", EXATTN_ERROR_ALIGNMENT, "out.data",
       [](Call &p) { p.args.out.data = shifted(p.out.data(), 2); }},
      {"lse alignment", EXATTN_ERROR_ALIGNMENT, "lse.data",
       [](Call &p) {
         p.use_lse();
         p.args.lse.data = shifted(p.lse.data(), -1);
       }},
      {"sinks alignment", EXATTN_ERROR_ALIGNMENT, "sinks must be aligned to 4 bytes",
       [](Call &p) { p.args.sinks = shifted(p.sinks.data(), 1); }},
      {"q_offsets alignment", EXATTN_ERROR_ALIGNMENT, "q_offsets must be aligned to 8 bytes",
       [](Call &p) { p.args.q_offsets = shifted(p.q_offsets.data(), 4); }},
      {"kv_lens alignment", EXATTN_ERROR_ALIGNMENT, "kv_lens must be aligned to 8 bytes",
       [](Call &p) { p.args.kv_lens = shifted(p.kv_lens.data(), 4); }},
      // boolean mask
      {"mask_bool rank", EXATTN_ERROR_STRIDES, "mask_bool.rank is 3, must be 4",
       [](Call &p) {
         p.use_mask_bool();
         p.args.mask_bool.rank = 3;
       }},
      {"mask_bool strides", EXATTN_ERROR_OVERFLOW, "mask_bool: its strides",
       [](Call &p) {
         p.use_mask_bool();
         p.args.mask_bool.stride[1] = kHuge;
       }},
      {"out on mask_bool", EXATTN_ERROR_OVERLAP, "out overlaps mask_bool",
       [](Call &p) {
         p.use_mask_bool();
         p.args.mask_bool.data = shifted(p.out.data(), 167 * 4 + 3);
       }},
      {"out on mask_bool's last byte", EXATTN_ERROR_OVERLAP, "out overlaps mask_bool",
       [](Call &p) {
         p.use_mask_bool();
         p.args.mask_bool.data = shifted(p.out.data(), -119);
       }},
      // 16 bits
      {"q of 16 bits at an odd address", EXATTN_ERROR_ALIGNMENT, "q.data must be aligned to 2 bytes",
       [](Call &p) {
         p.args.q.dtype = EXATTN_BF16;
         p.args.q.data = shifted(p.q.data(), 1);
       }},
      {"k of 16 bits at an odd address", EXATTN_ERROR_ALIGNMENT, "k.data must be aligned to 2 bytes",
       [](Call &p) {
         p.args.k.dtype = EXATTN_F16;
         p.args.k.data = shifted(p.k.data(), 3);
       }},
      {"out on the first half of v", EXATTN_ERROR_OVERLAP, "out overlaps v",
       [](Call &p) {
         p.args.v.dtype = EXATTN_BF16;
         p.args.v.data = shifted(p.out.data(), 167 * 4 + 2);
       }},
      {"out on the last half of k", EXATTN_ERROR_OVERLAP, "out overlaps k",
       [](Call &p) {
         p.args.k.dtype = EXATTN_F16;
         p.args.k.data = shifted(p.out.data(), -119 * 2);
       }},
      {"elements of 16 bits", EXATTN_ERROR_OVERFLOW, "k [batch, kv_heads, kv_len, head_dim] has more bytes",
       [](Call &p) {
         p.args.k.dtype = EXATTN_F16;
         p.args.kv_len = (std::int64_t{1} << 62) / (2 * 2 * 6) + 1;
       }},
      // softcap
      {"softcap -0", EXATTN_ERROR_OPTION, "softcap is -0 (bits 80000000), must be finite and above 0",
       [](Call &p) { p.args.softcap = -0.0F; }},
      {"softcap -1", EXATTN_ERROR_OPTION, "softcap is negative (bits BF800000)",
       [](Call &p) { p.args.softcap = -1.0F; }},
      {"softcap infinite", EXATTN_ERROR_OPTION, "softcap is infinite",
       [](Call &p) { p.args.softcap = std::numeric_limits<float>::infinity(); }},
      {"softcap -infinite", EXATTN_ERROR_OPTION, "softcap is negative (bits FF800000)",
       [](Call &p) { p.args.softcap = -std::numeric_limits<float>::infinity(); }},
      {"softcap NaN", EXATTN_ERROR_OPTION, "softcap is NaN",
       [](Call &p) { p.args.softcap = std::numeric_limits<float>::quiet_NaN(); }},
      {"softcap -NaN", EXATTN_ERROR_OPTION, "softcap is NaN (bits FFC00000)",
       [](Call &p) { p.args.softcap = -std::numeric_limits<float>::quiet_NaN(); }},
      // ALiBi
      {"alibi_slopes alignment", EXATTN_ERROR_ALIGNMENT, "alibi_slopes must be aligned to 4 bytes",
       [](Call &p) { p.args.alibi_slopes = shifted(p.slopes.data(), 2); }},
      {"out on alibi_slopes", EXATTN_ERROR_OVERLAP, "out overlaps alibi_slopes",
       [](Call &p) { p.args.alibi_slopes = p.out.data() + 100; }},
      {"alibi_slopes past the last address", EXATTN_ERROR_OVERFLOW, "alibi_slopes: 4 elements",
       [](Call &p) { p.args.alibi_slopes = fake_address<const float>(UINTPTR_MAX - 7); }},
      // ragged queries
      {"q_starts from -1", EXATTN_ERROR_OFFSET, "q_starts[0] is -1, must be 0 or more",
       [](Call &p) {
         p.use_ragged_queries();
         p.q_starts[0] = -1;
       }},
      {"q_starts decrease", EXATTN_ERROR_OFFSET, "q_starts[2] is 0, must be q_starts[1], 1, or more",
       [](Call &p) {
         p.use_ragged_queries();
         p.q_starts[2] = 0;
       }},
      {"q_starts beyond the rows", EXATTN_ERROR_OFFSET, "q_starts[2] is 4, must be at most q_len, 3",
       [](Call &p) {
         p.use_ragged_queries();
         p.q_starts[2] = 4;
       }},
      {"q_starts alignment", EXATTN_ERROR_ALIGNMENT, "q_starts must be aligned to 8 bytes",
       [](Call &p) { p.args.q_starts = shifted(p.q_starts.data(), 4); }},
      {"q_starts past the last address", EXATTN_ERROR_OVERFLOW, "q_starts: 3 elements",
       [](Call &p) { p.args.q_starts = fake_address<const std::int64_t>(UINTPTR_MAX - 15); }},
      {"out on q_starts", EXATTN_ERROR_OVERLAP, "out overlaps q_starts",
       [](Call &p) {
         p.use_ragged_queries();
         p.args.out.data = shifted(reinterpret_cast<float *>(p.q_starts.data()), 20);
         move_tensors_away(p);
       }},
      {"q_offset + rows of a sequence", EXATTN_ERROR_OVERFLOW,
       "q_offset 9223372036854775806 + the 2 rows of sequence 1 does not fit in 64 bits",
       [](Call &p) {
         p.use_ragged_queries();
         p.args.q_offset = kHuge - 1;
       }},
      {"ragged q null", EXATTN_ERROR_NULL, "q.data is null, but [1, heads, q_len, head_dim] has 72 elements",
       [](Call &p) {
         p.use_ragged_queries();
         p.args.q.data = nullptr;
       }},
      {"ragged out on itself", EXATTN_ERROR_OVERLAP, "out.stride puts two elements of out [1, heads, q_len, value_dim]",
       [](Call &p) {
         p.use_ragged_queries();
         p.args.out.stride[2] = 6;
       }},
      // ragged keys
      {"kv_starts from -2", EXATTN_ERROR_OFFSET, "kv_starts[0] is -2",
       [](Call &p) {
         p.use_ragged_keys();
         p.kv_starts[0] = -2;
       }},
      {"kv_starts decrease", EXATTN_ERROR_OFFSET, "kv_starts[1] is 0, must be kv_starts[0], 1, or more",
       [](Call &p) {
         p.use_ragged_keys();
         p.kv_starts = {1, 0, 5};
       }},
      {"kv_starts beyond the keys", EXATTN_ERROR_OFFSET, "kv_starts[2] is 6, must be at most kv_len, 5",
       [](Call &p) {
         p.use_ragged_keys();
         p.kv_starts[2] = 6;
       }},
      {"kv_starts alignment", EXATTN_ERROR_ALIGNMENT, "kv_starts must be aligned to 8 bytes",
       [](Call &p) { p.args.kv_starts = shifted(p.kv_starts.data(), 1); }},
      {"out on kv_starts", EXATTN_ERROR_OVERLAP, "out overlaps kv_starts",
       [](Call &p) {
         p.use_ragged_keys();
         p.args.out.data = reinterpret_cast<float *>(p.kv_starts.data());
         move_tensors_away(p);
       }},
      {"kv_lens of a ragged sequence", EXATTN_ERROR_OFFSET,
       "kv_lens[0] is 3, must be 0 to the sequence's number of keys, 2",
       [](Call &p) {
         p.use_ragged_keys();
         p.kv_lens = {3, 3};
         p.args.kv_lens = p.kv_lens.data();
       }},
      {"ragged v null", EXATTN_ERROR_NULL, "v.data is null, but [1, kv_heads, kv_len, value_dim] has 70 elements",
       [](Call &p) {
         p.use_ragged_keys();
         p.args.v.data = nullptr;
       }},
      {"mask of the longest sequence", EXATTN_ERROR_OVERLAP, "out overlaps mask",
       [](Call &p) { // its last column is the first of out
         p.use_ragged_keys();
         p.args.mask = {p.out.data() - 2, EXATTN_F32, 4, {0, 0, 0, 1}};
       }},
      // pages
      {"page_size without a table", EXATTN_ERROR_OPTION, "page_size is 16, but page_table is null",
       [](Call &p) { p.args.page_size = 16; }},
      {"pages without a table", EXATTN_ERROR_OPTION, "pages is 1, but page_table is null",
       [](Call &p) { p.args.pages = 1; }},
      {"page_table_stride without a table", EXATTN_ERROR_OPTION, "page_table_stride is -1, but page_table is null",
       [](Call &p) { p.args.page_table_stride = -1; }},
      {"pages and kv_starts", EXATTN_ERROR_OPTION, "page_table and kv_starts are both given",
       [](Call &p) {
         p.use_pages();
         p.use_ragged_keys();
       }},
      {"page_size 0", EXATTN_ERROR_SIZE, "page_size is 0, must be 1 or more",
       [](Call &p) {
         p.use_pages();
         p.args.page_size = 0;
       }},
      {"pages -1", EXATTN_ERROR_SIZE, "pages is -1, must be 0 or more",
       [](Call &p) {
         p.use_pages();
         p.args.pages = -1;
       }},
      {"page_table_stride 2", EXATTN_ERROR_OPTION,
       "page_table_stride is 2, must be 3 or more: kv_len 5 / page_size 2 rounded up",
       [](Call &p) {
         p.use_pages();
         p.args.page_table_stride = 2;
       }},
      {"page 6 of 6", EXATTN_ERROR_PAGE,
       "page_table: entry 2 of sequence 0 is 6, must be 0 or more and below pages, 6",
       [](Call &p) {
         p.use_pages();
         p.page_table[2] = 6;
       }},
      {"page -1", EXATTN_ERROR_PAGE, "page_table: entry 0 of sequence 1 is -1",
       [](Call &p) {
         p.use_pages();
         p.page_table[3] = -1;
       }},
      {"no pages", EXATTN_ERROR_PAGE, "below pages, 0",
       [](Call &p) {
         p.use_pages();
         p.args.pages = 0;
       }},
      {"a page with one visible key", EXATTN_ERROR_PAGE, "page_table: entry 1 of sequence 1 is 9",
       [](Call &p) { // rows 0 to 2 see keys up to 2, the first of page 1
         p.use_pages();
         p.args.causal = 1;
         p.page_table = {0, 1, 9, 2, 9, 9};
       }},
      {"a page with the last key of a window", EXATTN_ERROR_PAGE, "page_table: entry 1 of sequence 0 is 9",
       [](Call &p) { // row 0 at 5 sees keys from 3
         p.use_pages();
         p.args.q_offset = 5;
         p.args.window = 3;
         p.page_table = {9, 9, 0, 9, 1, 2};
       }},
      {"page_table alignment", EXATTN_ERROR_ALIGNMENT, "page_table must be aligned to 4 bytes",
       [](Call &p) {
         p.use_pages();
         p.args.page_table = shifted(p.page_table.data(), 2);
       }},
      {"page_table past the last address", EXATTN_ERROR_OVERFLOW, "page_table: 6 elements",
       [](Call &p) {
         p.use_pages();
         p.args.page_table = fake_address<const std::int32_t>(UINTPTR_MAX - 19);
       }},
      {"page_table entries", EXATTN_ERROR_OVERFLOW, "page_table: 9223372036854775807 elements",
       [](Call &p) {
         p.use_pages();
         p.args.page_table_stride = kHuge;
       }},
      {"out on page_table", EXATTN_ERROR_OVERLAP, "out overlaps page_table",
       [](Call &p) {
         p.use_pages();
         p.args.out.data = reinterpret_cast<float *>(p.page_table.data()) + 5;
         move_tensors_away(p);
       }},
      {"k null with pages", EXATTN_ERROR_NULL, "k.data is null, but [pages, kv_heads, page_size, head_dim] has 144",
       [](Call &p) {
         p.use_pages();
         p.args.k.data = nullptr;
       }},
      {"out on the last page", EXATTN_ERROR_OVERLAP, "out overlaps k",
       [](Call &p) {
         p.use_pages();
         p.args.k.data = p.out.data() - 143;
       }},
      // kv_offset
      {"kv_offset 65", EXATTN_ERROR_OFFSET, "kv_offset is 65, must be 0 or more and a multiple of 64",
       [](Call &p) { p.args.kv_offset = 65; }},
      {"kv_offset -64", EXATTN_ERROR_OFFSET, "kv_offset is -64", [](Call &p) { p.args.kv_offset = -64; }},
      {"kv_offset + kv_len", EXATTN_ERROR_OVERFLOW, "kv_offset 9223372036854775744 + 5 keys",
       [](Call &p) { p.args.kv_offset = kHuge - 63; }},
      // states
      {"state_in null, size not", EXATTN_ERROR_NULL, "state_in is null, but state_in_size is 8",
       [](Call &p) { p.args.state_in_size = 8; }},
      {"state_out null, size not", EXATTN_ERROR_NULL, "state_out is null, but state_out_size is 1040",
       [](Call &p) { p.args.state_out_size = 1040; }},
      {"state_out too small", EXATTN_ERROR_STATE, "state_out_size is 1039, must be 1040 or more",
       [](Call &p) {
         p.use_state_out();
         --p.args.state_out_size;
       }},
      {"state_out of a ragged call too small", EXATTN_ERROR_STATE, "state_out_size is 559, must be 560 or more",
       [](Call &p) {
         p.use_state_out();
         p.use_ragged_queries();
         p.args.state_out_size = 559;
       }},
      {"state_in too small", EXATTN_ERROR_STATE, "state_in_size is 1039, must be 1040",
       [](Call &p) {
         p.use_state_in();
         --p.args.state_in_size;
       }},
      {"state_in too large", EXATTN_ERROR_STATE, "state_in_size is 1041, must be 1040",
       [](Call &p) {
         p.state_in.push_back(0);
         p.use_state_in();
       }},
      {"state_in without a whole header", EXATTN_ERROR_STATE, "state_in_size is 63, must be 1040",
       [](Call &p) {
         p.use_state_in();
         p.args.state_in_size = 63;
       }},
      {"state_in of another definition", EXATTN_ERROR_STATE, "state_in does not begin with exattn-1",
       [](Call &p) {
         p.use_state_in();
         p.state_in[7] = '2';
       }},
      {"state_in of the other flavour", EXATTN_ERROR_STATE, "state_in is of the flavour 1, must be that of this call, 0",
       [](Call &p) {
         p.use_state_in();
         p.state_in[8] = 1;
       }},
      {"state_in, bytes 12 to 15", EXATTN_ERROR_STATE, "its bytes 12 to 15 are not 0",
       [](Call &p) {
         p.use_state_in();
         p.state_in[13] = 1;
       }},
      {"state_in of another batch", EXATTN_ERROR_STATE, "state_in has batch 3, this call 2",
       [](Call &p) {
         p.use_state_in();
         p.state_in[16] = 3;
       }},
      {"state_in of other heads", EXATTN_ERROR_STATE, "state_in has heads 260, this call 4",
       [](Call &p) {
         p.use_state_in();
         p.state_in[25] = 1;
       }},
      {"state_in of other rows", EXATTN_ERROR_STATE, "state_in has q_len 2, this call 3",
       [](Call &p) {
         p.use_state_in();
         p.state_in[32] = 2;
       }},
      {"state_in of another value_dim", EXATTN_ERROR_STATE, "state_in has value_dim 8, this call 7",
       [](Call &p) {
         p.use_state_in();
         p.state_in[40] = 8;
       }},
      {"state_in of ragged queries", EXATTN_ERROR_STATE, "state_in has ragged 1, this call 0",
       [](Call &p) {
         p.use_state_in();
         p.state_in[56] = 1;
       }},
      {"kv_offset 0 with a state", EXATTN_ERROR_STATE, "kv_offset is 0, but state_in stopped at 64",
       [](Call &p) {
         p.use_state_in();
         p.args.kv_offset = 0;
       }},
      {"kv_offset behind a state", EXATTN_ERROR_STATE, "kv_offset is 128, but state_in stopped at 64",
       [](Call &p) {
         p.use_state_in();
         p.args.kv_offset = 128;
       }},
      {"more keys after the end", EXATTN_ERROR_STATE,
       "state_in: sequence 1 ended at 63, before kv_offset, 64: it takes no more, but has 5 keys in this call",
       [](Call &p) {
         p.use_state_in();
         p.state_in[64 + 8] = 63;
       }},
      {"an end behind the next key", EXATTN_ERROR_STATE, "sequence 0 ended at 65, behind the next key, 64",
       [](Call &p) {
         p.use_state_in();
         p.state_in[64] = 65;
       }},
      {"flags of a row", EXATTN_ERROR_STATE, "row 23 has the flags 00000005",
       [](Call &p) {
         p.use_state_in();
         p.state_in[80 + 23 * 40 + 8] = 5;
       }},
      {"state_in past the last address", EXATTN_ERROR_OVERFLOW, "state_in: state_in_size reaches beyond",
       [](Call &p) {
         p.use_state_in();
         p.args.state_in = fake_address<const void>(UINTPTR_MAX - 1000);
       }},
      {"state_out past the last address", EXATTN_ERROR_OVERFLOW, "state_out: state_out_size reaches beyond",
       [](Call &p) {
         p.use_state_out();
         p.args.state_out = fake_address<void>(UINTPTR_MAX - 1038);
       }},
      {"elements of a state", EXATTN_ERROR_OVERFLOW, "a state of these sizes has more bytes",
       [](Call &p) {
         p.use_state_out();
         p.args.out.data = nullptr;
         p.args.value_dim = std::int64_t{1} << 40;
         p.args.q_len = std::int64_t{1} << 30;
         p.args.kv_len = 0;
         p.args.q.stride[2] = 0;
       }},
      {"out null and no state_out", EXATTN_ERROR_NULL, "out.data is null",
       [](Call &p) {
         p.use_state_in();
         p.args.out.data = nullptr;
       }},
      {"state_out on state_in, but not the same", EXATTN_ERROR_OVERLAP, "state_out overlaps state_in",
       [](Call &p) {
         p.state_in.resize(2000);
         p.use_state_in();
         p.args.state_in_size = 1040;
         p.args.state_out = p.state_in.data() + 1039;
         p.args.state_out_size = 1040;
       }},
      {"state_out on q", EXATTN_ERROR_OVERLAP, "state_out overlaps q",
       [](Call &p) {
         p.use_state_out();
         p.args.q.data = shifted(p.state_out.data(), 1036);
         p.args.out.data = fake_address<float>(64);
       }},
      {"state_out on mask_bool", EXATTN_ERROR_OVERLAP, "state_out overlaps mask_bool",
       [](Call &p) {
         p.use_state_out();
         p.args.mask_bool = {p.state_out.data() + 1039, EXATTN_U8, 4, {0, 0, 0, 0}};
       }},
      {"state_out on out", EXATTN_ERROR_OVERLAP, "state_out overlaps out",
       [](Call &p) {
         p.use_state_out();
         p.args.state_out = shifted(p.out.data(), 167 * 4 + 3);
       }},
      {"out on state_in", EXATTN_ERROR_OVERLAP, "out overlaps state_in",
       [](Call &p) {
         p.use_state_in();
         p.args.out.data = reinterpret_cast<float *>(p.state_in.data() + 1036);
         move_tensors_away(p);
       }},
      {"scratch on state_out", EXATTN_ERROR_OVERLAP, "scratch overlaps state_out",
       [](Call &p) {
         p.use_state_out();
         p.args.scratch = p.state_out.data() + 1039;
         p.args.scratch_size = 1 << 20;
         p.args.out.data = fake_address<float>(64);
         p.args.q.data = p.args.k.data = p.args.v.data = fake_address<void>(4096);
       }},
      // scratch
      {"scratch of 1 byte", EXATTN_ERROR_SCRATCH, "scratch_size is 1, must be ",
       [](Call &p) {
         static std::byte scratch[1];
         p.args.scratch = scratch;
         p.args.scratch_size = 1;
       }},
      {"scratch of size 0", EXATTN_ERROR_SCRATCH, "scratch_size is 0, must be ",
       [](Call &p) {
         static std::byte scratch[1];
         p.args.scratch = scratch;
       }},
      // lanes
      {"lanes 6", EXATTN_ERROR_LANES_UNKNOWN, "lanes is 6, must be one of EXATTN_LANES_*",
       [](Call &p) { p.args.lanes = EXATTN_LANES_COUNT; }},
      {"lanes -1", EXATTN_ERROR_LANES_UNKNOWN, "lanes is -1", [](Call &p) { p.args.lanes = -1; }},
#if defined(__x86_64__)
      {"neon64 on x86", EXATTN_ERROR_LANES_UNSUPPORTED, "neon64",
       [](Call &p) { p.args.lanes = EXATTN_LANES_NEON64; }},
      {"fast sse2", EXATTN_ERROR_FLAVOUR_UNSUPPORTED, "sse2 have no fused multiply-add",
       [](Call &p) {
         p.args.lanes = EXATTN_LANES_SSE2;
         p.args.flavour = EXATTN_FAST;
       }},
#else
    {"avx2 elsewhere", EXATTN_ERROR_LANES_UNSUPPORTED, "avx2", [](Call &p) { p.args.lanes = EXATTN_LANES_AVX2; }},
#endif
      // threads
      {"pool and executor", EXATTN_ERROR_THREADS, "pool and executor are both given",
       [](Call &p) {
         p.args.pool = a_pool();
         p.args.executor = &an_executor;
       }},
      {"executor with 0 threads", EXATTN_ERROR_THREADS, "executor.threads is 0, must be 1 to 4096",
       [](Call &p) {
         static const exattn_executor executor{sizeof(exattn_executor), nullptr, ignore_tasks, 0};
         p.args.executor = &executor;
       }},
      {"executor with 4097 threads", EXATTN_ERROR_THREADS, "executor.threads is 4097",
       [](Call &p) {
         static const exattn_executor executor{sizeof(exattn_executor), nullptr, ignore_tasks, 4097};
         p.args.executor = &executor;
       }},
      // An executor that runs nothing leaves everything untouched as well; others are in test_threads.cpp.
      {"executor that runs nothing", EXATTN_ERROR_EXECUTOR, "0 of ", [](Call &p) { p.args.executor = &an_executor; }},
  };
  return all;
}

} // namespace

TEST_CASE("attention: every argument error has its status and its words, and nothing is written") {
  std::set<exattn_status> provoked;
  for (const Provocation &provocation : provocations()) {
    INFO(std::string(provocation.what));
    Call problem;
    const std::vector<float> q = problem.q;
    const std::vector<float> k = problem.k;
    const std::vector<float> v = problem.v;
    provocation.spoil(problem);
    const std::vector<std::int64_t> q_offsets = problem.q_offsets;
    const std::vector<std::int64_t> kv_lens = problem.kv_lens;
    const std::vector<std::int64_t> q_starts = problem.q_starts;
    const std::vector<std::int64_t> kv_starts = problem.kv_starts;
    const std::vector<std::int32_t> page_table = problem.page_table;
    const std::vector<unsigned char> state_in = problem.state_in;

    const exattn_status status = problem.run();

    CHECK(std::string(exattn_status_name(status)) == exattn_status_name(provocation.status));
    provoked.insert(status);
    CHECK(problem.out.untouched());
    CHECK(problem.lse.untouched());
    CHECK(problem.q == q);
    CHECK(problem.k == k);
    CHECK(problem.v == v);
    CHECK(problem.q_offsets == q_offsets);
    CHECK(problem.kv_lens == kv_lens);
    CHECK(problem.q_starts == q_starts);
    CHECK(problem.kv_starts == kv_starts);
    CHECK(problem.page_table == page_table);
    CHECK(problem.state_in == state_in);
    CHECK(problem.state_out == std::vector<unsigned char>(1040, 0xA5));
    CHECK(problem.kernel == nullptr);
    if (provocation.status == EXATTN_ERROR_STRUCT_SIZE && provocation.words[0] == '\0') {
      CHECK(problem.message[0] == '#'); // where the message goes is not known either
    } else {
      const std::string text = problem.text();
      INFO(text);
      CHECK(text.find(provocation.words) != std::string::npos);
    }
  }
  // But for EXATTN_ERROR_MEMORY, which test_threads.cpp provokes, and, where every lane kind of the build has a fused
  // multiply-add, EXATTN_ERROR_FLAVOUR_UNSUPPORTED, which test_dispatch.cpp provokes on CPUs that are not there.
  std::set<exattn_status> elsewhere = {EXATTN_ERROR_MEMORY};
#if !defined(__x86_64__)
  elsewhere.insert(EXATTN_ERROR_FLAVOUR_UNSUPPORTED);
#endif
  for (exattn_status status = EXATTN_ERROR_NULL; status <= EXATTN_ERROR_STATE; ++status) {
    INFO(std::string(exattn_status_name(status)));
    CHECK(provoked.count(status) + elsewhere.count(status) == 1);
  }
}

TEST_CASE("attention: the same problem unspoilt is computed, and its message emptied") {
  Problem problem(2, 4, 2, 3, 8, 6, 7);
  problem.make_means();
  problem.use_lse();
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.values() == problem.expected_means());
  CHECK(problem.out.guards_intact());
  CHECK(problem.lse.guards_intact());
  CHECK(problem.text().empty());
  CHECK(std::string(problem.kernel) == "scalar/exact");
}

TEST_CASE("attention: null arguments") {
  CHECK(exattn_attention(nullptr) == EXATTN_ERROR_NULL);
  std::size_t bytes = 77;
  CHECK(exattn_attention_scratch_size(nullptr, &bytes) == EXATTN_ERROR_NULL);
  Problem problem(1, 1, 1, 1, 1, 1, 1);
  CHECK(exattn_attention_scratch_size(&problem.args, nullptr) == EXATTN_ERROR_NULL);
  problem.args.struct_size -= 8;
  CHECK(exattn_attention_scratch_size(&problem.args, &bytes) == EXATTN_ERROR_STRUCT_SIZE);
  CHECK(bytes == 77);
}

TEST_CASE("attention: messages are cut to fit, and may be left out") {
  for (const std::size_t size : {0U, 1U, 2U, 8U, 39U, 40U}) {
    Problem problem(1, 1, 1, 1, 1, 1, 1);
    problem.args.batch = -1;
    problem.args.message_size = size;
    CHECK(problem.run() == EXATTN_ERROR_SIZE);
    const std::string whole = "batch is -1, must be 0 or more";
    if (size != 0) {
      CHECK(problem.text() == whole.substr(0, size - 1));
    }
    for (std::size_t n = size; n < problem.message.size(); ++n) {
      REQUIRE(problem.message[n] == '#');
    }
  }
  Problem problem(1, 1, 1, 1, 1, 1, 1);
  problem.args.batch = -1;
  problem.args.message = nullptr;
  CHECK(problem.run() == EXATTN_ERROR_SIZE);
}

TEST_CASE("attention: sizes that leave nothing to do") {
  // Each of the sizes without which there is no output, 0 alone and with no memory at all.
  for (int which = 0; which < 3; ++which) {
    for (const bool with_memory : {true, false}) {
      Problem problem(2, 4, 2, 3, 5, 6, 7);
      problem.use_lse();
      (which == 0 ? problem.args.batch : which == 1 ? problem.args.heads : problem.args.q_len) = 0;
      if (which == 1) {
        problem.args.kv_heads = 0;
      }
      if (!with_memory) {
        problem.args.q.data = nullptr;
        problem.args.out.data = nullptr;
      }
      CHECK(problem.run() == EXATTN_OK);
      CHECK(problem.out.untouched());
      CHECK(problem.lse.untouched());
      CHECK(std::string(problem.kernel) == "scalar/exact");
    }
  }
  // The checks come first all the same.
  Problem problem(2, 4, 2, 3, 5, 6, 7);
  problem.args.batch = 0;
  problem.args.causal = 3;
  CHECK(problem.run() == EXATTN_ERROR_ENUM);
  problem.args.causal = 0;
  problem.args.out.rank = 0;
  CHECK(problem.run() == EXATTN_ERROR_STRIDES);
  // No overflow where there is no element.
  problem.args.out.rank = 4;
  problem.args.q_len = kHuge;
  problem.args.kv_len = kHuge;
  CHECK(problem.run() == EXATTN_OK);
}

TEST_CASE("attention: without keys the output is +0 and the log-sum-exp -inf") {
  Problem problem(1, 2, 1, 3, 0, 4, 5);
  problem.use_lse();
  problem.args.k.data = nullptr;
  problem.args.v.data = nullptr;
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.bits() == std::vector<std::uint32_t>(2 * 3 * 5, 0));
  CHECK(problem.lse.bits() == std::vector<std::uint32_t>(2 * 3, 0xFF800000));
}

TEST_CASE("attention: strides of dimensions with one element mean nothing") {
  Problem problem(1, 1, 1, 1, 8, 1, 1);
  problem.make_means();
  problem.use_lse();
  problem.use_mask();
  problem.mask.assign(problem.mask.size(), 0.0F);
  for (std::int64_t *stride : {problem.args.q.stride, problem.args.out.stride}) {
    stride[0] = kHuge;
    stride[1] = kLowest;
    stride[2] = 0;
    stride[3] = kHuge;
  }
  for (std::int64_t *stride : {problem.args.k.stride, problem.args.v.stride}) {
    stride[0] = kLowest;
    stride[1] = kHuge;
    stride[3] = kLowest;
  }
  problem.args.lse.stride[0] = problem.args.lse.stride[2] = kHuge;
  problem.args.mask.stride[0] = kHuge;
  CHECK(problem.run() == EXATTN_OK);
  CHECK(problem.out.values() == std::vector<float>{3.5F});
  CHECK(problem.out.guards_intact());
}

TEST_CASE("attention: an output in a slot of the buffer that holds q, k and v") {
  // [B, T, 4, H, D]: q, k, v and out beside each other.
  constexpr std::int64_t B = 2;
  constexpr std::int64_t T = 4;
  constexpr std::int64_t H = 3;
  constexpr std::int64_t D = 5;
  GuardedOutput buffer(static_cast<std::size_t>(B * T * 4 * H * D));
  Problem problem(B, H, H, T, T, D, D);
  const std::int64_t strides[] = {T * 4 * H * D, D, 4 * H * D, 1};
  const auto at = [&](std::int64_t b, std::int64_t t, std::int64_t slot, std::int64_t h) {
    return buffer.data() + (((b * T + t) * 4 + slot) * H + h) * D;
  };
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t h = 0; h < H; ++h) {
        for (std::int64_t x = 0; x < D; ++x) {
          at(b, t, 0, h)[x] = 0.0F;
          at(b, t, 1, h)[x] = 1.0F;
          at(b, t, 2, h)[x] = static_cast<float>(100 * b + 10 * h + x + 2 * t); // mean over t: + 3
        }
      }
    }
  }
  problem.args.q.data = at(0, 0, 0, 0);
  problem.args.k.data = at(0, 0, 1, 0);
  problem.args.v.data = at(0, 0, 2, 0);
  problem.args.out.data = at(0, 0, 3, 0);
  for (std::int64_t *stride :
       {problem.args.q.stride, problem.args.k.stride, problem.args.v.stride, problem.args.out.stride}) {
    std::memcpy(stride, strides, sizeof(strides));
  }
  INFO(problem.text());
  REQUIRE(problem.run() == EXATTN_OK);
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t h = 0; h < H; ++h) {
        for (std::int64_t x = 0; x < D; ++x) {
          CHECK(at(b, t, 3, h)[x] == static_cast<float>(100 * b + 10 * h + x + 3));
          CHECK(at(b, t, 0, h)[x] == 0.0F);
          CHECK(at(b, t, 1, h)[x] == 1.0F);
        }
      }
    }
  }
  CHECK(buffer.guards_intact());
}

TEST_CASE("attention: queries of 16 bits between the outputs, and masks of bytes at any address") {
  // Slots of 8 bytes: a row's output, then its two queries.
  constexpr std::int64_t kRows = 4;
  std::vector<std::uint64_t> slots(kRows, 0);
  Problem problem(1, 1, 1, kRows, 4, 2, 1);
  problem.make_means();
  float *const floats = reinterpret_cast<float *>(slots.data());
  problem.args.out = {floats, 0, 4, {0, 0, 2, 1}};
  problem.args.q = {floats + 1, EXATTN_BF16, 4, {0, 0, 4, 1}};
  // Only keys 1 and 3, whose values are 1 and 3, so the mean is 2.
  const std::vector<std::uint8_t> shown = {0, 7, 0, 1, 0, 128, 0};
  for (const std::ptrdiff_t shift : {0, 2}) { // the pattern has the period 2
    problem.args.mask_bool = {shown.data() + shift, EXATTN_U8, 4, {0, 0, 0, 1}};
    REQUIRE(problem.run() == EXATTN_OK);
    for (std::int64_t row = 0; row < kRows; ++row) {
      CHECK(floats[2 * row] == 2.0F);
      CHECK(floats[2 * row + 1] == 0.0F); // the bits of two queries of 0
    }
  }
  // One query later they touch.
  problem.args.q.data = shifted(floats + 1, 2);
  CHECK(problem.run() == EXATTN_ERROR_OVERLAP);
  CHECK(problem.text() == "out overlaps q, must share no memory with it");
}

TEST_CASE("attention: pages that no row sees are not looked at") {
  // 5 keys in pages of 2; keys 0 to 4 of both KV heads have the values 1 to 5.
  struct Paged : Problem {
    Paged() : Problem(1, 2, 2, 1, 5, 1, 1) {
      q.assign(q.size(), 0.0F);
      for (std::size_t n = 0; n < 3; ++n) { // page n is in the place of page 2 - n
        for (std::size_t h = 0; h < 2; ++h) {
          for (std::size_t slot = 0; slot < 2; ++slot) {
            values[((2 - n) * 2 + h) * 2 + slot] = static_cast<float>(2 * n + slot + 1);
          }
        }
      }
      args.k = args.v = {values.data(), EXATTN_F32, 4, {4, 2, 1, 1}};
      args.page_table = table.data();
      args.page_table_stride = 3;
      args.page_size = 2;
      args.pages = 3;
    }
    std::vector<float> values = std::vector<float>(12);
    std::vector<std::int32_t> table{2, 1, 0};
  };
  const struct {
    std::int64_t q_offset, window, kv_len;
    std::int32_t causal;
    std::vector<std::int32_t> table;
    float mean;
  } calls[] = {{0, 0, 5, 0, {2, 1, 0}, 3.0F},    {1, 0, 5, 1, {2, -1, 3}, 1.5F},  {4, 1, 5, 1, {-9, 99, 0}, 5.0F},
               {4, 3, 5, 1, {9, 1, 0}, 4.0F},    {5, 2, 5, 0, {-1, -1, 0}, 5.0F}, {0, 0, 1, 0, {2, -1, -1}, 1.0F},
               {9, 2, 5, 1, {-1, -1, -1}, 0.0F}, {0, 0, 0, 0, {-1, -1, -1}, 0.0F}};
  for (const auto &call : calls) {
    Paged problem;
    problem.table = call.table;
    problem.kv_lens = {call.kv_len};
    problem.args.kv_lens = problem.kv_lens.data();
    problem.args.page_table = problem.table.data();
    problem.args.q_offset = call.q_offset;
    problem.args.window = call.window;
    problem.args.causal = call.causal;
    INFO(call.q_offset << " " << call.window << " " << call.kv_len);
    REQUIRE(problem.run() == EXATTN_OK);
    CHECK(problem.out.values() == std::vector<float>{call.mean, call.mean});
  }
  // A sequence without rows sees no page.
  Paged problem;
  const std::vector<std::int64_t> starts = {1, 1};
  problem.args.q_starts = starts.data();
  problem.table = {-1, -1, -1};
  problem.args.page_table = problem.table.data();
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.untouched());
}

TEST_CASE("attention: a mask over ragged keys has the columns of the longest sequence") {
  // Three columns right before out. With kv_len columns they would reach into it.
  Call call;
  call.use_ragged_keys();
  call.args.mask = {call.out.data() - 3, EXATTN_F32, 4, {0, 0, 0, 1}};
  CHECK(call.run() == EXATTN_OK);
}

TEST_CASE("attention: rows that belong to no sequence are not written") {
  // Rows 1 and 2 of 5, of sequences of one row; keys 1 to 3 and 4 of 6, V_j = j.
  Problem problem(2, 1, 1, 5, 6, 1, 1);
  problem.q.assign(problem.q.size(), 0.0F);
  for (std::size_t n = 0; n < problem.v.size(); ++n) {
    problem.v[n] = static_cast<float>(n);
  }
  const std::vector<std::int64_t> q_starts = {1, 2, 3};
  const std::vector<std::int64_t> kv_starts = {1, 4, 5};
  problem.args.q_starts = q_starts.data();
  problem.args.kv_starts = kv_starts.data();
  REQUIRE(problem.run() == EXATTN_OK);
  const std::vector<std::uint32_t> untouched = GuardedOutput(10).bits();
  std::vector<std::uint32_t> expected = untouched;
  expected[1] = 0x40000000; // 2
  expected[2] = 0x40800000; // 4
  CHECK(problem.out.bits() == expected);
}

TEST_CASE("attention: outputs with gaps, reversed, and interwoven without touching") {
  // Rows at 2 i, columns at 3 x, three of each: nine different words.
  Problem problem(1, 1, 1, 3, 4, 2, 3);
  problem.make_means();
  problem.args.out.stride[2] = 2;
  problem.args.out.stride[3] = 3;
  REQUIRE(problem.run() == EXATTN_OK);
  // Words 0 2 4 + 0 3 6; 1 and 9 would be gaps, and 9 and 10 lie behind: the memory has 9 words and a guard.
  CHECK(problem.out.bits()[1] == 0x7FA5A5A5);
  for (const std::size_t word : {0U, 2U, 3U, 4U, 5U, 6U, 7U, 8U}) {
    CHECK(problem.out.values()[word] == 1.5F);
  }

  Problem reversed(1, 2, 2, 3, 4, 2, 2);
  reversed.make_means();
  reversed.args.out.data = reversed.out.data() + 11;
  for (std::int64_t &stride : reversed.args.out.stride) {
    stride = -stride;
  }
  REQUIRE(reversed.run() == EXATTN_OK);
  std::vector<float> expected = reversed.expected_means();
  CHECK(reversed.out.values() == std::vector<float>(expected.rbegin(), expected.rend()));
  CHECK(reversed.out.guards_intact());
}

TEST_CASE("attention: scratch from the caller, at any alignment, exactly as large as asked for") {
  for (const std::int64_t q_len : {1, 5, 100}) {
    for (const std::int64_t kv_len : {1, 64, 300}) {
      Problem problem(1, 2, 1, q_len, kv_len, 16, 24);
      std::size_t bytes = 0;
      REQUIRE(exattn_attention_scratch_size(&problem.args, &bytes) == EXATTN_OK);
      Problem other(3, 8, 2, 7, 11, 16, 24);
      std::size_t same = 0;
      REQUIRE(exattn_attention_scratch_size(&other.args, &same) == EXATTN_OK);
      CHECK(bytes == same);
      other.args.pool = a_pool();
      std::size_t twice = 0;
      REQUIRE(exattn_attention_scratch_size(&other.args, &twice) == EXATTN_OK);
      CHECK(twice > bytes);
      CHECK(twice <= 2 * bytes);
    }
  }

  Problem problem(1, 4, 2, 40, 64, 16, 24);
  problem.make_means();
  problem.args.pool = a_pool();
  std::size_t bytes = 0;
  REQUIRE(exattn_attention_scratch_size(&problem.args, &bytes) == EXATTN_OK);
  for (std::size_t shift = 0; shift < 64; ++shift) {
    std::vector<unsigned char> memory(bytes + 192, 0xC3);
    problem.args.scratch = memory.data() + 64 + shift;
    problem.args.scratch_size = bytes;
    REQUIRE(problem.run() == EXATTN_OK);
    REQUIRE(problem.out.values() == problem.expected_means());
    for (std::size_t n = 0; n < memory.size(); ++n) {
      if (n < 64 + shift || n >= 64 + shift + bytes) {
        REQUIRE(memory[n] == 0xC3);
      }
    }
    problem.args.scratch_size = bytes - 1;
    REQUIRE(problem.run() == EXATTN_ERROR_SCRATCH);
  }
}

TEST_CASE("attention: the size query asks for sizes and threads only") {
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.head_dim = 64;
  args.value_dim = 64;
  std::size_t bytes = 0;
  CHECK(exattn_attention_scratch_size(&args, &bytes) == EXATTN_OK);
  CHECK(bytes > 0);
  bytes = 77;
  args.head_dim = 0;
  CHECK(exattn_attention_scratch_size(&args, &bytes) == EXATTN_ERROR_SIZE);
  args.head_dim = 64;
  args.heads = 3;
  CHECK(exattn_attention_scratch_size(&args, &bytes) == EXATTN_ERROR_HEADS);
  args.heads = 0;
  args.pool = a_pool();
  args.executor = &an_executor;
  CHECK(exattn_attention_scratch_size(&args, &bytes) == EXATTN_ERROR_THREADS);
  CHECK(bytes == 77);
}

TEST_CASE("attention: q_offset is not looked at where q_offsets is given, nor are an absent mask's fields") {
  Problem problem(2, 2, 2, 3, 4, 2, 2);
  problem.make_means();
  problem.args.q_offsets = problem.q_offsets.data();
  problem.args.q_offset = -1;
  problem.args.mask.dtype = problem.args.mask_bool.dtype = 99;
  problem.args.mask.rank = problem.args.mask_bool.rank = 99;
  CHECK(problem.run() == EXATTN_OK);
  CHECK(problem.out.values() == problem.expected_means());
}

TEST_CASE("attention: a scale is used as it is when it is given, 0 too") {
  Problem problem(1, 1, 1, 2, 4, 3, 2);
  const std::vector<float> q = problem.q;
  problem.make_means();
  problem.q = q; // scores differ, but for the scale
  problem.args.scale_mode = EXATTN_SCALE_GIVEN;
  problem.args.scale = 0.0F;
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.values() == problem.expected_means());
  problem.args.scale_mode = EXATTN_SCALE_DEFAULT;
  problem.args.scale = -0.0F; // a 0 as well
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.values() != problem.expected_means());
}

TEST_CASE("softmax: argument errors, and nothing is written") {
  struct Softmax {
    exattn_softmax_args args{};
    std::vector<float> x = exattn::tests::some_numbers(9, 2 * 3 * 4 * 5);
    GuardedOutput y{2 * 3 * 4 * 5};
    std::array<char, 256> message{};

    Softmax() {
      args.struct_size = sizeof(args);
      args.lanes = EXATTN_LANES_SCALAR;
      const std::int64_t shape[] = {2, 3, 4, 5};
      std::memcpy(args.shape, shape, sizeof(shape));
      args.x = {x.data(), EXATTN_F32, 4, {60, 20, 5, 1}};
      args.y = {y.data(), 0, 4, {60, 20, 5, 1}};
      args.message = message.data();
      args.message_size = message.size();
    }
  };
  struct SoftmaxProvocation {
    const char *what;
    exattn_status status;
    const char *words;
    std::function<void(Softmax &)> spoil;
  };
  const SoftmaxProvocation all[] = {
      {"struct_size", EXATTN_ERROR_STRUCT_SIZE, "", [](Softmax &s) { s.args.struct_size = 8; }},
      {"x null", EXATTN_ERROR_NULL, "x.data is null", [](Softmax &s) { s.args.x.data = nullptr; }},
      {"y null", EXATTN_ERROR_NULL, "y.data is null", [](Softmax &s) { s.args.y.data = nullptr; }},
      {"shape", EXATTN_ERROR_SIZE, "shape[2] is -1, must be 0 or more", [](Softmax &s) { s.args.shape[2] = -1; }},
      {"elements", EXATTN_ERROR_OVERFLOW, "x shape[0..3]", [](Softmax &s) { s.args.shape[3] = kHuge / 16; }},
      {"strides", EXATTN_ERROR_OVERFLOW, "y: its strides", [](Softmax &s) { s.args.y.stride[1] = kHuge / 2; }},
      {"x rank", EXATTN_ERROR_STRIDES, "x.rank is 1", [](Softmax &s) { s.args.x.rank = 1; }},
      {"y rank", EXATTN_ERROR_STRIDES, "y.rank is 0", [](Softmax &s) { s.args.y.rank = 0; }},
      {"y on itself", EXATTN_ERROR_OVERLAP, "y.stride", [](Softmax &s) { s.args.y.stride[1] = 5; }},
      {"y on x", EXATTN_ERROR_OVERLAP, "y overlaps x", [](Softmax &s) { s.args.x.data = s.y.data() + 1; }},
      {"in place, other strides", EXATTN_ERROR_OVERLAP, "in place they must be the same",
       [](Softmax &s) {
         s.args.x.data = s.y.data();
         s.args.x.stride[3] = 0;
       }},
      {"flavour", EXATTN_ERROR_ENUM, "flavour is -1", [](Softmax &s) { s.args.flavour = -1; }},
      {"dtype", EXATTN_ERROR_ENUM, "x.dtype is 1, must be EXATTN_F32 (0)", [](Softmax &s) { s.args.x.dtype = 1; }},
      {"reserved", EXATTN_ERROR_ENUM, "y.reserved is 1", [](Softmax &s) { s.args.y.reserved = 1; }},
      {"alignment", EXATTN_ERROR_ALIGNMENT, "y.data", [](Softmax &s) { s.args.y.data = shifted(s.y.data(), 2); }},
      {"lanes", EXATTN_ERROR_LANES_UNKNOWN, "lanes is 9", [](Softmax &s) { s.args.lanes = 9; }},
      {"threads", EXATTN_ERROR_THREADS, "both given",
       [](Softmax &s) {
         s.args.pool = a_pool();
         s.args.executor = &an_executor;
       }},
  };
  for (const SoftmaxProvocation &provocation : all) {
    INFO(std::string(provocation.what));
    Softmax softmax;
    provocation.spoil(softmax);
    CHECK(std::string(exattn_status_name(exattn_softmax(&softmax.args))) == exattn_status_name(provocation.status));
    const std::string text = softmax.message.data();
    INFO(text);
    CHECK(text.find(provocation.words) != std::string::npos);
    CHECK(softmax.y.untouched());
  }
  CHECK(exattn_softmax(nullptr) == EXATTN_ERROR_NULL);

  // Nothing to do.
  for (std::size_t n = 0; n < 4; ++n) {
    Softmax softmax;
    softmax.args.shape[n] = 0;
    CHECK(exattn_softmax(&softmax.args) == EXATTN_OK);
    CHECK(softmax.y.untouched());
  }

  // In place; equal values share the weight: 5 of them take 1/5 each, rounded to nearest 0x3E4CCCCD.
  Softmax softmax;
  std::fill(softmax.y.data(), softmax.y.data() + 120, 2.0F);
  softmax.args.x.data = softmax.y.data();
  CHECK(exattn_softmax(&softmax.args) == EXATTN_OK);
  CHECK(softmax.y.bits() == std::vector<std::uint32_t>(120, 0x3E4CCCCD));
  CHECK(softmax.y.guards_intact());
}

TEST_CASE("softmax: rows of any number and length, strided") {
  // Rows of one element are 1, whatever it is; rows of 2^k equal elements 2^-k.
  for (const std::int64_t rows : {1, 15, 16, 17, 5000}) {
    for (const std::int64_t length : {1, 2, 64, 512}) {
      const std::size_t count = static_cast<std::size_t>(rows * length);
      std::vector<float> x(2 * count, 3.0F);
      GuardedOutput y(count);
      exattn_softmax_args args = EXATTN_SOFTMAX_ARGS_INIT;
      args.lanes = EXATTN_LANES_SCALAR;
      args.shape[0] = args.shape[1] = 1;
      args.shape[2] = rows;
      args.shape[3] = length;
      args.x = {x.data(), EXATTN_F32, 4, {0, 0, 2, 2 * rows}}; // columns apart, rows beside each other
      args.y = {y.data(), 0, 4, {0, 0, length, 1}};
      args.pool = a_pool();
      REQUIRE(exattn_softmax(&args) == EXATTN_OK);
      REQUIRE(y.values() == std::vector<float>(count, 1.0F / static_cast<float>(length)));
      REQUIRE(y.guards_intact());
    }
  }
}

TEST_CASE("evaluate: argument errors, and nothing is written") {
  const std::vector<float> x(10, -1.0F);
  GuardedOutput y(10);
  const std::int32_t exp = EXATTN_FUNCTION_EXP;
  const std::int32_t scalar = EXATTN_LANES_SCALAR;
  CHECK(exattn_evaluate(3, EXATTN_EXACT, scalar, x.data(), y.data(), 10) == EXATTN_ERROR_ENUM);
  CHECK(exattn_evaluate(-1, EXATTN_EXACT, scalar, x.data(), y.data(), 10) == EXATTN_ERROR_ENUM);
  CHECK(exattn_evaluate(exp, 2, scalar, x.data(), y.data(), 10) == EXATTN_ERROR_ENUM);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, 6, x.data(), y.data(), 10) == EXATTN_ERROR_LANES_UNKNOWN);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, nullptr, y.data(), 10) == EXATTN_ERROR_NULL);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, x.data(), nullptr, 10) == EXATTN_ERROR_NULL);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, shifted(x.data(), 1), y.data(), 9) == EXATTN_ERROR_ALIGNMENT);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, x.data(), shifted(y.data(), 2), 9) == EXATTN_ERROR_ALIGNMENT);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, y.data() + 1, y.data(), 9) == EXATTN_ERROR_OVERLAP);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, y.data(), y.data() + 8, 9) == EXATTN_ERROR_OVERLAP);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, x.data(), y.data(), SIZE_MAX / 4 + 2) == EXATTN_ERROR_OVERFLOW);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, x.data(), y.data(), SIZE_MAX / 4) == EXATTN_ERROR_OVERFLOW);
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, nullptr, nullptr, 0) == EXATTN_OK);
  CHECK(y.untouched());

  // In place: exp(-0) = exp(+0) = 1, exp(-inf) = +0; ln 1 = +0.
  std::vector<float> values = {-0.0F, 0.0F, -std::numeric_limits<float>::infinity()};
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, scalar, values.data(), values.data(), 3) == EXATTN_OK);
  CHECK(values == std::vector<float>{1.0F, 1.0F, 0.0F});
  CHECK(exattn_evaluate(EXATTN_FUNCTION_LOG, EXATTN_EXACT, scalar, values.data(), values.data(), 2) == EXATTN_OK);
  CHECK(values == std::vector<float>{0.0F, 0.0F, 0.0F});
  // tanh 0 = 0, and 1 or -1 at the infinities.
  values = {0.0F, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  CHECK(exattn_evaluate(EXATTN_FUNCTION_TANH, EXATTN_EXACT, scalar, values.data(), values.data(), 3) == EXATTN_OK);
  CHECK(values == std::vector<float>{0.0F, 1.0F, -1.0F});
}

TEST_CASE("statuses have names and sentences of their own") {
  std::set<std::string> names;
  std::set<std::string> sentences;
  for (exattn_status status = EXATTN_OK; status <= EXATTN_ERROR_STATE; ++status) {
    names.insert(exattn_status_name(status));
    sentences.insert(exattn_status_string(status));
  }
  CHECK(names.size() == 21);
  CHECK(sentences.size() == 21);
  CHECK(std::string(exattn_status_name(EXATTN_OK)) == "EXATTN_OK");
  CHECK(std::string(exattn_status_name(EXATTN_ERROR_OVERLAP)) == "EXATTN_ERROR_OVERLAP");
  CHECK(std::string(exattn_status_name(EXATTN_ERROR_EXECUTOR)) == "EXATTN_ERROR_EXECUTOR");
  CHECK(std::string(exattn_status_name(EXATTN_ERROR_LANES_UNKNOWN)) == "EXATTN_ERROR_LANES_UNKNOWN");
  CHECK(std::string(exattn_status_name(EXATTN_ERROR_OPTION)) == "EXATTN_ERROR_OPTION");
  CHECK(std::string(exattn_status_name(EXATTN_ERROR_PAGE)) == "EXATTN_ERROR_PAGE");
  CHECK(std::string(exattn_status_name(EXATTN_ERROR_STATE)) == "EXATTN_ERROR_STATE");
  for (const exattn_status status : {-1, 21, INT32_MIN, INT32_MAX}) {
    CHECK(std::string(exattn_status_name(status)) == "EXATTN_STATUS_UNKNOWN");
    CHECK(exattn_status_string(status) != nullptr);
  }
  CHECK(std::string(exattn_version()) == EXATTN_VERSION);
  CHECK(std::string(exattn_definition()) == "exattn-1");
}

TEST_CASE("the default scale is 1 / sqrt(head_dim), each step rounded to nearest") {
  // Powers of 4 are exact. Of the others, root and quotient were rounded by hand from 40 digits. 1 / sqrt(3) rounded
  // once would be 0x1.279a76p-1.
  CHECK(exattn_default_scale(1) == 1.0F);
  CHECK(exattn_default_scale(4) == 0.5F);
  CHECK(exattn_default_scale(64) == 0.125F);
  CHECK(exattn_default_scale(256) == 0.0625F);
  CHECK(exattn_default_scale(std::int64_t{1} << 40) == 1.0F / 1048576.0F);
  CHECK(exattn_default_scale(2) == 0x1.6a09e6p-1F);
  CHECK(exattn_default_scale(3) == 0x1.279a74p-1F);
  CHECK(exattn_default_scale(80) == 0x1.c9f25cp-4F);
  CHECK(exattn_default_scale(96) == 0x1.a20bd6p-4F);
  CHECK(exattn_default_scale(128) == 0x1.6a09e6p-4F);
  CHECK(exattn_default_scale(192) == 0x1.279a74p-4F);
  for (const std::int64_t head_dim : {std::int64_t{0}, std::int64_t{-1}, kLowest}) {
    const float scale = exattn_default_scale(head_dim);
    CHECK(scale != scale);
  }
}

// ---- Values by hand, on every kernel of this machine: one case for each way to get attention wrong ----

namespace {

template <class Test>
void on_every_kernel(Test test) {
  int kernels = 0;
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    for (std::int32_t lanes = EXATTN_LANES_AUTO + 1; lanes < EXATTN_LANES_COUNT; ++lanes) {
      exattn_lanes_info info{};
      info.struct_size = sizeof(info);
      REQUIRE(exattn_lanes_query(lanes, &info) == EXATTN_OK);
      if ((flavour == EXATTN_FAST ? info.fast : info.exact) != 0) {
        INFO(std::string(exattn_lanes_name(lanes)) << "/" << std::string(exattn_flavour_name(flavour)));
        test(lanes, flavour);
        ++kernels;
      }
    }
  }
  CHECK(kernels >= 2); // scalar has both flavours
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Logits 0 and V_j = j, in every column; scale 1, so that with q set to 1 logits are the keys.
struct Counting : Problem {
  Counting(std::int32_t lanes, std::int32_t flavour, std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
           std::int64_t q_len, std::int64_t kv_len, std::int64_t value_dim = 1)
      : Problem(batch, heads, kv_heads, q_len, kv_len, 1, value_dim) {
    args.lanes = lanes;
    args.flavour = flavour;
    args.scale_mode = EXATTN_SCALE_GIVEN;
    args.scale = 1.0F;
    q.assign(q.size(), 0.0F);
    for (std::size_t n = 0; n < v.size(); ++n) {
      v[n] = static_cast<float>(n / static_cast<std::size_t>(value_dim) % static_cast<std::size_t>(kv_len));
    }
    mask.assign(mask.size(), 0.0F);
    use_lse();
  }

  void use_logits(const std::vector<float> &logits) {
    q.assign(q.size(), 1.0F);
    k = logits;
    args.k.data = k.data();
  }
  void use_values(const std::vector<float> &values) {
    v = values;
    args.v.data = v.data();
  }
  void use_mask_bool(const std::vector<std::uint8_t> &row) {
    mask_bool = row;
    args.mask_bool = {mask_bool.data(), EXATTN_U8, 4, {0, 0, 0, 1}};
  }

  // Whether the outputs of all rows and their log-sum-exps are those, to a few roundings.
  void check(const std::vector<double> &outputs, const std::vector<double> &log_sum_exps) {
    REQUIRE(run() == EXATTN_OK);
    const std::vector<float> got = out.values();
    const std::vector<float> got_lse = lse.values();
    REQUIRE(got.size() == outputs.size());
    REQUIRE(got_lse.size() == log_sum_exps.size());
    for (std::size_t n = 0; n < got.size(); ++n) {
      INFO("output " << n);
      CHECK(static_cast<double>(got[n]) == doctest::Approx(outputs[n]).epsilon(1e-6));
    }
    for (std::size_t n = 0; n < got_lse.size(); ++n) {
      INFO("log-sum-exp " << n);
      CHECK(static_cast<double>(got_lse[n]) == doctest::Approx(log_sum_exps[n]).epsilon(1e-6));
    }
  }
  void check_bits(const std::vector<std::uint32_t> &outputs, const std::vector<std::uint32_t> &log_sum_exps) {
    REQUIRE(run() == EXATTN_OK);
    CHECK(out.bits() == outputs);
    CHECK(lse.bits() == log_sum_exps);
  }

  std::vector<std::uint8_t> mask_bool;
};

constexpr std::uint32_t kNan = 0x7FC00000;
constexpr std::uint32_t kMinusInfinityBits = 0xFF800000;

} // namespace

TEST_CASE("attention: sums and outputs are rescaled when the maximum grows") {
  // The definition's example of two blocks: scores 1, 3 at the end of one block, 2, 5 at the start of the next.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 66);
    std::vector<float> logits(66), values(66);
    const float scores[] = {1.0F, 3.0F, 2.0F, 5.0F};
    for (std::size_t n = 0; n < 4; ++n) {
      logits[62 + n] = scores[n];
      values[62 + n] = 10.0F * static_cast<float>(n + 1);
    }
    call.use_logits(logits);
    call.use_values(values);
    call.args.window = 4;
    call.args.q_offset = 65;
    const double sum = std::exp(-4.0) + std::exp(-2.0) + std::exp(-3.0) + 1;
    call.check({(std::exp(-4.0) * 10 + std::exp(-2.0) * 20 + std::exp(-3.0) * 30 + 40) / sum}, {5 + std::log(sum)});
  });
}

TEST_CASE("attention: rows side by side are rescaled each by its own factor") {
  // Keys 0 to 63 have the logit 0 and the value 1, the others logit 2 q and value 3. The first 8 rows have q = 0.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 16, 128);
    for (std::size_t n = 0; n < 128; ++n) {
      call.k[n] = n < 64 ? 0.0F : 2.0F;
      call.v[n] = n < 64 ? 1.0F : 3.0F;
    }
    std::fill(call.q.begin() + 8, call.q.end(), 1.0F);
    std::vector<double> outputs(8, 2.0), log_sum_exps(8, std::log(128.0));
    outputs.insert(outputs.end(), 8, (std::exp(-2.0) + 3) / (std::exp(-2.0) + 1));
    log_sum_exps.insert(log_sum_exps.end(), 8, 2 + std::log(64 * (std::exp(-2.0) + 1)));
    call.check(outputs, log_sum_exps);
  });
}

TEST_CASE("attention: query heads share key and value heads in runs") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::int64_t heads : {4, 6}) {
      Counting call(lanes, flavour, 1, heads, 2, 1, 1);
      call.use_values({10.0F, 20.0F});
      std::vector<double> outputs(static_cast<std::size_t>(heads) / 2, 10.0);
      outputs.insert(outputs.end(), outputs.size(), 20.0);
      call.check(outputs, std::vector<double>(outputs.size(), 0.0));
    }
  });
}

TEST_CASE("attention: query heads that are no multiple of the key and value heads are refused") {
  for (const std::int64_t heads : {1, 3, 5}) {
    Problem problem(1, heads, 2, 2, 3, 4, 5);
    CHECK(problem.run() == EXATTN_ERROR_HEADS);
    CHECK(problem.out.untouched());
  }
}

TEST_CASE("attention: an output that shares memory with the keys is refused") {
  Problem problem(1, 1, 1, 1, 2, 4, 4);
  problem.args.out.data = problem.k.data() + 4; // the last key
  CHECK(problem.run() == EXATTN_ERROR_OVERLAP);
  CHECK(problem.text() == "out overlaps k, must share no memory with it");
  CHECK(problem.k == exattn::tests::some_numbers(2, 8));
}

TEST_CASE("attention: a page that there is not is refused") {
  for (const std::int32_t page : {-1, 2, 3}) {
    Problem problem(1, 1, 1, 1, 4, 1, 1);
    const std::vector<std::int32_t> table = {1, page};
    problem.args.page_table = table.data();
    problem.args.page_table_stride = 2;
    problem.args.page_size = 2;
    problem.args.pages = 2;
    CHECK(problem.run() == EXATTN_ERROR_PAGE);
    CHECK(problem.out.untouched());
  }
}

TEST_CASE("attention: causal at absolute positions") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 3, 5);
    call.use_values({1.0F, 2.0F, 3.0F, 4.0F, 5.0F});
    call.args.causal = 1;
    call.args.q_offset = 2;
    call.check({2.0, 2.5, 3.0}, {std::log(3.0), std::log(4.0), std::log(5.0)});
    call.args.q_offset = 0;
    call.check({1.0, 1.5, 2.0}, {0.0, std::log(2.0), std::log(3.0)});
  });
}

TEST_CASE("attention: windows count the row itself") {
  // At position 5 of 6 keys, windows of 1, 3, 4 keys, and more than there are.
  const struct {
    std::int64_t window;
    double mean, keys;
  } windows[] = {{1, 5.0, 1}, {3, 4.0, 3}, {4, 3.5, 4}, {6, 2.5, 6}, {100, 2.5, 6}};
  on_every_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    for (const auto &one : windows) {
      INFO("window " << one.window);
      Counting call(lanes, flavour, 1, 1, 1, 1, 6);
      call.args.causal = 1;
      call.args.q_offset = 5;
      call.args.window = one.window;
      call.check({one.mean}, {std::log(one.keys)});
    }
  });
}

TEST_CASE("attention: visibility is decided row by row") {
  // Row i sees the keys 0 to i, whatever rows are computed side by side.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 40, 40);
    call.args.causal = 1;
    std::vector<double> outputs, log_sum_exps;
    for (int row = 0; row < 40; ++row) {
      outputs.push_back(row / 2.0);
      log_sum_exps.push_back(std::log(row + 1.0));
    }
    call.check(outputs, log_sum_exps);
  });
}

TEST_CASE("attention: each sequence has its own key length and position") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 2, 1, 1, 1, 5);
    call.kv_lens = {2, 3};
    call.args.kv_lens = call.kv_lens.data();
    call.check({0.5, 1.0}, {std::log(2.0), std::log(3.0)});
    call.args.kv_lens = nullptr;
    call.args.causal = 1;
    call.q_offsets = {3, 1};
    call.args.q_offsets = call.q_offsets.data();
    call.check({1.5, 0.5}, {std::log(4.0), std::log(2.0)});
  });
}

TEST_CASE("attention: each ragged sequence has its own rows and keys") {
  // Rows 0, 1 and 2 to 4; keys 0 to 2 and 3 to 6; V_n = n.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 2, 1, 1, 5, 7);
    const std::vector<std::int64_t> q_starts = {0, 2, 5}, kv_starts = {0, 3, 7};
    call.args.q_starts = q_starts.data();
    call.args.kv_starts = kv_starts.data();
    for (const std::int32_t causal : {0, 1}) {
      call.args.causal = causal;
      REQUIRE(call.run() == EXATTN_OK);
      const std::vector<double> outputs =
          causal == 0 ? std::vector<double>{1, 1, 4.5, 4.5, 4.5} : std::vector<double>{0, 0.5, 3, 3.5, 4};
      const std::vector<double> keys =
          causal == 0 ? std::vector<double>{3, 3, 4, 4, 4} : std::vector<double>{1, 2, 1, 2, 3};
      const std::vector<float> got = call.out.values(), lse = call.lse.values();
      for (std::size_t n = 0; n < 5; ++n) { // the outputs have room for two sequences of 5 rows
        INFO("causal " << causal << ", row " << n);
        CHECK(static_cast<double>(got[n]) == doctest::Approx(outputs[n]).epsilon(1e-6));
        CHECK(static_cast<double>(lse[n]) == doctest::Approx(std::log(keys[n])).epsilon(1e-6));
      }
    }
  });
}

TEST_CASE("attention: each sequence has its own pages, of any size") {
  // A window of one key: row i of sequence b gives the value of its key i, 1000 b + i, and x / 8 more in column x.
  constexpr std::size_t kKeys = 100, kColumns = 5;
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::size_t page_size : {1U, 7U, 16U, 48U, 64U, 100U}) {
      INFO("pages of " << page_size);
      Counting call(lanes, flavour, 2, 1, 1, kKeys, kKeys, kColumns);
      const std::size_t of_sequence = (kKeys + page_size - 1) / page_size, pages = 2 * of_sequence;
      std::vector<std::int32_t> table;
      std::vector<float> keys(pages * page_size, std::numeric_limits<float>::quiet_NaN()),
          values(keys.size() * kColumns, keys[0]);
      std::vector<float> expected;
      for (std::size_t n = 0; n < pages; ++n) {
        table.push_back(static_cast<std::int32_t>(n % 2 == 0 ? pages - 1 - n / 2 : n / 2)); // from both ends
      }
      for (std::size_t n = 0; n < 2 * kKeys; ++n) {
        const std::size_t b = n / kKeys, key = n % kKeys;
        const std::size_t page = static_cast<std::size_t>(table[b * of_sequence + key / page_size]);
        const std::size_t at = page * page_size + key % page_size;
        keys[at] = 0.0F;
        for (std::size_t x = 0; x < kColumns; ++x) {
          values[at * kColumns + x] = static_cast<float>(1000 * b + key) + static_cast<float>(x) / 8.0F;
          expected.push_back(values[at * kColumns + x]);
        }
      }
      const std::int64_t size = static_cast<std::int64_t>(page_size);
      call.args.k = {keys.data(), EXATTN_F32, 4, {size, size, 1, 1}};
      call.args.v = {values.data(), EXATTN_F32, 4, {size * 5, size * 5, 5, 1}};
      call.args.page_table = table.data();
      call.args.page_table_stride = static_cast<std::int64_t>(of_sequence);
      call.args.page_size = size;
      call.args.pages = static_cast<std::int64_t>(pages);
      call.args.causal = 1;
      call.args.window = 1;
      REQUIRE(call.run() == EXATTN_OK);
      CHECK(call.out.values() == expected);
    }
  });
}

TEST_CASE("attention: a sink joins the sum and the log-sum-exp") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting three(lanes, flavour, 1, 1, 1, 1, 3);
    three.use_values({1.0F, 1.0F, 1.0F});
    three.sinks = {0.0F};
    three.args.sinks = three.sinks.data();
    three.check({0.75}, {std::log(4.0)});
    Counting four(lanes, flavour, 1, 1, 1, 1, 4);
    four.use_values({1.0F, 1.0F, 1.0F, 1.0F});
    four.sinks = {std::log(4.0F)};
    four.args.sinks = four.sinks.data();
    four.check({0.5}, {std::log(8.0)});
  });
}

TEST_CASE("attention: a sink of -inf is no sink") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 3);
    call.sinks = {-kInfinity};
    call.args.sinks = call.sinks.data();
    call.check({1.0}, {std::log(3.0)});
    call.kv_lens = {0}; // nor does it make a row that sees no key one that is not empty
    call.args.kv_lens = call.kv_lens.data();
    call.check_bits({0}, {kMinusInfinityBits});
  });
}

TEST_CASE("attention: the log-sum-exp is natural, and holds the maximum") {
  // q = (ln 2, ln 3) and keys (1, 0), (0, 1), (1, 1): weights as 2, 3 and 6; V = 1, 2, 3.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Problem problem(1, 1, 1, 1, 3, 2, 1);
    problem.args.lanes = lanes;
    problem.args.flavour = flavour;
    problem.args.scale_mode = EXATTN_SCALE_GIVEN;
    problem.args.scale = 1.0F;
    problem.use_lse();
    problem.q = {std::log(2.0F), std::log(3.0F)};
    problem.k = {1.0F, 0.0F, 0.0F, 1.0F, 1.0F, 1.0F};
    problem.v = {1.0F, 2.0F, 3.0F};
    problem.args.q.data = problem.q.data();
    problem.args.k.data = problem.k.data();
    problem.args.v.data = problem.v.data();
    REQUIRE(problem.run() == EXATTN_OK);
    CHECK(static_cast<double>(problem.out.values()[0]) == doctest::Approx(26.0 / 11.0).epsilon(1e-6));
    CHECK(static_cast<double>(problem.lse.values()[0]) == doctest::Approx(std::log(11.0)).epsilon(1e-6));
  });
}

TEST_CASE("attention: without keys nothing is computed from null pointers") {
  // Backward strides lead out of the address space from there, which a sanitizer of pointer arithmetic reports.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 2, 2, 2, 1, 1);
    call.args.kv_len = 0;
    call.args.k = {nullptr, EXATTN_F32, 4, {-70, -7, -1, 1}};
    call.args.v = {nullptr, EXATTN_F32, 4, {-70, -7, -1, 1}};
    call.check_bits({0, 0, 0, 0}, std::vector<std::uint32_t>(4, kMinusInfinityBits));
  });
}

TEST_CASE("attention: scores far below zero count as any others") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting two(lanes, flavour, 1, 1, 1, 1, 2);
    two.use_logits({-60000.0F, -60001.0F});
    two.use_values({1.0F, 2.0F});
    two.check({(1 + 2 * std::exp(-1.0)) / (1 + std::exp(-1.0))}, {-60000 + std::log(1 + std::exp(-1.0))});
    Counting three(lanes, flavour, 1, 1, 1, 1, 3);
    three.use_values({1.0F, 2.0F, 3.0F});
    three.mask.assign(3, -std::numeric_limits<float>::max());
    three.use_mask();
    three.check({2.0}, {-static_cast<double>(std::numeric_limits<float>::max())});
  });
}

TEST_CASE("attention: hidden keys do not raise the maximum") {
  // The third score would be the maximum by far, and every visible weight 0 against it. The second row sees that key,
  // so it is at hand for the first one too; then a boolean mask hides it.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting rows(lanes, flavour, 1, 1, 1, 2, 3);
    rows.use_logits({1.0F, 2.0F, 500.0F});
    rows.args.causal = 1;
    rows.args.q_offset = 1;
    rows.check({1 / (std::exp(-1.0) + 1), 2.0}, {2 + std::log(1 + std::exp(-1.0)), 500.0});
    Counting masked(lanes, flavour, 1, 1, 1, 1, 3);
    masked.use_logits({1.0F, 2.0F, 500.0F});
    masked.use_mask_bool({1, 1, 0});
    masked.check({1 / (std::exp(-1.0) + 1)}, {2 + std::log(1 + std::exp(-1.0))});
  });
}

TEST_CASE("attention: outputs are divided once, after the last block") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 192);
    call.check({95.5}, {std::log(192.0)});
  });
}

TEST_CASE("attention: the last block may be short") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::int64_t keys : {1, 63, 65, 127, 129}) {
      INFO(keys << " keys");
      Counting call(lanes, flavour, 1, 1, 1, 1, keys);
      call.check({static_cast<double>(keys - 1) / 2}, {std::log(static_cast<double>(keys))});
    }
  });
}

TEST_CASE("attention: key blocks are taken in increasing order") {
  // 2^24 + 1 is rounded to 2^24, and 2^24 - 2^24 is 0; from the other end a 1 would be left.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 129);
    call.v.assign(129, 0.0F);
    call.v[0] = 0x1p24F;
    call.v[64] = 1.0F;
    call.v[128] = -0x1p24F;
    REQUIRE(call.run() == EXATTN_OK);
    CHECK(call.out.bits() == std::vector<std::uint32_t>{0});
  });
}

TEST_CASE("attention: key blocks lie at absolute positions") {
  // The first key that a row sees moves with the row, and with a chunk's first row; the blocks, and so the bits, do
  // not.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting whole(lanes, flavour, 1, 1, 1, 40, 200, 3);
    whole.use_logits(exattn::tests::some_numbers(7, 200));
    whole.use_values(exattn::tests::some_numbers(8, 600));
    whole.args.causal = 1;
    whole.args.window = 90;
    whole.args.q_offset = 120;
    REQUIRE(whole.run() == EXATTN_OK);
    for (std::int64_t row = 0; row < 40; ++row) {
      INFO("row " << row);
      Counting alone(lanes, flavour, 1, 1, 1, 1, 200, 3);
      alone.use_logits(whole.k);
      alone.use_values(whole.v);
      alone.args.causal = 1;
      alone.args.window = 90;
      alone.args.q_offset = 120 + row;
      REQUIRE(alone.run() == EXATTN_OK);
      const std::vector<std::uint32_t> out = whole.out.bits();
      CHECK(alone.out.bits() == std::vector<std::uint32_t>(out.begin() + 3 * row, out.begin() + 3 * row + 3));
      CHECK(alone.lse.bits()[0] == whole.lse.bits()[static_cast<std::size_t>(row)]);
    }
  });
}

TEST_CASE("attention: the block sum, term by term") {
  // l of one block is the sum of its weights, and a state shows it.
  std::vector<float> logits = exattn::tests::some_numbers(11, 64);
  for (float &logit : logits) {
    logit *= 4.0F;
  }
  const float maximum = *std::max_element(logits.begin(), logits.end());
  on_every_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    float weight[64], partial[16] = {}, falling[16] = {}, neighbours[16] = {};
    for (std::size_t j = 0; j < 64; ++j) {
      weight[j] = exattn::oracle::exponential(
          logits[j] - maximum, flavour == EXATTN_FAST ? exattn::oracle::Flavour::fast : exattn::oracle::Flavour::exact);
      partial[j % 16] += weight[j];
    }
    for (std::size_t j = 64; j-- > 0;) {
      falling[j % 16] += weight[j];
    }
    std::copy(std::begin(partial), std::end(partial), neighbours);
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t t = 0; t < half; ++t) {
        partial[t] += partial[t + half];
        falling[t] += falling[t + half];
        neighbours[t] = neighbours[2 * t] + neighbours[2 * t + 1];
      }
    }
    REQUIRE(falling[0] != partial[0]); // other orders show
    REQUIRE(neighbours[0] != partial[0]);
    Counting call(lanes, flavour, 1, 1, 1, 1, 64);
    call.use_logits(logits);
    std::vector<unsigned char> state(64 + 8 + 16);
    call.args.state_out = state.data();
    call.args.state_out_size = state.size();
    REQUIRE(call.run() == EXATTN_OK);
    CHECK(exattn::load_le32(state.data() + 64 + 8 + 4) == std::bit_cast<std::uint32_t>(partial[0]));
  });
}

TEST_CASE("attention: the exact flavour rounds twice, the fast one once") {
  // -(1 + 2^-11) + (1 + 2^-12)^2 is 2^-24; the square alone is rounded to 1 + 2^-11. One key: its score is the lse.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Problem problem(1, 1, 1, 1, 1, 2, 1);
    problem.args.lanes = lanes;
    problem.args.flavour = flavour;
    problem.args.scale_mode = EXATTN_SCALE_GIVEN;
    problem.args.scale = 1.0F;
    problem.use_lse();
    problem.q = {1.0F, 1.0F + 0x1p-12F};
    problem.k = {-(1.0F + 0x1p-11F), 1.0F + 0x1p-12F};
    problem.args.q.data = problem.q.data();
    problem.args.k.data = problem.k.data();
    REQUIRE(problem.run() == EXATTN_OK);
    CHECK(problem.lse.values()[0] == (flavour == EXATTN_FAST ? 0x1p-24F : 0.0F));
  });
}

TEST_CASE("attention: the exact flavour divides, the fast one multiplies by the reciprocal") {
  // Five weights of 1, and values x, 0, 0, 0, 0 for x = 1, 2, ..., 64.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 5, 64);
    call.v.assign(call.v.size(), 0.0F);
    std::vector<float> expected;
    int differ = 0;
    for (std::size_t n = 0; n < 64; ++n) {
      call.v[n] = static_cast<float>(n + 1);
      const float quotient = call.v[n] / 5.0F, product = call.v[n] * (1.0F / 5.0F);
      expected.push_back(flavour == EXATTN_FAST ? product : quotient);
      differ += quotient != product ? 1 : 0;
    }
    REQUIRE(differ > 0);
    REQUIRE(call.run() == EXATTN_OK);
    CHECK(call.out.values() == expected);
  });
}

TEST_CASE("attention: a NaN leaves as 7FC00000") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    // A weight of +0 times an infinity, which has the sign bit on some processors.
    Counting product(lanes, flavour, 1, 1, 1, 1, 2);
    product.use_values({1.0F, kInfinity});
    product.mask = {0.0F, -kInfinity};
    product.use_mask();
    product.check_bits({kNan}, {0});
    // One that came with a sign and a payload.
    Counting query(lanes, flavour, 1, 1, 1, 1, 2);
    query.q = {std::bit_cast<float>(0xFFC12345U)};
    query.args.q.data = query.q.data();
    query.check_bits({kNan}, {kNan});
  });
}

TEST_CASE("attention: blocks of -inf before a finite score leave no NaN") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 130);
    std::fill(call.mask.begin(), call.mask.begin() + 64, -kInfinity);
    call.use_mask();
    call.check({96.5}, {std::log(66.0)});
  });
}

TEST_CASE("attention: a fully masked row is NaN, or +0 where asked for") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 3);
    call.mask.assign(3, -kInfinity);
    call.use_mask();
    call.check_bits({kNan}, {kMinusInfinityBits});
    call.args.fully_masked = EXATTN_FULLY_MASKED_ZERO;
    call.check_bits({0}, {kMinusInfinityBits});
  });
}

TEST_CASE("attention: a boolean mask shows what is not 0") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 5);
    call.use_mask_bool({0, 1, 2, 0, 255});
    call.check({7.0 / 3.0}, {std::log(3.0)});
  });
}

TEST_CASE("attention: values that a boolean mask hides are skipped, not multiplied by zero") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 5);
    call.use_values({std::numeric_limits<float>::quiet_NaN(), 1.0F, 2.0F, kInfinity, 4.0F});
    call.use_mask_bool({0, 1, 1, 0, 1});
    call.check({7.0 / 3.0}, {std::log(3.0)});
  });
}

TEST_CASE("attention: a row from which a boolean mask hides all keys is empty") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 5);
    call.use_mask_bool({0, 0, 0, 0, 0});
    call.check_bits({0}, {kMinusInfinityBits});
  });
}

TEST_CASE("attention: ALiBi slopes, by hand") {
  // A row at position 0, distances 0, 1, 2; slopes of ln 2 and -ln 2: weights halve, or double.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 2, 1, 1, 3);
    call.use_values({1.0F, 2.0F, 4.0F});
    const std::vector<float> slopes = {std::log(2.0F), -std::log(2.0F)};
    call.args.alibi_slopes = slopes.data();
    call.check({3 / 1.75, 21.0 / 7.0}, {std::log(1.75), std::log(7.0)});
  });
}

TEST_CASE("attention: ALiBi at distances that binary32 does not have") {
  // Distances 2^24 + 3, + 2, + 1, + 0 are rounded, ties to even, to 2^24 + 4, + 2, + 0, + 0.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 4);
    const std::vector<float> slopes = {1.0F};
    call.args.alibi_slopes = slopes.data();
    call.args.q_offset = (std::int64_t{1} << 24) + 3;
    const double fourth = std::exp(-4.0), second = std::exp(-2.0);
    call.check({(second + 2 + 3) / (fourth + second + 2)}, {-0x1p24});
  });
}

TEST_CASE("attention: the mask is added to the capped score") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 2);
    call.args.softcap = 1.0F;
    call.mask = {0.0F, 3.0F};
    call.use_mask();
    call.check({1 / (1 + std::exp(-3.0))}, {std::log(1 + std::exp(3.0))});
  });
}

TEST_CASE("attention: softcap of scores of both signs") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 2);
    call.use_logits({-1.0F, 3.0F});
    call.args.softcap = 2.0F;
    const double low = 2 * std::tanh(-0.5), high = 2 * std::tanh(1.5);
    call.check({1 / (1 + std::exp(low - high))}, {std::log(std::exp(low) + std::exp(high))});
  });
}

namespace {

// With one key an output is its value, a NaN that of the definition, and -0 is +0, since a sum starts from there.
void check_widened(std::int32_t dtype, const std::vector<std::uint16_t> &patterns,
                   const std::vector<std::uint32_t> &expected) {
  on_every_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 1, static_cast<std::int64_t>(patterns.size()));
    call.args.v = {patterns.data(), dtype, 4, {0, 0, 0, 1}};
    REQUIRE(call.run() == EXATTN_OK);
    CHECK(call.out.bits() == expected);
  });
}

// The binary16 number with that pattern, which is finite.
float number_of_binary16(std::uint32_t pattern) {
  const int exponent = static_cast<int>(pattern >> 10 & 31U), fraction = static_cast<int>(pattern & 1023U);
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                        : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (pattern & 0x8000U) != 0 ? 0.0F - magnitude : magnitude;
}

} // namespace

TEST_CASE("16 bits: every bfloat16 is widened to its value") {
  std::vector<std::uint16_t> patterns;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    patterns.push_back(static_cast<std::uint16_t>(pattern));
    expected.push_back((pattern & 0x7FFFU) > 0x7F80 ? kNan : pattern == 0x8000 ? 0 : pattern << 16);
  }
  check_widened(EXATTN_BF16, patterns, expected);
}

TEST_CASE("16 bits: normal binary16 numbers keep their value") {
  std::vector<std::uint16_t> patterns;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    if ((pattern & 0x7C00U) != 0 && (pattern & 0x7C00U) != 0x7C00) {
      patterns.push_back(static_cast<std::uint16_t>(pattern));
      expected.push_back(std::bit_cast<std::uint32_t>(number_of_binary16(pattern)));
    }
  }
  check_widened(EXATTN_F16, patterns, expected);
}

TEST_CASE("16 bits: subnormal binary16 numbers keep their value") {
  std::vector<std::uint16_t> patterns;
  std::vector<std::uint32_t> expected;
  for (const std::uint32_t sign : {0U, 0x8000U}) {
    for (std::uint32_t fraction = 0; fraction < 1024; ++fraction) {
      patterns.push_back(static_cast<std::uint16_t>(sign | fraction));
      expected.push_back(std::bit_cast<std::uint32_t>(number_of_binary16(sign | fraction)));
    }
  }
  check_widened(EXATTN_F16, patterns, expected);
}

TEST_CASE("16 bits: infinities and NaNs of binary16 stay what they are") {
  check_widened(EXATTN_F16, {0x7C00, 0xFC00, 0x7C01, 0x7DFF, 0x7E00, 0x7FFF, 0xFC01, 0xFFFF},
                {0x7F800000, 0xFF800000, kNan, kNan, kNan, kNan, kNan, kNan});
}

TEST_CASE("attention: scratch of the size asked for holds an item with all of its rows") {
  Problem problem(1, 2, 1, 200, 64, 16, 24);
  problem.make_means();
  std::size_t bytes = 0;
  REQUIRE(exattn_attention_scratch_size(&problem.args, &bytes) == EXATTN_OK);
  std::vector<unsigned char> memory(bytes + 65536, 0xC3);
  problem.args.scratch = memory.data();
  problem.args.scratch_size = bytes;
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.values() == problem.expected_means());
  CHECK(std::vector<unsigned char>(memory.begin() + static_cast<std::ptrdiff_t>(bytes), memory.end()) ==
        std::vector<unsigned char>(65536, 0xC3));
}

TEST_CASE("evaluate: the exponential is cut off below 2^-126") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    const std::vector<float> x = {std::bit_cast<float>(0xC2AEAC4FU),
                                  std::bit_cast<float>(0xC2AEAC50U),
                                  -88.0F,
                                  -100.0F,
                                  -103.0F,
                                  -1e30F,
                                  -kInfinity};
    std::vector<float> y(x.size(), 1.0F);
    REQUIRE(exattn_evaluate(EXATTN_FUNCTION_EXP, flavour, lanes, x.data(), y.data(), x.size()) == EXATTN_OK);
    CHECK(y[0] >= 0x1p-126F);
    CHECK(static_cast<double>(y[0]) == doctest::Approx(std::exp(static_cast<double>(x[0]))).epsilon(1e-6));
    for (std::size_t n = 1; n < y.size(); ++n) {
      INFO("x = " << x[n]);
      CHECK(std::bit_cast<std::uint32_t>(y[n]) == 0);
    }
  });
}
