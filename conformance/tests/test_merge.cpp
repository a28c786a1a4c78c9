// The tolerant merge, against values by hand and a formula in double precision, and its argument errors.
#include "problem.hpp"

#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using exattn::tests::GuardedOutput;
using exattn::tests::some_numbers;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Merged {
  std::vector<std::uint32_t> out;
  std::uint32_t lse;
};

std::uint32_t bits(float value) {
  std::uint32_t pattern = 0;
  std::memcpy(&pattern, &value, sizeof(pattern));
  return pattern;
}

float number(std::uint32_t pattern) {
  float value = 0;
  std::memcpy(&value, &pattern, sizeof(value));
  return value;
}

// One row.
Merged merge(const std::vector<float> &a, float a_lse, const std::vector<float> &b, float b_lse) {
  GuardedOutput out(a.size());
  GuardedOutput lse(1);
  REQUIRE(exattn_merge_tolerant(1, static_cast<std::int64_t>(a.size()), a.data(), &a_lse, b.data(), &b_lse, out.data(),
                                lse.data()) == EXATTN_OK);
  CHECK(out.guards_intact());
  CHECK(lse.guards_intact());
  return {out.bits(), lse.bits()[0]};
}

// The name of the status, for messages.
std::string name(exattn_status status) {
  return exattn_status_name(status);
}

} // namespace

TEST_CASE("merge: keys 0 and 1 with keys 2 to 4, V_j = j + 1, equal scores") {
  // Means 1.5 of two and 4 of three: (3 + 12) / 5 = 3, and ln 5.
  const Merged merged = merge({1.5F}, static_cast<float>(std::log(2.0)), {4.0F}, static_cast<float>(std::log(3.0)));
  CHECK(std::fabs(number(merged.out[0]) - 3.0) <= 1e-6);
  CHECK(std::fabs(number(merged.lse) - std::log(5.0)) <= 1e-6);
  // Equal weights are 1, so all but ln 2 is exact: (2 + 5) / 2, (-1 + 1) / 2.
  const Merged even = merge({2.0F, -1.0F}, 7.0F, {5.0F, 1.0F}, 7.0F);
  CHECK(even.out == std::vector<std::uint32_t>{bits(3.5F), bits(0.0F)});
  CHECK(even.lse == bits(7.0F + 0x1.62e43p-1F)); // L(2) of the definition's section 8
}

TEST_CASE("merge: an empty part counts for nothing, whatever its outputs hold") {
  const std::vector<float> x = {-0.0F, 1e-42F, -3.25F, kInfinity};
  const std::vector<std::uint32_t> x_bits = {0x80000000, bits(1e-42F), bits(-3.25F), 0x7F800000};
  for (const float other : {0.0F, kNaN, kInfinity, 5.0F}) {
    for (const float lse : {-0.0F, 1e-42F, -1e30F, 88.5F}) {
      const std::vector<float> empty(4, other);
      const Merged right = merge(empty, -kInfinity, x, lse);
      CHECK(right.out == x_bits);
      CHECK(right.lse == bits(lse));
      const Merged left = merge(x, lse, empty, -kInfinity);
      CHECK(left.out == x_bits);
      CHECK(left.lse == bits(lse));
    }
  }
  const Merged empty = merge({0.0F, 0.0F}, -kInfinity, {0.0F, 0.0F}, -kInfinity);
  CHECK(empty.out == std::vector<std::uint32_t>{0, 0});
  CHECK(empty.lse == 0xFF800000);
}

TEST_CASE("merge: NaN") {
  // In any form, it is written as 7FC00000.
  const std::vector<std::uint32_t> nans = {0x7FC00000, 0x7FC00000};
  for (const std::uint32_t pattern : {0x7FC00000U, 0xFFC12345U, 0x7F800001U}) {
    const float nan = number(pattern);
    for (const Merged &merged :
         {merge({1.0F, 2.0F}, nan, {3.0F, 4.0F}, 0.0F), merge({1.0F, 2.0F}, 0.0F, {3.0F, 4.0F}, nan),
          merge({1.0F, 2.0F}, nan, {3.0F, 4.0F}, nan)}) {
      CHECK(merged.out == nans);
      CHECK(merged.lse == 0x7FC00000);
    }
    // With an empty part it is a copy: outputs as they are but for NaN.
    for (const Merged &merged :
         {merge({nan, 2.0F}, nan, {3.0F, 4.0F}, -kInfinity), merge({3.0F, 4.0F}, -kInfinity, {nan, 2.0F}, nan)}) {
      CHECK(merged.out == std::vector<std::uint32_t>{0x7FC00000, bits(2.0F)});
      CHECK(merged.lse == 0x7FC00000);
    }
    // In one column of an output it stays in this column: (2 + 4) / 2.
    const Merged column = merge({nan, 2.0F}, 0.0F, {3.0F, 4.0F}, 0.0F);
    CHECK(column.out == std::vector<std::uint32_t>{0x7FC00000, bits(3.0F)});
    CHECK(column.lse == bits(0x1.62e43p-1F));
  }
  // inf - inf.
  CHECK(merge({1.0F}, kInfinity, {2.0F}, 0.0F).lse == 0x7FC00000);
  CHECK(merge({kInfinity}, 0.0F, {-kInfinity}, 0.0F).out[0] == 0x7FC00000);
  // e^-200 is +0, and 0 * inf NaN; a finite output of no weight leaves the other.
  CHECK(merge({7.0F}, 200.0F, {kInfinity}, 0.0F).out[0] == 0x7FC00000);
  CHECK(merge({7.0F}, 200.0F, {9.0F}, 0.0F).out[0] == bits(7.0F));
  CHECK(merge({7.0F}, 200.0F, {9.0F}, 0.0F).lse == bits(200.0F));
}

TEST_CASE("merge: many rows against the formula in double precision, also in place") {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kSize = 5;
  const std::vector<float> a = some_numbers(1, kRows * kSize);
  const std::vector<float> b = some_numbers(2, kRows * kSize);
  std::vector<float> a_lse = some_numbers(3, kRows);
  std::vector<float> b_lse = some_numbers(4, kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    a_lse[row] *= 20.0F;
    b_lse[row] *= 20.0F;
  }
  GuardedOutput out(kRows * kSize);
  GuardedOutput lse(kRows);
  REQUIRE(exattn_merge_tolerant(kRows, kSize, a.data(), a_lse.data(), b.data(), b_lse.data(), out.data(), lse.data()) ==
          EXATTN_OK);
  CHECK(out.guards_intact());
  CHECK(lse.guards_intact());
  for (std::size_t row = 0; row < kRows; ++row) {
    const double m = std::fmax(a_lse[row], b_lse[row]);
    const double weight_a = std::exp(a_lse[row] - m);
    const double weight_b = std::exp(b_lse[row] - m);
    REQUIRE(std::fabs(lse.values()[row] - (m + std::log(weight_a + weight_b))) <= 2e-6);
    for (std::size_t x = row * kSize; x < (row + 1) * kSize; ++x) {
      const double expected = (weight_a * a[x] + weight_b * b[x]) / (weight_a + weight_b);
      REQUIRE(std::fabs(out.values()[x] - expected) <= 1e-6);
    }
  }
  // In the place of either, the log-sum-exp too, in any combination.
  for (int which = 0; which < 4; ++which) {
    std::vector<float> outs[] = {a, b};
    std::vector<float> lses[] = {a_lse, b_lse};
    std::vector<float> &to = outs[which % 2];
    std::vector<float> &to_lse = lses[which / 2];
    REQUIRE(exattn_merge_tolerant(kRows, kSize, outs[0].data(), lses[0].data(), outs[1].data(), lses[1].data(),
                                  to.data(), to_lse.data()) == EXATTN_OK);
    CHECK(to == out.values());
    CHECK(to_lse == lse.values());
    CHECK(outs[1 - which % 2] == (which % 2 == 0 ? b : a));
    CHECK(lses[1 - which / 2] == (which / 2 == 0 ? b_lse : a_lse));
  }
  // Parts may be the same memory: two equal halves of a weight.
  REQUIRE(exattn_merge_tolerant(kRows, kSize, a.data(), a_lse.data(), a.data(), a_lse.data(), out.data(), lse.data()) ==
          EXATTN_OK);
  CHECK(out.values() == a);
}

TEST_CASE("merge: argument errors, and nothing is written") {
  std::vector<float> a(12, 1.0F);
  const std::vector<float> b(12, 2.0F);
  std::vector<float> a_lse(4, 0.0F);
  const std::vector<float> b_lse(4, 0.0F);
  GuardedOutput out(12);
  GuardedOutput lse(4);
  const auto call = [&](std::int64_t rows, std::int64_t size, const float *a_out, const float *a_sum, float *to,
                        float *to_lse) {
    return name(exattn_merge_tolerant(rows, size, a_out, a_sum, b.data(), b_lse.data(), to, to_lse));
  };
  const auto at = [](const float *pointer, std::intptr_t bytes) {
    return reinterpret_cast<float *>(reinterpret_cast<std::intptr_t>(pointer) + bytes);
  };
  const std::int64_t huge = std::int64_t{1} << 61;
  CHECK(call(-1, 3, a.data(), a_lse.data(), out.data(), lse.data()) == "EXATTN_ERROR_SIZE");
  CHECK(call(4, 0, a.data(), a_lse.data(), out.data(), lse.data()) == "EXATTN_ERROR_SIZE");
  CHECK(call(4, -3, a.data(), a_lse.data(), out.data(), lse.data()) == "EXATTN_ERROR_SIZE");
  CHECK(call(0, 0, a.data(), a_lse.data(), out.data(), lse.data()) == "EXATTN_ERROR_SIZE");
  CHECK(call(huge, 1, a.data(), a_lse.data(), out.data(), lse.data()) == "EXATTN_ERROR_OVERFLOW");
  CHECK(call(4, huge, a.data(), a_lse.data(), out.data(), lse.data()) == "EXATTN_ERROR_OVERFLOW");
  CHECK(call(4, 3, at(nullptr, -16), a_lse.data(), out.data(), lse.data()) == "EXATTN_ERROR_OVERFLOW");
  CHECK(call(4, 3, nullptr, a_lse.data(), out.data(), lse.data()) == "EXATTN_ERROR_NULL");
  CHECK(call(4, 3, a.data(), nullptr, out.data(), lse.data()) == "EXATTN_ERROR_NULL");
  CHECK(call(4, 3, a.data(), a_lse.data(), nullptr, lse.data()) == "EXATTN_ERROR_NULL");
  CHECK(call(4, 3, a.data(), a_lse.data(), out.data(), nullptr) == "EXATTN_ERROR_NULL");
  CHECK(name(exattn_merge_tolerant(4, 3, a.data(), a_lse.data(), nullptr, b_lse.data(), out.data(), lse.data())) ==
        "EXATTN_ERROR_NULL");
  CHECK(name(exattn_merge_tolerant(4, 3, a.data(), a_lse.data(), b.data(), nullptr, out.data(), lse.data())) ==
        "EXATTN_ERROR_NULL");
  CHECK(call(3, 3, at(a.data(), 1), a_lse.data(), out.data(), lse.data()) == "EXATTN_ERROR_ALIGNMENT");
  CHECK(call(3, 3, a.data(), at(a_lse.data(), 2), out.data(), lse.data()) == "EXATTN_ERROR_ALIGNMENT");
  CHECK(call(3, 3, a.data(), a_lse.data(), at(out.data(), 3), lse.data()) == "EXATTN_ERROR_ALIGNMENT");
  CHECK(call(3, 3, a.data(), a_lse.data(), out.data(), at(lse.data(), 1)) == "EXATTN_ERROR_ALIGNMENT");
  // One number further is not in place; nor is an output in the place of a log-sum-exp, or the other way round.
  CHECK(call(3, 3, a.data(), a_lse.data(), a.data() + 1, lse.data()) == "EXATTN_ERROR_OVERLAP");
  CHECK(call(3, 3, a.data(), a_lse.data(), out.data(), a_lse.data() + 1) == "EXATTN_ERROR_OVERLAP");
  CHECK(call(4, 3, a.data(), a_lse.data(), out.data(), out.data() + 11) == "EXATTN_ERROR_OVERLAP");
  CHECK(call(4, 3, a.data(), a_lse.data(), out.data(), a.data()) == "EXATTN_ERROR_OVERLAP");
  CHECK(call(4, 1, a.data(), a_lse.data(), a_lse.data(), lse.data()) == "EXATTN_ERROR_OVERLAP");
  CHECK(out.untouched());
  CHECK(lse.untouched());
  CHECK(a == std::vector<float>(12, 1.0F));
  CHECK(a_lse == std::vector<float>(4, 0.0F));
  // Nothing to do.
  CHECK(name(exattn_merge_tolerant(0, 3, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr)) == "EXATTN_OK");
  // Neighbours.
  CHECK(call(4, 2, a.data(), a_lse.data(), out.data(), out.data() + 8) == "EXATTN_OK");
}
