#include "exact/oracle.hpp"

#include <atomic>
#include <bit>
#include <cfenv>
#include <cstddef>
#include <exception>
#include <limits>
#include <system_error>
#include <thread>

#include "exact/constants.hpp"
#include "exact/safe_math.hpp"
#include "exact/soft_fma.hpp"

// Numbers in brackets are sections of docs/definition.md. The flavour is a template parameter for speed alone.
namespace exattn::oracle {
namespace {

using namespace constants;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kKeysPerBlock = 64;
constexpr std::int64_t kPartialSums = 16;

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

float from_bits(std::uint32_t u) {
  return std::bit_cast<float>(u);
}

bool is_nan(float x) {
  return (bits(x) & 0x7FFFFFFFu) > 0x7F800000u;
}

// [1] The environment that all arithmetic here needs, for as long as the object lives.
class RoundToNearest {
public:
  RoundToNearest() {
    std::fegetenv(&saved);
    std::fesetenv(FE_DFL_ENV);
  }
  ~RoundToNearest() { std::fesetenv(&saved); }
  RoundToNearest(const RoundToNearest &) = delete;
  RoundToNearest &operator=(const RoundToNearest &) = delete;

private:
  std::fenv_t saved;
};

// [1] A NaN is written out as one pattern.
float written(float x) {
  return is_nan(x) ? from_bits(0x7FC00000u) : x;
}

// [2] muladd: the product rounded, then the sum; or fused.
template <Flavour flavour>
float muladd(float a, float b, float c) {
  if constexpr (flavour == Flavour::fast) {
    return soft_fma(a, b, c);
  } else {
    const float product = a * b;
    return product + c;
  }
}

// [2] Division by l: the quotient, or the product with the reciprocal.
template <Flavour flavour>
float divide(float x, float l) {
  if constexpr (flavour == Flavour::fast) {
    const float reciprocal = 1.0F / l;
    return x * reciprocal;
  } else {
    return x / l;
  }
}

// [7] E(x), for x <= 0 or NaN.
template <Flavour flavour>
float exponential_of(float x) {
  // Step 1.
  if (is_nan(x)) {
    return x;
  }
  if (x < kExpCut) {
    return 0.0F;
  }
  // Step 2.
  const float round = from_bits(0x4B40007Fu);
  const float y = muladd<flavour>(x, kLog2E, round);
  const float n = y - round;
  // Step 3.
  float r = muladd<flavour>(-n, kLn2High, x);
  r = muladd<flavour>(-n, kLn2Low, r);
  // Step 4.
  float g = kExp6;
  g = muladd<flavour>(g, r, kExp5);
  g = muladd<flavour>(g, r, kExp4);
  g = muladd<flavour>(g, r, kExp3);
  g = muladd<flavour>(g, r, kExp2);
  // Step 5.
  const float r2 = r * r;
  const float h = muladd<flavour>(r2, g, r);
  const float f = 1.0F + h;
  // Step 6.
  return f * from_bits(bits(y) << 23);
}

// [8] L(x), for x = 0, x >= 1 or NaN.
template <Flavour flavour>
float logarithm_of(float x) {
  // Step 1.
  if (is_nan(x)) {
    return x;
  }
  if (x == 0.0F) {
    return -kInfinity;
  }
  if (x == kInfinity) {
    return kInfinity;
  }
  // Step 2.
  const std::uint32_t k = (bits(x) - bits(kSqrtHalf)) >> 23;
  const float f = from_bits(bits(x) - (k << 23));
  const float n = static_cast<float>(k);
  // Step 3.
  const float r = f - 1.0F;
  const float r2 = r * r;
  // Step 4.
  float g = kLog10;
  g = muladd<flavour>(g, r, kLog9);
  g = muladd<flavour>(g, r, kLog8);
  g = muladd<flavour>(g, r, kLog7);
  g = muladd<flavour>(g, r, kLog6);
  g = muladd<flavour>(g, r, kLog5);
  g = muladd<flavour>(g, r, kLog4);
  g = muladd<flavour>(g, r, kLog3);
  // Step 5.
  const float rg = r * g;
  float w = r2 * rg;
  // Step 6.
  w = muladd<flavour>(n, kLn2Low, w);
  w = muladd<flavour>(r2, -0.5F, w);
  const float y = r + w;
  return muladd<flavour>(n, kLn2High, y);
}

// [6.4] Sixteen partial sums and their tree.
class BlockSum {
public:
  void add(std::int64_t j, float weight) { sum[j % kPartialSums] += weight; }

  float total() const {
    float a[8];
    for (int t = 0; t < 8; ++t) {
      a[t] = sum[t] + sum[t + 8];
    }
    float b[4];
    for (int t = 0; t < 4; ++t) {
      b[t] = a[t] + a[t + 4];
    }
    float c[2];
    for (int t = 0; t < 2; ++t) {
      c[t] = b[t] + b[t + 2];
    }
    return c[0] + c[1];
  }

private:
  float sum[kPartialSums] = {};
};

// What belongs to one row (b, h, i).
struct Row {
  const AttentionCase &call;
  std::int64_t b, h;
  const float *q;         // [D]
  const float *k, *v;     // [Tk, D], [Tk, Dv] of the row's key and value head
  const float *mask;      // the entry of key 0, or null
  std::uint64_t position; // p; unsigned, so that no sum of two sizes overflows
};

// [3] The rows of the inputs that row (b, h, i) uses. [4] Its position.
Row row_of(const AttentionCase &call, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int64_t kv_head = h / (call.heads / call.kv_heads);
  const std::int64_t first_key = (b * call.kv_heads + kv_head) * call.kv_len;
  const std::int64_t *stride = call.mask_stride;
  return {call,
          b,
          h,
          call.q + ((b * call.heads + h) * call.q_len + i) * call.head_dim,
          call.k + first_key * call.head_dim,
          call.v + first_key * call.value_dim,
          call.mask == nullptr ? nullptr : call.mask + (b * stride[0] + h * stride[1] + i * stride[2]),
          static_cast<std::uint64_t>(call.q_offsets[static_cast<std::size_t>(b)]) + static_cast<std::uint64_t>(i)};
}

// [4] Whether the row sees key j.
bool sees(const Row &row, std::int64_t j) {
  const auto key = static_cast<std::uint64_t>(j);
  if (j >= row.call.kv_len || j >= row.call.kv_lens[static_cast<std::size_t>(row.b)]) {
    return false;
  }
  if (row.call.causal && key > row.position) {
    return false;
  }
  if (row.call.window > 0 && key + static_cast<std::uint64_t>(row.call.window) <= row.position) {
    return false;
  }
  return true;
}

// [5] The keys of block t that the row sees, in increasing order.
void visible_keys(const Row &row, std::int64_t t, std::vector<std::int64_t> &visible) {
  visible.clear();
  for (std::int64_t j = kKeysPerBlock * t; j < kKeysPerBlock * (t + 1); ++j) {
    if (sees(row, j)) {
      visible.push_back(j);
    }
  }
}

// [6] The state of a row.
struct State {
  float m;
  float l;
  std::vector<float> acc;
  bool saw_key;
  bool has_sink;
};

// [6], [10] The start of a row.
void start(const Row &row, State &state) {
  state.m = -kInfinity;
  state.l = 0.0F;
  state.acc.assign(static_cast<std::size_t>(row.call.value_dim), 0.0F);
  state.saw_key = false;
  state.has_sink = false;
  if (row.call.sinks != nullptr) {
    const float z = row.call.sinks[row.h];
    if (is_nan(z) || z == kInfinity) {
      state.l = std::numeric_limits<float>::quiet_NaN();
      state.has_sink = true;
    } else if (z != -kInfinity) {
      state.m = z;
      state.l = 1.0F;
      state.has_sink = true;
    }
  }
}

// [6.1] The score of key j.
template <Flavour flavour>
float score(const Row &row, std::int64_t j) {
  const float *key = row.k + j * row.call.head_dim;
  float d = 0.0F;
  for (std::int64_t x = 0; x < row.call.head_dim; ++x) {
    d = muladd<flavour>(row.q[x], key[x], d);
  }
  return muladd<flavour>(d, row.call.scale, row.mask == nullptr ? 0.0F : row.mask[j * row.call.mask_stride[3]]);
}

// [6.2], [11] The largest number that is not NaN; -inf if there is none.
float maximum(const float *s, std::size_t n) {
  float largest = -kInfinity;
  for (std::size_t j = 0; j < n; ++j) {
    if (!is_nan(s[j]) && s[j] > largest) {
      largest = s[j];
    }
  }
  return largest;
}

// [6.5] What the earlier blocks are multiplied by.
template <Flavour flavour>
float rescale_factor(float m, float shift) {
  if (m == -kInfinity) {
    return 0.0F;
  }
  if (m == shift) {
    return 1.0F;
  }
  return exponential_of<flavour>(m - shift);
}

// [6.1] to [6.6] One block, of which the row sees these keys.
template <Flavour flavour>
void block(const Row &row, const std::vector<std::int64_t> &visible, State &state) {
  const std::size_t n = visible.size();
  // 6.1
  float s[kKeysPerBlock];
  for (std::size_t a = 0; a < n; ++a) {
    s[a] = score<flavour>(row, visible[a]);
  }
  // 6.2
  const float block_maximum = maximum(s, n);
  const float new_m = block_maximum > state.m ? block_maximum : state.m;
  const float shift = new_m == -kInfinity ? 0.0F : new_m;
  // 6.3
  float p[kKeysPerBlock];
  for (std::size_t a = 0; a < n; ++a) {
    p[a] = exponential_of<flavour>(s[a] - shift);
  }
  // 6.4
  BlockSum sum;
  for (std::size_t a = 0; a < n; ++a) {
    sum.add(visible[a], p[a]);
  }
  // 6.5
  const float alpha = rescale_factor<flavour>(state.m, shift);
  state.l = muladd<flavour>(state.l, alpha, sum.total());
  for (float &acc : state.acc) {
    acc = acc * alpha;
  }
  state.m = new_m;
  // 6.6
  float *acc = state.acc.data();
  for (std::size_t a = 0; a < n; ++a) {
    const float *value = row.v + visible[a] * row.call.value_dim;
    for (std::int64_t x = 0; x < row.call.value_dim; ++x) {
      acc[x] = muladd<flavour>(p[a], value[x], acc[x]);
    }
  }
}

// [6.7] The output of a row.
template <Flavour flavour>
void output(const Row &row, const State &state, float *out) {
  const bool nothing_at_all = !state.saw_key && !state.has_sink;
  const bool zero_wanted = state.l == 0.0F && row.call.fully_masked_zero;
  for (std::size_t x = 0; x < state.acc.size(); ++x) {
    out[x] = nothing_at_all || zero_wanted ? 0.0F : written(divide<flavour>(state.acc[x], state.l));
  }
}

// [6.8] The log-sum-exp of a row.
template <Flavour flavour>
float log_sum_exp(const State &state) {
  return written(state.m + logarithm_of<flavour>(state.l));
}

// [6] A row.
template <Flavour flavour>
void compute_row(const Row &row, float *out, float *lse) {
  State state;
  start(row, state);
  std::vector<std::int64_t> visible;
  for (std::int64_t t = 0; t * kKeysPerBlock < row.call.kv_len; ++t) {
    visible_keys(row, t, visible);
    if (!visible.empty()) {
      state.saw_key = true;
      block<flavour>(row, visible, state);
    }
  }
  output<flavour>(row, state, out);
  if (lse != nullptr) {
    *lse = log_sum_exp<flavour>(state);
  }
}

// [11] A row of softmax.
template <Flavour flavour>
void compute_softmax_row(const float *x, std::int64_t n, float *y) {
  const float m = maximum(x, static_cast<std::size_t>(n));
  BlockSum sum;
  for (std::int64_t j = 0; j < n; ++j) {
    y[j] = exponential_of<flavour>(x[j] - m);
    sum.add(j, y[j]);
  }
  const float l = sum.total();
  for (std::int64_t j = 0; j < n; ++j) {
    y[j] = written(divide<flavour>(y[j], l));
  }
}

// Calls compute(n) once for every n in [0, count), on that many threads.
template <class Compute>
void for_all(std::int64_t count, int threads, const Compute &compute) {
  std::atomic<std::int64_t> next{0};
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(threads > 1 ? threads : 1));
  const auto work = [&](std::size_t worker) {
    try {
      const RoundToNearest environment;
      for (std::int64_t n = next++; n < count; n = next++) {
        compute(n);
      }
    } catch (...) {
      failures[worker] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (std::size_t worker = 1; worker < failures.size(); ++worker) {
    try {
      others.emplace_back(work, worker);
    } catch (const std::system_error &) {
      break; // no more threads to be had: those that there are share the work
    }
  }
  work(0);
  for (std::thread &other : others) {
    other.join();
  }
  for (const std::exception_ptr &failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

template <Flavour flavour>
void compute_attention(const AttentionCase &call, float *out, float *lse, int threads) {
  for_all(call.batch * call.heads * call.q_len, threads, [&](std::int64_t n) {
    const Row row = row_of(call, n / (call.heads * call.q_len), n / call.q_len % call.heads, n % call.q_len);
    compute_row<flavour>(row, out + n * call.value_dim, lse == nullptr ? nullptr : lse + n);
  });
}

// The square root rounded to nearest, by search: the largest binary32 r with r * r <= d, or the next one if d lies
// above the point halfway to it. Squares of 24 and of 25 bits are exact in binary64. d is 1 or more.
float square_root(float d) {
  std::uint32_t low = bits(1.0F); // low^2 <= d < high^2
  std::uint32_t high = bits(0x1p64F);
  const auto square = [](double r) { return r * r; };
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    (square(static_cast<double>(from_bits(middle))) <= static_cast<double>(d) ? low : high) = middle;
  }
  const double halfway = (static_cast<double>(from_bits(low)) + static_cast<double>(from_bits(high))) / 2;
  return from_bits(square(halfway) < static_cast<double>(d) ? high : low);
}

} // namespace

void attention(const AttentionCase &call, Flavour flavour, float *out, float *lse, int threads) {
  if (flavour == Flavour::fast) {
    compute_attention<Flavour::fast>(call, out, lse, threads);
  } else {
    compute_attention<Flavour::exact>(call, out, lse, threads);
  }
}

void softmax(const float *x, std::int64_t rows, std::int64_t columns, Flavour flavour, float *y) {
  const RoundToNearest environment;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (flavour == Flavour::fast) {
      compute_softmax_row<Flavour::fast>(x + row * columns, columns, y + row * columns);
    } else {
      compute_softmax_row<Flavour::exact>(x + row * columns, columns, y + row * columns);
    }
  }
}

// In the functions of one number, volatile keeps the arithmetic between the two changes of the environment.

float exponential(float x, Flavour flavour) {
  const RoundToNearest environment;
  const volatile float argument = x;
  const volatile float result =
      flavour == Flavour::fast ? exponential_of<Flavour::fast>(argument) : exponential_of<Flavour::exact>(argument);
  return result;
}

float logarithm(float x, Flavour flavour) {
  const RoundToNearest environment;
  const volatile float argument = x;
  const volatile float result =
      flavour == Flavour::fast ? logarithm_of<Flavour::fast>(argument) : logarithm_of<Flavour::exact>(argument);
  return result;
}

// [3]
float default_scale(std::int64_t head_dim) {
  const RoundToNearest environment;
  const volatile std::int64_t size = head_dim;
  const volatile float scale = 1.0F / square_root(static_cast<float>(size));
  return scale;
}

} // namespace exattn::oracle
