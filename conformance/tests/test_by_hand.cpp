// Values by hand, on every kernel of this machine: one case for each way to get attention wrong.
#include "problem.hpp"
#include "state.hpp"

#include "exact/oracle.hpp"
#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using exattn::tests::Problem;

namespace {

template <class Test>
void on_every_kernel(Test test) {
  int kernels = 0;
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    for (std::int32_t lanes = EXATTN_LANES_AUTO + 1; lanes < EXATTN_LANES_COUNT; ++lanes) {
      exattn_lanes_info info{};
      info.struct_size = sizeof(info);
      REQUIRE(exattn_lanes_query(lanes, &info) == EXATTN_OK);
      if ((flavour == EXATTN_FAST ? info.fast : info.exact) != 0) {
        INFO(std::string(exattn_lanes_name(lanes)) << "/" << std::string(exattn_flavour_name(flavour)));
        test(lanes, flavour);
        ++kernels;
      }
    }
  }
  CHECK(kernels >= 2); // scalar has both flavours
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Logits 0 and V_j = j, in every column; scale 1, so that with q set to 1 logits are the keys.
struct Counting : Problem {
  Counting(std::int32_t lanes, std::int32_t flavour, std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
           std::int64_t q_len, std::int64_t kv_len, std::int64_t value_dim = 1)
      : Problem(batch, heads, kv_heads, q_len, kv_len, 1, value_dim) {
    args.lanes = lanes;
    args.flavour = flavour;
    args.scale_mode = EXATTN_SCALE_GIVEN;
    args.scale = 1.0F;
    q.assign(q.size(), 0.0F);
    for (std::size_t n = 0; n < v.size(); ++n) {
      v[n] = static_cast<float>(n / static_cast<std::size_t>(value_dim) % static_cast<std::size_t>(kv_len));
    }
    mask.assign(mask.size(), 0.0F);
    use_lse();
  }

  void use_logits(const std::vector<float> &logits) {
    q.assign(q.size(), 1.0F);
    k = logits;
    args.k.data = k.data();
  }
  void use_values(const std::vector<float> &values) {
    v = values;
    args.v.data = v.data();
  }
  void use_mask_bool(const std::vector<std::uint8_t> &row) {
    mask_bool = row;
    args.mask_bool = {mask_bool.data(), EXATTN_U8, 4, {0, 0, 0, 1}};
  }

  // Whether the outputs of all rows and their log-sum-exps are those, to a few roundings.
  void check(const std::vector<double> &outputs, const std::vector<double> &log_sum_exps) {
    REQUIRE(run() == EXATTN_OK);
    const std::vector<float> got = out.values();
    const std::vector<float> got_lse = lse.values();
    REQUIRE(got.size() == outputs.size());
    REQUIRE(got_lse.size() == log_sum_exps.size());
    for (std::size_t n = 0; n < got.size(); ++n) {
      INFO("output " << n);
      CHECK(static_cast<double>(got[n]) == doctest::Approx(outputs[n]).epsilon(1e-6));
    }
    for (std::size_t n = 0; n < got_lse.size(); ++n) {
      INFO("log-sum-exp " << n);
      CHECK(static_cast<double>(got_lse[n]) == doctest::Approx(log_sum_exps[n]).epsilon(1e-6));
    }
  }
  void check_bits(const std::vector<std::uint32_t> &outputs, const std::vector<std::uint32_t> &log_sum_exps) {
    REQUIRE(run() == EXATTN_OK);
    CHECK(out.bits() == outputs);
    CHECK(lse.bits() == log_sum_exps);
  }

  std::vector<std::uint8_t> mask_bool;
};

// One query on keys that are given; scale 1.
struct OneQuery : Problem {
  OneQuery(std::int32_t lanes, std::int32_t flavour, const std::vector<float> &query, const std::vector<float> &keys)
      : Problem(1, 1, 1, 1, static_cast<std::int64_t>(keys.size() / query.size()),
                static_cast<std::int64_t>(query.size()), 1) {
    args.lanes = lanes;
    args.flavour = flavour;
    args.scale_mode = EXATTN_SCALE_GIVEN;
    args.scale = 1.0F;
    use_lse();
    q = query;
    k = keys;
    args.q.data = q.data();
    args.k.data = k.data();
  }
};

constexpr std::uint32_t kNan = 0x7FC00000;
constexpr std::uint32_t kMinusInfinityBits = 0xFF800000;

} // namespace

TEST_CASE("attention: sums and outputs are rescaled when the maximum grows") {
  // The definition's example of two blocks: scores 1, 3 at the end of one block, 2, 5 at the start of the next.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 66);
    std::vector<float> logits(66), values(66);
    const float scores[] = {1.0F, 3.0F, 2.0F, 5.0F};
    for (std::size_t n = 0; n < 4; ++n) {
      logits[62 + n] = scores[n];
      values[62 + n] = 10.0F * static_cast<float>(n + 1);
    }
    call.use_logits(logits);
    call.use_values(values);
    call.args.window = 4;
    call.args.q_offset = 65;
    const double sum = std::exp(-4.0) + std::exp(-2.0) + std::exp(-3.0) + 1;
    call.check({(std::exp(-4.0) * 10 + std::exp(-2.0) * 20 + std::exp(-3.0) * 30 + 40) / sum}, {5 + std::log(sum)});
  });
}

TEST_CASE("attention: rows side by side are rescaled each by its own factor") {
  // Keys 0 to 63 have the logit 0 and the value 1, the others logit 2 q and value 3. The first 8 rows have q = 0.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 16, 128);
    for (std::size_t n = 0; n < 128; ++n) {
      call.k[n] = n < 64 ? 0.0F : 2.0F;
      call.v[n] = n < 64 ? 1.0F : 3.0F;
    }
    std::fill(call.q.begin() + 8, call.q.end(), 1.0F);
    std::vector<double> outputs(8, 2.0), log_sum_exps(8, std::log(128.0));
    outputs.insert(outputs.end(), 8, (std::exp(-2.0) + 3) / (std::exp(-2.0) + 1));
    log_sum_exps.insert(log_sum_exps.end(), 8, 2 + std::log(64 * (std::exp(-2.0) + 1)));
    call.check(outputs, log_sum_exps);
  });
}

TEST_CASE("attention: any number of rows side by side") {
  // Row i has the logits 0 and i ln 2 / 4 for 35 keys each, whose values are 0 and 1, and x more in column x.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (std::size_t rows = 1; rows <= 20; ++rows) {
      INFO("rows " << rows);
      Counting call(lanes, flavour, 1, 1, 1, static_cast<std::int64_t>(rows), 70, 3);
      std::vector<double> outputs, log_sum_exps;
      for (std::size_t n = 0; n < 70; ++n) {
        call.k[n] = n < 35 ? 0.0F : 1.0F;
        for (std::size_t x = 0; x < 3; ++x) {
          call.v[3 * n + x] = call.k[n] + static_cast<float>(x);
        }
      }
      for (std::size_t i = 0; i < rows; ++i) {
        call.q[i] = static_cast<float>(static_cast<double>(i) * std::log(2.0) / 4);
        const double weight = std::exp(static_cast<double>(call.q[i]));
        for (int x = 0; x < 3; ++x) {
          outputs.push_back(weight / (1 + weight) + x);
        }
        log_sum_exps.push_back(std::log(35 * (1 + weight)));
      }
      call.check(outputs, log_sum_exps);
    }
  });
}

TEST_CASE("attention: rows side by side see keys of their own") {
  // Row i of each head sees the keys 56 + i to 60 + i, from one block into the next.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::int64_t heads : {1, 2, 3}) {
      for (const std::int64_t rows : {1, 2, 3, 4, 6, 9}) {
        INFO("heads " << heads << ", rows " << rows);
        Counting call(lanes, flavour, 1, heads, 1, rows, 70);
        call.args.causal = 1;
        call.args.q_offset = 60;
        call.args.window = 5;
        std::vector<double> outputs(static_cast<std::size_t>(heads * rows));
        for (std::size_t n = 0; n < outputs.size(); ++n) {
          outputs[n] = 58.0 + static_cast<double>(n % static_cast<std::size_t>(rows));
        }
        call.check(outputs, std::vector<double>(outputs.size(), std::log(5.0)));
      }
    }
  });
}

TEST_CASE("attention: a boolean mask of their own for rows side by side") {
  // Row i sees the keys 20 + i to 39 but for 30: from the second group of a block on.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::size_t rows : {1U, 2U, 3U, 5U, 17U}) {
      INFO("rows " << rows);
      Counting call(lanes, flavour, 1, 1, 1, static_cast<std::int64_t>(rows), 40);
      std::vector<std::uint8_t> visible;
      std::vector<double> outputs, log_sum_exps;
      for (std::size_t i = 0; i < rows; ++i) {
        double keys = 0, sum = 0;
        for (std::size_t key = 0; key < 40; ++key) {
          const bool sees = key >= 20 + i && key != 30;
          visible.push_back(sees ? 1 : 0);
          keys += sees ? 1.0 : 0.0;
          sum += sees ? static_cast<double>(key) : 0.0;
        }
        outputs.push_back(sum / keys);
        log_sum_exps.push_back(std::log(keys));
      }
      call.use_mask_bool(visible);
      call.args.mask_bool.stride[2] = 40;
      call.check(outputs, log_sum_exps);
    }
  });
}

TEST_CASE("attention: the keys of one row in pages, none beside the next") {
  // Weights 1 to 40: the sum of j (j + 1) is 21320, that of j + 1 is 820.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::size_t page_size : {1U, 8U, 16U, 20U}) {
      INFO("pages of " << page_size);
      Counting call(lanes, flavour, 1, 1, 1, 1, 40);
      const std::size_t pages = (40 + page_size - 1) / page_size;
      std::vector<float> keys(pages * page_size), values(keys.size());
      std::vector<std::int32_t> table(pages);
      for (std::size_t key = 0; key < 40; ++key) {
        const std::size_t page = pages - 1 - key / page_size, at = page * page_size + key % page_size;
        table[key / page_size] = static_cast<std::int32_t>(page);
        keys[at] = std::log(static_cast<float>(key + 1));
        values[at] = static_cast<float>(key);
      }
      call.q[0] = 1.0F;
      const std::int64_t size = static_cast<std::int64_t>(page_size);
      call.args.k = {keys.data(), EXATTN_F32, 4, {size, size, 1, 1}};
      call.args.v = {values.data(), EXATTN_F32, 4, {size, size, 1, 1}};
      call.args.page_table = table.data();
      call.args.page_table_stride = static_cast<std::int64_t>(pages);
      call.args.page_size = size;
      call.args.pages = static_cast<std::int64_t>(pages);
      call.check({26.0}, {std::log(820.0)});
    }
  });
}

TEST_CASE("attention: query heads share key and value heads in runs") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::int64_t heads : {4, 6}) {
      Counting call(lanes, flavour, 1, heads, 2, 1, 1);
      call.use_values({10.0F, 20.0F});
      std::vector<double> outputs(static_cast<std::size_t>(heads) / 2, 10.0);
      outputs.insert(outputs.end(), outputs.size(), 20.0);
      call.check(outputs, std::vector<double>(outputs.size(), 0.0));
    }
  });
}

TEST_CASE("attention: query heads that are no multiple of the key and value heads are refused") {
  for (const std::int64_t heads : {1, 3, 5}) {
    Problem problem(1, heads, 2, 2, 3, 4, 5);
    CHECK(problem.run() == EXATTN_ERROR_HEADS);
    CHECK(problem.out.untouched());
  }
}

TEST_CASE("attention: an output that shares memory with the keys is refused") {
  Problem problem(1, 1, 1, 1, 2, 4, 4);
  problem.args.out.data = problem.k.data() + 4; // the last key
  CHECK(problem.run() == EXATTN_ERROR_OVERLAP);
  CHECK(problem.text() == "out overlaps k, must share no memory with it");
  CHECK(problem.k == exattn::tests::some_numbers(2, 8));
}

TEST_CASE("attention: a page that there is not is refused") {
  for (const std::int32_t page : {-1, 2, 3}) {
    Problem problem(1, 1, 1, 1, 4, 1, 1);
    const std::vector<std::int32_t> table = {1, page};
    problem.args.page_table = table.data();
    problem.args.page_table_stride = 2;
    problem.args.page_size = 2;
    problem.args.pages = 2;
    CHECK(problem.run() == EXATTN_ERROR_PAGE);
    CHECK(problem.out.untouched());
  }
}

TEST_CASE("attention: causal at absolute positions") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 3, 5);
    call.use_values({1.0F, 2.0F, 3.0F, 4.0F, 5.0F});
    call.args.causal = 1;
    call.args.q_offset = 2;
    call.check({2.0, 2.5, 3.0}, {std::log(3.0), std::log(4.0), std::log(5.0)});
    call.args.q_offset = 0;
    call.check({1.0, 1.5, 2.0}, {0.0, std::log(2.0), std::log(3.0)});
  });
}

TEST_CASE("attention: windows count the row itself") {
  // At position 5 of 6 keys, windows of 1, 3, 4 keys, and more than there are.
  const struct {
    std::int64_t window;
    double mean, keys;
  } windows[] = {{1, 5.0, 1}, {3, 4.0, 3}, {4, 3.5, 4}, {6, 2.5, 6}, {100, 2.5, 6}};
  on_every_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    for (const auto &one : windows) {
      INFO("window " << one.window);
      Counting call(lanes, flavour, 1, 1, 1, 1, 6);
      call.args.causal = 1;
      call.args.q_offset = 5;
      call.args.window = one.window;
      call.check({one.mean}, {std::log(one.keys)});
    }
  });
}

TEST_CASE("attention: windows that begin in a block whose end is visible") {
  // Row i sees the keys i to 63 + i: the first row all of the first block, the others its end.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 17, 80);
    call.args.causal = 1;
    call.args.q_offset = 63;
    call.args.window = 64;
    std::vector<double> outputs;
    for (int row = 0; row < 17; ++row) {
      outputs.push_back(31.5 + row);
    }
    call.check(outputs, std::vector<double>(17, std::log(64.0)));
  });
}

TEST_CASE("attention: visibility is decided row by row") {
  // Row i sees the keys 0 to i, whatever rows are computed side by side.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 40, 40);
    call.args.causal = 1;
    std::vector<double> outputs, log_sum_exps;
    for (int row = 0; row < 40; ++row) {
      outputs.push_back(row / 2.0);
      log_sum_exps.push_back(std::log(row + 1.0));
    }
    call.check(outputs, log_sum_exps);
  });
}

TEST_CASE("attention: each sequence has its own key length and position") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 2, 1, 1, 1, 5);
    call.kv_lens = {2, 3};
    call.args.kv_lens = call.kv_lens.data();
    call.check({0.5, 1.0}, {std::log(2.0), std::log(3.0)});
    call.args.kv_lens = nullptr;
    call.args.causal = 1;
    call.q_offsets = {3, 1};
    call.args.q_offsets = call.q_offsets.data();
    call.check({1.5, 0.5}, {std::log(4.0), std::log(2.0)});
  });
}

TEST_CASE("attention: each ragged sequence has its own rows and keys") {
  // Rows 0, 1 and 2 to 4; keys 0 to 2 and 3 to 6; V_n = n.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 2, 1, 1, 5, 7);
    const std::vector<std::int64_t> q_starts = {0, 2, 5}, kv_starts = {0, 3, 7};
    call.args.q_starts = q_starts.data();
    call.args.kv_starts = kv_starts.data();
    for (const std::int32_t causal : {0, 1}) {
      call.args.causal = causal;
      REQUIRE(call.run() == EXATTN_OK);
      const std::vector<double> outputs =
          causal == 0 ? std::vector<double>{1, 1, 4.5, 4.5, 4.5} : std::vector<double>{0, 0.5, 3, 3.5, 4};
      const std::vector<double> keys =
          causal == 0 ? std::vector<double>{3, 3, 4, 4, 4} : std::vector<double>{1, 2, 1, 2, 3};
      const std::vector<float> got = call.out.values(), lse = call.lse.values();
      for (std::size_t n = 0; n < 5; ++n) { // the outputs have room for two sequences of 5 rows
        INFO("causal " << causal << ", row " << n);
        CHECK(static_cast<double>(got[n]) == doctest::Approx(outputs[n]).epsilon(1e-6));
        CHECK(static_cast<double>(lse[n]) == doctest::Approx(std::log(keys[n])).epsilon(1e-6));
      }
    }
  });
}

TEST_CASE("attention: each sequence has its own pages, of any size") {
  // A window of one key: row i of sequence b gives the value of its key i, 1000 b + i, and x / 8 more in column x.
  constexpr std::size_t kKeys = 100, kColumns = 5;
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::size_t page_size : {1U, 7U, 16U, 48U, 64U, 100U}) {
      INFO("pages of " << page_size);
      Counting call(lanes, flavour, 2, 1, 1, kKeys, kKeys, kColumns);
      const std::size_t of_sequence = (kKeys + page_size - 1) / page_size, pages = 2 * of_sequence;
      std::vector<std::int32_t> table;
      std::vector<float> keys(pages * page_size, std::numeric_limits<float>::quiet_NaN()),
          values(keys.size() * kColumns, keys[0]);
      std::vector<float> expected;
      for (std::size_t n = 0; n < pages; ++n) {
        table.push_back(static_cast<std::int32_t>(n % 2 == 0 ? pages - 1 - n / 2 : n / 2)); // from both ends
      }
      for (std::size_t n = 0; n < 2 * kKeys; ++n) {
        const std::size_t b = n / kKeys, key = n % kKeys;
        const std::size_t page = static_cast<std::size_t>(table[b * of_sequence + key / page_size]);
        const std::size_t at = page * page_size + key % page_size;
        keys[at] = 0.0F;
        for (std::size_t x = 0; x < kColumns; ++x) {
          values[at * kColumns + x] = static_cast<float>(1000 * b + key) + static_cast<float>(x) / 8.0F;
          expected.push_back(values[at * kColumns + x]);
        }
      }
      const std::int64_t size = static_cast<std::int64_t>(page_size);
      call.args.k = {keys.data(), EXATTN_F32, 4, {size, size, 1, 1}};
      call.args.v = {values.data(), EXATTN_F32, 4, {size * 5, size * 5, 5, 1}};
      call.args.page_table = table.data();
      call.args.page_table_stride = static_cast<std::int64_t>(of_sequence);
      call.args.page_size = size;
      call.args.pages = static_cast<std::int64_t>(pages);
      call.args.causal = 1;
      call.args.window = 1;
      REQUIRE(call.run() == EXATTN_OK);
      CHECK(call.out.values() == expected);
    }
  });
}

TEST_CASE("attention: a sink joins the sum and the log-sum-exp") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting three(lanes, flavour, 1, 1, 1, 1, 3);
    three.use_values({1.0F, 1.0F, 1.0F});
    three.sinks = {0.0F};
    three.args.sinks = three.sinks.data();
    three.check({0.75}, {std::log(4.0)});
    Counting four(lanes, flavour, 1, 1, 1, 1, 4);
    four.use_values({1.0F, 1.0F, 1.0F, 1.0F});
    four.sinks = {std::log(4.0F)};
    four.args.sinks = four.sinks.data();
    four.check({0.5}, {std::log(8.0)});
  });
}

TEST_CASE("attention: a sink of -inf is no sink") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 3);
    call.sinks = {-kInfinity};
    call.args.sinks = call.sinks.data();
    call.check({1.0}, {std::log(3.0)});
    call.kv_lens = {0}; // nor does it make a row that sees no key one that is not empty
    call.args.kv_lens = call.kv_lens.data();
    call.check_bits({0}, {kMinusInfinityBits});
  });
}

TEST_CASE("attention: the log-sum-exp is natural, and holds the maximum") {
  // q = (ln 2, ln 3) and keys (1, 0), (0, 1), (1, 1): weights as 2, 3 and 6; V = 1, 2, 3.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    OneQuery problem(lanes, flavour, {std::log(2.0F), std::log(3.0F)}, {1.0F, 0.0F, 0.0F, 1.0F, 1.0F, 1.0F});
    problem.v = {1.0F, 2.0F, 3.0F};
    problem.args.v.data = problem.v.data();
    REQUIRE(problem.run() == EXATTN_OK);
    CHECK(static_cast<double>(problem.out.values()[0]) == doctest::Approx(26.0 / 11.0).epsilon(1e-6));
    CHECK(static_cast<double>(problem.lse.values()[0]) == doctest::Approx(std::log(11.0)).epsilon(1e-6));
  });
}

TEST_CASE("attention: without keys nothing is computed from null pointers") {
  // Backward strides lead out of the address space from there, which a sanitizer of pointer arithmetic reports.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 2, 2, 2, 1, 1);
    call.args.kv_len = 0;
    call.args.k = {nullptr, EXATTN_F32, 4, {-70, -7, -1, 1}};
    call.args.v = {nullptr, EXATTN_F32, 4, {-70, -7, -1, 1}};
    call.check_bits({0, 0, 0, 0}, std::vector<std::uint32_t>(4, kMinusInfinityBits));
  });
}

TEST_CASE("attention: scores far below zero count as any others") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting two(lanes, flavour, 1, 1, 1, 1, 2);
    two.use_logits({-60000.0F, -60001.0F});
    two.use_values({1.0F, 2.0F});
    two.check({(1 + 2 * std::exp(-1.0)) / (1 + std::exp(-1.0))}, {-60000 + std::log(1 + std::exp(-1.0))});
    Counting three(lanes, flavour, 1, 1, 1, 1, 3);
    three.use_values({1.0F, 2.0F, 3.0F});
    three.mask.assign(3, -std::numeric_limits<float>::max());
    three.use_mask();
    three.check({2.0}, {-static_cast<double>(std::numeric_limits<float>::max())});
  });
}

TEST_CASE("attention: hidden keys do not raise the maximum") {
  // The third score would be the maximum by far, and every visible weight 0 against it. The second row sees that key,
  // so it is at hand for the first one too; then a boolean mask hides it.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting rows(lanes, flavour, 1, 1, 1, 2, 3);
    rows.use_logits({1.0F, 2.0F, 500.0F});
    rows.args.causal = 1;
    rows.args.q_offset = 1;
    rows.check({1 / (std::exp(-1.0) + 1), 2.0}, {2 + std::log(1 + std::exp(-1.0)), 500.0});
    Counting masked(lanes, flavour, 1, 1, 1, 1, 3);
    masked.use_logits({1.0F, 2.0F, 500.0F});
    masked.use_mask_bool({1, 1, 0});
    masked.check({1 / (std::exp(-1.0) + 1)}, {2 + std::log(1 + std::exp(-1.0))});
  });
}

TEST_CASE("attention: outputs are divided once, after the last block") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 192);
    call.check({95.5}, {std::log(192.0)});
  });
}

TEST_CASE("attention: the last block may be short") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    for (const std::int64_t keys : {1, 63, 65, 127, 129}) {
      INFO(keys << " keys");
      Counting call(lanes, flavour, 1, 1, 1, 1, keys);
      call.check({static_cast<double>(keys - 1) / 2}, {std::log(static_cast<double>(keys))});
    }
  });
}

TEST_CASE("attention: key blocks are taken in increasing order") {
  // 2^24 + 1 is rounded to 2^24, and 2^24 - 2^24 is 0; from the other end a 1 would be left.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 129);
    call.v.assign(129, 0.0F);
    call.v[0] = 0x1p24F;
    call.v[64] = 1.0F;
    call.v[128] = -0x1p24F;
    REQUIRE(call.run() == EXATTN_OK);
    CHECK(call.out.bits() == std::vector<std::uint32_t>{0});
  });
}

TEST_CASE("attention: key blocks lie at absolute positions") {
  // The first key that a row sees moves with the row, and with a chunk's first row; the blocks, and so the bits, do
  // not.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting whole(lanes, flavour, 1, 1, 1, 40, 200, 3);
    whole.use_logits(exattn::tests::some_numbers(7, 200));
    whole.use_values(exattn::tests::some_numbers(8, 600));
    whole.args.causal = 1;
    whole.args.window = 90;
    whole.args.q_offset = 120;
    REQUIRE(whole.run() == EXATTN_OK);
    for (std::int64_t row = 0; row < 40; ++row) {
      INFO("row " << row);
      Counting alone(lanes, flavour, 1, 1, 1, 1, 200, 3);
      alone.use_logits(whole.k);
      alone.use_values(whole.v);
      alone.args.causal = 1;
      alone.args.window = 90;
      alone.args.q_offset = 120 + row;
      REQUIRE(alone.run() == EXATTN_OK);
      const std::vector<std::uint32_t> out = whole.out.bits();
      CHECK(alone.out.bits() == std::vector<std::uint32_t>(out.begin() + 3 * row, out.begin() + 3 * row + 3));
      CHECK(alone.lse.bits()[0] == whole.lse.bits()[static_cast<std::size_t>(row)]);
    }
  });
}

TEST_CASE("attention: each key of a block has a weight of its own") {
  // Weights 1 to 64: the sum of j (j + 1) is 87360, that of j + 1 is 2080.
  std::vector<float> logits;
  for (int key = 0; key < 64; ++key) {
    logits.push_back(std::log(static_cast<float>(key + 1)));
  }
  on_every_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    for (const std::size_t rows : {1U, 17U}) { // alone, and side by side
      INFO("rows " << rows);
      Counting call(lanes, flavour, 1, 1, 1, static_cast<std::int64_t>(rows), 64);
      call.use_logits(logits);
      call.check(std::vector<double>(rows, 42.0), std::vector<double>(rows, std::log(2080.0)));
    }
  });
}

TEST_CASE("attention: the block sum, term by term") {
  // l of one block is the sum of its weights, and a state shows it.
  std::vector<float> logits = exattn::tests::some_numbers(11, 64);
  for (float &logit : logits) {
    logit *= 4.0F;
  }
  const float maximum = *std::max_element(logits.begin(), logits.end());
  on_every_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    float weight[64], partial[16] = {}, falling[16] = {}, neighbours[16] = {};
    for (std::size_t j = 0; j < 64; ++j) {
      weight[j] = exattn::oracle::exponential(
          logits[j] - maximum, flavour == EXATTN_FAST ? exattn::oracle::Flavour::fast : exattn::oracle::Flavour::exact);
      partial[j % 16] += weight[j];
    }
    for (std::size_t j = 64; j-- > 0;) {
      falling[j % 16] += weight[j];
    }
    std::copy(std::begin(partial), std::end(partial), neighbours);
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t t = 0; t < half; ++t) {
        partial[t] += partial[t + half];
        falling[t] += falling[t + half];
        neighbours[t] = neighbours[2 * t] + neighbours[2 * t + 1];
      }
    }
    REQUIRE(falling[0] != partial[0]); // other orders show
    REQUIRE(neighbours[0] != partial[0]);
    Counting call(lanes, flavour, 1, 1, 1, 1, 64);
    call.use_logits(logits);
    std::vector<unsigned char> state(64 + 8 + 16);
    call.args.state_out = state.data();
    call.args.state_out_size = state.size();
    REQUIRE(call.run() == EXATTN_OK);
    CHECK(exattn::load_le32(state.data() + 64 + 8 + 4) == std::bit_cast<std::uint32_t>(partial[0]));
  });
}

TEST_CASE("attention: the exact flavour rounds twice, the fast one once") {
  // -(1 + 2^-11) + (1 + 2^-12)^2 is 2^-24; the square alone is rounded to 1 + 2^-11. One key: its score is the lse.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    OneQuery problem(lanes, flavour, {1.0F, 1.0F + 0x1p-12F}, {-(1.0F + 0x1p-11F), 1.0F + 0x1p-12F});
    REQUIRE(problem.run() == EXATTN_OK);
    CHECK(problem.lse.values()[0] == (flavour == EXATTN_FAST ? 0x1p-24F : 0.0F));
  });
}

TEST_CASE("attention: the exact flavour divides, the fast one multiplies by the reciprocal") {
  // Five weights of 1, and values x, 0, 0, 0, 0 for x = 1, 2, ..., 64.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 5, 64);
    call.v.assign(call.v.size(), 0.0F);
    std::vector<float> expected;
    int differ = 0;
    for (std::size_t n = 0; n < 64; ++n) {
      call.v[n] = static_cast<float>(n + 1);
      const float quotient = call.v[n] / 5.0F, product = call.v[n] * (1.0F / 5.0F);
      expected.push_back(flavour == EXATTN_FAST ? product : quotient);
      differ += quotient != product ? 1 : 0;
    }
    REQUIRE(differ > 0);
    REQUIRE(call.run() == EXATTN_OK);
    CHECK(call.out.values() == expected);
  });
}

TEST_CASE("attention: a NaN leaves as 7FC00000") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    // A weight of +0 times an infinity, which has the sign bit on some processors.
    Counting product(lanes, flavour, 1, 1, 1, 1, 2);
    product.use_values({1.0F, kInfinity});
    product.mask = {0.0F, -kInfinity};
    product.use_mask();
    product.check_bits({kNan}, {0});
    // One that came with a sign and a payload.
    Counting query(lanes, flavour, 1, 1, 1, 1, 2);
    query.q = {std::bit_cast<float>(0xFFC12345U)};
    query.args.q.data = query.q.data();
    query.check_bits({kNan}, {kNan});
  });
}

TEST_CASE("attention: blocks of -inf before a finite score leave no NaN") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 130);
    std::fill(call.mask.begin(), call.mask.begin() + 64, -kInfinity);
    call.use_mask();
    call.check({96.5}, {std::log(66.0)});
  });
}

TEST_CASE("attention: a fully masked row is NaN, or +0 where asked for") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 3);
    call.mask.assign(3, -kInfinity);
    call.use_mask();
    call.check_bits({kNan}, {kMinusInfinityBits});
    call.args.fully_masked = EXATTN_FULLY_MASKED_ZERO;
    call.check_bits({0}, {kMinusInfinityBits});
  });
}

TEST_CASE("attention: a boolean mask shows what is not 0") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 5);
    call.use_mask_bool({0, 1, 2, 0, 255});
    call.check({7.0 / 3.0}, {std::log(3.0)});
  });
}

TEST_CASE("attention: values that a boolean mask hides are skipped, not multiplied by zero") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 5);
    call.use_values({std::numeric_limits<float>::quiet_NaN(), 1.0F, 2.0F, kInfinity, 4.0F});
    call.use_mask_bool({0, 1, 1, 0, 1});
    call.check({7.0 / 3.0}, {std::log(3.0)});
  });
}

TEST_CASE("attention: a row from which a boolean mask hides all keys is empty") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 5);
    call.use_mask_bool({0, 0, 0, 0, 0});
    call.check_bits({0}, {kMinusInfinityBits});
  });
}

TEST_CASE("attention: ALiBi slopes, by hand") {
  // A row at position 0, distances 0, 1, 2; slopes of ln 2 and -ln 2: weights halve, or double.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 2, 1, 1, 3);
    call.use_values({1.0F, 2.0F, 4.0F});
    const std::vector<float> slopes = {std::log(2.0F), -std::log(2.0F)};
    call.args.alibi_slopes = slopes.data();
    call.check({3 / 1.75, 21.0 / 7.0}, {std::log(1.75), std::log(7.0)});
  });
}

TEST_CASE("attention: ALiBi at distances that binary32 does not have") {
  // Distances 2^24 + 3, + 2, + 1, + 0 are rounded, ties to even, to 2^24 + 4, + 2, + 0, + 0.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 4);
    const std::vector<float> slopes = {1.0F};
    call.args.alibi_slopes = slopes.data();
    call.args.q_offset = (std::int64_t{1} << 24) + 3;
    const double fourth = std::exp(-4.0), second = std::exp(-2.0);
    call.check({(second + 2 + 3) / (fourth + second + 2)}, {-0x1p24});
  });
}

TEST_CASE("attention: ALiBi at distances that binary64 does not have") {
  // 2^54 + 2^30 is a tie of 24 bits and goes to 2^54; one more is above it, but not by way of binary64.
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 2, 1);
    const std::vector<float> slopes = {0x1p-54F};
    call.args.alibi_slopes = slopes.data();
    call.args.q_offset = std::int64_t{0x1000001} << 30;
    call.check_bits({0, 0}, {0xBF800000u, 0xBF800001u});
  });
}

TEST_CASE("attention: the mask is added to the capped score") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 2);
    call.args.softcap = 1.0F;
    call.mask = {0.0F, 3.0F};
    call.use_mask();
    call.check({1 / (1 + std::exp(-3.0))}, {std::log(1 + std::exp(3.0))});
  });
}

TEST_CASE("attention: softcap of scores of both signs") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 2);
    call.use_logits({-1.0F, 3.0F});
    call.args.softcap = 2.0F;
    const double low = 2 * std::tanh(-0.5), high = 2 * std::tanh(1.5);
    call.check({1 / (1 + std::exp(low - high))}, {std::log(std::exp(low) + std::exp(high))});
  });
}

namespace {

// With one key an output is its value, a NaN that of the definition, and -0 is +0, since a sum starts from there.
void check_widened(std::int32_t dtype, const std::vector<std::uint16_t> &patterns,
                   const std::vector<std::uint32_t> &expected) {
  on_every_kernel([&](std::int32_t lanes, std::int32_t flavour) {
    Counting call(lanes, flavour, 1, 1, 1, 1, 1, static_cast<std::int64_t>(patterns.size()));
    call.args.v = {patterns.data(), dtype, 4, {0, 0, 0, 1}};
    REQUIRE(call.run() == EXATTN_OK);
    CHECK(call.out.bits() == expected);
  });
}

// The binary16 number with that pattern, which is finite.
float number_of_binary16(std::uint32_t pattern) {
  const int exponent = static_cast<int>(pattern >> 10 & 31U), fraction = static_cast<int>(pattern & 1023U);
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                        : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (pattern & 0x8000U) != 0 ? 0.0F - magnitude : magnitude;
}

} // namespace

TEST_CASE("16 bits: every bfloat16 is widened to its value") {
  std::vector<std::uint16_t> patterns;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    patterns.push_back(static_cast<std::uint16_t>(pattern));
    expected.push_back((pattern & 0x7FFFU) > 0x7F80 ? kNan : pattern == 0x8000 ? 0 : pattern << 16);
  }
  check_widened(EXATTN_BF16, patterns, expected);
}

TEST_CASE("16 bits: normal binary16 numbers keep their value") {
  std::vector<std::uint16_t> patterns;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    if ((pattern & 0x7C00U) != 0 && (pattern & 0x7C00U) != 0x7C00) {
      patterns.push_back(static_cast<std::uint16_t>(pattern));
      expected.push_back(std::bit_cast<std::uint32_t>(number_of_binary16(pattern)));
    }
  }
  check_widened(EXATTN_F16, patterns, expected);
}

TEST_CASE("16 bits: subnormal binary16 numbers keep their value") {
  std::vector<std::uint16_t> patterns;
  std::vector<std::uint32_t> expected;
  for (const std::uint32_t sign : {0U, 0x8000U}) {
    for (std::uint32_t fraction = 0; fraction < 1024; ++fraction) {
      patterns.push_back(static_cast<std::uint16_t>(sign | fraction));
      expected.push_back(std::bit_cast<std::uint32_t>(number_of_binary16(sign | fraction)));
    }
  }
  check_widened(EXATTN_F16, patterns, expected);
}

TEST_CASE("16 bits: infinities and NaNs of binary16 stay what they are") {
  check_widened(EXATTN_F16, {0x7C00, 0xFC00, 0x7C01, 0x7DFF, 0x7E00, 0x7FFF, 0xFC01, 0xFFFF},
                {0x7F800000, 0xFF800000, kNan, kNan, kNan, kNan, kNan, kNan});
}

TEST_CASE("attention: scratch of the size asked for holds an item with all of its rows") {
  Problem problem(1, 2, 1, 200, 64, 16, 24);
  problem.make_means();
  std::size_t bytes = 0;
  REQUIRE(exattn_attention_scratch_size(&problem.args, &bytes) == EXATTN_OK);
  std::vector<unsigned char> memory(bytes + 65536, 0xC3);
  problem.args.scratch = memory.data();
  problem.args.scratch_size = bytes;
  REQUIRE(problem.run() == EXATTN_OK);
  CHECK(problem.out.values() == problem.expected_means());
  // Its last 7 KiB keep the slices of two workers apart, and nobody writes them.
  CHECK(std::vector<unsigned char>(memory.begin() + static_cast<std::ptrdiff_t>(bytes) - 7168, memory.end()) ==
        std::vector<unsigned char>(65536 + 7168, 0xC3));
}

TEST_CASE("evaluate: the exponential is cut off below 2^-126") {
  on_every_kernel([](std::int32_t lanes, std::int32_t flavour) {
    const std::vector<float> x = {std::bit_cast<float>(0xC2AEAC4FU),
                                  std::bit_cast<float>(0xC2AEAC50U),
                                  -88.0F,
                                  -100.0F,
                                  -103.0F,
                                  -1e30F,
                                  -kInfinity};
    std::vector<float> y(x.size(), 1.0F);
    REQUIRE(exattn_evaluate(EXATTN_FUNCTION_EXP, flavour, lanes, x.data(), y.data(), x.size()) == EXATTN_OK);
    CHECK(y[0] >= 0x1p-126F);
    CHECK(static_cast<double>(y[0]) == doctest::Approx(std::exp(static_cast<double>(x[0]))).epsilon(1e-6));
    for (std::size_t n = 1; n < y.size(); ++n) {
      INFO("x = " << x[n]);
      CHECK(std::bit_cast<std::uint32_t>(y[n]) == 0);
    }
  });
}
