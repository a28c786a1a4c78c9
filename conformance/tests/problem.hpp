// An attention call with memory of its own, for tests: inputs that are known, outputs that show every byte written.
#pragma once

#include "conformance/generator.hpp"

#include "exattn/exattn.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace exattn::tests {

// Output memory between guards, filled with a pattern that no computation gives.
class GuardedOutput {
public:
  explicit GuardedOutput(std::size_t element_count)
      : words(element_count + 2 * kGuard, kPattern), count(element_count) {}

  float *data() { return reinterpret_cast<float *>(words.data() + kGuard); }

  bool untouched() const {
    for (const std::uint32_t word : words) {
      if (word != kPattern) {
        return false;
      }
    }
    return true;
  }

  bool guards_intact() const {
    for (std::size_t n = 0; n < kGuard; ++n) {
      if (words[n] != kPattern || words[words.size() - 1 - n] != kPattern) {
        return false;
      }
    }
    return true;
  }

  std::vector<float> values() const {
    std::vector<float> result(count);
    std::memcpy(result.data(), words.data() + kGuard, count * sizeof(float));
    return result;
  }

  std::vector<std::uint32_t> bits() const { return {words.begin() + kGuard, words.end() - kGuard}; }

private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint32_t kPattern = 0x7FA5A5A5; // a signalling NaN
  std::vector<std::uint32_t> words;
  std::size_t count;
};

// Numbers with 17 bits between -1 and 1, exact in binary32.
inline std::vector<float> some_numbers(std::uint64_t seed, std::size_t count) {
  std::vector<float> result(count);
  for (std::size_t n = 0; n < count; ++n) {
    const std::int64_t integer = static_cast<std::int64_t>(conformance::random_word(seed, n) >> 47) - (1 << 16);
    result[n] = static_cast<float>(integer) / 65536.0F;
  }
  return result;
}

// All tensors contiguous, mask and lse there but not used unless asked for.
struct Problem {
  Problem(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t q_len, std::int64_t kv_len,
          std::int64_t head_dim, std::int64_t value_dim)
      : q(some_numbers(1, elements({batch, heads, q_len, head_dim}))),
        k(some_numbers(2, elements({batch, kv_heads, kv_len, head_dim}))),
        v(some_numbers(3, elements({batch, kv_heads, kv_len, value_dim}))),
        mask(some_numbers(4, elements({batch, heads, q_len, kv_len}))), sinks(some_numbers(5, elements({heads}))),
        q_offsets(static_cast<std::size_t>(batch), 0), kv_lens(static_cast<std::size_t>(batch), kv_len),
        out(elements({batch, heads, q_len, value_dim})), lse(elements({batch, heads, q_len})) {
    args.struct_size = sizeof(args);
    args.flavour = EXATTN_EXACT;
    args.lanes = EXATTN_LANES_SCALAR;
    args.batch = batch;
    args.heads = heads;
    args.kv_heads = kv_heads;
    args.q_len = q_len;
    args.kv_len = kv_len;
    args.head_dim = head_dim;
    args.value_dim = value_dim;
    set(args.q, q, heads, q_len, head_dim);
    set(args.k, k, kv_heads, kv_len, head_dim);
    set(args.v, v, kv_heads, kv_len, value_dim);
    args.out = {out.data(), 0, 4, {heads * q_len * value_dim, q_len * value_dim, value_dim, 1}};
    message.fill('#');
    args.message = message.data();
    args.message_size = message.size();
    args.kernel = &kernel;
  }
  Problem(const Problem &) = delete;
  Problem &operator=(const Problem &) = delete;

  void use_mask() { set(args.mask, mask, args.heads, args.q_len, args.kv_len); }
  void use_lse() { args.lse = {lse.data(), 0, 3, {args.heads * args.q_len, args.q_len, 1, 0}}; }

  // Every weight is 1 and value row j of (b, kv head) n holds 1000 n + j, so that an output is 1000 n + (kv_len - 1) /
  // 2 and, with kv_len a power of two, nothing is rounded.
  void make_means() {
    q.assign(q.size(), 0.0F);
    for (std::size_t n = 0; n < v.size(); ++n) {
      const std::size_t row = n / static_cast<std::size_t>(args.value_dim);
      const std::size_t length = static_cast<std::size_t>(args.kv_len);
      v[n] = static_cast<float>(1000 * (row / length) + row % length);
    }
  }

  std::vector<float> expected_means() const {
    std::vector<float> result;
    const std::int64_t group = args.kv_heads == 0 ? 1 : args.heads / args.kv_heads;
    for (std::int64_t b = 0; b < args.batch; ++b) {
      for (std::int64_t h = 0; h < args.heads; ++h) {
        const std::int64_t twice = 2000 * (b * args.kv_heads + h / group) + args.kv_len - 1;
        result.insert(result.end(), elements({args.q_len, args.value_dim}), static_cast<float>(twice) / 2.0F);
      }
    }
    return result;
  }

  exattn_status run() { return exattn_attention(&args); }

  std::string text() const { return message.data(); }

  static std::size_t elements(std::initializer_list<std::int64_t> sizes) {
    std::size_t product = 1;
    for (const std::int64_t size : sizes) {
      product *= static_cast<std::size_t>(size);
    }
    return product;
  }

  exattn_attention_args args{};
  std::vector<float> q, k, v, mask, sinks;
  std::vector<std::int64_t> q_offsets, kv_lens;
  GuardedOutput out, lse;
  std::array<char, 256> message{};
  const char *kernel = nullptr;

private:
  static void set(exattn_tensor &tensor, const std::vector<float> &data, std::int64_t d1, std::int64_t d2,
                  std::int64_t d3) {
    tensor = {data.data(), EXATTN_F32, 4, {d1 * d2 * d3, d2 * d3, d3, 1}};
  }
};

} // namespace exattn::tests
