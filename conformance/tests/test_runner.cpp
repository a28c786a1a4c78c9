// The conformance runner: that it passes what is right, and fails on everything else. The golden cases that
// it is given are small enough to work out by hand (test_files.hpp).
#include "conformance/runner.hpp"

#include "test_files.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

using namespace exattn;
using namespace exattn::conformance;
using exattn::tests::kOneKeyGolden;
using exattn::tests::kStopGolden;
using exattn::tests::kTwoEqualGolden;
using exattn::tests::replaced;

namespace {

Goldens goldens_of(const std::string &attention, const std::string &softmax) {
  return {parse_attention_cases(attention, "attention.json"), parse_softmax_cases(softmax, "softmax.json")};
}

Goldens small_goldens() {
  return goldens_of(kOneKeyGolden, kTwoEqualGolden);
}

std::size_t usable_combinations() {
  std::size_t count = 0;
  for (const LaneKind &kind : lane_kinds()) {
    count += (kind.exact ? 1u : 0u) + (kind.fast ? 1u : 0u);
  }
  return count;
}

Selection threads(std::vector<std::int32_t> counts) {
  Selection selection;
  selection.threads = std::move(counts);
  return selection;
}

Report run_quietly(const Goldens &goldens, const Selection &selection,
                   const Implementation &implementation = linked_library()) {
  return run(goldens, selection, implementation, {});
}

// The library, with one output changed after every attention call.
Implementation changed_library(std::function<void(const exattn_attention_args &)> change) {
  Implementation implementation = linked_library();
  implementation.attention = [change](const exattn_attention_args &args) {
    const exattn_status status = exattn_attention(&args);
    change(args);
    return status;
  };
  return implementation;
}

void flip_lowest_bit(float &value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits ^= 1;
  std::memcpy(&value, &bits, sizeof bits);
}

std::string all_problems(const Report &report) {
  std::string text;
  for (const Result &result : report.results) {
    for (const std::string &problem : result.problems) {
      text += problem + "\n";
    }
  }
  return text;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("right results pass at every lane kind, flavour and number of threads") {
  const Report report = run_quietly(small_goldens(), threads({1, 2, 3, 7}));
  CHECK(report.ok());
  CHECK(report.cases == 2);
  CHECK(report.passed == 2 * 4 * usable_combinations());
  CHECK(report.failed == 0);
  CHECK(all_problems(report) == "");
  std::set<std::string> seen;
  for (const Result &result : report.results) {
    seen.insert(describe(result));
    CHECK(result.kernel == std::string(exattn_lanes_name(result.lanes)) + "/" + exattn_flavour_name(result.flavour));
  }
  CHECK(seen.size() == report.passed);
  CHECK(seen.count("one-key exact scalar threads 7") == 1);
  CHECK(seen.count("two-equal fast scalar threads 1") == 1);
}

TEST_CASE("by default 1, 2, 3 and all threads, each once") {
  Selection selection;
  selection.lanes = {EXATTN_LANES_SCALAR};
  selection.flavours = {EXATTN_EXACT};
  const Report report = run_quietly(small_goldens(), selection);
  std::set<std::int32_t> counts;
  for (const Result &result : report.results) {
    counts.insert(result.threads);
  }
  CHECK(report.results.size() == 2 * counts.size());
  CHECK(counts.count(1) == 1);
  CHECK(counts.count(2) == 1);
  CHECK(counts.count(3) == 1);
}

TEST_CASE("packed keys: every case of attention once more, on the fewest threads, and judged by itself") {
  // Of wrong results over packed keys, in pages of 48 and in one piece, nothing else fails.
  std::size_t pages = 0;
  const Implementation wrong = changed_library([&](const exattn_attention_args &args) {
    if (args.k_layout == EXATTN_K_PACKED && args.out.data != nullptr) {
      CHECK(args.k.stride[3] == 16);
      pages += args.page_table != nullptr ? 1 : 0;
      flip_lowest_bit(args.out.data[0]);
    }
  });
  for (const std::string &golden : {kOneKeyGolden, kStopGolden}) {
    Selection selection = threads({3, 1});
    selection.packed = true;
    const Goldens goldens = goldens_of(golden, kTwoEqualGolden);
    const Report right = run_quietly(goldens, selection);
    CHECK(right.ok());
    CHECK(right.passed == (3 + 2) * usable_combinations());
    const Report report = run_quietly(goldens, selection, wrong);
    CHECK(report.failed == usable_combinations());
    for (const Result &result : report.results) {
      CHECK(result.passed != result.packed);
      if (result.packed) {
        CHECK(result.threads == 1);
        CHECK(contains(describe(result), " threads 1 packed"));
      }
    }
    CHECK(contains(to_json(report), "scalar/exact threads 1 packed\""));
    CHECK(contains(to_junit(report), " threads 1 packed\""));
  }
  CHECK(pages == usable_combinations());
  // A page that ends inside of a group can't be packed.
  Selection selection = threads({1});
  selection.packed = true;
  const std::string odd = replaced(kStopGolden, "\"page_size\": 48", "\"page_size\": 40");
  const Report none = run_quietly(goldens_of(odd, kTwoEqualGolden), selection, wrong);
  CHECK(none.ok());
  CHECK(none.passed == 2 * usable_combinations());
}

TEST_CASE("one wrong bit of out is found and located") {
  const Implementation wrong = changed_library([](const exattn_attention_args &args) {
    flip_lowest_bit(args.out.data[args.out.stride[1] * 1 + args.out.stride[2] * 0 + args.out.stride[3] * 1]);
  });
  const Report report = run_quietly(small_goldens(), threads({1, 2}), wrong);
  CHECK_FALSE(report.ok());
  CHECK(report.failed == 2 * usable_combinations());
  CHECK(report.passed == 2 * usable_combinations()); // softmax is left alone
  for (const Result &result : report.results) {
    CHECK(result.passed == (result.id == "two-equal"));
    if (!result.passed) {
      REQUIRE(result.difference.has_value());
      CHECK(result.difference->output == "out");
      CHECK(result.difference->index == std::vector<std::int64_t>{0, 1, 0, 1});
      CHECK(result.difference->bits == 0xbfa00001u);
      CHECK(result.difference->oracle_bits == 0xbfa00000u);
      CHECK(result.difference->count == 1);
    }
  }
  const std::string problems = all_problems(report);
  CHECK(contains(problems, "out[b 0, h 1, row 0, column 1] is bfa00001"));
  CHECK(contains(problems, "the oracle has bfa00000 (-1.25); 1 element differs"));
  CHECK_FALSE(contains(problems, "the oracle disagrees"));
}

TEST_CASE("one wrong bit of lse is found and located") {
  const Implementation wrong = changed_library([](const exattn_attention_args &args) {
    flip_lowest_bit(args.lse.data[args.lse.stride[1] * 1 + args.lse.stride[2] * 1]);
  });
  const Report report = run_quietly(small_goldens(), threads({1}), wrong);
  CHECK(report.failed == usable_combinations());
  CHECK(contains(all_problems(report), "lse[b 0, h 1, row 1] is 40c00001"));
}

TEST_CASE("an output that was not written is a difference") {
  const Implementation lazy{[](const exattn_attention_args &args) {
                              std::int32_t resolved;
                              return exattn_lanes_resolve(args.lanes, args.flavour, &resolved, args.kernel);
                            },
                            linked_library().softmax};
  const Report report = run_quietly(small_goldens(), threads({1}), lazy);
  CHECK(report.failed == usable_combinations());
  CHECK(contains(all_problems(report), "8 elements differ"));
}

TEST_CASE("a case that stops and lies in pages is computed in parts, and passes") {
  std::vector<exattn_attention_args> calls;
  std::vector<std::int32_t> tables;
  bool spare_slots_are_nan = true;
  Implementation watched = linked_library();
  watched.attention = [&](const exattn_attention_args &args) {
    calls.push_back(args);
    tables.insert(tables.end(), args.page_table, args.page_table + args.page_table_stride);
    // Every slot of the pool is a key of value 1 (3c00) or, all its bits set, NaN.
    std::int64_t ones = 0;
    for (std::int64_t n = 0; n < args.pages * args.page_size * args.value_dim; ++n) {
      const std::uint16_t value = static_cast<const std::uint16_t *>(args.v.data)[n];
      ones += value == 0x3c00 ? 1 : 0;
      spare_slots_are_nan = spare_slots_are_nan && (value == 0x3c00 || value == 0xffff);
    }
    CHECK(ones == args.kv_len * args.value_dim);
    return exattn_attention(&args);
  };
  Selection selection = threads({1});
  selection.lanes = {EXATTN_LANES_SCALAR};
  selection.flavours = {EXATTN_EXACT};
  const Report report = run_quietly(goldens_of(kStopGolden, kTwoEqualGolden), selection, watched);
  CHECK(all_problems(report) == "");
  CHECK(report.ok());
  REQUIRE(calls.size() == 2);
  CHECK(spare_slots_are_nan);
  for (const exattn_attention_args &call : calls) {
    CHECK(call.kv_len == 64);
    CHECK(call.page_size == 48);
    CHECK(call.pages == 4); // two of them spare
    CHECK(call.k.dtype == EXATTN_BF16);
    CHECK(call.v.dtype == EXATTN_F16);
    CHECK(call.mask_bool.dtype == EXATTN_U8);
  }
  CHECK(calls[0].kv_offset == 0);
  CHECK(calls[0].state_in == nullptr);
  CHECK(calls[0].out.data == nullptr);
  CHECK(calls[0].state_out_size == 64 + 8 + 4 * 5);
  CHECK(calls[1].kv_offset == 64);
  CHECK(calls[1].state_in == calls[0].state_out);
  CHECK(calls[1].state_out == nullptr);
  CHECK(static_cast<const unsigned char *>(calls[1].mask_bool.data) ==
        static_cast<const unsigned char *>(calls[0].mask_bool.data) + 64);
  // Two pages a call, then an entry that is none, and not in order.
  REQUIRE(tables.size() == 6);
  CHECK(tables[2] == -1);
  CHECK(tables[5] == -1);
  CHECK((tables[0] != 0 || tables[1] != 1));
}

TEST_CASE("a wrong state is found and located, and so is one that is not gone on from") {
  const Goldens goldens = goldens_of(kStopGolden, kTwoEqualGolden);
  const Implementation wrong = changed_library([](const exattn_attention_args &args) {
    if (args.state_out != nullptr) {
      static_cast<unsigned char *>(args.state_out)[64 + 8 + 4 * 4 + 2] ^= 0x10; // acc[1], from 64 (42800000) to 72
    }
  });
  const Report report = run_quietly(goldens, threads({1}), wrong);
  CHECK(report.failed == usable_combinations());
  const std::string problems = all_problems(report);
  CHECK(contains(problems, "state 64 has SHA-256"));
  CHECK(contains(problems, "the golden is 119a"));
  CHECK(contains(problems, "first difference: state 64[byte 90] is 90, the oracle has 80; 1 byte differs"));
  CHECK_FALSE(contains(problems, "the oracle disagrees"));

  Implementation forgetful = linked_library();
  forgetful.attention = [](exattn_attention_args args) {
    args.state_in = nullptr;
    args.state_in_size = 0;
    return exattn_attention(&args);
  };
  const Report forgotten = run_quietly(goldens, threads({1}), forgetful);
  CHECK(forgotten.failed == usable_combinations());
  // Half of the keys have the mean 1 as well, but their log-sum-exp is ln 64 = 4.1588830: 40851592 or next to it.
  CHECK(contains(all_problems(forgotten), "first difference: lse[b 0, h 0, row 0] is 4085159"));
}

TEST_CASE("a wrong golden of a state is told from a wrong kernel") {
  const std::string attention = replaced(kStopGolden, "[\"fc7f", "[\"fc70");
  const Report report = run_quietly(goldens_of(attention, kTwoEqualGolden), threads({1}));
  for (const Result &result : report.results) {
    CHECK(result.passed == (result.id == "two-equal" || result.flavour == EXATTN_EXACT));
  }
  CHECK(contains(all_problems(report), "the oracle disagrees with the golden as well: its state 64 has SHA-256 fc7f"));
}

TEST_CASE("a wrong golden is told from a wrong kernel") {
  const std::string attention = replaced(kOneKeyGolden, "\"exact\": {\"out\": \"cd4c", "\"exact\": {\"out\": \"cd4d");
  const Report report = run_quietly(goldens_of(attention, kTwoEqualGolden), threads({1}));
  CHECK_FALSE(report.ok());
  for (const Result &result : report.results) {
    CHECK(result.passed == (result.id == "two-equal" || result.flavour == EXATTN_FAST));
    CHECK_FALSE(result.difference.has_value());
  }
  CHECK(contains(all_problems(report), "the oracle disagrees with the golden as well: its out has SHA-256 cd4c"));
  CHECK(contains(all_problems(report), "every element is the oracle's, bit for bit"));
}

TEST_CASE("a wrong hash of an input stops the case, and alone is no run") {
  const std::string attention = replaced(kOneKeyGolden, "\"k\": \"ea28", "\"k\": \"ea29");
  Selection selection = threads({1});
  const Report both = run_quietly(goldens_of(attention, kTwoEqualGolden), selection);
  CHECK_FALSE(both.ok());
  CHECK(both.failed == 1);
  CHECK(both.passed == usable_combinations());
  CHECK(contains(all_problems(both), "input k has SHA-256 ea28"));

  selection.matches = [](const std::string &id) { return id == "one-key"; };
  const Report alone = run_quietly(goldens_of(attention, kTwoEqualGolden), selection);
  CHECK_FALSE(alone.ok());
  CHECK(alone.passed == 0);
  CHECK(alone.failed == 2); // the input, and that nothing was executed
}

TEST_CASE("a status, and a kernel that is not the one asked for, are failures") {
  Implementation refusing = linked_library();
  refusing.attention = [](const exattn_attention_args &) { return exattn_status{EXATTN_ERROR_MEMORY}; };
  const Report refused = run_quietly(small_goldens(), threads({1}), refusing);
  CHECK(refused.failed == usable_combinations());
  CHECK(contains(all_problems(refused), exattn_status_string(EXATTN_ERROR_MEMORY)));

  const Implementation renamed =
      changed_library([](const exattn_attention_args &args) { *args.kernel = "abacus/exact"; });
  const Report other = run_quietly(small_goldens(), threads({1}), renamed);
  CHECK(other.failed == usable_combinations());
  CHECK(contains(all_problems(other), "\"abacus/exact\" ran"));
}

TEST_CASE("lane kinds that are not usable here are refused when named, and fail when required") {
  std::size_t missing = 0;
  for (const LaneKind &kind : lane_kinds()) {
    Selection selection = threads({1});
    selection.lanes = {kind.lanes};
    if (!kind.missing.empty()) {
      ++missing;
      CHECK_THROWS_AS(run_quietly(small_goldens(), selection), SelectionError);
      Selection requiring = threads({1});
      requiring.require = {kind.lanes};
      const Report report = run_quietly(small_goldens(), requiring);
      CHECK_FALSE(report.ok());
      CHECK(report.passed > 0);
      REQUIRE_FALSE(report.failures.empty());
      CHECK(contains(report.failures[0], exattn_lanes_name(kind.lanes)));
      CHECK(contains(report.failures[0], kind.missing));
    } else if (!kind.fast) {
      CHECK(run_quietly(small_goldens(), selection).ok()); // exact alone
      selection.flavours = {EXATTN_FAST};
      CHECK_THROWS_AS(run_quietly(small_goldens(), selection), SelectionError);
    }
  }
  CHECK(missing > 0); // no machine has the lane kinds of two architectures
}

TEST_CASE("a required lane kind that was not selected fails") {
  Selection selection = threads({1});
  selection.require = {EXATTN_LANES_SCALAR};
  CHECK(run_quietly(small_goldens(), selection).ok());
  selection.flavours = {EXATTN_EXACT};
  CHECK(run_quietly(small_goldens(), selection).ok());
  for (const LaneKind &kind : lane_kinds()) {
    if (kind.exact && kind.lanes != EXATTN_LANES_SCALAR) {
      selection.lanes = {kind.lanes};
      const Report report = run_quietly(small_goldens(), selection);
      CHECK_FALSE(report.ok());
      CHECK(report.failures == std::vector<std::string>{"required, but not executed: scalar/exact (not selected)"});
    }
  }
}

TEST_CASE("tier and id select cases, and nothing executed is a failure") {
  Selection selection = threads({1});
  selection.tier = Tier::kQuick;
  CHECK(run_quietly(small_goldens(), selection).passed == usable_combinations());
  selection.tier = Tier::kFull;
  const Report full = run_quietly(small_goldens(), selection);
  CHECK(full.passed == usable_combinations());
  CHECK(full.results.front().id == "two-equal");
  selection.matches = [](const std::string &id) { return id == "one-key"; };
  const Report nothing = run_quietly(small_goldens(), selection);
  CHECK_FALSE(nothing.ok());
  CHECK(nothing.passed == 0);
  CHECK(nothing.failed == 1);
  CHECK(nothing.failures == std::vector<std::string>{"nothing was executed: no case matches"});
}

TEST_CASE("the observer sees every combination before and after") {
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  const Observer observer{[&](std::size_t done, std::size_t all, const Result &) {
                            CHECK(done == before);
                            ++before;
                            total = all;
                          },
                          [&](const Result &) { ++after; }};
  const Report report = run(small_goldens(), threads({1, 2}), linked_library(), observer);
  CHECK(before == report.results.size());
  CHECK(after == before);
  CHECK(total == before);
}

TEST_CASE("reports as JSON and JUnit") {
  const Implementation wrong =
      changed_library([](const exattn_attention_args &args) { flip_lowest_bit(args.out.data[0]); });
  Selection selection = threads({1});
  selection.lanes = {EXATTN_LANES_SCALAR};
  selection.require = {EXATTN_LANES_SCALAR};
  Report report = run_quietly(small_goldens(), selection, wrong);
  report.results[0].problems.push_back("a < b & \"c\"");

  const nlohmann::json json = nlohmann::json::parse(to_json(report));
  CHECK(json["passed"] == 2);
  CHECK(json["failed"] == 2);
  CHECK(json["definition"] == "exattn-1");
  REQUIRE(json["results"].size() == 4);
  CHECK(json["results"][0]["case"] == "one-key");
  CHECK(json["results"][0]["kernel"] == "scalar/exact");
  CHECK(json["results"][0]["first_difference"]["bits"] == "3f000001");
  CHECK(json["results"][0]["first_difference"]["oracle_bits"] == "3f000000");
  CHECK(json["results"][0]["first_difference"]["index"] == nlohmann::json::array({0, 0, 0, 0}));
  CHECK(json["results"][3]["passed"] == true);
  CHECK(json["failures"].size() == 2);
  CHECK(json["failures"][0] == "one-key scalar/exact threads 1");

  const std::string junit = to_junit(report);
  CHECK(contains(junit, "tests=\"4\" failures=\"2\""));
  CHECK(contains(junit, "<testcase classname=\"exattn.fast.scalar\" name=\"two-equal threads 1\""));
  CHECK(contains(junit, "a &lt; b &amp; &quot;c&quot;"));
}
