// What must not matter does not: hidden keys, values and mask entries, gaps, padding, unused pages and the rows of no
// sequence are filled with NaN, infinities and signalling patterns, and no bit of out, lse or state changes. And
// nothing is written but the outputs.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exattn/exattn.h"
#include "random_call.hpp"

using namespace exattn::tests;

namespace {

// Bytes between guards, at an odd address.
class GuardedBytes {
public:
  GuardedBytes(std::size_t size, unsigned char fill) : bytes(size + 2 * kGuard, fill) {
    std::fill_n(bytes.begin(), kGuard, kPattern);
    std::fill_n(bytes.rbegin(), kGuard, kPattern);
  }
  unsigned char *data() { return bytes.data() + kGuard; }
  std::size_t size() const { return bytes.size() - 2 * kGuard; }
  std::vector<unsigned char> contents() { return {data(), data() + size()}; }
  bool guards_intact() const {
    for (std::size_t n = 0; n < kGuard; ++n) {
      if (bytes[n] != kPattern || bytes[bytes.size() - 1 - n] != kPattern) {
        return false;
      }
    }
    return true;
  }

private:
  static constexpr std::size_t kGuard = 129;
  static constexpr unsigned char kPattern = 0xA5;
  std::vector<unsigned char> bytes;
};

struct Outcome {
  std::vector<Rows> rows; // of each sequence
  std::vector<unsigned char> state;
  std::string problem; // what was refused or written out of place; empty: nothing
};

// One call with scratch of just the size that it asks for, and a state. Scratch and state begin as `fill` bytes.
Outcome run(const Attention &attention, Placed &placed, std::size_t sequences, std::int32_t lanes, unsigned char fill) {
  Outcome outcome;
  placed.args.lanes = lanes;
  std::size_t scratch_bytes = 0, state_bytes = 0;
  if (exattn_attention_scratch_size(&placed.args, &scratch_bytes) != EXATTN_OK ||
      exattn_attention_state_size(&placed.args, &state_bytes) != EXATTN_OK) {
    outcome.problem = "size query: " + placed.text();
    return outcome;
  }
  GuardedBytes scratch(scratch_bytes, fill), state(state_bytes, fill);
  placed.args.scratch = scratch.data();
  placed.args.scratch_size = scratch.size();
  placed.args.state_out = state.data();
  placed.args.state_out_size = state.size();
  if (const exattn_status status = attention(placed.args); status != EXATTN_OK) {
    outcome.problem = std::string(exattn_status_name(status)) + ": " + placed.text();
    return outcome;
  }
  outcome.problem += placed.outputs_alone_written() ? "" : "out or lse: written out of place; ";
  outcome.problem += scratch.guards_intact() ? "" : "scratch: written out of place; ";
  outcome.problem += state.guards_intact() ? "" : "state: written out of place; ";
  for (std::size_t b = 0; b < sequences; ++b) {
    outcome.rows.push_back(placed.rows(b));
  }
  outcome.state = state.contents();
  return outcome;
}

struct NamedLayout {
  std::string name;
  std::size_t sequences; // 1 or 3
  Layout layout;
};

std::vector<NamedLayout> layouts() {
  std::vector<NamedLayout> all;
  const auto add = [&](const char *name, std::size_t sequences, Arrangement arrangement, std::int64_t extra_keys) {
    all.push_back({name, sequences, {}});
    all.back().layout.arrangement = arrangement;
    all.back().layout.extra_keys = extra_keys;
    return &all.back().layout;
  };
  add("one sequence", 1, Arrangement::contiguous, 0);
  add("rows with gaps, padded keys", 1, Arrangement::gaps, 70);
  add("elements apart, padded batch", 3, Arrangement::spread, 5);
  add("tokens first, padded batch", 3, Arrangement::tokens_first, 1);
  add("backward, padded batch", 3, Arrangement::backward, 3);
  add("transposed", 1, Arrangement::transposed, 2);
  Layout *layout = add("ragged", 3, Arrangement::gaps, 4);
  layout->ragged_queries = layout->ragged_keys = true;
  layout = add("ragged keys", 3, Arrangement::shifted, 0);
  layout->ragged_keys = true;
  layout = add("ragged queries, pages of 16", 3, Arrangement::contiguous, 20);
  layout->ragged_queries = true;
  layout->page_size = 16;
  layout = add("pages of 48", 1, Arrangement::gaps, 50);
  layout->page_size = 48;
  layout = add("pages of 1, batch", 3, Arrangement::tokens_first, 3);
  layout->page_size = 1;
  // The same with packed keys, where a hidden key lies between those that are read.
  for (const NamedLayout &named : std::vector<NamedLayout>(all)) {
    const Arrangement how = named.layout.arrangement;
    if (how == Arrangement::spread || how == Arrangement::backward || how == Arrangement::transposed ||
        named.layout.page_size % 16 != 0) {
      continue;
    }
    all.push_back(named);
    all.back().name += ", packed keys";
    all.back().layout.packed_keys = true;
  }
  return all;
}

std::vector<const Sequence *> in_batch(const Sequence &s, const std::vector<Sequence> &others, std::size_t sequences) {
  return sequences == 1 ? std::vector<const Sequence *>{&s} : std::vector<const Sequence *>{&others[0], &s, &others[1]};
}

std::vector<std::size_t> different_rows(const Outcome &outcome, const Outcome &expected) {
  std::vector<std::size_t> different;
  for (std::size_t b = 0; b < expected.rows.size(); ++b) {
    if (outcome.rows.size() != expected.rows.size() || !(outcome.rows[b] == expected.rows[b])) {
      different.push_back(b);
    }
  }
  return different;
}

// What is wrong with a call over poisoned memory, against one over clean memory; empty: nothing.
std::string poisoned(const Attention &attention, const CallProblem &p, const NamedLayout &named, const Fill &poison,
                     std::int32_t lanes, LeftOut &left_out) {
  const Sequence s = make_sequence(p);
  const std::vector<Sequence> others = neighbours(p, !named.layout.ragged_queries);
  const std::vector<const Sequence *> all = in_batch(s, others, named.sequences);
  Placed clean(p, all, named.layout);
  const Outcome expected = run(attention, clean, all.size(), lanes, 0);
  if (!expected.problem.empty()) {
    return expected.problem;
  }
  Layout layout = named.layout;
  layout.fill = poison;
  layout.only_what_matters = true;
  Placed dirty(p, all, layout);
  if (dirty.args.q_offsets != nullptr) {
    dirty.args.q_offset = -1; // q_offsets takes its place
  }
  const Outcome outcome = run(attention, dirty, all.size(), lanes, 0xFF);
  for (const auto member :
       {&LeftOut::causal, &LeftOut::window, &LeftOut::mask_bool, &LeftOut::mask_entries, &LeftOut::mask_bool_entries,
        &LeftOut::pages, &LeftOut::page_slots, &LeftOut::cut_off_keys, &LeftOut::rows_of_none}) {
    left_out.*member += dirty.left_out.*member;
  }
  if (!outcome.problem.empty()) {
    return outcome.problem;
  }
  if (const std::vector<std::size_t> different = different_rows(outcome, expected); !different.empty()) {
    return "out or lse of sequence " + std::to_string(different[0]) + " has other bits";
  }
  return outcome.state == expected.state ? "" : "the state has other bits";
}

void flip(void *base, std::ptrdiff_t offset) {
  static_cast<unsigned char *>(base)[offset] ^= 1;
}

void check_poisoned(const CallProblem &p, const NamedLayout &named, const Fill &poison, std::int32_t lanes,
                    LeftOut &left_out) {
  const std::string problem = poisoned(library(), p, named, poison, lanes, left_out);
  INFO(describe(p) << "\n"
                   << named.name << ", " << std::string(poison.name) << ", " << std::string(exattn_lanes_name(lanes))
                   << ": " << problem);
  CHECK(problem.empty());
}

// Small enough for the emulated fused multiply-add too.
constexpr std::int64_t kMostWork = 60'000;

// Two query heads on one, 3 rows, all keys visible but two for the first row, every number finite.
CallProblem visible_problem(std::int32_t type) {
  CallProblem p;
  p.seed = 5;
  p.heads = 2;
  p.q_len = 3;
  p.kv_len = 70;
  p.head_dim = 5;
  p.value_dim = 6;
  p.q_offset = 67;
  p.causal = true;
  p.q_type = p.k_type = p.v_type = type;
  return p;
}

} // namespace

TEST_CASE("poison: what must not matter does not") {
  LeftOut left_out;
  std::set<std::string> kernels;
  std::int64_t calls = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    const CallProblem p = random_problem(seed + 5000, kMostWork);
    const std::vector<std::int32_t> usable = usable_lanes(p.flavour);
    std::size_t next = seed;
    for (const NamedLayout &named : layouts()) {
      for (const Fill &poison : kPoisons) {
        // Every lane kind over the poisons of a layout, and every pair over the problems.
        const std::int32_t lanes = usable[next++ % usable.size()];
        check_poisoned(p, named, poison, lanes, left_out);
        kernels.insert(exattn_lanes_name(lanes) + std::string("/") + exattn_flavour_name(p.flavour));
        ++calls;
      }
      ++next;
    }
  }
  CHECK(calls == 24 * static_cast<std::int64_t>(layouts().size() * std::size(kPoisons)));
  CHECK(kernels.size() == usable_lanes(EXATTN_EXACT).size() + usable_lanes(EXATTN_FAST).size());
  // Each rule hid something.
  CHECK(left_out.causal > 0);
  CHECK(left_out.window > 0);
  CHECK(left_out.mask_bool > 0);
  CHECK(left_out.mask_entries > 0);
  CHECK(left_out.mask_bool_entries > 0);
  CHECK(left_out.pages > 0);
  CHECK(left_out.page_slots > 0);
  CHECK(left_out.cut_off_keys > 0);
  CHECK(left_out.rows_of_none > 0);
}

TEST_CASE("poison: on every lane kind, every rule at once") {
  // Rows 0 to 9 at 100 to 109 see keys 61 to 109 of 130 at most: hidden by causal, window, mask_bool, kv_lens and
  // pages.
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    for (const std::int32_t lanes : usable_lanes(flavour)) {
      for (const std::int32_t type : {EXATTN_F32, EXATTN_BF16, EXATTN_F16}) {
        CallProblem p;
        p.seed = 9;
        p.flavour = flavour;
        p.heads = 4;
        p.kv_heads = 2;
        p.q_len = 10;
        p.kv_len = 130;
        p.head_dim = 5;
        p.value_dim = 7;
        p.q_offset = 100;
        p.window = 40;
        p.causal = p.mask = p.mask_bool = p.sinks = p.alibi = true;
        p.softcap = 3.0F;
        p.q_type = p.k_type = p.v_type = type;
        for (const NamedLayout &named : layouts()) {
          for (const Fill &poison : kPoisons) {
            LeftOut left_out;
            check_poisoned(p, named, poison, lanes, left_out);
            // Keys 110 to 129 are hidden by causal, 0 to 60 by the window, on each of two heads.
            CHECK(left_out.causal >= 2 * 20);
            CHECK(left_out.window >= 2 * 61);
          }
        }
      }
    }
  }
}

TEST_CASE("poison: nor between calls that go on from a state") {
  // Keys 0 to 63, then the others: the sinks of the second call, which a state holds already, are NaN.
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    for (const std::int32_t lanes : usable_lanes(flavour)) {
      for (const std::int64_t page_size : {0, 16}) {
        CallProblem p = visible_problem(EXATTN_BF16);
        p.flavour = flavour;
        p.kv_len = 100;
        p.q_offset = 80;
        p.window = 50;
        p.sinks = p.mask = p.mask_bool = true;
        const Sequence s = make_sequence(p);
        Layout layout;
        layout.page_size = page_size;
        layout.extra_keys = 9;
        Placed clean(p, {&s}, layout);
        const Outcome expected = run(library(), clean, 1, lanes, 0);
        REQUIRE(expected.problem == "");
        for (const Fill &poison : kPoisons) {
          INFO(describe(p) << ", page size " << page_size << ", " << std::string(poison.name) << ", "
                           << std::string(exattn_lanes_name(lanes)));
          layout.fill = poison;
          layout.only_what_matters = true;
          Placed dirty(p, {&s}, layout);
          dirty.args.lanes = lanes;
          std::size_t bytes = 0;
          REQUIRE(exattn_attention_state_size(&dirty.args, &bytes) == EXATTN_OK);
          GuardedBytes first(bytes, 0xFF), second(bytes, 0xFF);
          Slice begin = dirty.slice(0, p.q_len, 0, 64);
          begin.args.out.data = begin.args.lse.data = nullptr;
          begin.args.state_out = first.data();
          begin.args.state_out_size = bytes;
          REQUIRE(exattn_attention(&begin.args) == EXATTN_OK);
          Slice rest = dirty.slice(0, p.q_len, 64, dirty.args.kv_len);
          const std::vector<float> sinks(2, NAN);
          rest.args.sinks = sinks.data();
          rest.args.state_in = first.data();
          rest.args.state_in_size = bytes;
          rest.args.state_out = second.data();
          rest.args.state_out_size = bytes;
          const exattn_status status = exattn_attention(&rest.args);
          INFO(dirty.text());
          REQUIRE(status == EXATTN_OK);
          CHECK(dirty.rows(0) == expected.rows[0]);
          CHECK(second.contents() == expected.state);
          CHECK(first.guards_intact());
          CHECK(second.guards_intact());
          CHECK(dirty.outputs_alone_written());
        }
      }
    }
  }
}

TEST_CASE("poison: what matters shows") {
  for (const std::int32_t type : {EXATTN_F32, EXATTN_BF16, EXATTN_F16}) {
    for (const NamedLayout &named : layouts()) {
      CallProblem p = visible_problem(type);
      p.mask = true;
      Sequence s = make_sequence(p);
      s.mask.assign(s.mask.size(), 0x3E800000); // 0.25
      const std::vector<Sequence> others = neighbours(p, !named.layout.ragged_queries);
      const std::vector<const Sequence *> all = in_batch(s, others, named.sequences);
      const std::size_t place = named.sequences / 2; // of s
      Placed clean(p, all, named.layout);
      const Outcome expected = run(library(), clean, all.size(), EXATTN_LANES_SCALAR, 0);
      REQUIRE(expected.problem == "");
      for (const Fill &poison : kPoisons) {
        // Key 69 is seen by row 2 alone, key 0 by all; nothing else of the batch changes.
        const auto shows = [&](const char *what, auto change) {
          INFO(named.name << ", " << std::string(poison.name) << ", " << std::string(what));
          Placed placed(p, all, named.layout);
          change(placed);
          const Outcome outcome = run(library(), placed, all.size(), EXATTN_LANES_SCALAR, 0);
          CHECK(outcome.problem == "");
          CHECK(different_rows(outcome, expected) == std::vector<std::size_t>{place});
          CHECK(outcome.state != expected.state);
        };
        const std::uint32_t pattern = fill_of(poison, type);
        shows("a query", [&](Placed &c) { c.q.store(pattern, c.batch_of(place), 1, c.row_of(place, 2), 4); });
        for (const std::int64_t key : {0, 69}) {
          shows("a key", [&](Placed &c) { c.store_key(pattern, place, key, 0, 4); });
          shows("a value",
                [&](Placed &c) { c.v.store(pattern, c.key_of(place, key).first, 0, c.key_of(place, key).second, 5); });
          shows("a mask entry",
                [&](Placed &c) { c.mask.store(poison.f32, c.batch_of(place), 0, c.row_of(place, 2), key); });
        }
      }
    }
  }
}

TEST_CASE("poison: entries of a boolean mask and of a page table that matter show") {
  CallProblem p = visible_problem(EXATTN_F32);
  p.mask_bool = true;
  Sequence s = make_sequence(p);
  s.mask_bool.assign(s.mask_bool.size(), 1);
  Layout layout;
  layout.page_size = 16;
  Placed clean(p, {&s}, layout);
  const Outcome expected = run(library(), clean, 1, EXATTN_LANES_SCALAR, 0);
  REQUIRE(expected.problem == "");

  Placed hiding(p, {&s}, layout);
  hiding.mask_bool.store(0, 0, 1, 1, 68);
  CHECK(different_rows(run(library(), hiding, 1, EXATTN_LANES_SCALAR, 0), expected).size() == 1);

  Placed swapped(p, {&s}, layout);
  std::vector<std::int32_t> table(swapped.args.page_table, swapped.args.page_table + swapped.args.page_table_stride);
  std::swap(table[0], table[3]);
  swapped.args.page_table = table.data();
  CHECK(different_rows(run(library(), swapped, 1, EXATTN_LANES_SCALAR, 0), expected).size() == 1);
}

TEST_CASE("poison: a stand-in that multiplies hidden values by zero is found") {
  const Attention careless = [](const exattn_attention_args &args) {
    const exattn_status status = exattn_attention(&args);
    float hidden = 0.0F; // the last key's first value
    const float *const last = static_cast<const float *>(args.v.data) + (args.kv_len - 1) * args.v.stride[2];
    std::memcpy(&hidden, last, sizeof hidden);
    args.out.data[0] += 0.0F * hidden;
    return status;
  };
  CallProblem p = visible_problem(EXATTN_F32);
  p.kv_len = 90;
  LeftOut left_out;
  const NamedLayout named = layouts()[0];
  for (const Fill &poison : kPoisons) {
    CHECK(poisoned(library(), p, named, poison, EXATTN_LANES_SCALAR, left_out) == "");
    CHECK(poisoned(careless, p, named, poison, EXATTN_LANES_SCALAR, left_out) ==
          "out or lse of sequence 0 has other bits");
  }
  CHECK(left_out.causal == 8 * 20); // keys 70 to 89
}

TEST_CASE("poison: a stand-in that writes out of place is found") {
  using Args = exattn_attention_args;
  struct Fault {
    const char *name;
    void (*write)(const Args &);
    const char *reported;
  };
  const Fault faults[] = {
      {"before out", [](const Args &a) { a.out.data[-1] = 0.0F; }, "out or lse: written out of place; "},
      {"between rows of out", [](const Args &a) { a.out.data[a.value_dim] = 0.0F; },
       "out or lse: written out of place; "},
      {"behind out", [](const Args &a) { a.out.data[a.heads * a.out.stride[1] + 1] = 0.0F; },
       "out or lse: written out of place; "},
      {"before lse", [](const Args &a) { a.lse.data[-1] = 0.0F; }, "out or lse: written out of place; "},
      {"before the scratch", [](const Args &a) { flip(a.scratch, -1); }, "scratch: written out of place; "},
      {"behind the scratch", [](const Args &a) { flip(a.scratch, static_cast<std::ptrdiff_t>(a.scratch_size)); },
       "scratch: written out of place; "},
      {"before the state", [](const Args &a) { flip(a.state_out, -1); }, "state: written out of place; "},
      {"behind the state", [](const Args &a) { flip(a.state_out, static_cast<std::ptrdiff_t>(a.state_out_size)); },
       "state: written out of place; "},
  };
  const NamedLayout with_gaps = layouts()[1];
  LeftOut left_out;
  for (const Fault &fault : faults) {
    INFO(std::string(fault.name));
    const Attention standin = [&](const Args &args) {
      const exattn_status status = exattn_attention(&args);
      fault.write(args);
      return status;
    };
    CHECK(poisoned(standin, visible_problem(EXATTN_F32), with_gaps, kPoisons[0], EXATTN_LANES_SCALAR, left_out) ==
          fault.reported);
  }
}

TEST_CASE("scratch: its size follows from the head sizes and threads alone") {
  for (const std::int64_t size : {1, 64, 128, 300}) {
    exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
    args.batch = args.heads = args.kv_heads = args.q_len = 1;
    args.kv_len = 16;
    args.head_dim = args.value_dim = size;
    std::size_t bytes = 0;
    REQUIRE(exattn_attention_scratch_size(&args, &bytes) == EXATTN_OK);
    CHECK(bytes > 0);
    const auto same = [&](auto change) {
      exattn_attention_args other = args;
      change(other);
      std::size_t others = 0;
      REQUIRE(exattn_attention_scratch_size(&other, &others) == EXATTN_OK);
      CHECK(others == bytes);
    };
    same([](exattn_attention_args &a) { a.kv_len = 100000; });
    same([](exattn_attention_args &a) { a.kv_len = std::int64_t{1} << 40; });
    same([](exattn_attention_args &a) { a.q_len = 100000; });
    same([](exattn_attention_args &a) { a.batch = a.heads = a.kv_heads = 1000; });
    same([](exattn_attention_args &a) { a.flavour = EXATTN_FAST; });
  }
}
