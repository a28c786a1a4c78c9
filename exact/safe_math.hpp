// Stops the compiler where its mode could change a result. Included by every source whose floating-point results
// count. The build gives the right options itself (cmake/ExattnFlags.cmake); this catches a build that does not.
#pragma once

#include <cfloat>
#include <limits>

#if defined(__FAST_MATH__) || defined(_M_FP_FAST)
#error "exattn can't be built with -ffast-math, -Ofast or /fp:fast: results would depend on the compiler"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "exattn can't be built with -ffinite-math-only: it has to see NaN and infinities"
#endif
#if defined(__ASSOCIATIVE_MATH__)
#error "exattn can't be built with -fassociative-math: the order of sums is part of the definition"
#endif
#if defined(__RECIPROCAL_MATH__)
#error "exattn can't be built with -freciprocal-math: divisions have to round once"
#endif
#if defined(__NO_SIGNED_ZEROS__)
#error "exattn can't be built with -fno-signed-zeros: the sign of zero is part of the result"
#endif
#if defined(__GCC_IEC_559) && __GCC_IEC_559 == 0
#error "exattn needs IEEE-754 arithmetic: look for an unsafe floating-point option"
#endif
#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0
#error "exattn needs float expressions evaluated as float (FLT_EVAL_METHOD 0); on 32-bit x86 use -msse2 -mfpmath=sse"
#endif

namespace exattn {
static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<float>::digits == 24 &&
                  std::numeric_limits<float>::min_exponent == -125 && std::numeric_limits<float>::max_exponent == 128,
              "float has to be IEEE-754 binary32");
static_assert(std::numeric_limits<double>::is_iec559 && std::numeric_limits<double>::digits == 53,
              "double has to be IEEE-754 binary64");
} // namespace exattn
