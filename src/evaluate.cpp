#include "checks.hpp"
#include "dispatch.hpp"
#include "fp_environment.hpp"

#include "exattn/exattn.h"

exattn_status exattn_evaluate(int32_t function, int32_t flavour, int32_t lanes, const float *x, float *y, size_t n) {
  if (function < EXATTN_FUNCTION_EXP || function > EXATTN_FUNCTION_TANH) {
    return EXATTN_ERROR_ENUM;
  }
  exattn::Choice choice;
  exattn::Message unheard;
  exattn_status status = exattn::choose_kernel(lanes, flavour, choice, unheard);
  if (status != EXATTN_OK || (status = exattn::check_evaluate(x, y, n)) != EXATTN_OK) {
    return status;
  }
  if (n != 0) {
    const exattn::FpEnvironment environment;
    choice.kernel->evaluate(function, x, y, n);
  }
  return EXATTN_OK;
}
