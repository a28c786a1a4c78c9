// The two flavours' arithmetic, and the exponential, logarithm and hyperbolic tangent of docs/definition.md, sections
// 2, 7, 8 and 13, written once over lanes (src/lanes.hpp).
#pragma once

#include <cstdint>
#include <limits>

#include "exact/constants.hpp"
#include "exact/safe_math.hpp"

namespace exattn {

inline constexpr std::uint32_t kCanonicalNan = 0x7FC00000;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Lanes>
struct Exact {
  using Float = typename Lanes::Float;
  static constexpr bool fused = false;
  template <class Other>
  using On = Exact<Other>;
  static Float muladd(Float a, Float b, Float c) { return Lanes::add(Lanes::multiply(a, b), c); }
  static Float muladd_number(Float a, const float *b, Float c) { return Lanes::add(Lanes::multiply_number(a, b), c); }
  // What dividing by l needs of l, and the division.
  static Float divisor(Float l) { return l; }
  static Float divide(Float x, Float divisor) { return Lanes::divide(x, divisor); }
};

template <class Lanes>
struct Fast {
  using Float = typename Lanes::Float;
  static constexpr bool fused = true;
  template <class Other>
  using On = Fast<Other>;
  static Float muladd(Float a, Float b, Float c) { return Lanes::fma(a, b, c); }
  static Float muladd_number(Float a, const float *b, Float c) { return Lanes::fma(a, Lanes::broadcast(*b), c); }
  static Float divisor(Float l) { return Lanes::divide(Lanes::broadcast(1.0F), l); }
  static Float divide(Float x, Float divisor) { return Lanes::multiply(x, divisor); }
};

// Section 7. x <= 0 or NaN; for section 13, x up to 20.
template <class Lanes, class Flavour>
[[gnu::always_inline]] inline typename Lanes::Float exponential(typename Lanes::Float x) {
  using namespace constants;
  using Float = typename Lanes::Float;
  const auto constant = [](float value) { return Lanes::broadcast(value); };
  const Float round = constant(12582912.0F + 127.0F);

  const Float y = Flavour::muladd(x, constant(kLog2E), round);
  const Float minus_n = Lanes::subtract(round, y);

  Float r = Flavour::muladd(minus_n, constant(kLn2High), x);
  r = Flavour::muladd(minus_n, constant(kLn2Low), r);

  Float g = constant(kExp6);
  g = Flavour::muladd(g, r, constant(kExp5));
  g = Flavour::muladd(g, r, constant(kExp4));
  g = Flavour::muladd(g, r, constant(kExp3));
  g = Flavour::muladd(g, r, constant(kExp2));
  const Float h = Flavour::muladd(Lanes::multiply(r, r), g, r);
  const Float f = Lanes::add(constant(1.0F), h);

  const Float power = Lanes::from_bits(Lanes::template shift_left<23>(Lanes::bits(y)));
  return Lanes::select(Lanes::less(x, constant(kExpCut)), constant(0.0F), Lanes::multiply(f, power));
}

// Section 8. x = 0, x >= 1 or NaN.
template <class Lanes, class Flavour>
typename Lanes::Float logarithm(typename Lanes::Float x) {
  using namespace constants;
  using Float = typename Lanes::Float;
  const auto constant = [](float value) { return Lanes::broadcast(value); };

  const auto k = Lanes::template shift_right<23>(
      Lanes::subtract_integer(Lanes::bits(x), Lanes::integer(std::bit_cast<std::uint32_t>(kSqrtHalf))));
  const Float f = Lanes::from_bits(Lanes::subtract_integer(Lanes::bits(x), Lanes::template shift_left<23>(k)));
  // k as a number: 2^23 + k has k in its last bits.
  const Float two23 = constant(8388608.0F);
  const Float n = Lanes::subtract(Lanes::from_bits(Lanes::add_integer(Lanes::bits(two23), k)), two23);

  const Float r = Lanes::subtract(f, constant(1.0F));
  const Float r2 = Lanes::multiply(r, r);
  Float g = constant(kLog10);
  for (const float coefficient : {kLog9, kLog8, kLog7, kLog6, kLog5, kLog4, kLog3}) {
    g = Flavour::muladd(g, r, constant(coefficient));
  }
  Float w = Lanes::multiply(r2, Lanes::multiply(r, g));
  w = Flavour::muladd(n, constant(kLn2Low), w);
  w = Flavour::muladd(r2, constant(-0.5F), w);
  const Float y = Lanes::add(r, w);
  const Float result = Flavour::muladd(n, constant(kLn2High), y);

  // NaN and +inf give themselves, 0 gives -inf.
  const Float special = Lanes::select(Lanes::equal(x, constant(0.0F)), constant(-kInfinity), x);
  return Lanes::select(Lanes::both(Lanes::less(constant(0.5F), x), Lanes::less(x, constant(kInfinity))), result,
                       special);
}

// Section 13. Any x.
template <class Lanes, class Flavour>
typename Lanes::Float tangent(typename Lanes::Float x) {
  using namespace constants;
  using Float = typename Lanes::Float;
  const auto constant = [](float value) { return Lanes::broadcast(value); };

  const auto sign = Lanes::template shift_left<31>(Lanes::template shift_right<31>(Lanes::bits(x)));
  const Float a = Lanes::from_bits(Lanes::subtract_integer(Lanes::bits(x), sign));

  const Float a2 = Lanes::multiply(a, a);
  Float g = constant(kTanh13);
  for (const float coefficient : {kTanh11, kTanh9, kTanh7, kTanh5, kTanh3}) {
    g = Flavour::muladd(g, a2, constant(coefficient));
  }
  const Float small = Flavour::muladd(a, Lanes::multiply(a2, g), a);

  // Each step rises or falls with its argument, so the rounded result rises. Beyond kTanhOne, w may be anything.
  const Float one = constant(1.0F);
  const Float w = exponential<Lanes, Flavour>(Lanes::add(a, a));
  const Float large = Lanes::subtract(one, Lanes::divide(constant(2.0F), Lanes::add(one, w)));

  Float t = Lanes::select(Lanes::less(a, constant(kTanhSmall)), small, large);
  t = Lanes::select(Lanes::less(constant(kTanhOne), a), one, t);
  return Lanes::from_bits(Lanes::add_integer(Lanes::bits(t), sign));
}

// Sections 1 and 6.7: a NaN leaves as 0x7FC00000.
template <class Lanes>
typename Lanes::Float canonical(typename Lanes::Float x) {
  return Lanes::select(Lanes::equal(x, x), x, Lanes::from_bits(Lanes::integer(kCanonicalNan)));
}

} // namespace exattn
