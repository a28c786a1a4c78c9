// Keys of a row on several threads: the values and the bits of a call that does not split them, and scratch of just the
// size asked for. test_whole_row.cpp computes random problems with split keys, in every layout.
#include "problem.hpp"

#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

using exattn::tests::Problem;

namespace {

exattn_pool *pool_of(std::size_t threads) {
  struct Destroy {
    void operator()(exattn_pool *pool) const { exattn_pool_destroy(pool); }
  };
  static std::array<std::unique_ptr<exattn_pool, Destroy>, 9> pools;
  if (pools[threads] == nullptr) {
    exattn_pool *made = nullptr;
    REQUIRE(exattn_pool_create(static_cast<std::int32_t>(threads), &made) == EXATTN_OK);
    pools[threads].reset(made);
  }
  return pools[threads].get();
}

std::size_t scratch_size(const exattn_attention_args &args) {
  std::size_t bytes = 0;
  REQUIRE(exattn_attention_scratch_size(&args, &bytes) == EXATTN_OK);
  return bytes;
}

template <class Test>
void on_every_kernel(Test test) {
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    for (std::int32_t lanes = EXATTN_LANES_AUTO + 1; lanes < EXATTN_LANES_COUNT; ++lanes) {
      if (exattn_lanes_resolve(lanes, flavour, &lanes, nullptr) == EXATTN_OK) {
        INFO(std::string(exattn_lanes_name(lanes)) << "/" << std::string(exattn_flavour_name(flavour)));
        test(lanes, flavour);
      }
    }
  }
}

} // namespace

TEST_CASE("split keys: means of many blocks, by hand") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::int64_t q_len : {1, 3, 11, 40}) {
      // 1024 keys of weight 1: 16 blocks, on 3 threads; 40 columns: more than one range.
      Problem problem(1, 2, 1, q_len, 1024, 7, 40);
      problem.make_means();
      problem.use_lse();
      problem.args.lanes = lanes;
      problem.args.flavour = flavour;
      problem.args.pool = pool_of(3);
      problem.args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
      REQUIRE(problem.run() == EXATTN_OK);
      CHECK(problem.out.values() == problem.expected_means());
      for (const float lse : problem.lse.values()) {
        CHECK(std::fabs(static_cast<double>(lse) - std::log(1024.0)) < 2e-6);
      }
      CHECK(problem.out.guards_intact());
      CHECK(problem.lse.guards_intact());
    }
  });
}

TEST_CASE("split keys: a maximum in a later block takes the weight of all before, by hand") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    // Block n has the scores 200 n for n up to 5, then 200 (10 - n). E(-200) = 0, so that block 5 alone counts, whose
    // values are 5: the weights before are rescaled to 0, those after are 0.
    Problem problem(1, 1, 1, 1, 640, 1, 33);
    problem.use_lse();
    problem.q.assign(1, 200.0F);
    for (std::size_t key = 0; key < 640; ++key) {
      const std::size_t block = key / 64;
      problem.k[key] = static_cast<float>(std::min(block, 10 - block));
      std::fill_n(problem.v.begin() + static_cast<std::ptrdiff_t>(33 * key), 33, static_cast<float>(block));
    }
    problem.args.lanes = lanes;
    problem.args.flavour = flavour;
    problem.args.pool = pool_of(2);
    problem.args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
    REQUIRE(problem.run() == EXATTN_OK);
    CHECK(problem.out.values() == std::vector<float>(33, 5.0F));
    // 1000 + ln 64
    CHECK(std::fabs(static_cast<double>(problem.lse.values()[0]) - 1004.1588831) < 1e-4);
  });
}

TEST_CASE("split keys: the scratch asked for is what is used, whatever it holds") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::int64_t heads : {1, 3, 4, 5, 8, 9, 17}) {
      Problem reference(1, heads, 1, 1, 300, 5, 37);
      reference.args.lanes = lanes;
      reference.args.flavour = flavour;
      REQUIRE(reference.run() == EXATTN_OK);
      for (const std::size_t threads : {1U, 3U}) {
        for (const unsigned char fill : std::array<unsigned char, 2>{0x00, 0xFF}) { // zeros and NaN
          INFO(heads << " heads, " << threads << " threads");
          Problem problem(1, heads, 1, 1, 300, 5, 37);
          problem.args.lanes = lanes;
          problem.args.flavour = flavour;
          problem.args.pool = pool_of(threads);
          problem.args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
          const std::size_t bytes = scratch_size(problem.args);
          problem.args.split_keys = EXATTN_SPLIT_KEYS_NEVER;
          CHECK(bytes >= scratch_size(problem.args) + static_cast<std::size_t>(4 * 300 * heads));
          problem.args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
          std::vector<unsigned char> memory(64 + bytes + 4096, fill);
          problem.args.scratch = memory.data() + 64;
          problem.args.scratch_size = bytes - 1;
          REQUIRE(problem.run() == EXATTN_ERROR_SCRATCH);
          CHECK(problem.out.untouched());
          problem.args.scratch_size = bytes;
          REQUIRE(problem.run() == EXATTN_OK);
          CHECK(problem.out.bits() == reference.out.bits());
          CHECK(std::count(memory.begin(), memory.begin() + 64, fill) == 64);
          CHECK(std::count(memory.end() - 4096, memory.end(), fill) == 4096);
        }
      }
    }
  });
}

TEST_CASE("split keys: a state may be replaced while columns of its rows are still to come") {
  // Tasks in order, so that the first columns, with m, l and flags, are written before the others begin. 64 keys of
  // weight 1, then 64 more: the values 0 to 127 have the mean 63.5.
  const exattn_executor executor{sizeof(exattn_executor), nullptr,
                                 [](void *, std::size_t count, void (*task)(void *, std::size_t), void *context) {
                                   for (std::size_t n = 0; n < count; ++n) {
                                     task(context, n);
                                   }
                                 },
                                 3};
  Problem problem(1, 2, 1, 1, 128, 4, 48);
  problem.make_means();
  problem.args.executor = &executor;
  problem.args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
  std::size_t bytes = 0;
  REQUIRE(exattn_attention_state_size(&problem.args, &bytes) == EXATTN_OK);
  std::vector<unsigned char> state(bytes);
  exattn_attention_args args = problem.args;
  args.kv_len = 64;
  args.state_out = state.data();
  args.state_out_size = state.size();
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  args.kv_offset = 64;
  args.state_in = state.data();
  args.state_in_size = state.size();
  args.k.data = problem.k.data() + std::ptrdiff_t{64 * 4};
  args.v.data = problem.v.data() + std::ptrdiff_t{64 * 48};
  REQUIRE(exattn_attention(&args) == EXATTN_OK);
  CHECK(problem.out.values() == std::vector<float>(96, 63.5F));
}

TEST_CASE("split keys: one row over 100,000 keys has the bits that one thread gives, and may be kept from splitting") {
  Problem problem(1, 1, 1, 1, 100000, 32, 48);
  problem.args.lanes = EXATTN_LANES_AUTO;
  REQUIRE(problem.run() == EXATTN_OK);
  const std::vector<std::uint32_t> bits = problem.out.bits();
  const std::size_t one = scratch_size(problem.args);
  problem.args.pool = pool_of(4);
  const std::size_t four = scratch_size(problem.args);
  CHECK(four > 4 * one - 3 * 64 + 400000 - 64);
  CHECK(four < 4 * one + 440000);
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.bits() == bits);
  problem.args.split_limit = 300000;
  CHECK(scratch_size(problem.args) <= 4 * one);
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.bits() == bits);
  problem.args.split_limit = 0;
  problem.args.split_keys = EXATTN_SPLIT_KEYS_NEVER;
  CHECK(scratch_size(problem.args) <= 4 * one);
  std::vector<unsigned char> scratch(scratch_size(problem.args));
  problem.args.scratch = scratch.data();
  problem.args.scratch_size = scratch.size();
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.bits() == bits);
}
