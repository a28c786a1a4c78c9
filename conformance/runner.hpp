// Runs golden cases through an implementation and compares hashes. Nothing here writes a golden.
#pragma once

#include "cases.hpp"

#include <exattn/exattn.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace exattn::conformance {

// What an implementation that is not this library says of itself.
struct Foreign {
  std::string name, version;
  std::vector<std::int32_t> flavours; // that it has
};

// What is tested: the two entry points of the library, or a stand-in for them. Those of a foreign implementation are
// never given pages, packed keys or threads, and may throw what is below.
struct Implementation {
  std::function<exattn_status(const exattn_attention_args &)> attention;
  std::function<exattn_status(const exattn_softmax_args &)> softmax;
  std::optional<Foreign> foreign = std::nullopt;
};

// It does not have what a call asks for.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// It has it, but the call failed.
struct CallFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// It can't be started, is gone, or doesn't do as was agreed: this ends the run.
struct ForeignError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The exattn library that this program is linked with.
Implementation linked_library();

// A lane kind as it is here and now.
struct LaneKind {
  std::int32_t lanes = EXATTN_LANES_AUTO;
  bool exact = false;
  bool fast = false;
  std::string missing; // why it is not usable at all; empty when it is
  bool usable(std::int32_t flavour) const { return flavour == EXATTN_FAST ? fast : exact; }
};

std::vector<LaneKind> lane_kinds();

// What to run. An empty list means all that there is.
struct Selection {
  std::vector<std::int32_t> flavours;
  std::vector<std::int32_t> lanes;
  std::vector<std::int32_t> require;                // lane kinds without which the run fails
  std::vector<std::int32_t> threads;                // 0: as many as this process may use
  bool packed = false;                              // once more with packed keys, on the fewest threads
  std::optional<Tier> tier;                         // none: both
  std::function<bool(const std::string &)> matches; // by id; empty: every case
  std::optional<std::int64_t> max_work;             // multiply-adds; of softmax, elements. Larger cases are left out
  bool allow_unsupported = false;                   // what a foreign implementation lacks is no failure
};

// A selection that cannot be run here as it stands.
struct SelectionError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The first element that differs from the oracle's.
struct Difference {
  std::string output;              // "out", "lse", or "state 64" for the state at key 64
  std::vector<std::int64_t> index; // b, h, row, column; b, h, row; or row, column; of a state the byte
  std::uint32_t bits = 0;          // of the element or byte
  std::uint32_t oracle_bits = 0;
  std::size_t count = 0; // how many elements of that output differ
};

// One combination of case, flavour, lane kind, number of threads and layout of the keys; of a foreign implementation
// one of case and flavour; or, with none of them, an input that is wrong.
struct Result {
  std::string id;
  std::int32_t flavour = EXATTN_EXACT;
  std::int32_t lanes = EXATTN_LANES_AUTO; // EXATTN_LANES_AUTO: foreign, or the case could not be run
  std::int32_t threads = 0;
  std::string implementation; // the name of a foreign one; empty: the library
  bool packed = false;        // the keys were packed
  std::string kernel;         // the name that the kernel gave itself
  bool passed = false;
  std::string unsupported; // what the implementation lacks, if that is allowed: then this has neither passed nor failed
  double milliseconds = 0;
  std::vector<std::string> problems; // a line each
  std::optional<Difference> difference;

  bool inputs_alone() const { return lanes == EXATTN_LANES_AUTO && implementation.empty(); }
  bool failed() const { return !passed && unsupported.empty(); }
};

struct Report {
  std::vector<Result> results;
  std::vector<std::string> failures; // of the run as a whole: a required lane kind missing, nothing executed
  std::size_t cases = 0;
  std::size_t passed = 0;
  std::size_t failed = 0;               // results and failures of the run
  std::size_t unsupported = 0;          // results that count as not run
  std::size_t left_out = 0;             // cases of too much work
  std::optional<std::int64_t> max_work; // what is too much
  std::optional<Foreign> foreign;
  bool ok() const { return failed == 0 && passed > 0; }
};

// What to tell the user while it runs. Either may be empty.
struct Observer {
  std::function<void(std::size_t done, std::size_t total, const Result &next)> before;
  std::function<void(const Result &)> after;
};

// Throws SelectionError when the selection names a lane kind or flavour that is not usable here, or no case; and
// ForeignError.
Report run(const Goldens &goldens, const Selection &selection, const Implementation &implementation,
           const Observer &observer);

// "combination" as text for people: "bert-base-128 exact avx2 threads 1", "... threads 1 packed", or
// "bert-base-128 exact by NAME".
std::string describe(const Result &result);

// The bits of a float as eight hex digits.
std::string hex_bits(std::uint32_t bits);

// Where it differs, in words.
std::string describe(const Difference &difference);

// The report as JSON and as JUnit's XML.
std::string to_json(const Report &report);
std::string to_junit(const Report &report);

} // namespace exattn::conformance
