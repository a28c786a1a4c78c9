// Softmax rows: docs/definition.md, section 11. Lanes hold columns, since the sixteen partial sums run along the row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "exact/functions.hpp"
#include "kernel.hpp"
#include "lanes.hpp"

namespace exattn {

template <class Lanes, class Flavour>
class SoftmaxRows {
  using Float = typename Lanes::Float;

  static constexpr int kWidth = Lanes::width;
  static constexpr int kChunk = 16; // as many columns as there are partial sums
  static constexpr int kVectors = kChunk / kWidth;

public:
  static void run(const SoftmaxPlan &plan, std::int64_t first_row, std::int64_t rows) {
    for (std::int64_t row = first_row; row < first_row + rows; ++row) {
      const std::int64_t i2 = row % plan.shape[2], i1 = row / plan.shape[2] % plan.shape[1],
                         i0 = row / plan.shape[2] / plan.shape[1];
      const float *const x = plan.x.data + i0 * plan.x.stride[0] + i1 * plan.x.stride[1] + i2 * plan.x.stride[2];
      float *const y = plan.y.data + i0 * plan.y.stride[0] + i1 * plan.y.stride[1] + i2 * plan.y.stride[2];
      run_row(x, plan.x.stride[3], y, plan.y.stride[3], plan.shape[3]);
    }
  }

private:
  static void run_row(const float *x, std::int64_t x_stride, float *y, std::int64_t y_stride, std::int64_t n) {
    const float m = maximum(x, x_stride, n);

    Float partial[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      partial[v] = Lanes::broadcast(0.0F);
    }
    for (std::int64_t j = 0; j < n; j += kChunk) {
      const int count = static_cast<int>(std::min<std::int64_t>(kChunk, n - j));
      float e[kChunk];
      gather(x + j * x_stride, x_stride, count, e);
      for (int v = 0; v < kVectors; ++v) {
        Lanes::store(e + v * kWidth,
                     exponential<Lanes, Flavour>(Lanes::subtract(Lanes::load(e + v * kWidth), Lanes::broadcast(m))));
      }
      for (int c = count; c < kChunk; ++c) {
        e[c] = 0.0F; // past the row: adds nothing
      }
      for (int v = 0; v < kVectors; ++v) {
        partial[v] = Lanes::add(partial[v], Lanes::load(e + v * kWidth));
      }
      scatter(e, count, y + j * y_stride, y_stride);
    }

    float p[kChunk];
    for (int v = 0; v < kVectors; ++v) {
      Lanes::store(p + v * kWidth, partial[v]);
    }
    for (int half = kChunk / 2; half > 0; half /= 2) {
      for (int t = 0; t < half; ++t) {
        p[t] = p[t] + p[t + half];
      }
    }

    const Float divisor = Flavour::divisor(Lanes::broadcast(p[0]));
    for (std::int64_t j = 0; j < n; j += kChunk) {
      const int count = static_cast<int>(std::min<std::int64_t>(kChunk, n - j));
      float e[kChunk];
      gather(y + j * y_stride, y_stride, count, e);
      for (int v = 0; v < kVectors; ++v) {
        Lanes::store(e + v * kWidth, canonical<Lanes>(Flavour::divide(Lanes::load(e + v * kWidth), divisor)));
      }
      scatter(e, count, y + j * y_stride, y_stride);
    }
  }

  static float maximum(const float *x, std::int64_t stride, std::int64_t n) {
    Float largest[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      largest[v] = Lanes::broadcast(-kInfinity);
    }
    for (std::int64_t j = 0; j < n; j += kChunk) {
      float chunk[kChunk];
      gather(x + j * stride, stride, static_cast<int>(std::min<std::int64_t>(kChunk, n - j)), chunk);
      for (int v = 0; v < kVectors; ++v) {
        largest[v] = Lanes::larger(largest[v], Lanes::load(chunk + v * kWidth));
      }
    }
    float m = -kInfinity;
    for (int v = 0; v < kVectors; ++v) {
      float lane[kWidth];
      Lanes::store(lane, largest[v]);
      for (int c = 0; c < kWidth; ++c) {
        m = m < lane[c] ? lane[c] : m;
      }
    }
    return m;
  }

  // Up to a chunk of columns; places past them are -inf, which is no maximum.
  static void gather(const float *from, std::int64_t stride, int count, float *to) {
    if (count == kChunk && stride == 1) {
      for (int v = 0; v < kVectors; ++v) {
        Lanes::store(to + v * kWidth, Lanes::load(from + v * kWidth));
      }
      return;
    }
    for (int c = 0; c < kChunk; ++c) {
      to[c] = c < count ? from[c * stride] : -kInfinity;
    }
  }

  static void scatter(const float *from, int count, float *to, std::int64_t stride) {
    if (count == kChunk && stride == 1) {
      for (int v = 0; v < kVectors; ++v) {
        Lanes::store(to + v * kWidth, Lanes::load(from + v * kWidth));
      }
      return;
    }
    for (int c = 0; c < count; ++c) {
      to[c * stride] = from[c];
    }
  }
};

} // namespace exattn
