// The same row has the same bits however it was computed: random problems, each computed in every way that the
// interface offers and compared with one reference: contiguous binary32, one call, one thread, scalar lanes. What fails
// is made smaller for as long as it fails, and printed.
//
// EXATTN_PROPERTY_CASES is how many problems, 60 if not set; with fewer it is not checked that every way was taken.
// When it is set, the number of problems that took each way is printed.
//
// EXATTN_PROPERTY_SEED is the seed of the first problem, 1 if not set; each further one has the next seed. A report
// names the seed of its problem: that seed with one case shows it again.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exact/oracle.hpp"
#include "exattn/exattn.h"
#include "random_call.hpp"

using namespace exattn::tests;

namespace {

// ---- Variants: the ways to compute the rows of a sequence ----

enum class Kind : std::uint8_t {
  oracle,             // the definition in scalar loops
  lanes,              // one call on each lane kind, as stored
  widened,            // the same with 16-bit elements widened beforehand
  threads,            // on a pool of so many
  chunks,             // so many rows at a time, by q_offset
  truncated,          // the same, with the keys after the last visible one absent
  decode,             // each row alone with its keys, in memory of their own
  batch,              // one of three sequences: the first, the middle or the last
  padded,             // so many keys more than kv_lens says
  ragged,             // among others: queries and keys ragged, one of them, or queries ragged and keys in pages
  paged,              // pages of so many keys, out of order
  resumed,            // stopped at one block edge: the first, the second, ...
  resumed_everywhere, // stopped at every block edge, each piece on other lanes
  resumed_in_place,   // the same with one state for in and out
  resumed_pages,      // the same with pages of so many keys
  resumed_batch,      // the same as one of three sequences whose keys end at different places; with pages
  packed,             // packed keys: alone, in pages, among others, ragged, stopped at every block edge, row by row
  arrangement         // strides
};
constexpr const char *kKindNames[] = {
    "oracle",        "lanes",         "widened", "threads",    "chunks",  "truncated",          "decode",
    "batch",         "padded",        "ragged",  "paged",      "resumed", "resumed everywhere", "resumed in place",
    "resumed pages", "resumed batch", "packed",  "arrangement"};

// The parameter of Kind::packed.
enum class PackedWay : std::uint8_t {
  alone,
  widened, // 16-bit elements beforehand
  gaps,    // between groups, and kv_lens
  tokens_first,
  pages_16,
  pages_48,
  ragged,
  resumed,
  resumed_pages,
  decode
};
constexpr const char *kPackedNames[] = {"alone",    "widened", "gaps",    "tokens first",  "pages 16",
                                        "pages 48", "ragged",  "resumed", "resumed pages", "decode"};

struct Variant {
  Kind kind = Kind::lanes;
  std::int64_t parameter = 0;
  std::int32_t lanes = EXATTN_LANES_SCALAR;
  std::int64_t split = 0; // above 0: the same with keys split, on so many threads
};

std::string label(const Variant &variant) {
  const std::string name =
      (variant.split > 0 ? "split " : "") + std::string(kKindNames[static_cast<std::size_t>(variant.kind)]);
  switch (variant.kind) {
  case Kind::lanes:
    return name + " " + exattn_lanes_name(variant.lanes);
  case Kind::arrangement:
    return name + " " + kArrangementNames[variant.parameter];
  case Kind::packed:
    return name + " " + kPackedNames[variant.parameter];
  case Kind::oracle:
  case Kind::widened:
  case Kind::decode:
  case Kind::resumed_everywhere:
  case Kind::resumed_in_place:
    return name;
  default:
    return name + " " + std::to_string(variant.parameter);
  }
}

std::string describe(const Variant &variant) {
  return label(variant) + " on " + exattn_lanes_name(variant.lanes) +
         (variant.split > 0 ? " by " + std::to_string(variant.split) + " threads" : "");
}

exattn_pool *pool_of(std::int64_t threads) {
  struct Delete {
    void operator()(exattn_pool *pool) const { exattn_pool_destroy(pool); }
  };
  static std::map<std::int64_t, std::unique_ptr<exattn_pool, Delete>> pools;
  std::unique_ptr<exattn_pool, Delete> &pool = pools[threads];
  if (pool == nullptr) {
    exattn_pool *made = nullptr;
    REQUIRE(exattn_pool_create(static_cast<std::int32_t>(threads), &made) == EXATTN_OK);
    pool.reset(made);
  }
  return pool.get();
}

// A call that an implementation refused.
struct Refused {
  std::string text;
};

void run(const Attention &attention, const exattn_attention_args &args, const Placed &placed) {
  if (const exattn_status status = attention(args); status != EXATTN_OK) {
    throw Refused{std::string(exattn_status_name(status)) + ": " + placed.text()};
  }
}

Rows in_one_call(const Attention &attention, const CallProblem &p, const Sequence &s, const Layout &layout,
                 std::int32_t lanes, exattn_pool *pool = nullptr) {
  Placed placed(p, {&s}, layout);
  placed.args.lanes = lanes;
  placed.args.pool = pool;
  run(attention, placed.args, placed);
  return placed.rows(0);
}

Rows by_the_oracle(const CallProblem &p, const Sequence &s) {
  const auto widened = [](const std::vector<std::uint32_t> &patterns, std::int32_t type) {
    std::vector<float> values;
    for (const std::uint32_t pattern : patterns) {
      values.push_back(widen_pattern(pattern, type));
    }
    return values;
  };
  const std::vector<float> q = widened(s.q, p.q_type), k = widened(s.k, p.k_type), v = widened(s.v, p.v_type);
  const std::vector<float> mask = widened(s.mask, EXATTN_F32), sinks = make_sinks(p), slopes = make_slopes(p);
  exattn::oracle::AttentionCase call{};
  call.batch = 1;
  call.heads = p.heads;
  call.kv_heads = p.kv_heads;
  call.q_len = s.q_len;
  call.kv_len = s.kv_len;
  call.head_dim = p.head_dim;
  call.value_dim = p.value_dim;
  call.scale = p.given_scale ? p.scale : exattn::oracle::default_scale(p.head_dim);
  call.causal = p.causal;
  call.window = p.window;
  call.q_offsets = {s.q_offset};
  call.kv_lens = {s.kv_len};
  call.fully_masked_zero = p.fully_masked_zero;
  call.q = q.data();
  call.k = k.data();
  call.v = v.data();
  call.mask = p.mask ? mask.data() : nullptr;
  call.mask_bool = p.mask_bool ? s.mask_bool.data() : nullptr;
  const std::int64_t strides[] = {p.heads * s.q_len * s.kv_len, s.q_len * s.kv_len, s.kv_len, 1};
  std::copy(std::begin(strides), std::end(strides), call.mask_stride);
  std::copy(std::begin(strides), std::end(strides), call.mask_bool_stride);
  call.sinks = p.sinks ? sinks.data() : nullptr;
  call.alibi_slopes = p.alibi ? slopes.data() : nullptr;
  call.softcap = p.softcap;
  std::vector<float> out(static_cast<std::size_t>(p.heads * s.q_len * p.value_dim));
  std::vector<float> lse(static_cast<std::size_t>(p.heads * s.q_len));
  exattn::oracle::attention(call,
                            p.flavour == EXATTN_FAST ? exattn::oracle::Flavour::fast : exattn::oracle::Flavour::exact,
                            out.data(), lse.data());
  Rows rows;
  for (const float value : out) {
    rows.out.push_back(std::bit_cast<std::uint32_t>(value));
  }
  for (const float value : lse) {
    rows.lse.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return rows;
}

Rows in_chunks(const Attention &attention, const CallProblem &p, const Sequence &s, std::int64_t size, bool truncate,
               std::int32_t lanes) {
  Placed placed(p, {&s}, {});
  placed.args.lanes = lanes;
  for (std::int64_t row = 0; row < s.q_len; row += size) {
    const std::int64_t end = std::min(s.q_len, row + size);
    Slice chunk = placed.slice(row, end, 0, truncate ? std::min(s.kv_len, s.q_offset + end) : s.kv_len);
    run(attention, chunk.args, placed);
  }
  return placed.rows(0);
}

Rows row_by_row(const Attention &attention, const CallProblem &p, const Sequence &s, const Layout &layout,
                std::int32_t lanes) {
  Rows rows;
  rows.out.resize(static_cast<std::size_t>(p.heads * s.q_len * p.value_dim));
  rows.lse.resize(static_cast<std::size_t>(p.heads * s.q_len));
  for (std::int64_t i = 0; i < s.q_len; ++i) {
    const Sequence row = cut(p, s, i, i + 1, p.causal ? std::min(s.kv_len, s.q_offset + i + 1) : s.kv_len);
    const Rows result = in_one_call(attention, p, row, layout, lanes);
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const std::int64_t to = h * s.q_len + i;
      std::copy_n(result.out.begin() + h * p.value_dim, p.value_dim, rows.out.begin() + to * p.value_dim);
      rows.lse[static_cast<std::size_t>(to)] = result.lse[static_cast<std::size_t>(h)];
    }
  }
  return rows;
}

std::size_t state_bytes(const Placed &placed) {
  std::size_t bytes = 0;
  if (exattn_attention_state_size(&placed.args, &bytes) != EXATTN_OK) {
    throw Refused{"state size: " + placed.text()};
  }
  return bytes;
}

// Stopped at each of the edges; gives the state after all keys.
std::vector<unsigned char> resume(const Attention &attention, Placed &placed, std::vector<std::int64_t> edges,
                                  bool in_place, std::int32_t flavour, std::int32_t lanes) {
  const std::vector<std::int32_t> usable = usable_lanes(flavour);
  std::size_t next = static_cast<std::size_t>(std::find(usable.begin(), usable.end(), lanes) - usable.begin());
  const std::size_t bytes = state_bytes(placed);
  std::vector<unsigned char> state(bytes, 0x5A);
  edges.insert(edges.begin(), 0);
  edges.push_back(placed.args.kv_len);
  for (std::size_t n = 0; n + 1 < edges.size(); ++n) {
    Slice piece = placed.slice(0, placed.args.q_len, edges[n], edges[n + 1]);
    std::vector<unsigned char> after(bytes, 0xA5); // other memory, as from a file
    piece.args.lanes = usable[next++ % usable.size()];
    piece.args.state_in = n == 0 ? nullptr : state.data();
    piece.args.state_in_size = n == 0 ? 0 : bytes;
    piece.args.state_out = in_place ? state.data() : after.data();
    piece.args.state_out_size = bytes;
    if (n + 2 < edges.size() && n % 2 == 0) { // results so far may be asked for or not
      piece.args.out.data = piece.args.lse.data = nullptr;
    }
    run(attention, piece.args, placed);
    if (!in_place) {
      state = after;
    }
  }
  return state;
}

std::vector<std::int64_t> edges_within(std::int64_t keys) {
  std::vector<std::int64_t> edges;
  for (std::int64_t edge = 64; edge < keys; edge += 64) {
    edges.push_back(edge);
  }
  return edges;
}

Rows among_others(const Attention &attention, const CallProblem &p, const Sequence &s, std::int64_t place,
                  const Layout &layout, bool resumed, std::int32_t lanes) {
  const std::vector<Sequence> others = neighbours(p, !layout.ragged_queries);
  std::vector<const Sequence *> all{others.data(), others.data() + 1};
  all.insert(all.begin() + place, &s);
  Placed placed(p, all, layout);
  placed.args.lanes = lanes;
  if (resumed) {
    resume(attention, placed, edges_within(placed.args.kv_len), false, p.flavour, lanes);
  } else {
    run(attention, placed.args, placed);
  }
  return placed.rows(static_cast<std::size_t>(place));
}

// What lies around packed keys, and in their places that hold none, is NaN.
std::optional<Rows> over_packed_keys(const Attention &attention, const CallProblem &p, const Sequence &s, PackedWay way,
                                     std::int32_t lanes) {
  Layout layout;
  layout.packed_keys = true;
  layout.fill = kPoisons[0];
  switch (way) {
  case PackedWay::alone:
    return in_one_call(attention, p, s, layout, lanes);
  case PackedWay::widened:
    layout.widened = true;
    return p.k_type != EXATTN_F32 ? std::optional(in_one_call(attention, p, s, layout, lanes)) : std::nullopt;
  case PackedWay::gaps:
    layout.arrangement = Arrangement::gaps;
    layout.extra_keys = 70;
    return in_one_call(attention, p, s, layout, lanes);
  case PackedWay::tokens_first:
    layout.arrangement = Arrangement::tokens_first;
    return among_others(attention, p, s, 1, layout, false, lanes);
  case PackedWay::pages_16:
  case PackedWay::pages_48:
    layout.page_size = way == PackedWay::pages_16 ? 16 : 48;
    return in_one_call(attention, p, s, layout, lanes);
  case PackedWay::ragged:
    layout.ragged_queries = layout.ragged_keys = true;
    return among_others(attention, p, s, 1, layout, false, lanes);
  case PackedWay::resumed:
  case PackedWay::resumed_pages:
    layout.page_size = way == PackedWay::resumed_pages ? 16 : 0;
    return s.kv_len > 64 ? std::optional(among_others(attention, p, s, 1, layout, true, lanes)) : std::nullopt;
  case PackedWay::decode:
    break;
  }
  return row_by_row(attention, p, s, layout, lanes);
}

Attention with_split_keys(const Attention &attention, std::int64_t threads) {
  return [&attention, threads](exattn_attention_args args) {
    args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
    args.pool = pool_of(threads);
    return attention(args);
  };
}

// Nothing where the variant does not apply to the problem.
std::optional<Rows> compute(const Attention &plainly, const CallProblem &p, const Sequence &s, const Variant &variant) {
  const Attention attention = variant.split > 0 ? with_split_keys(plainly, variant.split) : plainly;
  const std::int64_t n = variant.parameter;
  const std::int32_t lanes = variant.lanes;
  Layout layout;
  switch (variant.kind) {
  case Kind::oracle:
    return by_the_oracle(p, s);
  case Kind::lanes:
    return in_one_call(attention, p, s, layout, lanes);
  case Kind::widened:
    layout.widened = true;
    return p.stored_in_16_bits() ? std::optional(in_one_call(attention, p, s, layout, lanes)) : std::nullopt;
  case Kind::threads:
    return in_one_call(attention, p, s, layout, lanes, pool_of(n));
  case Kind::chunks:
    return in_chunks(attention, p, s, n, false, lanes);
  case Kind::truncated:
    return p.causal ? std::optional(in_chunks(attention, p, s, n, true, lanes)) : std::nullopt;
  case Kind::decode:
    return row_by_row(attention, p, s, layout, lanes);
  case Kind::batch:
    return among_others(attention, p, s, n, layout, false, lanes);
  case Kind::padded:
    layout.extra_keys = n;
    layout.fill = kPoisons[0];
    return in_one_call(attention, p, s, layout, lanes);
  case Kind::ragged:
    layout.ragged_queries = n != 2;
    layout.ragged_keys = n == 0 || n == 2;
    layout.page_size = n == 3 ? 16 : 0;
    return among_others(attention, p, s, 1, layout, false, lanes);
  case Kind::paged:
    layout.page_size = n;
    return in_one_call(attention, p, s, layout, lanes);
  case Kind::arrangement:
    layout.arrangement = static_cast<Arrangement>(n);
    return in_one_call(attention, p, s, layout, lanes);
  case Kind::packed:
    return over_packed_keys(attention, p, s, static_cast<PackedWay>(n), lanes);
  case Kind::resumed_batch:
    layout.page_size = n == 3 ? 16 : 0;
    return s.kv_len > 64 ? std::optional(among_others(attention, p, s, n % 3, layout, true, lanes)) : std::nullopt;
  case Kind::resumed:
  case Kind::resumed_everywhere:
  case Kind::resumed_in_place:
  case Kind::resumed_pages:
    break;
  }
  std::vector<std::int64_t> edges = edges_within(s.kv_len);
  if (variant.kind == Kind::resumed) {
    edges = 64 * (n + 1) < s.kv_len ? std::vector<std::int64_t>{64 * (n + 1)} : std::vector<std::int64_t>{};
  }
  if (edges.empty()) {
    return std::nullopt;
  }
  layout.page_size = variant.kind == Kind::resumed_pages ? n : 0;
  Placed placed(p, {&s}, layout);
  std::vector<unsigned char> state =
      resume(attention, placed, edges, variant.kind == Kind::resumed_in_place, p.flavour, lanes);
  Rows rows = placed.rows(0);
  rows.state = std::move(state);
  return rows;
}

Rows compute_reference(const Attention &attention, const CallProblem &p, const Sequence &s) {
  Layout layout;
  layout.widened = true;
  Rows rows = in_one_call(attention, p, s, layout, EXATTN_LANES_SCALAR);
  Placed placed(p, {&s}, layout);
  placed.args.lanes = EXATTN_LANES_SCALAR;
  rows.state.resize(state_bytes(placed));
  placed.args.out.data = placed.args.lse.data = nullptr;
  placed.args.state_out = rows.state.data();
  placed.args.state_out_size = rows.state.size();
  run(attention, placed.args, placed);
  return rows;
}

// ---- Comparing, and making smaller ----

std::string first_difference(const CallProblem &p, const Rows &rows, const Rows &reference) {
  std::array<char, 200> text{};
  const auto compare = [&](const char *name, const std::vector<std::uint32_t> &got,
                           const std::vector<std::uint32_t> &expected, std::int64_t columns) {
    for (std::size_t n = 0; n < expected.size(); ++n) {
      if (got[n] != expected[n]) {
        const std::int64_t at = static_cast<std::int64_t>(n);
        std::snprintf(text.data(), text.size(), "%s of head %lld, row %lld, column %lld: bits %08X, reference %08X",
                      name, static_cast<long long>(at / columns / p.q_len),
                      static_cast<long long>(at / columns % p.q_len), static_cast<long long>(at % columns), got[n],
                      expected[n]);
        return true;
      }
    }
    return false;
  };
  if (compare("out", rows.out, reference.out, p.value_dim) || compare("lse", rows.lse, reference.lse, 1)) {
    return text.data();
  }
  if (!rows.state.empty() && rows.state != reference.state) {
    const auto differs =
        std::mismatch(rows.state.begin(), rows.state.end(), reference.state.begin(), reference.state.end());
    return "the state differs from byte " + std::to_string(differs.first - rows.state.begin()) + " on";
  }
  return "";
}

struct Check {
  bool ran = false;
  std::string problem; // empty: the same bits
};

Check check(const Attention &attention, const CallProblem &p, const Sequence &s, const Rows &reference,
            const Variant &variant) {
  try {
    const std::optional<Rows> rows = compute(attention, p, s, variant);
    return rows ? Check{true, first_difference(p, *rows, reference)} : Check{};
  } catch (const Refused &refused) {
    return {true, "refused: " + refused.text};
  }
}

Check check(const Attention &attention, const CallProblem &p, const Variant &variant) {
  const Sequence s = make_sequence(p);
  try {
    return check(attention, p, s, compute_reference(attention, p, s), variant);
  } catch (const Refused &refused) {
    return {true, "reference refused: " + refused.text};
  }
}

// Problems that are simpler in one respect, the simplest first.
std::vector<CallProblem> simpler(const CallProblem &p) {
  std::vector<CallProblem> result;
  const auto set = [&](auto member, auto value) {
    if (p.*member != value) {
      result.push_back(p);
      result.back().*member = value;
    }
  };
  const auto reduce = [&](std::int64_t CallProblem::*member, std::int64_t least) {
    for (const std::int64_t value : {least, p.*member / 2, p.*member - 1}) {
      if (value >= least && value < p.*member) {
        set(member, value);
      }
    }
  };
  for (const auto member : {&CallProblem::causal, &CallProblem::fully_masked_zero, &CallProblem::sinks,
                            &CallProblem::mask, &CallProblem::mask_bool, &CallProblem::alibi}) {
    set(member, false);
  }
  for (const auto member : {&CallProblem::q_type, &CallProblem::k_type, &CallProblem::v_type}) {
    set(member, std::int32_t{EXATTN_F32});
  }
  set(&CallProblem::flavour, std::int32_t{EXATTN_EXACT});
  set(&CallProblem::softcap, 0.0F);
  set(&CallProblem::specials, std::int64_t{0});
  if (p.given_scale) {
    result.push_back(p);
    result.back().given_scale = false;
    result.back().scale = 0.0F;
  }
  if (p.heads != p.kv_heads) {
    set(&CallProblem::heads, p.kv_heads);
    result.push_back(p);
    result.back().heads -= p.kv_heads;
  }
  if (p.kv_heads > 1) {
    result.push_back(p);
    result.back().heads = p.heads / p.kv_heads;
    result.back().kv_heads = 1;
  }
  reduce(&CallProblem::q_offset, 0);
  reduce(&CallProblem::window, 0);
  reduce(&CallProblem::q_len, 1);
  reduce(&CallProblem::kv_len, 0);
  reduce(&CallProblem::head_dim, 1);
  reduce(&CallProblem::value_dim, 1);
  return result;
}

std::vector<Variant> simpler(const Variant &variant) {
  std::vector<Variant> result;
  if (variant.lanes != EXATTN_LANES_SCALAR) {
    result.push_back(variant);
    result.back().lanes = EXATTN_LANES_SCALAR;
  }
  if (variant.split > 1) {
    result.push_back(variant);
    result.back().split = 1;
  }
  const bool rows = variant.kind == Kind::chunks || variant.kind == Kind::truncated;
  const bool edge = variant.kind == Kind::resumed;
  if ((rows && variant.parameter > 1) || (edge && variant.parameter > 0)) {
    for (const std::int64_t parameter : {rows ? std::int64_t{1} : std::int64_t{0}, variant.parameter - 1}) {
      result.push_back(variant);
      result.back().parameter = parameter;
    }
  }
  return result;
}

struct Finding {
  CallProblem problem, smallest;
  Variant variant, smallest_variant;
  std::string difference, smallest_difference;
};

Finding shrink(const Attention &attention, const CallProblem &p, const Variant &variant,
               const std::string &difference) {
  Finding found{p, p, variant, variant, difference, difference};
  int tries = 3000;
  const auto still_fails = [&](const CallProblem &problem, const Variant &way) {
    if (--tries < 0) {
      return false;
    }
    const Check result = check(attention, problem, way);
    if (result.problem.empty()) {
      return false;
    }
    found.smallest = problem;
    found.smallest_variant = way;
    found.smallest_difference = result.problem;
    return true;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const CallProblem &problem : simpler(found.smallest)) {
      if (still_fails(problem, found.smallest_variant)) {
        smaller = true;
        break;
      }
    }
    for (const Variant &way : simpler(found.smallest_variant)) {
      if (!smaller && still_fails(found.smallest, way)) {
        smaller = true;
        break;
      }
    }
  }
  return found;
}

std::string report(const Finding &found) {
  return "\n  " + describe(found.problem) + "\n  " + describe(found.variant) + ": " + found.difference +
         "\nsmallest:\n  " + describe(found.smallest) + "\n  " + describe(found.smallest_variant) + ": " +
         found.smallest_difference +
         "\nagain: EXATTN_PROPERTY_CASES=1 EXATTN_PROPERTY_SEED=" + std::to_string(found.problem.seed);
}

// ---- The sweep ----

constexpr std::int64_t kMostWork = 3'000'000;
constexpr std::int64_t kMostEmulatedWork = 100'000; // of scalar fast: its fused multiply-add is emulated

// Every variant; each on a lane kind that changes from problem to problem.
std::vector<Variant> variants_of(const CallProblem &p) {
  std::vector<std::int32_t> usable = usable_lanes(p.flavour);
  std::vector<Variant> all;
  for (const std::int32_t lanes : usable) {
    all.push_back({Kind::lanes, 0, lanes});
  }
  if (p.flavour == EXATTN_FAST && p.work() > kMostEmulatedWork && usable.size() > 1) {
    usable.erase(usable.begin());
  }
  const auto add = [&](Kind kind, std::initializer_list<std::int64_t> parameters) {
    for (const std::int64_t parameter : parameters) {
      all.push_back({kind, parameter, usable[(p.seed + all.size()) % usable.size()]});
    }
  };
  add(Kind::oracle, {0});
  add(Kind::widened, {0});
  add(Kind::threads, {1, 2, 3, 7});
  add(Kind::chunks, {1, 3, 5, 16, 64});
  add(Kind::truncated, {1, 3, 5, 16, 64});
  add(Kind::decode, {0});
  add(Kind::batch, {0, 1, 2});
  add(Kind::padded, {1, 70});
  add(Kind::ragged, {0, 1, 2, 3});
  add(Kind::paged, {1, 16, 48, 64});
  add(Kind::resumed, {0, 1, 2, 3, 4});
  add(Kind::resumed_everywhere, {0});
  add(Kind::resumed_in_place, {0});
  add(Kind::resumed_pages, {1, 16, 64});
  add(Kind::resumed_batch, {0, 1, 2, 3});
  add(Kind::packed, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  add(Kind::arrangement, {0, 1, 2, 3, 4, 5, 6});
  // With split keys, what differs in how keys and values are found, in the rows of an item, and in states.
  for (std::size_t n = 0, plain = all.size(); n < plain; ++n) {
    const Kind kind = all[n].kind;
    if (kind == Kind::lanes || kind == Kind::batch || kind == Kind::ragged || kind == Kind::paged ||
        kind == Kind::packed || kind == Kind::resumed_everywhere || kind == Kind::resumed_in_place ||
        kind == Kind::resumed_batch || kind == Kind::arrangement) {
      all.push_back(all[n]);
      all.back().split = 1 + static_cast<std::int64_t>((p.seed + n) % 3);
    }
  }
  return all;
}

using Counts = std::map<std::string, std::int64_t>;

// The first failure of so many problems, by any variant or by some kinds alone.
std::optional<Finding> sweep(const Attention &attention, std::uint64_t seed, std::uint64_t cases, Counts &counts,
                             const std::function<bool(Kind)> &wanted = {}) {
  for (std::uint64_t n = 0; n < cases; ++n) {
    const CallProblem p = random_problem(seed + n, kMostWork);
    const Sequence s = make_sequence(p);
    std::optional<Rows> reference;
    try {
      reference = compute_reference(attention, p, s);
    } catch (const Refused &refused) {
      return shrink(attention, p, {}, "reference refused: " + refused.text);
    }
    for (const Variant &variant : variants_of(p)) {
      if (wanted && !wanted(variant.kind)) {
        continue;
      }
      const Check result = check(attention, p, s, *reference, variant);
      if (!result.problem.empty()) {
        return shrink(attention, p, variant, result.problem);
      }
      counts[label(variant)] += result.ran ? 1 : 0;
    }
  }
  return std::nullopt;
}

std::uint64_t from_environment(const char *name, std::uint64_t otherwise) {
  const char *const text = std::getenv(name);
  if (text == nullptr) {
    return otherwise;
  }
  char *end = nullptr;
  errno = 0;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  INFO(std::string(name) << " is '" << std::string(text) << "', must be a number above 0");
  REQUIRE((errno == 0 && *text >= '0' && *text <= '9' && *end == '\0' && value > 0));
  return value;
}

// ---- Stand-ins with a fault ----

// The library, but where `wrong` holds the last bit of every row's first output is flipped.
Attention with_fault(std::function<bool(const exattn_attention_args &)> wrong) {
  return [wrong](const exattn_attention_args &args) {
    const exattn_status status = exattn_attention(&args);
    if (status != EXATTN_OK || !wrong(args) || args.out.data == nullptr) {
      return status;
    }
    for (std::int64_t b = 0; b < (args.q_starts != nullptr ? 1 : args.batch); ++b) {
      for (std::int64_t h = 0; h < args.heads; ++h) {
        for (std::int64_t i = 0; i < args.q_len; ++i) {
          float &value = args.out.data[b * args.out.stride[0] + h * args.out.stride[1] + i * args.out.stride[2]];
          value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1U);
        }
      }
    }
    return status;
  };
}

} // namespace

TEST_CASE("whole row: the same bits however it was computed") {
  const std::uint64_t cases = from_environment("EXATTN_PROPERTY_CASES", 60);
  const std::uint64_t seed = from_environment("EXATTN_PROPERTY_SEED", 1);
  Counts counts;
  const std::optional<Finding> found = sweep(library(), seed, cases, counts);
  INFO((found ? report(*found) : std::string()));
  CHECK(!found);
  if (std::getenv("EXATTN_PROPERTY_CASES") != nullptr) {
    std::string text;
    for (const auto &[name, count] : counts) {
      text += name + ": " + std::to_string(count) + "\n";
    }
    MESSAGE(text);
  }
  if (found || cases < 60) {
    return;
  }
  // Each way was taken, by several problems.
  std::set<std::string> expected;
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    CallProblem p;
    p.flavour = flavour;
    for (const Variant &variant : variants_of(p)) {
      expected.insert(label(variant));
    }
  }
  for (const std::string &name : expected) {
    INFO(name << ": " << counts[name] << " of " << cases << " problems");
    CHECK(counts[name] >= static_cast<std::int64_t>(cases / 30));
  }
  CHECK(counts.size() == expected.size());
}

TEST_CASE("whole row: a fault is found by the variant that shows it, and made small") {
  const std::vector<std::int32_t> lanes = usable_lanes(EXATTN_EXACT);
  const std::int32_t widest = lanes.back();
  struct Fault {
    const char *name;
    std::function<bool(const exattn_attention_args &)> wrong;
    std::set<std::string> found_by;
  };
  using Args = exattn_attention_args;
  const std::vector<Fault> faults = {
      {"any thread pool of 3", [](const Args &a) { return exattn_pool_threads(a.pool) == 3; }, {"threads"}},
      {"a row cut out of more",
       [](const Args &a) {
         return a.q_len == 1 && a.out.stride[1] > a.value_dim && a.out.stride[2] == a.value_dim && a.out.stride[3] == 1;
       },
       {"chunks"}},
      {"fewer keys than there are",
       [](const Args &a) {
         return a.page_table == nullptr && a.kv_offset == 0 && a.kv_len > 0 && a.state_out == nullptr && a.batch == 1 &&
                a.k.stride[1] > a.kv_len * a.k.stride[2] && a.k.stride[3] == 1 && a.k.stride[2] == a.head_dim;
       },
       {"truncated"}},
      {"a batch of 3",
       [](const Args &a) { return a.batch == 3 && a.q_starts == nullptr && a.kv_starts == nullptr; },
       {"batch"}},
      {"key lengths", [](const Args &a) { return a.batch == 1 && a.kv_lens != nullptr; }, {"padded"}},
      {"ragged queries", [](const Args &a) { return a.q_starts != nullptr; }, {"ragged"}},
      {"ragged keys", [](const Args &a) { return a.kv_starts != nullptr; }, {"ragged"}},
      {"pages of 48", [](const Args &a) { return a.page_table != nullptr && a.page_size == 48; }, {"paged"}},
      {"a state to go on from", [](const Args &a) { return a.state_in != nullptr; }, {"resumed"}},
      {"a state in place",
       [](const Args &a) { return a.state_in != nullptr && a.state_in == a.state_out; },
       {"resumed in place"}},
      {"16-bit keys", [](const Args &a) { return a.k.dtype != EXATTN_F32; }, {"lanes"}},
      {"packed keys", [](const Args &a) { return a.k_layout == EXATTN_K_PACKED; }, {"packed"}},
      {"transposed keys",
       [](const Args &a) { return a.k_layout == EXATTN_K_ROWS && a.k.stride[3] > 2; },
       {"arrangement"}},
      {"negative strides", [](const Args &a) { return a.q.stride[3] < 0; }, {"arrangement"}},
  };
  for (const Fault &fault : faults) {
    INFO(std::string(fault.name));
    Counts counts;
    const std::optional<Finding> found =
        sweep(with_fault(fault.wrong), 1, 40, counts, [](Kind kind) { return kind != Kind::oracle; });
    REQUIRE(found);
    INFO(report(*found));
    CHECK(fault.found_by.count(kKindNames[static_cast<std::size_t>(found->variant.kind)]) == 1);
    CHECK(found->smallest.work() <= found->problem.work());
    CHECK(found->smallest.heads == 1);
    CHECK(found->smallest.head_dim == 1);
    CHECK_FALSE(found->smallest.mask);
  }
  // A state may be wrong where no result is.
  Counts counted;
  const Attention wrong_state = [](const Args &args) {
    const exattn_status status = exattn_attention(&args);
    if (args.state_in != nullptr && args.state_out != nullptr) {
      static_cast<unsigned char *>(args.state_out)[args.state_out_size - 1] ^= 1;
    }
    return status;
  };
  const std::optional<Finding> state = sweep(wrong_state, 1, 40, counted);
  REQUIRE(state);
  CHECK(state->variant.kind == Kind::resumed);
  CHECK(state->difference.find("the state differs from byte") == 0);
  // The reference itself is compared with the oracle.
  Counts none;
  const std::optional<Finding> everywhere = sweep(with_fault([](const Args &) { return true; }), 1, 1, none);
  REQUIRE(everywhere);
  CHECK(everywhere->variant.kind == Kind::oracle);
  if (widest != EXATTN_LANES_SCALAR) {
    Counts counts;
    const std::optional<Finding> found =
        sweep(with_fault([&](const Args &a) { return a.lanes == widest; }), 1, 40, counts);
    REQUIRE(found);
    CHECK(found->smallest_variant.lanes == widest);
  }
}

TEST_CASE("whole row: the smallest problem is the smallest there is") {
  // Wrong from a position on: two rows, no key, no option and chunks of one row show it, and nothing less does.
  Counts counts;
  const std::optional<Finding> found = sweep(with_fault([](const exattn_attention_args &a) { return a.q_offset > 0; }),
                                             1, 40, counts, [](Kind kind) { return kind == Kind::chunks; });
  REQUIRE(found);
  const std::string text = report(*found);
  INFO(text);
  CallProblem smallest;
  smallest.seed = found->problem.seed;
  smallest.q_len = 2;
  smallest.kv_len = 0;
  CHECK(describe(found->smallest) == describe(smallest));
  CHECK(found->smallest_variant.parameter == 1);
  CHECK(text.find("seed " + std::to_string(found->problem.seed) + ":") != std::string::npos);
  CHECK(text.find("head 0, row 1, column 0: bits 00000001, reference 00000000") != std::string::npos);
}

TEST_CASE("whole row: a call that is refused is a failure") {
  const Attention refusing = [](const exattn_attention_args &args) {
    return args.page_table != nullptr ? exattn_status{EXATTN_ERROR_PAGE} : exattn_attention(&args);
  };
  Counts counts;
  const std::optional<Finding> found = sweep(refusing, 1, 40, counts);
  REQUIRE(found);
  CHECK(found->difference.find("EXATTN_ERROR_PAGE") != std::string::npos);
  CHECK(found->smallest_variant.kind != Kind::lanes);
}
