#include "checks.hpp"
#include "dispatch.hpp"
#include "fp_environment.hpp"
#include "parallel.hpp"
#include "state.hpp"

#include "exact/safe_math.hpp"
#include "exattn/exattn.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

namespace exattn {

namespace {

struct Call {
  const exattn_attention_args &args;
  const Kernel *kernel = nullptr;
  AttentionPlan plan{};
  Cut cut{};
};

struct CallPhase {
  const Call &call;
  Phase phase;
};

void run_item(const void *context, std::int64_t number, void *slice) {
  const auto &[call, phase] = *static_cast<const CallPhase *>(context);
  const WorkItem item = work_item(call.args, call.cut, phase, number);
  if (item.rows > 0) {
    call.kernel->attention(call.plan, item, slice);
  }
}

// With split keys, a phase begins when the one before has ended.
std::span<const Phase> phases_of(const Cut &cut) {
  static constexpr Phase kPhases[] = {Phase::kWhole, Phase::kScores, Phase::kWeights, Phase::kValues};
  return cut.split ? std::span(kPhases).subspan(1) : std::span(kPhases).first(1);
}

exattn_status find_scratch(const Team &team, Call &call, std::size_t slice_size, const SplitScratch &split,
                           Scratch &scratch, Message &message) noexcept {
  std::int32_t workers = 1;
  for (const Phase phase : phases_of(call.cut)) {
    workers = std::max(workers, workers_for(team, count_items(call.args, call.cut, phase)));
  }
  if (call.args.scratch != nullptr) {
    scratch.use(call.args.scratch);
  } else {
    std::size_t bytes = 0;
    exattn_status status =
        measure_scratch(slice_size, workers, call.cut.split ? split : SplitScratch{}, bytes, message);
    if (status != EXATTN_OK || (status = scratch.allocate(team.pool, bytes, message)) != EXATTN_OK) {
      return status;
    }
  }
  call.plan.split = reinterpret_cast<float *>(scratch.data() + slice_size * static_cast<std::size_t>(workers));
  return EXATTN_OK;
}

exattn_status run_phases(const Team &team, const Call &call, std::size_t slice_size, std::byte *scratch,
                         Message &message) noexcept {
  exattn_status status = EXATTN_OK;
  for (const Phase phase : phases_of(call.cut)) {
    const CallPhase context{call, phase};
    const std::int64_t items = count_items(call.args, call.cut, phase);
    const Work work{run_item, &context, items, scratch, slice_size, call.cut.in_order};
    if ((status = run_items(team, work, message)) != EXATTN_OK) {
      break;
    }
  }
  return status;
}

// Everything of a state but the rows of sequences, which the kernel has written. state_in may be state_out.
void finish_state(const exattn_attention_args &args) {
  unsigned char *const state = static_cast<unsigned char *>(args.state_out);
  const unsigned char *const before = static_cast<const unsigned char *>(args.state_in);
  std::int64_t longest = args.kv_starts == nullptr ? args.kv_len : 0;
  for (std::int64_t b = 0; b < args.batch; ++b) {
    longest = std::max(longest, keys_of(args, b));
    const std::int64_t present = present_keys_of(args, b);
    const std::size_t at = kStateHeaderBytes + static_cast<std::size_t>(b) * kStateEndBytes;
    // A sequence that ended earlier has no keys here.
    const std::uint64_t end = before != nullptr && present == 0 ? load_le64(before + at)
                                                                : static_cast<std::uint64_t>(args.kv_offset + present);
    store_le64(state + at, end);
  }
  const std::int64_t next_key = (args.kv_offset + longest + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
  const bool ragged = args.q_starts != nullptr;
  std::memcpy(state, kStateMagic, sizeof(kStateMagic));
  store_le32(state + kStateFlavourAt, static_cast<std::uint32_t>(args.flavour));
  store_le32(state + kStateZeroAt, 0);
  store_le64(state + kStateBatchAt, static_cast<std::uint64_t>(args.batch));
  store_le64(state + kStateHeadsAt, static_cast<std::uint64_t>(args.heads));
  store_le64(state + kStateRowsAt, static_cast<std::uint64_t>(args.q_len));
  store_le64(state + kStateValueDimAt, static_cast<std::uint64_t>(args.value_dim));
  store_le64(state + kStateNextKeyAt, static_cast<std::uint64_t>(next_key));
  store_le64(state + kStateRaggedAt, ragged ? 1 : 0);
  if (!ragged) {
    return;
  }
  // Rows that belong to no sequence.
  unsigned char *const rows = state + kStateHeaderBytes + static_cast<std::size_t>(args.batch) * kStateEndBytes;
  const std::int64_t row_bytes = state_row_bytes(args.value_dim);
  for (std::int64_t h = 0; h < args.heads; ++h) {
    unsigned char *const head = rows + h * args.q_len * row_bytes;
    const std::int64_t first = args.q_starts[0];
    const std::int64_t end = args.q_starts[args.batch];
    std::memset(head, 0, static_cast<std::size_t>(first * row_bytes));
    std::memset(head + end * row_bytes, 0, static_cast<std::size_t>((args.q_len - end) * row_bytes));
  }
}

// Leaves no state of an unfinished call that could be taken for a whole one, in place of an earlier one least of all.
void spoil_state(const exattn_attention_args &args) {
  std::memset(args.state_out, 0, sizeof(kStateMagic));
}

exattn_status attend(const exattn_attention_args &args, Message &message) noexcept {
  Choice choice;
  Team team;
  std::size_t slice_size = 0;
  SplitScratch split;
  Call call{args};
  exattn_status status = choose_kernel(args.lanes, args.flavour, choice, message);
  if (status != EXATTN_OK || (status = check_attention_sizes(args, team, slice_size, split, message)) != EXATTN_OK ||
      (status = check_attention(args, team, slice_size, split, call.plan, call.cut, message)) != EXATTN_OK) {
    return status;
  }
  if (args.scale_mode == EXATTN_SCALE_DEFAULT) {
    call.plan.scale = exattn_default_scale(args.head_dim);
  }
  call.kernel = choice.kernel;
  if (call.cut.runs != 0) {
    team.threads = call.cut.threads;
    Scratch scratch;
    if ((status = find_scratch(team, call, slice_size, split, scratch, message)) != EXATTN_OK) {
      return status;
    }
    status = run_phases(team, call, slice_size, scratch.data(), message);
  }
  if (args.state_out != nullptr) {
    if (status == EXATTN_OK) {
      finish_state(args);
    } else {
      spoil_state(args);
    }
  }
  if (status == EXATTN_OK && args.kernel != nullptr) {
    *args.kernel = choice.kernel->name;
  }
  return status;
}

exattn_status find_scratch_size(const exattn_attention_args &args, std::size_t &bytes, Message &message) noexcept {
  Team team;
  std::size_t slice_size = 0;
  SplitScratch split;
  const exattn_status status = check_attention_sizes(args, team, slice_size, split, message);
  return status != EXATTN_OK ? status : measure_scratch(slice_size, team.threads, split, bytes, message);
}

// What the two size queries have in common.
template <class Find>
exattn_status answer_size(const exattn_attention_args *args, std::size_t *bytes, Find find) noexcept {
  exattn_attention_args taken;
  exattn_status status = take_args(args, taken);
  if (status != EXATTN_OK) {
    return status;
  }
  Message message(taken.message, taken.message_size);
  if (bytes == nullptr) {
    return message.fail(EXATTN_ERROR_NULL, "bytes is null");
  }
  std::size_t size = 0;
  status = find(taken, size, message);
  if (status == EXATTN_OK) {
    *bytes = size;
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
  return exattn::answer_size(args, bytes, exattn::find_scratch_size);
}

exattn_status exattn_attention_state_size(const exattn_attention_args *args, size_t *bytes) {
  return exattn::answer_size(args, bytes, exattn::check_state_size);
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
