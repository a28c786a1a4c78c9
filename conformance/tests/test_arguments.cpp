// Every argument error: its status, its words, and that nothing has been written; and arguments that look wrong but
// are not.
#include "problem.hpp"
#include "state.hpp"
#include "state_bytes.hpp"

#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
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
  // One group of 16 keys for each KV head, and as many pages.
  void use_packed() {
    args.k = {packed_numbers.data(), EXATTN_F32, 4, {192, 96, 96, 16}};
    args.k_layout = EXATTN_K_PACKED;
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
  std::vector<float> packed_numbers = std::vector<float>(2 * 2 * 16 * 6, 0.25F);
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
      {"k_layout 2", EXATTN_ERROR_ENUM, "k_layout is 2, must be EXATTN_K_ROWS (0) or EXATTN_K_PACKED (1)",
       [](Call &p) { p.args.k_layout = 2; }},
      {"k_layout -1", EXATTN_ERROR_ENUM, "k_layout is -1", [](Call &p) { p.args.k_layout = -1; }},
      // packed keys
      {"packed k with strides of rows", EXATTN_ERROR_STRIDES,
       "k.stride[3] is 1, must be 16, the distance between elements of a packed key",
       [](Call &p) { p.args.k_layout = EXATTN_K_PACKED; }},
      {"packed k rank 3", EXATTN_ERROR_STRIDES, "k.rank is 3, must be 4",
       [](Call &p) {
         p.use_packed();
         p.args.k.rank = 3;
       }},
      {"packed k null", EXATTN_ERROR_NULL,
       "k.data is null, but [batch, kv_heads, kv_len / 16 rounded up, 16 * head_dim] has 384 elements",
       [](Call &p) {
         p.use_packed();
         p.args.k.data = nullptr;
       }},
      {"elements of packed k", EXATTN_ERROR_OVERFLOW,
       "k [batch, kv_heads, kv_len / 16 rounded up, 16 * head_dim] has more bytes",
       [](Call &p) {
         p.use_packed();
         p.args.kv_len = (std::int64_t{1} << 61) / (2 * 2 * 6);
       }},
      {"packed k past the last address, where it holds no key", EXATTN_ERROR_OVERFLOW, "k: its strides",
       [](Call &p) {
         p.use_packed();
         p.args.k.data = fake_address<void>(UINTPTR_MAX - 3 - 382 * 4);
       }},
      {"groups of packed k", EXATTN_ERROR_OVERFLOW, "k: its strides",
       [](Call &p) {
         p.use_packed();
         p.args.kv_len = 17; // two groups
         p.args.k.stride[2] = kHuge / 4 + 1;
       }},
      {"out on the last place of packed k, which holds no key", EXATTN_ERROR_OVERLAP, "out overlaps k",
       [](Call &p) {
         p.use_packed();
         p.args.k.data = p.out.data() - 383;
       }},
      {"packed k in pages of 2", EXATTN_ERROR_OPTION,
       "page_size is 2, must be a multiple of 16 where keys are packed",
       [](Call &p) {
         p.use_packed();
         p.use_pages();
       }},
      {"packed k in pages of 24", EXATTN_ERROR_OPTION, "page_size is 24, must be a multiple of 16",
       [](Call &p) {
         p.use_packed();
         p.use_pages();
         p.args.page_size = 24;
       }},
      {"ragged packed k, a sequence from key 2 on", EXATTN_ERROR_OFFSET,
       "kv_starts[1] is 2, must be a multiple of 16 where keys are packed: round up, and say in kv_lens how many keys "
       "there are",
       [](Call &p) {
         p.use_packed();
         p.use_ragged_keys();
       }},
      {"ragged packed k, the first sequence from key 3 on", EXATTN_ERROR_OFFSET, "kv_starts[0] is 3",
       [](Call &p) {
         p.use_packed();
         p.use_ragged_keys();
         p.kv_starts = {3, 5, 5};
       }},
      {"split_keys 3", EXATTN_ERROR_ENUM,
       "split_keys is 3, must be EXATTN_SPLIT_KEYS_AUTO (0), EXATTN_SPLIT_KEYS_NEVER (1) or EXATTN_SPLIT_KEYS_ALWAYS "
       "(2)",
       [](Call &p) { p.args.split_keys = 3; }},
      {"reserved 1", EXATTN_ERROR_ENUM, "reserved is 1, must be 0", [](Call &p) { p.args.reserved = 1; }},
      {"split_keys -1", EXATTN_ERROR_ENUM, "split_keys is -1, must be ", [](Call &p) { p.args.split_keys = -1; }},
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
      {"lanes 7", EXATTN_ERROR_LANES_UNKNOWN, "lanes is 7, must be one of EXATTN_LANES_*",
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
      {"executor that runs nothing", EXATTN_ERROR_EXECUTOR, "0 of ", 
       [](Call &p) {
         p.args.executor = &an_executor;
         p.args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS; // so small a call would not ask the executor otherwise
       }},
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
  for (const std::int64_t head_dim : {1, 64, 128}) {
    const Problem problem(1, 1, 1, 5, 7, head_dim, head_dim);
    std::size_t bytes = 0;
    REQUIRE(exattn_attention_scratch_size(&problem.args, &bytes) == EXATTN_OK);
    CHECK(bytes <= 128 * 1024 + 64); // of a worker, and what aligning takes
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
  args.split_keys = 3;
  CHECK(exattn_attention_scratch_size(&args, &bytes) == EXATTN_ERROR_ENUM);
  args.split_keys = EXATTN_SPLIT_KEYS_AUTO;
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
  CHECK(exattn_evaluate(exp, EXATTN_EXACT, EXATTN_LANES_COUNT, x.data(), y.data(), 10) == EXATTN_ERROR_LANES_UNKNOWN);
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
