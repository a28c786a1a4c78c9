// The exact test whether strided layouts share memory, against hand-derived cases and the enumeration of all addresses.
#include "overlap.hpp"

#include "conformance/generator.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

using exattn::find_overlap;
using exattn::find_self_overlap;
using exattn::Footprint;
using exattn::Overlap;

namespace {

struct Dimension {
  std::int64_t count;
  std::int64_t stride;
};

// `first` and strides count elements, of `width` bytes. Address 0 is far from both ends of memory.
Footprint footprint(std::int64_t first, const std::vector<Dimension> &dimensions, std::int64_t width = 1) {
  Footprint result;
  result.empty = false;
  result.width = width;
  std::int64_t lowest = first;
  for (const Dimension &dimension : dimensions) {
    result.empty = result.empty || dimension.count == 0;
    if (dimension.count <= 1) {
      continue;
    }
    if (dimension.stride == 0) {
      result.repeats = true;
      continue;
    }
    const std::int64_t reach = dimension.stride * (dimension.count - 1);
    lowest += std::min<std::int64_t>(reach, 0);
    result.extent += std::abs(reach) * width;
    const std::size_t rank = static_cast<std::size_t>(result.rank++);
    result.count[rank] = dimension.count;
    result.stride[rank] = std::abs(dimension.stride) * width;
  }
  result.first = (std::uint64_t{1} << 63) + static_cast<std::uint64_t>(lowest * width);
  return result;
}

// All addresses, one for each index tuple.
std::vector<std::int64_t> addresses(std::int64_t first, const std::vector<Dimension> &dimensions) {
  std::vector<std::int64_t> result{first};
  for (const Dimension &dimension : dimensions) {
    std::vector<std::int64_t> next;
    for (const std::int64_t address : result) {
      for (std::int64_t i = 0; i < dimension.count; ++i) {
        next.push_back(address + i * dimension.stride);
      }
    }
    result = std::move(next);
  }
  std::sort(result.begin(), result.end());
  return result;
}

Overlap answer(bool overlaps) {
  return overlaps ? Overlap::kFound : Overlap::kNone;
}

// A stream of small whole numbers.
class Numbers {
public:
  explicit Numbers(std::uint64_t stream_seed) : seed(stream_seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const std::uint64_t range = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<std::int64_t>(exattn::conformance::random_word(seed, next++) % range);
  }

private:
  std::uint64_t seed;
  std::uint64_t next = 0;
};

std::vector<Dimension> some_layout(Numbers &numbers, std::int64_t largest_stride) {
  std::vector<Dimension> dimensions(static_cast<std::size_t>(numbers.between(0, 4)));
  for (Dimension &dimension : dimensions) {
    dimension = {numbers.between(1, 4), numbers.between(-largest_stride, largest_stride)};
  }
  return dimensions;
}

std::string describe(std::int64_t first, const std::vector<Dimension> &dimensions) {
  std::string text = std::to_string(first);
  for (const Dimension &dimension : dimensions) {
    text += " + " + std::to_string(dimension.count) + " x " + std::to_string(dimension.stride);
  }
  return text;
}

} // namespace

TEST_CASE("self-overlap by hand") {
  // 0 2 4 + 0 3 6 are nine different numbers: 0 2 3 4 5 6 7 8 10.
  CHECK(find_self_overlap(footprint(0, {{3, 2}, {3, 3}})) == Overlap::kNone);
  // A fourth step of 2 is 6 = 2 steps of 3.
  CHECK(find_self_overlap(footprint(0, {{4, 2}, {3, 3}})) == Overlap::kFound);
  // 3 rows of 4, row stride 4, 3.
  CHECK(find_self_overlap(footprint(0, {{3, 4}, {4, 1}})) == Overlap::kNone);
  CHECK(find_self_overlap(footprint(0, {{3, 3}, {4, 1}})) == Overlap::kFound);
  // The same, rows from the last to the first.
  CHECK(find_self_overlap(footprint(100, {{3, -4}, {4, 1}})) == Overlap::kNone);
  CHECK(find_self_overlap(footprint(100, {{3, -3}, {4, 1}})) == Overlap::kFound);
  // A transposed matrix, and strides of which only a difference is small: 7 - 5 = 2 = 1 step of 2.
  CHECK(find_self_overlap(footprint(0, {{4, 1}, {3, 4}})) == Overlap::kNone);
  CHECK(find_self_overlap(footprint(0, {{2, 7}, {2, 5}, {2, 2}})) == Overlap::kFound);
  CHECK(find_self_overlap(footprint(0, {{2, 7}, {2, 5}, {2, 3}})) == Overlap::kNone);
  // Stride 0: once is no repetition.
  CHECK(find_self_overlap(footprint(0, {{2, 0}, {4, 1}})) == Overlap::kFound);
  CHECK(find_self_overlap(footprint(0, {{1, 0}, {4, 1}})) == Overlap::kNone);
  CHECK(find_self_overlap(footprint(0, {{0, 0}, {4, 1}})) == Overlap::kNone);
  // Far apart: 2^40 against 2^40 - 1, 1000 steps of each, first meet after 2^40 - 1 steps.
  const std::int64_t far = std::int64_t{1} << 40;
  CHECK(find_self_overlap(footprint(0, {{1000, far}, {1000, far - 1}})) == Overlap::kNone);
  CHECK(find_self_overlap(footprint(0, {{1000, far}, {1000, far - 1}, {1000, 1}})) == Overlap::kFound);
}

TEST_CASE("overlap by hand") {
  // [B, T, 4, H, D] = [2, 3, 4, 2, 5]: slots 0 to 3 hold q, k, v, out, each seen as [B, H, T, D].
  const std::vector<Dimension> slot = {{2, 120}, {2, 5}, {3, 40}, {5, 1}};
  const Footprint out = footprint(1000 + 30, slot);
  CHECK(find_self_overlap(out) == Overlap::kNone);
  for (const std::int64_t other : {0, 10, 20}) {
    CHECK(find_overlap(out, footprint(1000 + other, slot)) == Overlap::kNone);
    CHECK(find_overlap(footprint(1000 + other, slot), out) == Overlap::kNone);
  }
  for (const std::int64_t other : {21, 26, 30, 34, 39}) {
    CHECK(find_overlap(out, footprint(1000 + other, slot)) == Overlap::kFound);
  }
  // Even and odd words.
  CHECK(find_overlap(footprint(0, {{50, 2}}), footprint(1, {{50, 2}})) == Overlap::kNone);
  CHECK(find_overlap(footprint(0, {{50, 2}}), footprint(1, {{50, 3}})) == Overlap::kFound);
  // 6 i = 10 j + 1 has no solution: one side is even. 6 i = 10 j + 2: i = 2, j = 1.
  CHECK(find_overlap(footprint(0, {{50, 6}}), footprint(1, {{50, 10}})) == Overlap::kNone);
  CHECK(find_overlap(footprint(0, {{50, 6}}), footprint(2, {{50, 10}})) == Overlap::kFound);
  CHECK(find_overlap(footprint(0, {{2, 6}}), footprint(2, {{50, 10}})) == Overlap::kNone);
  // Neighbours.
  CHECK(find_overlap(footprint(0, {{10, 1}}), footprint(10, {{10, 1}})) == Overlap::kNone);
  CHECK(find_overlap(footprint(0, {{11, 1}}), footprint(10, {{10, 1}})) == Overlap::kFound);
  CHECK(find_overlap(footprint(0, {}), footprint(0, {})) == Overlap::kFound);
  CHECK(find_overlap(footprint(0, {}), footprint(1, {})) == Overlap::kNone);
  CHECK(find_overlap(footprint(0, {{0, 1}}), footprint(0, {{10, 1}})) == Overlap::kNone);
  // A broadcast input.
  CHECK(find_overlap(footprint(5, {{10, 1}}), footprint(7, {{100, 0}})) == Overlap::kFound);
  CHECK(find_overlap(footprint(5, {{10, 1}}), footprint(4, {{100, 0}})) == Overlap::kNone);
  // Columns 0 to 3 and 4 to 7 of a matrix with 8 columns and 2^30 rows.
  const std::int64_t rows = std::int64_t{1} << 30;
  CHECK(find_overlap(footprint(0, {{rows, 8}, {4, 1}}), footprint(4, {{rows, 8}, {4, 1}})) == Overlap::kNone);
  CHECK(find_overlap(footprint(0, {{rows, 8}, {5, 1}}), footprint(4, {{rows, 8}, {4, 1}})) == Overlap::kFound);
}

TEST_CASE("overlap and self-overlap against all addresses") {
  Numbers numbers(20240229);
  int found = 0;
  int self_found = 0;
  const int rounds = 20000;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t largest_stride = numbers.between(1, 3) == 1 ? 40 : 7;
    const std::vector<Dimension> a = some_layout(numbers, largest_stride);
    const std::vector<Dimension> b = some_layout(numbers, largest_stride);
    const std::int64_t first_a = numbers.between(100, 140);
    const std::int64_t first_b = numbers.between(100, 140);
    const std::vector<std::int64_t> words_a = addresses(first_a, a);
    const std::vector<std::int64_t> words_b = addresses(first_b, b);

    std::vector<std::int64_t> common;
    std::set_intersection(words_a.begin(), words_a.end(), words_b.begin(), words_b.end(), std::back_inserter(common));
    const bool self = std::adjacent_find(words_a.begin(), words_a.end()) != words_a.end();
    found += common.empty() ? 0 : 1;
    self_found += self ? 1 : 0;

    INFO("a: " << describe(first_a, a) << ", b: " << describe(first_b, b));
    REQUIRE(find_overlap(footprint(first_a, a), footprint(first_b, b)) == answer(!common.empty()));
    REQUIRE(find_self_overlap(footprint(first_a, a)) == answer(self));
  }
  // Both answers came often, so neither went untested.
  CHECK(found > rounds / 10);
  CHECK(found < rounds * 9 / 10);
  CHECK(self_found > rounds / 10);
  CHECK(self_found < rounds * 9 / 10);
}

TEST_CASE("overlap with large strides against all addresses") {
  // The same with every stride multiplied, so that divisors and large numbers are at work: layouts and an offset that
  // is or is not a multiple.
  Numbers numbers(7);
  for (int round = 0; round < 4000; ++round) {
    const std::int64_t scale = (std::int64_t{1} << numbers.between(1, 50)) + numbers.between(0, 1);
    std::vector<Dimension> a = some_layout(numbers, 7);
    std::vector<Dimension> b = some_layout(numbers, 7);
    const std::int64_t shift = numbers.between(-6, 6);
    const std::int64_t rest = numbers.between(0, 1);
    std::vector<std::int64_t> common;
    const std::vector<std::int64_t> words_a = addresses(0, a);
    const std::vector<std::int64_t> words_b = addresses(shift, b);
    std::set_intersection(words_a.begin(), words_a.end(), words_b.begin(), words_b.end(), std::back_inserter(common));
    const bool self = std::adjacent_find(words_a.begin(), words_a.end()) != words_a.end();
    for (std::vector<Dimension> *layout : {&a, &b}) {
      for (Dimension &dimension : *layout) {
        dimension.stride *= scale;
      }
    }
    INFO("scale " << scale << ", a: " << describe(0, a) << ", b: " << describe(shift * scale + rest, b));
    REQUIRE(find_overlap(footprint(0, a), footprint(shift * scale + rest, b)) == answer(rest == 0 && !common.empty()));
    REQUIRE(find_self_overlap(footprint(0, a)) == answer(self));
  }
}

TEST_CASE("overlap of elements of different sizes by hand") {
  // Floats at the bytes 8, 16, 24, ...: 4 bytes each, 4 bytes of gap. 16-bit numbers in the gaps, at 12 and 14, do not
  // touch them, nor do bytes at 12 to 15.
  const Footprint floats = footprint(2, {{10, 2}}, 4);
  CHECK(find_overlap(floats, footprint(6, {{10, 4}, {2, 1}}, 2)) == Overlap::kNone);
  CHECK(find_overlap(floats, footprint(6, {{10, 4}, {3, 1}}, 2)) == Overlap::kFound);
  CHECK(find_overlap(floats, footprint(5, {{10, 4}, {2, 1}}, 2)) == Overlap::kFound);
  CHECK(find_overlap(floats, footprint(12, {{10, 8}, {4, 1}})) == Overlap::kNone);
  CHECK(find_overlap(floats, footprint(12, {{10, 8}, {5, 1}})) == Overlap::kFound);
  CHECK(find_overlap(floats, footprint(11, {{10, 8}, {4, 1}})) == Overlap::kFound);
  // The last float has the bytes 80 to 83.
  CHECK(find_overlap(floats, footprint(83, {})) == Overlap::kFound);
  CHECK(find_overlap(floats, footprint(84, {})) == Overlap::kNone);
  CHECK(find_overlap(floats, footprint(7, {})) == Overlap::kNone);
  // An 8-byte number at 16 to 23 holds the float at 16; at 88 it is behind all.
  CHECK(find_overlap(footprint(2, {}, 8), floats) == Overlap::kFound);
  CHECK(find_overlap(footprint(11, {}, 8), floats) == Overlap::kNone);
  // A matrix of 2^40 rows of 8 floats, its rows' last two floats being four 16-bit columns of another.
  const std::int64_t rows = std::int64_t{1} << 40;
  CHECK(find_overlap(footprint(0, {{rows, 8}, {6, 1}}, 4), footprint(12, {{rows, 16}, {4, 1}}, 2)) == Overlap::kNone);
  CHECK(find_overlap(footprint(0, {{rows, 8}, {7, 1}}, 4), footprint(12, {{rows, 16}, {4, 1}}, 2)) == Overlap::kFound);
}

TEST_CASE("overlap of elements of different sizes against all bytes") {
  Numbers numbers(20250722);
  const std::int64_t widths[] = {1, 2, 4, 8};
  int found = 0;
  const int rounds = 20000;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t width_a = widths[numbers.between(0, 3)];
    const std::int64_t width_b = widths[numbers.between(0, 3)];
    const std::vector<Dimension> a = some_layout(numbers, numbers.between(1, 3) == 1 ? 40 : 7);
    const std::vector<Dimension> b = some_layout(numbers, numbers.between(1, 3) == 1 ? 40 : 7);
    const std::int64_t first_a = 1000 / width_a + numbers.between(0, 40);
    const std::int64_t first_b = 1000 / width_b + numbers.between(0, 40);
    // The bytes of every element.
    const auto bytes = [](std::int64_t first, std::vector<Dimension> dimensions, std::int64_t width) {
      for (Dimension &dimension : dimensions) {
        dimension.stride *= width;
      }
      dimensions.push_back({width, 1});
      return addresses(first * width, dimensions);
    };
    const std::vector<std::int64_t> bytes_a = bytes(first_a, a, width_a);
    const std::vector<std::int64_t> bytes_b = bytes(first_b, b, width_b);
    std::vector<std::int64_t> common;
    std::set_intersection(bytes_a.begin(), bytes_a.end(), bytes_b.begin(), bytes_b.end(), std::back_inserter(common));
    const bool self = std::adjacent_find(bytes_a.begin(), bytes_a.end()) != bytes_a.end();
    found += common.empty() ? 0 : 1;
    INFO("a: " << width_a << " bytes, " << describe(first_a, a) << ", b: " << width_b << " bytes, "
               << describe(first_b, b));
    REQUIRE(find_overlap(footprint(first_a, a, width_a), footprint(first_b, b, width_b)) == answer(!common.empty()));
    REQUIRE(find_self_overlap(footprint(first_a, a, width_a)) == answer(self));
  }
  CHECK(found > rounds / 10);
  CHECK(found < rounds * 9 / 10);
}

TEST_CASE("what can't be decided within the limit is said to be so") {
  // Eight strides that share no divisor and lie within 1 % of each other, few steps of each: the search has about
  // 20^6 branches to look at, and only a fraction of all sums is ever hit.
  const std::int64_t base = std::int64_t{1} << 40;
  const std::vector<Dimension> a = {
      {20, base + 104729}, {20, base + 1299709}, {20, base + 15485863}, {20, base + 7919}};
  const std::vector<Dimension> b = {
      {20, base + 32452843}, {20, base + 49979687}, {20, base + 67867967}, {20, base + 86028121}};
  CHECK(find_overlap(footprint(0, a), footprint(11 * base + 3, b)) == Overlap::kUnproven);
}
