// An attention call as the command line describes it: its options, the files that they name, and its outputs.
#pragma once

#include "npy.hpp"
#include "output_file.hpp"
#include "program.hpp"

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace exattn::program {

using FourSizes = std::array<std::int64_t, 4>;

struct AttentionOptions : RunOptions {
  std::string q, k, v, bf16;
  std::string mask, mask_bool, sinks, alibi;
  std::string scale, softcap;
  std::string q_offset, window, kv_len;
  bool causal = false;
  std::string fully_masked = "nan";
  std::string q_starts, kv_starts, page_table, page_size;
  bool pack_k = false;
  std::string kv_offset, state_in, state_out;
  std::string lse;
};

// Those that name tensors, and those that say what is computed of them. Neither says where results go.
void add_tensor_options(CLI::App &command, AttentionOptions &options);
void add_meaning_options(CLI::App &command, AttentionOptions &options);

// Everything of a call that is read from files or has a size of its own. Its arguments point into it.
struct AttentionCall {
  AttentionCall() = default;
  AttentionCall(const AttentionCall &) = delete;
  AttentionCall &operator=(const AttentionCall &) = delete;

  exattn_attention_args args{};
  NpyArray q, k, v, mask, mask_bool;
  std::vector<float> sinks, alibi;
  std::vector<std::int64_t> q_offsets, kv_lens, q_starts, kv_starts;
  std::vector<std::int32_t> page_table;
  std::vector<std::int64_t> page_table_shape;
  std::vector<unsigned char> packed_k;
  MappedFile state;
  bool ragged_q = false, ragged_kv = false, paged = false;

  FourSizes out_sizes() const; // [B, H, Tq, Dv], with 1 for B where rows are ragged
  // With as many dimensions as q has.
  std::vector<std::int64_t> out_shape() const;
  std::vector<std::int64_t> lse_shape() const;
};

// Reads what the options name, and what is read is in `files`. Throws InputError.
void read_call(AttentionCall &call, const AttentionOptions &options, std::vector<NamedFile> &files);

// Zeros, which remain in rows of no sequence. At least one element, so that there is an address; `count` of them count.
std::vector<float> allocate(std::span<const std::int64_t> shape, std::size_t &count);
exattn_output contiguous_output(std::vector<float> &data, std::span<const std::int64_t> shape);

} // namespace exattn::program
