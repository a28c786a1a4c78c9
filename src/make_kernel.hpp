// What a kernel_<lanes>_<flavour>.cpp puts into its table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "exattn/exattn.h"
#include "softmax_rows.hpp"
#include "tile_loop.hpp"

namespace exattn {

template <class Lanes, class Flavour>
struct Evaluation {
  static void run(std::int32_t function, const float *x, float *y, std::size_t n) {
    for (std::size_t i = 0; i < n; i += Lanes::width) {
      const std::size_t count = std::min<std::size_t>(Lanes::width, n - i);
      float lane[Lanes::width] = {};
      std::copy(x + i, x + i + count, lane);
      const auto value = Lanes::load(lane);
      Lanes::store(lane, function == EXATTN_FUNCTION_EXP   ? exponential<Lanes, Flavour>(value)
                         : function == EXATTN_FUNCTION_LOG ? logarithm<Lanes, Flavour>(value)
                                                           : tangent<Lanes, Flavour>(value));
      std::copy(lane, lane + count, y + i);
    }
  }
};

template <class Lanes, class Flavour>
constexpr Kernel make_kernel(const char *name) {
  return {name, &TileLoop<Lanes, Flavour>::run, &SoftmaxRows<Lanes, Flavour>::run, &Evaluation<Lanes, Flavour>::run};
}

} // namespace exattn
