// The oracle: docs/definition.md in plain scalar loops. Goldens come from here and from nowhere else.
#pragma once

#include <cstdint>
#include <vector>

namespace exattn::oracle {

enum class Flavour { exact, fast };

// One call (definition, sections 3 and 4). Every tensor is contiguous but the masks, and in binary32: 16-bit elements
// are widened before (widen_bfloat16, widen_float16).
struct AttentionCase {
  std::int64_t batch, heads, kv_heads, q_len, kv_len, head_dim, value_dim;
  float scale;
  bool causal;
  std::int64_t window;                 // 0: none
  std::vector<std::int64_t> q_offsets; // [batch]
  std::vector<std::int64_t> kv_lens;   // [batch]
  bool fully_masked_zero;
  const float *q;    // [batch, heads, q_len, head_dim]
  const float *k;    // [batch, kv_heads, kv_len, head_dim]
  const float *v;    // [batch, kv_heads, kv_len, value_dim]
  const float *mask; // [batch, heads, q_len, kv_len] by its strides, or null
  std::int64_t mask_stride[4];
  const float *sinks;                      // [heads] or null
  const std::uint8_t *mask_bool = nullptr; // [batch, heads, q_len, kv_len] by its strides, or null
  std::int64_t mask_bool_stride[4] = {0, 0, 0, 0};
  const float *alibi_slopes = nullptr; // [heads] or null
  float softcap = 0.0F;                // 0: none
  // Ragged batches: [batch + 1], or empty. q, out, lse and the masks, or k and v, then have 1 in the place of batch,
  // and q_len or kv_len rows or keys in all.
  std::vector<std::int64_t> q_starts, kv_starts;
  std::int64_t kv_offset = 0; // absolute position of key 0
};

// out [batch, heads, q_len, value_dim]; lse [batch, heads, q_len] or null. All of them compute in round-to-nearest with
// gradual underflow, and leave the caller's floating-point environment as it was.
void attention(const AttentionCase &call, Flavour flavour, float *out, float *lse, int threads = 1);

// The state after all keys of the call, in the byte layout of section 14.
std::vector<std::uint8_t> attention_state(const AttentionCase &call, Flavour flavour, int threads = 1);

// y = softmax of every row of x [rows, columns].
void softmax(const float *x, std::int64_t rows, std::int64_t columns, Flavour flavour, float *y);

float exponential(float x, Flavour flavour); // E(x), for x <= 0 or NaN
float logarithm(float x, Flavour flavour);   // L(x), for x = 0, x >= 1 or NaN
float tangent(float x, Flavour flavour);     // T(x), for any x
float widen_bfloat16(std::uint16_t pattern);
float widen_float16(std::uint16_t pattern);
float default_scale(std::int64_t head_dim); // 1 / sqrt(head_dim), head_dim above 0

} // namespace exattn::oracle
