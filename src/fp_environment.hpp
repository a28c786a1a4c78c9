// The floating-point environment of the definition, for the lifetime of an object.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace exattn {

// Round to nearest, gradual underflow, exceptions masked, on this thread; then the state that was there before, sticky
// flags included. What computes in between must read its operands from memory and leave its results there: arithmetic
// on values in registers alone may be moved across by the compiler.
class FpEnvironment {
public:
  FpEnvironment() noexcept;
  ~FpEnvironment();
  FpEnvironment(const FpEnvironment &) = delete;
  FpEnvironment &operator=(const FpEnvironment &) = delete;

private:
#if defined(__x86_64__)
  std::uint32_t saved_mxcsr;
#elif defined(__aarch64__)
  std::uint64_t saved_fpcr;
  std::uint64_t saved_fpsr;
#else
  std::fenv_t saved;
#endif
};

#if defined(__x86_64__)

inline FpEnvironment::FpEnvironment() noexcept : saved_mxcsr(_mm_getcsr()) {
  _mm_setcsr(0x1F80); // all exceptions masked, nearest, neither FTZ nor DAZ
  __asm__ volatile("" ::: "memory");
}

inline FpEnvironment::~FpEnvironment() {
  __asm__ volatile("" ::: "memory");
  _mm_setcsr(saved_mxcsr);
}

#elif defined(__aarch64__)

inline FpEnvironment::FpEnvironment() noexcept {
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved_fpcr));
  __asm__ volatile("mrs %0, fpsr" : "=r"(saved_fpsr));
  __asm__ volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}) : "memory");
}

inline FpEnvironment::~FpEnvironment() {
  __asm__ volatile("msr fpcr, %0" : : "r"(saved_fpcr) : "memory");
  __asm__ volatile("msr fpsr, %0" : : "r"(saved_fpsr) : "memory");
}

#else

inline FpEnvironment::FpEnvironment() noexcept {
  std::fegetenv(&saved);
  std::fesetenv(FE_DFL_ENV);
  __asm__ volatile("" ::: "memory");
}

inline FpEnvironment::~FpEnvironment() {
  __asm__ volatile("" ::: "memory");
  std::fesetenv(&saved);
}

#endif

} // namespace exattn
