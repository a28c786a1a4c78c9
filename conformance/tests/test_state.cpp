// States: their bytes by hand, going on from them, and what is refused.
#include "problem.hpp"
#include "state.hpp"
#include "state_bytes.hpp"

#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using exattn::tests::GuardedOutput;
using exattn::tests::Problem;
using exattn::tests::StateBytes;

namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::uint32_t kMinusInfinity = 0xFF800000;

std::uint32_t bits(float value) {
  std::uint32_t pattern = 0;
  std::memcpy(&pattern, &value, sizeof(pattern));
  return pattern;
}

std::size_t state_size(const exattn_attention_args &args) {
  std::size_t bytes = 0;
  REQUIRE(exattn_attention_state_size(&args, &bytes) == EXATTN_OK);
  return bytes;
}

std::string name(exattn_status status) {
  return exattn_status_name(status);
}

// All logits 0, and the value of key j is j in every column.
void make_counting(Problem &problem) {
  problem.q.assign(problem.q.size(), 0.0F);
  for (std::size_t n = 0; n < problem.v.size(); ++n) {
    const std::size_t row = n / static_cast<std::size_t>(problem.args.value_dim);
    problem.v[n] = static_cast<float>(row % static_cast<std::size_t>(problem.args.kv_len));
  }
}

// The part of a problem's call over its keys [from, to), which starts at `state` unless that is empty.
exattn_attention_args part_of(const Problem &problem, std::int64_t from, std::int64_t to, const Bytes &state) {
  exattn_attention_args args = problem.args;
  args.kv_len = to - from;
  args.kv_offset = from;
  args.k.data = static_cast<const float *>(args.k.data) + from * args.k.stride[2];
  args.v.data = static_cast<const float *>(args.v.data) + from * args.v.stride[2];
  if (args.mask.data != nullptr) {
    args.mask.data = static_cast<const float *>(args.mask.data) + from * args.mask.stride[3];
  }
  if (!state.empty()) {
    args.state_in = state.data();
    args.state_in_size = state.size();
  }
  return args;
}

void write_to(exattn_attention_args &args, Bytes &state) {
  args.state_out = state.data();
  args.state_out_size = state.size();
}

// The state after a problem's first block.
Bytes first_block(const Problem &problem) {
  Bytes state(state_size(problem.args));
  exattn_attention_args args = part_of(problem, 0, 64, {});
  args.out.data = args.lse.data = nullptr;
  write_to(args, state);
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  return state;
}

} // namespace

TEST_CASE("state: sizes") {
  Problem problem(2, 4, 2, 3, 5, 6, 7);
  CHECK(state_size(problem.args) == 64 + 2 * 8 + 2 * 4 * 3 * 4 * (3 + 7));
  const std::vector<std::int64_t> starts = {0, 1, 3};
  problem.args.q_starts = starts.data();
  CHECK(state_size(problem.args) == 64 + 2 * 8 + 4 * 3 * 4 * (3 + 7));
  problem.args.heads = problem.args.kv_heads = 0;
  CHECK(state_size(problem.args) == 64 + 2 * 8);
  problem.args.batch = 0;
  CHECK(state_size(problem.args) == 64);

  // Sizes only are asked for.
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  args.batch = args.heads = args.kv_heads = args.q_len = args.head_dim = args.value_dim = 1;
  CHECK(state_size(args) == 64 + 8 + 16);
  std::size_t bytes = 77;
  args.value_dim = 0;
  CHECK(exattn_attention_state_size(&args, &bytes) == EXATTN_ERROR_SIZE);
  args.value_dim = 1;
  args.heads = 3;
  args.kv_heads = 2;
  CHECK(exattn_attention_state_size(&args, &bytes) == EXATTN_ERROR_HEADS);
  args.kv_heads = 3;
  args.batch = std::int64_t{1} << 60;
  CHECK(exattn_attention_state_size(&args, &bytes) == EXATTN_ERROR_OVERFLOW);
  args.heads = args.kv_heads = 0; // no row, but 2^63 bytes of ends
  CHECK(exattn_attention_state_size(&args, &bytes) == EXATTN_ERROR_OVERFLOW);
  CHECK(exattn_attention_state_size(nullptr, &bytes) == EXATTN_ERROR_NULL);
  CHECK(exattn_attention_state_size(&args, nullptr) == EXATTN_ERROR_NULL);
  args.struct_size = 1;
  CHECK(exattn_attention_state_size(&args, &bytes) == EXATTN_ERROR_STRUCT_SIZE);
  CHECK(bytes == 77);
}

TEST_CASE("state: every byte of it, by hand") {
  // 64 keys of the one sequence, 3 of the other, all weights 1: sums of 0 to 63 and of 0 to 2.
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    for (const std::size_t shift : {0U, 1U, 3U}) { // at any address
      Problem problem(2, 1, 1, 1, 64, 3, 2);
      make_counting(problem);
      problem.args.flavour = flavour;
      problem.kv_lens = {64, 3};
      problem.args.kv_lens = problem.kv_lens.data();
      Bytes memory(shift + state_size(problem.args) + 9, 0xA5);
      problem.args.state_out = memory.data() + shift;
      problem.args.state_out_size = memory.size() - shift; // more than it needs
      problem.args.out.data = nullptr;
      problem.args.out.rank = 0;
      INFO(problem.text());
      REQUIRE(problem.run() == EXATTN_OK);
      const Bytes expected =
          StateBytes{static_cast<std::uint32_t>(flavour), 2, 1, 1, 2, 64, 0, {64, 3}}.bytes(std::vector<std::uint32_t>{
              0, bits(64.0F), 1, bits(2016.0F), bits(2016.0F), 0, bits(3.0F), 1, bits(3.0F), bits(3.0F)});
      CHECK(Bytes(memory.begin() + static_cast<std::ptrdiff_t>(shift), memory.end() - 9) == expected);
      CHECK(Bytes(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(shift)) == Bytes(shift, 0xA5));
      CHECK(Bytes(memory.end() - 9, memory.end()) == Bytes(9, 0xA5));
      CHECK(problem.out.untouched());
    }
  }
}

TEST_CASE("state: rows with a sink, without a key, and with -0 or NaN") {
  // One sequence, 6 heads of one row, 5 keys; causal from position 0, so the row sees key 0, of value 0. The last
  // head's score is NaN.
  Problem problem(1, 6, 6, 1, 5, 1, 1);
  make_counting(problem);
  problem.use_mask();
  problem.mask.assign(problem.mask.size(), 0.0F);
  problem.mask[4 * 5] = -0.0F; // with a product of -0 a score of -0
  problem.mask[5 * 5] = -std::numeric_limits<float>::quiet_NaN();
  problem.args.scale_mode = EXATTN_SCALE_GIVEN;
  problem.args.scale = -1.0F;
  problem.args.causal = 1;
  const float infinity = std::numeric_limits<float>::infinity();
  problem.sinks = {0.0F, -infinity, infinity, -std::numeric_limits<float>::quiet_NaN(), -infinity, -infinity};
  problem.args.sinks = problem.sinks.data();
  Bytes state(state_size(problem.args));
  write_to(problem.args, state);
  REQUIRE(problem.run() == EXATTN_OK);
  // The NaN score is no maximum, its weight is NaN, and NaN * 0 too. The next key is 5 rounded up.
  CHECK(state ==
        StateBytes{0, 1, 6, 1, 1, 64, 0, {5}}.bytes(std::vector<std::uint32_t>{0,
                                                                               bits(2.0F),
                                                                               3,
                                                                               0, // e^0 of the sink and of the key
                                                                               0,
                                                                               bits(1.0F),
                                                                               1,
                                                                               0, // as without a sink
                                                                               0,
                                                                               0x7FC00000,
                                                                               3,
                                                                               0, // l = NaN
                                                                               0,
                                                                               0x7FC00000,
                                                                               3,
                                                                               0, // l = NaN
                                                                               0,
                                                                               bits(1.0F),
                                                                               1,
                                                                               0, // m = -0, written as +0
                                                                               kMinusInfinity,
                                                                               0x7FC00000,
                                                                               1,
                                                                               0x7FC00000} // nothing but NaN
                                                    ));

  // No key at all.
  problem.sinks = {-1.5F, -infinity, infinity, 0.0F, -0.0F, 2.0F};
  problem.args.kv_len = 0;
  problem.args.mask.data = nullptr;
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(state == StateBytes{0, 1, 6, 1, 1, 0, 0, {0}}.bytes(std::vector<std::uint32_t>{bits(-1.5F),
                                                                                       bits(1.0F),
                                                                                       2,
                                                                                       0, //
                                                                                       kMinusInfinity,
                                                                                       0,
                                                                                       0,
                                                                                       0, //
                                                                                       kMinusInfinity,
                                                                                       0x7FC00000,
                                                                                       2,
                                                                                       0, //
                                                                                       0,
                                                                                       bits(1.0F),
                                                                                       2,
                                                                                       0, //
                                                                                       0,
                                                                                       bits(1.0F),
                                                                                       2,
                                                                                       0, // m = -0
                                                                                       bits(2.0F),
                                                                                       bits(1.0F),
                                                                                       2,
                                                                                       0}));
}

TEST_CASE("state: of ragged sequences, with rows of none") {
  // 5 rows of 2 heads, of which row 1 is sequence 0's and rows 2 and 3 sequence 2's; sequence 1 has none. Keys 3,
  // 70, 1.
  Problem problem(3, 2, 1, 5, 74, 1, 1);
  problem.q.assign(problem.q.size(), 0.0F);
  problem.v.assign(problem.v.size(), 1.0F);
  const std::vector<std::int64_t> q_starts = {1, 2, 2, 4};
  const std::vector<std::int64_t> kv_starts = {0, 3, 73, 74};
  problem.args.q_starts = q_starts.data();
  problem.args.kv_starts = kv_starts.data();
  problem.args.kv_offset = 640;
  Bytes state(state_size(problem.args), 0xA5);
  write_to(problem.args, state);
  REQUIRE(problem.run() == EXATTN_OK);
  std::vector<std::uint32_t> rows;
  for (int h = 0; h < 2; ++h) {
    for (const float keys : {0.0F, 3.0F, 1.0F, 1.0F, 0.0F}) {
      rows.insert(rows.end(), {0, bits(keys), keys == 0.0F ? 0U : 1U, bits(keys)});
    }
  }
  // 640 + 70 = 710, and 12 * 64 = 768.
  CHECK(state == StateBytes{0, 3, 2, 5, 1, 768, 1, {643, 710, 641}}.bytes(rows));

  // In place, without further keys: the same but for the next key.
  const std::vector<std::int64_t> no_keys = {0, 0, 0, 0};
  problem.args.kv_starts = no_keys.data();
  problem.args.kv_offset = 768;
  problem.args.state_in = state.data();
  problem.args.state_in_size = state.size();
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(state == StateBytes{0, 3, 2, 5, 1, 768, 1, {643, 710, 641}}.bytes(rows));
}

TEST_CASE("state: going on gives the values of one call") {
  // 64 keys, then 64 more: 0 to 127 have the mean 63.5.
  for (const bool in_place : {false, true}) {
    Problem problem(1, 2, 1, 3, 128, 2, 2);
    make_counting(problem);
    problem.use_lse();
    Bytes first(state_size(problem.args));
    exattn_attention_args args = part_of(problem, 0, 64, {});
    args.state_out = first.data();
    args.state_out_size = first.size();
    REQUIRE(exattn_attention(&args) == EXATTN_OK);
    CHECK(problem.out.values() == std::vector<float>(12, 31.5F));
    const Bytes kept = first;
    Bytes second(first.size());
    args = part_of(problem, 64, 128, first);
    args.state_out = in_place ? first.data() : second.data();
    args.state_out_size = second.size();
    REQUIRE(exattn_attention(&args) == EXATTN_OK);
    CHECK(problem.out.values() == std::vector<float>(12, 63.5F));
    for (const float lse : problem.lse.values()) {
      CHECK(std::fabs(lse - std::log(128.0)) <= 1e-6);
    }
    std::vector<std::uint32_t> rows;
    for (int row = 0; row < 6; ++row) {
      rows.insert(rows.end(), {0, bits(128.0F), 1, bits(8128.0F), bits(8128.0F)});
    }
    CHECK((in_place ? first : second) == StateBytes{0, 1, 2, 3, 2, 128, 0, {128}}.bytes(rows));
    CHECK((in_place || first == kept));
  }
}

TEST_CASE("state: without state_in rows start afresh at kv_offset") {
  // Keys 64 to 67 alone: mean 65.5; the window hides 64 and 65, so 66.5.
  Problem problem(1, 1, 1, 1, 68, 1, 1);
  make_counting(problem);
  exattn_attention_args args = part_of(problem, 64, 68, {});
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  CHECK(problem.out.values() == std::vector<float>{65.5F});
  args.q_offset = 67;
  args.causal = 1;
  args.window = 2;
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  CHECK(problem.out.values() == std::vector<float>{66.5F});
}

TEST_CASE("state: going on gives the bits of one call") {
  struct Options {
    const char *what;
    void (*set)(Problem &problem);
  };
  const Options all[] = {
      {"plain", [](Problem &) {}},
      {"sinks", [](Problem &p) { p.args.sinks = p.sinks.data(); }},
      {"causal",
       [](Problem &p) {
         p.args.causal = 1;
         p.args.q_offset = 100;
       }},
      {"window",
       [](Problem &p) {
         p.args.window = 70;
         p.args.q_offset = 120;
       }},
      {"mask", [](Problem &p) { p.use_mask(); }},
      {"softcap and slopes",
       [](Problem &p) {
         p.args.softcap = 0.5F;
         p.args.alibi_slopes = p.sinks.data();
       }},
  };
  for (const Options &options : all) {
    for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
      INFO(options.what << " " << exattn_flavour_name(flavour));
      Problem problem(2, 4, 2, 35, 200, 6, 5);
      problem.use_lse();
      problem.args.flavour = flavour;
      options.set(problem);
      REQUIRE(problem.run() == EXATTN_OK);
      const std::vector<std::uint32_t> out = problem.out.bits();
      const std::vector<std::uint32_t> lse = problem.lse.bits();
      Bytes whole(state_size(problem.args));
      problem.args.state_out = whole.data();
      problem.args.state_out_size = whole.size();
      REQUIRE(problem.run() == EXATTN_OK);
      CHECK(problem.out.bits() == out);
      Bytes state;
      for (const std::int64_t from : {0, 64, 128}) {
        const std::int64_t to = from == 128 ? 200 : from + 64;
        exattn_attention_args args = part_of(problem, from, to, state);
        Bytes next(whole.size());
        args.state_out = next.data();
        args.state_out_size = next.size();
        if (from != 128) {
          args.out.data = nullptr;
          args.lse.data = nullptr;
        }
        if (!state.empty()) {
          args.sinks = nullptr; // they count where a row starts
        }
        REQUIRE(exattn_attention(&args) == EXATTN_OK);
        state = next;
      }
      CHECK(problem.out.bits() == out);
      CHECK(problem.lse.bits() == lse);
      CHECK(state == whole);
    }
  }
}

TEST_CASE("state: a sequence that has ended takes no more, the others do") {
  // Sequence 0 has 3 keys, sequence 1 has 128.
  Problem problem(2, 1, 1, 1, 128, 1, 1);
  make_counting(problem);
  problem.kv_lens = {3, 64};
  problem.args.kv_lens = problem.kv_lens.data();
  Bytes state = first_block(problem);
  const Bytes stopped = state;

  exattn_attention_args args = part_of(problem, 64, 128, state);
  write_to(args, state);
  problem.kv_lens = {1, 64};
  CHECK(exattn_attention(&args) == EXATTN_ERROR_STATE);
  CHECK(problem.text() == "state_in: sequence 0 ended at 3, before kv_offset, 64: it takes no more, but has 1 keys in "
                          "this call");
  CHECK(state == stopped);

  problem.kv_lens = {0, 64};
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  CHECK(problem.out.values() == std::vector<float>{1.0F, 63.5F});
  CHECK(state == StateBytes{0, 2, 1, 1, 1, 128, 0, {3, 128}}.bytes(
                     std::vector<std::uint32_t>{0, bits(3.0F), 1, bits(3.0F), 0, bits(128.0F), 1, bits(8128.0F)}));
}

TEST_CASE("state: each damaged bit of what can be checked is found, and nothing is written") {
  Problem problem(2, 2, 1, 2, 128, 1, 1);
  Bytes state = first_block(problem);
  exattn_attention_args args = part_of(problem, 64, 128, state);
  Bytes next(state.size(), 0xA5);
  write_to(args, next);
  const auto damage = [&](std::size_t byte, int bit) {
    state[byte] = static_cast<unsigned char>(state[byte] ^ (1 << bit));
    INFO("byte " << byte << ", bit " << bit << ": " << problem.text());
    REQUIRE(name(exattn_attention(&args)) == "EXATTN_ERROR_STATE");
    REQUIRE(problem.text().find("state_in") != std::string::npos);
    state[byte] = static_cast<unsigned char>(state[byte] ^ (1 << bit));
  };
  for (std::size_t byte = 0; byte < 64 + 2 * 8; ++byte) { // the header and the ends
    for (int bit = 0; bit < 8; ++bit) {
      damage(byte, bit);
    }
  }
  for (std::size_t row = 0; row < 8; ++row) {
    for (int bit = 2; bit < 32; ++bit) { // flags that there are not
      damage(64 + 16 + row * 16 + 8 + static_cast<std::size_t>(bit / 8), bit % 8);
    }
  }
  for (std::size_t row = 0; row < 8; ++row) { // maxima and sums that no row can have
    const std::size_t at = 64 + 16 + row * 16;
    const struct {
      std::size_t at;
      std::uint32_t bits;
    } impossible[] = {{at, 0x7FC00000},     {at, 0xFF800001},     {at, 0x80000000},     {at + 4, 0xBF800000},
                      {at + 4, 0x3F7FFFFF}, {at + 4, 0x00000001}, {at + 4, 0x80000000}, {at + 4, 0x7F800000},
                      {at + 4, 0xFF800000}, {at + 4, 0x7FC00001}, {at + 4, 0xFFC00000}};
    for (const auto &word : impossible) {
      const Bytes whole = state;
      exattn::store_le32(state.data() + word.at, word.bits);
      INFO("byte " << word.at << ", bits " << word.bits << ": " << problem.text());
      REQUIRE(name(exattn_attention(&args)) == "EXATTN_ERROR_STATE");
      REQUIRE(problem.text().find("state_in is damaged: row " + std::to_string(row)) != std::string::npos);
      std::copy(whole.begin(), whole.end(), state.begin());
    }
  }
  for (std::size_t size = 0; size < state.size() + 100; ++size) {
    if (size != state.size()) {
      args.state_in_size = size;
      Bytes copy = state;
      copy.resize(std::max(size, state.size()));
      args.state_in = copy.data();
      REQUIRE(name(exattn_attention(&args)) == "EXATTN_ERROR_STATE");
    }
  }
  CHECK(problem.out.untouched());
  CHECK(next == Bytes(next.size(), 0xA5));
  args.state_in = state.data();
  args.state_in_size = state.size();
  CHECK(exattn_attention(&args) == EXATTN_OK);
}

TEST_CASE("state: an unfinished call leaves nothing that passes for a state") {
  Problem problem(1, 4, 4, 300, 128, 1, 1);
  Bytes state = first_block(problem);
  // An executor that throws nothing, and runs nothing.
  const exattn_executor idle{sizeof(exattn_executor), nullptr,
                             [](void *, std::size_t, void (*)(void *, std::size_t), void *) {}, 2};
  exattn_attention_args args = part_of(problem, 64, 128, state);
  write_to(args, state);
  args.executor = &idle;
  args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS; // so small a call would not ask the executor otherwise
  CHECK(exattn_attention(&args) == EXATTN_ERROR_EXECUTOR);
  args.executor = nullptr;
  CHECK(exattn_attention(&args) == EXATTN_ERROR_STATE);
  CHECK(problem.text() == "state_in does not begin with exattn-1: it is no state of this definition");
}

TEST_CASE("state: sinks are not looked at where a call goes on") {
  Problem problem(1, 2, 1, 3, 128, 4, 4);
  Bytes state = first_block(problem);
  exattn_attention_args args = part_of(problem, 64, 128, state);
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  const std::vector<std::uint32_t> out = problem.out.bits();
  problem.sinks = {5.0F, std::numeric_limits<float>::quiet_NaN()};
  args.sinks = problem.sinks.data();
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  CHECK(problem.out.bits() == out);
}

TEST_CASE("state: going on keeps the sink") {
  // No key in either part. The sink NaN makes its row NaN, which only a row that has a sink is; -1.5 is the other's
  // lse.
  Problem problem(1, 2, 2, 1, 128, 1, 1);
  problem.use_lse();
  problem.kv_lens = {0};
  problem.args.kv_lens = problem.kv_lens.data();
  problem.sinks = {std::numeric_limits<float>::quiet_NaN(), -1.5F};
  problem.args.sinks = problem.sinks.data();
  Bytes state = first_block(problem);
  exattn_attention_args args = part_of(problem, 64, 128, state);
  args.sinks = nullptr;
  write_to(args, state);
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  CHECK(problem.out.bits() == std::vector<std::uint32_t>{0x7FC00000, 0});
  CHECK(problem.lse.bits() == std::vector<std::uint32_t>{0x7FC00000, bits(-1.5F)});
  CHECK(state == StateBytes{0, 1, 2, 1, 1, 128, 0, {0}}.bytes(
                     std::vector<std::uint32_t>{kMinusInfinity, 0x7FC00000, 2, 0, bits(-1.5F), bits(1.0F), 2, 0}));
}
