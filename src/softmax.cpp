#include "checks.hpp"
#include "dispatch.hpp"
#include "parallel.hpp"

#include "exattn/exattn.h"

#include <algorithm>

namespace exattn {

namespace {

// Elements of an item, where rows are shorter than that. A function of the shape alone, as everything that shapes the
// work is.
constexpr std::int64_t kItemElements = 16384;

struct Call {
  const Kernel *kernel;
  SoftmaxPlan plan;
  std::int64_t rows;
  std::int64_t rows_per_item;
};

void run_item(const void *context, std::int64_t item, void *) {
  const Call &call = *static_cast<const Call *>(context);
  const std::int64_t first = item * call.rows_per_item;
  call.kernel->softmax(call.plan, first, std::min(call.rows_per_item, call.rows - first));
}

exattn_status soften(const exattn_softmax_args &args, Message &message) noexcept {
  Choice choice;
  Team team;
  Call call{};
  exattn_status status = choose_kernel(args.lanes, args.flavour, choice, message);
  if (status != EXATTN_OK || (status = make_team(args.pool, args.executor, team, message)) != EXATTN_OK ||
      (status = check_softmax(args, call.plan, call.rows, message)) != EXATTN_OK) {
    return status;
  }
  call.kernel = choice.kernel;
  if (call.rows != 0) {
    call.rows_per_item = (kItemElements - 1) / call.plan.shape[3] + 1;
    const std::int64_t items = (call.rows - 1) / call.rows_per_item + 1;
    status = run_items(team, {run_item, &call, items, nullptr, 0}, message);
  }
  if (status == EXATTN_OK && args.kernel != nullptr) {
    *args.kernel = choice.kernel->name;
  }
  return status;
}

} // namespace

} // namespace exattn

exattn_status exattn_softmax(const exattn_softmax_args *args) {
  exattn_softmax_args taken;
  const exattn_status status = exattn::take_args(args, taken);
  if (status != EXATTN_OK) {
    return status;
  }
  exattn::Message message(taken.message, taken.message_size);
  return exattn::soften(taken, message);
}
