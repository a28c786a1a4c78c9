// Do two strided layouts share memory? Decided exactly, by whole numbers.
#pragma once

#include <array>
#include <cstdint>

namespace exattn {

// A layout's memory, in words of 4 bytes: word addresses first + sum(i_n * stride[n]) with 0 <= i_n < count[n].
// Strides are above 0 and counts at least 2: what adds no word is left out.
struct Footprint {
  bool empty = true;
  bool repeats = false;    // a dimension has stride 0, so each word is there more than once
  std::int64_t first = 0;  // the lowest word
  std::int64_t extent = 0; // the highest less the lowest; below 2^61
  int rank = 0;
  std::array<std::int64_t, 4> count{};
  std::array<std::int64_t, 4> stride{};
};

enum class Overlap {
  kNone,
  kFound,
  kUnproven // not decided within the limit on work
};

// A word that both use.
Overlap find_overlap(const Footprint &a, const Footprint &b) noexcept;

// A word that two index tuples of the one use.
Overlap find_self_overlap(const Footprint &a) noexcept;

} // namespace exattn
