// The fused multiply-add of the fast flavour in software, for the oracle: a * b + c, rounded once. It uses neither the
// machine's fused instruction nor libm. fma_by_integers is what the operation means; soft_fma gives the same faster.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "exact/safe_math.hpp"

namespace exattn::oracle {

// A signed integer of 640 bits, in two's complement, counting units of 2^-298. The least product of two binary32
// numbers is one unit, the largest below 2^554, so that a * b + c is always held exactly.
class WideInteger {
public:
  // Adds, or subtracts if `negative`, magnitude * 2^shift.
  void add(std::uint64_t magnitude, int shift, bool negative) {
    const auto first = static_cast<std::size_t>(shift / 64);
    const int within = shift % 64;
    bool carry = negative; // -x is ~x + 1
    for (std::size_t n = 0; n < words.size(); ++n) {
      std::uint64_t part = 0;
      if (n == first) {
        part = magnitude << within;
      } else if (n == first + 1 && within != 0) {
        part = magnitude >> (64 - within);
      }
      if (negative) {
        part = ~part;
      }
      const std::uint64_t sum = words[n] + part;
      const std::uint64_t total = sum + (carry ? 1 : 0);
      carry = sum < part || total < sum;
      words[n] = total;
    }
  }

  bool negative() const { return (words.back() >> 63) != 0; }

  void negate() {
    bool carry = true;
    for (std::uint64_t &word : words) {
      word = ~word + (carry ? 1 : 0);
      carry = carry && word == 0;
    }
  }

  // The position of the highest bit that is set; -1 for zero. Not for negative numbers.
  int top() const {
    for (std::size_t n = words.size(); n-- > 0;) {
      if (words[n] != 0) {
        return static_cast<int>(n) * 64 + 63 - std::countl_zero(words[n]);
      }
    }
    return -1;
  }

  bool bit(int position) const {
    return ((words[static_cast<std::size_t>(position / 64)] >> (position % 64)) & 1) != 0;
  }

  bool any_below(int position) const {
    const auto last = static_cast<std::size_t>(position / 64);
    for (std::size_t n = 0; n < last; ++n) {
      if (words[n] != 0) {
        return true;
      }
    }
    return position % 64 != 0 && (words[last] << (64 - position % 64)) != 0;
  }

  // Bits position .. position + 31.
  std::uint32_t slice(int position) const {
    const auto first = static_cast<std::size_t>(position / 64);
    const int within = position % 64;
    std::uint64_t value = words[first] >> within;
    if (within > 32 && first + 1 < words.size()) {
      value |= words[first + 1] << (64 - within);
    }
    return static_cast<std::uint32_t>(value);
  }

private:
  std::array<std::uint64_t, 10> words{};
};

// A finite binary32 number: (-1)^negative * significand * 2^(exponent - 149), with 0 <= exponent <= 253.
struct Parts {
  explicit Parts(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t field = (bits >> 23) & 0xFF;
    negative = (bits >> 31) != 0;
    significand = (bits & 0x007FFFFF) | (field == 0 ? 0u : 0x00800000u);
    exponent = field == 0 ? 0 : static_cast<int>(field) - 1;
  }
  bool negative;
  std::uint32_t significand;
  int exponent;
};

// a * b + c by IEEE-754, to nearest, ties to even.
inline float fma_by_integers(float a, float b, float c) {
  constexpr std::uint32_t kSign = 0x80000000u;
  constexpr std::uint32_t kInfinity = 0x7F800000u;
  constexpr std::uint32_t kNan = 0x7FC00000u;
  const auto magnitude = [](float x) { return std::bit_cast<std::uint32_t>(x) & ~kSign; };
  const std::uint32_t product_sign = (std::bit_cast<std::uint32_t>(a) ^ std::bit_cast<std::uint32_t>(b)) & kSign;

  // NaN and infinities.
  if (magnitude(a) > kInfinity || magnitude(b) > kInfinity || magnitude(c) > kInfinity) {
    return std::bit_cast<float>(kNan);
  }
  if (magnitude(a) == kInfinity || magnitude(b) == kInfinity) {
    const bool times_zero = magnitude(a) == 0 || magnitude(b) == 0;
    const bool minus_itself = magnitude(c) == kInfinity && (std::bit_cast<std::uint32_t>(c) & kSign) != product_sign;
    return std::bit_cast<float>(times_zero || minus_itself ? kNan : product_sign | kInfinity);
  }
  if (magnitude(c) == kInfinity) {
    return c;
  }

  // The exact value.
  const Parts pa(a);
  const Parts pb(b);
  const Parts pc(c);
  WideInteger value;
  value.add(std::uint64_t{pa.significand} * pb.significand, pa.exponent + pb.exponent, product_sign != 0);
  value.add(pc.significand, pc.exponent + 149, pc.negative);

  const bool minus = value.negative();
  if (minus) {
    value.negate();
  }
  const int top = value.top();
  // A sum of zero has the sign of its terms if they agree, and is +0 otherwise.
  if (top < 0) {
    return std::bit_cast<float>(product_sign != 0 && pc.negative ? kSign : 0u);
  }

  // The last bit that binary32 keeps: 24 bits from the top, and never below 2^-149.
  const int last = top - 23 > 149 ? top - 23 : 149;
  std::uint32_t kept = value.slice(last);
  if (value.bit(last - 1) && (value.any_below(last - 1) || (kept & 1) != 0)) {
    ++kept;
  }
  // The exponent field counts from the place of 2^-149; the highest of 24 kept bits adds one to it, and so does a carry
  // out of the rounding.
  std::uint32_t bits = (static_cast<std::uint32_t>(last - 149) << 23) + kept;
  if (bits > kInfinity) {
    bits = kInfinity;
  }
  return std::bit_cast<float>((minus ? kSign : 0u) | bits);
}

// The same by way of binary64, in round-to-nearest. The product of two binary32 numbers is exact there, so
// s = RN53(a * b + c) holds one rounding, and turning s into binary32 is a second one. Every binary32 number and every
// point halfway between two of them is a binary64 number, and rounding keeps order: so as long as s is not itself a
// halfway point, the exact value lies on the same side of each of them as s does, and both round to the same number.
// Halfway points of normal numbers have 1 and 28 zeros below the 24 bits that are kept. Those, and whatever is below
// the normal numbers without being zero (an s of zero is exact), are left to the integers.
inline float soft_fma(float a, float b, float c) {
  const double s = static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c);
  const auto bits = std::bit_cast<std::uint64_t>(s);
  constexpr std::uint64_t kBelow = (std::uint64_t{1} << 29) - 1;
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 28;
  constexpr std::uint64_t kLeastNormal = std::uint64_t{1023 - 126} << 52;
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  if ((bits & kBelow) == kHalf || (magnitude < kLeastNormal && magnitude != 0)) [[unlikely]] {
    return fma_by_integers(a, b, c);
  }
  return static_cast<float>(s);
}

} // namespace exattn::oracle
