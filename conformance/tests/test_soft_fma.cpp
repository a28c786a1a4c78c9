// The oracle's fused multiply-add against the machine's, or libm's where the machine has none, and against values that
// were worked out by hand.
#include "exact/soft_fma.hpp"

#include "conformance/generator.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using exattn::conformance::random_word;
using exattn::oracle::fma_by_integers;
using exattn::oracle::soft_fma;

#if defined(__x86_64__)
__attribute__((target("fma"))) float hardware_fma(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
#endif

float reference(float a, float b, float c) {
#if defined(__x86_64__)
  static const bool present = __builtin_cpu_supports("fma") != 0;
  if (present) {
    return hardware_fma(a, b, c);
  }
#endif
  return std::fma(a, b, c);
}

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

float from_bits(std::uint32_t u) {
  return std::bit_cast<float>(u);
}

bool same(float x, float y) {
  return (std::isnan(x) && std::isnan(y)) || bits(x) == bits(y);
}

// Counts, and shows the first few that differ.
struct Comparison {
  std::uint64_t cases = 0;
  std::uint64_t wrong = 0;

  void check(float a, float b, float c) {
    const float expected = reference(a, b, c);
    ++cases;
    if (!same(soft_fma(a, b, c), expected) || !same(fma_by_integers(a, b, c), expected)) {
      if (++wrong <= 5) {
        std::printf("fma(%a, %a, %a) is %a, the quick path gives %a, the integers %a\n", static_cast<double>(a),
                    static_cast<double>(b), static_cast<double>(c), static_cast<double>(expected),
                    static_cast<double>(soft_fma(a, b, c)), static_cast<double>(fma_by_integers(a, b, c)));
      }
    }
  }

  // All signs of the three.
  void check_signs(float a, float b, float c) {
    for (unsigned int signs = 0; signs < 8; ++signs) {
      check((signs & 1) != 0 ? -a : a, (signs & 2) != 0 ? -b : b, (signs & 4) != 0 ? -c : c);
    }
  }
};

// A random significand in [1, 2) with few or many bits.
float significand(std::uint64_t word) {
  const auto low_zeros = static_cast<unsigned int>((word >> 32) % 24);
  return from_bits(0x3F800000u | ((static_cast<std::uint32_t>(word) & 0x007FFFFFu) >> low_zeros << low_zeros));
}

float scaled(float x, int exponent) {
  return std::ldexp(x, exponent);
}

} // namespace

TEST_CASE("fma of numbers worked out by hand") {
  for (const auto fma : {soft_fma, fma_by_integers}) {
    CHECK(bits(fma(2.0F, 3.0F, 4.0F)) == bits(10.0F));
    // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the product alone loses its last bit to the even neighbour, fused it is kept.
    CHECK(bits(fma(0x1.001p0F, 0x1.001p0F, -1.0F)) == bits(0x1.0008p-11F));
    // A product of half a unit in the last place of 1: a tie, to even; to 1 + 2^-22 from the odd neighbour.
    CHECK(bits(fma(0x1p-12F, 0x1p-12F, 1.0F)) == bits(1.0F));
    CHECK(bits(fma(0x1p-12F, 0x1p-12F, 0x1.000002p0F)) == bits(0x1.000004p0F));
    // 2^-47 of a unit above or below the tie, which binary64 cannot hold next to 1.
    CHECK(bits(fma(0x1.000002p-12F, 0x1.000002p-12F, 1.0F)) == bits(0x1.000002p0F));
    CHECK(bits(fma(0x1.fffffep-13F, 0x1p-12F, 0x1.000002p0F)) == bits(0x1.000002p0F));
    // (1 + 2^-23)(1 - 2^-23) = 1 - 2^-46: just below the tie, so 1 stays and the odd neighbour is not rounded up.
    CHECK(bits(fma(0x1.000002p-12F, 0x1.fffffcp-13F, 1.0F)) == bits(1.0F));
    CHECK(bits(fma(0x1.000002p-12F, 0x1.fffffcp-13F, 0x1.000002p0F)) == bits(0x1.000002p0F));
    // Subnormal: 1.5 units of 2^-149 is a tie to 2, half a unit a tie to 0, and anything above half a unit is one.
    CHECK(bits(fma(0x1.8p-75F, 0x1p-74F, 0.0F)) == 2u);
    CHECK(bits(fma(0x1p-75F, 0x1p-75F, 0.0F)) == 0u);
    CHECK(bits(fma(-0x1p-75F, 0x1p-75F, 0.0F)) == 0x80000000u);
    CHECK(bits(fma(0x1.000002p-75F, 0x1p-75F, 0.0F)) == 1u);
    CHECK(bits(fma(0x1p-149F, 0x1p-149F, 0x1p-149F)) == 1u);
    // The carry from the largest subnormal number to the least normal one.
    CHECK(bits(fma(0x1p-75F, 0x1p-75F, from_bits(0x007FFFFFu))) == 0x00800000u);
    // Overflow begins half a unit above the largest number; less than that is rounded down.
    const float largest = std::numeric_limits<float>::max();
    CHECK(bits(fma(0x1p51F, 0x1p52F, largest)) == 0x7F800000u);
    CHECK(bits(fma(0x1.fffffep50F, 0x1p52F, largest)) == bits(largest));
    CHECK(bits(fma(largest, largest, -largest)) == 0x7F800000u);
    // Zeros.
    CHECK(bits(fma(1.0F, 1.0F, -1.0F)) == 0u);
    CHECK(bits(fma(-0.0F, 1.0F, -0.0F)) == 0x80000000u);
    CHECK(bits(fma(-0.0F, 1.0F, 0.0F)) == 0u);
    CHECK(bits(fma(0.0F, -1.0F, -0.0F)) == 0x80000000u);
    // Infinities and NaN.
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(bits(fma(infinity, 2.0F, -1.0F)) == 0x7F800000u);
    CHECK(bits(fma(1.0F, 1.0F, -infinity)) == 0xFF800000u);
    CHECK(std::isnan(fma(infinity, 0.0F, 1.0F)));
    CHECK(std::isnan(fma(infinity, -1.0F, infinity)));
    CHECK(std::isnan(fma(1.0F, 1.0F, from_bits(0x7F900000u))));
  }
}

TEST_CASE("fma of every triple of special values") {
  const std::vector<std::uint32_t> magnitudes = {
      0x00000000, 0x00000001, 0x00000002, 0x00000003, 0x003FFFFF, 0x00400000, 0x007FFFFF, 0x00800000,
      0x00800001, 0x00FFFFFF, 0x01000000, 0x0C800000, 0x1A000000, 0x1F800000, 0x20000000, 0x33800000,
      0x34000000, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x40000000, 0x4B7FFFFF, 0x5F000000,
      0x5F7FFFFF, 0x5F800000, 0x7E800000, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000};
  Comparison comparison;
  for (const std::uint32_t a : magnitudes) {
    for (const std::uint32_t b : magnitudes) {
      for (const std::uint32_t c : magnitudes) {
        comparison.check_signs(from_bits(a), from_bits(b), from_bits(c));
      }
    }
  }
  CHECK(comparison.cases == 8u * 32 * 32 * 32);
  CHECK(comparison.wrong == 0);
}

TEST_CASE("fma of structured hard cases") {
  Comparison comparison;
  std::uint64_t integers = 0;
  for (std::uint64_t n = 0; n < 20000; ++n) {
    const auto word = [n](std::uint64_t seed) { return random_word(seed, n); };
    const float a = significand(word(1));
    const float b = significand(word(2));
    const float c = significand(word(3));
    const int e = static_cast<int>(word(4) % 120) - 60;
    const int f = static_cast<int>(word(5) % 120) - 60;

    // Any bits at all.
    comparison.check(from_bits(static_cast<std::uint32_t>(word(6))), from_bits(static_cast<std::uint32_t>(word(7))),
                     from_bits(static_cast<std::uint32_t>(word(8))));
    // An addend of about the product's size, or up to 2^60 larger or smaller.
    comparison.check_signs(scaled(a, e), scaled(b, f), scaled(c, e + f + static_cast<int>(word(9) % 121) - 60));
    // A product near half a unit in the last place of the addend: at the tie when a = b = 1, and within 2^-22 and 2^-46
    // of it.
    const float near_one[] = {1.0F, 0x1.000002p0F, 0x1.fffffep-1F, 0x1.fffffcp-1F, 0x1.001p0F};
    const float x = near_one[word(10) % 5];
    const float y = near_one[word(11) % 5];
    comparison.check_signs(scaled(x, e), scaled(y, f), scaled(c, e + f + 24));
    // The same with a product of several halves.
    const auto odd = static_cast<float>(2 * (word(12) % 64) + 1);
    comparison.check_signs(scaled(odd, e), scaled(y, f), scaled(c, e + f + 24 + static_cast<int>(word(13) % 8)));
    // Cancellation: the addend is the rounded product or a neighbour, so that the rest is what rounding lost.
    const float product = scaled(a, e) * scaled(b, f);
    for (const float addend : {product, std::nextafter(product, 0.0F), std::nextafter(product, 2 * product)}) {
      comparison.check_signs(scaled(a, e), scaled(b, f), addend);
    }
    // Results among the subnormal numbers, at their border, and far below.
    const int below = -120 - static_cast<int>(word(14) % 32);
    comparison.check_signs(scaled(a, e), scaled(b, below - e), scaled(c, below));
    comparison.check_signs(scaled(a, e), scaled(b, below - e),
                           from_bits(static_cast<std::uint32_t>(word(15) % 0x1000000)));
    comparison.check_signs(scaled(odd, e), scaled(1.0F, -150 - e),
                           from_bits(static_cast<std::uint32_t>(word(16) % 64)));
    // Overflow: round the largest number, by a product near half a unit in its last place, and beyond.
    const float huge = from_bits(0x7F7FFFFFu - static_cast<std::uint32_t>(word(17) % 2));
    comparison.check_signs(scaled(x, e), scaled(y, 103 - e), huge);
    comparison.check_signs(scaled(a, 64), scaled(b, 62 + static_cast<int>(word(18) % 3)), scaled(c, 125));
    const double s = static_cast<double>(scaled(x, e)) * static_cast<double>(scaled(y, f)) +
                     static_cast<double>(scaled(c, e + f + 24));
    integers += (std::bit_cast<std::uint64_t>(s) & 0x1FFFFFFFu) == 0x10000000u ? 1u : 0u;
  }
  std::printf("%llu structured cases\n", static_cast<unsigned long long>(comparison.cases));
  CHECK(comparison.cases > 1000000);
  CHECK(comparison.wrong == 0);
  CHECK(integers > 1000); // halfway points that the quick path must not answer by itself
}
