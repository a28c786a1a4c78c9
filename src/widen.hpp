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

// to[x] = element x of a row, its elements `stride` apart, for x < count.
inline void widen(const void *row, Storage storage, std::int64_t stride, std::int64_t count, float *to) {
  if (storage == Storage::kFloat32) {
    const float *const from = static_cast<const float *>(row);
    for (std::int64_t x = 0; x < count; ++x) {
      to[x] = from[x * stride];
    }
    return;
  }
  const std::uint16_t *const from = static_cast<const std::uint16_t *>(row);
  if (storage == Storage::kBfloat16) {
    for (std::int64_t x = 0; x < count; ++x) {
      to[x] = widen_bfloat16(from[x * stride]);
    }
  } else {
    for (std::int64_t x = 0; x < count; ++x) {
      to[x] = widen_float16(from[x * stride]);
    }
  }
}

} // namespace exattn
