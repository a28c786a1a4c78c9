// Random attention calls in every layout that the interface offers. A sequence is kept apart from its layout, so that
// one sequence can be laid out, cut up and surrounded in many ways and its rows be compared.
#pragma once

#include "conformance/generator.hpp"

#include "exattn/exattn.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace exattn::tests {

// The library, or a stand-in for it.
using Attention = std::function<exattn_status(const exattn_attention_args &)>;

inline Attention library() {
  return [](const exattn_attention_args &args) { return exattn_attention(&args); };
}

inline std::vector<std::int32_t> usable_lanes(std::int32_t flavour) {
  std::vector<std::int32_t> usable;
  for (std::int32_t lanes = EXATTN_LANES_SCALAR; lanes < EXATTN_LANES_COUNT; ++lanes) {
    exattn_lanes_info info{};
    info.struct_size = sizeof info;
    if (exattn_lanes_query(lanes, &info) == EXATTN_OK && (flavour == EXATTN_EXACT ? info.exact : info.fast) != 0) {
      usable.push_back(lanes);
    }
  }
  return usable;
}

// ---- One sequence and the options of its call ----

struct CallProblem {
  std::uint64_t seed = 0; // of every number in it
  std::int64_t heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, head_dim = 1, value_dim = 1;
  std::int64_t q_offset = 0, window = 0;
  std::int32_t flavour = EXATTN_EXACT, q_type = EXATTN_F32, k_type = EXATTN_F32, v_type = EXATTN_F32;
  bool causal = false, fully_masked_zero = false, sinks = false, mask = false, mask_bool = false, alibi = false;
  bool given_scale = false;
  float scale = 0.0F, softcap = 0.0F;
  std::int64_t specials = 0; // one number in so many is a NaN, an infinity, a zero or subnormal; 0: none

  bool stored_in_16_bits() const { return q_type != EXATTN_F32 || k_type != EXATTN_F32 || v_type != EXATTN_F32; }
  std::int64_t work() const { return heads * q_len * kv_len * (head_dim + value_dim); }
};

inline std::string describe(const CallProblem &p) {
  constexpr const char *kTypes[] = {"f32", "bf16", "f16"};
  std::array<char, 600> text{};
  std::snprintf(
      text.data(), text.size(),
      "seed %llu: %s, heads %lld on %lld, q_len %lld, kv_len %lld, head_dim %lld, value_dim %lld, q_offset %lld, "
      "window %lld, causal %d, fully_masked_zero %d, sinks %d, mask %d, mask_bool %d, alibi %d, scale %s %a, "
      "softcap %g, q %s, k %s, v %s, specials one in %lld",
      static_cast<unsigned long long>(p.seed), exattn_flavour_name(p.flavour), static_cast<long long>(p.heads),
      static_cast<long long>(p.kv_heads), static_cast<long long>(p.q_len), static_cast<long long>(p.kv_len),
      static_cast<long long>(p.head_dim), static_cast<long long>(p.value_dim), static_cast<long long>(p.q_offset),
      static_cast<long long>(p.window), p.causal, p.fully_masked_zero, p.sinks, p.mask, p.mask_bool, p.alibi,
      p.given_scale ? "given" : "default", static_cast<double>(p.scale), static_cast<double>(p.softcap),
      kTypes[p.q_type], kTypes[p.k_type], kTypes[p.v_type], static_cast<long long>(p.specials));
  return text.data();
}

// Draws from the words of a seed, one after the other.
class Draw {
public:
  explicit Draw(std::uint64_t from) : seed(from) {}
  std::uint64_t word() { return conformance::random_word(seed, next++) >> 11; }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(word() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <class T, std::size_t n>
  T pick(const T (&from)[n]) {
    return from[word() % n];
  }

private:
  std::uint64_t seed;
  std::uint64_t next = 0;
};

// A random problem of at most so many multiply-adds.
inline CallProblem random_problem(std::uint64_t seed, std::int64_t most_work) {
  constexpr std::int64_t kSizes[] = {1, 2, 5, 16, 24, 33, 64, 80};
  constexpr std::int64_t kRows[] = {1, 2, 3, 7, 16, 17, 31, 33, 40, 64, 65, 80};
  constexpr std::int64_t kKeys[] = {0, 1, 5, 31, 63, 64, 65, 100, 127, 128, 129, 193, 257, 320, 330, 330, 330};
  constexpr std::int32_t kTypes[] = {EXATTN_F32, EXATTN_BF16, EXATTN_F16};
  constexpr float kScales[] = {1.0F, 0.3F, -0.7F, 2.5F, 0.0F};
  constexpr float kSoftcaps[] = {0.5F, 3.0F, 30.0F, 50.0F};
  Draw draw(seed ^ 0x9E3779B97F4A7C15ULL);
  CallProblem p;
  p.seed = seed;
  p.flavour = draw.one_in(2) ? EXATTN_EXACT : EXATTN_FAST;
  p.kv_heads = draw.between(1, 3);
  p.heads = p.kv_heads * draw.between(1, 4);
  p.q_len = draw.pick(kRows);
  p.kv_len = draw.pick(kKeys);
  p.head_dim = draw.pick(kSizes);
  p.value_dim = draw.one_in(2) ? p.head_dim : draw.pick(kSizes);
  p.causal = draw.one_in(2);
  p.window = draw.one_in(3) ? draw.between(1, 150) : 0;
  p.sinks = draw.one_in(3);
  p.mask = draw.one_in(3);
  p.mask_bool = draw.one_in(3);
  p.alibi = draw.one_in(4);
  p.softcap = draw.one_in(4) ? draw.pick(kSoftcaps) : 0.0F;
  p.fully_masked_zero = draw.one_in(2);
  p.given_scale = draw.one_in(3);
  p.scale = p.given_scale ? draw.pick(kScales) : 0.0F;
  if (draw.one_in(2)) {
    p.q_type = draw.pick(kTypes);
    p.k_type = draw.pick(kTypes);
    p.v_type = draw.pick(kTypes);
  }
  p.specials = draw.one_in(4) ? draw.between(50, 5000) : 0;
  // Heads and head sizes give way first: lengths are what the layouts cut up.
  while (p.work() > most_work) {
    if (p.heads > p.kv_heads + 1 && draw.one_in(2)) {
      p.heads -= p.kv_heads;
    } else if (p.head_dim > 2 || p.value_dim > 2) {
      std::int64_t &size = p.head_dim > p.value_dim ? p.head_dim : p.value_dim;
      size = size > 33 ? 33 : size / 2;
    } else {
      p.q_len /= 2;
    }
  }
  switch (draw.between(0, 4)) {
  case 0:
    p.q_offset = 0;
    break;
  case 1:
    p.q_offset = draw.between(1, 400);
    break;
  case 2:
    p.q_offset = p.alibi ? (std::int64_t{1} << 25) + draw.between(0, 99) : 0; // where a distance rounds
    break;
  default:
    p.q_offset = std::max<std::int64_t>(0, p.kv_len - p.q_len); // the usual one: the last row sees all keys
  }
  return p;
}

inline float widen_pattern(std::uint32_t pattern, std::int32_t type) {
  if (type == EXATTN_F32) {
    return std::bit_cast<float>(pattern);
  }
  if (type == EXATTN_BF16) {
    return std::bit_cast<float>(pattern << 16);
  }
  const std::uint32_t sign = pattern >> 15 << 31, exponent = pattern >> 10 & 31, fraction = pattern & 1023;
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  }
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(1024 + fraction), static_cast<int>(exponent) - 25);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

// A sequence: elements as they are stored, tensors in C order.
struct Sequence {
  std::int64_t q_len = 0, kv_len = 0, q_offset = 0;
  std::vector<std::uint32_t> q, k, v, mask; // [heads, q_len, head_dim], [kv_heads, kv_len, ...], [heads, q_len, kv_len]
  std::vector<std::uint8_t> mask_bool;      // [heads, q_len, kv_len]
};

enum class Tensor : std::uint8_t { q, k, v, mask, mask_bool, sinks, slopes };

// The random word of an element follows from its place, so a smaller problem holds the same numbers.
inline std::uint64_t element_word(std::uint64_t seed, Tensor tensor, std::int64_t a, std::int64_t b, std::int64_t c) {
  const std::int64_t place = (static_cast<std::int64_t>(tensor) << 56) + (a << 40) + (b << 20) + c;
  return conformance::random_word(seed * 0x2545F4914F6CDD1DULL, static_cast<std::uint64_t>(place));
}

inline std::uint32_t number(std::uint64_t word, std::int32_t type, std::int64_t specials) {
  constexpr std::uint32_t kSpecials32[] = {0,          0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001,
                                           0x00000001, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x71000000, 0x00800000};
  constexpr std::uint32_t kSpecialsBf16[] = {0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0x0001, 0x807F, 0x7F7F, 0x7100};
  constexpr std::uint32_t kSpecialsF16[] = {0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0x0001, 0x83FF, 0x7BFF, 0x0400};
  if (specials > 0 && (word >> 7) % static_cast<std::uint64_t>(specials) == 0) {
    const std::uint64_t which = word >> 44;
    return type == EXATTN_F32    ? kSpecials32[which % std::size(kSpecials32)]
           : type == EXATTN_BF16 ? kSpecialsBf16[which % std::size(kSpecialsBf16)]
                                 : kSpecialsF16[which % std::size(kSpecialsF16)];
  }
  if (type == EXATTN_F16) { // 2^-5 to 4, either sign
    return static_cast<std::uint32_t>((word >> 63 << 15) | (10 + (word >> 40) % 7) << 10 | (word & 1023));
  }
  std::int64_t sum = -2 * 65535;
  for (int field = 0; field < 4; ++field) {
    sum += static_cast<std::int64_t>(word >> (16 * field) & 65535);
  }
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(sum) * 0x1p-15F);
  return type == EXATTN_BF16 ? bits >> 16 : bits;
}

inline Sequence make_sequence(const CallProblem &p, std::uint64_t seed, std::int64_t q_len, std::int64_t kv_len,
                              std::int64_t q_offset) {
  Sequence s;
  s.q_len = q_len;
  s.kv_len = kv_len;
  s.q_offset = q_offset;
  const auto fill = [&](std::vector<std::uint32_t> &to, Tensor tensor, std::int32_t type, std::int64_t heads,
                        std::int64_t rows, std::int64_t columns) {
    to.reserve(static_cast<std::size_t>(heads * rows * columns));
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t x = 0; x < columns; ++x) {
          to.push_back(number(element_word(seed, tensor, h, i, x), type, p.specials));
        }
      }
    }
  };
  fill(s.q, Tensor::q, p.q_type, p.heads, q_len, p.head_dim);
  fill(s.k, Tensor::k, p.k_type, p.kv_heads, kv_len, p.head_dim);
  fill(s.v, Tensor::v, p.v_type, p.kv_heads, kv_len, p.value_dim);
  constexpr std::uint32_t kMinusInfinity = 0xFF800000;
  const std::int64_t rows = p.mask || p.mask_bool ? q_len : 0;
  for (std::int64_t h = 0; h < p.heads; ++h) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < kv_len; ++j) {
        if (p.mask) { // every seventh row or so is -inf throughout, in the others one entry in eight
          const std::uint64_t row = element_word(seed, Tensor::mask, h, i, -1);
          const std::uint64_t word = element_word(seed, Tensor::mask, h, i, j);
          s.mask.push_back(row % 7 == 0 || (word >> 20) % 8 == 0 ? kMinusInfinity
                                                                 : number(word, EXATTN_F32, p.specials));
        }
        if (p.mask_bool) { // keys that no row sees, blocks that a row does not see, and single entries
          const std::uint64_t key = element_word(seed, Tensor::mask_bool, 0, -1, j);
          const std::uint64_t block = element_word(seed, Tensor::mask_bool, h, i, -1 - j / 64);
          const std::uint64_t word = element_word(seed, Tensor::mask_bool, h, i, j);
          const bool seen = key % 5 != 0 && block % 4 != 0 && word % 4 != 0;
          s.mask_bool.push_back(seen ? static_cast<std::uint8_t>(1 + (word >> 8) % 255) : std::uint8_t{0});
        }
      }
    }
  }
  return s;
}

inline Sequence make_sequence(const CallProblem &p) {
  return make_sequence(p, p.seed, p.q_len, p.kv_len, p.q_offset);
}

// Other sequences of a call: with rows of their own, or with as many as a batch without ragged queries asks for.
inline std::vector<Sequence> neighbours(const CallProblem &p, bool same_rows) {
  std::vector<Sequence> others;
  Draw draw(p.seed + 77);
  for (std::uint64_t n = 1; n <= 2; ++n) {
    const std::int64_t rows = same_rows ? p.q_len : draw.between(0, 20);
    others.push_back(make_sequence(p, p.seed + 1000 * n, rows, draw.between(0, 150), draw.between(0, 200)));
  }
  return others;
}

// Rows [begin, end) of a sequence with its first keys, as a sequence by itself.
inline Sequence cut(const CallProblem &p, const Sequence &s, std::int64_t begin, std::int64_t end, std::int64_t keys) {
  Sequence part;
  part.q_len = end - begin;
  part.kv_len = keys;
  part.q_offset = s.q_offset + begin;
  const auto copy = [](const auto &from, auto &to, std::int64_t heads, std::int64_t rows, std::int64_t columns,
                       std::int64_t first, std::int64_t last, std::int64_t width) {
    for (std::int64_t h = 0; h < heads && !from.empty(); ++h) {
      for (std::int64_t i = first; i < last; ++i) {
        const auto row = from.begin() + (h * rows + i) * columns;
        to.insert(to.end(), row, row + width);
      }
    }
  };
  copy(s.q, part.q, p.heads, s.q_len, p.head_dim, begin, end, p.head_dim);
  copy(s.k, part.k, p.kv_heads, s.kv_len, p.head_dim, 0, keys, p.head_dim);
  copy(s.v, part.v, p.kv_heads, s.kv_len, p.value_dim, 0, keys, p.value_dim);
  copy(s.mask, part.mask, p.heads, s.q_len, s.kv_len, begin, end, keys);
  copy(s.mask_bool, part.mask_bool, p.heads, s.q_len, s.kv_len, begin, end, keys);
  return part;
}

// Why a row does not see a key of its sequence (definition, section 4), the first that holds.
enum class Hidden : std::uint8_t { no, causal, window, mask_bool };

inline Hidden hidden(const CallProblem &p, const Sequence &s, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t position = s.q_offset + i;
  if (p.causal && j > position) {
    return Hidden::causal;
  }
  if (p.window > 0 && j <= position - p.window) {
    return Hidden::window;
  }
  if (p.mask_bool && s.mask_bool[static_cast<std::size_t>((h * s.q_len + i) * s.kv_len + j)] == 0) {
    return Hidden::mask_bool;
  }
  return Hidden::no;
}

inline std::vector<float> make_sinks(const CallProblem &p) {
  std::vector<float> sinks;
  for (std::int64_t h = 0; h < p.heads; ++h) {
    const std::uint64_t word = element_word(p.seed, Tensor::sinks, h, 0, 0);
    float sink = widen_pattern(number(word, EXATTN_F32, 0), EXATTN_F32);
    if (word % 4 == 0) {
      sink = -INFINITY;
    } else if (p.specials > 0 && word % 4 == 1) {
      sink = word % 8 == 1 ? INFINITY : NAN;
    }
    sinks.push_back(sink);
  }
  return sinks;
}

inline std::vector<float> make_slopes(const CallProblem &p) {
  std::vector<float> slopes;
  for (std::int64_t h = 0; h < p.heads; ++h) {
    const std::uint64_t word = element_word(p.seed, Tensor::slopes, h, 0, 0);
    slopes.push_back(0.125F * widen_pattern(number(word, EXATTN_F32, 0), EXATTN_F32));
  }
  return slopes;
}

// ---- Memory ----

// What memory holds where nothing is written to it, by type.
struct Fill {
  const char *name;
  std::uint32_t f32, bf16, f16, u8;
  std::int32_t page;
};

inline constexpr Fill kZeros{"zeros", 0, 0, 0, 0, 0};
inline constexpr Fill kPoisons[] = {
    {"NaN", 0x7FC00000, 0x7FC0, 0x7E00, 1, INT32_MIN},
    {"+Inf", 0x7F800000, 0x7F80, 0x7C00, 0, INT32_MAX},
    {"0xFF bytes", 0xFFFFFFFF, 0xFFFF, 0xFFFF, 255, -1},
    {"signalling NaN", 0x7F800001, 0x7F81, 0x7C01, 0, 1 << 20},
};
inline constexpr std::uint32_t kUnwritten = 0x7FA5A5A5; // in outputs: a signalling NaN

inline std::int64_t bytes_of_type(std::int32_t type) {
  return type == EXATTN_F32 ? 4 : type == EXATTN_U8 ? 1 : 2;
}

inline std::uint32_t fill_of(const Fill &fill, std::int32_t type) {
  return type == EXATTN_F32 ? fill.f32 : type == EXATTN_BF16 ? fill.bf16 : type == EXATTN_F16 ? fill.f16 : fill.u8;
}

enum class Arrangement : std::uint8_t {
  contiguous,
  tokens_first, // [B, T, H, D]
  transposed,   // [B, H, D, T]
  shifted,      // contiguous, one element further: 4 bytes for binary32
  gaps,         // rows D + 3 apart
  backward,     // every stride negative
  spread        // elements 2 apart
};
inline constexpr int kArrangements = 7;
inline constexpr const char *kArrangementNames[] = {"contiguous", "tokens first", "transposed", "shifted",
                                                    "gaps",       "backward",     "spread"};

using Shape4 = std::array<std::int64_t, 4>;

// A tensor in memory of its own, with a margin around it.
class Memory {
public:
  Memory() = default;
  Memory(const Shape4 &shape_of, std::int32_t type_of, Arrangement arrangement, std::uint32_t fill_with)
      : shape(shape_of), type(type_of), fill(fill_with) {
    std::array<std::size_t, 4> order{0, 1, 2, 3};
    if (arrangement == Arrangement::tokens_first) {
      order = {0, 2, 1, 3};
    } else if (arrangement == Arrangement::transposed) {
      order = {0, 1, 3, 2};
    }
    std::int64_t step = arrangement == Arrangement::spread ? 2 : 1;
    std::int64_t origin = kMargin + (arrangement == Arrangement::shifted ? 1 : 0);
    for (std::size_t n = 4; n-- > 0;) {
      const std::size_t dimension = order[n];
      strides[dimension] = step;
      step *= std::max<std::int64_t>(1, shape[dimension]);
      step += arrangement == Arrangement::gaps && n == 3 ? 3 : 0;
      if (arrangement == Arrangement::backward) {
        origin += strides[dimension] * std::max<std::int64_t>(0, shape[dimension] - 1);
        strides[dimension] = -strides[dimension];
      }
    }
    bytes.resize(static_cast<std::size_t>((step + 2 * kMargin + 1) * bytes_of_type(type)));
    for (std::int64_t n = 0; n < step + 2 * kMargin + 1; ++n) {
      put(bytes.data() + n * bytes_of_type(type), fill);
    }
    first = origin * bytes_of_type(type);
  }

  unsigned char *at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return bytes.data() + first +
           (a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]) * bytes_of_type(type);
  }
  void store(std::uint32_t pattern, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    put(at(a, b, c, d), pattern);
  }
  // Of 4-byte elements.
  std::uint32_t load(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    std::uint32_t pattern = 0;
    std::memcpy(&pattern, at(a, b, c, d), sizeof pattern);
    return pattern;
  }

  // Of packed keys, whose rows are groups: [B, Hkv, groups, 16 D].
  exattn_tensor packed_input() { return {at(0, 0, 0, 0), type, 4, {strides[0], strides[1], strides[2], 16}}; }
  exattn_tensor input() { return {at(0, 0, 0, 0), type, 4, {strides[0], strides[1], strides[2], strides[3]}}; }
  exattn_output output(std::int32_t rank) {
    return {reinterpret_cast<float *>(at(0, 0, 0, 0)), 0, rank, {strides[0], strides[1], strides[2], strides[3]}};
  }

  // Whether everything but the elements that were passed to it holds the fill.
  template <class Each>
  bool untouched_but(Each each) const {
    Memory copy = *this;
    each([&](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) { copy.store(fill, a, b, c, d); });
    return copy.bytes == Memory::filled(bytes.size(), type, fill);
  }

private:
  static constexpr std::int64_t kMargin = 64; // elements on each side

  static std::vector<unsigned char> filled(std::size_t size, std::int32_t type, std::uint32_t fill) {
    Memory memory;
    memory.type = type;
    memory.bytes.resize(size);
    for (std::size_t n = 0; n < size; n += static_cast<std::size_t>(bytes_of_type(type))) {
      memory.put(memory.bytes.data() + n, fill);
    }
    return memory.bytes;
  }

  void put(unsigned char *to, std::uint32_t pattern) const {
    if (type == EXATTN_F32) {
      std::memcpy(to, &pattern, 4);
    } else if (type == EXATTN_U8) {
      *to = static_cast<unsigned char>(pattern);
    } else {
      const std::uint16_t half = static_cast<std::uint16_t>(pattern);
      std::memcpy(to, &half, 2);
    }
  }

  Shape4 shape{}, strides{};
  std::int32_t type = EXATTN_F32;
  std::uint32_t fill = 0;
  std::int64_t first = 0; // byte of element 0
  std::vector<unsigned char> bytes;
};

// ---- Layouts ----

struct Layout {
  Arrangement arrangement = Arrangement::contiguous;
  bool widened = false; // 16-bit elements as binary32
  bool ragged_queries = false, ragged_keys = false;
  bool packed_keys = false;    // of the arrangements those in which elements follow each other; pages of 16 n
  std::int64_t page_size = 0;  // 0: no pages
  std::int64_t extra_keys = 0; // that kv_lens cuts off again
  Fill fill = kZeros;
  bool only_what_matters = false; // elements that can have no influence are not written: they hold the fill
};

// How many elements were left out for each reason; for tests to see that they tested something.
struct LeftOut {
  std::int64_t causal = 0, window = 0, mask_bool = 0, mask_entries = 0, mask_bool_entries = 0, pages = 0,
               page_slots = 0, cut_off_keys = 0, rows_of_none = 0;
};

// Bits of a sequence's results, [heads, q_len, value_dim] and [heads, q_len]; and the state, where one was asked for.
struct Rows {
  std::vector<std::uint32_t> out, lse;
  std::vector<unsigned char> state;
  bool operator==(const Rows &) const = default;
};

// Some rows and keys of a placed batch, as a call of its own over the same memory.
struct Slice {
  exattn_attention_args args{};
  std::vector<std::int64_t> q_offsets, kv_lens;
};

// A batch of sequences laid out in memory, with the arguments of the call over all of it.
class Placed {
public:
  Placed(const CallProblem &options, std::vector<const Sequence *> all, const Layout &how)
      : p(options), sequences(std::move(all)), layout(how), sinks(make_sinks(options)), slopes(make_slopes(options)) {
    args = EXATTN_ATTENTION_ARGS_INIT;
    args.flavour = p.flavour;
    args.lanes = EXATTN_LANES_SCALAR;
    args.batch = static_cast<std::int64_t>(sequences.size());
    args.heads = p.heads;
    args.kv_heads = p.kv_heads;
    args.head_dim = p.head_dim;
    args.value_dim = p.value_dim;
    args.scale = p.scale;
    args.scale_mode = p.given_scale ? EXATTN_SCALE_GIVEN : EXATTN_SCALE_DEFAULT;
    args.causal = p.causal ? 1 : 0;
    args.fully_masked = p.fully_masked_zero ? EXATTN_FULLY_MASKED_ZERO : EXATTN_FULLY_MASKED_NAN;
    args.window = p.window;
    args.softcap = p.softcap;
    args.sinks = p.sinks ? sinks.data() : nullptr;
    args.alibi_slopes = p.alibi ? slopes.data() : nullptr;
    args.message = message.data();
    args.message_size = message.size();
    place_rows();
    place_keys();
    place_masks();
  }
  Placed(const Placed &) = delete;
  Placed &operator=(const Placed &) = delete;

  exattn_attention_args args{};
  Memory q, k, v, mask, mask_bool, out, lse;
  LeftOut left_out;

  std::string text() const { return message.data(); }

  std::int64_t batch_of(std::size_t b) const { return layout.ragged_queries ? 0 : static_cast<std::int64_t>(b); }
  std::int64_t row_of(std::size_t b, std::int64_t i) const { return (layout.ragged_queries ? q_starts[b] : 0) + i; }

  // Where key j of sequence b is, as the indices 0 and 2 of k and v.
  std::pair<std::int64_t, std::int64_t> key_of(std::size_t b, std::int64_t j) const {
    if (layout.page_size != 0) {
      const std::size_t entry = b * static_cast<std::size_t>(args.page_table_stride);
      return {real_pages[entry + static_cast<std::size_t>(j / layout.page_size)], j % layout.page_size};
    }
    return layout.ragged_keys ? std::pair{std::int64_t{0}, kv_starts[b] + j}
                              : std::pair{static_cast<std::int64_t>(b), j};
  }

  // Element x of key j of sequence b, KV head n.
  void store_key(std::uint32_t pattern, std::size_t b, std::int64_t j, std::int64_t n, std::int64_t x) {
    const auto [first, key] = key_of(b, j);
    if (layout.packed_keys) {
      k.store(pattern, first, n, key / 16, x * 16 + key % 16);
    } else {
      k.store(pattern, first, n, key, x);
    }
  }

  Rows rows(std::size_t b) {
    Rows result;
    for (std::int64_t h = 0; h < p.heads; ++h) {
      for (std::int64_t i = 0; i < sequences[b]->q_len; ++i) {
        for (std::int64_t x = 0; x < p.value_dim; ++x) {
          result.out.push_back(out.load(batch_of(b), h, row_of(b, i), x));
        }
        result.lse.push_back(lse.load(batch_of(b), h, row_of(b, i), 0));
      }
    }
    return result;
  }

  // Whether nothing around and between the outputs of the call was written.
  bool outputs_alone_written() const {
    const auto each = [&](std::int64_t columns) {
      return [this, columns](auto visit) {
        for (std::size_t b = 0; b < sequences.size(); ++b) {
          for (std::int64_t h = 0; h < p.heads; ++h) {
            for (std::int64_t i = 0; i < sequences[b]->q_len; ++i) {
              for (std::int64_t x = 0; x < columns; ++x) {
                visit(batch_of(b), h, row_of(b, i), x);
              }
            }
          }
        }
      };
    };
    return out.untouched_but(each(p.value_dim)) && lse.untouched_but(each(1));
  }

  // Rows [row, row_end) of every sequence and their keys [key, key_end). Not of ragged rows or keys unless all of them;
  // pages must begin at `key`.
  Slice slice(std::int64_t row, std::int64_t row_end, std::int64_t key, std::int64_t key_end) {
    Slice part;
    part.args = args;
    exattn_attention_args &a = part.args;
    const auto move = [](exattn_tensor &tensor, std::int64_t elements) {
      if (tensor.data != nullptr) {
        tensor.data = static_cast<const unsigned char *>(tensor.data) + elements * bytes_of_type(tensor.dtype);
      }
    };
    a.q_len = row_end - row;
    a.kv_len = key_end - key;
    a.kv_offset = key;
    move(a.q, row * a.q.stride[2]);
    for (exattn_tensor *tensor : {&a.mask, &a.mask_bool}) {
      move(*tensor, row * tensor->stride[2] + key * tensor->stride[3]);
    }
    if (layout.page_size == 0) {
      move(a.k, key / (layout.packed_keys ? 16 : 1) * a.k.stride[2]);
      move(a.v, key * a.v.stride[2]);
    } else {
      a.page_table += key / layout.page_size;
    }
    a.out.data += row * a.out.stride[2];
    a.lse.data += row * a.lse.stride[2];
    a.q_offset += row;
    for (std::int64_t b = 0; b < a.batch; ++b) {
      if (a.q_offsets != nullptr) {
        part.q_offsets.push_back(a.q_offsets[b] + row);
      }
      if (a.kv_lens != nullptr) {
        part.kv_lens.push_back(std::clamp<std::int64_t>(a.kv_lens[b] - key, 0, key_end - key));
      }
    }
    a.q_offsets = a.q_offsets != nullptr ? part.q_offsets.data() : nullptr;
    a.kv_lens = a.kv_lens != nullptr ? part.kv_lens.data() : nullptr;
    return part;
  }

private:
  static constexpr std::int64_t kRowsOfNone = 2; // before and after ragged sequences

  // Of keys: before and after ragged sequences, and to where the next one can begin.
  std::int64_t keys_of_none() const { return layout.packed_keys ? 16 : kRowsOfNone; }
  std::int64_t room_for(std::int64_t keys) const { return layout.packed_keys ? (keys + 15) / 16 * 16 : keys; }

  std::int32_t stored_type(std::int32_t type) const { return layout.widened ? std::int32_t{EXATTN_F32} : type; }
  std::uint32_t stored(std::uint32_t pattern, std::int32_t type) const {
    return layout.widened ? std::bit_cast<std::uint32_t>(widen_pattern(pattern, type)) : pattern;
  }
  Memory make(const Shape4 &shape, std::int32_t type) const {
    return Memory(shape, type, layout.arrangement, fill_of(layout.fill, type));
  }

  void place_rows() {
    const std::size_t count = sequences.size();
    args.q_len = count == 0 ? 0 : sequences[0]->q_len;
    if (layout.ragged_queries) {
      q_starts.assign(1, kRowsOfNone);
      for (const Sequence *s : sequences) {
        q_starts.push_back(q_starts.back() + s->q_len);
      }
      args.q_len = q_starts.back() + kRowsOfNone;
      args.q_starts = q_starts.data();
      left_out.rows_of_none += 2 * kRowsOfNone;
    }
    const std::int64_t batch = layout.ragged_queries ? 1 : args.batch;
    q = make({batch, p.heads, args.q_len, p.head_dim}, stored_type(p.q_type));
    out = Memory({batch, p.heads, args.q_len, p.value_dim}, EXATTN_F32, layout.arrangement, kUnwritten);
    lse = Memory({batch, p.heads, args.q_len, 1}, EXATTN_F32, layout.arrangement, kUnwritten);
    for (std::size_t b = 0; b < count; ++b) {
      const Sequence &s = *sequences[b];
      q_offsets.push_back(s.q_offset);
      std::size_t n = 0;
      for (std::int64_t h = 0; h < p.heads; ++h) {
        for (std::int64_t i = 0; i < s.q_len; ++i) {
          for (std::int64_t x = 0; x < p.head_dim; ++x) {
            q.store(stored(s.q[n++], p.q_type), batch_of(b), h, row_of(b, i), x);
          }
        }
      }
    }
    args.q = q.input();
    args.out = out.output(4);
    args.lse = lse.output(3);
    args.q_offset = count == 1 ? q_offsets[0] : 0;
    args.q_offsets = count > 1 ? q_offsets.data() : nullptr;
  }

  void place_keys() {
    std::int64_t most = 0;
    bool lengths_differ = layout.extra_keys != 0;
    for (const Sequence *s : sequences) {
      kv_lens.push_back(s->kv_len);
      most = std::max(most, s->kv_len);
      lengths_differ = lengths_differ || (s->kv_len != sequences[0]->kv_len && !layout.ragged_keys);
    }
    most += layout.extra_keys;
    mask_columns = layout.ragged_keys ? room_for(most) : most;
    args.kv_len = most;
    args.kv_lens = lengths_differ || (layout.ragged_keys && layout.packed_keys) ? kv_lens.data() : nullptr;
    Shape4 shape{args.batch, p.kv_heads, most, 0};
    if (layout.ragged_keys) {
      kv_starts.assign(1, keys_of_none());
      for (const Sequence *s : sequences) {
        kv_starts.push_back(kv_starts.back() + room_for(s->kv_len + layout.extra_keys));
      }
      shape[0] = 1;
      args.kv_len = shape[2] = kv_starts.back() + keys_of_none();
      args.kv_starts = kv_starts.data();
      left_out.rows_of_none += 2 * keys_of_none();
    } else if (layout.page_size != 0) {
      place_pages(most);
      shape[0] = args.pages;
      shape[2] = layout.page_size;
    }
    left_out.cut_off_keys += layout.extra_keys * args.batch;
    shape[3] = p.value_dim;
    v = make(shape, stored_type(p.v_type));
    shape[3] = p.head_dim;
    if (layout.packed_keys) {
      shape[2] = (shape[2] + 15) / 16;
      shape[3] *= 16;
    }
    k = make(shape, stored_type(p.k_type));
    for (std::size_t b = 0; b < sequences.size(); ++b) {
      place_keys_of(b);
    }
    args.k = layout.packed_keys ? k.packed_input() : k.input();
    args.k_layout = layout.packed_keys ? EXATTN_K_PACKED : EXATTN_K_ROWS;
    args.v = v.input();
  }

  void place_keys_of(std::size_t b) {
    const Sequence &s = *sequences[b];
    for (std::int64_t j = 0; j < s.kv_len; ++j) {
      const std::pair<std::int64_t, std::int64_t> place = key_of(b, j);
      for (std::int64_t n = 0; n < p.kv_heads; ++n) {
        if (layout.only_what_matters && !matters(s, n, j)) {
          continue;
        }
        for (std::int64_t x = 0; x < p.head_dim; ++x) {
          const std::size_t from = static_cast<std::size_t>((n * s.kv_len + j) * p.head_dim + x);
          store_key(stored(s.k[from], p.k_type), b, j, n, x);
        }
        for (std::int64_t x = 0; x < p.value_dim; ++x) {
          const std::size_t from = static_cast<std::size_t>((n * s.kv_len + j) * p.value_dim + x);
          v.store(stored(s.v[from], p.v_type), place.first, n, place.second, x);
        }
      }
    }
  }

  // Whether any row that reads KV head n sees key j.
  bool matters(const Sequence &s, std::int64_t n, std::int64_t j) {
    const std::int64_t group = p.heads / p.kv_heads;
    Hidden why = Hidden::no;
    for (std::int64_t h = n * group; h < (n + 1) * group; ++h) {
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        why = hidden(p, s, h, i, j);
        if (why == Hidden::no) {
          return true;
        }
      }
    }
    left_out.causal += why == Hidden::causal ? 1 : 0;
    left_out.window += why == Hidden::window ? 1 : 0;
    left_out.mask_bool += why == Hidden::mask_bool ? 1 : 0;
    return false;
  }

  // Pages lie in an order drawn from the seed, the first and some more unused.
  void place_pages(std::int64_t most) {
    const std::int64_t size = layout.page_size;
    args.page_size = size;
    args.page_table_stride = (most + size - 1) / size + 1;
    std::int64_t used = 0;
    for (const Sequence *s : sequences) {
      used += (s->kv_len + size - 1) / size;
    }
    args.pages = used + 3;
    left_out.pages += 3;
    std::vector<std::int32_t> order;
    for (std::int32_t n = 1; n <= used; ++n) {
      order.push_back(n);
    }
    Draw draw(p.seed + static_cast<std::uint64_t>(size));
    for (std::size_t n = order.size(); n > 1; --n) {
      std::swap(order[n - 1], order[draw.word() % n]);
    }
    real_pages.assign(static_cast<std::size_t>(args.batch * args.page_table_stride), layout.fill.page);
    page_table = real_pages;
    // Slices begin further on, but are as wide: they end that much later.
    page_table.resize(real_pages.size() + static_cast<std::size_t>(args.page_table_stride), layout.fill.page);
    std::size_t next = 0;
    for (std::size_t b = 0; b < sequences.size(); ++b) {
      const Sequence &s = *sequences[b];
      left_out.page_slots += (size - s.kv_len % size) % size;
      for (std::int64_t page = 0; page < (s.kv_len + size - 1) / size; ++page) {
        const std::size_t entry = b * static_cast<std::size_t>(args.page_table_stride) + static_cast<std::size_t>(page);
        real_pages[entry] = order[next++];
        if (!layout.only_what_matters || page_matters(s, page)) {
          page_table[entry] = real_pages[entry];
        }
      }
    }
    args.page_table = page_table.data();
  }

  // Whether a page holds a key that a row sees by its position. (A key hidden by mask_bool alone needs a valid page.)
  bool page_matters(const Sequence &s, std::int64_t page) const {
    for (std::int64_t j = page * layout.page_size; j < std::min(s.kv_len, (page + 1) * layout.page_size); ++j) {
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        const std::int64_t position = s.q_offset + i;
        if ((!p.causal || j <= position) && (p.window <= 0 || j > position - p.window)) {
          return true;
        }
      }
    }
    return false;
  }

  void place_masks() {
    const Shape4 shape{layout.ragged_queries ? 1 : args.batch, p.heads, args.q_len, mask_columns};
    mask = p.mask ? make(shape, EXATTN_F32) : Memory();
    mask_bool = p.mask_bool ? make(shape, EXATTN_U8) : Memory();
    for (std::size_t b = 0; b < sequences.size(); ++b) {
      const Sequence &s = *sequences[b];
      std::size_t n = 0;
      for (std::int64_t h = 0; h < p.heads && (p.mask || p.mask_bool); ++h) {
        for (std::int64_t i = 0; i < s.q_len; ++i) {
          for (std::int64_t j = 0; j < s.kv_len; ++j, ++n) {
            place_mask_entry(b, n, h, i, j);
          }
        }
      }
    }
    args.mask = p.mask ? mask.input() : args.mask;
    args.mask_bool = p.mask_bool ? mask_bool.input() : args.mask_bool;
  }

  void place_mask_entry(std::size_t b, std::size_t n, std::int64_t h, std::int64_t i, std::int64_t j) {
    const Sequence &s = *sequences[b];
    const Hidden why = layout.only_what_matters ? hidden(p, s, h, i, j) : Hidden::no;
    if (p.mask) {
      if (why == Hidden::no) {
        mask.store(s.mask[n], batch_of(b), h, row_of(b, i), j);
      } else {
        ++left_out.mask_entries;
      }
    }
    if (p.mask_bool) {
      if (why == Hidden::no || why == Hidden::mask_bool) {
        mask_bool.store(s.mask_bool[n], batch_of(b), h, row_of(b, i), j);
      } else {
        ++left_out.mask_bool_entries;
      }
    }
  }

  const CallProblem p;
  const std::vector<const Sequence *> sequences;
  const Layout layout;
  std::vector<float> sinks, slopes;
  std::vector<std::int64_t> q_offsets, kv_lens, q_starts, kv_starts;
  std::vector<std::int32_t> real_pages, page_table; // where pages are, and what the call is told
  std::int64_t mask_columns = 0;
  std::array<char, 256> message{};
};

} // namespace exattn::tests
