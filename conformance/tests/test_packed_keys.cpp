// Packed keys: where they lie, by hand; writing them, by ones and at once; and every error of that.
#include "problem.hpp"

#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using exattn::tests::some_numbers;

namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Memory of a cache, every byte A5 before it is written.
std::vector<unsigned char> empty_cache(std::int64_t batch, std::int64_t kv_heads, std::int64_t kv_len,
                                       std::int64_t head_dim, std::int32_t dtype) {
  std::size_t bytes = 0;
  REQUIRE(exattn_packed_keys_size(batch, kv_heads, kv_len, head_dim, dtype, &bytes) == EXATTN_OK);
  return std::vector<unsigned char>(bytes, 0xA5);
}

// A call that packs k [2, 3, count, 5], contiguous, into a cache of 37 keys: three groups.
struct Packing {
  explicit Packing(std::int32_t from = EXATTN_F32, std::int32_t to = EXATTN_F32, std::int64_t count = 37)
      : numbers(some_numbers(7, static_cast<std::size_t>(2 * 3 * count * 5))), halves(numbers.size()),
        cache(empty_cache(2, 3, 37, 5, to)) {
    for (std::size_t n = 0; n < halves.size(); ++n) {
      halves[n] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(numbers[n]) >> 7); // any patterns will do
    }
    args = EXATTN_PACK_KEYS_ARGS_INIT;
    args.batch = 2;
    args.kv_heads = 3;
    args.kv_len = 37;
    args.head_dim = 5;
    args.count = count;
    const void *const data = from == EXATTN_F32 ? static_cast<const void *>(numbers.data()) : halves.data();
    args.k = {data, from, 4, {3 * count * 5, count * 5, 5, 1}};
    args.packed = {cache.data(), to, 4, {3 * 240, 240, 80, 16}};
    args.message = message.data();
    args.message_size = message.size();
  }
  Packing(const Packing &) = delete;
  Packing &operator=(const Packing &) = delete;

  // Keys [key, key + many) of the tensor become those from `to` on.
  exattn_status append(std::int64_t key, std::int64_t many, std::int64_t to) {
    exattn_pack_keys_args part = args;
    part.k.data = static_cast<const unsigned char *>(args.k.data) + key * 5 * (args.k.dtype == EXATTN_F32 ? 4 : 2);
    part.count = many;
    part.first_key = to;
    return exattn_pack_keys(&part);
  }

  std::vector<float> numbers;
  std::vector<std::uint16_t> halves;
  std::vector<unsigned char> cache;
  std::vector<std::int64_t> first_keys{0, 0};
  std::vector<std::int32_t> page_table{2, 0, 5, 1, 3, 4}; // of pages of 16
  std::array<char, 256> message{};
  exattn_pack_keys_args args{};
};

constexpr std::int32_t kTypes[][2] = {{EXATTN_F32, EXATTN_F32},
                                      {EXATTN_BF16, EXATTN_BF16},
                                      {EXATTN_F16, EXATTN_F16},
                                      {EXATTN_BF16, EXATTN_F32},
                                      {EXATTN_F16, EXATTN_F32}};

// Row j sees key j alone, whatever the other places hold; its log-sum-exp is the score, q = (1, 100, 10000) times k.
void check_keys(exattn_attention_args &args, const std::vector<float> &scores) {
  const float q[] = {1.0F, 100.0F, 10000.0F};
  const std::vector<float> v(scores.size(), 1.0F);
  std::vector<float> out(scores.size()), lse(scores.size());
  const std::int64_t rows = static_cast<std::int64_t>(scores.size());
  args.batch = args.heads = args.kv_heads = args.value_dim = 1;
  args.q_len = args.kv_len = rows;
  args.head_dim = 3;
  args.q = {q, EXATTN_F32, 4, {0, 0, 0, 1}};
  args.v = {v.data(), EXATTN_F32, 4, {0, 0, 0, 0}};
  args.out = {out.data(), 0, 4, {0, 0, 1, 1}};
  args.lse = {lse.data(), 0, 3, {0, 0, 1, 0}};
  args.scale_mode = EXATTN_SCALE_GIVEN;
  args.scale = 1.0F;
  args.causal = 1;
  args.window = 1;
  for (std::int32_t lanes = EXATTN_LANES_SCALAR; lanes < EXATTN_LANES_COUNT; ++lanes) {
    args.lanes = lanes;
    if (exattn_attention(&args) == EXATTN_OK) {
      CHECK(lse == scores);
      CHECK(out == v);
    }
  }
}

} // namespace

TEST_CASE("packed keys: 20 keys of 3 elements lie where the definition says") {
  // Two groups of 48 numbers: element x of key j at 48 (j / 16) + 16 x + j % 16. Scores are k0 + 100 k1 + 10000 k2.
  std::vector<float> memory(96, kNan);
  std::vector<float> scores;
  for (std::size_t j = 0; j < 20; ++j) {
    const std::size_t place = j < 16 ? j : 48 + (j - 16);
    memory[place] = static_cast<float>(j);
    memory[place + 16] = static_cast<float>(j + 20);
    memory[place + 32] = static_cast<float>(j + 40);
    scores.push_back(static_cast<float>(j + 100 * (j + 20) + 10000 * (j + 40)));
  }
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.k = {memory.data(), EXATTN_F32, 4, {0, 0, 48, 16}};
  args.k_layout = EXATTN_K_PACKED;
  check_keys(args, scores);

  // The same written by the library, from elements that lie backward.
  std::vector<float> rows(60);
  for (std::size_t j = 0; j < 20; ++j) {
    for (std::size_t x = 0; x < 3; ++x) {
      rows[59 - (3 * j + x)] = static_cast<float>(j + 20 * x);
    }
  }
  std::vector<float> written(96, kNan);
  exattn_pack_keys_args pack = EXATTN_PACK_KEYS_ARGS_INIT;
  pack.batch = pack.kv_heads = 1;
  pack.kv_len = pack.count = 20;
  pack.head_dim = 3;
  pack.k = {rows.data() + 59, EXATTN_F32, 4, {0, 0, -3, -1}};
  pack.packed = {written.data(), EXATTN_F32, 4, {0, 0, 48, 16}};
  REQUIRE(exattn_pack_keys(&pack) == EXATTN_OK);
  CHECK(std::memcmp(written.data(), memory.data(), sizeof(float) * 96) == 0);

  // Groups further apart and last to first; each in a page; and as bfloat16, whose upper halves these numbers are.
  std::vector<float> apart(200, kNan);
  std::copy(memory.begin(), memory.begin() + 48, apart.begin() + 110);
  std::copy(memory.begin() + 48, memory.end(), apart.begin() + 10);
  args.k = {apart.data() + 110, EXATTN_F32, 4, {0, 0, -100, 16}};
  check_keys(args, scores);
  const std::int32_t pages[] = {1, 0};
  args.k = {apart.data() + 10, EXATTN_F32, 4, {100, 0, 0, 16}};
  args.page_table = pages;
  args.page_table_stride = args.pages = 2;
  args.page_size = 16;
  check_keys(args, scores);
  args.page_table = nullptr;
  args.page_table_stride = args.pages = args.page_size = 0;
  std::vector<std::uint16_t> upper;
  for (const float number : memory) {
    upper.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16));
  }
  args.k = {upper.data(), EXATTN_BF16, 4, {0, 0, 48, 16}};
  check_keys(args, scores);
}

TEST_CASE("packed keys: one row in pages of one group, each key with a weight of its own") {
  // Weights 1 to 40: the sum of j (j + 1) is 21320, that of j + 1 is 820, so the output is 26.
  std::vector<float> keys(48, kNan), values(48, kNan);
  for (std::size_t j = 0; j < 40; ++j) {
    const std::size_t place = (2 - j / 16) * 16 + j % 16;
    keys[place] = std::log(static_cast<float>(j + 1));
    values[place] = static_cast<float>(j);
  }
  const float q = 1.0F;
  const std::int32_t table[] = {2, 1, 0};
  float out = 0;
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.batch = args.heads = args.kv_heads = args.q_len = args.head_dim = args.value_dim = 1;
  args.kv_len = 40;
  args.q = {&q, EXATTN_F32, 4, {0, 0, 0, 1}};
  args.k = {keys.data(), EXATTN_F32, 4, {16, 16, 16, 16}};
  args.k_layout = EXATTN_K_PACKED;
  args.v = {values.data(), EXATTN_F32, 4, {16, 16, 1, 1}};
  args.out = {&out, 0, 4, {1, 1, 1, 1}};
  args.page_table = table;
  args.page_table_stride = args.pages = 3;
  args.page_size = 16;
  for (std::int32_t lanes = EXATTN_LANES_SCALAR; lanes < EXATTN_LANES_COUNT; ++lanes) {
    args.lanes = lanes;
    if (exattn_attention(&args) == EXATTN_OK) {
      CHECK(out == doctest::Approx(26.0).epsilon(1e-5));
      out = 0;
    }
  }
}

TEST_CASE("packed keys: ragged sequences begin at groups, and one without keys anywhere") {
  // Means of the values of keys 0 to 2 and 16 to 19, V_j = j: 1 and 17.5; the sequence between has none: 0.
  std::vector<float> keys(32, kNan), values(32);
  for (std::size_t j = 0; j < 32; ++j) {
    values[j] = static_cast<float>(j);
    keys[j] = j < 3 || (j >= 16 && j < 20) ? 0.0F : kNan;
  }
  const float q = 1.0F;
  float out[3] = {};
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.batch = 3;
  args.heads = args.kv_heads = args.q_len = args.head_dim = args.value_dim = 1;
  args.kv_len = 20;
  args.q = {&q, EXATTN_F32, 4, {0, 0, 0, 1}};
  args.k = {keys.data(), EXATTN_F32, 4, {0, 0, 16, 16}};
  args.k_layout = EXATTN_K_PACKED;
  args.v = {values.data(), EXATTN_F32, 4, {0, 0, 1, 1}};
  args.out = {out, 0, 4, {1, 1, 1, 1}};
  const std::int64_t starts[] = {0, 7, 16, 20};
  const std::int64_t lens[] = {3, 0, 4};
  args.kv_starts = starts;
  args.kv_lens = lens;
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  CHECK(std::vector<float>(out, out + 3) == std::vector<float>{1.0F, 0.0F, 17.5F});
}

TEST_CASE("packed keys: a group is read whole, and holds keys of one sequence") {
  // One group of which 5 keys are there, and an output in the place of a sixteenth; behind the group it is none of it.
  std::vector<float> keys(17, 0.0F);
  const std::vector<float> values(5, 2.0F);
  const float q = 1.0F;
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.batch = args.heads = args.kv_heads = args.q_len = args.head_dim = args.value_dim = 1;
  args.kv_len = 5;
  args.q = {&q, EXATTN_F32, 4, {0, 0, 0, 1}};
  args.k = {keys.data(), EXATTN_F32, 4, {0, 0, 16, 16}};
  args.k_layout = EXATTN_K_PACKED;
  args.v = {values.data(), EXATTN_F32, 4, {0, 0, 1, 1}};
  args.out = {keys.data() + 15, 0, 4, {1, 1, 1, 1}};
  CHECK(exattn_attention(&args) == EXATTN_ERROR_OVERLAP);
  CHECK(keys == std::vector<float>(17, 0.0F));
  args.out.data = keys.data() + 16;
  CHECK(exattn_attention(&args) == EXATTN_OK);
  CHECK(keys[16] == 2.0F);

  // Of two sequences the second begins at key 3.
  const std::int64_t starts[] = {0, 3, 5};
  float out[2] = {7.0F, 7.0F};
  args.batch = 2;
  args.kv_starts = starts;
  args.out.data = out;
  CHECK(exattn_attention(&args) == EXATTN_ERROR_OFFSET);
  CHECK(std::vector<float>(out, out + 2) == std::vector<float>{7.0F, 7.0F});
}

TEST_CASE("packed keys: one after the other, or at once, the same bytes") {
  for (const auto &types : kTypes) {
    INFO("from " << types[0] << " to " << types[1]);
    Packing at_once(types[0], types[1]);
    Packing by_ones(types[0], types[1]);
    Packing in_parts(types[0], types[1]);
    REQUIRE(exattn_pack_keys(&at_once.args) == EXATTN_OK);
    CHECK(std::string(at_once.message.data()).empty());
    for (std::int64_t key = 0; key < 37; ++key) {
      REQUIRE(by_ones.append(key, 1, key) == EXATTN_OK);
    }
    for (const std::int64_t key : {35, 0, 13, 24}) { // in any order
      const std::int64_t end = key == 0 ? 13 : key == 13 ? 24 : key == 24 ? 35 : 37;
      REQUIRE(in_parts.append(key, end - key, key) == EXATTN_OK);
    }
    CHECK(by_ones.cache == at_once.cache);
    CHECK(in_parts.cache == at_once.cache);

    // Element x of key j of (b, h), and A5 where there is no key.
    const std::size_t width = types[1] == EXATTN_F32 ? 4 : 2;
    for (std::size_t b = 0; b < 2; ++b) {
      for (std::size_t h = 0; h < 3; ++h) {
        for (std::size_t j = 0; j < 48; ++j) {
          for (std::size_t x = 0; x < 5; ++x) {
            const std::size_t from = ((b * 3 + h) * 37 + j) * 5 + x;
            const std::size_t to = (b * 3 + h) * 240 + j / 16 * 80 + x * 16 + j % 16;
            unsigned char expected[4] = {0xA5, 0xA5, 0xA5, 0xA5};
            if (j < 37 && types[0] == EXATTN_F32) {
              std::memcpy(expected, &at_once.numbers[from], 4);
            } else if (j < 37 && types[1] != EXATTN_F32) {
              std::memcpy(expected, &at_once.halves[from], 2);
            } else if (j < 37 && types[0] == EXATTN_BF16) {
              const std::uint32_t pattern = std::uint32_t{at_once.halves[from]} << 16;
              std::memcpy(expected, &pattern, 4);
            } else if (j < 37) {
              continue; // binary16 widened: below, by hand
            }
            REQUIRE(std::memcmp(expected, &at_once.cache[to * width], width) == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("packed keys: binary16 is widened to its value, and copies keep every bit") {
  // 1, -2, the largest, the smallest subnormal, -0, -inf.
  const std::uint16_t halves[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8000, 0xFC00};
  const std::uint32_t widened[] = {0x3F800000, 0xC0000000, 0x477FE000, 0x33800000, 0x80000000, 0xFF800000};
  std::uint32_t cache[16 * 6] = {};
  exattn_pack_keys_args args = EXATTN_PACK_KEYS_ARGS_INIT;
  args.batch = args.kv_heads = args.kv_len = args.count = 1;
  args.head_dim = 6;
  args.k = {halves, EXATTN_F16, 4, {0, 0, 0, 1}};
  args.packed = {cache, EXATTN_F32, 4, {0, 0, 0, 16}};
  REQUIRE(exattn_pack_keys(&args) == EXATTN_OK);
  for (std::size_t x = 0; x < 6; ++x) {
    CHECK(cache[16 * x] == widened[x]);
  }
  // Signalling NaNs, and patterns that no arithmetic gives.
  const std::uint32_t patterns[] = {0x7F800001, 0xFFA5A5A5, 0x00000001, 0x80000000, 0x7FC00000, 0xFFFFFFFF};
  args.k = {patterns, EXATTN_F32, 4, {0, 0, 0, 1}};
  REQUIRE(exattn_pack_keys(&args) == EXATTN_OK);
  for (std::size_t x = 0; x < 6; ++x) {
    CHECK(cache[16 * x] == patterns[x]);
  }
}

TEST_CASE("packed keys: into pages, each sequence from its own place on") {
  // Keys 14 to 20 and 30 to 36 in pages 2, 0, 5 and 1, 3, 4 are those of a cache without pages, page by page.
  Packing apart(EXATTN_F32, EXATTN_F32, 7);
  apart.first_keys = {14, 30};
  apart.args.first_key = -1; // first_keys takes its place
  apart.args.first_keys = apart.first_keys.data();
  REQUIRE(exattn_pack_keys(&apart.args) == EXATTN_OK);

  Packing paged(EXATTN_F32, EXATTN_F32, 7);
  std::vector<unsigned char> pool = empty_cache(6, 3, 16, 5, EXATTN_F32);
  paged.first_keys = apart.first_keys;
  paged.args.first_keys = paged.first_keys.data();
  paged.args.packed = {pool.data(), EXATTN_F32, 4, {240, 80, 80, 16}};
  std::vector<std::int32_t> table = paged.page_table;
  table[2] = -1; // no key of sequence 0 goes there, nor into the first page of sequence 1
  table[3] = 77;
  paged.args.page_table = table.data();
  paged.args.page_table_stride = 3;
  paged.args.page_size = 16;
  paged.args.pages = 6;
  REQUIRE(exattn_pack_keys(&paged.args) == EXATTN_OK);
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t h = 0; h < 3; ++h) {
      for (std::size_t group = 0; group < 3; ++group) {
        const std::size_t page = static_cast<std::size_t>(paged.page_table[b * 3 + group]);
        CHECK(std::memcmp(&pool[(page * 3 + h) * 320], &apart.cache[((b * 3 + h) * 3 + group) * 320], 320) == 0);
      }
    }
  }
}

TEST_CASE("packed keys: sizes") {
  struct Size {
    std::int64_t batch, kv_heads, kv_len, head_dim;
    std::int32_t dtype;
    exattn_status status;
    std::size_t bytes; // 77: as before
  };
  const Size sizes[] = {
      {1, 1, 1, 1, EXATTN_F32, EXATTN_OK, 64},
      {2, 3, 16, 5, EXATTN_BF16, EXATTN_OK, 2 * 3 * 80 * 2},
      {2, 3, 17, 5, EXATTN_F16, EXATTN_OK, 2 * 3 * 160 * 2},
      {0, 3, 17, 5, EXATTN_F32, EXATTN_OK, 0},
      {2, 3, 0, 5, EXATTN_F32, EXATTN_OK, 0},
      {1, 1, std::int64_t{1} << 56, 1, EXATTN_F32, EXATTN_OK, std::size_t{1} << 58},
      {1, 1, kHuge, 1, EXATTN_F32, EXATTN_ERROR_OVERFLOW, 77},
      {1, kHuge, 1, 1, EXATTN_BF16, EXATTN_ERROR_OVERFLOW, 77},
      {1, 1, 1, kHuge, EXATTN_F32, EXATTN_ERROR_OVERFLOW, 77},
      {-1, 1, 1, 1, EXATTN_F32, EXATTN_ERROR_SIZE, 77},
      {1, -1, 1, 1, EXATTN_F32, EXATTN_ERROR_SIZE, 77},
      {1, 1, -1, 1, EXATTN_F32, EXATTN_ERROR_SIZE, 77},
      {1, 1, 1, 0, EXATTN_F32, EXATTN_ERROR_SIZE, 77},
      {1, 1, 1, 1, EXATTN_U8, EXATTN_ERROR_ENUM, 77},
  };
  for (const Size &size : sizes) {
    std::size_t bytes = 77;
    CHECK(exattn_packed_keys_size(size.batch, size.kv_heads, size.kv_len, size.head_dim, size.dtype, &bytes) ==
          size.status);
    CHECK(bytes == size.bytes);
  }
  CHECK(exattn_packed_keys_size(1, 1, 1, 1, EXATTN_F32, nullptr) == EXATTN_ERROR_NULL);
}

TEST_CASE("packed keys: every error of packing has its status and its words, and nothing is written") {
  struct Provocation {
    const char *what;
    exattn_status status;
    const char *words;
    std::function<void(Packing &)> spoil;
  };
  const auto use_pages = [](Packing &p) { // in the same memory: [6, 3, 16, 5]
    p.args.packed.stride[0] = 240;
    p.args.packed.stride[1] = p.args.packed.stride[2] = 80;
    p.args.page_table = p.page_table.data();
    p.args.page_table_stride = 3;
    p.args.page_size = 16;
    p.args.pages = 6;
  };
  const Provocation provocations[] = {
      {"struct_size", EXATTN_ERROR_STRUCT_SIZE, "", [](Packing &p) { ++p.args.struct_size; }},
      {"batch", EXATTN_ERROR_SIZE, "batch is -1, must be 0 or more", [](Packing &p) { p.args.batch = -1; }},
      {"kv_heads", EXATTN_ERROR_SIZE, "kv_heads is -2", [](Packing &p) { p.args.kv_heads = -2; }},
      {"kv_len", EXATTN_ERROR_SIZE, "kv_len is -1", [](Packing &p) { p.args.kv_len = -1; }},
      {"head_dim", EXATTN_ERROR_SIZE, "head_dim is 0, must be 1 or more", [](Packing &p) { p.args.head_dim = 0; }},
      {"head_dim too large", EXATTN_ERROR_OVERFLOW, "may be at most 2^40", [](Packing &p) { p.args.head_dim = kHuge; }},
      {"count", EXATTN_ERROR_SIZE, "count is -1", [](Packing &p) { p.args.count = -1; }},
      {"more than fits", EXATTN_ERROR_OFFSET, "count is 38, must be at most kv_len, 37",
       [](Packing &p) { p.args.count = 38; }},
      {"first_key -1", EXATTN_ERROR_OFFSET, "first_key is -1, must be 0 to kv_len 37 - count 37",
       [](Packing &p) { p.args.first_key = -1; }},
      {"first_key 1", EXATTN_ERROR_OFFSET, "first_key is 1, must be 0 to kv_len 37 - count 37",
       [](Packing &p) { p.args.first_key = 1; }},
      {"first_keys", EXATTN_ERROR_OFFSET, "first_keys[1] is -1, must be 0 to kv_len 37 - count 37",
       [](Packing &p) {
         p.first_keys[1] = -1;
         p.args.first_keys = p.first_keys.data();
       }},
      {"first_keys alignment", EXATTN_ERROR_ALIGNMENT, "first_keys must be aligned to 8 bytes",
       [](Packing &p) {
         p.args.first_keys =
             reinterpret_cast<const std::int64_t *>(reinterpret_cast<std::uintptr_t>(p.first_keys.data()) + 4);
       }},
      {"k null", EXATTN_ERROR_NULL, "k.data is null, but [batch, kv_heads, count, head_dim] has 1110 elements",
       [](Packing &p) { p.args.k.data = nullptr; }},
      {"k dtype", EXATTN_ERROR_ENUM, "k.dtype is 3", [](Packing &p) { p.args.k.dtype = EXATTN_U8; }},
      {"k rank", EXATTN_ERROR_STRIDES, "k.rank is 0, must be 4", [](Packing &p) { p.args.k.rank = 0; }},
      {"k strides", EXATTN_ERROR_OVERFLOW, "k: its strides", [](Packing &p) { p.args.k.stride[0] = kHuge; }},
      {"k alignment", EXATTN_ERROR_ALIGNMENT, "k.data must be aligned to 4 bytes",
       [](Packing &p) { p.args.k.data = static_cast<const unsigned char *>(p.args.k.data) + 2; }},
      {"packed null", EXATTN_ERROR_NULL,
       "packed.data is null, but [batch, kv_heads, kv_len / 16 rounded up, 16 * head_dim] has 1440 elements",
       [](Packing &p) { p.args.packed.data = nullptr; }},
      {"packed dtype", EXATTN_ERROR_ENUM, "packed.dtype is 4", [](Packing &p) { p.args.packed.dtype = 4; }},
      {"narrower", EXATTN_ERROR_ENUM, "packed.dtype is 1, must be k's, 0, or EXATTN_F32 (0)",
       [](Packing &p) { p.args.packed.dtype = EXATTN_BF16; }},
      {"another of 16 bits", EXATTN_ERROR_ENUM, "packed.dtype is 1, must be k's, 2, or EXATTN_F32 (0)",
       [](Packing &p) {
         p.args.k.dtype = EXATTN_F16;
         p.args.packed.dtype = EXATTN_BF16;
       }},
      {"packed rank", EXATTN_ERROR_STRIDES, "packed.rank is 5, must be 4", [](Packing &p) { p.args.packed.rank = 5; }},
      {"packed elements", EXATTN_ERROR_STRIDES, "packed.stride[3] is 1, must be 16",
       [](Packing &p) { p.args.packed.stride[3] = 1; }},
      {"packed strides", EXATTN_ERROR_OVERFLOW, "packed: its strides",
       [](Packing &p) { p.args.packed.stride[1] = -kHuge; }},
      {"packed elements of 64 bits", EXATTN_ERROR_OVERFLOW, "packed [batch, kv_heads, kv_len / 16 rounded up",
       [](Packing &p) { p.args.kv_len = kHuge; }},
      {"packed alignment", EXATTN_ERROR_ALIGNMENT, "packed.data must be aligned to 4 bytes",
       [](Packing &p) { p.args.packed.data = p.cache.data() + 1; }},
      {"heads that overlap", EXATTN_ERROR_OVERLAP, "packed.stride puts two elements of packed [batch, kv_heads",
       [](Packing &p) { p.args.packed.stride[1] = 239; }},
      {"groups that overlap", EXATTN_ERROR_OVERLAP, "packed.stride puts two elements",
       [](Packing &p) { p.args.packed.stride[2] = 79; }},
      {"a batch in one place", EXATTN_ERROR_OVERLAP, "packed.stride puts two elements",
       [](Packing &p) { p.args.packed.stride[0] = 0; }},
      {"k in the cache", EXATTN_ERROR_OVERLAP, "packed overlaps k, must share no memory with it",
       [](Packing &p) { p.args.k.data = p.cache.data() + 1439 * 4; }},
      {"k in a place that gets no key", EXATTN_ERROR_OVERLAP, "packed overlaps k",
       [](Packing &p) {
         p.args.count = 1;
         p.args.k.data = p.cache.data() + 80 * 4; // key 16
         p.args.k.stride[0] = p.args.k.stride[1] = p.args.k.stride[3] = 0;
       }},
      {"first_keys in the cache", EXATTN_ERROR_OVERLAP, "packed overlaps first_keys",
       [](Packing &p) {
         std::memset(p.cache.data() + 16, 0, 16);
         p.args.first_keys = reinterpret_cast<const std::int64_t *>(p.cache.data() + 16);
       }},
      {"pages without a table", EXATTN_ERROR_OPTION, "page_size is 16, but page_table is null",
       [](Packing &p) { p.args.page_size = 16; }},
      {"page_size 0", EXATTN_ERROR_SIZE, "page_size is 0",
       [&](Packing &p) {
         use_pages(p);
         p.args.page_size = 0;
       }},
      {"page_size 8", EXATTN_ERROR_OPTION, "page_size is 8, must be a multiple of 16 where keys are packed",
       [&](Packing &p) {
         use_pages(p);
         p.args.page_size = 8;
       }},
      {"page_table_stride", EXATTN_ERROR_OPTION, "page_table_stride is 2, must be 3 or more",
       [&](Packing &p) {
         use_pages(p);
         p.args.page_table_stride = 2;
       }},
      {"page_table alignment", EXATTN_ERROR_ALIGNMENT, "page_table must be aligned to 4 bytes",
       [&](Packing &p) {
         use_pages(p);
         p.args.page_table =
             reinterpret_cast<const std::int32_t *>(reinterpret_cast<std::uintptr_t>(p.page_table.data()) + 1);
       }},
      {"page_table far away", EXATTN_ERROR_OVERFLOW, "page_table",
       [&](Packing &p) {
         use_pages(p);
         p.args.page_table_stride = kHuge;
       }},
      {"a page that there is not", EXATTN_ERROR_PAGE,
       "page_table: entry 2 of sequence 1 is 6, must be 0 or more and below pages, 6",
       [&](Packing &p) {
         use_pages(p);
         p.page_table[5] = 6;
       }},
      {"a page twice", EXATTN_ERROR_OVERLAP, "page_table: two keys of the call go to one slot of page 3",
       [&](Packing &p) {
         use_pages(p);
         p.page_table[0] = 3;
       }},
      {"a page twice, one slot in both", EXATTN_ERROR_OVERLAP,
       "page_table: two keys of the call go to one slot of page 5",
       [&](Packing &p) {
         use_pages(p);
         p.args.count = 5;
         p.first_keys = {0, 20}; // slots 0 to 4, and 4 to 8
         p.args.first_keys = p.first_keys.data();
         p.page_table = {5, 0, 1, 2, 5, 3};
       }},
      {"page_table in the cache", EXATTN_ERROR_OVERLAP, "packed overlaps page_table",
       [&](Packing &p) {
         use_pages(p);
         std::memcpy(p.cache.data() + 64, p.page_table.data(), 24);
         p.args.page_table = reinterpret_cast<const std::int32_t *>(p.cache.data() + 64);
       }},
  };
  for (const Provocation &provocation : provocations) {
    INFO(std::string(provocation.what));
    Packing p;
    provocation.spoil(p);
    const std::vector<unsigned char> before = p.cache;
    const exattn_status status = exattn_pack_keys(&p.args);
    INFO(std::string(p.message.data()));
    CHECK(std::string(exattn_status_name(status)) == exattn_status_name(provocation.status));
    CHECK(std::string(p.message.data()).find(provocation.words) != std::string::npos);
    CHECK(p.cache == before);
  }
  CHECK(exattn_pack_keys(nullptr) == EXATTN_ERROR_NULL);
}

TEST_CASE("packed keys: what looks wrong but is not") {
  // No key to write: nothing is read, and no place is needed for it.
  Packing nothing;
  nothing.args.count = 0;
  nothing.args.k.data = nullptr;
  nothing.args.first_key = 37;
  CHECK(exattn_pack_keys(&nothing.args) == EXATTN_OK);
  CHECK(nothing.cache == std::vector<unsigned char>(nothing.cache.size(), 0xA5));
  nothing.args.batch = 0;
  nothing.args.packed.data = nullptr;
  CHECK(exattn_pack_keys(&nothing.args) == EXATTN_OK);

  // Two sequences that share a page, but no slot of it.
  Packing shared(EXATTN_F32, EXATTN_F32, 4);
  shared.args.packed.stride[0] = 240;
  shared.args.packed.stride[1] = shared.args.packed.stride[2] = 80;
  shared.page_table = {5, 0, 1, 2, 5, 3};
  shared.args.page_table = shared.page_table.data();
  shared.args.page_table_stride = 3;
  shared.args.page_size = 16;
  shared.args.pages = 6;
  shared.first_keys = {0, 20};
  shared.args.first_keys = shared.first_keys.data();
  CHECK(exattn_pack_keys(&shared.args) == EXATTN_OK);

  // A key for all: strides of 0 in k.
  Packing broadcast;
  std::fill(broadcast.args.k.stride, broadcast.args.k.stride + 3, 0);
  REQUIRE(exattn_pack_keys(&broadcast.args) == EXATTN_OK);
  for (std::size_t j = 0; j < 16; ++j) {
    CHECK(std::memcmp(&broadcast.cache[4 * (720 + 16 + j)], &broadcast.numbers[1], 4) == 0);
  }
}
