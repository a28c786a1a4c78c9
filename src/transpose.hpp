// Rows into columns and back: how queries, keys, masks and outputs get from the caller's layout into the tiles'.
#pragma once

#include <cstdint>

namespace exattn {

// to[x * to_stride + r] = row[r][x * stride], for r < rows and x < columns.
template <class Lanes>
void transpose(const float *const *row, std::int64_t rows, std::int64_t stride, std::int64_t columns, float *to,
               std::int64_t to_stride) {
  std::int64_t r = 0;
  if (stride == 1) {
    for (; r + Lanes::width <= rows; r += Lanes::width) {
      std::int64_t x = 0;
#pragma GCC unroll 4
      for (; x + 4 <= columns; x += 4) {
        typename Lanes::Float column[4];
        Lanes::load_columns([&](int n) { return row[r + n] + x; }, column);
        for (int c = 0; c < 4; ++c) {
          Lanes::store(to + (x + c) * to_stride + r, column[c]);
        }
      }
      for (; x < columns; ++x) {
        for (std::int64_t i = r; i < r + Lanes::width; ++i) {
          to[x * to_stride + i] = row[i][x];
        }
      }
    }
    for (; r + 4 <= rows; r += 4) {
      std::int64_t x = 0;
      for (; x + 4 <= columns; x += 4) {
        const float *const from[4] = {row[r] + x, row[r + 1] + x, row[r + 2] + x, row[r + 3] + x};
        float *const at = to + x * to_stride + r;
        float *const quad[4] = {at, at + to_stride, at + 2 * to_stride, at + 3 * to_stride};
        Lanes::four_by_four(from, quad);
      }
      for (; x < columns; ++x) {
        for (std::int64_t i = r; i < r + 4; ++i) {
          to[x * to_stride + i] = row[i][x];
        }
      }
    }
  }
  for (; r < rows; ++r) {
    for (std::int64_t x = 0; x < columns; ++x) {
      to[x * to_stride + r] = row[r][x * stride];
    }
  }
}

// row[r][x * stride] = from[x * from_stride + r], for r < rows and x < columns.
template <class Lanes>
void transpose_back(const float *from, std::int64_t from_stride, std::int64_t columns, float *const *row,
                    std::int64_t rows, std::int64_t stride) {
  std::int64_t r = 0;
  if (stride == 1) {
    for (; r + 4 <= rows; r += 4) {
      std::int64_t x = 0;
      for (; x + 4 <= columns; x += 4) {
        const float *const at = from + x * from_stride + r;
        const float *const quad[4] = {at, at + from_stride, at + 2 * from_stride, at + 3 * from_stride};
        float *const to[4] = {row[r] + x, row[r + 1] + x, row[r + 2] + x, row[r + 3] + x};
        Lanes::four_by_four(quad, to);
      }
      for (; x < columns; ++x) {
        for (std::int64_t i = r; i < r + 4; ++i) {
          row[i][x] = from[x * from_stride + i];
        }
      }
    }
  }
  for (; r < rows; ++r) {
    for (std::int64_t x = 0; x < columns; ++x) {
      row[r][x * stride] = from[x * from_stride + r];
    }
  }
}

} // namespace exattn
