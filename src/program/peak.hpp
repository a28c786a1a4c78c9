// What this machine's arithmetic and memory can do at most, to measure kernels against.
#pragma once

#include <cstdint>

namespace exattn::program {

struct Peak {
  double fused = 0;   // GFLOP/s of independent fused multiply-adds in registers, of all threads together
  double unfused = 0; // the same with a multiplication and an addition
};

// Measures the peak of so many threads at the width of a lane kind, for about `seconds`. Zeros where there is no such
// measurement (scalar lanes; another architecture); fused is zero where its instructions have no fused multiply-add.
Peak measure_peak(std::int32_t lanes, std::int32_t threads, double seconds);

// GB/s of reading so many bytes again and again, each thread a part of its own, for about `seconds`: from a cache,
// where they fit into one.
double measure_bandwidth(std::int64_t bytes, std::int32_t threads, double seconds);

} // namespace exattn::program
