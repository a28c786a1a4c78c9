// How a call is cut into work items, for how many threads, and the scratch that this takes. Nothing of it changes a bit
// of a result.
#pragma once

#include "kernel.hpp"

#include "exattn/exattn.h"

#include <cstddef>
#include <cstdint>

namespace exattn {

// A sequence of a checked call: its rows and the position of the first, its keys, and how many of them are there.
inline std::int64_t rows_of(const exattn_attention_args &args, std::int64_t b) noexcept {
  return args.q_starts == nullptr ? args.q_len : args.q_starts[b + 1] - args.q_starts[b];
}
inline std::int64_t first_position_of(const exattn_attention_args &args, std::int64_t b) noexcept {
  return args.q_offsets == nullptr ? args.q_offset : args.q_offsets[b];
}
inline std::int64_t keys_of(const exattn_attention_args &args, std::int64_t b) noexcept {
  return args.kv_starts == nullptr ? args.kv_len : args.kv_starts[b + 1] - args.kv_starts[b];
}
inline std::int64_t present_keys_of(const exattn_attention_args &args, std::int64_t b) noexcept {
  return args.kv_lens == nullptr ? keys_of(args, b) : args.kv_lens[b];
}

// Keys, counted from the call's first. Empty: begin is not below end.
struct KeyRange {
  std::int64_t begin, end;
};

// The keys in which some of the rows [row, row + rows) of a sequence see one by length, causality and window.
KeyRange keys_seen(const exattn_attention_args &args, std::int64_t b, std::int64_t row, std::int64_t rows) noexcept;

// Scratch of one worker, in bytes, a multiple of 64. A function of the head sizes alone.
std::size_t attention_slice_bytes(std::int64_t head_dim, std::int64_t value_dim) noexcept;

// The scratch that a call needs for split keys: of an item of rows (AttentionPlan::split), and in bytes for all of
// them. All 0 where keys are not split for sure.
struct SplitScratch {
  std::int64_t rows = 0, blocks = 0;
  std::size_t bytes = 0;
};

// A function of sizes, window, causality, options and the number of threads: of nothing that a pointer leads to.
SplitScratch attention_split_scratch(const exattn_attention_args &args, std::int32_t threads) noexcept;

// How a checked call is cut up. The rows of each sequence that share a KV head are cut into runs of rows_per_item, a
// multiple of kMaxStripRows; there are `runs` in all sequences, hardly any of them empty. With split keys, each run is
// cut further, by key blocks and by value columns.
struct Cut {
  std::int32_t threads = 1; // that there is work for
  std::int64_t rows_per_item = kMaxStripRows;
  std::int64_t runs = 0;
  std::int64_t passes = 1;   // items with more to do come in earlier passes
  bool in_order = false;     // items must begin in the order of their numbers
  std::int64_t heaviest = 0; // what the one with the most to do has, in rows times blocks
  bool split = false;
  std::int64_t blocks = 0, pieces = 0; // key blocks of an item, and how many such items a run has
  std::int64_t columns = 0;            // value columns of an item
};

// False: there are more items than 63 bits can count.
bool cut_attention(const exattn_attention_args &args, std::int32_t threads, const SplitScratch &scratch,
                   Cut &cut) noexcept;

// How many numbers items have in a phase, and the item of a number. It has no rows where there is nothing to do.
std::int64_t count_items(const exattn_attention_args &args, const Cut &cut, Phase phase) noexcept;
WorkItem work_item(const exattn_attention_args &args, const Cut &cut, Phase phase, std::int64_t number) noexcept;

} // namespace exattn
