#include "checks.hpp"
#include "dispatch.hpp"
#include "fp_environment.hpp"
#include "parallel.hpp"

#include "exact/safe_math.hpp"
#include "exattn/exattn.h"

#include <limits>

namespace exattn {

namespace {

struct Call {
  const Kernel *kernel;
  AttentionPlan plan;
};

void run_item(const void *context, std::int64_t item, void *slice) {
  const Call &call = *static_cast<const Call *>(context);
  call.kernel->attention(call.plan, item, slice);
}

exattn_status attend(const exattn_attention_args &args, Message &message) noexcept {
  Choice choice;
  Team team;
  std::size_t slice_size = 0;
  Call call{};
  exattn_status status = choose_kernel(args.lanes, args.flavour, choice, message);
  if (status != EXATTN_OK || (status = check_attention_sizes(args, team, slice_size, message)) != EXATTN_OK ||
      (status = check_attention(args, team, slice_size, call.plan, message)) != EXATTN_OK) {
    return status;
  }
  if (args.scale_mode == EXATTN_SCALE_DEFAULT) {
    call.plan.scale = exattn_default_scale(args.head_dim);
  }
  call.kernel = choice.kernel;
  if (call.plan.items != 0) {
    Scratch scratch;
    if (args.scratch != nullptr) {
      scratch.use(args.scratch);
    } else {
      status = scratch.allocate(team.pool, slice_size, workers_for(team, call.plan.items), message);
      if (status != EXATTN_OK) {
        return status;
      }
    }
    status = run_items(team, {run_item, &call, call.plan.items, scratch.data(), slice_size}, message);
  }
  if (status == EXATTN_OK && args.kernel != nullptr) {
    *args.kernel = choice.kernel->name;
  }
  return status;
}

} // namespace

} // namespace exattn

exattn_status exattn_attention(const exattn_attention_args *args) {
  exattn_attention_args taken;
  const exattn_status status = exattn::take_args(args, taken);
  if (status != EXATTN_OK) {
    return status;
  }
  exattn::Message message(taken.message, taken.message_size);
  return exattn::attend(taken, message);
}

exattn_status exattn_attention_scratch_size(const exattn_attention_args *args, size_t *bytes) {
  exattn_attention_args taken;
  exattn_status status = exattn::take_args(args, taken);
  if (status != EXATTN_OK) {
    return status;
  }
  exattn::Message message(taken.message, taken.message_size);
  if (bytes == nullptr) {
    return message.fail(EXATTN_ERROR_NULL, "bytes is null");
  }
  exattn::Team team;
  std::size_t slice_size = 0;
  status = exattn::check_attention_sizes(taken, team, slice_size, message);
  if (status != EXATTN_OK) {
    return status;
  }
  std::size_t size = 0;
  if (!exattn::scratch_size(slice_size, team.threads, size)) {
    return message.fail(EXATTN_ERROR_OVERFLOW, "the scratch of %d threads does not fit in size_t", team.threads);
  }
  *bytes = size;
  return EXATTN_OK;
}

float exattn_default_scale(int64_t head_dim) {
  if (head_dim < 1) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  // Volatile keeps the conversion, the root and the division between the two changes of the environment.
  const exattn::FpEnvironment environment;
  const volatile int64_t size = head_dim;
  const volatile float root = __builtin_sqrtf(static_cast<float>(size));
  const volatile float scale = 1.0F / root;
  return scale;
}
