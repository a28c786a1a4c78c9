#include "checks.hpp"
#include "dispatch.hpp"
#include "fp_environment.hpp"

#include "exact/safe_math.hpp"
#include "exattn/exattn.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace exattn {

namespace {

constexpr std::uint32_t kNaN = 0x7FC00000;
constexpr std::uint32_t kMinusInfinity = 0xFF800000;

bool is_nan(std::uint32_t bits) {
  return (bits & 0x7FFFFFFF) > 0x7F800000;
}

// The bits of a result.
float written(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>(is_nan(bits) ? kNaN : bits);
}

// A row of one part alone.
void copy_row(std::int64_t value_dim, const float *from_out, float from_lse, float *out, float *lse) {
  for (std::int64_t x = 0; x < value_dim; ++x) {
    out[x] = written(from_out[x]);
  }
  *lse = written(from_lse);
}

// One row (definition, section 14); out and lse may be those of a or b.
void merge_row(const Kernel &kernel, std::int64_t value_dim, const float *a_out, float a_lse, const float *b_out,
               float b_lse, float *out, float *lse) {
  if (std::bit_cast<std::uint32_t>(a_lse) == kMinusInfinity) {
    copy_row(value_dim, b_out, b_lse, out, lse);
    return;
  }
  if (std::bit_cast<std::uint32_t>(b_lse) == kMinusInfinity) {
    copy_row(value_dim, a_out, a_lse, out, lse);
    return;
  }
  const float m = a_lse > b_lse || is_nan(std::bit_cast<std::uint32_t>(a_lse)) ? a_lse : b_lse;
  const float difference[2] = {a_lse - m, b_lse - m};
  float weight[2];
  kernel.evaluate(EXATTN_FUNCTION_EXP, difference, weight, 2);
  const float sum = weight[0] + weight[1];
  float logarithm = 0;
  kernel.evaluate(EXATTN_FUNCTION_LOG, &sum, &logarithm, 1);
  for (std::int64_t x = 0; x < value_dim; ++x) {
    out[x] = written((weight[0] * a_out[x] + weight[1] * b_out[x]) / sum);
  }
  *lse = written(m + logarithm);
}

} // namespace

} // namespace exattn

exattn_status exattn_merge_tolerant(int64_t rows, int64_t value_dim, const float *a_out, const float *a_lse,
                                    const float *b_out, const float *b_lse, float *out, float *lse) {
  const exattn_status status = exattn::check_merge(rows, value_dim, a_out, a_lse, b_out, b_lse, out, lse);
  if (status != EXATTN_OK) {
    return status;
  }
  const exattn::Kernel &kernel = *exattn::built_kernels()[EXATTN_LANES_SCALAR].exact;
  const exattn::FpEnvironment environment;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * value_dim;
    exattn::merge_row(kernel, value_dim, a_out + first, a_lse[row], b_out + first, b_lse[row], out + first, lse + row);
  }
  return EXATTN_OK;
}
