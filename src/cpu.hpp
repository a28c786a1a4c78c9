// What CPU and operating system offer to lane kinds.
#pragma once

#include <cstdint>

namespace exattn {

// What an x86 CPU says of itself, unjudged.
struct X86Identity {
  std::uint32_t max_leaf = 0;   // cpuid 0: eax
  char vendor[13] = "";         // cpuid 0: ebx, edx, ecx
  std::uint32_t leaf_1_eax = 0; // cpuid 1
  std::uint32_t leaf_1_ecx = 0;
  std::uint32_t leaf_1_edx = 0;
  std::uint32_t leaf_7_ebx = 0; // cpuid 7, subleaf 0; of no meaning when max_leaf is below 7
  std::uint64_t xcr0 = 0;       // xgetbv 0; of no meaning without OSXSAVE
};

// Instructions and register state apart: an operating system that does not save a register on a context switch makes
// the instructions that use it unusable, though the CPU has them.
struct CpuFeatures {
  bool sse2 = false;
  bool avx2 = false;
  bool fma = false;
  bool avx512 = false;    // F, CD, DQ, BW and VL
  bool ymm_state = false; // the operating system saves XMM and YMM
  bool zmm_state = false; // and opmask and all of ZMM
  bool neon64 = false;
  bool broadcast_multiplies = false; // a broadcast into a register takes a slot of the multiplier
};

CpuFeatures features_of(const X86Identity &identity) noexcept;

// This machine. Found out once.
const CpuFeatures &cpu_features() noexcept;

} // namespace exattn
