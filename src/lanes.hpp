// The lane kinds: vectors of binary32 with the few operations that IEEE-754 pins down, so that every lane gives the
// bits that one lane alone would. This is the one file that names xsimd; of xsimd it uses nothing whose result depends
// on its version or target (its max, reductions, exp and fma on AVX-512 do).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <xsimd/xsimd.hpp>

#include "exact/safe_math.hpp"

namespace exattn {

// What is summed in registers at once: so many vectors of query rows by so many keys, or columns of the values. Chosen
// by measurement (docs/architecture.md).
struct Tile {
  int vectors, columns;
  int operands = 0; // of the columns, for how many the numbers are read by each product, by multiply_number
};

// Lanes over an xsimd architecture. Derived lane kinds add fma and the shape of their register tiles.
template <class Arch>
struct VectorLanes {
  using Float = xsimd::batch<float, Arch>;
  using Integer = xsimd::batch<std::uint32_t, Arch>;
  using Mask = xsimd::batch_bool<float, Arch>;

  static constexpr int width = static_cast<int>(Float::size);

  static Float load(const float *from) { return Float::load_unaligned(from); }
  static void store(float *to, Float value) { value.store_unaligned(to); }
  static Float broadcast(float value) { return Float(value); }

  static Float add(Float a, Float b) { return a + b; }
  static Float subtract(Float a, Float b) { return a - b; }
  static Float multiply(Float a, Float b) { return a * b; }
  static Float multiply_number(Float a, const float *b) { return a * Float(*b); }
  static Float divide(Float a, Float b) { return a / b; }

  // Comparisons are false where a side is NaN.
  static Mask less(Float a, Float b) { return a < b; }
  static Mask equal(Float a, Float b) { return a == b; }
  static Mask both(Mask a, Mask b) { return a & b; }
  static Mask either(Mask a, Mask b) { return a | b; }
  static Mask negate(Mask a) { return ~a; }
  static bool all(Mask a) { return xsimd::all(a); }
  static Float select(Mask condition, Float yes, Float no) { return xsimd::select(condition, yes, no); }
  // The larger one; kept where candidate is NaN. kept is never NaN.
  static Float larger(Float kept, Float candidate) { return select(less(kept, candidate), candidate, kept); }

#if XSIMD_VERSION_MAJOR < 9
  static Integer bits(Float value) {
    return xsimd::bitwise_cast<Integer>(value);
  }
  static Float from_bits(Integer value) {
    return xsimd::bitwise_cast<Float>(value);
  }
#else
  static Integer bits(Float value) {
    return xsimd::bitwise_cast<std::uint32_t>(value);
  }
  static Float from_bits(Integer value) {
    return xsimd::bitwise_cast<float>(value);
  }
#endif
  static Integer integer(std::uint32_t value) {
    return Integer(value);
  }
  static Integer add_integer(Integer a, Integer b) {
    return a + b;
  }
  static Integer subtract_integer(Integer a, Integer b) {
    return a - b;
  }
  template <int count>
  static Integer shift_left(Integer a) {
    return a << count;
  }
  template <int count>
  static Integer shift_right(Integer a) {
    return a >> count;
  }
};

template <class Arch>
struct VectorTranspose {
  using Quad = xsimd::batch<float, Arch>;
  // Transposes 4 x 4 numbers: to[c][r] = from[r][c].
  static void four_by_four(const float *const from[4], float *const to[4]) {
    Quad quad[4];
    transpose(Quad::load_unaligned(from[0]), Quad::load_unaligned(from[1]), Quad::load_unaligned(from[2]),
              Quad::load_unaligned(from[3]), quad);
    for (int c = 0; c < 4; ++c) {
      quad[c].store_unaligned(to[c]);
    }
  }
  // Lane n of to[c] is row(n)[c], for c < 4.
  template <class Row>
  static void load_columns(Row row, Quad (&to)[4]) {
    transpose(Quad::load_unaligned(row(0)), Quad::load_unaligned(row(1)), Quad::load_unaligned(row(2)),
              Quad::load_unaligned(row(3)), to);
  }

private:
  static void transpose(Quad r0, Quad r1, Quad r2, Quad r3, Quad (&to)[4]) {
    const Quad low02 = xsimd::zip_lo(r0, r2), low13 = xsimd::zip_lo(r1, r3);
    const Quad high02 = xsimd::zip_hi(r0, r2), high13 = xsimd::zip_hi(r1, r3);
    to[0] = xsimd::zip_lo(low02, low13);
    to[1] = xsimd::zip_hi(low02, low13);
    to[2] = xsimd::zip_lo(high02, high13);
    to[3] = xsimd::zip_hi(high02, high13);
  }
};

// `count` vectors of a lane kind as one. Instructions then come out in turns, vector by vector, so that those that wait
// for each other are apart: a processor looks only so far ahead.
template <class Lanes, int count>
struct SeveralLanes {
  struct Float {
    typename Lanes::Float part[count];
  };
  struct Integer {
    typename Lanes::Integer part[count];
  };
  struct Mask {
    typename Lanes::Mask part[count];
  };

  static Float broadcast(float value) {
    return each<Float>([&](int) { return Lanes::broadcast(value); });
  }
  static Float add(Float a, Float b) {
    return each<Float>([&](int n) { return Lanes::add(a.part[n], b.part[n]); });
  }
  static Float subtract(Float a, Float b) {
    return each<Float>([&](int n) { return Lanes::subtract(a.part[n], b.part[n]); });
  }
  static Float multiply(Float a, Float b) {
    return each<Float>([&](int n) { return Lanes::multiply(a.part[n], b.part[n]); });
  }
  static Float fma(Float a, Float b, Float c) {
    return each<Float>([&](int n) { return Lanes::fma(a.part[n], b.part[n], c.part[n]); });
  }
  static Mask less(Float a, Float b) {
    return each<Mask>([&](int n) { return Lanes::less(a.part[n], b.part[n]); });
  }
  static Float select(Mask condition, Float yes, Float no) {
    return each<Float>([&](int n) { return Lanes::select(condition.part[n], yes.part[n], no.part[n]); });
  }
  static Integer bits(Float value) {
    return each<Integer>([&](int n) { return Lanes::bits(value.part[n]); });
  }
  static Float from_bits(Integer value) {
    return each<Float>([&](int n) { return Lanes::from_bits(value.part[n]); });
  }
  template <int places>
  static Integer shift_left(Integer a) {
    return each<Integer>([&](int n) { return Lanes::template shift_left<places>(a.part[n]); });
  }

private:
  template <class Several, class Operation>
  [[gnu::always_inline]] static Several each(Operation operation) {
    Several result;
#pragma GCC unroll 16
    for (int n = 0; n < count; ++n) {
      result.part[n] = operation(n);
    }
    return result;
  }
};

// One lane, in plain C++: what every other lane kind is compared with.
struct ScalarLanes {
  using Float = float;
  using Integer = std::uint32_t;
  using Mask = bool;

  static constexpr int width = 1;
  static constexpr int strip_vectors = 1;
  static constexpr Tile tile(bool) { return {1, 16}; }
  static constexpr int weights_together = 4;
  static constexpr int few_rows_together = 1;
  static constexpr int few_rows_columns = 1;

  static Float load(const float *from) { return *from; }
  static void store(float *to, Float value) { *to = value; }
  static Float broadcast(float value) { return value; }

  static Float add(Float a, Float b) { return a + b; }
  static Float subtract(Float a, Float b) { return a - b; }
  static Float multiply(Float a, Float b) { return a * b; }
  static Float multiply_number(Float a, const float *b) { return a * *b; }
  static Float divide(Float a, Float b) { return a / b; }

  // a * b + c rounded once, without a fused instruction. The product is exact in binary64 (48 bits). The sum is rounded
  // there to odd: its last bit is set whenever it is inexact. Such a sum has at least two bits more than any binary32
  // result, subnormal ones included, so rounding it once more gives what one rounding would have.
  static Float fma(Float a, Float b, Float c) {
    const double product = static_cast<double>(a) * static_cast<double>(b);
    const double addend = static_cast<double>(c);
    double sum = product + addend;
    const double addend_part = sum - product;
    const double error = (product - (sum - addend_part)) + (addend - addend_part);
    std::uint64_t pattern = std::bit_cast<std::uint64_t>(sum);
    if (error != 0 && (pattern & 1) == 0 && (pattern & kInfinity) != kInfinity) {
      // Towards the true sum: its magnitude is larger when sum and error have one sign.
      pattern += ((error > 0) == (sum > 0)) ? std::uint64_t{1} : ~std::uint64_t{0};
      sum = std::bit_cast<double>(pattern);
    }
    return static_cast<float>(sum);
  }

  static Mask less(Float a, Float b) { return a < b; }
  static Mask equal(Float a, Float b) { return a == b; }
  static Mask both(Mask a, Mask b) { return a && b; }
  static Mask either(Mask a, Mask b) { return a || b; }
  static Mask negate(Mask a) { return !a; }
  static bool all(Mask a) { return a; }
  static Float select(Mask condition, Float yes, Float no) { return condition ? yes : no; }
  static Float larger(Float kept, Float candidate) { return kept < candidate ? candidate : kept; }

  static Integer bits(Float value) { return std::bit_cast<Integer>(value); }
  static Float from_bits(Integer value) { return std::bit_cast<Float>(value); }
  static Integer integer(std::uint32_t value) { return value; }
  static Integer add_integer(Integer a, Integer b) { return a + b; }
  static Integer subtract_integer(Integer a, Integer b) { return a - b; }
  template <int count>
  static Integer shift_left(Integer a) {
    return a << count;
  }
  template <int count>
  static Integer shift_right(Integer a) {
    return a >> count;
  }

  static void four_by_four(const float *const from[4], float *const to[4]) {
    for (int r = 0; r < 4; ++r) {
      for (int c = 0; c < 4; ++c) {
        to[c][r] = from[r][c];
      }
    }
  }

  template <class Row>
  static void load_columns(Row row, Float (&to)[4]) {
    std::copy(row(0), row(0) + 4, to);
  }

private:
  static constexpr std::uint64_t kInfinity = 0x7FF0000000000000;
};

#if XSIMD_WITH_SSE2
struct Sse2Lanes : VectorLanes<xsimd::sse2>, VectorTranspose<xsimd::sse2> {
  static constexpr int strip_vectors = 2;
  static constexpr Tile tile(bool) { return {2, 4}; }
  static constexpr int weights_together = 2;
  static constexpr int few_rows_together = 2;
  static constexpr int few_rows_columns = 4;
  // maxps gives its second operand where one is NaN and where both are zero.
  static Float larger(Float kept, Float candidate) { return _mm_max_ps(candidate, kept); }
};
#endif

#if XSIMD_WITH_AVX2
struct Avx2Lanes : VectorLanes<xsimd::avx2>, VectorTranspose<xsimd::sse2> {
  static constexpr int strip_vectors = 2;
  static constexpr Tile tile(bool) { return {2, 4}; }
  static constexpr int weights_together = 2;
  static constexpr int few_rows_together = 2;
  static constexpr int few_rows_columns = 4;
  static Float larger(Float kept, Float candidate) { return _mm256_max_ps(candidate, kept); }
  // Row 4 n + i in half n of vector i, as with AVX-512.
  template <class Row>
  static void load_columns(Row row, Float (&to)[4]) {
    __m256 v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_castps128_ps256(_mm_loadu_ps(row(i)));
      v[i] = _mm256_insertf128_ps(v[i], _mm_loadu_ps(row(i + 4)), 1);
    }
    const __m256 low02 = _mm256_unpacklo_ps(v[0], v[2]), low13 = _mm256_unpacklo_ps(v[1], v[3]);
    const __m256 high02 = _mm256_unpackhi_ps(v[0], v[2]), high13 = _mm256_unpackhi_ps(v[1], v[3]);
    to[0] = _mm256_unpacklo_ps(low02, low13);
    to[1] = _mm256_unpackhi_ps(low02, low13);
    to[2] = _mm256_unpacklo_ps(high02, high13);
    to[3] = _mm256_unpackhi_ps(high02, high13);
  }
#if defined(__FMA__)
  static Float fma(Float a, Float b, Float c) {
    return _mm256_fmadd_ps(a, b, c);
  }
#endif
};
#endif

#if XSIMD_WITH_AVX512F
struct Avx512Lanes : VectorLanes<xsimd::avx512f>, VectorTranspose<xsimd::sse2> {
  static constexpr int strip_vectors = 2;
  static constexpr Tile tile(bool fused) { return {2, 8, fused ? 0 : 4}; }
  static constexpr int weights_together = 4;
  static constexpr int few_rows_together = 4;
  static constexpr int few_rows_columns = 4;
  static Float larger(Float kept, Float candidate) { return _mm512_max_ps(candidate, kept); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  // Compilers would load a number that is used twice into a register: one instruction more.
  static Float multiply_number(Float a, const float *b) {
    __m512 product;
    asm("vmulps %2%{1to16%}, %1, %0" : "=v"(product) : "v"(static_cast<__m512>(a)), "m"(*b));
    return product;
  }
  // Row 4 n + i in quarter n of vector i: transposing within the quarters is all that is left.
  template <class Row>
  static void load_columns(Row row, Float (&to)[4]) {
    __m512 v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm512_castps128_ps512(_mm_loadu_ps(row(i)));
      v[i] = _mm512_insertf32x4(v[i], _mm_loadu_ps(row(i + 4)), 1);
      v[i] = _mm512_insertf32x4(v[i], _mm_loadu_ps(row(i + 8)), 2);
      v[i] = _mm512_insertf32x4(v[i], _mm_loadu_ps(row(i + 12)), 3);
    }
    const __m512 low02 = _mm512_unpacklo_ps(v[0], v[2]), low13 = _mm512_unpacklo_ps(v[1], v[3]);
    const __m512 high02 = _mm512_unpackhi_ps(v[0], v[2]), high13 = _mm512_unpackhi_ps(v[1], v[3]);
    to[0] = _mm512_unpacklo_ps(low02, low13);
    to[1] = _mm512_unpackhi_ps(low02, low13);
    to[2] = _mm512_unpacklo_ps(high02, high13);
    to[3] = _mm512_unpackhi_ps(high02, high13);
  }
};

// The same with broadcasts in memory operands alone, each used once: for processors that spend a multiplication's time
// on a broadcast into a register.
struct Avx512NarrowLanes : Avx512Lanes {
  static constexpr int strip_vectors = 1;
  static constexpr Tile tile(bool) { return {1, 16}; }
};
#endif

#if XSIMD_WITH_NEON64
struct Neon64Lanes : VectorLanes<xsimd::neon64>, VectorTranspose<xsimd::neon64> {
  static constexpr int strip_vectors = 4;
  static constexpr Tile tile(bool) { return {4, 4}; }
  static constexpr int weights_together = 4;
  static constexpr int few_rows_together = 4;
  static constexpr int few_rows_columns = 4;
  // xsimd 8.1.0 calls functions for these two,
  static Integer bits(Float value) { return vreinterpretq_u32_f32(value); }
  static Float from_bits(Integer value) { return vreinterpretq_f32_u32(value); }
  // and divides by an approximate reciprocal here.
  static Float divide(Float a, Float b) { return vdivq_f32(a, b); }
  static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
};
#endif

} // namespace exattn
