// Argument checks: all of them before anything is written.
#pragma once

#include "kernel.hpp"
#include "message.hpp"
#include "parallel.hpp"
#include "plan.hpp"

#include "exattn/exattn.h"

#include <cstddef>
#include <cstdint>

namespace exattn {

// Copies the caller's arguments. struct_size tells which version of the struct it was compiled with; there has been one
// so far. A later version accepts the earlier sizes here and leaves the fields that they lack zero: "none", "default".
template <class Args>
exattn_status take_args(const Args *given, Args &args) noexcept {
  if (given == nullptr) {
    return EXATTN_ERROR_NULL;
  }
  if (given->struct_size != sizeof(Args)) {
    return EXATTN_ERROR_STRUCT_SIZE;
  }
  args = *given;
  return EXATTN_OK;
}

// What both attention and its size query need: sizes, heads, threads and whether keys may be split; gives the team, the
// bytes of one worker's slice of scratch, and what split keys need besides.
exattn_status check_attention_sizes(const exattn_attention_args &args, Team &team, std::size_t &slice_size,
                                    SplitScratch &split, Message &message) noexcept;

// The bytes of scratch of so many workers.
exattn_status measure_scratch(std::size_t slice_size, std::int32_t workers, const SplitScratch &split,
                              std::size_t &bytes, Message &message) noexcept;

// Sizes and heads; gives the bytes of a state.
exattn_status check_state_size(const exattn_attention_args &args, std::size_t &bytes, Message &message) noexcept;

// Everything else, after check_attention_sizes and the choice of a kernel. Fills in the plan and cuts the call up.
exattn_status check_attention(const exattn_attention_args &args, const Team &team, std::size_t slice_size,
                              const SplitScratch &split, AttentionPlan &plan, Cut &cut, Message &message) noexcept;

// Where the first key of a sequence goes in a call that packs keys.
inline std::int64_t first_key_of(const exattn_pack_keys_args &args, std::int64_t b) noexcept {
  return args.first_keys == nullptr ? args.first_key : args.first_keys[b];
}

// Bytes of packed keys without gaps.
exattn_status measure_packed_keys(std::int64_t batch, std::int64_t kv_heads, std::int64_t kv_len, std::int64_t head_dim,
                                  std::int32_t dtype, std::size_t &bytes) noexcept;

// Everything that can be wrong with packing keys.
exattn_status check_pack_keys(const exattn_pack_keys_args &args, Message &message) noexcept;

// Fills in the plan, and how many rows there are.
exattn_status check_softmax(const exattn_softmax_args &args, SoftmaxPlan &plan, std::int64_t &rows,
                            Message &message) noexcept;

// x may be y, but not overlap it otherwise.
exattn_status check_evaluate(const float *x, const float *y, std::size_t n) noexcept;

// out and lse may each be an input's of the same kind, but not overlap anything otherwise.
exattn_status check_merge(std::int64_t rows, std::int64_t value_dim, const float *a_out, const float *a_lse,
                          const float *b_out, const float *b_lse, const float *out, const float *lse) noexcept;

} // namespace exattn
