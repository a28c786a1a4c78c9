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

// [7] E(x), for x <= 0 or NaN; [13] for x up to 20.
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

// [13] T(x), for every x.
template <Flavour flavour>
float tangent_of(float x) {
  // Step 1.
  if (is_nan(x)) {
    return x;
  }
  const std::uint32_t sign = bits(x) & 0x80000000u;
  const float a = from_bits(bits(x) & 0x7FFFFFFFu);
  float t = 1.0F; // Step 4.
  if (a < kTanhSmall) {
    // Step 2.
    const float a2 = a * a;
    float g = kTanh13;
    g = muladd<flavour>(g, a2, kTanh11);
    g = muladd<flavour>(g, a2, kTanh9);
    g = muladd<flavour>(g, a2, kTanh7);
    g = muladd<flavour>(g, a2, kTanh5);
    g = muladd<flavour>(g, a2, kTanh3);
    const float h = a2 * g;
    t = muladd<flavour>(a, h, a);
  } else if (a <= kTanhOne) {
    // Step 3.
    const float w = exponential_of<flavour>(a + a);
    const float u = 1.0F + w;
    const float q = 2.0F / u;
    t = 1.0F - q;
  }
  // Step 5.
  return from_bits(bits(t) | sign);
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
  std::int64_t place;            // among the rows of q, out and lse
  std::int64_t keys;             // Tk, or the sequence's own number of keys
  const float *q;                // [D]
  const float *k, *v;            // [keys, D], [keys, Dv] of the row's key and value head
  const float *mask;             // the entry of key 0, or null
  const std::uint8_t *mask_bool; // the entry of key 0, or null
  std::uint64_t position;        // p; unsigned, so that no sum of two sizes overflows
};

// [3] How many rows or keys sequence b has, if that is not the same for all.
std::int64_t ragged_length(const std::vector<std::int64_t> &starts, std::int64_t b) {
  return starts[static_cast<std::size_t>(b) + 1] - starts[static_cast<std::size_t>(b)];
}

// [3] How many rows sequence b has.
std::int64_t rows_of(const AttentionCase &call, std::int64_t b) {
  return call.q_starts.empty() ? call.q_len : ragged_length(call.q_starts, b);
}

// [3], [4] How many keys of sequence b are there.
std::int64_t keys_of(const AttentionCase &call, std::int64_t b) {
  const std::int64_t keys = call.kv_starts.empty() ? call.kv_len : ragged_length(call.kv_starts, b);
  const std::int64_t given = call.kv_lens[static_cast<std::size_t>(b)];
  return given < keys ? given : keys;
}

// [3] The rows of the inputs that row (b, h, i) uses. [4] Its position.
Row row_of(const AttentionCase &call, std::int64_t b, std::int64_t h, std::int64_t i) {
  const auto sequence = static_cast<std::size_t>(b);
  const bool ragged_q = !call.q_starts.empty();
  const std::int64_t q_batch = ragged_q ? 0 : b;
  const std::int64_t q_row = ragged_q ? call.q_starts[sequence] + i : i;
  const std::int64_t place = (q_batch * call.heads + h) * call.q_len + q_row;

  const bool ragged_kv = !call.kv_starts.empty();
  const std::int64_t kv_batch = ragged_kv ? 0 : b;
  const std::int64_t kv_head = h / (call.heads / call.kv_heads);
  const std::int64_t first_key =
      (kv_batch * call.kv_heads + kv_head) * call.kv_len + (ragged_kv ? call.kv_starts[sequence] : 0);

  const auto mask_row = [&](const std::int64_t *stride) {
    return q_batch * stride[0] + h * stride[1] + q_row * stride[2];
  };
  return {call,
          b,
          h,
          place,
          keys_of(call, b),
          call.q + place * call.head_dim,
          call.k + first_key * call.head_dim,
          call.v + first_key * call.value_dim,
          call.mask == nullptr ? nullptr : call.mask + mask_row(call.mask_stride),
          call.mask_bool == nullptr ? nullptr : call.mask_bool + mask_row(call.mask_bool_stride),
          static_cast<std::uint64_t>(call.q_offsets[sequence]) + static_cast<std::uint64_t>(i)};
}

// [4] The absolute position j of key n of the call.
std::uint64_t key_position(const Row &row, std::int64_t n) {
  return static_cast<std::uint64_t>(row.call.kv_offset) + static_cast<std::uint64_t>(n);
}

// [4] Whether the row sees key n of the call.
bool sees(const Row &row, std::int64_t n) {
  if (n >= row.keys) {
    return false;
  }
  const std::uint64_t j = key_position(row, n);
  if (row.call.causal && j > row.position) {
    return false;
  }
  if (row.call.window > 0 && j + static_cast<std::uint64_t>(row.call.window) <= row.position) {
    return false;
  }
  return row.mask_bool == nullptr || row.mask_bool[n * row.call.mask_bool_stride[3]] != 0;
}

// [5] The keys of the call's block t that the row sees, in increasing order. The call starts at the edge of a block, so
// that n has j's place in its block.
void visible_keys(const Row &row, std::int64_t t, std::vector<std::int64_t> &visible) {
  visible.clear();
  for (std::int64_t n = kKeysPerBlock * t; n < kKeysPerBlock * (t + 1); ++n) {
    if (sees(row, n)) {
      visible.push_back(n);
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

// [6.1] The bias of key n: its mask entry, and the distance times the slope.
template <Flavour flavour>
float bias(const Row &row, std::int64_t n) {
  const float masked = row.mask == nullptr ? 0.0F : row.mask[n * row.call.mask_stride[3]];
  if (row.call.alibi_slopes == nullptr) {
    return masked;
  }
  const std::uint64_t j = key_position(row, n);
  const std::uint64_t distance = row.position > j ? row.position - j : j - row.position;
  return muladd<flavour>(-row.call.alibi_slopes[row.h], static_cast<float>(distance), masked);
}

// [6.1] The score of key n.
template <Flavour flavour>
float score(const Row &row, std::int64_t n) {
  const float *key = row.k + n * row.call.head_dim;
  float d = 0.0F;
  for (std::int64_t x = 0; x < row.call.head_dim; ++x) {
    d = muladd<flavour>(row.q[x], key[x], d);
  }
  const float c = row.call.softcap;
  if (c == 0.0F) {
    return muladd<flavour>(d, row.call.scale, bias<flavour>(row, n));
  }
  const float t = d * row.call.scale;
  return muladd<flavour>(c, tangent_of<flavour>(t / c), bias<flavour>(row, n));
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

// [6] A row, up to its last block.
template <Flavour flavour>
State all_blocks(const Row &row) {
  State state;
  start(row, state);
  std::vector<std::int64_t> visible;
  for (std::int64_t t = 0; t * kKeysPerBlock < row.keys; ++t) {
    visible_keys(row, t, visible);
    if (!visible.empty()) {
      state.saw_key = true;
      block<flavour>(row, visible, state);
    }
  }
  return state;
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

// Calls compute(row) for every row of every sequence, on that many threads.
template <class Compute>
void for_all_rows(const AttentionCase &call, int threads, const Compute &compute) {
  struct Index {
    std::int64_t b, h, i;
  };
  std::vector<Index> rows;
  for (std::int64_t b = 0; b < call.batch; ++b) {
    for (std::int64_t h = 0; h < call.heads; ++h) {
      for (std::int64_t i = 0; i < rows_of(call, b); ++i) {
        rows.push_back({b, h, i});
      }
    }
  }
  for_all(static_cast<std::int64_t>(rows.size()), threads, [&](std::int64_t n) {
    const Index &row = rows[static_cast<std::size_t>(n)];
    compute(row_of(call, row.b, row.h, row.i));
  });
}

template <Flavour flavour>
void compute_attention(const AttentionCase &call, float *out, float *lse, int threads) {
  for_all_rows(call, threads, [&](const Row &row) {
    const State state = all_blocks<flavour>(row);
    output<flavour>(row, state, out + row.place * call.value_dim);
    if (lse != nullptr) {
      lse[row.place] = log_sum_exp<flavour>(state);
    }
  });
}

// [14] A number, least significant byte first.
void put(std::uint8_t *to, std::uint64_t number, std::size_t bytes) {
  for (std::size_t n = 0; n < bytes; ++n) {
    to[n] = static_cast<std::uint8_t>(number >> (8 * n));
  }
}

// [14] The position of the next key: after the last key of the longest sequence, rounded up to a whole block.
std::int64_t next_key(const AttentionCase &call) {
  std::int64_t keys = call.kv_starts.empty() ? call.kv_len : 0;
  for (std::int64_t b = 0; b < call.batch && !call.kv_starts.empty(); ++b) {
    const std::int64_t own = ragged_length(call.kv_starts, b);
    keys = own > keys ? own : keys;
  }
  return call.kv_offset + (keys + kKeysPerBlock - 1) / kKeysPerBlock * kKeysPerBlock;
}

constexpr std::size_t kStateHeader = 64;

// [14] The part of a state before its rows.
void put_header(const AttentionCase &call, Flavour flavour, std::uint8_t *to) {
  const char *name = "exattn-1";
  for (std::size_t n = 0; n < 8; ++n) {
    to[n] = static_cast<std::uint8_t>(name[n]);
  }
  put(to + 8, flavour == Flavour::fast ? 1 : 0, 4);
  put(to + 12, 0, 4);
  const std::int64_t numbers[] = {call.batch,     call.heads,     call.q_len,
                                  call.value_dim, next_key(call), call.q_starts.empty() ? 0 : 1};
  for (std::size_t n = 0; n < 6; ++n) {
    put(to + 16 + 8 * n, static_cast<std::uint64_t>(numbers[n]), 8);
  }
  for (std::int64_t b = 0; b < call.batch; ++b) {
    put(to + kStateHeader + 8 * static_cast<std::size_t>(b),
        static_cast<std::uint64_t>(call.kv_offset + keys_of(call, b)), 8);
  }
}

// [14] A row of a state.
void put_row(const State &state, std::uint8_t *to) {
  put(to, state.m == 0.0F ? 0 : bits(written(state.m)), 4);
  put(to + 4, bits(written(state.l)), 4);
  put(to + 8, (state.saw_key ? 1u : 0u) + (state.has_sink ? 2u : 0u), 4);
  for (std::size_t x = 0; x < state.acc.size(); ++x) {
    put(to + 12 + 4 * x, bits(written(state.acc[x])), 4);
  }
}

template <Flavour flavour>
std::vector<std::uint8_t> compute_state(const AttentionCase &call, int threads) {
  const std::int64_t rows = (call.q_starts.empty() ? call.batch : 1) * call.heads * call.q_len;
  const std::size_t first_row = kStateHeader + 8 * static_cast<std::size_t>(call.batch);
  const std::size_t row_bytes = 4 * (3 + static_cast<std::size_t>(call.value_dim));
  std::vector<std::uint8_t> bytes(first_row + row_bytes * static_cast<std::size_t>(rows), 0);
  put_header(call, flavour, bytes.data());
  for_all_rows(call, threads, [&](const Row &row) {
    put_row(all_blocks<flavour>(row), bytes.data() + first_row + row_bytes * static_cast<std::size_t>(row.place));
  });
  return bytes;
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

std::vector<std::uint8_t> attention_state(const AttentionCase &call, Flavour flavour, int threads) {
  return flavour == Flavour::fast ? compute_state<Flavour::fast>(call, threads)
                                  : compute_state<Flavour::exact>(call, threads);
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

float tangent(float x, Flavour flavour) {
  const RoundToNearest environment;
  const volatile float argument = x;
  const volatile float result =
      flavour == Flavour::fast ? tangent_of<Flavour::fast>(argument) : tangent_of<Flavour::exact>(argument);
  return result;
}

// [3] The pattern is the upper half of the number's.
float widen_bfloat16(std::uint16_t pattern) {
  return from_bits(std::uint32_t{pattern} << 16);
}

// [3] Sign, 5 bits of exponent, 10 bits of fraction.
float widen_float16(std::uint16_t pattern) {
  const std::uint32_t sign = (pattern & 0x8000u) << 16;
  const std::uint32_t exponent = pattern >> 10 & 0x1Fu;
  const std::uint32_t fraction = pattern & 0x3FFu;
  if (exponent == 0x1F) { // NaN or infinity
    return from_bits(sign | 0x7F800000u | fraction << 13);
  }
  if (exponent == 0) { // zero, or subnormal: fraction * 2^-24, which is exact
    return from_bits(sign | bits(static_cast<float>(fraction) * 0x1p-24F));
  }
  return from_bits(sign | (exponent - 15 + 127) << 23 | fraction << 13);
}

// [3]
float default_scale(std::int64_t head_dim) {
  const RoundToNearest environment;
  const volatile std::int64_t size = head_dim;
  const volatile float scale = 1.0F / square_root(static_cast<float>(size));
  return scale;
}

} // namespace exattn::oracle
