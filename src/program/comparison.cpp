#include "comparison.hpp"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace exattn::program {
namespace {

double distance(float a, float b) {
  if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b)) ||
      a == b) {
    return 0;
  }
  const double difference = std::fabs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

} // namespace

Comparison compare_arrays(const NpyArray &a, const NpyArray &b) {
  Comparison result;
  result.elements = a.size();
  const float *const data[2] = {a.floats(), b.floats()};
  std::vector<std::int64_t> index(a.shape.size(), 0);
  for (std::size_t n = 0; n < result.elements; ++n) {
    std::int64_t at[2] = {0, 0};
    for (std::size_t d = 0; d < index.size(); ++d) {
      at[0] += index[d] * a.strides[d];
      at[1] += index[d] * b.strides[d];
    }
    const std::uint32_t bits[2] = {std::bit_cast<std::uint32_t>(data[0][at[0]]),
                                   std::bit_cast<std::uint32_t>(data[1][at[1]])};
    if (bits[0] != bits[1]) {
      if (++result.differing == 1) {
        result.first_index = result.worst_index = index;
        result.first_bits[0] = bits[0];
        result.first_bits[1] = bits[1];
      }
      if (const double difference = distance(data[0][at[0]], data[1][at[1]]); difference > result.max_abs) {
        result.max_abs = difference;
        result.worst_index = index;
      }
    }
    for (std::size_t d = index.size(); d > 0; --d) { // the next index, last dimension fastest
      index[d - 1] += 1;
      if (index[d - 1] < a.shape[d - 1]) {
        break;
      }
      index[d - 1] = 0;
    }
  }
  return result;
}

std::string index_text(const std::vector<std::int64_t> &index) {
  std::string text = "[";
  for (std::size_t n = 0; n < index.size(); ++n) {
    text += (n == 0 ? "" : ", ") + std::to_string(index[n]);
  }
  return text + "]";
}

std::string ulps_text(std::uint32_t a, std::uint32_t b) {
  if (std::isnan(std::bit_cast<float>(a)) || std::isnan(std::bit_cast<float>(b))) {
    return "no distance, since one is NaN";
  }
  const auto place = [](std::uint32_t bits) {
    const auto magnitude = static_cast<std::int64_t>(bits & 0x7FFFFFFFU);
    return (bits & 0x80000000U) != 0 ? -magnitude : magnitude;
  };
  const std::int64_t distance = std::llabs(place(a) - place(b));
  return std::to_string(distance) + (distance == 1 ? " ulp" : " ulps");
}

} // namespace exattn::program
