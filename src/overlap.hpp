// Do two strided layouts share memory? Decided exactly, by whole numbers.
#pragma once

#include <array>
#include <cstdint>

namespace exattn {

// A layout's memory, in bytes: elements of `width` bytes each at the addresses first + sum(i_n * stride[n]) with
// 0 <= i_n < count[n]. Strides are above 0, multiples of the width, and counts at least 2: what adds no byte is left
// out.
struct Footprint {
  bool empty = true;
  bool repeats = false;    // a dimension has stride 0, so each element is there more than once
  std::int64_t width = 1;  // 1, 2, 4 or 8
  std::uint64_t first = 0; // the lowest element
  std::int64_t extent = 0; // the highest less the lowest; below kMaxExtent
  int rank = 0;
  std::array<std::int64_t, 4> count{};
  std::array<std::int64_t, 4> stride{};
};

// No memory is as large, and what is formed from extents stays far from overflow.
inline constexpr std::int64_t kMaxExtent = std::int64_t{1} << 60;

enum class Overlap {
  kNone,
  kFound,
  kUnproven // not decided within the limit on work
};

// A byte that both use.
Overlap find_overlap(const Footprint &a, const Footprint &b) noexcept;

// A byte that two index tuples of the one use.
Overlap find_self_overlap(const Footprint &a) noexcept;

} // namespace exattn
