// The tile loop: attention for one work item, in the steps of docs/definition.md, section 6. Written once; a lane kind
// and a flavour make a kernel of it.
//
// Lanes hold query rows. A strip is tile_rows vectors of rows; its queries, weights and accumulators are stored with
// the rows innermost, so every step of the definition is one vector operation for many rows, sums over keys and the
// maximum need no operation across lanes, and head sizes need no padding. The keys of a block are packed transposed, 16
// at a time, unless the caller has them so: the score product then broadcasts from consecutive addresses.
// docs/architecture.md gives the reasons.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "exact/functions.hpp"
#include "few_rows.hpp"
#include "kernel.hpp"
#include "lanes.hpp"
#include "state.hpp"
#include "transpose.hpp"
#include "widen.hpp"

namespace exattn {

template <class Lanes, class Flavour>
class TileLoop {
  using Few = FewRows<Lanes, Flavour>;
  using Float = typename Lanes::Float;
  using Mask = typename Lanes::Mask;

  static constexpr int kWidth = Lanes::width;
  static constexpr int kVectors = Lanes::strip_vectors;
  static constexpr int kStripRows = kWidth * kVectors;
  // A register tile: so many vectors of rows by so many keys, or columns of the values.
  static constexpr int kTileVectors = Lanes::tile(Flavour::fused).vectors;
  static constexpr int kColumns = Lanes::tile(Flavour::fused).columns;
  static constexpr int kPackedKeys = int{kGroupKeys};
  static constexpr int kGroups = int{kBlockKeys} / kPackedKeys; // in a block
  static constexpr int kPartialSums = 16;
  static constexpr std::int64_t kColumnsGathered = kMaxStripRows; // of values, for few rows
  static_assert(kPackedKeys % kColumns == 0 && kVectors % kTileVectors == 0 && kTileRows % kStripRows == 0);
  static_assert(kStripRows <= kMaxStripRows && kColumns <= kMaxStripRows);
  // What a call reads in all, up to which it is taken to lie in a second-level cache: to ask for it ahead would only
  // cost time. From the third level, 9 MiB took a fifth less time on a Xeon, and as long as before on Zen 5.
  static constexpr std::int64_t kCachedBytes = std::int64_t{1} << 20;
  // With one lane there is nothing that few rows could leave idle.
  static constexpr int kFewRows = kWidth == 1 ? 0 : kStripRows / 2;

  // The keys that a strip sees of the current block, as positions in the block: every row sees those in
  // [all_begin, all_end); outside [any_begin, any_end) no row sees any; between, each row has its own limits, or, with
  // a boolean mask that hides something, an entry for each key.
  struct Visibility {
    Float row_begin[kVectors], row_end[kVectors];
    const float *seen; // [kBlockKeys][kStripRows], 1 for a key that the row sees, else 0; or null
    int any_begin, any_end, all_begin, all_end;

    bool empty() const { return any_begin >= any_end; }
    bool partial(int begin, int end) const { return begin < all_begin || end > all_end; }
    Mask sees(int vector, int key) const {
      if (seen != nullptr) {
        return Lanes::less(Lanes::broadcast(0.0F), Lanes::load(seen + key * kStripRows + vector * kWidth));
      }
      const Float position = Lanes::broadcast(static_cast<float>(key));
      return Lanes::both(Lanes::negate(Lanes::less(position, row_begin[vector])),
                         Lanes::less(position, row_end[vector]));
    }
  };

  struct Interval {
    int begin, end;
    bool operator==(const Interval &) const = default;
  };

  struct Strip {
    float *queries;                                  // [head_dim][kStripRows], if few [rows][head_dim]
    float *acc;                                      // [value_dim][kStripRows], if few [rows][value_dim]
    float *m, *l;                                    // [kStripRows]
    std::int64_t rows;                               // how many are real
    std::int64_t first;                              // row of the KV head's group
    std::int64_t position[kStripRows];               // counted from the call's first key; may be negative
    std::int64_t begin[kStripRows], end[kStripRows]; // keys that a row may see
    std::int64_t all_begin, all_end;                 // keys that every row may see
    const float *mask[kStripRows];                   // mask row
    const std::uint8_t *mask_bool[kStripRows];       // row of the boolean mask
    float minus_slope[kStripRows];                   // of ALiBi
    bool saw_key[kStripRows], sink[kStripRows];      // has seen a key, has a sink

    // So few rows that lanes would be idle: steps 6.1, 6.3, 6.4 and 6.6 then put keys and columns into the lanes.
    bool few() const { return kFewRows > 0 && rows <= kFewRows; }
  };

public:
  static void run(const AttentionPlan &plan, const WorkItem &item, void *scratch) {
    TileLoop(plan, item, scratch).run();
  }

private:
  TileLoop(const AttentionPlan &plan, const WorkItem &work, void *scratch)
      : call(plan), item(work), head_dim(plan.head_dim), value_dim(work.columns),
        group_heads(plan.heads / plan.kv_heads), batch(work.batch), kv_head(work.kv_head) {
    first_query = plan.q_starts != nullptr ? plan.q_starts[batch] : 0;
    first_key = plan.kv_starts != nullptr ? plan.kv_starts[batch] : 0;
    key_count = plan.kv_lens != nullptr     ? plan.kv_lens[batch]
                : plan.kv_starts != nullptr ? plan.kv_starts[batch + 1] - first_key
                                            : plan.kv_len;
    free_scratch = static_cast<float *>(scratch);
    packing_space = take(kBlockKeys * head_dim);
    score_tile = take(kBlockKeys * kMaxStripRows);
    seen_tile = take(kBlockKeys * kMaxStripRows);
    spare_tile = take(kBlockKeys * kMaxStripRows);
  }

  void run() {
    const std::int64_t strips = (item.rows + kStripRows - 1) / kStripRows;
    std::int64_t begin = key_count, end = 0; // keys that any row of the item may see
    Strip strip[kMaxItemRows / kStripRows];
    for (std::int64_t s = 0; s < strips; ++s) {
      start(strip[s], s);
      for (std::int64_t r = 0; r < strip[s].rows; ++r) {
        if (strip[s].begin[r] < strip[s].end[r]) {
          begin = std::min(begin, strip[s].begin[r]);
          end = std::max(end, strip[s].end[r]);
        }
      }
    }
    const std::int64_t first = begin / kBlockKeys * kBlockKeys;
    const std::int64_t blocks = begin < end ? (end - first - 1) / kBlockKeys + 1 : 0;
    for (std::int64_t s = 0; s < strips && item.phase == Phase::kWeights; ++s) {
      catch_up(strip[s], std::min(item.first_block, blocks));
    }
    for (std::int64_t n = item.first_block; n < std::min(item.end_block, blocks); ++n) {
      const std::int64_t block = first + n * kBlockKeys;
      locate(block, std::max(begin, block), std::min(end, block + kBlockKeys));
      if (strip[0].few() && bytes_read(end - begin) > kCachedBytes) {
        look_ahead(block, std::max(begin, block), end);
      }
      if (item.phase <= Phase::kScores) {
        pack_keys(block, std::max(begin, block), std::min(end, block + kBlockKeys), strip[0].few());
      }
      for (std::int64_t s = 0; s < strips; ++s) {
        take_block(strip[s], n, block);
      }
    }
    for (std::int64_t s = 0; s < strips && (item.phase == Phase::kWhole || item.phase == Phase::kValues); ++s) {
      if (call.state_out != nullptr) {
        save_state(strip[s]); // 14
      }
      finish(strip[s]); // 6.7, 6.8
    }
  }

  // The n-th block of the item, whose first key is `block`. With split keys, one phase of it.
  void take_block(Strip &strip, std::int64_t n, std::int64_t block) {
    if (item.phase != Phase::kWhole) {
      score_tile = kept_tile(strip, n);
    }
    const Visibility visible = visibility(strip, block); // 4
    if (visible.empty()) {
      if (item.phase == Phase::kScores) {
        std::fill_n(kept_maximum(strip, n), strip.rows, -kInfinity);
      }
      return;
    }
    Float maximum[kVectors], shift[kVectors], sum[kVectors], alpha[kVectors];
    if (item.phase <= Phase::kScores) {
      scores(strip, block, visible, maximum); // 6.1, and the block's part of 6.2
    } else {
      recall(kept_maximum(strip, n), strip.rows, maximum);
    }
    if (item.phase == Phase::kScores) {
      keep(maximum, strip.rows, kept_maximum(strip, n));
      return;
    }
    raise_maximum(strip, maximum, shift, alpha); // 6.2, and alpha of 6.5
    if (item.phase <= Phase::kWeights) {
      weights(strip, visible, shift, sum); // 6.3, 6.4
    } else {
      recall(kept_sum(strip, n), strip.rows, sum);
    }
    if (item.phase == Phase::kWeights) {
      keep(sum, strip.rows, kept_sum(strip, n));
      return;
    }
    rescale_sum(strip, alpha, sum);       // 6.5 for l
    values(strip, block, visible, alpha); // 6.5 for acc, 6.6
  }

  float *take(std::int64_t floats) {
    float *taken = free_scratch;
    free_scratch += floats;
    return taken;
  }

  // ---- Start: queries packed, keys that each row may see (section 4), state (sections 6, 10 and 14) ----

  std::int64_t head(std::int64_t row) const { return kv_head * group_heads + row % group_heads; }
  std::int64_t query_row(std::int64_t row) const { return row / group_heads; }

  // Where row i of the item's sequence lies in a tensor with the rows of the queries. Ragged tensors have no batch.
  std::int64_t place(const std::int64_t (&stride)[4], std::int64_t h, std::int64_t i) const {
    const std::int64_t b = call.q_starts != nullptr ? 0 : batch;
    return b * stride[0] + h * stride[1] + (first_query + i) * stride[2];
  }

  void start(Strip &strip, std::int64_t index) {
    strip.queries = take(head_dim * kStripRows);
    strip.acc = take(value_dim * kStripRows);
    strip.m = take(kStripRows);
    strip.l = take(kStripRows);
    strip.first = item.first_row + index * kStripRows;
    strip.rows = std::min<std::int64_t>(kStripRows, item.rows - index * kStripRows);
    strip.all_begin = 0;
    strip.all_end = key_count;
    std::memset(strip.acc, 0, static_cast<std::size_t>(value_dim * kStripRows) * sizeof(float));

    const std::int64_t offset = (call.q_offsets != nullptr ? call.q_offsets[batch] : call.q_offset) - call.kv_offset;
    const unsigned char *query[kStripRows];
    for (std::int64_t r = 0; r < kStripRows; ++r) {
      // Lanes without a row repeat the last one and are thrown away.
      const std::int64_t row = strip.first + std::min(r, strip.rows - 1);
      const std::int64_t h = head(row), i = query_row(row), position = offset + i;
      query[r] = bytes_of(call.q) + place(call.q.stride, h, i) * element_bytes(call.q.storage);
      strip.mask[r] = call.mask.data != nullptr ? call.mask.data + place(call.mask.stride, h, i) : nullptr;
      strip.mask_bool[r] =
          call.mask_bool.data != nullptr ? call.mask_bool.data + place(call.mask_bool.stride, h, i) : nullptr;
      strip.minus_slope[r] = call.alibi_slopes != nullptr ? -call.alibi_slopes[h] : 0.0F;
      strip.position[r] = position;
      strip.begin[r] = call.window > 0 && position >= call.window ? position - call.window + 1 : 0;
      strip.end[r] = call.causal ? std::clamp<std::int64_t>(position + 1, 0, key_count) : key_count;
      strip.begin[r] = std::min(strip.begin[r], strip.end[r]);
      strip.all_begin = std::max(strip.all_begin, strip.begin[r]);
      strip.all_end = std::min(strip.all_end, strip.end[r]);
      strip.saw_key[r] = call.mask_bool.data == nullptr && strip.begin[r] < strip.end[r];
      if (call.state_in != nullptr) {
        load_state(strip, r, h, i);
        continue;
      }
      const float sink = call.sinks != nullptr ? call.sinks[h] : -kInfinity;
      strip.sink[r] = !(sink == -kInfinity);
      const bool finite = sink > -kInfinity && sink < kInfinity;
      strip.m[r] = finite ? sink : -kInfinity;
      strip.l[r] = finite ? 1.0F : strip.sink[r] ? std::bit_cast<float>(kCanonicalNan) : 0.0F;
    }
    if (strip.few()) {
      for (std::int64_t r = 0; r < strip.rows; ++r) {
        widen(query[r], call.q.storage, call.q.stride[3], head_dim, strip.queries + r * head_dim);
      }
    } else {
      pack_rows(query, kStripRows, call.q.storage, call.q.stride[3], strip.queries, kStripRows);
    }
  }

  float &acc_at(const Strip &strip, std::int64_t r, std::int64_t x) const {
    return strip.acc[strip.few() ? r * value_dim + x : x * kStripRows + r];
  }

  static const unsigned char *bytes_of(const StridedStorage &tensor) {
    return static_cast<const unsigned char *>(tensor.data);
  }

  // to[x * to_stride + r] = element x of row r, widened, for the head_dim elements of each row.
  void pack_rows(const unsigned char *const *row, std::int64_t rows, Storage storage, std::int64_t stride, float *to,
                 std::int64_t to_stride) const {
    constexpr std::int64_t kMost = std::max(kPackedKeys, kStripRows), kChunk = 16;
    const float *from[kMost];
    if (storage == Storage::kFloat32) {
      for (std::int64_t r = 0; r < rows; ++r) {
        from[r] = reinterpret_cast<const float *>(row[r]);
      }
      transpose<Lanes>(from, rows, stride, head_dim, to, to_stride);
      return;
    }
    float chunk[kMost][kChunk];
    for (std::int64_t x = 0; x < head_dim; x += kChunk) {
      const std::int64_t count = std::min(kChunk, head_dim - x);
      for (std::int64_t r = 0; r < rows; ++r) {
        widen(row[r] + x * stride * element_bytes(storage), storage, stride, count, chunk[r]);
        from[r] = chunk[r];
      }
      transpose<Lanes>(from, rows, 1, count, to + x * to_stride, to_stride);
    }
  }

  // ---- States (section 14) ----

  std::int64_t state_row(std::int64_t h, std::int64_t i) const {
    const std::int64_t b = call.q_starts != nullptr ? 0 : batch;
    return ((b * call.heads + h) * call.q_len + first_query + i) * state_row_bytes(call.value_dim);
  }

  void load_state(Strip &strip, std::int64_t r, std::int64_t h, std::int64_t i) const {
    const unsigned char *const from = call.state_in + state_row(h, i);
    const unsigned char *row = from; // m, l and flags
    if (item.phase == Phase::kWeights && item.first_block == 0) {
      std::memcpy(kept_state(strip, r), row, 12);
    } else if (item.phase == Phase::kValues) { // a state in place may hold those of its end already
      row = reinterpret_cast<const unsigned char *>(kept_state(strip, r));
    }
    const std::uint32_t flags = load_le32(row + 8);
    strip.m[r] = std::bit_cast<float>(load_le32(row));
    strip.l[r] = std::bit_cast<float>(load_le32(row + 4));
    strip.saw_key[r] = strip.saw_key[r] || (flags & kStateSawKey) != 0;
    strip.sink[r] = (flags & kStateHasSink) != 0;
    for (std::int64_t x = 0; x < value_dim; ++x) {
      acc_at(strip, r, x) = std::bit_cast<float>(load_le32(from + 12 + 4 * (item.first_column + x)));
    }
  }

  void save_state(const Strip &strip) const {
    const auto word = [](float value) { return value == value ? std::bit_cast<std::uint32_t>(value) : kCanonicalNan; };
    for (std::int64_t r = 0; r < strip.rows; ++r) {
      const std::int64_t row = strip.first + r;
      unsigned char *const to = call.state_out + state_row(head(row), query_row(row));
      if (item.first_column == 0) {
        store_le32(to, word(strip.m[r] == 0.0F ? 0.0F : strip.m[r]));
        store_le32(to + 4, word(strip.l[r]));
        store_le32(to + 8, (strip.saw_key[r] ? kStateSawKey : 0U) | (strip.sink[r] ? kStateHasSink : 0U));
      }
      for (std::int64_t x = 0; x < value_dim; ++x) {
        store_le32(to + 12 + 4 * (item.first_column + x), word(acc_at(strip, r, x)));
      }
    }
  }

  // ---- The keys that a strip sees of a block (section 4) ----

  // But for a boolean mask; positions in the block.
  Interval interval(const Strip &strip, std::int64_t r, std::int64_t block) const {
    return {static_cast<int>(std::clamp<std::int64_t>(strip.begin[r] - block, 0, kBlockKeys)),
            static_cast<int>(std::clamp<std::int64_t>(strip.end[r] - block, 0, kBlockKeys))};
  }

  Visibility visibility(Strip &strip, std::int64_t block) {
    if (strip.all_begin <= block && block + kBlockKeys <= strip.all_end && call.mask_bool.data == nullptr) {
      return {{}, {}, nullptr, 0, int{kBlockKeys}, 0, int{kBlockKeys}};
    }
    Visibility visible{{}, {}, nullptr, int{kBlockKeys}, 0, 0, int{kBlockKeys}};
    float begins[kStripRows], ends[kStripRows];
    for (int r = 0; r < kStripRows; ++r) {
      const auto [begin, end] = interval(strip, r, block);
      begins[r] = static_cast<float>(begin);
      ends[r] = static_cast<float>(end);
      if (begin < end) {
        visible.any_begin = std::min(visible.any_begin, begin);
        visible.any_end = std::max(visible.any_end, end);
      }
      visible.all_begin = std::max(visible.all_begin, begin);
      visible.all_end = std::min(visible.all_end, end);
    }
    visible.all_begin = std::clamp(visible.all_begin, visible.any_begin, std::max(visible.any_begin, visible.any_end));
    visible.all_end = std::clamp(visible.all_end, visible.all_begin, std::max(visible.all_begin, visible.any_end));
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      visible.row_begin[n] = Lanes::load(begins + n * kWidth);
      visible.row_end[n] = Lanes::load(ends + n * kWidth);
    }
    if (call.mask_bool.data != nullptr && !visible.empty()) {
      look_through_mask(strip, block, visible);
    }
    return visible;
  }

  // Takes the keys that the boolean mask hides out of what the rows' intervals let them see.
  void look_through_mask(Strip &strip, std::int64_t block, Visibility &visible) {
    const int begin = visible.any_begin, end = visible.any_end;
    const int first = begin / kPackedKeys * kPackedKeys, last = (end + kPackedKeys - 1) / kPackedKeys * kPackedKeys;
    std::fill(seen_tile + first * kStripRows, seen_tile + last * kStripRows, 0.0F);
    visible.any_begin = int{kBlockKeys};
    visible.any_end = 0;
    bool gaps = false;
    const int rows = strip.few() ? static_cast<int>(strip.rows) : kStripRows;
    for (int r = 0; r < rows; ++r) {
      const auto [row_begin, row_end] = interval(strip, r, block);
      for (int key = row_begin; key < row_end; ++key) {
        if (is_masked(strip, r, block + key)) {
          gaps = true;
          continue;
        }
        seen_tile[key * kStripRows + r] = 1.0F;
        strip.saw_key[r] = true;
        visible.any_begin = std::min(visible.any_begin, key);
        visible.any_end = std::max(visible.any_end, key + 1);
      }
    }
    if (gaps) {
      visible.seen = seen_tile;
      visible.all_begin = visible.all_end = visible.any_begin;
    }
  }

  // ---- Keys and values of a block ----

  // Where the rows of keys and values [begin, end) lie, which may be in several pages, and whether values can be read
  // in place: binary32, side by side, with one distance between rows. Packed keys lie in rows of a whole group.
  void locate(std::int64_t block, std::int64_t begin, std::int64_t end) {
    const bool one_page = call.page_table == nullptr || begin / call.page_size == (end - 1) / call.page_size;
    values_in_place = one_page && call.v.storage == Storage::kFloat32 && call.v.stride[3] == 1;
    locate_rows(call.k, key_row_keys(), 0, begin, end, key_row + (begin - block) / key_row_keys());
    locate_rows(call.v, 1, item.first_column, begin, end, value_row + (begin - block));
  }

  // Of keys and values, by a call all of whose sequences are like this one.
  std::int64_t bytes_read(std::int64_t keys) const {
    const std::int64_t row = head_dim * element_bytes(call.k.storage) + call.value_dim * element_bytes(call.v.storage);
    return call.batch * call.kv_heads * keys * row;
  }

  // While few rows work on the keys of a block, its values are brought, and then the keys of the next block. With split
  // keys, a phase reads one of the two, and brings those of the next block.
  void look_ahead(std::int64_t block, std::int64_t begin, std::int64_t end) {
    const std::int64_t next = block + kBlockKeys, keys = std::clamp<std::int64_t>(end - next, 0, kBlockKeys);
    const std::int64_t value_bytes = value_dim * element_bytes(call.v.storage);
    if (item.phase == Phase::kValues) {
      if (keys > 0) {
        locate_rows(call.v, 1, item.first_column, next, next + keys, next_row);
      }
      ahead_of_values = {next_row, keys, value_bytes};
      return;
    }
    if (keys > 0) {
      locate_rows(call.k, key_row_keys(), 0, next, next + keys, next_row);
    }
    const typename Few::Ahead next_keys = {next_row, (keys + key_row_keys() - 1) / key_row_keys(),
                                           key_row_keys() * head_dim * element_bytes(call.k.storage)};
    ahead_of_keys = item.phase == Phase::kScores
                        ? next_keys
                        : typename Few::Ahead{value_row + (begin - block), std::min(end, next) - begin, value_bytes};
    ahead_of_values = next_keys;
  }

  // How many keys a row of k holds.
  std::int64_t key_row_keys() const {
    return call.k_packed ? kPackedKeys : 1;
  }

  // row_keys: how many keys a row of the tensor holds. Pages and ragged sequences begin with a row.
  void locate_rows(const StridedStorage &tensor, std::int64_t row_keys, std::int64_t column, std::int64_t begin,
                   std::int64_t end, const unsigned char **row) const {
    const std::int64_t size = element_bytes(tensor.storage), page_rows = call.page_size / row_keys;
    begin /= row_keys;
    end = (end + row_keys - 1) / row_keys;
    const auto run = [&](std::int64_t b, std::int64_t key, std::int64_t count) {
      const std::int64_t first = b * tensor.stride[0] + kv_head * tensor.stride[1] + key * tensor.stride[2];
      const unsigned char *const from = bytes_of(tensor) + (first + column * tensor.stride[3]) * size;
      for (std::int64_t n = 0; n < count; ++n) {
        *row++ = from + n * tensor.stride[2] * size;
      }
    };
    if (call.page_table == nullptr) {
      run(call.kv_starts != nullptr ? 0 : batch, first_key / row_keys + begin, end - begin);
      return;
    }
    const std::int32_t *page = call.page_table + batch * call.page_table_stride + begin / page_rows;
    for (std::int64_t slot = begin % page_rows; begin < end; slot = 0, ++page) {
      const std::int64_t count = std::min(end - begin, page_rows - slot);
      run(*page, slot, count);
      begin += count;
    }
  }

  // Keys [begin, end) of the block, transposed, 16 side by side: [head_dim][16] for each group. Places of the groups in
  // use that hold no such key are zero, or whatever the caller's packed keys hold there: no row sees their scores. What
  // only few rows read is not packed where it lies side by side.
  void pack_keys(std::int64_t block, std::int64_t begin, std::int64_t end, bool only_few) {
    block_keys = {{}, {}, call.k.stride[2]};
    const bool plain = only_few && call.k.storage == Storage::kFloat32 && call.k.stride[3] == 1;
    for (std::int64_t first = (begin - block) / kPackedKeys * kPackedKeys; first < end - block; first += kPackedKeys) {
      const std::int64_t group = first / kPackedKeys;
      float *const to = packing_space + first * head_dim;
      block_keys.packed[group] = to;
      if (call.k_packed) {
        if (call.k.storage == Storage::kFloat32) {
          block_keys.packed[group] = reinterpret_cast<const float *>(key_row[group]);
        } else {
          widen(key_row[group], call.k.storage, 1, kPackedKeys * head_dim, to);
        }
        continue;
      }
      const std::int64_t from = std::max(begin - block, first);
      const std::int64_t count = std::min(end - block, first + kPackedKeys) - from;
      if (plain && count == kPackedKeys && side_by_side(key_row + first)) {
        block_keys.in_place[group] = reinterpret_cast<const float *>(key_row[first]);
        continue;
      }
      if (count < kPackedKeys) {
        std::memset(to, 0, static_cast<std::size_t>(kPackedKeys * head_dim) * sizeof(float));
      }
      pack_rows(key_row + from, count, call.k.storage, call.k.stride[3], to + (from - first), kPackedKeys);
    }
  }

  // Whether the keys of a group have one distance; in pages they may not.
  bool side_by_side(const unsigned char *const *row) const {
    const std::int64_t distance = call.k.stride[2] * element_bytes(call.k.storage);
    for (int n = 1; n < kPackedKeys; ++n) {
      if (row[n] - row[0] != n * distance) {
        return false;
      }
    }
    return true;
  }

  // ---- 6.1 Scores ----

  void scores(const Strip &strip, std::int64_t block, const Visibility &visible, Float (&maximum)[kVectors]) {
    const bool capped = call.softcap > 0.0F;
    const bool biased = call.mask.data != nullptr || call.alibi_slopes != nullptr;
    if (strip.few()) {
      few_scores(strip, block, visible, biased, maximum);
      return;
    }
    if (biased) {
      gather_bias(strip, block, visible);
    }
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      maximum[n] = Lanes::broadcast(-kInfinity);
    }
    for (int first = visible.any_begin / kPackedKeys * kPackedKeys; first < visible.any_end; first += kPackedKeys) {
      for (int key = first; key < first + kPackedKeys; key += kColumns) {
#pragma GCC unroll 16
        for (int n = 0; n < kVectors; n += kTileVectors) {
          Float dot[kColumns][kTileVectors];
          dot_products(strip.queries + n * kWidth, block_keys.packed[first / kPackedKeys] + (key - first), dot);
          if (capped) {
            store_products(dot, key, n);
          } else if (biased || visible.partial(first, first + kPackedKeys)) {
            store_scores<true>(dot, visible, biased, key, n, maximum);
          } else {
            store_scores<false>(dot, visible, false, key, n, maximum);
          }
        }
      }
    }
    if (capped) {
      cap_scores(visible, biased, maximum);
    }
  }

  // Scaled, to be capped.
  void store_products(const Float (&dot)[kColumns][kTileVectors], int key, int vector) const {
    const Float scale = Lanes::broadcast(call.scale);
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
      for (int n = 0; n < kTileVectors; ++n) {
        Lanes::store(score_at(key + c, vector + n), Lanes::multiply(dot[c][n], scale));
      }
    }
  }

  template <bool special>
  void store_scores(const Float (&dot)[kColumns][kTileVectors], const Visibility &visible, bool biased, int key,
                    int vector, Float (&maximum)[kVectors]) const {
    const Float scale = Lanes::broadcast(call.scale);
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
      for (int n = 0; n < kTileVectors; ++n) {
        // Without a bias, muladd(d, scale, +0) is the product (but for the sign of a zero, which no result shows).
        Float score = special && biased ? Flavour::muladd(dot[c][n], scale, Lanes::load(bias_at(key + c, vector + n)))
                                        : Lanes::multiply(dot[c][n], scale);
        // A hidden key: -inf is no maximum and has the weight +0.
        if (special && visible.partial(key + c, key + c + 1)) {
          score = Lanes::select(visible.sees(vector + n, key + c), score, Lanes::broadcast(-kInfinity));
        }
        maximum[vector + n] = Lanes::larger(maximum[vector + n], score);
        Lanes::store(score_at(key + c, vector + n), score);
      }
    }
  }

  float *score_at(int key, int vector) const {
    return score_tile + key * kStripRows + vector * kWidth;
  }
  float *bias_at(int key, int vector) const {
    return spare_tile + key * kStripRows + vector * kWidth;
  }

  // The scaled products in the score tile become scores.
  void cap_scores(const Visibility &visible, bool biased, Float (&maximum)[kVectors]) const {
    const Float cap = Lanes::broadcast(call.softcap);
    const int first = visible.any_begin / kPackedKeys * kPackedKeys;
    const int last = (visible.any_end + kPackedKeys - 1) / kPackedKeys * kPackedKeys;
    for (int key = first; key < last; ++key) {
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        const Float bounded = tangent<Lanes, Flavour>(Lanes::divide(Lanes::load(score_at(key, n)), cap));
        Float score =
            biased ? Flavour::muladd(cap, bounded, Lanes::load(bias_at(key, n))) : Lanes::multiply(cap, bounded);
        if (visible.partial(key, key + 1)) {
          score = Lanes::select(visible.sees(n, key), score, Lanes::broadcast(-kInfinity));
        }
        maximum[n] = Lanes::larger(maximum[n], score);
        Lanes::store(score_at(key, n), score);
      }
    }
  }

  // The same with keys in the lanes: score_of(r)[key].
  void few_scores(const Strip &strip, std::int64_t block, const Visibility &visible, bool biased,
                  Float (&maximum)[kVectors]) {
    const int first = visible.any_begin / kPackedKeys, last = (visible.any_end + kPackedKeys - 1) / kPackedKeys;
    Few::products(strip.queries, strip.rows, head_dim, block_keys, first, last, score_tile, ahead_of_keys);
    float largest[kStripRows];
    std::fill(largest, largest + kStripRows, -kInfinity);
    for (std::int64_t r = 0; r < strip.rows; ++r) {
      const Interval sees = interval(strip, r, block);
      float *const score = score_of(r);
      Few::scores(score, biased ? few_bias(strip, r, block, sees) : nullptr, call.scale, call.softcap, first, last);
      // A boolean mask may have left out groups in which the row's interval begins or ends.
      const int begin = std::clamp(sees.begin, first * kPackedKeys, last * kPackedKeys);
      const int end = std::clamp(sees.end, begin, last * kPackedKeys);
      std::fill(score + first * kPackedKeys, score + begin, -kInfinity);
      std::fill(score + end, score + last * kPackedKeys, -kInfinity);
      if (visible.seen != nullptr) {
        for (int key = begin; key < end; ++key) {
          score[key] = is_masked(strip, r, block + key) ? -kInfinity : score[key];
        }
      }
      largest[r] = Few::maximum(score, first, last);
    }
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      maximum[n] = Lanes::load(largest + n * kWidth);
    }
  }

  float *score_of(std::int64_t r) const {
    return score_tile + r * kBlockKeys;
  }

  bool is_masked(const Strip &strip, std::int64_t r, std::int64_t key) const {
    return strip.mask_bool[r][key * call.mask_bool.stride[3]] == 0;
  }

  // The bias of the keys of a block that a row sees; what the others have does not matter.
  const float *few_bias(const Strip &strip, std::int64_t r, std::int64_t block, Interval sees) const {
    float *const bias = spare_tile;
    std::fill(bias, bias + kBlockKeys, 0.0F);
    if (call.mask.data != nullptr) {
      const float *const mask = strip.mask[r] + block * call.mask.stride[3];
      for (int key = sees.begin; key < sees.end; ++key) {
        bias[key] = mask[key * call.mask.stride[3]];
      }
    }
    if (call.alibi_slopes != nullptr) {
      const std::int64_t from_block = strip.position[r] - block;
      float distance[kBlockKeys];
      for (int key = 0; key < kBlockKeys; ++key) {
        distance[key] = static_cast<float>(from_block > key ? from_block - key : key - from_block);
      }
      for (int key = 0; key < kBlockKeys; key += kWidth) {
        const Float slope = Lanes::broadcast(strip.minus_slope[r]);
        Lanes::store(bias + key, Flavour::muladd(slope, Lanes::load(distance + key), Lanes::load(bias + key)));
      }
    }
    return bias;
  }

  void dot_products(const float *queries, const float *keys, Float (&dot)[kColumns][kTileVectors]) const {
    Float sum[kColumns][kTileVectors]; // not dot, which Clang would store in every step
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
      for (int n = 0; n < kTileVectors; ++n) {
        sum[c][n] = Lanes::broadcast(0.0F);
      }
    }
#pragma GCC unroll 4
    for (std::int64_t x = 0; x < head_dim; ++x) {
      add_products<kColumns>(queries, keys, sum);
      queries += kStripRows;
      keys += kPackedKeys;
    }
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
      for (int n = 0; n < kTileVectors; ++n) {
        dot[c][n] = sum[c][n];
      }
    }
  }

  // The bias of the keys that any row of the strip sees.
  void gather_bias(const Strip &strip, std::int64_t block, const Visibility &visible) {
    float *const to = bias_at(visible.any_begin, 0);
    const std::int64_t count = visible.any_end - visible.any_begin;
    if (call.mask.data != nullptr) {
      const std::int64_t stride = call.mask.stride[3];
      const float *row[kStripRows];
      for (int r = 0; r < kStripRows; ++r) {
        row[r] = strip.mask[r] + (block + visible.any_begin) * stride;
      }
      transpose<Lanes>(row, kStripRows, stride, count, to, kStripRows);
    } else {
      std::fill(to, to + count * kStripRows, 0.0F);
    }
    if (call.alibi_slopes != nullptr) {
      add_slopes(strip, block, visible);
    }
  }

  void add_slopes(const Strip &strip, std::int64_t block, const Visibility &visible) {
    // Up to 2^23 the distances, and so their differences to a key of the block, are exact numbers.
    constexpr std::int64_t kExact = std::int64_t{1} << 23;
    float distance[kStripRows];
    bool exact = true;
    for (int r = 0; r < kStripRows; ++r) {
      const std::int64_t from_block = strip.position[r] - block;
      exact = exact && from_block < kExact && from_block > -kExact;
      distance[r] = static_cast<float>(from_block);
    }
    for (int key = visible.any_begin; key < visible.any_end; ++key) {
      const float in_block = exact ? static_cast<float>(key) : 0.0F;
      if (!exact) {
        for (int r = 0; r < kStripRows; ++r) {
          distance[r] = static_cast<float>(strip.position[r] - block - key);
        }
      }
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        const Float signed_distance = Lanes::subtract(Lanes::load(distance + n * kWidth), Lanes::broadcast(in_block));
        const Float zero = Lanes::broadcast(0.0F);
        const Float magnitude =
            Lanes::select(Lanes::less(signed_distance, zero), Lanes::subtract(zero, signed_distance), signed_distance);
        const Float slope = Lanes::load(strip.minus_slope + n * kWidth);
        Lanes::store(bias_at(key, n), Flavour::muladd(slope, magnitude, Lanes::load(bias_at(key, n))));
      }
    }
  }

  // ---- 6.2 Maximum ----

  void raise_maximum(Strip &strip, const Float (&maximum)[kVectors], Float (&shift)[kVectors],
                     Float (&alpha)[kVectors]) {
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      const Float old = Lanes::load(strip.m + n * kWidth);
      const Float raised = Lanes::larger(old, maximum[n]);
      shift[n] = Lanes::select(Lanes::equal(raised, Lanes::broadcast(-kInfinity)), Lanes::broadcast(0.0F), raised);
      // E gives +0 for m = -inf and 1 for m = shift by itself. (At m = +inf it gives NaN; such a row is NaN already.)
      alpha[n] = exponential<Lanes, Flavour>(Lanes::subtract(old, shift[n]));
      Lanes::store(strip.m + n * kWidth, raised);
    }
  }

  // ---- 6.3 Weights, 6.4 Block sum ----

  void weights(const Strip &strip, const Visibility &visible, const Float (&shift)[kVectors], Float (&sum)[kVectors]) {
    const int first_group = visible.any_begin / kPackedKeys;
    const int end_group = (visible.any_end + kPackedKeys - 1) / kPackedKeys;
    if (strip.few()) {
      few_weights(strip, first_group, end_group, shift, sum);
    } else if (first_group == 0 && end_group == kGroups) {
      weights_of<Lanes::weights_together>(0, kGroups, shift, sum);
    } else {
      weights_of<1>(first_group, end_group, shift, sum);
    }
  }

  void few_weights(const Strip &strip, int first, int last, const Float (&shift)[kVectors], Float (&sum)[kVectors]) {
    float shifts[kStripRows], sums[kStripRows] = {};
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      Lanes::store(shifts + n * kWidth, shift[n]);
    }
    for (std::int64_t r = 0; r < strip.rows; ++r) {
      sums[r] = Few::weights(score_of(r), shifts[r], first, last);
    }
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      sum[n] = Lanes::load(sums + n * kWidth);
    }
  }

  // Groups begin to end, a multiple of `together`, whose exponentials are computed side by side.
  template <int together>
  void weights_of(int begin, int end, const Float (&shift)[kVectors], Float (&sum)[kVectors]) {
    using Several = SeveralLanes<Lanes, together>;
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      Float partial[kPartialSums];
      for (int t = 0; t < kPartialSums; ++t) {
        Float p = Lanes::broadcast(0.0F);
        for (int group = begin; group < end; group += together) {
          float *const place = score_tile + (group * kPackedKeys + t) * kStripRows + n * kWidth;
          typename Several::Float weight;
#pragma GCC unroll 16
          for (int g = 0; g < together; ++g) {
            weight.part[g] = Lanes::subtract(Lanes::load(place + g * kPackedKeys * kStripRows), shift[n]);
          }
          weight = exponential<Several, typename Flavour::template On<Several>>(weight);
#pragma GCC unroll 16
          for (int g = 0; g < together; ++g) {
            p = Lanes::add(p, weight.part[g]);
            Lanes::store(place + g * kPackedKeys * kStripRows, weight.part[g]);
          }
        }
        partial[t] = p;
      }
      for (int half = kPartialSums / 2; half > 0; half /= 2) {
        for (int t = 0; t < half; ++t) {
          partial[t] = Lanes::add(partial[t], partial[t + half]);
        }
      }
      sum[n] = partial[0];
    }
  }

  // ---- 6.5 Rescale, 6.6 Values ----

  void rescale_sum(Strip &strip, const Float (&alpha)[kVectors], const Float (&sum)[kVectors]) {
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      float *const l = strip.l + n * kWidth;
      Lanes::store(l, Flavour::muladd(Lanes::load(l), alpha[n], sum[n]));
    }
  }

  void values(Strip &strip, std::int64_t block, const Visibility &visible, const Float (&alpha)[kVectors]) {
    if (strip.few()) {
      few_values(strip, block, visible, alpha);
      return;
    }
    bool rescale = false;
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      rescale = rescale || !Lanes::all(Lanes::equal(alpha[n], Lanes::broadcast(1.0F)));
    }
    for (BlockValues values = values_from(visible, 0); values.columns > 0;
         values = values_from(visible, values.x + values.columns)) {
      value_columns<kColumns>(strip, visible, alpha, rescale, values);
    }
  }

  // Columns of the block's values, as binary32.
  struct BlockValues {
    const float *value;      // of the first key that any row sees
    std::int64_t stride;     // between keys
    std::int64_t x, columns; // the first column, and how many
  };

  // From column x on: all, if they can be read in place, else as many as there is room for.
  BlockValues values_from(const Visibility &visible, std::int64_t x) {
    if (values_in_place) {
      const float *const value = reinterpret_cast<const float *>(value_row[visible.any_begin]) + x;
      return {value, call.v.stride[2], x, value_dim - x};
    }
    const std::int64_t stride = call.v.stride[3], offset = x * stride * element_bytes(call.v.storage);
    const std::int64_t columns = std::min(value_dim - x, kColumnsGathered);
    float *to = spare_tile;
    for (int key = visible.any_begin; key < visible.any_end; ++key, to += columns) {
      widen(value_row[key] + offset, call.v.storage, stride, columns, to);
    }
    return {spare_tile, columns, x, columns};
  }

  void few_values(Strip &strip, std::int64_t block, const Visibility &visible, const Float (&alpha)[kVectors]) {
    float alphas[kStripRows];
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      Lanes::store(alphas + n * kWidth, alpha[n]);
    }
    typename Few::Values of{};
    of.acc_stride = value_dim;
    of.ahead = &ahead_of_values;
    for (BlockValues values = values_from(visible, 0); values.columns > 0;
         values = values_from(visible, values.x + values.columns)) {
      of.value_stride = values.stride;
      for (std::int64_t r = 0, together = 0; r < strip.rows; r += together) {
        const Interval sees = interval(strip, r, block);
        const int begin = std::max(sees.begin, visible.any_begin), end = std::min(sees.end, visible.any_end);
        together = visible.seen == nullptr ? rows_alike(strip, r, block) : 1;
        if (begin >= end) {
          continue;
        }
        of.keys = end - begin;
        of.weight = score_of(r) + begin;
        of.value = values.value + (begin - visible.any_begin) * values.stride;
        if (visible.seen != nullptr) {
          of.seen_stride = call.mask_bool.stride[3];
          of.seen = strip.mask_bool[r] + (block + begin) * of.seen_stride;
        }
        of.acc = strip.acc + r * value_dim + values.x;
        Few::values(of, alphas + r, together, values.columns);
      }
    }
  }

  // How many rows from r on are taken together because they see the same keys of the block.
  std::int64_t rows_alike(const Strip &strip, std::int64_t r, std::int64_t block) const {
    const Interval sees = interval(strip, r, block);
    std::int64_t count = 1;
    while (r + count < strip.rows && count < Few::kTogether && interval(strip, r + count, block) == sees) {
      ++count;
    }
    return count;
  }

  // In tiles of so many columns, and what is left in narrower ones.
  template <int columns>
  void value_columns(Strip &strip, const Visibility &visible, const Float (&alpha)[kVectors], bool rescale,
                     BlockValues values) {
    for (; values.columns >= columns; values.columns -= columns, values.value += columns, values.x += columns) {
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; n += kTileVectors) {
        value_tile<columns>(strip, visible, alpha, rescale, values, n);
      }
    }
    if constexpr (columns > 1) {
      value_columns<columns / 2>(strip, visible, alpha, rescale, values);
    }
  }

  template <int columns>
  void value_tile(Strip &strip, const Visibility &visible, const Float (&alpha)[kVectors], bool rescale,
                  const BlockValues &values, int vector) {
    const std::int64_t stride = values.stride;
    const float *value = values.value;
    float *const place = strip.acc + values.x * kStripRows + vector * kWidth;
    Float acc[columns][kTileVectors];
#pragma GCC unroll 16
    for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 16
      for (int n = 0; n < kTileVectors; ++n) {
        acc[c][n] = Lanes::load(place + c * kStripRows + n * kWidth);
        if (rescale) {
          acc[c][n] = Lanes::multiply(acc[c][n], alpha[vector + n]);
        }
      }
    }
    const float *weight = score_tile + visible.any_begin * kStripRows + vector * kWidth;
    int key = visible.any_begin;
    for (; key < visible.all_begin; ++key, value += stride, weight += kStripRows) {
      add_seen_value<columns>(visible, key, vector, weight, value, acc);
    }
#pragma GCC unroll 4
    for (; key < visible.all_end; ++key, value += stride, weight += kStripRows) {
      add_products<columns>(weight, value, acc);
    }
    for (; key < visible.any_end; ++key, value += stride, weight += kStripRows) {
      add_seen_value<columns>(visible, key, vector, weight, value, acc);
    }
#pragma GCC unroll 16
    for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 16
      for (int n = 0; n < kTileVectors; ++n) {
        Lanes::store(place + c * kStripRows + n * kWidth, acc[c][n]);
      }
    }
  }

  // Vectors of queries, or weights, times the numbers of a key, or of a value row: a step of both products.
  template <int columns>
  static void add_products(const float *vectors, const float *numbers, Float (&sum)[columns][kTileVectors]) {
    Float vector[kTileVectors];
#pragma GCC unroll 16
    for (int n = 0; n < kTileVectors; ++n) {
      vector[n] = Lanes::load(vectors + n * kWidth);
    }
#pragma GCC unroll 16
    for (int c = 0; c < columns; ++c) {
      if (c * kColumns < columns * Lanes::tile(Flavour::fused).operands) {
#pragma GCC unroll 16
        for (int n = 0; n < kTileVectors; ++n) {
          sum[c][n] = Flavour::muladd_number(vector[n], numbers + c, sum[c][n]);
        }
        continue;
      }
      const Float number = Lanes::broadcast(numbers[c]);
#pragma GCC unroll 16
      for (int n = 0; n < kTileVectors; ++n) {
        sum[c][n] = Flavour::muladd(vector[n], number, sum[c][n]);
      }
    }
  }

  // The same for a key that only some rows see: the others' accumulators stay as they are, bit for bit.
  template <int columns>
  static void add_seen_value(const Visibility &visible, int key, int vector, const float *weight, const float *value,
                             Float (&acc)[columns][kTileVectors]) {
#pragma GCC unroll 16
    for (int n = 0; n < kTileVectors; ++n) {
      const Float p = Lanes::load(weight + n * kWidth);
      const Mask sees = visible.sees(vector + n, key);
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) {
        acc[c][n] = Lanes::select(sees, Flavour::muladd(p, Lanes::broadcast(value[c]), acc[c][n]), acc[c][n]);
      }
    }
  }

  // ---- Split keys: what a phase keeps for the next ones ----

  // Of the item.
  float *kept() const {
    return call.split + item.index * split_floats(call.split_rows, call.split_blocks);
  }
  // Of a strip of it.
  float *kept_tile(const Strip &strip, std::int64_t n) const {
    return kept() + (n * call.split_rows + strip.first - item.first_row) * kBlockKeys;
  }
  float *kept_maximum(const Strip &strip, std::int64_t n) const {
    return kept() + call.split_rows * (call.split_blocks * kBlockKeys + 2 * n) + strip.first - item.first_row;
  }
  float *kept_sum(const Strip &strip, std::int64_t n) const {
    return kept_maximum(strip, n) + call.split_rows;
  }
  float *kept_state(const Strip &strip, std::int64_t r) const {
    const std::int64_t row = strip.first - item.first_row + std::min(r, strip.rows - 1);
    return kept() + call.split_rows * call.split_blocks * (kBlockKeys + 2) + 3 * row;
  }

  static void keep(const Float (&numbers)[kVectors], std::int64_t rows, float *to) {
    float lane[kStripRows];
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      Lanes::store(lane + n * kWidth, numbers[n]);
    }
    std::copy(lane, lane + rows, to);
  }

  static void recall(const float *from, std::int64_t rows, Float (&numbers)[kVectors]) {
    float lane[kStripRows];
    for (std::int64_t r = 0; r < kStripRows; ++r) {
      lane[r] = from[std::min(r, rows - 1)];
    }
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      numbers[n] = Lanes::load(lane + n * kWidth);
    }
  }

  // 6.2 for the blocks before the item's first.
  void catch_up(Strip &strip, std::int64_t blocks) const {
    for (std::int64_t n = 0; n < blocks; ++n) {
      const float *const maximum = kept_maximum(strip, n);
      for (std::int64_t r = 0; r < strip.rows; ++r) {
        strip.m[r] = std::max(strip.m[r], maximum[r]);
      }
    }
  }

  // ---- 6.7 Output, 6.8 Log-sum-exp ----

  void finish(Strip &strip) {
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      float *const m = strip.m + n * kWidth, *const l = strip.l + n * kWidth;
      const Float sum = Lanes::load(l);
      const Float divisor = Flavour::divisor(sum);
      const Mask zero = Lanes::equal(sum, Lanes::broadcast(call.fully_masked_zero ? 0.0F : -1.0F));
      for (std::int64_t x = 0; x < (strip.few() ? 0 : value_dim); ++x) {
        float *const acc = strip.acc + x * kStripRows + n * kWidth;
        const Float out = canonical<Lanes>(Flavour::divide(Lanes::load(acc), divisor));
        Lanes::store(acc, Lanes::select(zero, Lanes::broadcast(0.0F), out));
      }
      Lanes::store(m, canonical<Lanes>(Lanes::add(Lanes::load(m), logarithm<Lanes, Flavour>(sum))));
    }
    float *out[kStripRows] = {};
    for (std::int64_t r = 0; r < strip.rows; ++r) {
      const std::int64_t row = strip.first + r, h = head(row), i = query_row(row);
      if (strip.few()) {
        Few::divide(&acc_at(strip, r, 0), strip.l[r], call.fully_masked_zero && strip.l[r] == 0.0F, value_dim);
      }
      if (!strip.saw_key[r] && !strip.sink[r]) {
        for (std::int64_t x = 0; x < value_dim; ++x) {
          acc_at(strip, r, x) = 0.0F;
        }
      }
      if (call.out.data != nullptr) {
        out[r] = call.out.data + place(call.out.stride, h, i) + item.first_column * call.out.stride[3];
      }
      if (call.lse.data != nullptr && item.first_column == 0) {
        call.lse.data[place(call.lse.stride, h, i)] = strip.m[r];
      }
    }
    if (call.out.data != nullptr && strip.few()) {
      for (std::int64_t r = 0; r < strip.rows; ++r) {
        for (std::int64_t x = 0; x < value_dim; ++x) {
          out[r][x * call.out.stride[3]] = acc_at(strip, r, x);
        }
      }
    } else if (call.out.data != nullptr) {
      transpose_back<Lanes>(strip.acc, kStripRows, value_dim, out, strip.rows, call.out.stride[3]);
    }
  }

  const AttentionPlan &call;
  const WorkItem &item;
  const std::int64_t head_dim, value_dim, group_heads; // value_dim: the item's columns
  const std::int64_t batch, kv_head;
  std::int64_t first_query, first_key; // of the sequence, where it lies in ragged tensors
  std::int64_t key_count;              // of the sequence
  float *free_scratch;                 // what is not taken yet
  float *packing_space;                // [kGroups][head_dim][kPackedKeys]
  typename Few::Keys block_keys;       // of the block
  float *score_tile;                   // [kBlockKeys][kStripRows]: scores, then weights; may be kept_tile
  float *seen_tile;                    // [kBlockKeys][kStripRows]: Visibility::seen
  float *spare_tile; // [kBlockKeys][kStripRows]: biases of scores; then [kBlockKeys][kColumns]: values
  bool values_in_place;
  typename Few::Ahead ahead_of_keys, ahead_of_values; // what is asked for while they are worked on
  const unsigned char *key_row[kBlockKeys], *value_row[kBlockKeys],
      *next_row[kBlockKeys]; // packed keys: a row is a group
};

} // namespace exattn
