// Steps of the tile loop for a strip that has few rows, such as a decode step's: definition, section 6. Lanes hold
// keys, and columns of the values, so that none is idle. The operations on a row, and their order, are the same as with
// rows in the lanes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "exact/functions.hpp"
#include "kernel.hpp"

namespace exattn {

template <class Lanes, class Flavour>
struct FewRows {
  using Float = typename Lanes::Float;

  static constexpr int kWidth = Lanes::width;
  static constexpr int kTogether = Lanes::few_rows_together; // rows that share what is loaded of keys and values
  static constexpr int kPackedKeys = int{kGroupKeys};
  static constexpr int kGroupVectors = kPackedKeys / kWidth; // of a group of packed keys
  static constexpr int kGroups = int{kBlockKeys} / kPackedKeys;
  static constexpr int kPartialSums = 16;
  static_assert(kPackedKeys % kWidth == 0);

  // Rows of keys or values that are read next. They are asked for line by line, as many bytes as are worked on
  // meanwhile: waiting for each block where it is needed would leave the memory idle in between.
  class Ahead {
  public:
    Ahead() = default;
    Ahead(const unsigned char *const *first, std::int64_t rows, std::int64_t bytes)
        : row(first), end(first + rows), row_bytes(bytes) {}

    void worked_on(std::int64_t bytes) {
      for (due += bytes; due >= kLine && row != end; due -= kLine) {
        __builtin_prefetch(*row + asked);
        asked += kLine;
        if (asked >= row_bytes) {
          asked = 0;
          ++row;
        }
      }
    }

  private:
    static constexpr std::int64_t kLine = 64;
    const unsigned char *const *row = nullptr, *const *end = nullptr;
    std::int64_t row_bytes = 0, asked = 0, due = 0; // bytes: of a row; asked for of this one; to ask for
  };

  // ---- 6.1 Scores ----

  // The keys of a block, group by group: packed, or rows where the caller has them if those lie side by side there.
  struct Keys {
    const float *packed[kGroups];   // [head_dim][kPackedKeys]
    const float *in_place[kGroups]; // the first key of a group, or null: look into packed
    std::int64_t stride;            // between keys that are in place
  };

  // product[r][key] of the keys in groups [first, last), for rows of kBlockKeys numbers.
  template <int together = kTogether>
  static void products(const float *queries, std::int64_t rows, std::int64_t head_dim, const Keys &keys, int first,
                       int last, float *product, Ahead &ahead) {
    for (; rows >= together; rows -= together) {
      products_of<together>(queries, head_dim, keys, first, last, product, ahead);
      queries += together * head_dim;
      product += together * kBlockKeys;
    }
    if constexpr (together > 1) {
      products<together - 1>(queries, rows, head_dim, keys, first, last, product, ahead);
    }
  }

  // Products become scores; bias may be null.
  static void scores(float *score, const float *bias, float scale, float softcap, int first, int last) {
    for (int key = first * kPackedKeys; key < last * kPackedKeys; key += kWidth) {
      Float factor = Lanes::broadcast(scale);
      Float value = Lanes::load(score + key);
      if (softcap > 0.0F) {
        factor = Lanes::broadcast(softcap);
        value = tangent<Lanes, Flavour>(Lanes::divide(Lanes::multiply(value, Lanes::broadcast(scale)), factor));
      }
      value =
          bias != nullptr ? Flavour::muladd(value, factor, Lanes::load(bias + key)) : Lanes::multiply(value, factor);
      Lanes::store(score + key, value);
    }
  }

  // ---- 6.2 Maximum, the block's part ----

  static float maximum(const float *score, int first, int last) {
    Float largest = Lanes::broadcast(-kInfinity);
    for (int key = first * kPackedKeys; key < last * kPackedKeys; key += kWidth) {
      largest = Lanes::larger(largest, Lanes::load(score + key));
    }
    float lane[kWidth];
    Lanes::store(lane, largest);
    return *std::max_element(lane, lane + kWidth);
  }

  // ---- 6.3 Weights, 6.4 Block sum ----

  static float weights(float *score, float shift, int first, int last) {
    Float sum[kGroupVectors];
    for (int n = 0; n < kGroupVectors; ++n) {
      sum[n] = Lanes::broadcast(0.0F);
    }
    for (int group = first; group < last; ++group) {
#pragma GCC unroll 16
      for (int n = 0; n < kGroupVectors; ++n) {
        float *const place = score + group * kPackedKeys + n * kWidth;
        const Float weight = exponential<Lanes, Flavour>(Lanes::subtract(Lanes::load(place), Lanes::broadcast(shift)));
        Lanes::store(place, weight);
        sum[n] = Lanes::add(sum[n], weight);
      }
    }
    float partial[kPartialSums];
    for (int n = 0; n < kGroupVectors; ++n) {
      Lanes::store(partial + n * kWidth, sum[n]);
    }
    for (int half = kPartialSums / 2; half > 0; half /= 2) {
      for (int t = 0; t < half; ++t) {
        partial[t] = partial[t] + partial[t + half];
      }
    }
    return partial[0];
  }

  // ---- 6.5 Rescale, 6.6 Values ----

  // Weights of `keys` keys, rows of them kBlockKeys apart, their values, value_stride apart, and accumulators, rows of
  // them acc_stride apart. seen, if not null: an entry of 0, seen_stride apart, leaves its key out.
  struct Values {
    const float *weight;
    const float *value;
    const std::uint8_t *seen;
    float *acc;
    std::int64_t keys, value_stride, seen_stride, acc_stride;
    Ahead *ahead;
  };

  // For `rows` rows, at most kTogether, and their factors alpha.
  template <int together = kTogether>
  static void values(const Values &of, const float *alpha, std::int64_t rows, std::int64_t columns) {
    if constexpr (together > 1) {
      if (rows < together) {
        values<together - 1>(of, alpha, rows, columns);
        return;
      }
    }
    constexpr int kColumns = // a power of 2
        static_cast<int>(std::bit_floor(std::min(8U, unsigned{kTogether * Lanes::few_rows_columns / together})));
    std::int64_t x = 0;
    for (; x + kColumns * kWidth <= columns; x += kColumns * kWidth) {
      columns_of<together, kColumns>(of, alpha, x);
    }
    rest_of_columns<together, kColumns / 2>(of, alpha, x, columns);
  }

  // ---- 6.7 Output ----

  static void divide(float *acc, float l, bool zero, std::int64_t columns) {
    const Float divisor = Flavour::divisor(Lanes::broadcast(l));
    for (std::int64_t x = 0; x < columns; x += kWidth) {
      const std::int64_t count = std::min<std::int64_t>(kWidth, columns - x);
      const Float out = canonical<Lanes>(Flavour::divide(load_part(acc + x, count), divisor));
      store_part(acc + x, count, zero ? Lanes::broadcast(0.0F) : out);
    }
  }

  static Float load_part(const float *from, std::int64_t count) {
    if (count == kWidth) {
      return Lanes::load(from);
    }
    float lane[kWidth] = {};
    std::copy(from, from + count, lane);
    return Lanes::load(lane);
  }
  static void store_part(float *to, std::int64_t count, Float value) {
    if (count == kWidth) {
      Lanes::store(to, value);
      return;
    }
    float lane[kWidth];
    Lanes::store(lane, value);
    std::copy(lane, lane + count, to);
  }

private:
  template <int rows>
  static void products_of(const float *queries, std::int64_t head_dim, const Keys &keys, int first, int last,
                          float *product, Ahead &ahead) {
    constexpr int kWide = kGroupVectors >= 2 ? 1 : 2 / kGroupVectors; // groups that give four vectors
    for (int group = first; group < last;) {
      const bool wide = group + kWide <= last && alike<kWide>(keys, group);
      if (wide) {
        dot_products<rows, kWide>(queries, head_dim, keys, group, product + group * kPackedKeys, ahead);
      } else {
        dot_products<rows, 1>(queries, head_dim, keys, group, product + group * kPackedKeys, ahead);
      }
      group += wide ? kWide : 1;
    }
  }

  // Whether groups from this one on are all packed, or follow each other in place.
  template <int groups>
  static bool alike(const Keys &keys, int group) {
    for (int g = 1; g < groups; ++g) {
      const float *const here = keys.in_place[group];
      if (keys.in_place[group + g] != (here == nullptr ? here : here + g * kPackedKeys * keys.stride)) {
        return false;
      }
    }
    return true;
  }

  template <int rows, int groups>
  static void dot_products(const float *queries, std::int64_t head_dim, const Keys &keys, int group, float *product,
                           Ahead &ahead) {
    constexpr int kVectors = groups * kGroupVectors;
    Float dot[rows][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        dot[r][n] = Lanes::broadcast(0.0F);
      }
    }
    if (keys.in_place[group] != nullptr) {
      in_place<rows, groups>(queries, head_dim, keys.in_place[group], keys.stride, dot, ahead);
    } else {
      packed<rows, groups>(queries, head_dim, keys.packed + group, dot, ahead);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        Lanes::store(product + r * kBlockKeys + n * kWidth, dot[r][n]);
      }
    }
  }

  template <int rows, int groups>
  static void packed(const float *queries, std::int64_t head_dim, const float *const *keys,
                     Float (&dot)[rows][groups * kGroupVectors], Ahead &given) {
    constexpr int kVectors = groups * kGroupVectors;
    Ahead ahead = given; // a copy can stay in registers
    for (std::int64_t x = 0; x < head_dim; ++x) {
      ahead.worked_on(kVectors * kWidth * std::int64_t{sizeof(float)});
      Float key[kVectors];
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        key[n] = Lanes::load(keys[n / kGroupVectors] + x * kPackedKeys + n % kGroupVectors * kWidth);
      }
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const Float query = Lanes::broadcast(queries[r * head_dim + x]);
#pragma GCC unroll 16
        for (int n = 0; n < kVectors; ++n) {
          dot[r][n] = Flavour::muladd(query, key[n], dot[r][n]);
        }
      }
    }
    given = ahead;
  }

  // Keys are transposed in registers, four x at a time.
  template <int rows, int groups>
  static void in_place(const float *queries, std::int64_t head_dim, const float *keys, std::int64_t stride,
                       Float (&dot)[rows][groups * kGroupVectors], Ahead &given) {
    constexpr int kVectors = groups * kGroupVectors;
    Ahead ahead = given; // a copy can stay in registers
    std::int64_t x = 0;
    for (; x + 4 <= head_dim; x += 4) {
      ahead.worked_on(kVectors * kWidth * 4 * std::int64_t{sizeof(float)});
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        const float *const first = keys + n * kWidth * stride + x;
        Float key[4];
        Lanes::load_columns([&](int lane) { return first + lane * stride; }, key);
#pragma GCC unroll 16
        for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 16
          for (int r = 0; r < rows; ++r) {
            dot[r][n] = Flavour::muladd(Lanes::broadcast(queries[r * head_dim + x + i]), key[i], dot[r][n]);
          }
        }
      }
    }
    given = ahead;
    for (; x < head_dim; ++x) {
#pragma GCC unroll 16
      for (int n = 0; n < groups * kGroupVectors; ++n) {
        float lane[kWidth];
        for (int i = 0; i < kWidth; ++i) {
          lane[i] = keys[(n * kWidth + i) * stride + x];
        }
        const Float key = Lanes::load(lane);
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          dot[r][n] = Flavour::muladd(Lanes::broadcast(queries[r * head_dim + x]), key, dot[r][n]);
        }
      }
    }
  }

  template <int rows, int columns>
  static void rest_of_columns(const Values &of, const float *alpha, std::int64_t x, std::int64_t end) {
    if constexpr (columns > 0) {
      if (x + columns * kWidth <= end) {
        columns_of<rows, columns>(of, alpha, x);
        x += columns * kWidth;
      }
      rest_of_columns<rows, columns / 2>(of, alpha, x, end);
    } else if (x < end) {
      columns_of<rows, 1, true>(of, alpha, x, end - x);
    }
  }

  // part: fewer columns than lanes, `part_count` of them.
  template <int rows, int columns, bool part = false>
  static void columns_of(const Values &of, const float *alpha, std::int64_t x, std::int64_t part_count = 0) {
    const std::int64_t count = part ? part_count : kWidth;
    Float acc[rows][columns];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) {
        acc[r][c] = load_part(of.acc + r * of.acc_stride + x + c * kWidth, count);
        // The product with 1 changes nothing.
        acc[r][c] = Lanes::multiply(acc[r][c], Lanes::broadcast(alpha[r]));
      }
    }
    Ahead ahead = *of.ahead; // a copy can stay in registers
    const float *value = of.value + x;
    for (std::int64_t key = 0; key < of.keys; ++key, value += of.value_stride) {
      if (of.seen != nullptr && of.seen[key * of.seen_stride] == 0) {
        continue;
      }
      ahead.worked_on(columns * kWidth * std::int64_t{sizeof(float)});
      Float v[columns];
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) {
        v[c] = load_part(value + c * kWidth, count);
      }
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const Float p = Lanes::broadcast(of.weight[r * kBlockKeys + key]);
#pragma GCC unroll 16
        for (int c = 0; c < columns; ++c) {
          acc[r][c] = Flavour::muladd(p, v[c], acc[r][c]);
        }
      }
    }
    *of.ahead = ahead;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) {
        store_part(of.acc + r * of.acc_stride + x + c * kWidth, count, acc[r][c]);
      }
    }
  }
};

} // namespace exattn
