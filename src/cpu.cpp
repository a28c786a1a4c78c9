#include "cpu.hpp"

#include <cstring>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define EXATTN_X86 1
#endif

namespace exattn {

namespace {

constexpr bool has_bit(std::uint32_t word, int bit) {
  return ((word >> bit) & 1U) != 0;
}

constexpr bool has_all(std::uint64_t word, std::uint64_t mask) {
  return (word & mask) == mask;
}

// Bits of XCR0: XMM 1, YMM 2, opmask 5, upper halves of ZMM0-15 6, ZMM16-31 7.
constexpr std::uint64_t kYmmState = 0x06;
constexpr std::uint64_t kZmmState = 0xE6;

// Of leaf 7: F 16, DQ 17, CD 28, BW 30, VL 31.
constexpr std::uint32_t kAvx512 = 0xD0030000;

// AMD's Zen 3 and Zen 4, of which Zen 4 has AVX-512.
constexpr std::uint32_t kZen4Family = 0x19;

// The processor's signature, cpuid 1: eax. Family 15 is continued in a field of its own.
constexpr std::uint32_t family_of(std::uint32_t signature) {
  const std::uint32_t family = (signature >> 8) & 0xF;
  return family == 0xF ? family + ((signature >> 20) & 0xFF) : family;
}

#if defined(EXATTN_X86)
X86Identity identify() noexcept {
  X86Identity identity;
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  identity.max_leaf = static_cast<std::uint32_t>(__get_cpuid_max(0, nullptr));
  if (identity.max_leaf >= 1) {
    __cpuid(0, eax, ebx, ecx, edx);
    std::memcpy(identity.vendor, &ebx, 4);
    std::memcpy(identity.vendor + 4, &edx, 4);
    std::memcpy(identity.vendor + 8, &ecx, 4);
    __cpuid(1, eax, ebx, ecx, edx);
    identity.leaf_1_eax = eax;
    identity.leaf_1_ecx = ecx;
    identity.leaf_1_edx = edx;
  }
  if (identity.max_leaf >= 7) {
    __cpuid_count(7, 0, eax, ebx, ecx, edx);
    identity.leaf_7_ebx = ebx;
  }
  if (has_bit(identity.leaf_1_ecx, 27)) { // without OSXSAVE the instruction itself is illegal
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    identity.xcr0 = (std::uint64_t{high} << 32) | low;
  }
  return identity;
}
#endif

CpuFeatures detect() noexcept {
#if defined(EXATTN_X86)
  return features_of(identify());
#elif defined(__aarch64__)
  CpuFeatures features;
  features.neon64 = true; // part of the architecture
  return features;
#else
  return {};
#endif
}

} // namespace

CpuFeatures features_of(const X86Identity &identity) noexcept {
  CpuFeatures features;
  if (identity.max_leaf < 1) {
    return features;
  }
  features.sse2 = has_bit(identity.leaf_1_edx, 26);
  const std::uint64_t xcr0 = has_bit(identity.leaf_1_ecx, 27) ? identity.xcr0 : 0;
  features.ymm_state = has_all(xcr0, kYmmState);
  features.zmm_state = has_all(xcr0, kZmmState);
  const bool avx = has_bit(identity.leaf_1_ecx, 28);
  features.fma = avx && has_bit(identity.leaf_1_ecx, 12);
  const std::uint32_t leaf_7 = identity.max_leaf >= 7 ? identity.leaf_7_ebx : 0;
  features.avx2 = avx && has_bit(leaf_7, 5);
  features.avx512 = has_all(leaf_7, kAvx512);
  features.broadcast_multiplies =
      std::strcmp(identity.vendor, "AuthenticAMD") == 0 && family_of(identity.leaf_1_eax) == kZen4Family;
  return features;
}

const CpuFeatures &cpu_features() noexcept {
  static const CpuFeatures features = detect();
  return features;
}

} // namespace exattn
