#include "peak.hpp"

#include "exattn/exattn.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <limits>
#include <thread>
#include <vector>

namespace exattn::program {
namespace {

// Twelve independent sums hide the latency of both operations. Written in assembly, so that the program needs no
// compiler options for instruction sets, and no compiler can shorten it. Registers 12 and 13 are the factors (zero, so
// that no value grows), 14 and 15 hold products.
#define EXATTN_TWELVE(even, odd)                                                                                       \
  even("0") odd("1") even("2") odd("3") even("4") odd("5") even("6") odd("7") even("8") odd("9") even("10") odd("11")

constexpr long kSteps = 50000; // long against the time that threads need to meet
constexpr double kSums = 12;

#if defined(__x86_64__)
#define EXATTN_LOOP(clear, body, end)                                                                                  \
  long steps = kSteps;                                                                                                 \
  __asm__ volatile(EXATTN_TWELVE(clear, clear) clear("12") clear("13") "1:\n\t" body "dec %0\n\tjnz 1b\n\t" end        \
                   : "+r"(steps)                                                                                       \
                   :                                                                                                   \
                   : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",    \
                     "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")

#define EXATTN_CLEAR_AVX(n) "vxorps %%xmm" n ", %%xmm" n ", %%xmm" n "\n\t"
#define EXATTN_FUSED_512(n) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" n "\n\t"
#define EXATTN_FUSED_256(n) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" n "\n\t"
#define EXATTN_EVEN_512(n) "vmulps %%zmm12, %%zmm13, %%zmm14\n\tvaddps %%zmm14, %%zmm" n ", %%zmm" n "\n\t"
#define EXATTN_ODD_512(n) "vmulps %%zmm12, %%zmm13, %%zmm15\n\tvaddps %%zmm15, %%zmm" n ", %%zmm" n "\n\t"
#define EXATTN_EVEN_256(n) "vmulps %%ymm12, %%ymm13, %%ymm14\n\tvaddps %%ymm14, %%ymm" n ", %%ymm" n "\n\t"
#define EXATTN_ODD_256(n) "vmulps %%ymm12, %%ymm13, %%ymm15\n\tvaddps %%ymm15, %%ymm" n ", %%ymm" n "\n\t"
#define EXATTN_CLEAR_SSE(n) "xorps %%xmm" n ", %%xmm" n "\n\t"
#define EXATTN_EVEN_128(n) "movaps %%xmm12, %%xmm14\n\tmulps %%xmm13, %%xmm14\n\taddps %%xmm14, %%xmm" n "\n\t"
#define EXATTN_ODD_128(n) "movaps %%xmm12, %%xmm15\n\tmulps %%xmm13, %%xmm15\n\taddps %%xmm15, %%xmm" n "\n\t"

void fused_512() {
  EXATTN_LOOP(EXATTN_CLEAR_AVX, EXATTN_TWELVE(EXATTN_FUSED_512, EXATTN_FUSED_512), "vzeroupper");
}
void unfused_512() {
  EXATTN_LOOP(EXATTN_CLEAR_AVX, EXATTN_TWELVE(EXATTN_EVEN_512, EXATTN_ODD_512), "vzeroupper");
}
void fused_256() {
  EXATTN_LOOP(EXATTN_CLEAR_AVX, EXATTN_TWELVE(EXATTN_FUSED_256, EXATTN_FUSED_256), "vzeroupper");
}
void unfused_256() {
  EXATTN_LOOP(EXATTN_CLEAR_AVX, EXATTN_TWELVE(EXATTN_EVEN_256, EXATTN_ODD_256), "vzeroupper");
}
void unfused_128() {
  EXATTN_LOOP(EXATTN_CLEAR_SSE, EXATTN_TWELVE(EXATTN_EVEN_128, EXATTN_ODD_128), "");
}
#elif defined(__aarch64__)
#define EXATTN_LOOP(body)                                                                                              \
  long steps = kSteps;                                                                                                 \
  __asm__ volatile(EXATTN_TWELVE(EXATTN_CLEAR, EXATTN_CLEAR) EXATTN_CLEAR("12")                                        \
                       EXATTN_CLEAR("13") "1:\n\t" body "subs %0, %0, #1\n\tb.ne 1b\n\t"                               \
                   : "+r"(steps)                                                                                       \
                   :                                                                                                   \
                   : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",     \
                     "v14", "v15")

#define EXATTN_CLEAR(n) "movi v" n ".4s, #0\n\t"
#define EXATTN_FUSED_128(n) "fmla v" n ".4s, v12.4s, v13.4s\n\t"
#define EXATTN_EVEN_128(n) "fmul v14.4s, v12.4s, v13.4s\n\tfadd v" n ".4s, v" n ".4s, v14.4s\n\t"
#define EXATTN_ODD_128(n) "fmul v15.4s, v12.4s, v13.4s\n\tfadd v" n ".4s, v" n ".4s, v15.4s\n\t"

void fused_128() {
  EXATTN_LOOP(EXATTN_TWELVE(EXATTN_FUSED_128, EXATTN_FUSED_128));
}
void unfused_128() {
  EXATTN_LOOP(EXATTN_TWELVE(EXATTN_EVEN_128, EXATTN_ODD_128));
}
#endif

// The shortest time, in seconds, that all threads together take for their work, tried for about `seconds`: a peak is
// what the machine reaches when nothing disturbs it. Each thread makes its own work.
template <class MakeWork>
double shortest(std::int32_t threads, double seconds, MakeWork make_work) {
  using Clock = std::chrono::steady_clock;
  std::barrier together(threads);
  double best = std::numeric_limits<double>::infinity();
  bool done = false;
  const auto take_part = [&](bool first) {
    auto work = make_work();
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (true) {
      together.arrive_and_wait();
      if (done) {
        return;
      }
      const auto before = Clock::now();
      work();
      together.arrive_and_wait();
      if (first) { // the others read `done` after the next barrier
        best = std::min(best, std::chrono::duration<double>(Clock::now() - before).count());
        done = Clock::now() >= end;
      }
    }
  };
  std::vector<std::jthread> others;
  for (std::int32_t n = 1; n < threads; ++n) {
    others.emplace_back(take_part, false);
  }
  take_part(true);
  return best;
}

[[maybe_unused]] double best_rate(void (*loop)(), double lanes, std::int32_t threads, double seconds) {
  return 2 * lanes * kSums * static_cast<double>(kSteps) * threads * 1e-9 /
         shortest(threads, seconds, [loop] { return loop; });
}

} // namespace

Peak measure_peak(std::int32_t lanes, std::int32_t threads, double seconds) {
  Peak peak;
  switch (lanes) {
#if defined(__x86_64__)
  case EXATTN_LANES_AVX512:
  case EXATTN_LANES_AVX512N:
    return {best_rate(fused_512, 16, threads, seconds / 2), best_rate(unfused_512, 16, threads, seconds / 2)};
  case EXATTN_LANES_AVX2:
    peak.unfused = best_rate(unfused_256, 8, threads, seconds / 2);
    if (exattn_lanes_resolve(lanes, EXATTN_FAST, &lanes, nullptr) == EXATTN_OK) {
      peak.fused = best_rate(fused_256, 8, threads, seconds / 2);
    }
    return peak;
  case EXATTN_LANES_SSE2:
    peak.unfused = best_rate(unfused_128, 4, threads, seconds);
    return peak;
#elif defined(__aarch64__)
  case EXATTN_LANES_NEON64:
    return {best_rate(fused_128, 4, threads, seconds / 2), best_rate(unfused_128, 4, threads, seconds / 2)};
#endif
  default:
    static_cast<void>(threads);
    static_cast<void>(seconds);
    return peak;
  }
}

double measure_bandwidth(std::int64_t bytes, std::int32_t threads, double seconds) {
  constexpr std::size_t kLine = 8; // words of a cache line: one of them brings all of it
  const std::size_t lines = std::max<std::size_t>(1, static_cast<std::size_t>(bytes) / (8 * kLine * kLine) /
                                                         static_cast<std::size_t>(threads)) *
                            kLine;
  const double time = shortest(threads, seconds, [lines] {
    return [lines, words = std::vector<std::uint64_t>(lines * kLine, 1)] {
      std::uint64_t sums[kLine] = {};
      for (std::size_t n = 0; n < lines; n += kLine) {
        for (std::size_t i = 0; i < kLine; ++i) {
          sums[i] += words[(n + i) * kLine];
        }
      }
      for (std::uint64_t &sum : sums) {
        __asm__ volatile("" : "+r"(sum)); // its value is wanted, as far as the compiler knows
      }
    };
  });
  return static_cast<double>(lines * kLine * 8) * threads * 1e-9 / time;
}

} // namespace exattn::program
