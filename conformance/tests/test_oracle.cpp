// The oracle against values that were derived by hand: the worked examples and the special rows of docs/definition.md,
// and small problems whose softmax is known. Queries of zero make every score zero, so that weights are equal.
#include "exact/oracle.hpp"

#include <doctest/doctest.h>

#include <algorithm>
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
constexpr float kUnwritten = -777.0F; // in outputs before a call
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

  // A boolean mask of [q_len, kv_len], the same for all heads and sequences.
  void set_mask_bool(std::vector<std::uint8_t> values) {
    mask_bool = std::move(values);
    call.mask_bool_stride[2] = call.kv_len;
    call.mask_bool_stride[3] = 1;
  }

  Answer solve(Flavour flavour, int threads = 1) {
    point();
    Answer answer;
    const std::int64_t batch = call.q_starts.empty() ? call.batch : 1;
    answer.lse.assign(static_cast<std::size_t>(batch * call.heads * call.q_len), kUnwritten);
    answer.out.assign(answer.lse.size() * static_cast<std::size_t>(call.value_dim), kUnwritten);
    exattn::oracle::attention(call, flavour, answer.out.data(), answer.lse.data(), threads);
    return answer;
  }

  std::vector<std::uint8_t> state(Flavour flavour, int threads = 1) {
    point();
    return exattn::oracle::attention_state(call, flavour, threads);
  }

  AttentionCase call{};
  std::vector<float> q, k, v, mask, sinks, slopes;
  std::vector<std::uint8_t> mask_bool;

private:
  void point() {
    call.q = q.data();
    call.k = k.data();
    call.v = v.data();
    call.mask = mask.empty() ? nullptr : mask.data();
    call.mask_bool = mask_bool.empty() ? nullptr : mask_bool.data();
    call.sinks = sinks.empty() ? nullptr : sinks.data();
    call.alibi_slopes = slopes.empty() ? nullptr : slopes.data();
  }
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

// The flavour's multiply-add, by the language's operations.
float muladd(Flavour flavour, float a, float b, float c) {
  if (flavour == Flavour::fast) {
    return std::fma(a, b, c);
  }
  const float product = a * b;
  return product + c;
}

// Softmax of the scores, in binary64.
struct Formula {
  Formula(const std::vector<double> &score, const std::vector<double> &value) {
    const double largest = *std::max_element(score.begin(), score.end());
    double sum = 0;
    for (std::size_t j = 0; j < score.size(); ++j) {
      const double weight = std::exp(score[j] - largest);
      sum += weight;
      out += weight * value[j];
    }
    out /= sum;
    lse = largest + std::log(sum);
  }
  double out = 0;
  double lse = 0;
};

// The words of a state, least significant byte first, after the 8 bytes of its name.
std::vector<std::uint8_t> state_bytes(const std::vector<std::uint32_t> &words) {
  std::vector<std::uint8_t> bytes = {'e', 'x', 'a', 't', 't', 'n', '-', '1'};
  for (const std::uint32_t word : words) {
    for (const unsigned shift : {0u, 8u, 16u, 24u}) {
      bytes.push_back(static_cast<std::uint8_t>(word >> shift & 0xFFu));
    }
  }
  return bytes;
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

TEST_CASE("boolean masks") {
  for (const Flavour flavour : kFlavours) {
    // 0 hides, any other byte does not.
    Problem problem(1, 1, 1, 3);
    problem.v = {1, 2, 3};
    problem.set_mask_bool({1, 0, 255});
    CHECK(near(problem.solve(flavour).out[0], 2));
    CHECK(near(problem.solve(flavour).lse[0], std::log(2.0)));
    // A hidden key leaves no trace, whatever its key, value and mask entry hold.
    const Answer expected = problem.solve(flavour);
    problem.q = {1};
    problem.k[1] = kInfinity;
    problem.v[1] = kNan;
    problem.set_mask({0, kNan, 0});
    CHECK(bits(problem.solve(flavour).out) == bits(expected.out));
    CHECK(bits(problem.solve(flavour).lse) == bits(expected.lse));
    // It does not bring a key back that another rule hides.
    problem.set_mask_bool({1, 1, 1});
    problem.call.causal = true;
    CHECK(problem.solve(flavour).out[0] == 1.0F);
    problem.call.kv_lens = {0};
    CHECK(bits(problem.solve(flavour).out[0]) == bits(0.0F));

    // Rows that see nothing first, in the middle and last; the mask differs by row.
    Problem rows(1, 1, 5, 2);
    rows.v = {2, 4};
    rows.set_mask_bool({0, 0, 1, 1, 0, 0, 0, 1, 0, 0});
    Answer answer = rows.solve(flavour);
    CHECK(bits(answer.out) == bits({0.0F, 3.0F, 0.0F, 4.0F, 0.0F}));
    CHECK(bits(answer.lse[0]) == bits(-kInfinity));
    CHECK(near(answer.lse[1], std::log(2.0)));
    rows.sinks = {-1.5F};
    answer = rows.solve(flavour);
    const double sink = std::exp(-1.5);
    for (const std::size_t i : {0u, 2u, 4u}) {
      CHECK(bits(answer.out[i]) == bits(0.0F));
      CHECK(bits(answer.lse[i]) == bits(-1.5F));
    }
    CHECK(near(answer.out[1], 6 / (2 + sink)));
    CHECK(near(answer.out[3], 4 / (1 + sink)));
    CHECK(near(answer.lse[3], std::log(1 + sink)));

    // By strides, for each sequence and head: [2, 2, 1, 2], stored with the head slowest.
    Problem strides(2, 1, 2, 2, 1, 1, 2);
    strides.v = {1, 2, 3, 4};
    strides.mask_bool = {1, 0, 0, 1, 0, 1, 1, 0};
    strides.call.mask_bool_stride[0] = 2;
    strides.call.mask_bool_stride[1] = 4;
    strides.call.mask_bool_stride[3] = 1;
    CHECK(strides.solve(flavour).out == std::vector<float>{1, 1, 2, 2, 4, 4, 3, 3});

    // A hidden block is one that is not there; the others keep their places.
    Problem blocks(1, 1, 1, 200);
    blocks.v.assign(200, 5.0F);
    std::vector<std::uint8_t> visible(200, 0);
    for (const std::size_t j : {3u, 130u, 199u}) {
      visible[j] = 1;
    }
    blocks.v[3] = 1;
    blocks.v[130] = 2;
    blocks.v[199] = 6;
    blocks.set_mask_bool(visible);
    CHECK(near(blocks.solve(flavour).out[0], 3));
    CHECK(near(blocks.solve(flavour).lse[0], std::log(3.0)));
  }
}

TEST_CASE("ALiBi slopes") {
  for (const Flavour flavour : kFlavours) {
    // Slope ln 2: a weight halves with every position, before the row and after it.
    const float ln2 = std::log(2.0F);
    Problem problem(1, 1, 1, 3);
    problem.v = {1, 2, 3};
    problem.slopes = {ln2};
    problem.call.q_offsets = {2};
    CHECK(near(problem.solve(flavour).out[0], 17.0 / 7)); // weights 1/4, 1/2, 1
    CHECK(near(problem.solve(flavour).lse[0], std::log(1.75)));
    problem.call.q_offsets = {1};
    CHECK(near(problem.solve(flavour).out[0], 2)); // 1/2, 1, 1/2
    problem.call.q_offsets = {0};
    CHECK(near(problem.solve(flavour).out[0], 11.0 / 7));
    // Besides a mask entry: ln 4 for key 2 makes weights 1, 1/2, 1.
    problem.set_mask({0, 0, std::log(4.0F)});
    CHECK(near(problem.solve(flavour).out[0], 2));
    // Of the other sign, weights double.
    problem.mask.clear();
    problem.slopes = {-ln2};
    CHECK(near(problem.solve(flavour).out[0], 17.0 / 7));

    // Each head has its own; 0 gives the bits of none.
    Problem heads(3, 1, 1, 2, 1, 1);
    heads.q = {1, 1, 1};
    heads.k = {0.3F, -0.7F};
    heads.v = {1, 4};
    const Answer none = heads.solve(flavour);
    heads.slopes = {0, ln2, -0.0F};
    const Answer some = heads.solve(flavour);
    CHECK(bits(some.out[0]) == bits(none.out[0]));
    CHECK(bits(some.out[2]) == bits(none.out[2]));
    CHECK(bits(some.lse[2]) == bits(none.lse[2]));
    CHECK(near(some.out[1], Formula({0.3, -0.7 - std::log(2.0)}, {1, 4}).out));

    // Infinite: 0 times infinity is NaN at the row's own key; -inf elsewhere.
    problem.slopes = {kInfinity};
    problem.call.q_offsets = {0};
    CHECK(all_nan(problem.solve(flavour).out));
    problem.call.q_offsets = {7};
    CHECK(all_nan(problem.solve(flavour).out)); // every score -inf
    CHECK(bits(problem.solve(flavour).lse[0]) == bits(-kInfinity));
    problem.slopes = {kNan};
    CHECK(all_nan(problem.solve(flavour).lse));

    // One key: the score is the log-sum-exp. Its steps are those of muladd.
    Problem one(1, 1, 1, 1);
    one.q = {1.1F};
    one.k = {0.9F};
    one.v = {1};
    one.slopes = {0.3F};
    one.set_mask({0.7F});
    one.call.scale = 0.55F;
    one.call.q_offsets = {11};
    const float bias = muladd(flavour, -0.3F, 11.0F, 0.7F);
    const float d = muladd(flavour, 1.1F, 0.9F, 0.0F);
    CHECK(bits(one.solve(flavour).lse[0]) == bits(muladd(flavour, d, 0.55F, bias)));
  }
}

TEST_CASE("ALiBi at distances that binary32 does not have") {
  for (const Flavour flavour : kFlavours) {
    const auto score = [flavour](std::int64_t position, std::int64_t kv_offset, float slope) {
      Problem problem(1, 1, 1, 1);
      problem.v = {1};
      problem.slopes = {slope};
      problem.call.q_offsets = {position};
      problem.call.kv_offset = kv_offset;
      return problem.solve(flavour).lse[0]; // of one key
    };
    // Around 2^24 the integers are 2 apart, and ties go to the multiple of 4.
    CHECK(score(0xFFFFFF, 0, 1) == -0xFFFFFF.0p0F);
    CHECK(score(0x1000001, 0, 1) == -0x1000000.0p0F);
    CHECK(score(0x1000002, 0, 1) == -0x1000002.0p0F);
    CHECK(score(0x1000003, 0, 1) == -0x1000004.0p0F);
    CHECK(score(0x1000005, 0, 1) == -0x1000004.0p0F);
    // The difference counts, not the positions, and is exact before it is rounded.
    constexpr std::int64_t kFar = std::int64_t{1} << 62;
    CHECK(score(kFar + 3, kFar, 0.5F) == -1.5F);
    CHECK(score(kFar, kFar + 64, 0.5F) == -32.0F);
    CHECK(score(0x1000001 + kFar, kFar, 1) == -0x1000000.0p0F);
    CHECK(score(std::numeric_limits<std::int64_t>::max(), 0, 1) == -0x1p63F);
    CHECK(score(0, kFar, 1) == -0x1p62F);
    // Above a tie by the last bit of 63: up.
    CHECK(score((std::int64_t{0x1000001} << 30) + 1, 0, 1) == -0x1000002.0p30F);
    CHECK(score(std::int64_t{0x1000001} << 30, 0, 1) == -0x1000000.0p30F);
  }
}

TEST_CASE("softcap") {
  for (const Flavour flavour : kFlavours) {
    const auto capped = [](double s, double c) { return c * std::tanh(s / c); };
    Problem problem = scores({0, 1, -3}, {1, 2, 4});
    problem.call.softcap = 2;
    Formula expected({0, capped(1, 2), capped(-3, 2)}, {1, 2, 4});
    CHECK(near(problem.solve(flavour).out[0], expected.out));
    CHECK(near(problem.solve(flavour).lse[0], expected.lse));
    // The scale comes before it, mask and slope after.
    problem.call.scale = 0.25F;
    problem.set_mask({1, 2, 0.5F});
    problem.slopes = {0.125F};
    problem.call.q_offsets = {4};
    expected = Formula({1 - 0.5, capped(0.25, 2) + 2 - 0.375, capped(-0.75, 2) + 0.5 - 0.25}, {1, 2, 4});
    CHECK(near(problem.solve(flavour).out[0], expected.out));
    CHECK(near(problem.solve(flavour).lse[0], expected.lse));

    // Scores far beyond the cap are the cap, infinite ones as well: weights 1 and 1/2 from a cap of ln(2) / 2.
    for (const float large : {1e30F, kInfinity}) {
      Problem far = scores({large, -large}, {0, 3});
      far.call.softcap = std::log(2.0F) / 2;
      CHECK(near(far.solve(flavour).out[0], 1));
      CHECK(near(far.solve(flavour).lse[0], std::log(2.0) / 2 + std::log(1.5)));
    }
    // A cap far beyond the scores changes them little, a mask of -inf still takes the weight, NaN stays NaN.
    Problem wide = scores({0.5F, -1}, {1, 4});
    wide.call.softcap = 1e30F;
    CHECK(near(wide.solve(flavour).out[0], Formula({0.5, -1}, {1, 4}).out));
    wide.set_mask({0, -kInfinity});
    CHECK(wide.solve(flavour).out[0] == 1.0F);
    wide.k[0] = kNan;
    CHECK(all_nan(wide.solve(flavour).out));
    // A sink is a score of its own, which is not capped.
    Problem sink = scores({100}, {1});
    sink.call.softcap = 1;
    sink.sinks = {1};
    CHECK(sink.solve(flavour).out[0] == 0.5F);

    // One key: the score, step by step.
    Problem one(1, 1, 1, 1);
    one.q = {1.1F};
    one.k = {2.3F};
    one.v = {1};
    one.call.softcap = 1.7F;
    one.call.scale = 0.55F;
    one.set_mask({0.7F});
    const float t = muladd(flavour, 1.1F, 2.3F, 0.0F) * 0.55F;
    const float bounded = exattn::oracle::tangent(t / 1.7F, flavour);
    CHECK(bits(one.solve(flavour).lse[0]) == bits(muladd(flavour, 1.7F, bounded, 0.7F)));
  }
}

TEST_CASE("ragged batches") {
  for (const Flavour flavour : kFlavours) {
    // Sequences of 2, 0 and 1 rows and 3, 2 and 1 keys, two heads; rows 0 and 4 and keys 0 and 7 belong to none.
    Problem problem(2, 1, 5, 8, 1, 1, 3);
    problem.call.q_starts = {1, 3, 3, 4};
    problem.call.kv_starts = {1, 4, 6, 7};
    problem.q.assign(10, 0.0F);
    for (const std::size_t at : {0u, 4u, 5u, 9u}) {
      problem.q[at] = kNan;
    }
    problem.k = {kNan, 0, 0, 0, kNan, kNan, 0, kNan};
    problem.v = {kNan, 1, 2, 3, kNan, kNan, 10, kNan};
    Answer answer = problem.solve(flavour);
    for (const std::size_t head : {0u, 5u}) {
      CHECK(answer.out[head] == kUnwritten);
      CHECK(answer.lse[head] == kUnwritten);
      CHECK(near(answer.out[head + 1], 2));
      CHECK(near(answer.lse[head + 1], std::log(3.0)));
      CHECK(near(answer.out[head + 2], 2));
      CHECK(answer.out[head + 3] == 10.0F);
      CHECK(bits(answer.lse[head + 3]) == bits(0.0F));
      CHECK(answer.out[head + 4] == kUnwritten);
      CHECK(answer.lse[head + 4] == kUnwritten);
    }
    // Positions and lengths are those of the sequence.
    problem.call.causal = true;
    problem.call.q_offsets = {1, 0, 0};
    answer = problem.solve(flavour);
    CHECK(near(answer.out[1], 1.5));
    CHECK(near(answer.out[2], 2));
    CHECK(answer.out[3] == 10.0F);
    problem.call.kv_lens = {1, 2, 0};
    answer = problem.solve(flavour);
    CHECK(answer.out[1] == 1.0F);
    CHECK(answer.out[2] == 1.0F);
    CHECK(bits(answer.out[3]) == bits(0.0F));
    // A mask has the rows of all sequences, and the columns of the longest.
    problem.call.kv_lens = {3, 2, 1};
    problem.call.causal = false;
    problem.mask = {kNan, kNan, kNan, 0, std::log(3.0F), -kInfinity, -kInfinity, 0, 0, 0, kNan, kNan, kNan, kNan, kNan};
    problem.call.mask_stride[0] = 1000; // of a size of 1
    problem.call.mask_stride[2] = 3;
    problem.call.mask_stride[3] = 1;
    answer = problem.solve(flavour);
    CHECK(near(answer.out[1], 1.75)); // weights 1 and 3
    CHECK(near(answer.out[2], 2.5));
    CHECK(answer.out[3] == 10.0F);
    problem.mask.clear();
    problem.mask_bool = {1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 1, 1};
    problem.call.mask_bool_stride[0] = 1000;
    problem.call.mask_bool_stride[2] = 3;
    problem.call.mask_bool_stride[3] = 1;
    answer = problem.solve(flavour);
    CHECK(answer.out[1] == 2.0F);
    CHECK(near(answer.out[2], 2));
    CHECK(bits(answer.out[3]) == bits(0.0F));

    // Ragged queries on padded keys, and padded queries on ragged keys.
    Problem queries(1, 1, 3, 2, 1, 1, 2);
    queries.call.q_starts = {0, 1, 3};
    queries.q.assign(3, 0.0F);
    queries.v = {1, 3, 5, 6};
    CHECK(queries.solve(flavour).out == std::vector<float>{2, 5.5F, 5.5F});
    Problem keys(1, 1, 1, 3, 1, 1, 2);
    keys.call.kv_starts = {0, 1, 3};
    keys.k.assign(3, 0.0F);
    keys.v = {1, 3, 5};
    CHECK(keys.solve(flavour).out == std::vector<float>{1, 4});
  }
}

TEST_CASE("keys from a position on") {
  for (const Flavour flavour : kFlavours) {
    // Keys at 64, 65, 66 and a row at 65.
    Problem problem(1, 1, 1, 3);
    problem.v = {1, 2, 3};
    problem.call.kv_offset = 64;
    problem.call.q_offsets = {65};
    CHECK(near(problem.solve(flavour).out[0], 2));
    problem.call.causal = true;
    CHECK(near(problem.solve(flavour).out[0], 1.5));
    problem.call.window = 1;
    CHECK(problem.solve(flavour).out[0] == 2.0F);
    problem.call.q_offsets = {63};
    CHECK(bits(problem.solve(flavour).lse[0]) == bits(-kInfinity));
    // A mask's columns, and lengths, count the keys of the call.
    problem.call.causal = false;
    problem.call.window = 0;
    problem.set_mask({-kInfinity, 0, 0});
    CHECK(near(problem.solve(flavour).out[0], 2.5));
    problem.mask.clear();
    problem.set_mask_bool({1, 1, 0});
    CHECK(near(problem.solve(flavour).out[0], 1.5));
    problem.call.kv_lens = {1};
    CHECK(problem.solve(flavour).out[0] == 1.0F);
    // As far out as there is.
    problem.call.kv_offset = std::numeric_limits<std::int64_t>::max() / 64 * 64;
    problem.call.q_offsets = {std::numeric_limits<std::int64_t>::max()};
    problem.call.causal = true;
    problem.call.window = std::numeric_limits<std::int64_t>::max();
    CHECK(problem.solve(flavour).out[0] == 1.0F);
  }
}

TEST_CASE("the bytes of a state") {
  for (const Flavour flavour : kFlavours) {
    const std::uint32_t number = flavour == Flavour::fast ? 1 : 0;
    // Row 0 sees one of three keys, row 1 two. Every weight is 1.
    Problem problem(1, 1, 2, 3, 1, 2);
    problem.v = {1, 4, 2, 5, 3, 6};
    problem.call.causal = true;
    CHECK(problem.state(flavour) == state_bytes({number,
                                                 0,
                                                 1,
                                                 0,
                                                 1,
                                                 0,
                                                 2,
                                                 0,
                                                 2,
                                                 0,
                                                 64,
                                                 0,
                                                 0,
                                                 0,
                                                 3,
                                                 0, // up to the end of the sequence
                                                 0,
                                                 bits(1.0F),
                                                 1,
                                                 bits(1.0F),
                                                 bits(4.0F), // m, l, flags, acc
                                                 0,
                                                 bits(2.0F),
                                                 1,
                                                 bits(1.0F + 2.0F),
                                                 bits(4.0F + 5.0F)})); // row 1
    // Two heads with sinks: m is the sink, a NaN is one pattern, -0 is +0. Two sequences, of which one has no key.
    Problem sinks(2, 1, 1, 65, 1, 1, 2);
    sinks.v.assign(130, std::bit_cast<float>(0xFFC12345u));
    sinks.k = sinks.v;
    sinks.q = {1, 1, 1, 1};
    sinks.sinks = {-0.0F, kInfinity};
    sinks.call.kv_lens = {0, 1};
    sinks.k[65] = 0;
    sinks.call.kv_offset = 128;
    CHECK(sinks.state(flavour) ==
          state_bytes({number,      0,          2, 0,        2, 0, 1, 0, 1, 0, 256, 0, 0, 0, 128, 0, 129, 0, //
                       0,           bits(1.0F), 2, 0,        // the sink -0 alone
                       0xFF800000u, kNanBits,   2, 0,        // the sink +inf: m = -inf, l NaN
                       0,           bits(2.0F), 3, kNanBits, // the sink and a key
                       0,           kNanBits,   3, kNanBits}));
    // A score that is NaN is no maximum.
    Problem nan = scores({std::bit_cast<float>(0xFFC12345u)}, {1});
    CHECK(nan.state(flavour) == state_bytes({number,      0,        1, 0,       1, 0, 1, 0, 1, 0, 64, 0, 0, 0, 1, 0, //
                                             0xFF800000u, kNanBits, 1, kNanBits}));
    // Nothing at all.
    Problem none(1, 1, 1, 0);
    CHECK(none.state(flavour) ==
          state_bytes({number, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xFF800000u, 0, 0, 0}));
    // Ragged: rows of no sequence are zeros; the next key is after the longest sequence. 2^32 and more in a position.
    Problem ragged(1, 1, 4, 70, 1, 1, 2);
    ragged.call.q_starts = {1, 2, 3};
    ragged.call.kv_starts = {0, 65, 70};
    ragged.call.kv_offset = std::int64_t{3} << 32;
    ragged.q.assign(4, 0.0F);
    ragged.k.assign(70, 0.0F);
    ragged.v.assign(70, 2.0F);
    CHECK(ragged.state(flavour) ==
          state_bytes({number, 0,          2,   0,           1, 0,           4,  0,
                       1,      0,          128, 3,           1, 0,           65, 3,
                       5,      3,                                                              //
                       0,      0,          0,   0,           0, bits(65.0F), 1,  bits(130.0F), //
                       0,      bits(5.0F), 1,   bits(10.0F), 0, 0,           0,  0}));
    // A call that ends at an edge is continued there.
    Problem edge(1, 1, 1, 64);
    CHECK(edge.state(flavour)[48] == 64);
  }
}

TEST_CASE("going on from a state by hand gives the bits of one call") {
  for (const Flavour flavour : kFlavours) {
    std::vector<float> score(66), value(66);
    for (std::size_t j = 0; j < 66; ++j) {
      score[j] = 0.01F * static_cast<float>(j * j % 37);
      value[j] = 0.3F * static_cast<float>(j % 11) - 1.0F;
    }
    score[65] = 0.6F; // above all before
    for (const bool rising : {false, true}) {
      score[64] = rising ? 0.5F : -3.0F;
      score[65] = rising ? 0.6F : -2.5F;
      Problem first = scores({score.begin(), score.begin() + 64}, {value.begin(), value.begin() + 64});
      const std::vector<std::uint8_t> state = first.state(flavour);
      const auto number = [&state](std::size_t word) {
        const std::size_t at = 64 + 8 + 4 * word;
        return std::bit_cast<float>(
            static_cast<std::uint32_t>(state[at]) | static_cast<std::uint32_t>(state[at + 1]) << 8 |
            static_cast<std::uint32_t>(state[at + 2]) << 16 | static_cast<std::uint32_t>(state[at + 3]) << 24);
      };
      const float m = number(0);
      const float after = rising ? 0.6F : m;
      CHECK(after >= m);
      CHECK((after > m) == rising);
      const auto e = [flavour](float x) { return exattn::oracle::exponential(x, flavour); };
      const float alpha = rising ? e(m - after) : 1.0F;
      const float p64 = e(score[64] - after);
      const float p65 = e(score[65] - after);
      const float l = muladd(flavour, number(1), alpha, p64 + p65); // two of the partial sums
      float acc = number(3) * alpha;
      acc = muladd(flavour, p64, value[64], acc);
      acc = muladd(flavour, p65, value[65], acc);
      const Answer whole = scores(score, value).solve(flavour);
      const float reciprocal = 1.0F / l;
      CHECK(bits(whole.out[0]) == bits(flavour == Flavour::fast ? acc * reciprocal : acc / l));
      CHECK(bits(whole.lse[0]) == bits(after + exattn::oracle::logarithm(l, flavour)));
    }
  }
}

TEST_CASE("16-bit numbers are widened to the same value, all of them") {
  // By the formats' fields, in binary64.
  const auto value = [](std::uint32_t pattern, int exponent_bits, int fraction_bits) {
    const int largest = (1 << exponent_bits) - 1;
    const int exponent = static_cast<int>(pattern >> fraction_bits) & largest;
    const double fraction = static_cast<double>(pattern & ((1u << fraction_bits) - 1));
    const int bias = largest / 2;
    double magnitude = 0;
    if (exponent == largest) {
      magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
      magnitude = std::ldexp(fraction, 1 - bias - fraction_bits);
    } else {
      magnitude = std::ldexp(std::ldexp(1.0, fraction_bits) + fraction, exponent - bias - fraction_bits);
    }
    return (pattern & 0x8000u) != 0 ? -magnitude : magnitude;
  };
  const auto same = [](float x, double expected) {
    if (std::isnan(expected)) {
      return std::isnan(x);
    }
    return static_cast<double>(x) == expected && std::signbit(x) == std::signbit(expected);
  };
  int wrong = 0;
  for (std::uint32_t pattern = 0; pattern <= 0xFFFFu; ++pattern) {
    const auto narrow = static_cast<std::uint16_t>(pattern);
    wrong += same(exattn::oracle::widen_bfloat16(narrow), value(pattern, 8, 7)) ? 0 : 1;
    wrong += same(exattn::oracle::widen_float16(narrow), value(pattern, 5, 10)) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(exattn::oracle::widen_bfloat16(0x3FC0) == 1.5F);
  CHECK(exattn::oracle::widen_float16(0xC100) == -2.5F);
  CHECK(exattn::oracle::widen_float16(0x7BFF) == 65504.0F);
  CHECK(exattn::oracle::widen_float16(0x0001) == 0x1p-24F);
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

TEST_CASE("the functions at special arguments") {
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
    const auto t = [flavour](float x) { return exattn::oracle::tangent(x, flavour); };
    for (const float x : {0.0F, -0.0F, 0x1p-149F, -0x1.8p-140F, 0x1p-126F, -0x1p-100F, 0x1p-63F, 0x1p-13F}) {
      CHECK(bits(t(x)) == bits(x));
    }
    for (const float x : {10.0F, std::nextafter(10.0F, kInfinity), 30.0F, 44.5F, 1e10F, kLargest, kInfinity}) {
      CHECK(bits(t(x)) == bits(1.0F));
      CHECK(bits(t(-x)) == bits(-1.0F));
    }
    for (const std::uint32_t pattern : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFFFFFFFFu}) {
      CHECK(std::isnan(t(std::bit_cast<float>(pattern))));
    }
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
    const std::vector<std::uint8_t> expected_state = problem.state(flavour);
    const float e = exattn::oracle::exponential(x, flavour);
    const float l = exattn::oracle::logarithm(1.2345F, flavour);
    const float t = exattn::oracle::tangent(0.7F, flavour);
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
      const std::vector<std::uint8_t> state = problem.state(flavour, 3);
      const float e_here = exattn::oracle::exponential(x, flavour);
      const float l_here = exattn::oracle::logarithm(1.2345F, flavour);
      const float t_here = exattn::oracle::tangent(0.7F, flavour);
      const float widened = exattn::oracle::widen_float16(0x0001);
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
      CHECK(bits(t_here) == bits(t));
      CHECK(widened == 0x1p-24F);
      CHECK(state == expected_state);
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
  for (const Vector &v : {Vector{0x3A800000, 0x3A7FFFFB, 0x3A7FFFFB},
                          {0x3F1D2A5F, 0x3F0C00BA, 0x3F0C00B9},
                          {0xBF4ABAD3, 0xBF28D470, 0xBF28D46F},
                          {0x3F4FFFFF, 0x3F2BC47F, 0x3F2BC47F},
                          {0x3F500000, 0x3F2BC480, 0x3F2BC480},
                          {0x3F508A91, 0x3F2C1092, 0x3F2C1093},
                          {0x3F60E33F, 0x3F34A587, 0x3F34A586},
                          {0xBF800000, 0xBF42F7D6, 0xBF42F7D6},
                          {0x40800000, 0x3F7FD40C, 0x3F7FD40C},
                          {0x41102CB3, 0x3F7FFFFF, 0x3F7FFFFF}}) {
    CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::tangent(std::bit_cast<float>(v.x), Flavour::exact)) == v.exact);
    CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::tangent(std::bit_cast<float>(v.x), Flavour::fast)) == v.fast);
  }
  CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::default_scale(15)) == 0x3E8432A5);
  CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::default_scale(64)) == 0x3E000000);
  CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::default_scale(80)) == 0x3DE4F92E);
  CHECK(std::bit_cast<std::uint32_t>(exattn::oracle::default_scale(128)) == 0x3DB504F3);
}
