// What the engine hands to a kernel, and what a kernel exports: one constant table per lane kind and flavour.
#pragma once

#include <cstddef>
#include <cstdint>

namespace exattn {

// Rows of a tile, and keys of a block (definition, section 5).
inline constexpr std::int64_t kTileRows = 32;
inline constexpr std::int64_t kBlockKeys = 64;
// Keys that lie side by side, element by element, where they are packed (definition, section 3).
inline constexpr std::int64_t kGroupKeys = 16;
// The most rows that one work item has.
inline constexpr std::int64_t kMaxItemRows = 128;
// The most rows that a strip of the tile loop has, and columns of a register tile.
inline constexpr std::int64_t kMaxStripRows = 32;

struct Strided {
  const float *data = nullptr;
  std::int64_t stride[4] = {0, 0, 0, 0};
};

// Queries, keys or values, which may be stored in 16 bits.
enum class Storage : std::uint8_t { kFloat32, kBfloat16, kFloat16 };

struct StridedStorage {
  const void *data = nullptr;
  Storage storage = Storage::kFloat32;
  std::int64_t stride[4] = {0, 0, 0, 0}; // in elements
};

struct StridedBytes {
  const std::uint8_t *data = nullptr;
  std::int64_t stride[4] = {0, 0, 0, 0};
};

struct StridedOutput {
  float *data = nullptr;
  std::int64_t stride[4] = {0, 0, 0, 0};
};

// A checked attention call. Kernels trust every field.
struct AttentionPlan {
  std::int64_t batch, heads, kv_heads, q_len, kv_len, head_dim, value_dim;
  StridedStorage q, k, v;
  bool k_packed;          // k is [batch, kv_heads, groups, head_dim * kGroupKeys], in pages and ragged likewise
  Strided mask;           // data null: none
  StridedBytes mask_bool; // data null: none
  StridedOutput out, lse; // data null: not wanted
  float scale;
  float softcap; // 0: none
  bool causal;
  bool fully_masked_zero;
  std::int64_t q_offset, window;  // window <= 0: none
  const float *sinks;             // [heads] or null
  const float *alibi_slopes;      // [heads] or null
  const std::int64_t *q_offsets;  // [batch] or null
  const std::int64_t *kv_lens;    // [batch] or null
  const std::int64_t *q_starts;   // [batch + 1] or null: ragged, q, out, lse and the masks have no batch
  const std::int64_t *kv_starts;  // [batch + 1] or null: ragged, k and v have no batch
  const std::int32_t *page_table; // [batch, page_table_stride] or null: k and v are [pages, kv_heads, page_size, size]
  std::int64_t page_table_stride, page_size;
  std::int64_t kv_offset;        // absolute position of key 0, a multiple of kBlockKeys
  const unsigned char *state_in; // rows of a state (definition, section 14), or null: rows start afresh
  unsigned char *state_out;      // rows of a state, or null

  // Where the phases of calls with split keys hand on what they have computed, for each item: scores, then weights, as
  // [split_blocks][split_rows][kBlockKeys]; the maximum and the sum of each block as [split_blocks][2][split_rows];
  // m, l and flags of a state as [split_rows][3].
  float *split;
  std::int64_t split_rows, split_blocks;
};

// Floats of an item in split, a multiple of 16.
constexpr std::int64_t split_floats(std::int64_t rows, std::int64_t blocks) {
  return (rows * (blocks * (kBlockKeys + 2) + 3) + 15) / 16 * 16;
}

// Which steps of the definition's section 6 an item takes. With split keys, an item of rows takes them in three phases,
// each cut up further: scores and block maxima by blocks; weights and block sums by blocks; the rest by value columns.
enum class Phase : std::uint8_t { kWhole, kScores, kWeights, kValues };

// What one worker computes at a time: some rows that share a KV head, (query row, head of the group) with the head
// fastest, over some key blocks, counted from the first in which a row of the item may see a key, and some value
// columns. plan.cpp cuts calls into them.
struct WorkItem {
  Phase phase;
  std::int64_t batch, kv_head;
  std::int64_t first_row, rows;
  std::int64_t index; // of the item's rows, in split
  std::int64_t first_block, end_block;
  std::int64_t first_column, columns;
};

struct SoftmaxPlan {
  std::int64_t shape[4];
  Strided x;
  StridedOutput y;
};

struct Kernel {
  const char *name; // "avx2/exact"
  void (*attention)(const AttentionPlan &plan, const WorkItem &item, void *scratch);
  // Rows first_row .. first_row + rows of the [d0, d1, d2] rows, last dimension fastest.
  void (*softmax)(const SoftmaxPlan &plan, std::int64_t first_row, std::int64_t rows);
  void (*evaluate)(std::int32_t function, const float *x, float *y, std::size_t n);
};

} // namespace exattn

// One per translation unit kernel_*.cpp; which of them are built, src/CMakeLists.txt says (EXATTN_HAVE_<LANES>).
extern "C" {
extern const exattn::Kernel exattn_kernel_scalar_exact;
extern const exattn::Kernel exattn_kernel_scalar_fast;
extern const exattn::Kernel exattn_kernel_sse2_exact;
extern const exattn::Kernel exattn_kernel_avx2_exact;
extern const exattn::Kernel exattn_kernel_avx2_fast;
extern const exattn::Kernel exattn_kernel_avx512_exact;
extern const exattn::Kernel exattn_kernel_avx512_fast;
extern const exattn::Kernel exattn_kernel_avx512n_exact;
extern const exattn::Kernel exattn_kernel_neon64_exact;
extern const exattn::Kernel exattn_kernel_neon64_fast;
}
