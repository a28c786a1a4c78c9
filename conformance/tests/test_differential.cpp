// Every lane kind and flavour against the oracle, bit for bit, over random shapes, options, layouts and values.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "exact/oracle.hpp"
#include "exattn/exattn.h"

namespace {

using Shape = std::array<std::int64_t, 4>;
using exattn::oracle::AttentionCase;
using exattn::oracle::Flavour;

std::int64_t count(const Shape &shape) {
  return shape[0] * shape[1] * shape[2] * shape[3];
}

class Random {
public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <class T, std::size_t n>
  T pick(const T (&from)[n]) {
    return from[between(0, static_cast<std::int64_t>(n) - 1)];
  }
  // A multiple of 2^-16 within +-4: no library's normal distribution, so the same numbers everywhere.
  float number() {
    std::int64_t sum = 0;
    for (int i = 0; i < 4; ++i)
      sum += between(-65536, 65536);
    return static_cast<float>(sum) * 0x1p-16F;
  }
  float special() {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr float specials[] = {0.0F,      -0.0F,      infinity,  -infinity, std::numeric_limits<float>::quiet_NaN(),
                                  0x1p-149F, -0x1p-140F, 0x1p-126F, 1e30F,     -1e30F,
                                  3e38F,     -3e38F};
    return pick(specials);
  }

private:
  std::mt19937_64 engine_;
};

std::vector<float> numbers(Random &random, std::int64_t n, std::int64_t special_one_in) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float &value : values)
    value = special_one_in > 0 && random.one_in(special_one_in) ? random.special() : random.number();
  return values;
}

// A tensor laid out at random: dimensions in any order, gaps, backward strides, any alignment of 4. Gaps hold NaN.
struct Layout {
  std::vector<float> memory;
  std::int64_t origin = 0;
  std::array<std::int64_t, 4> stride{};

  Layout(Random &random, const Shape &shape) {
    std::array<int, 4> order{0, 1, 2, 3};
    if (random.one_in(2))
      for (int i = 3; i > 0; --i)
        std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.between(0, i))]);
    std::int64_t step = random.one_in(4) ? random.between(2, 3) : 1;
    for (int i = 3; i >= 0; --i) {
      const auto dimension = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      stride[dimension] = step;
      step = step * std::max<std::int64_t>(1, shape[dimension]) + (random.one_in(3) ? random.between(1, 5) : 0);
      if (random.one_in(6)) {
        origin += stride[dimension] * std::max<std::int64_t>(0, shape[dimension] - 1);
        stride[dimension] = -stride[dimension];
      }
    }
    origin += random.between(0, 3);
    memory.assign(static_cast<std::size_t>(step + origin + 4), std::numeric_limits<float>::quiet_NaN());
  }

  template <class Visit>
  static void each(const Shape &shape, Visit visit) {
    std::size_t n = 0;
    for (std::int64_t a = 0; a < shape[0]; ++a)
      for (std::int64_t b = 0; b < shape[1]; ++b)
        for (std::int64_t c = 0; c < shape[2]; ++c)
          for (std::int64_t d = 0; d < shape[3]; ++d)
            visit(n++, a, b, c, d);
  }
  float &at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return memory[static_cast<std::size_t>(origin + a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3])];
  }
  void fill(const Shape &shape, const std::vector<float> &values) {
    each(shape, [&](std::size_t n, auto... i) { at(i...) = values[n]; });
  }
  std::vector<float> read(const Shape &shape) {
    std::vector<float> values(static_cast<std::size_t>(count(shape)));
    each(shape, [&](std::size_t n, auto... i) { values[n] = at(i...); });
    return values;
  }
  exattn_tensor input() const {
    return {memory.data() + origin, EXATTN_F32, 4, {stride[0], stride[1], stride[2], stride[3]}};
  }
  exattn_output output() { return {memory.data() + origin, 0, 4, {stride[0], stride[1], stride[2], stride[3]}}; }
};

std::string first_difference(const std::vector<float> &got, const std::vector<float> &expected) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
      char text[120];
      std::snprintf(text, sizeof text, "element %zu of %zu: %08x (%g), oracle %08x (%g)", i, expected.size(),
                    std::bit_cast<std::uint32_t>(got[i]), static_cast<double>(got[i]),
                    std::bit_cast<std::uint32_t>(expected[i]), static_cast<double>(expected[i]));
      return text;
    }
  return "";
}

template <class Visit>
void each_kernel(Visit visit) {
  for (std::int32_t lanes = 1; lanes < EXATTN_LANES_COUNT; ++lanes)
    for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
      exattn_lanes_info info{};
      info.struct_size = sizeof info;
      REQUIRE(exattn_lanes_query(lanes, &info) == EXATTN_OK);
      if (flavour == EXATTN_EXACT ? info.exact : info.fast)
        visit(lanes, flavour);
    }
}

Flavour oracle_flavour(std::int32_t flavour) {
  return flavour == EXATTN_FAST ? Flavour::fast : Flavour::exact;
}

void check_attention(std::uint64_t seed, exattn_pool *pool) {
  Random random(seed);
  constexpr std::int64_t lengths[] = {0,  1,  2,  3,  4,  5,  7,  8,   9,   15,  16,  17, 31,
                                      32, 33, 48, 63, 64, 65, 80, 100, 127, 128, 129, 200};
  constexpr std::int64_t dims[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 20, 31, 32, 33, 40, 64, 80, 130};

  AttentionCase c{};
  c.batch = random.between(1, 3);
  c.kv_heads = random.between(1, 2);
  c.heads = c.kv_heads * random.between(1, 3);
  c.q_len = random.one_in(20) ? 150 : random.pick(lengths) % 70;
  c.kv_len = random.pick(lengths);
  c.head_dim = random.pick(dims);
  c.value_dim = random.one_in(2) ? c.head_dim : random.pick(dims);
  c.causal = random.one_in(2);
  c.window = random.one_in(3) ? random.between(1, 90) : 0;
  c.fully_masked_zero = random.one_in(2);
  const bool given = random.one_in(2);
  c.scale = given ? random.number() : exattn_default_scale(c.head_dim);
  for (std::int64_t b = 0; b < c.batch; ++b) {
    c.q_offsets.push_back(random.one_in(2) ? random.between(0, 150) : 0);
    c.kv_lens.push_back(random.one_in(2) ? random.between(0, c.kv_len) : c.kv_len);
  }
  const std::int64_t specials = random.one_in(3) ? random.between(20, 3000) : 0;
  const Shape q_shape{c.batch, c.heads, c.q_len, c.head_dim}, k_shape{c.batch, c.kv_heads, c.kv_len, c.head_dim};
  const Shape v_shape{c.batch, c.kv_heads, c.kv_len, c.value_dim}, out_shape{c.batch, c.heads, c.q_len, c.value_dim};
  const Shape lse_shape{c.batch, c.heads, c.q_len, 1};
  const std::vector<float> q = numbers(random, count(q_shape), specials), k = numbers(random, count(k_shape), specials);
  const std::vector<float> v = numbers(random, count(v_shape), specials);
  c.q = q.data();
  c.k = k.data();
  c.v = v.data();

  Shape mask_shape{c.batch, c.heads, c.q_len, c.kv_len};
  std::vector<float> mask, sinks;
  const bool masked = random.one_in(3);
  if (masked) {
    for (std::int64_t &size : mask_shape)
      size = random.one_in(3) ? std::min<std::int64_t>(size, 1) : size;
    mask = numbers(random, count(mask_shape), specials);
    for (float &value : mask)
      if (random.one_in(4))
        value = -std::numeric_limits<float>::infinity();
    std::int64_t step = 1;
    for (std::size_t d = 4; d-- > 0; step *= std::max<std::int64_t>(1, mask_shape[d]))
      c.mask_stride[d] = mask_shape[d] == 1 ? 0 : step;
    c.mask = mask.data();
  }
  if (random.one_in(3)) {
    sinks = numbers(random, c.heads, 4);
    c.sinks = sinks.data();
  }

  Layout q_layout(random, q_shape), k_layout(random, k_shape), v_layout(random, v_shape);
  Layout mask_layout(random, mask_shape), out_layout(random, out_shape), lse_layout(random, lse_shape);
  q_layout.fill(q_shape, q);
  k_layout.fill(k_shape, k);
  v_layout.fill(v_shape, v);
  if (masked)
    mask_layout.fill(mask_shape, mask);

  char message[300];
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.batch = c.batch;
  args.heads = c.heads;
  args.kv_heads = c.kv_heads;
  args.q_len = c.q_len;
  args.kv_len = c.kv_len;
  args.head_dim = c.head_dim;
  args.value_dim = c.value_dim;
  args.q = q_layout.input();
  args.k = k_layout.input();
  args.v = v_layout.input();
  if (masked) {
    args.mask = mask_layout.input();
    for (std::size_t d = 0; d < 4; ++d)
      if (mask_shape[d] == 1)
        args.mask.stride[d] = 0;
  }
  args.out = out_layout.output();
  args.lse = lse_layout.output();
  args.lse.rank = 3;
  args.lse.stride[3] = 0;
  args.scale = given ? c.scale : 0.0F;
  args.scale_mode = given ? EXATTN_SCALE_GIVEN : EXATTN_SCALE_DEFAULT;
  args.causal = c.causal;
  args.window = c.window;
  args.fully_masked = c.fully_masked_zero ? EXATTN_FULLY_MASKED_ZERO : EXATTN_FULLY_MASKED_NAN;
  args.q_offsets = c.q_offsets.data();
  args.kv_lens = c.kv_lens.data();
  args.sinks = c.sinks;
  args.pool = pool;
  args.message = message;
  args.message_size = sizeof message;

  std::vector<float> out[2], lse[2];
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    out[flavour].resize(static_cast<std::size_t>(count(out_shape)));
    lse[flavour].resize(static_cast<std::size_t>(count(lse_shape)));
    exattn::oracle::attention(c, oracle_flavour(flavour), out[flavour].data(), lse[flavour].data());
  }
  each_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    args.lanes = lanes;
    args.flavour = flavour;
    const exattn_status status = exattn_attention(&args);
    INFO("seed ", seed, " lanes ", exattn_lanes_name(lanes), " flavour ", exattn_flavour_name(flavour), ": batch ",
         c.batch, " heads ", c.heads, "/", c.kv_heads, " q_len ", c.q_len, " kv_len ", c.kv_len, " dims ", c.head_dim,
         "/", c.value_dim, " causal ", c.causal, " window ", c.window, " mask ", masked, " ", message);
    REQUIRE(status == EXATTN_OK);
    CHECK(first_difference(out_layout.read(out_shape), out[flavour]) == "");
    CHECK(first_difference(lse_layout.read(lse_shape), lse[flavour]) == "");
  });
}

} // namespace

TEST_CASE("attention at every lane kind has the oracle's bits, for random shapes, options, layouts and values") {
  exattn_pool *pool = nullptr;
  REQUIRE(exattn_pool_create(3, &pool) == EXATTN_OK);
  for (std::uint64_t seed = 1; seed <= 400; ++seed)
    check_attention(seed, seed % 2 == 0 ? pool : nullptr);
  exattn_pool_destroy(pool);
}

TEST_CASE("softmax rows at every lane kind have the oracle's bits, strided and in place") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const Shape shape{random.between(1, 2), random.between(1, 3), random.between(0, 4),
                      random.one_in(4) ? random.between(100, 700) : random.between(0, 70)};
    const std::vector<float> x = numbers(random, count(shape), random.one_in(3) ? random.between(10, 500) : 0);
    const Layout in(random, shape), to(random, shape);
    each_kernel([&](std::int32_t lanes, std::int32_t flavour) {
      std::vector<float> expected(x.size());
      exattn::oracle::softmax(x.data(), shape[0] * shape[1] * shape[2], shape[3], oracle_flavour(flavour),
                              expected.data());
      for (const bool in_place : {false, true}) {
        Layout from = in, result = to;
        from.fill(shape, x);
        exattn_softmax_args args = EXATTN_SOFTMAX_ARGS_INIT;
        args.flavour = flavour;
        args.lanes = lanes;
        std::copy(shape.begin(), shape.end(), args.shape);
        args.x = from.input();
        args.y = in_place ? from.output() : result.output();
        INFO("seed ", seed, " lanes ", exattn_lanes_name(lanes), " flavour ", exattn_flavour_name(flavour), " n ",
             shape[3], " in place ", in_place);
        REQUIRE(exattn_softmax(&args) == EXATTN_OK);
        CHECK(first_difference((in_place ? from : result).read(shape), expected) == "");
      }
    });
  }
}

TEST_CASE("exp and log at every lane kind have the oracle's bits over a sample of their domains") {
  std::vector<float> x;
  for (std::uint64_t pattern = 0x80000000; pattern <= 0xFF800000; pattern += 9973)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
  for (std::uint32_t near = 0; near < 40; ++near) // around the cut-off
    x.push_back(std::bit_cast<float>(0xC2AEAC4FU - 20 + near));
  for (const float special : {0.0F, -0.0F, -std::numeric_limits<float>::infinity()})
    x.push_back(special);
  std::vector<float> large;
  for (std::uint64_t pattern = 0x3F800000; pattern <= 0x7F800000; pattern += 4999)
    large.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
  large.insert(large.end(), {0.0F, std::numeric_limits<float>::infinity()});
  const float nan = std::numeric_limits<float>::quiet_NaN();

  each_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    INFO("lanes ", exattn_lanes_name(lanes), " flavour ", exattn_flavour_name(flavour));
    for (const std::int32_t function : {EXATTN_FUNCTION_EXP, EXATTN_FUNCTION_LOG}) {
      const std::vector<float> &in = function == EXATTN_FUNCTION_EXP ? x : large;
      std::vector<float> got(in.size()), expected(in.size());
      for (std::size_t i = 0; i < in.size(); ++i)
        expected[i] = function == EXATTN_FUNCTION_EXP ? exattn::oracle::exponential(in[i], oracle_flavour(flavour))
                                                      : exattn::oracle::logarithm(in[i], oracle_flavour(flavour));
      REQUIRE(exattn_evaluate(function, flavour, lanes, in.data(), got.data(), in.size()) == EXATTN_OK);
      CHECK(first_difference(got, expected) == "");
      float result = 0;
      REQUIRE(exattn_evaluate(function, flavour, lanes, &nan, &result, 1) == EXATTN_OK);
      CHECK(std::isnan(result));
    }
  });
}
