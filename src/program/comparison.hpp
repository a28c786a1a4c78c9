// Two arrays of one shape, element by element.
#pragma once

#include "npy.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace exattn::program {

struct Comparison {
  std::size_t elements = 0;
  std::size_t differing = 0;                          // in bits
  double max_abs = 0;                                 // infinite where only one is NaN
  std::vector<std::int64_t> first_index, worst_index; // of the first that differs in bits, of the largest difference
  std::uint32_t first_bits[2] = {0, 0};
};

Comparison compare_arrays(const NpyArray &a, const NpyArray &b); // float32, of one shape
std::string index_text(const std::vector<std::int64_t> &index);  // [0, 2, 5]

// How many floats apart two bit patterns are, -0 and +0 being one; none where either is NaN.
std::string ulps_text(std::uint32_t a, std::uint32_t b);

} // namespace exattn::program
