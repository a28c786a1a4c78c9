// Every lane kind and flavour against the oracle, bit for bit, over random shapes, options, layouts and values.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "exact/oracle.hpp"
#include "exattn/exattn.h"

namespace {

using Shape = std::array<std::int64_t, 4>;
using exattn::oracle::AttentionCase;
using exattn::oracle::Flavour;

std::int64_t count(const Shape &shape) {
  return shape[0] * shape[1] * shape[2] * shape[3];
}

class Random {
public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <class T, std::size_t n>
  T pick(const T (&from)[n]) {
    return from[between(0, static_cast<std::int64_t>(n) - 1)];
  }
  // A multiple of 2^-16 within +-4: no library's normal distribution, so the same numbers everywhere.
  float number() {
    std::int64_t sum = 0;
    for (int i = 0; i < 4; ++i)
      sum += between(-65536, 65536);
    return static_cast<float>(sum) * 0x1p-16F;
  }
  float special() {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr float specials[] = {0.0F,      -0.0F,      infinity,  -infinity, std::numeric_limits<float>::quiet_NaN(),
                                  0x1p-149F, -0x1p-140F, 0x1p-126F, 1e30F,     -1e30F,
                                  3e38F,     -3e38F};
    return pick(specials);
  }

private:
  std::mt19937_64 engine_;
};

std::vector<float> numbers(Random &random, std::int64_t n, std::int64_t special_one_in) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float &value : values)
    value = special_one_in > 0 && random.one_in(special_one_in) ? random.special() : random.number();
  return values;
}

// A tensor laid out at random: dimensions in any order, gaps, backward strides, any alignment of 4. Gaps hold NaN.
struct Layout {
  std::vector<float> memory;
  std::int64_t origin = 0;
  std::array<std::int64_t, 4> stride{};

  Layout(Random &random, const Shape &shape) {
    std::array<int, 4> order{0, 1, 2, 3};
    if (random.one_in(2))
      for (int i = 3; i > 0; --i)
        std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.between(0, i))]);
    std::int64_t step = random.one_in(4) ? random.between(2, 3) : 1;
    for (int i = 3; i >= 0; --i) {
      const auto dimension = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      stride[dimension] = step;
      step = step * std::max<std::int64_t>(1, shape[dimension]) + (random.one_in(3) ? random.between(1, 5) : 0);
      if (random.one_in(6)) {
        origin += stride[dimension] * std::max<std::int64_t>(0, shape[dimension] - 1);
        stride[dimension] = -stride[dimension];
      }
    }
    origin += random.between(0, 3);
    memory.assign(static_cast<std::size_t>(step + origin + 4), std::numeric_limits<float>::quiet_NaN());
  }

  template <class Visit>
  static void each(const Shape &shape, Visit visit) {
    std::size_t n = 0;
    for (std::int64_t a = 0; a < shape[0]; ++a)
      for (std::int64_t b = 0; b < shape[1]; ++b)
        for (std::int64_t c = 0; c < shape[2]; ++c)
          for (std::int64_t d = 0; d < shape[3]; ++d)
            visit(n++, a, b, c, d);
  }
  float &at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return memory[static_cast<std::size_t>(origin + a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3])];
  }
  void fill(const Shape &shape, const std::vector<float> &values) {
    each(shape, [&](std::size_t n, auto... i) { at(i...) = values[n]; });
  }
  std::vector<float> read(const Shape &shape) {
    std::vector<float> values(static_cast<std::size_t>(count(shape)));
    each(shape, [&](std::size_t n, auto... i) { values[n] = at(i...); });
    return values;
  }
  exattn_tensor input() const {
    return {memory.data() + origin, EXATTN_F32, 4, {stride[0], stride[1], stride[2], stride[3]}};
  }
  exattn_output output() { return {memory.data() + origin, 0, 4, {stride[0], stride[1], stride[2], stride[3]}}; }
};

std::string first_difference(const std::vector<float> &got, const std::vector<float> &expected) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
      char text[120];
      std::snprintf(text, sizeof text, "element %zu of %zu: %08x (%g), oracle %08x (%g)", i, expected.size(),
                    std::bit_cast<std::uint32_t>(got[i]), static_cast<double>(got[i]),
                    std::bit_cast<std::uint32_t>(expected[i]), static_cast<double>(expected[i]));
      return text;
    }
  return "";
}

template <class Visit>
void each_kernel(Visit visit) {
  for (std::int32_t lanes = 1; lanes < EXATTN_LANES_COUNT; ++lanes)
    for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
      exattn_lanes_info info{};
      info.struct_size = sizeof info;
      REQUIRE(exattn_lanes_query(lanes, &info) == EXATTN_OK);
      if (flavour == EXATTN_EXACT ? info.exact : info.fast)
        visit(lanes, flavour);
    }
}

Flavour oracle_flavour(std::int32_t flavour) {
  return flavour == EXATTN_FAST ? Flavour::fast : Flavour::exact;
}

// Elements of 16 bits are the upper half of binary32 or a half-precision number: patterns with the oracle's values.
struct Stored {
  std::int32_t dtype = EXATTN_F32;
  std::vector<float> values; // widened by the oracle
  std::vector<std::uint16_t> patterns;

  Stored(Random &random, std::int64_t n, std::int64_t special_one_in) {
    constexpr std::int32_t dtypes[] = {EXATTN_F32, EXATTN_F32, EXATTN_BF16, EXATTN_F16};
    dtype = random.pick(dtypes);
    values = numbers(random, n, special_one_in);
    if (dtype == EXATTN_F32)
      return;
    for (float &value : values) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
      std::uint32_t pattern = bits >> 16;
      if (dtype == EXATTN_F16) {
        // Any sign and fraction, exponents of 2^-3 to 2^1; now and then any pattern at all.
        pattern = (bits >> 16 & 0x8000U) | (static_cast<std::uint32_t>(random.between(12, 16)) << 10) | (bits & 0x3FFU);
        if (special_one_in > 0 && random.one_in(special_one_in))
          pattern = static_cast<std::uint32_t>(random.between(0, 0xFFFF));
      }
      patterns.push_back(static_cast<std::uint16_t>(pattern));
      value = dtype == EXATTN_F16 ? exattn::oracle::widen_float16(patterns.back())
                                  : exattn::oracle::widen_bfloat16(patterns.back());
    }
  }
};

// Strides of what lies contiguous; 0 along a size of 1, to broadcast.
std::array<std::int64_t, 4> contiguous(const Shape &shape) {
  std::array<std::int64_t, 4> stride{};
  std::int64_t step = 1;
  for (std::size_t d = 4; d-- > 0; step *= std::max<std::int64_t>(1, shape[d]))
    stride[d] = shape[d] == 1 ? 0 : step;
  return stride;
}

// Two tensors in one: laid out at random as binary32, or in 16 bits with the same strides.
struct StoredLayout {
  Layout layout;
  std::vector<std::uint16_t> memory;
  std::int32_t dtype;

  StoredLayout(Random &random, const Shape &shape, const Stored &stored) : layout(random, shape), dtype(stored.dtype) {
    if (dtype == EXATTN_F32) {
      layout.fill(shape, stored.values);
      return;
    }
    memory.assign(layout.memory.size(), 0xFFFF); // NaN in both formats
    Layout::each(shape, [&](std::size_t n, auto... i) {
      const float *const at = &layout.at(i...);
      memory[static_cast<std::size_t>(at - layout.memory.data())] = stored.patterns[n];
    });
  }
  exattn_tensor input() const {
    exattn_tensor tensor = layout.input();
    tensor.dtype = dtype;
    if (dtype != EXATTN_F32)
      tensor.data = memory.data() + layout.origin;
    return tensor;
  }
};

// Starts of sequences that lie one after the other, and where the last one ends.
std::vector<std::int64_t> starts_of(const std::vector<std::int64_t> &sizes, std::int64_t first) {
  std::vector<std::int64_t> starts{first};
  for (const std::int64_t size : sizes)
    starts.push_back(starts.back() + size);
  return starts;
}

void check_attention(std::uint64_t seed, exattn_pool *pool) {
  Random random(seed);
  constexpr std::int64_t lengths[] = {0,  1,  2,  3,  4,  5,  7,  8,   9,   15,  16,  17, 31,
                                      32, 33, 48, 63, 64, 65, 80, 100, 127, 128, 129, 200};
  constexpr std::int64_t dims[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 20, 31, 32, 33, 40, 64, 80, 130};
  constexpr float infinity = std::numeric_limits<float>::infinity();

  AttentionCase c{};
  c.batch = random.between(1, 3);
  c.kv_heads = random.between(1, 2);
  c.heads = c.kv_heads * random.between(1, 3);
  c.q_len = random.one_in(20) ? 150 : random.pick(lengths) % 70;
  c.kv_len = random.pick(lengths);
  c.head_dim = random.pick(dims);
  c.value_dim = random.one_in(2) ? c.head_dim : random.pick(dims);
  c.causal = random.one_in(2);
  c.window = random.one_in(3) ? random.between(1, 90) : 0;
  c.fully_masked_zero = random.one_in(2);
  const bool given = random.one_in(2);
  c.scale = given ? random.number() : exattn_default_scale(c.head_dim);
  if (random.one_in(4)) {
    constexpr float softcaps[] = {0.5F, 1.0F, 2.5F, 30.0F, 50.0F, 1e30F, 0x1p-149F};
    c.softcap = random.pick(softcaps);
  }

  // Keys of each sequence: all alike in padded and paged batches.
  const bool ragged_queries = random.one_in(4);
  const bool ragged_keys = random.one_in(4);
  const bool paged = !ragged_keys && random.one_in(4);
  std::int64_t columns = c.kv_len;
  std::vector<std::int64_t> keys(static_cast<std::size_t>(c.batch), c.kv_len);
  if (ragged_queries) {
    std::vector<std::int64_t> rows;
    for (std::int64_t b = 0; b < c.batch; ++b)
      rows.push_back(random.one_in(4) ? random.between(0, 1) : random.between(0, c.q_len));
    c.q_starts = starts_of(rows, random.one_in(3) ? random.between(1, 3) : 0);
    c.q_len = c.q_starts.back() + (random.one_in(3) ? random.between(1, 3) : 0);
  }
  if (ragged_keys) {
    for (std::int64_t &number : keys)
      number = random.one_in(4) ? random.between(0, 1) : random.between(0, c.kv_len);
    columns = *std::max_element(keys.begin(), keys.end());
    c.kv_starts = starts_of(keys, random.one_in(3) ? random.between(1, 3) : 0);
    c.kv_len = c.kv_starts.back() + (random.one_in(3) ? random.between(1, 3) : 0);
  }
  for (std::int64_t b = 0; b < c.batch; ++b) {
    c.q_offsets.push_back(random.one_in(2) ? random.between(0, 150) : 0);
    const std::int64_t own = keys[static_cast<std::size_t>(b)];
    c.kv_lens.push_back(random.one_in(2) ? random.between(0, own) : own);
  }
  if (random.one_in(12)) // distances that are rounded
    c.q_offsets[0] = (std::int64_t{1} << random.between(24, 50)) + random.between(0, 200);
  const std::int64_t specials = random.one_in(3) ? random.between(20, 3000) : 0;
  const std::int64_t q_batch = ragged_queries ? 1 : c.batch, kv_batch = ragged_keys ? 1 : c.batch;
  const Shape q_shape{q_batch, c.heads, c.q_len, c.head_dim}, k_shape{kv_batch, c.kv_heads, c.kv_len, c.head_dim};
  const Shape v_shape{kv_batch, c.kv_heads, c.kv_len, c.value_dim}, out_shape{q_batch, c.heads, c.q_len, c.value_dim};
  const Shape lse_shape{q_batch, c.heads, c.q_len, 1};
  const Stored q(random, count(q_shape), specials), k(random, count(k_shape), specials);
  const Stored v(random, count(v_shape), specials);
  c.q = q.values.data();
  c.k = k.values.data();
  c.v = v.values.data();

  Shape mask_shape{q_batch, c.heads, c.q_len, columns}, bool_shape = mask_shape;
  const auto broadcast = [&](Shape &shape) {
    for (std::int64_t &size : shape)
      size = random.one_in(3) ? std::min<std::int64_t>(size, 1) : size;
  };
  std::vector<float> mask, sinks, slopes;
  std::vector<std::uint8_t> bytes;
  const bool masked = random.one_in(3);
  if (masked) {
    broadcast(mask_shape);
    mask = numbers(random, count(mask_shape), specials);
    for (float &value : mask)
      if (random.one_in(4))
        value = -infinity;
    const auto stride = contiguous(mask_shape);
    std::copy(stride.begin(), stride.end(), c.mask_stride);
    c.mask = mask.data();
  }
  const bool hidden = random.one_in(3);
  if (hidden) {
    broadcast(bool_shape);
    const std::int64_t shown = random.between(0, 8);
    for (std::int64_t n = 0; n < count(bool_shape); ++n)
      bytes.push_back(static_cast<std::uint8_t>(random.between(0, 7) < shown ? random.between(1, 255) : 0));
    bytes.push_back(0); // so that there is a pointer
    const auto stride = contiguous(bool_shape);
    std::copy(stride.begin(), stride.end(), c.mask_bool_stride);
    c.mask_bool = bytes.data();
  }
  if (random.one_in(3)) {
    sinks = numbers(random, c.heads, 4);
    c.sinks = sinks.data();
  }
  if (random.one_in(3)) {
    slopes = numbers(random, c.heads, random.one_in(3) ? 4 : 0);
    for (float &slope : slopes)
      slope *= random.one_in(2) ? 0x1p-4F : 0x1p-20F;
    c.alibi_slopes = slopes.data();
  }

  // Pages: the keys that kv_lens leaves, in any order; all other slots hold NaN.
  std::int64_t page_size = 1, pages = 0, table_stride = 0;
  std::vector<std::int32_t> table;
  Shape k_memory_shape = k_shape, v_memory_shape = v_shape;
  Stored k_memory = k, v_memory = v;
  if (paged) {
    constexpr std::int64_t page_sizes[] = {1, 3, 16, 48, 64, 100, 256};
    page_size = random.pick(page_sizes);
    table_stride = (c.kv_len + page_size - 1) / page_size + random.between(0, 2);
    pages = c.batch * table_stride + random.between(0, 3);
    std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t n = order.size(); n > 1; --n)
      std::swap(order[n - 1], order[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(n) - 1))]);
    table.assign(order.begin(), order.begin() + c.batch * table_stride);
    k_memory_shape = {pages, c.kv_heads, page_size, c.head_dim};
    v_memory_shape = {pages, c.kv_heads, page_size, c.value_dim};
    const auto scatter = [&](Stored &to, const Stored &from, const Shape &shape, std::int64_t size) {
      to.values.assign(static_cast<std::size_t>(count(shape)), std::numeric_limits<float>::quiet_NaN());
      to.patterns.assign(from.dtype == EXATTN_F32 ? 0 : to.values.size(), 0xFFFF);
      for (std::int64_t b = 0; b < c.batch; ++b)
        for (std::int64_t j = 0; j < c.kv_lens[static_cast<std::size_t>(b)]; ++j)
          for (std::int64_t h = 0; h < c.kv_heads; ++h) {
            const std::int64_t page = table[static_cast<std::size_t>(b * table_stride + j / page_size)];
            const auto at = static_cast<std::size_t>(((page * c.kv_heads + h) * page_size + j % page_size) * size);
            const auto own = static_cast<std::size_t>(((b * c.kv_heads + h) * c.kv_len + j) * size);
            for (std::size_t x = 0; x < static_cast<std::size_t>(size); ++x) {
              to.values[at + x] = from.values[own + x];
              if (from.dtype != EXATTN_F32)
                to.patterns[at + x] = from.patterns[own + x];
            }
          }
    };
    scatter(k_memory, k, k_memory_shape, c.head_dim);
    scatter(v_memory, v, v_memory_shape, c.value_dim);
    for (std::int64_t b = 0; b < c.batch; ++b) // pages without a key are not looked at
      for (std::int64_t n = 0; n < table_stride; ++n)
        if (n * page_size >= c.kv_lens[static_cast<std::size_t>(b)])
          table[static_cast<std::size_t>(b * table_stride + n)] = -1;
    table.resize(table.size() + static_cast<std::size_t>(table_stride) + 1, -1); // for a table that begins later
  }

  const StoredLayout q_layout(random, q_shape, q), k_layout(random, k_memory_shape, k_memory);
  const StoredLayout v_layout(random, v_memory_shape, v_memory);
  Layout mask_layout(random, mask_shape), out_layout(random, out_shape), lse_layout(random, lse_shape);
  if (masked)
    mask_layout.fill(mask_shape, mask);

  char message[300];
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.batch = c.batch;
  args.heads = c.heads;
  args.kv_heads = c.kv_heads;
  args.q_len = c.q_len;
  args.kv_len = c.kv_len;
  args.head_dim = c.head_dim;
  args.value_dim = c.value_dim;
  args.q = q_layout.input();
  args.k = k_layout.input();
  args.v = v_layout.input();
  if (masked) {
    args.mask = mask_layout.input();
    for (std::size_t d = 0; d < 4; ++d)
      if (mask_shape[d] == 1)
        args.mask.stride[d] = 0;
  }
  if (hidden) {
    args.mask_bool = {bytes.data(), EXATTN_U8, 4, {}};
    std::copy(c.mask_bool_stride, c.mask_bool_stride + 4, args.mask_bool.stride);
  }
  args.out = out_layout.output();
  args.lse = lse_layout.output();
  args.lse.rank = 3;
  args.lse.stride[3] = 0;
  args.scale = given ? c.scale : 0.0F;
  args.scale_mode = given ? EXATTN_SCALE_GIVEN : EXATTN_SCALE_DEFAULT;
  args.causal = c.causal;
  args.window = c.window;
  args.softcap = c.softcap;
  args.fully_masked = c.fully_masked_zero ? EXATTN_FULLY_MASKED_ZERO : EXATTN_FULLY_MASKED_NAN;
  args.q_offsets = c.q_offsets.data();
  args.kv_lens = c.kv_lens.data();
  args.sinks = c.sinks;
  args.alibi_slopes = c.alibi_slopes;
  args.q_starts = ragged_queries ? c.q_starts.data() : nullptr;
  args.kv_starts = ragged_keys ? c.kv_starts.data() : nullptr;
  if (paged) {
    args.page_table = table.data();
    args.page_table_stride = table_stride;
    args.page_size = page_size;
    args.pages = pages;
  }
  args.pool = pool;
  args.message = message;
  args.message_size = sizeof message;

  // Where the call is cut in two, if it is: ragged keys would have to move for that.
  std::int64_t edge = 0;
  if (!ragged_keys && columns > 64 && random.one_in(2))
    edge = 64 * random.between(1, columns / 64);
  const bool cut = edge > 0 && (!paged || edge % page_size == 0);

  // Rows that belong to no sequence are not written, by the oracle as little as by the kernels.
  std::vector<float> out[2], lse[2];
  std::vector<std::uint8_t> states[2];
  const std::vector<float> untouched_out(static_cast<std::size_t>(count(out_shape)), 12345.0F);
  const std::vector<float> untouched_lse(static_cast<std::size_t>(count(lse_shape)), 12345.0F);
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    out[flavour] = untouched_out;
    lse[flavour] = untouched_lse;
    exattn::oracle::attention(c, oracle_flavour(flavour), out[flavour].data(), lse[flavour].data());
    states[flavour] = exattn::oracle::attention_state(c, oracle_flavour(flavour));
  }
  each_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    args.lanes = lanes;
    args.flavour = flavour;
    INFO("seed ", seed, " lanes ", exattn_lanes_name(lanes), " flavour ", exattn_flavour_name(flavour), ": batch ",
         c.batch, " heads ", c.heads, "/", c.kv_heads, " q_len ", c.q_len, " kv_len ", c.kv_len, " dims ", c.head_dim,
         "/", c.value_dim, " causal ", c.causal, " window ", c.window, " mask ", masked, " boolean ", hidden,
         " ragged ", ragged_queries, "/", ragged_keys, " page size ", paged ? page_size : 0, " softcap ", c.softcap,
         " alibi ", c.alibi_slopes != nullptr, " dtypes ", q.dtype, k.dtype, v.dtype);
    const auto run = [&](const exattn_attention_args &call) {
      const exattn_status status = exattn_attention(&call);
      INFO("message: ", std::string(message));
      REQUIRE(status == EXATTN_OK);
    };
    const auto check_outputs = [&] {
      CHECK(first_difference(out_layout.read(out_shape), out[flavour]) == "");
      CHECK(first_difference(lse_layout.read(lse_shape), lse[flavour]) == "");
    };
    const auto reset = [&] {
      out_layout.fill(out_shape, untouched_out);
      lse_layout.fill(lse_shape, untouched_lse);
    };
    reset();
    run(args);
    check_outputs();

    // The state after all keys.
    exattn_attention_args stopping = args;
    std::size_t bytes_needed = 0;
    REQUIRE(exattn_attention_state_size(&args, &bytes_needed) == EXATTN_OK);
    REQUIRE(bytes_needed == states[flavour].size());
    std::vector<std::uint8_t> state(bytes_needed, 0xA5);
    stopping.out.data = nullptr;
    stopping.lse.data = nullptr;
    stopping.state_out = state.data();
    stopping.state_out_size = state.size();
    run(stopping);
    CHECK(state == states[flavour]);

    // Stopped at an edge and gone on from there.
    if (cut) {
      INFO("edge ", edge);
      std::vector<std::int64_t> before, after;
      for (const std::int64_t length : c.kv_lens) {
        before.push_back(std::min(length, edge));
        after.push_back(std::max<std::int64_t>(length - edge, 0));
      }
      stopping.kv_len = edge;
      stopping.kv_lens = before.data();
      run(stopping);
      exattn_attention_args going = args;
      going.kv_len = c.kv_len - edge;
      going.kv_lens = after.data();
      going.kv_offset = edge;
      going.sinks = nullptr;
      going.state_in = state.data();
      going.state_in_size = state.size();
      const auto forward = [](exattn_tensor &tensor, std::int64_t elements, std::int64_t size) {
        tensor.data = static_cast<const char *>(tensor.data) + elements * size;
      };
      if (paged) {
        going.page_table += edge / page_size;
      } else {
        forward(going.k, edge * going.k.stride[2], k.dtype == EXATTN_F32 ? 4 : 2);
        forward(going.v, edge * going.v.stride[2], v.dtype == EXATTN_F32 ? 4 : 2);
      }
      if (masked)
        forward(going.mask, edge * going.mask.stride[3], 4);
      if (hidden)
        forward(going.mask_bool, edge * going.mask_bool.stride[3], 1);
      reset();
      run(going);
      check_outputs();
    }
  });
}

} // namespace

TEST_CASE("attention at every lane kind has the oracle's bits, for random shapes, options, layouts and values") {
  exattn_pool *pool = nullptr;
  REQUIRE(exattn_pool_create(3, &pool) == EXATTN_OK);
  for (std::uint64_t seed = 1; seed <= 400; ++seed)
    check_attention(seed, seed % 2 == 0 ? pool : nullptr);
  exattn_pool_destroy(pool);
}

TEST_CASE("softmax rows at every lane kind have the oracle's bits, strided and in place") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const Shape shape{random.between(1, 2), random.between(1, 3), random.between(0, 4),
                      random.one_in(4) ? random.between(100, 700) : random.between(0, 70)};
    const std::vector<float> x = numbers(random, count(shape), random.one_in(3) ? random.between(10, 500) : 0);
    const Layout in(random, shape), to(random, shape);
    each_kernel([&](std::int32_t lanes, std::int32_t flavour) {
      std::vector<float> expected(x.size());
      exattn::oracle::softmax(x.data(), shape[0] * shape[1] * shape[2], shape[3], oracle_flavour(flavour),
                              expected.data());
      for (const bool in_place : {false, true}) {
        Layout from = in, result = to;
        from.fill(shape, x);
        exattn_softmax_args args = EXATTN_SOFTMAX_ARGS_INIT;
        args.flavour = flavour;
        args.lanes = lanes;
        std::copy(shape.begin(), shape.end(), args.shape);
        args.x = from.input();
        args.y = in_place ? from.output() : result.output();
        INFO("seed ", seed, " lanes ", exattn_lanes_name(lanes), " flavour ", exattn_flavour_name(flavour), " n ",
             shape[3], " in place ", in_place);
        REQUIRE(exattn_softmax(&args) == EXATTN_OK);
        CHECK(first_difference((in_place ? from : result).read(shape), expected) == "");
      }
    });
  }
}

TEST_CASE("tanh at every lane kind has the oracle's bits over a sample of all numbers") {
  std::vector<float> x;
  for (std::uint64_t pattern = 0; pattern <= 0xFFFFFFFF; pattern += 49999)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
  for (std::uint64_t pattern = 0x3E000000; pattern <= 0x41200000; pattern += 997) { // 1/8 to 10, both signs
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
    x.push_back(-x.back());
  }
  const float infinity = std::numeric_limits<float>::infinity();
  x.insert(x.end(), {0.0F, -0.0F, infinity, -infinity});
  each_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    INFO("lanes ", exattn_lanes_name(lanes), " flavour ", exattn_flavour_name(flavour));
    std::vector<float> got(x.size());
    REQUIRE(exattn_evaluate(EXATTN_FUNCTION_TANH, flavour, lanes, x.data(), got.data(), x.size()) == EXATTN_OK);
    std::size_t differing = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float expected = exattn::oracle::tangent(x[i], oracle_flavour(flavour));
      const bool same = std::isnan(expected)
                            ? std::isnan(got[i])
                            : std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(expected);
      differing += same ? 0 : 1;
    }
    CHECK(differing == 0);
  });
}

TEST_CASE("exp and log at every lane kind have the oracle's bits over a sample of their domains") {
  std::vector<float> x;
  for (std::uint64_t pattern = 0x80000000; pattern <= 0xFF800000; pattern += 9973)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
  for (std::uint32_t near = 0; near < 40; ++near) // around the cut-off
    x.push_back(std::bit_cast<float>(0xC2AEAC4FU - 20 + near));
  for (const float special : {0.0F, -0.0F, -std::numeric_limits<float>::infinity()})
    x.push_back(special);
  std::vector<float> large;
  for (std::uint64_t pattern = 0x3F800000; pattern <= 0x7F800000; pattern += 4999)
    large.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
  large.insert(large.end(), {0.0F, std::numeric_limits<float>::infinity()});
  const float nan = std::numeric_limits<float>::quiet_NaN();

  each_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    INFO("lanes ", exattn_lanes_name(lanes), " flavour ", exattn_flavour_name(flavour));
    for (const std::int32_t function : {EXATTN_FUNCTION_EXP, EXATTN_FUNCTION_LOG}) {
      const std::vector<float> &in = function == EXATTN_FUNCTION_EXP ? x : large;
      std::vector<float> got(in.size()), expected(in.size());
      for (std::size_t i = 0; i < in.size(); ++i)
        expected[i] = function == EXATTN_FUNCTION_EXP ? exattn::oracle::exponential(in[i], oracle_flavour(flavour))
                                                      : exattn::oracle::logarithm(in[i], oracle_flavour(flavour));
      REQUIRE(exattn_evaluate(function, flavour, lanes, in.data(), got.data(), in.size()) == EXATTN_OK);
      CHECK(first_difference(got, expected) == "");
      float result = 0;
      REQUIRE(exattn_evaluate(function, flavour, lanes, &nan, &result, 1) == EXATTN_OK);
      CHECK(std::isnan(result));
    }
  });
}
