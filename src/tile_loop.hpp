// The tile loop: attention for one work item, in the steps of docs/definition.md, section 6. Written once; a lane kind
// and a flavour make a kernel of it.
//
// Lanes hold query rows. A strip is tile_rows vectors of rows; its queries, weights and accumulators are stored with
// the rows innermost, so every step of the definition is one vector operation for many rows, sums over keys and the
// maximum need no operation across lanes, and head sizes need no padding. The keys of a block are packed transposed, 16
// at a time: the score product then broadcasts from consecutive addresses. docs/architecture.md gives the reasons.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "exact/functions.hpp"
#include "kernel.hpp"
#include "lanes.hpp"
#include "transpose.hpp"

namespace exattn {

template <class Lanes, class Flavour>
class TileLoop {
  using Float = typename Lanes::Float;
  using Mask = typename Lanes::Mask;

  static constexpr int kWidth = Lanes::width;
  static constexpr int kVectors = Lanes::tile_rows;
  static constexpr int kStripRows = kWidth * kVectors;
  static constexpr int kColumns = Lanes::tile_columns;
  static constexpr int kPackedKeys = 16;                        // keys that are packed side by side
  static constexpr int kGroups = int{kBlockKeys} / kPackedKeys; // in a block
  static constexpr int kPartialSums = 16;
  static_assert(kPackedKeys % kColumns == 0 && kTileRows % kStripRows == 0);

  // The keys that a strip sees of the current block, as positions in the block: every row sees those in
  // [all_begin, all_end); outside [any_begin, any_end) no row sees any; between, each row has its own limits.
  struct Visibility {
    int any_begin, any_end, all_begin, all_end;
    Float row_begin[kVectors], row_end[kVectors];

    bool empty() const { return any_begin >= any_end; }
    bool partial(int begin, int end) const { return begin < all_begin || end > all_end; }
    Mask sees(int vector, int key) const {
      const Float position = Lanes::broadcast(static_cast<float>(key));
      return Lanes::both(Lanes::negate(Lanes::less(position, row_begin[vector])),
                         Lanes::less(position, row_end[vector]));
    }
  };

  struct Strip {
    float *queries;                                  // [head_dim][kStripRows]
    float *acc;                                      // [value_dim][kStripRows]
    float *m, *l;                                    // [kStripRows]
    std::int64_t rows;                               // how many are real
    std::int64_t first;                              // row of the KV head's group
    std::int64_t begin[kStripRows], end[kStripRows]; // keys that a row may see
    const float *mask[kStripRows];                   // mask row
    bool sink[kStripRows];                           // has a sink
  };

public:
  static void run(const AttentionPlan &plan, std::int64_t item, void *scratch) { TileLoop(plan, item, scratch).run(); }

private:
  TileLoop(const AttentionPlan &plan, std::int64_t item, void *scratch)
      : call(plan), head_dim(plan.head_dim), value_dim(plan.value_dim), group_heads(plan.heads / plan.kv_heads) {
    const std::int64_t kv = item / plan.items_per_kv_head;
    batch = kv / plan.kv_heads;
    kv_head = kv % plan.kv_heads;
    const std::int64_t rows = group_heads * plan.q_len;
    first_row = (item % plan.items_per_kv_head) * plan.rows_per_item;
    item_rows = std::min(plan.rows_per_item, rows - first_row);
    free_scratch = static_cast<float *>(scratch);
    packed_keys = take(kBlockKeys * head_dim);
    score_tile = take(kBlockKeys * kStripRows);
    gathered_values = take(kBlockKeys * kColumns);
  }

  void run() {
    const std::int64_t strips = (item_rows + kStripRows - 1) / kStripRows;
    std::int64_t begin = call.kv_len, end = 0; // keys that any row of the item sees
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
    for (std::int64_t block = begin / kBlockKeys * kBlockKeys; block < end; block += kBlockKeys) {
      pack_keys(block, std::max(begin, block), std::min(end, block + kBlockKeys));
      for (std::int64_t s = 0; s < strips; ++s) {
        const Visibility visible = visibility(strip[s], block);
        if (visible.empty()) {
          continue;
        }
        Float maximum[kVectors], shift[kVectors], sum[kVectors], alpha[kVectors];
        scores(strip[s], block, visible, maximum);      // 6.1, and the block's part of 6.2
        raise_maximum(strip[s], maximum, shift, alpha); // 6.2, and alpha of 6.5
        weights(visible, shift, sum);                   // 6.3, 6.4
        rescale_sum(strip[s], alpha, sum);              // 6.5 for l
        values(strip[s], block, visible, alpha);        // 6.5 for acc, 6.6
      }
    }
    for (std::int64_t s = 0; s < strips; ++s) {
      finish(strip[s]); // 6.7, 6.8
    }
  }

  float *take(std::int64_t floats) {
    float *taken = free_scratch;
    free_scratch += floats;
    return taken;
  }

  // ---- Start: queries packed, keys that each row may see (section 4), state (sections 6 and 10) ----

  std::int64_t head(std::int64_t row) const { return kv_head * group_heads + row % group_heads; }
  std::int64_t query_row(std::int64_t row) const { return row / group_heads; }

  void start(Strip &strip, std::int64_t index) {
    strip.queries = take(head_dim * kStripRows);
    strip.acc = take(value_dim * kStripRows);
    strip.m = take(kStripRows);
    strip.l = take(kStripRows);
    strip.first = first_row + index * kStripRows;
    strip.rows = std::min<std::int64_t>(kStripRows, item_rows - index * kStripRows);

    const std::int64_t keys = call.kv_lens != nullptr ? call.kv_lens[batch] : call.kv_len;
    const std::int64_t offset = call.q_offsets != nullptr ? call.q_offsets[batch] : call.q_offset;
    const float *query[kStripRows];
    for (std::int64_t r = 0; r < kStripRows; ++r) {
      // Lanes without a row repeat the last one and are thrown away.
      const std::int64_t row = strip.first + std::min(r, strip.rows - 1);
      const std::int64_t h = head(row), i = query_row(row), position = offset + i;
      query[r] = element(call.q, batch, h, i);
      strip.mask[r] = call.mask.data != nullptr ? element(call.mask, batch, h, i) : nullptr;
      strip.begin[r] = call.window > 0 && position >= call.window ? position - call.window + 1 : 0;
      strip.end[r] = call.causal ? std::min(keys, position + 1) : keys;
      strip.begin[r] = std::min(strip.begin[r], strip.end[r]);
      const float sink = call.sinks != nullptr ? call.sinks[h] : -kInfinity;
      strip.sink[r] = !(sink == -kInfinity);
      const bool finite = sink > -kInfinity && sink < kInfinity;
      strip.m[r] = finite ? sink : -kInfinity;
      strip.l[r] = finite ? 1.0F : strip.sink[r] ? std::bit_cast<float>(kCanonicalNan) : 0.0F;
    }
    transpose<Lanes>(query, kStripRows, call.q.stride[3], head_dim, strip.queries, kStripRows);
    std::memset(strip.acc, 0, static_cast<std::size_t>(value_dim * kStripRows) * sizeof(float));
  }

  static const float *element(const Strided &tensor, std::int64_t b, std::int64_t h, std::int64_t i) {
    return tensor.data + b * tensor.stride[0] + h * tensor.stride[1] + i * tensor.stride[2];
  }

  Visibility visibility(const Strip &strip, std::int64_t block) const {
    Visibility visible{int{kBlockKeys}, 0, 0, int{kBlockKeys}, {}, {}};
    float begins[kStripRows], ends[kStripRows];
    for (int r = 0; r < kStripRows; ++r) {
      const int begin = static_cast<int>(std::clamp<std::int64_t>(strip.begin[r] - block, 0, kBlockKeys));
      const int end = static_cast<int>(std::clamp<std::int64_t>(strip.end[r] - block, 0, kBlockKeys));
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
    return visible;
  }

  // Keys [begin, end) of the block, transposed, 16 side by side: packed_keys[group][x][16]. Places of the groups in
  // use that hold no such key are zero: memory that the row does not see is never read.
  void pack_keys(std::int64_t block, std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = (begin - block) / kPackedKeys * kPackedKeys; first < end - block; first += kPackedKeys) {
      float *const to = packed_keys + first * head_dim;
      const std::int64_t from = std::max(begin - block, first);
      const std::int64_t count = std::min(end - block, first + kPackedKeys) - from;
      if (count < kPackedKeys) {
        std::memset(to, 0, static_cast<std::size_t>(kPackedKeys * head_dim) * sizeof(float));
      }
      const float *key[kPackedKeys];
      for (std::int64_t j = 0; j < count; ++j) {
        key[j] = element(call.k, batch, kv_head, block + from + j);
      }
      transpose<Lanes>(key, count, call.k.stride[3], head_dim, to + (from - first), kPackedKeys);
    }
  }

  // ---- 6.1 Scores ----

  void scores(const Strip &strip, std::int64_t block, const Visibility &visible, Float (&maximum)[kVectors]) {
    if (call.mask.data != nullptr) {
      gather_mask(strip, block, visible);
    }
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      maximum[n] = Lanes::broadcast(-kInfinity);
    }
    for (int first = visible.any_begin / kPackedKeys * kPackedKeys; first < visible.any_end; first += kPackedKeys) {
      const bool partial = visible.partial(first, first + kPackedKeys);
      for (int key = first; key < first + kPackedKeys; key += kColumns) {
        Float dot[kColumns][kVectors];
        dot_products(strip.queries, packed_keys + first * head_dim + (key - first), dot);
        const Float scale = Lanes::broadcast(call.scale);
#pragma GCC unroll 16
        for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
          for (int n = 0; n < kVectors; ++n) {
            float *const place = score_tile + (key + c) * kStripRows + n * kWidth;
            // Without a mask, muladd(d, scale, +0) is the product (but for the sign of a zero, which no result shows).
            Float score = call.mask.data != nullptr ? Flavour::muladd(dot[c][n], scale, Lanes::load(place))
                                                    : Lanes::multiply(dot[c][n], scale);
            // A hidden key: -inf is no maximum and has the weight +0.
            if (partial) {
              score = Lanes::select(visible.sees(n, key + c), score, Lanes::broadcast(-kInfinity));
            }
            maximum[n] = Lanes::larger(maximum[n], score);
            Lanes::store(place, score);
          }
        }
      }
    }
  }

  void dot_products(const float *queries, const float *keys, Float (&dot)[kColumns][kVectors]) const {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        dot[c][n] = Lanes::broadcast(0.0F);
      }
    }
    for (std::int64_t x = 0; x < head_dim; ++x) {
      Float query[kVectors];
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        query[n] = Lanes::load(queries + n * kWidth);
      }
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) {
        const Float key = Lanes::broadcast(keys[c]);
#pragma GCC unroll 16
        for (int n = 0; n < kVectors; ++n) {
          dot[c][n] = Flavour::muladd(query[n], key, dot[c][n]);
        }
      }
      queries += kStripRows;
      keys += kPackedKeys;
    }
  }

  // The mask entries that any row of the strip sees, into the places of their scores.
  void gather_mask(const Strip &strip, std::int64_t block, const Visibility &visible) {
    const std::int64_t stride = call.mask.stride[3];
    const float *row[kStripRows];
    for (int r = 0; r < kStripRows; ++r) {
      row[r] = strip.mask[r] + (block + visible.any_begin) * stride;
    }
    transpose<Lanes>(row, kStripRows, stride, visible.any_end - visible.any_begin,
                     score_tile + visible.any_begin * kStripRows, kStripRows);
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

  void weights(const Visibility &visible, const Float (&shift)[kVectors], Float (&sum)[kVectors]) {
    const int first_group = visible.any_begin / kPackedKeys;
    const int end_group = (visible.any_end + kPackedKeys - 1) / kPackedKeys;
    if (first_group == 0 && end_group == kGroups) {
      weights_of<kGroups>(0, kGroups, shift, sum);
    } else {
      weights_of<1>(first_group, end_group, shift, sum);
    }
  }

  // Groups begin to end, a multiple of `together`, whose exponentials are computed side by side.
  template <int together>
  void weights_of(int begin, int end, const Float (&shift)[kVectors], Float (&sum)[kVectors]) {
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      Float partial[kPartialSums];
      for (int t = 0; t < kPartialSums; ++t) {
        Float p = Lanes::broadcast(0.0F);
        for (int group = begin; group < end; group += together) {
          Float weight[together];
#pragma GCC unroll 16
          for (int g = 0; g < together; ++g) {
            float *const place = score_tile + ((group + g) * kPackedKeys + t) * kStripRows + n * kWidth;
            weight[g] = exponential<Lanes, Flavour>(Lanes::subtract(Lanes::load(place), shift[n]));
            Lanes::store(place, weight[g]);
          }
#pragma GCC unroll 16
          for (int g = 0; g < together; ++g) {
            p = Lanes::add(p, weight[g]);
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
    bool rescale = false;
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      rescale = rescale || !Lanes::all(Lanes::equal(alpha[n], Lanes::broadcast(1.0F)));
    }
    std::int64_t x = 0;
    for (; x + kColumns <= value_dim; x += kColumns) {
      value_columns<kColumns>(strip, block, visible, alpha, rescale, x);
    }
    rest_of_values<kColumns / 2>(strip, block, visible, alpha, rescale, x);
  }

  template <int columns>
  void rest_of_values(Strip &strip, std::int64_t block, const Visibility &visible, const Float (&alpha)[kVectors],
                      bool rescale, std::int64_t x) {
    if constexpr (columns > 0) {
      if (x + columns <= value_dim) {
        value_columns<columns>(strip, block, visible, alpha, rescale, x);
        x += columns;
      }
      rest_of_values<columns / 2>(strip, block, visible, alpha, rescale, x);
    }
  }

  template <int columns>
  void value_columns(Strip &strip, std::int64_t block, const Visibility &visible, const Float (&alpha)[kVectors],
                     bool rescale, std::int64_t x) {
    const float *value = element(call.v, batch, kv_head, block + visible.any_begin) + x * call.v.stride[3];
    std::int64_t stride = call.v.stride[2];
    if (call.v.stride[3] != 1) {
      value = gather_values<columns>(value, visible.any_end - visible.any_begin);
      stride = columns;
    }
    Float acc[columns][kVectors];
#pragma GCC unroll 16
    for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        acc[c][n] = Lanes::load(strip.acc + (x + c) * kStripRows + n * kWidth);
        if (rescale) {
          acc[c][n] = Lanes::multiply(acc[c][n], alpha[n]);
        }
      }
    }
    const float *weight = score_tile + visible.any_begin * kStripRows;
    int key = visible.any_begin;
    for (; key < visible.all_begin; ++key, value += stride, weight += kStripRows) {
      add_seen_value<columns>(visible, key, weight, value, acc);
    }
    for (; key < visible.all_end; ++key, value += stride, weight += kStripRows) {
      add_value<columns>(weight, value, acc);
    }
    for (; key < visible.any_end; ++key, value += stride, weight += kStripRows) {
      add_seen_value<columns>(visible, key, weight, value, acc);
    }
#pragma GCC unroll 16
    for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        Lanes::store(strip.acc + (x + c) * kStripRows + n * kWidth, acc[c][n]);
      }
    }
  }

  template <int columns>
  static void add_value(const float *weight, const float *value, Float (&acc)[columns][kVectors]) {
    Float p[kVectors];
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      p[n] = Lanes::load(weight + n * kWidth);
    }
#pragma GCC unroll 16
    for (int c = 0; c < columns; ++c) {
      const Float v = Lanes::broadcast(value[c]);
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        acc[c][n] = Flavour::muladd(p[n], v, acc[c][n]);
      }
    }
  }

  // The same for a key that only some rows see: the others' accumulators stay as they are, bit for bit.
  template <int columns>
  static void add_seen_value(const Visibility &visible, int key, const float *weight, const float *value,
                             Float (&acc)[columns][kVectors]) {
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      const Float p = Lanes::load(weight + n * kWidth);
      const Mask sees = visible.sees(n, key);
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) {
        acc[c][n] = Lanes::select(sees, Flavour::muladd(p, Lanes::broadcast(value[c]), acc[c][n]), acc[c][n]);
      }
    }
  }

  // Columns of values that are not side by side in memory, for `count` keys.
  template <int columns>
  const float *gather_values(const float *from, std::int64_t count) {
    for (std::int64_t j = 0; j < count; ++j) {
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) {
        gathered_values[j * columns + c] = from[j * call.v.stride[2] + c * call.v.stride[3]];
      }
    }
    return gathered_values;
  }

  // ---- 6.7 Output, 6.8 Log-sum-exp ----

  void finish(Strip &strip) {
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      float *const m = strip.m + n * kWidth, *const l = strip.l + n * kWidth;
      const Float sum = Lanes::load(l);
      const Float divisor = Flavour::divisor(sum);
      const Mask zero = Lanes::equal(sum, Lanes::broadcast(call.fully_masked_zero ? 0.0F : -1.0F));
      for (std::int64_t x = 0; x < value_dim; ++x) {
        float *const acc = strip.acc + x * kStripRows + n * kWidth;
        const Float out = canonical<Lanes>(Flavour::divide(Lanes::load(acc), divisor));
        Lanes::store(acc, Lanes::select(zero, Lanes::broadcast(0.0F), out));
      }
      Lanes::store(m, canonical<Lanes>(Lanes::add(Lanes::load(m), logarithm<Lanes, Flavour>(sum))));
    }
    float *out[kStripRows];
    for (std::int64_t r = 0; r < strip.rows; ++r) {
      const std::int64_t row = strip.first + r, h = head(row), i = query_row(row);
      const bool saw_nothing = strip.begin[r] >= strip.end[r] && !strip.sink[r];
      if (saw_nothing) {
        for (std::int64_t x = 0; x < value_dim; ++x) {
          strip.acc[x * kStripRows + r] = 0.0F;
        }
      }
      out[r] = call.out.data + batch * call.out.stride[0] + h * call.out.stride[1] + i * call.out.stride[2];
      if (call.lse.data != nullptr) {
        call.lse.data[batch * call.lse.stride[0] + h * call.lse.stride[1] + i * call.lse.stride[2]] = strip.m[r];
      }
    }
    transpose_back<Lanes>(strip.acc, kStripRows, value_dim, out, strip.rows, call.out.stride[3]);
  }

  const AttentionPlan &call;
  const std::int64_t head_dim, value_dim, group_heads;
  std::int64_t batch, kv_head;
  std::int64_t first_row, item_rows; // of the KV head's group
  float *free_scratch;               // what is not taken yet
  float *packed_keys;                // [kGroups][head_dim][kPackedKeys]
  float *score_tile;                 // [kBlockKeys][kStripRows]: mask, then scores, then weights
  float *gathered_values;            // [kBlockKeys][kColumns], for values that are not side by side
};

} // namespace exattn
