// The oracle against values that were derived by hand: the worked examples and the special rows of docs/definition.md,
// and small problems whose softmax is known. Queries of zero make every score zero, so that weights are equal.
#include "exact/oracle.hpp"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

using exattn::oracle::AttentionCase;
using exattn::oracle::Flavour;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr std::uint32_t kNanBits = 0x7FC00000;
constexpr Flavour kFlavours[] = {Flavour::exact, Flavour::fast};

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

std::vector<std::uint32_t> bits(const std::vector<float> &values) {
  std::vector<std::uint32_t> result(values.size());
  for (std::size_t n = 0; n < values.size(); ++n) {
    result[n] = bits(values[n]);
  }
  return result;
}

struct Answer {
  std::vector<float> out, lse;
};

// A call with its tensors. q is zero, k and v are zero, scale is 1, there is no mask and no option, until set.
struct Problem {
  Problem(std::int64_t heads, std::int64_t kv_heads, std::int64_t q_len, std::int64_t kv_len, std::int64_t head_dim = 1,
          std::int64_t value_dim = 1, std::int64_t batch = 1) {
    call.batch = batch;
    call.heads = heads;
    call.kv_heads = kv_heads;
    call.q_len = q_len;
    call.kv_len = kv_len;
    call.head_dim = head_dim;
    call.value_dim = value_dim;
    call.scale = 1.0F;
    call.q_offsets.assign(static_cast<std::size_t>(batch), 0);
    call.kv_lens.assign(static_cast<std::size_t>(batch), kv_len);
    q.resize(static_cast<std::size_t>(batch * heads * q_len * head_dim));
    k.resize(static_cast<std::size_t>(batch * kv_heads * kv_len * head_dim));
    v.resize(static_cast<std::size_t>(batch * kv_heads * kv_len * value_dim));
  }

  // A mask of [q_len, kv_len], the same for all heads and sequences.
  void set_mask(std::vector<float> values) {
    mask = std::move(values);
    call.mask_stride[2] = call.kv_len;
    call.mask_stride[3] = 1;
  }

  Answer solve(Flavour flavour, int threads = 1) {
    call.q = q.data();
    call.k = k.data();
    call.v = v.data();
    call.mask = mask.empty() ? nullptr : mask.data();
    call.sinks = sinks.empty() ? nullptr : sinks.data();
    Answer answer;
    answer.lse.resize(static_cast<std::size_t>(call.batch * call.heads * call.q_len));
    answer.out.resize(answer.lse.size() * static_cast<std::size_t>(call.value_dim));
    exattn::oracle::attention(call, flavour, answer.out.data(), answer.lse.data(), threads);
    return answer;
  }

  AttentionCase call{};
  std::vector<float> q, k, v, mask, sinks;
};

// One query of 1 against keys that are the scores, each with one value.
Problem scores(const std::vector<float> &score, const std::vector<float> &value) {
  Problem problem(1, 1, 1, static_cast<std::int64_t>(score.size()));
  problem.q = {1.0F};
  problem.k = score;
  problem.v = value;
  return problem;
}

// Within a few units in the last place: what rounding the weights, their sum and the division can add up to.
bool near(float x, double expected) {
  return std::abs(static_cast<double>(x) - expected) <= 4e-7 * std::max(1.0, std::abs(expected));
}

bool all_nan(const std::vector<float> &values) {
  for (const float value : values) {
    if (bits(value) != kNanBits) {
      return false;
    }
  }
  return true;
}

} // namespace

TEST_CASE("worked example: one query, three keys") {
  for (const Flavour flavour : kFlavours) {
    Problem problem(1, 1, 1, 3, 2, 2);
    problem.q = {1, 0};
    problem.k = {1, 0, 0, 1, 1, 1};
    problem.v = {1, 2, 3, 4, 5, 6};
    const Answer answer = problem.solve(flavour);
    CHECK(near(answer.out[0], 3));
    CHECK(near(answer.out[1], 4));
    CHECK(near(answer.lse[0], 1 + std::log(2 + std::exp(-1.0))));
    CHECK(near(answer.lse[0], 1.8619948));
  }
}

TEST_CASE("worked example: two blocks of two keys") {
  // Keys 62, 63 | 64, 65 hold the scores 1, 3 | 2, 5; a window of 4 at position 65 hides keys 0 to 61, which are NaN.
  Problem problem(1, 1, 1, 66);
  problem.q = {1};
  problem.k.assign(62, kNan);
  problem.v.assign(62, kNan);
  problem.k.insert(problem.k.end(), {1, 3, 2, 5});
  problem.v.insert(problem.v.end(), {10, 20, 30, 40});
  problem.call.window = 4;
  problem.call.q_offsets = {65};
  const double l = std::exp(-4.0) + std::exp(-2.0) + std::exp(-3.0) + 1;
  const double acc = 10 * std::exp(-4.0) + 20 * std::exp(-2.0) + 30 * std::exp(-3.0) + 40;
  CHECK(acc / l == doctest::Approx(36.88).epsilon(0.0001));
  for (const Flavour flavour : kFlavours) {
    const Answer answer = problem.solve(flavour);
    CHECK(near(answer.out[0], acc / l));
    CHECK(near(answer.lse[0], 5 + std::log(l)));
  }

  // The exact flavour's steps, one after the other. Of two weights in different partial sums, the tree is their sum.
  const auto e = [](float x) { return exattn::oracle::exponential(x, Flavour::exact); };
  const float first_l = e(-2) + 1.0F;
  const float first_acc = e(-2) * 10.0F + 20.0F;
  const float scaled_l = first_l * e(-2);
  const float scaled_acc = first_acc * e(-2);
  const float second_l = scaled_l + (1.0F + e(-3));
  const float third = e(-3) * 30.0F;
  const float second_acc = (scaled_acc + third) + 40.0F;
  CHECK(bits(problem.solve(Flavour::exact).out[0]) == bits(second_acc / second_l));
}

TEST_CASE("the order of the sixteen partial sums") {
  // A weight of 1 for key 0 and of about 2^-24 for the 31 others, from scores that are 24 ln 2 less. Added to 1 one by
  // one they would be lost; sixteen partial sums of two weights each keep them.
  for (const Flavour flavour : kFlavours) {
    const float weight = exattn::oracle::exponential(static_cast<float>(-24 * std::log(2.0)), flavour);
    CHECK(near(weight * 0x1p24F, 1));
    std::vector<float> score(32, static_cast<float>(-24 * std::log(2.0)));
    score[0] = 0;
    const Answer answer = scores(score, std::vector<float>(32, 1.0F)).solve(flavour);
    const float partial0 = 1.0F + weight;
    const float partial = weight + weight;
    const float a0 = partial0 + partial;
    const float a = partial + partial;
    const float b0 = a0 + a;
    const float b = a + a;
    const float c0 = b0 + b;
    const float c = b + b;
    const float sum = c0 + c;
    CHECK(sum > 1.0F);
    CHECK(bits(answer.lse[0]) == bits(exattn::oracle::logarithm(sum, flavour)));
  }
}

TEST_CASE("causal at absolute positions") {
  for (const Flavour flavour : kFlavours) {
    Problem problem(1, 1, 3, 5);
    problem.v = {1, 2, 3, 4, 5};
    problem.call.causal = true;
    problem.call.q_offsets = {2};
    Answer answer = problem.solve(flavour);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(near(answer.out[i], 2 + 0.5 * static_cast<double>(i)));
      CHECK(near(answer.lse[i], std::log(3.0 + static_cast<double>(i))));
    }
    problem.call.q_offsets = {0};
    answer = problem.solve(flavour);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(near(answer.out[i], 1 + 0.5 * static_cast<double>(i)));
      CHECK(near(answer.lse[i], std::log(1.0 + static_cast<double>(i))));
    }
    CHECK(bits(answer.lse[0]) == bits(0.0F));
  }
}

TEST_CASE("windows") {
  for (const Flavour flavour : kFlavours) {
    Problem problem(1, 1, 1, 6);
    problem.v = {0, 1, 2, 3, 4, 5};
    problem.call.causal = true;
    problem.call.q_offsets = {5};
    const std::vector<float> plain = problem.solve(flavour).out;
    const auto with_window = [&](std::int64_t window) {
      problem.call.window = window;
      return problem.solve(flavour);
    };
    CHECK(near(with_window(3).out[0], 4));
    CHECK(near(with_window(3).lse[0], std::log(3.0)));
    CHECK(bits(with_window(1).out[0]) == bits(5.0F));
    CHECK(bits(with_window(1).lse[0]) == bits(0.0F));
    CHECK(near(with_window(4).out[0], 3.5));
    for (const std::int64_t window : {6, 7, 1000}) {
      CHECK(bits(with_window(window).out) == bits(plain));
    }
    CHECK(bits(with_window(std::numeric_limits<std::int64_t>::max()).out) == bits(plain));

    // Without the causal rule a window hides earlier keys only.
    problem.call.causal = false;
    problem.call.q_offsets = {2};
    CHECK(near(with_window(2).out[0], 3)); // keys 1 to 5

    // Two rows, and the same bits from each alone.
    Problem two(1, 1, 2, 6);
    two.v = problem.v;
    two.call.causal = true;
    two.call.window = 2;
    two.call.q_offsets = {4};
    const Answer both = two.solve(flavour);
    CHECK(near(both.out[0], 3.5));
    CHECK(near(both.out[1], 4.5));
    for (std::int64_t i = 0; i < 2; ++i) {
      Problem alone(1, 1, 1, 6);
      alone.v = two.v;
      alone.call.causal = true;
      alone.call.window = 2;
      alone.call.q_offsets = {4 + i};
      CHECK(bits(alone.solve(flavour).out[0]) == bits(both.out[static_cast<std::size_t>(i)]));
      CHECK(bits(alone.solve(flavour).lse[0]) == bits(both.lse[static_cast<std::size_t>(i)]));
    }

    // The window lies after the last key: the row sees none.
    Problem beyond(1, 1, 1, 3);
    beyond.v = {kNan, kNan, kNan};
    beyond.call.window = 4;
    beyond.call.q_offsets = {10};
    CHECK(bits(beyond.solve(flavour).out[0]) == bits(0.0F));
    CHECK(bits(beyond.solve(flavour).lse[0]) == bits(-kInfinity));
  }
}

TEST_CASE("grouped heads") {
  for (const Flavour flavour : kFlavours) {
    Problem four(4, 2, 1, 1);
    four.v = {10, 20};
    CHECK(four.solve(flavour).out == std::vector<float>{10, 10, 20, 20});
    Problem six(6, 2, 1, 1);
    six.v = {10, 20};
    CHECK(six.solve(flavour).out == std::vector<float>{10, 10, 10, 20, 20, 20});
    Problem batch(2, 1, 1, 1, 1, 1, 2);
    batch.v = {10, 20};
    CHECK(batch.solve(flavour).out == std::vector<float>{10, 10, 20, 20});
  }
}

TEST_CASE("weights 2, 3 and 6") {
  for (const Flavour flavour : kFlavours) {
    Problem problem(1, 1, 1, 3, 2);
    problem.q = {std::log(2.0F), std::log(3.0F)};
    problem.k = {1, 0, 0, 1, 1, 1};
    problem.v = {1, 2, 3};
    const Answer answer = problem.solve(flavour);
    CHECK(near(answer.out[0], 26.0 / 11));
    CHECK(near(answer.lse[0], std::log(11.0)));
  }
}

TEST_CASE("scale and mask") {
  for (const Flavour flavour : kFlavours) {
    // Scores 2 * 0.5 + 0 and 2 * 0.5 + ln 3: weights 1 and 3.
    Problem problem = scores({2, 2}, {0, 4});
    problem.call.scale = 0.5F;
    problem.set_mask({0, std::log(3.0F)});
    CHECK(near(problem.solve(flavour).out[0], 3));
    CHECK(near(problem.solve(flavour).lse[0], 1 + std::log(4.0)));
    // The other sign turns the order of scores 0 and ln 3 round.
    Problem negative = scores({0, std::log(3.0F)}, {0, 4});
    negative.call.scale = -1.0F;
    CHECK(near(negative.solve(flavour).out[0], 1));
    // A mask of [1, H, 1, Tk] by strides: head 1 sees weights 3 and 1, where head 0 sees 1 and 3.
    Problem heads(2, 1, 2, 2);
    heads.v = {0, 4};
    heads.mask = {0, std::log(3.0F), std::log(3.0F), 0};
    heads.call.mask_stride[1] = 2;
    heads.call.mask_stride[3] = 1;
    const std::vector<float> out = heads.solve(flavour).out;
    CHECK(near(out[0], 3));
    CHECK(near(out[1], 3));
    CHECK(near(out[2], 1));
    CHECK(near(out[3], 1));
  }
}

TEST_CASE("scores far from zero") {
  for (const Flavour flavour : kFlavours) {
    const Answer answer = scores({-60000, -60001}, {1, 2}).solve(flavour);
    CHECK(near(answer.out[0], 1.2689414));
    // Binary32 numbers are 2^-8 apart there; the nearest to -59999.6867 is -59999.6875.
    CHECK(answer.lse[0] == -59999.6875F);
    // -FLT_MAX in a mask is a number like any other: three equal scores.
    Problem problem = scores({0, 0, 0}, {1, 2, 3});
    problem.set_mask({-kLargest, -kLargest, -kLargest});
    CHECK(near(problem.solve(flavour).out[0], 2));
    CHECK(bits(problem.solve(flavour).lse[0]) == bits(-kLargest));
    // Scores so far apart that their difference overflows: weight +0.
    CHECK(scores({kLargest, -kLargest}, {3, kLargest}).solve(flavour).out[0] == 3.0F);
  }
}

TEST_CASE("special rows: NaN or +inf scores") {
  for (const Flavour flavour : kFlavours) {
    for (const float bad : {kNan, kInfinity}) {
      // In the first and in the last of two blocks.
      for (const std::size_t at : {std::size_t{1}, std::size_t{70}}) {
        Problem problem(1, 1, 1, 80, 1, 3);
        problem.q = {1};
        problem.k[at] = bad;
        const Answer answer = problem.solve(flavour);
        CHECK(all_nan(answer.out));
        CHECK(all_nan(answer.lse));
      }
      // Beside scores of -inf only.
      const Answer answer = scores({-kInfinity, bad}, {1, 2}).solve(flavour);
      CHECK(all_nan(answer.out));
      CHECK(all_nan(answer.lse));
    }
    // A finite product that overflows when it is scaled.
    Problem overflow = scores({1e30F, 1}, {1, 2});
    overflow.call.scale = 1e30F;
    CHECK(all_nan(overflow.solve(flavour).out));
  }
}

TEST_CASE("special rows: every visible score is -inf") {
  for (const Flavour flavour : kFlavours) {
    Problem problem(1, 1, 1, 70, 1, 2);
    problem.set_mask(std::vector<float>(70, -kInfinity));
    Answer answer = problem.solve(flavour);
    CHECK(all_nan(answer.out));
    CHECK(bits(answer.lse[0]) == bits(-kInfinity));
    problem.call.fully_masked_zero = true;
    problem.v[1] = kNan;
    answer = problem.solve(flavour);
    CHECK(bits(answer.out) == std::vector<std::uint32_t>{0, 0});
    CHECK(bits(answer.lse[0]) == bits(-kInfinity));
  }
}

TEST_CASE("special rows: no visible key, with either option") {
  for (const Flavour flavour : kFlavours) {
    for (const bool zero : {false, true}) {
      Problem none(2, 1, 2, 0, 1, 2);
      none.call.fully_masked_zero = zero;
      Answer answer = none.solve(flavour);
      CHECK(bits(answer.out) == std::vector<std::uint32_t>(8, 0));
      CHECK(bits(answer.lse) == std::vector<std::uint32_t>(4, bits(-kInfinity)));
      // Sequences of 0, 2 and 0 keys: the empty one first and last.
      Problem lengths(1, 1, 1, 2, 1, 1, 3);
      lengths.v = {kNan, kNan, 1, 3, kNan, kNan};
      lengths.k = {kNan, kNan, 0, 0, kNan, kNan};
      lengths.call.kv_lens = {0, 2, 0};
      lengths.call.fully_masked_zero = zero;
      answer = lengths.solve(flavour);
      CHECK(bits(answer.out) == bits({0.0F, 2.0F, 0.0F}));
      CHECK(bits(answer.lse[0]) == bits(-kInfinity));
      CHECK(near(answer.lse[1], std::log(2.0)));
      CHECK(bits(answer.lse[2]) == bits(-kInfinity));
    }
  }
}

TEST_CASE("special rows: blocks of -inf, then a finite score") {
  for (const Flavour flavour : kFlavours) {
    std::vector<float> score(130, -kInfinity);
    score[129] = 2.0F;
    std::vector<float> value(130, 5.0F);
    value[129] = 7.0F;
    const Answer answer = scores(score, value).solve(flavour);
    CHECK(answer.out[0] == 7.0F);
    CHECK(answer.lse[0] == 2.0F);
  }
}

TEST_CASE("special rows: NaN and infinities in values") {
  for (const Flavour flavour : kFlavours) {
    Problem problem(1, 1, 1, 3, 1, 4);
    problem.v = {1, 1, 1, 1, kNan, kInfinity, -kInfinity, 1, 1, 1, 1, 1};
    Answer answer = problem.solve(flavour);
    CHECK(bits(answer.out) == bits({kNan, kInfinity, -kInfinity, 1.0F}));
    // Weight +0, by -inf in the mask: +0 times infinity is NaN.
    problem.set_mask({0, -kInfinity, 0});
    answer = problem.solve(flavour);
    CHECK(bits(answer.out) == bits({kNan, kNan, kNan, 1.0F}));
    // Hidden: no trace.
    problem.mask.clear();
    problem.call.kv_lens = {1};
    answer = problem.solve(flavour);
    CHECK(bits(answer.out) == bits({1.0F, 1.0F, 1.0F, 1.0F}));
  }
}

TEST_CASE("sinks") {
  for (const Flavour flavour : kFlavours) {
    Problem three(1, 1, 1, 3);
    three.v = {1, 1, 1};
    three.sinks = {0};
    CHECK(near(three.solve(flavour).out[0], 0.75));
    CHECK(near(three.solve(flavour).lse[0], std::log(4.0)));
    Problem four(1, 1, 1, 4);
    four.v = {1, 1, 1, 1};
    four.sinks = {std::log(4.0F)};
    CHECK(near(four.solve(flavour).out[0], 0.5));
    CHECK(near(four.solve(flavour).lse[0], std::log(8.0)));

    // -inf: the bits of no sink, also where nothing is visible.
    Problem plain = scores({0.5F, -1.25F, 2.0F}, {1, 2, 4});
    const Answer without = plain.solve(flavour);
    plain.sinks = {-kInfinity};
    CHECK(bits(plain.solve(flavour).out) == bits(without.out));
    CHECK(bits(plain.solve(flavour).lse) == bits(without.lse));

    // +inf and NaN: everything is NaN, also where nothing is visible.
    for (const float bad : {kInfinity, kNan}) {
      for (const std::int64_t keys : {0, 3}) {
        Problem problem(1, 1, 1, 3, 1, 2);
        problem.call.kv_lens = {keys};
        problem.call.fully_masked_zero = true;
        problem.sinks = {bad};
        CHECK(all_nan(problem.solve(flavour).out));
        CHECK(all_nan(problem.solve(flavour).lse));
      }
    }

    // Nothing visible, heads with a finite sink and with none; each head has its own.
    Problem empty(3, 1, 1, 2);
    empty.v = {kNan, kNan};
    empty.call.kv_lens = {0};
    empty.sinks = {-1.5F, -kInfinity, 3.25F};
    Answer answer = empty.solve(flavour);
    CHECK(bits(answer.out) == bits({0.0F, 0.0F, 0.0F}));
    CHECK(bits(answer.lse) == bits({-1.5F, -kInfinity, 3.25F}));

    // Visible scores of -inf beside a finite sink: l = 1, so no division by zero.
    Problem masked(1, 1, 1, 2);
    masked.v = {1, 2};
    masked.set_mask({-kInfinity, -kInfinity});
    masked.sinks = {0.5F};
    answer = masked.solve(flavour);
    CHECK(bits(answer.out[0]) == bits(0.0F));
    CHECK(answer.lse[0] == 0.5F);

    // A sink far above the scores takes everything, one far below nothing.
    Problem far = scores({0, 0}, {1, 3});
    far.sinks = {1000};
    CHECK(bits(far.solve(flavour).out[0]) == bits(0.0F));
    far.sinks = {-1000};
    CHECK(near(far.solve(flavour).out[0], 2));

    // Rows without keys first, in the middle and last: causal with a window over three keys.
    Problem rows(1, 1, 3, 3);
    rows.v = {1, 1, 1};
    rows.call.causal = true;
    rows.call.window = 1;
    rows.call.q_offsets = {1};
    rows.sinks = {0};
    answer = rows.solve(flavour); // positions 1, 2, 3; the last sees none
    CHECK(near(answer.out[0], 0.5));
    CHECK(near(answer.out[1], 0.5));
    CHECK(bits(answer.out[2]) == bits(0.0F));
    CHECK(bits(answer.lse[2]) == bits(0.0F));
  }
}

TEST_CASE("softmax rows") {
  for (const Flavour flavour : kFlavours) {
    const auto softmax = [flavour](const std::vector<float> &x) {
      std::vector<float> y(x.size());
      exattn::oracle::softmax(x.data(), 1, static_cast<std::int64_t>(x.size()), flavour, y.data());
      return y;
    };
    CHECK(softmax({}).empty());
    CHECK(softmax({-7.5F}) == std::vector<float>{1.0F});
    CHECK(softmax(std::vector<float>(4, 3.0F)) == std::vector<float>(4, 0.25F));
    CHECK(softmax({0, -kInfinity, 0}) == std::vector<float>{0.5F, 0.0F, 0.5F});
    const std::vector<float> y = softmax({std::log(2.0F), 0, std::log(3.0F)});
    CHECK(near(y[0], 2.0 / 6));
    CHECK(near(y[1], 1.0 / 6));
    CHECK(near(y[2], 3.0 / 6));
    // Length 20: partial sums 0 to 3 take two weights each.
    const std::vector<float> twenty = softmax(std::vector<float>(20, -1.0F));
    for (const float value : twenty) {
      CHECK(near(value, 0.05));
    }
    CHECK(all_nan(softmax({1, kNan, 2})));
    CHECK(all_nan(softmax({1, kInfinity, 2})));
    CHECK(all_nan(softmax({-kInfinity, -kInfinity})));
    CHECK(softmax({kLargest, -kLargest}) == std::vector<float>{1.0F, 0.0F});

    // Rows do not touch each other.
    const std::vector<float> x = {0, 0, kNan, 0, 1, 1};
    std::vector<float> rows(6);
    exattn::oracle::softmax(x.data(), 3, 2, flavour, rows.data());
    CHECK(bits(rows) == bits({0.5F, 0.5F, kNan, kNan, 0.5F, 0.5F}));
  }
}

TEST_CASE("default scale") {
  CHECK(exattn::oracle::default_scale(1) == 1.0F);
  CHECK(exattn::oracle::default_scale(4) == 0.5F);
  CHECK(exattn::oracle::default_scale(64) == 0.125F);
  CHECK(exattn::oracle::default_scale(256) == 0.0625F);
  // The root and the quotient of the machine, both IEEE-754 operations.
  for (std::int64_t d = 1; d <= 5000; ++d) {
    CHECK(bits(exattn::oracle::default_scale(d)) == bits(1.0F / std::sqrt(static_cast<float>(d))));
  }
  // 2^24 + 1 is a tie when converted, and goes to 2^24.
  CHECK(exattn::oracle::default_scale((std::int64_t{1} << 24) + 1) == 0x1p-12F);
}

TEST_CASE("the exponential and the logarithm at special arguments") {
  for (const Flavour flavour : kFlavours) {
    const auto e = [flavour](float x) { return exattn::oracle::exponential(x, flavour); };
    CHECK(bits(e(0.0F)) == bits(1.0F));
    CHECK(bits(e(-0.0F)) == bits(1.0F));
    CHECK(bits(e(-kInfinity)) == bits(0.0F));
    CHECK(bits(e(-kLargest)) == bits(0.0F));
    CHECK(std::isnan(e(kNan)));
    const float cut = std::bit_cast<float>(0xC2AEAC4Fu);
    CHECK(e(cut) >= 0x1p-126F);
    CHECK(bits(e(std::nextafter(cut, -kInfinity))) == bits(0.0F));
    CHECK(bits(e(-0x1p-149F)) == bits(1.0F));
    const auto l = [flavour](float x) { return exattn::oracle::logarithm(x, flavour); };
    CHECK(bits(l(1.0F)) == bits(0.0F));
    CHECK(bits(l(0.0F)) == bits(-kInfinity));
    CHECK(bits(l(kInfinity)) == bits(kInfinity));
    CHECK(std::isnan(l(kNan)));
  }
}

TEST_CASE("the caller's floating-point environment and the number of threads change nothing") {
  Problem problem(2, 2, 5, 70, 3, 2);
  float value = 0.1F;
  for (std::vector<float> *tensor : {&problem.q, &problem.k, &problem.v}) {
    for (float &element : *tensor) {
      element = value;
      value = value * -1.03F > 1.0F || value < -1.0F ? 0.07F : value * -1.03F;
    }
  }
  problem.v[0] = 0x1p-149F; // lost when subnormal numbers are flushed
  for (const Flavour flavour : kFlavours) {
    const Answer expected = problem.solve(flavour);
    const float x = -1.2345F;
    const float e = exattn::oracle::exponential(x, flavour);
    const float l = exattn::oracle::logarithm(1.2345F, flavour);
    const float scale = exattn::oracle::default_scale(3);
    for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      std::fenv_t saved;
      std::fegetenv(&saved);
      std::fesetround(rounding);
#if defined(__x86_64__)
      _mm_setcsr(_mm_getcsr() | 0x8040u); // flush results and operands
#endif
      const Answer one = problem.solve(flavour);
      const Answer three = problem.solve(flavour, 3);
      const float e_here = exattn::oracle::exponential(x, flavour);
      const float l_here = exattn::oracle::logarithm(1.2345F, flavour);
      const float scale_here = exattn::oracle::default_scale(3);
      const int rounding_after = std::fegetround();
#if defined(__x86_64__)
      const bool flushing_after = (_mm_getcsr() & 0x8040u) == 0x8040u;
#else
      const bool flushing_after = true;
#endif
      std::fesetenv(&saved);
      CHECK(bits(one.out) == bits(expected.out));
      CHECK(bits(one.lse) == bits(expected.lse));
      CHECK(bits(three.out) == bits(expected.out));
      CHECK(bits(three.lse) == bits(expected.lse));
      CHECK(bits(e_here) == bits(e));
      CHECK(bits(l_here) == bits(l));
      CHECK(bits(scale_here) == bits(scale));
      CHECK(rounding_after == rounding);
      CHECK(flushing_after);
    }
    // The subnormal value itself arrives: one key, weight 1.
    Problem subnormal(1, 1, 1, 1);
    subnormal.v = {0x1p-149F};
    CHECK(bits(subnormal.solve(flavour).out[0]) == 1u);
  }
}

TEST_CASE("the vectors of the definition's page, which a program in another language gave as well") {
  struct Vector {
    std::uint32_t x, exact, fast;
  };
  for (const Vector &v : {Vector{0xB3800000, 0x3F7FFFFF, 0x3F7FFFFF},
                          {0xBE000000, 0x3F61EB51, 0x3F61EB51},
                          {0xBF800000, 0x3EBC5AB2, 0x3EBC5AB2},
                          {0xC0BB65C4, 0x3B3B935E, 0x3B3B935F},
                          {0xC1200000, 0x383E6BCE, 0x383E6BCE},
                          {0xC2AE0000, 0x00B33687, 0x00B33687}}) {
    CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::exponential(std::bit_cast<float>(v.x), Flavour::exact)) ==
          v.exact);
    CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::exponential(std::bit_cast<float>(v.x), Flavour::fast)) ==
          v.fast);
  }
  for (const Vector &v : {Vector{0x3FC00000, 0x3ECF991F, 0x3ECF991F},
                          {0x40000000, 0x3F317218, 0x3F317218},
                          {0x41200000, 0x40135D8E, 0x40135D8E},
                          {0x44BB8000, 0x40EA05E7, 0x40EA05E7}}) {
    CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::logarithm(std::bit_cast<float>(v.x), Flavour::exact)) ==
          v.exact);
    CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::logarithm(std::bit_cast<float>(v.x), Flavour::fast)) == v.fast);
  }
  CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::default_scale(15)) == 0x3E8432A5);
  CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::default_scale(64)) == 0x3E000000);
  CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::default_scale(80)) == 0x3DE4F92E);
  CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::default_scale(128)) == 0x3DB504F3);
}
