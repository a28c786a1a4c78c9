// How far the oracle, and so everything that has its bits, is from the true values: attention against the formula in
// binary64, the exponential, the logarithm and the hyperbolic tangent against libm's in binary64.
#include "conformance/generator.hpp"
#include "exact/oracle.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

namespace {

using exattn::oracle::AttentionCase;
using exattn::oracle::Flavour;

constexpr Flavour kFlavours[] = {Flavour::exact, Flavour::fast};

const char *name(Flavour flavour) {
  return flavour == Flavour::fast ? "fast" : "exact";
}

// Box and Muller's way, so that every standard library gives the same numbers.
std::vector<float> normal(std::uint64_t seed, std::int64_t count, double deviation) {
  const auto uniform = [seed](std::size_t n) {
    return (static_cast<double>(exattn::conformance::random_word(seed, n) >> 11) + 0.5) * 0x1p-53;
  };
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t n = 0; n < values.size(); ++n) {
    const double radius = std::sqrt(-2 * std::log(uniform(2 * n)));
    values[n] = static_cast<float>(deviation * radius * std::cos(2 * std::acos(-1.0) * uniform(2 * n + 1)));
  }
  return values;
}

// softmax(scale * q k^T + mask) v of one row.
std::vector<double> formula(const AttentionCase &call, std::int64_t h, std::int64_t i) {
  const float *q = call.q + (h * call.q_len + i) * call.head_dim;
  std::vector<double> score;
  for (std::int64_t j = 0; j < call.kv_len; ++j) {
    const float *k = call.k + (h * call.kv_len + j) * call.head_dim;
    double dot = 0;
    for (std::int64_t x = 0; x < call.head_dim; ++x) {
      dot += static_cast<double>(q[x]) * static_cast<double>(k[x]);
    }
    const double mask = call.mask == nullptr ? 0 : static_cast<double>(call.mask[i * call.kv_len + j]);
    score.push_back(dot / std::sqrt(static_cast<double>(call.head_dim)) + mask);
  }
  const double largest = *std::max_element(score.begin(), score.end());
  double sum = 0;
  std::vector<double> out(static_cast<std::size_t>(call.value_dim));
  for (std::int64_t j = 0; j < call.kv_len; ++j) {
    const double weight = std::exp(score[static_cast<std::size_t>(j)] - largest);
    sum += weight;
    for (std::int64_t x = 0; x < call.value_dim; ++x) {
      out[static_cast<std::size_t>(x)] +=
          weight * static_cast<double>(call.v[(h * call.kv_len + j) * call.value_dim + x]);
    }
  }
  for (double &value : out) {
    value /= sum;
  }
  return out;
}

double unit_in_last_place(double x) {
  return std::ldexp(1.0, std::max(std::ilogb(x), -126) - 23);
}

// The largest error of a function so far.
struct Worst {
  void take(float x, float y, double expected) {
    const double error = std::abs(static_cast<double>(y) - expected) / unit_in_last_place(expected);
    if (error > ulp) {
      ulp = error;
      at = x;
    }
  }
  double ulp = 0;
  float at = 0;
};

// The bound is stated for heads of 32 and 64. The error comes from the sequential sums of the scores: D roundings add
// up like the square root of D, at partial sums that grow likewise, times a scale of 1 / sqrt(D). It is one of samples,
// not a guarantee: of 40 other draws of the shape with 1500 keys, three reached errors of up to 4.6e-6.
double bound(std::int64_t head_dim) {
  return 4e-6 * std::sqrt(static_cast<double>(std::max<std::int64_t>(head_dim, 64)) / 64);
}

} // namespace

TEST_CASE("attention is within 4e-6 of the formula, more only for heads wider than 64") {
  struct Shape {
    std::int64_t heads, q_len, kv_len, head_dim, value_dim;
    bool mask;
  };
  const Shape shapes[] = {{2, 128, 128, 64, 64, false}, {2, 96, 512, 64, 64, true},  {1, 32, 1500, 64, 64, false},
                          {4, 64, 128, 32, 32, true},   {2, 33, 200, 15, 7, false},  {1, 48, 300, 128, 128, false},
                          {1, 24, 100, 256, 300, true}, {1, 16, 65, 192, 128, false}};
  std::uint64_t seed = 0;
  double worst[2] = {};
  for (const Shape &shape : shapes) {
    AttentionCase call{};
    call.batch = 1;
    call.heads = call.kv_heads = shape.heads;
    call.q_len = shape.q_len;
    call.kv_len = shape.kv_len;
    call.head_dim = shape.head_dim;
    call.value_dim = shape.value_dim;
    call.scale = exattn::oracle::default_scale(shape.head_dim);
    call.q_offsets = {0};
    call.kv_lens = {shape.kv_len};
    const std::vector<float> q = normal(++seed, shape.heads * shape.q_len * shape.head_dim, 1.5);
    const std::vector<float> k = normal(++seed, shape.heads * shape.kv_len * shape.head_dim, 1.5);
    const std::vector<float> v = normal(++seed, shape.heads * shape.kv_len * shape.value_dim, 1.0);
    const std::vector<float> mask = normal(++seed, shape.q_len * shape.kv_len, 1.0);
    call.q = q.data();
    call.k = k.data();
    call.v = v.data();
    if (shape.mask) {
      call.mask = mask.data();
      call.mask_stride[2] = shape.kv_len;
      call.mask_stride[3] = 1;
    }
    double errors[2] = {};
    for (const Flavour flavour : kFlavours) {
      std::vector<float> out(static_cast<std::size_t>(shape.heads * shape.q_len * shape.value_dim));
      exattn::oracle::attention(call, flavour, out.data(), nullptr, 2);
      double &error = errors[static_cast<int>(flavour)];
      for (std::int64_t row = 0; row < shape.heads * shape.q_len; ++row) {
        const std::vector<double> expected = formula(call, row / shape.q_len, row % shape.q_len);
        for (std::int64_t x = 0; x < shape.value_dim; ++x) {
          const auto got = static_cast<double>(out[static_cast<std::size_t>(row * shape.value_dim + x)]);
          error = std::max(error, std::abs(got - expected[static_cast<std::size_t>(x)]));
        }
      }
      worst[static_cast<int>(flavour)] = std::max(worst[static_cast<int>(flavour)], error);
      CHECK(error > 0);
      CHECK(error <= bound(shape.head_dim));
    }
    std::printf("heads %lld, rows %lld, keys %lld, D %lld, Dv %lld%s: exact %.3g, fast %.3g\n",
                static_cast<long long>(shape.heads), static_cast<long long>(shape.q_len),
                static_cast<long long>(shape.kv_len), static_cast<long long>(shape.head_dim),
                static_cast<long long>(shape.value_dim), shape.mask ? ", mask" : "", errors[0], errors[1]);
  }
  std::printf("worst: exact %.3g, fast %.3g\n", worst[0], worst[1]);
}

TEST_CASE("the exponential on every 1021st non-positive number") {
  for (const Flavour flavour : kFlavours) {
    Worst worst;
    float previous = 1.0F;
    bool monotone = true;
    std::uint64_t cut = 0;
    for (std::uint32_t magnitude = 0; magnitude <= 0x7F800000u; magnitude += 1021) {
      const float x = std::bit_cast<float>(magnitude | 0x80000000u);
      const float y = exattn::oracle::exponential(x, flavour);
      const double expected = std::exp(static_cast<double>(x));
      monotone = monotone && y <= previous;
      previous = y;
      if (expected < 0x1p-126) {
        cut += std::bit_cast<std::uint32_t>(y) == 0 ? 0u : 1u;
        continue;
      }
      worst.take(x, y, expected);
    }
    std::printf("exponential, %s: %.4f ulp at %a\n", name(flavour), worst.ulp, static_cast<double>(worst.at));
    CHECK(worst.ulp > 0.5);
    CHECK(worst.ulp < (flavour == Flavour::fast ? 1.01 : 1.0));
    CHECK(monotone);
    CHECK(cut == 0);
  }
}

TEST_CASE("the logarithm on every 1021st number from 1") {
  for (const Flavour flavour : kFlavours) {
    Worst worst;
    float previous = 0.0F;
    bool monotone = true;
    for (std::uint32_t pattern = 0x3F800000u; pattern < 0x7F800000u; pattern += pattern < 0x40000000u ? 101 : 1021) {
      const float x = std::bit_cast<float>(pattern);
      const float y = exattn::oracle::logarithm(x, flavour);
      monotone = monotone && y >= previous;
      previous = y;
      const double expected = std::log(static_cast<double>(x));
      worst.take(x, y, expected);
    }
    std::printf("logarithm, %s: %.4f ulp at %a\n", name(flavour), worst.ulp, static_cast<double>(worst.at));
    CHECK(worst.ulp > 0.5);
    CHECK(worst.ulp < 0.85);
    CHECK(monotone);
  }
}

TEST_CASE("the hyperbolic tangent on every 1021st positive number, every 101st where it is not near its limits") {
  for (const Flavour flavour : kFlavours) {
    Worst worst;
    float previous = 0.0F;
    bool monotone = true;
    bool odd = true;
    for (std::uint32_t pattern = 0; pattern <= 0x7F800000u;
         pattern += pattern < 0x3D000000u || pattern > 0x41200000u ? 1021 : 101) {
      const float x = std::bit_cast<float>(pattern);
      const float y = exattn::oracle::tangent(x, flavour);
      const float negative = exattn::oracle::tangent(-x, flavour);
      odd = odd && std::bit_cast<std::uint32_t>(negative) == (std::bit_cast<std::uint32_t>(y) | 0x80000000u);
      monotone = monotone && y >= previous;
      previous = y;
      const double expected = std::tanh(static_cast<double>(x));
      worst.take(x, y, expected);
    }
    std::printf("tangent, %s: %.4f ulp at %a\n", name(flavour), worst.ulp, static_cast<double>(worst.at));
    CHECK(worst.ulp > 0.5);
    CHECK(worst.ulp < 1.06);
    CHECK(previous == 1.0F);
    CHECK(monotone);
    CHECK(odd);
  }
}
