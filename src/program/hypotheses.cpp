#include "hypotheses.hpp"

#include "exact/functions.hpp"
#include "exact/oracle.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace exattn::program {
namespace {

// One lane, for the functions of exact/functions.hpp.
struct PlainLanes {
  using Float = float;
  using Integer = std::uint32_t;
  using Mask = bool;
  static float broadcast(float value) { return value; }
  static float add(float a, float b) { return a + b; }
  static float subtract(float a, float b) { return a - b; }
  static float multiply(float a, float b) { return a * b; }
  static float divide(float a, float b) { return a / b; }
  static float fma(float a, float b, float c) { return std::fma(a, b, c); }
  static bool less(float a, float b) { return a < b; }
  static bool equal(float a, float b) { return a == b; }
  static bool both(bool a, bool b) { return a && b; }
  static bool either(bool a, bool b) { return a || b; }
  static bool negate(bool a) { return !a; }
  static float select(bool condition, float yes, float no) { return condition ? yes : no; }
  static std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
  static float from_bits(std::uint32_t value) { return std::bit_cast<float>(value); }
  static std::uint32_t integer(std::uint32_t value) { return value; }
  static std::uint32_t add_integer(std::uint32_t a, std::uint32_t b) { return a + b; }
  static std::uint32_t subtract_integer(std::uint32_t a, std::uint32_t b) { return a - b; }
  template <int count>
  static std::uint32_t shift_left(std::uint32_t a) {
    return a << count;
  }
  template <int count>
  static std::uint32_t shift_right(std::uint32_t a) {
    return a >> count;
  }
};
using ExactFunctions = Exact<PlainLanes>;
using FastFunctions = Fast<PlainLanes>;

// Which multiply-adds are fused, and whether subnormal numbers are kept.
struct Arithmetic {
  const char *how;
  bool scores, values, functions;
  bool flush;
};

constexpr std::array<Arithmetic, 11> kArithmetics = {
    {{"the exact flavour", false, false, false, false},
     {"the fast flavour", true, true, true, false},
     {"the exact flavour, subnormal numbers flushed to zero", false, false, false, true},
     {"the fast flavour, subnormal numbers flushed to zero", true, true, true, true},
     {"the exact flavour, but products of queries and keys contracted", true, false, false, false},
     {"the exact flavour, but products of weights and values contracted", false, true, false, false},
     {"the exact flavour, but exponential and logarithm contracted", false, false, true, false},
     {"the exact flavour, but both products contracted to fused multiply-adds", true, true, false, false},
     {"the fast flavour, but products of weights and values not fused", true, false, true, false},
     {"the fast flavour, but products of queries and keys not fused", false, true, true, false},
     {"the exact flavour, both products contracted and subnormal numbers flushed to zero", true, true, false, true}}};

// Subnormal operands and results are zero, on this thread, where the processor has such a mode.
class Flush {
public:
  explicit Flush(bool wanted) : on(wanted) {
#if defined(__x86_64__)
    saved = _mm_getcsr();
    _mm_setcsr(wanted ? saved | 0x8040U : saved);
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"(wanted ? saved | std::uint64_t{1} << 24 : saved) : "memory");
#endif
  }
  ~Flush() {
#if defined(__x86_64__)
    _mm_setcsr(saved);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(saved) : "memory");
#endif
  }
  Flush(const Flush &) = delete;
  Flush &operator=(const Flush &) = delete;

private:
  [[maybe_unused]] bool on;
#if defined(__x86_64__)
  unsigned saved = 0;
#elif defined(__aarch64__)
  std::uint64_t saved = 0;
#endif
};

float number_at(const exattn_tensor &tensor, std::int64_t at) {
  if (tensor.dtype == EXATTN_F32) {
    return static_cast<const float *>(tensor.data)[at];
  }
  const std::uint16_t pattern = static_cast<const std::uint16_t *>(tensor.data)[at];
  return tensor.dtype == EXATTN_BF16 ? oracle::widen_bfloat16(pattern) : oracle::widen_float16(pattern);
}

// The definition's steps for one row of a call, section by section, in the arithmetic that is asked for.
class RowComputer {
public:
  RowComputer(const exattn_attention_args &arguments, std::int64_t sequence, std::int64_t head, const Arithmetic &way)
      : args(arguments), arithmetic(way), b(sequence), h(head) {
    const std::int64_t group = args.heads / args.kv_heads;
    kv_head = h / group;
    keys = args.kv_starts != nullptr ? args.kv_starts[b + 1] - args.kv_starts[b] : args.kv_len;
    if (args.kv_lens != nullptr) {
      keys = args.kv_lens[b];
    }
    scale = args.scale_mode == EXATTN_SCALE_GIVEN ? args.scale : exattn_default_scale(args.head_dim);
  }

  void compute(std::int64_t i, float *out, float *lse) {
    start(i);
    for (std::int64_t block = 0; block < keys; block += kBlock) {
      add_block(block);
    }
    finish(out, lse);
  }

private:
  static constexpr std::int64_t kBlock = 64;
  static constexpr std::size_t kPartialSums = 16;

  static float muladd(bool fused, float x, float y, float z) { return fused ? std::fma(x, y, z) : x * y + z; }

  float exponential_of(float x) const {
    return arithmetic.functions ? exponential<PlainLanes, FastFunctions>(x)
                                : exponential<PlainLanes, ExactFunctions>(x);
  }

  void start(std::int64_t i) {
    row = (args.q_starts != nullptr ? args.q_starts[b] : 0) + i;
    q_batch = args.q_starts != nullptr ? 0 : b;
    position = (args.q_offsets != nullptr ? args.q_offsets[b] : args.q_offset) + i;
    m = -kInfinity;
    l = 0.0F;
    acc.assign(static_cast<std::size_t>(args.value_dim), 0.0F);
    saw_key = has_sink = false;
    if (args.sinks != nullptr && !(args.sinks[h] == -kInfinity)) {
      const float sink = args.sinks[h];
      has_sink = true;
      const bool finite = sink < kInfinity;
      m = finite ? sink : -kInfinity;
      l = finite ? 1.0F : std::bit_cast<float>(kCanonicalNan);
    }
  }

  std::int64_t row_place(const exattn_tensor &tensor) const {
    return q_batch * tensor.stride[0] + h * tensor.stride[1] + row * tensor.stride[2];
  }

  std::int64_t key_place(const exattn_tensor &tensor, std::int64_t n) const {
    const std::int64_t head = kv_head * tensor.stride[1];
    if (args.page_table != nullptr) {
      const std::int64_t page = args.page_table[b * args.page_table_stride + n / args.page_size];
      return page * tensor.stride[0] + head + n % args.page_size * tensor.stride[2];
    }
    return args.kv_starts != nullptr ? head + (args.kv_starts[b] + n) * tensor.stride[2]
                                     : b * tensor.stride[0] + head + n * tensor.stride[2];
  }

  bool sees(std::int64_t n) const { // section 4
    if ((args.causal != 0 && n > position) || (args.window > 0 && n + args.window <= position)) {
      return false;
    }
    return args.mask_bool.data == nullptr ||
           static_cast<const std::uint8_t *>(
               args.mask_bool.data)[row_place(args.mask_bool) + n * args.mask_bool.stride[3]] != 0;
  }

  float score(std::int64_t n) const { // 6.1
    float dot = 0.0F;
    const std::int64_t q = row_place(args.q), k = key_place(args.k, n);
    for (std::int64_t x = 0; x < args.head_dim; ++x) {
      dot = muladd(arithmetic.scores, number_at(args.q, q + x * args.q.stride[3]),
                   number_at(args.k, k + x * args.k.stride[3]), dot);
    }
    float bias =
        args.mask.data == nullptr ? 0.0F : number_at(args.mask, row_place(args.mask) + n * args.mask.stride[3]);
    if (args.alibi_slopes != nullptr) {
      bias = muladd(arithmetic.scores, -args.alibi_slopes[h], static_cast<float>(std::llabs(position - n)), bias);
    }
    if (args.softcap == 0.0F) {
      return muladd(arithmetic.scores, dot, scale, bias);
    }
    const float t = dot * scale / args.softcap;
    return muladd(arithmetic.scores, args.softcap,
                  arithmetic.functions ? tangent<PlainLanes, FastFunctions>(t) : tangent<PlainLanes, ExactFunctions>(t),
                  bias);
  }

  void add_block(std::int64_t first) {
    std::vector<std::int64_t> seen;
    std::vector<float> p;
    float largest = -kInfinity;
    for (std::int64_t n = first; n < std::min(keys, first + kBlock); ++n) {
      if (sees(n)) {
        seen.push_back(n);
        p.push_back(score(n));
        largest = p.back() > largest ? p.back() : largest;
      }
    }
    if (seen.empty()) {
      return;
    }
    saw_key = true;
    const float raised = largest > m ? largest : m; // 6.2
    const float shift = raised == -kInfinity ? 0.0F : raised;
    std::array<float, kPartialSums> sum{};
    for (std::size_t n = 0; n < seen.size(); ++n) { // 6.3, 6.4
      p[n] = exponential_of(p[n] - shift);
      sum[static_cast<std::size_t>(seen[n]) % kPartialSums] += p[n];
    }
    for (std::size_t half = kPartialSums / 2; half > 0; half /= 2) {
      for (std::size_t t = 0; t < half; ++t) {
        sum[t] = sum[t] + sum[t + half];
      }
    }
    const float alpha = m == -kInfinity ? 0.0F : m == shift ? 1.0F : exponential_of(m - shift); // 6.5
    l = muladd(arithmetic.functions, l, alpha, sum[0]);
    m = raised;
    for (float &a : acc) {
      a = a * alpha;
    }
    for (std::size_t n = 0; n < seen.size(); ++n) { // 6.6
      const std::int64_t v = key_place(args.v, seen[n]);
      for (std::size_t x = 0; x < acc.size(); ++x) {
        acc[x] = muladd(arithmetic.values, p[n], number_at(args.v, v + static_cast<std::int64_t>(x) * args.v.stride[3]),
                        acc[x]);
      }
    }
  }

  static float written(float x) { return std::isnan(x) ? std::bit_cast<float>(kCanonicalNan) : x; }

  void finish(float *out, float *lse) const { // 6.7, 6.8
    const bool zero = (!saw_key && !has_sink) || (l == 0.0F && args.fully_masked == EXATTN_FULLY_MASKED_ZERO);
    for (std::size_t x = 0; x < acc.size(); ++x) {
      const float quotient = arithmetic.functions ? acc[x] * (1.0F / l) : acc[x] / l;
      out[x] = zero ? 0.0F : written(quotient);
    }
    const float logarithm_of_l =
        arithmetic.functions ? logarithm<PlainLanes, FastFunctions>(l) : logarithm<PlainLanes, ExactFunctions>(l);
    *lse = written(m + logarithm_of_l);
  }

  const exattn_attention_args &args;
  const Arithmetic &arithmetic;
  std::int64_t b, h, kv_head = 0, keys = 0;
  float scale = 0;
  std::int64_t row = 0, q_batch = 0, position = 0;
  float m = 0, l = 0;
  std::vector<float> acc;
  bool saw_key = false, has_sink = false;
};

[[gnu::noinline]] AuditLeaf leaf_by(const AttentionCall &call, const AuditItem &item, const Arithmetic &arithmetic) {
  ItemOutputs outputs;
  const auto width = static_cast<std::size_t>(call.args.value_dim);
  outputs.out.resize(static_cast<std::size_t>(item.rows) * width);
  outputs.lse.resize(static_cast<std::size_t>(item.rows));
  {
    const Flush flush(arithmetic.flush);
    RowComputer computer(call.args, item.b, item.h, arithmetic);
    for (std::size_t r = 0; r < outputs.lse.size(); ++r) {
      computer.compute(item.row + static_cast<std::int64_t>(r), outputs.out.data() + r * width, &outputs.lse[r]);
    }
  }
  return leaf_of(outputs);
}

} // namespace

std::vector<Explanation> explanations_of(const AttentionCall &call, const AuditItem &item, const AuditLeaf &a,
                                         const AuditLeaf &b) {
  std::array<const char *, 2> found = {nullptr, nullptr};
  for (const Arithmetic &arithmetic : kArithmetics) {
    const AuditLeaf leaf = leaf_by(call, item, arithmetic);
    for (std::size_t side = 0; side < 2; ++side) {
      if (found[side] == nullptr && leaf == (side == 0 ? a : b)) {
        found[side] = arithmetic.how;
      }
    }
  }
  std::vector<Explanation> explanations;
  for (std::size_t side = 0; side < 2; ++side) {
    if (found[side] != nullptr) {
      explanations.push_back(
          {side == 0, found[side], std::string(side == 0 ? "a" : "b") + " has the bits of " + found[side]});
    }
  }
  return explanations;
}

std::string hypotheses_text() {
  std::string text;
  for (const Arithmetic &arithmetic : kArithmetics) {
    text += (text.empty() ? "" : "; ") + std::string(arithmetic.how);
  }
  return text;
}

} // namespace exattn::program
