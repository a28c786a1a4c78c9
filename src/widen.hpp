// 16-bit elements as binary32 (definition, section 3). Both conversions are exact.
#pragma once

#include <bit>
#include <cstdint>

#include "exact/safe_math.hpp"
#include "kernel.hpp"

namespace exattn {

inline std::int64_t element_bytes(Storage storage) {
  return storage == Storage::kFloat32 ? 4 : 2;
}

inline float widen_bfloat16(std::uint16_t pattern) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(pattern) << 16);
}

// The fields are moved to where binary32 has them, which leaves an exponent that is 112 too small: the product with
// 2^112 puts that right, subnormal numbers included. Infinities and NaNs get their exponent back.
inline float widen_float16(std::uint16_t pattern) {
  const std::uint32_t magnitude = pattern & 0x7FFFU;
  const float scaled = std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(std::uint32_t{(127 + 112) << 23});
  const std::uint32_t special = magnitude >= 0x7C00U ? 0x7F800000U : 0U;
  const std::uint32_t sign = static_cast<std::uint32_t>(pattern & 0x8000U) << 16;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

template <class Element, class Widen>
void widen_each(const Element *from, std::int64_t stride, std::int64_t count, float *to, Widen widen) {
  if (stride == 1) { // apart, so that compilers make vectors of it
    for (std::int64_t x = 0; x < count; ++x) {
      to[x] = widen(from[x]);
    }
    return;
  }
  for (std::int64_t x = 0; x < count; ++x) {
    to[x] = widen(from[x * stride]);
  }
}

// to[x] = element x of a row, its elements `stride` apart, for x < count.
inline void widen(const void *row, Storage storage, std::int64_t stride, std::int64_t count, float *to) {
  switch (storage) {
  case Storage::kFloat32:
    widen_each(static_cast<const float *>(row), stride, count, to, [](float value) { return value; });
    break;
  case Storage::kBfloat16:
    widen_each(static_cast<const std::uint16_t *>(row), stride, count, to,
               [](std::uint16_t pattern) { return widen_bfloat16(pattern); });
    break;
  case Storage::kFloat16:
    widen_each(static_cast<const std::uint16_t *>(row), stride, count, to,
               [](std::uint16_t pattern) { return widen_float16(pattern); });
    break;
  }
}

} // namespace exattn
