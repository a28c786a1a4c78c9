// How calls are cut into work items: nothing is left out, nothing comes twice, much comes before little.
#include "plan.hpp"

#include "random_call.hpp"

#include "exattn/exattn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

using namespace exattn;
using exattn::tests::Draw;

namespace {

// The sizes of a call, and what its sequences are if they differ.
struct Sizes {
  exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
  std::vector<std::int64_t> q_starts, kv_lens, q_offsets;

  std::int64_t group() const { return args.heads / args.kv_heads; }
  std::int64_t rows(std::int64_t b) const {
    const std::size_t n = static_cast<std::size_t>(b);
    return q_starts.empty() ? args.q_len : q_starts[n + 1] - q_starts[n];
  }
};

Sizes sizes(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t q_len, std::int64_t kv_len,
            std::int64_t size) {
  Sizes s;
  s.args.batch = batch;
  s.args.heads = heads;
  s.args.kv_heads = kv_heads;
  s.args.q_len = q_len;
  s.args.kv_len = kv_len;
  s.args.head_dim = s.args.value_dim = size;
  return s;
}

// Sizes of every kind, sequences without rows or keys among them.
Sizes random_sizes(Draw &draw) {
  constexpr std::int64_t kRows[] = {1, 1, 2, 5, 16, 17, 100, 128, 129, 500};
  constexpr std::int64_t kHeadSizes[] = {1, 16, 17, 64, 80, 128, 300};
  const std::int64_t kv_heads = draw.between(1, 3);
  Sizes s = sizes(draw.between(1, 5), kv_heads * draw.between(1, 4), kv_heads, draw.pick(kRows), draw.between(1, 3000),
                  draw.pick(kHeadSizes));
  s.args.value_dim = draw.pick(kHeadSizes);
  s.args.causal = draw.one_in(2) ? 1 : 0;
  s.args.window = draw.one_in(3) ? draw.between(1, 500) : 0;
  s.args.q_offset = draw.between(0, 2000);
  if (draw.one_in(2)) {
    s.q_starts.assign(1, draw.between(0, 3));
    for (std::int64_t b = 0; b < s.args.batch; ++b) {
      s.q_starts.push_back(s.q_starts.back() + (draw.one_in(3) ? 0 : draw.pick(kRows)));
    }
    s.args.q_len = s.q_starts.back() + draw.between(0, 3);
  }
  for (std::int64_t b = 0; b < s.args.batch; ++b) {
    s.kv_lens.push_back(draw.one_in(4) ? 0 : draw.between(0, s.args.kv_len));
  }
  return s;
}

// The pointers, once the vectors stay where they are.
const exattn_attention_args &args_of(Sizes &s, bool lengths) {
  s.args.q_starts = s.q_starts.empty() ? nullptr : s.q_starts.data();
  s.args.q_offsets = s.q_offsets.empty() ? nullptr : s.q_offsets.data();
  s.args.kv_lens = lengths ? s.kv_lens.data() : nullptr;
  return s.args;
}

Cut cut_of(const exattn_attention_args &args, std::int32_t threads) {
  Cut cut;
  REQUIRE(cut_attention(args, threads, attention_split_scratch(args, threads), cut));
  return cut;
}

std::vector<WorkItem> items_of(const exattn_attention_args &args, const Cut &cut, Phase phase) {
  std::vector<WorkItem> items;
  for (std::int64_t n = 0; n < count_items(args, cut, phase); ++n) {
    items.push_back(work_item(args, cut, phase, n));
  }
  items.erase(std::remove_if(items.begin(), items.end(), [](const WorkItem &item) { return item.rows == 0; }),
              items.end());
  return items;
}

std::int64_t blocks_seen(const exattn_attention_args &args, const WorkItem &item) {
  const std::int64_t group = args.heads / args.kv_heads;
  const std::int64_t first = item.first_row / group, last = (item.first_row + item.rows - 1) / group;
  const KeyRange keys = keys_seen(args, item.batch, first, last - first + 1);
  return keys.begin < keys.end ? (keys.end - 1) / 64 - keys.begin / 64 + 1 : 0;
}

using Row = std::tuple<std::int64_t, std::int64_t, std::int64_t>; // sequence, KV head, row of its group

std::set<Row> rows_of_all(const Sizes &s) {
  std::set<Row> rows;
  for (std::int64_t b = 0; b < s.args.batch; ++b) {
    for (std::int64_t h = 0; h < s.args.kv_heads; ++h) {
      for (std::int64_t r = 0; r < s.group() * s.rows(b); ++r) {
        rows.insert({b, h, r});
      }
    }
  }
  return rows;
}

} // namespace

TEST_CASE("plan: every row of every sequence is in one item") {
  Draw draw(1);
  for (int round = 0; round < 400; ++round) {
    Sizes s = random_sizes(draw);
    const exattn_attention_args &args = args_of(s, draw.one_in(2));
    const Cut cut = cut_of(args, static_cast<std::int32_t>(draw.between(1, 9)));
    std::set<Row> rows;
    std::size_t count = 0;
    for (const WorkItem &item : items_of(args, cut, Phase::kWhole)) {
      CHECK(item.rows <= cut.rows_per_item);
      CHECK(item.first_row % cut.rows_per_item == 0);
      CHECK(item.first_block == 0);
      CHECK(item.end_block >= (args.kv_len + 63) / 64);
      CHECK(item.first_column == 0);
      CHECK(item.columns == args.value_dim);
      count += static_cast<std::size_t>(item.rows);
      for (std::int64_t r = 0; r < item.rows; ++r) {
        rows.insert({item.batch, item.kv_head, item.first_row + r});
      }
    }
    CHECK(count == rows.size());
    CHECK(rows == rows_of_all(s));
    // Numbers without an item are few: no more than one for each sequence, in each pass.
    CHECK(count_items(args, cut, Phase::kWhole) <=
          cut.passes * args.kv_heads *
              (s.group() * args.q_len * (s.q_starts.empty() ? args.batch : 1) / cut.rows_per_item + args.batch));
  }
}

TEST_CASE("plan: with split keys every block and every column of every row is in one item of a phase") {
  Draw draw(2);
  for (int round = 0; round < 300; ++round) {
    Sizes s = random_sizes(draw);
    s.args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
    const exattn_attention_args &args = args_of(s, draw.one_in(2));
    const std::int32_t threads = static_cast<std::int32_t>(draw.between(1, 9));
    const SplitScratch scratch = attention_split_scratch(args, threads);
    const Cut cut = cut_of(args, threads);
    REQUIRE(cut.split == (scratch.bytes != 0));
    if (!cut.split) {
      continue; // above the limit
    }
    std::set<std::int64_t> indices;
    for (const Phase phase : {Phase::kScores, Phase::kWeights}) {
      std::set<std::tuple<Row, std::int64_t>> parts;
      std::size_t count = 0;
      for (const WorkItem &item : items_of(args, cut, phase)) {
        CHECK(item.columns == 0);
        CHECK(item.rows <= scratch.rows);
        indices.insert(item.index);
        const std::int64_t blocks = blocks_seen(args, item);
        CHECK(blocks <= scratch.blocks);
        for (std::int64_t n = item.first_block; n < std::min(item.end_block, blocks); ++n) {
          parts.insert({{item.batch, item.kv_head, item.first_row}, n});
          ++count;
        }
      }
      CHECK(count == parts.size());
      std::size_t expected = 0;
      for (const WorkItem &item : items_of(args, cut, Phase::kValues)) {
        expected += item.first_column == 0 ? static_cast<std::size_t>(blocks_seen(args, item)) : 0;
      }
      CHECK(count == expected);
    }
    std::set<std::tuple<Row, std::int64_t>> columns;
    std::size_t count = 0;
    for (const WorkItem &item : items_of(args, cut, Phase::kValues)) {
      CHECK(item.first_column % 16 == 0);
      CHECK(item.columns > 0);
      CHECK(indices.count(item.index) == 1); // what the other phases have left is there
      for (std::int64_t r = 0; r < item.rows; ++r) {
        for (std::int64_t x = 0; x < item.columns; x += 16) {
          columns.insert({{item.batch, item.kv_head, item.first_row + r}, item.first_column + x});
          ++count;
        }
      }
    }
    CHECK(count == columns.size());
    CHECK(count == rows_of_all(s).size() * static_cast<std::size_t>((args.value_dim + 15) / 16));
    // Every item of rows has its own place.
    std::size_t places = 0;
    for (const WorkItem &item : items_of(args, cut, Phase::kValues)) {
      places += item.first_column == 0 ? 1 : 0;
    }
    CHECK(indices.size() == places);
    for (const std::int64_t index : indices) {
      CHECK(4 * (index + 1) * split_floats(scratch.rows, scratch.blocks) <= static_cast<std::int64_t>(scratch.bytes));
    }
  }
}

TEST_CASE("plan: rows are cut smaller until each thread has some items, never into parts of a strip") {
  for (const std::int64_t size : {16, 64, 128, 256, 1000}) {
    const exattn_attention_args args = sizes(1, 1, 1, 4096, 4096, size).args;
    const std::int64_t most = cut_of(args, 1).rows_per_item;
    std::int64_t last = most;
    for (std::int32_t threads = 1; threads <= 300; ++threads) {
      const Cut cut = cut_of(args, threads);
      CHECK(cut.threads == threads);
      CHECK(cut.rows_per_item % kMaxStripRows == 0);
      CHECK(cut.rows_per_item <= last); // more threads, no larger items
      CHECK(count_items(args, cut, Phase::kWhole) >= std::min<std::int64_t>(4096 / kMaxStripRows, 2 * threads));
      last = cut.rows_per_item;
    }
    CHECK(last == kMaxStripRows);
    CHECK((most == kMaxStripRows || most * size <= 128 * 128)); // for the second-level cache
  }
}

TEST_CASE("plan: items with many keys come before those with few") {
  // Causal: the last rows see the most keys.
  Sizes causal = sizes(1, 2, 2, 2048, 2048, 64);
  causal.args.causal = 1;
  const exattn_attention_args &args = args_of(causal, false);
  const std::vector<WorkItem> items = items_of(args, cut_of(args, 4), Phase::kWhole);
  CHECK(blocks_seen(args, items.front()) == 32);
  for (std::size_t n = 1; n < items.size(); ++n) {
    CHECK((items[n].kv_head != items[n - 1].kv_head || blocks_seen(args, items[n]) <= blocks_seen(args, items[n - 1])));
  }
  // Sequences of 1, 8, 3 and 5 blocks: above half of 8, above a quarter, the rest; in their order otherwise.
  Sizes lengths = sizes(4, 1, 1, 1, 4096, 256);
  lengths.kv_lens = {64, 512, 192, 320};
  const exattn_attention_args &ragged = args_of(lengths, true);
  const Cut cut = cut_of(ragged, 2);
  REQUIRE(cut.threads == 2);
  REQUIRE(!cut.split);
  std::vector<std::int64_t> order;
  for (const WorkItem &item : items_of(ragged, cut, Phase::kWhole)) {
    order.push_back(item.batch);
  }
  CHECK(order == std::vector<std::int64_t>{1, 3, 2, 0});
  // On one thread there is nothing to balance.
  CHECK(count_items(ragged, cut_of(ragged, 1), Phase::kWhole) == 4);
}

TEST_CASE("plan: what is not worth waking a thread for stays on this one") {
  CHECK(cut_of(sizes(1, 1, 1, 1, 1, 1).args, 8).threads == 1);
  CHECK(cut_of(sizes(1, 4, 4, 4, 16, 16).args, 8).threads == 1);
  CHECK(cut_of(sizes(1, 12, 12, 128, 128, 32).args, 8).threads == 8);
  exattn_attention_args args = sizes(1, 4, 4, 4, 16, 16).args;
  args.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
  CHECK(cut_of(args, 8).threads == 8);
}

TEST_CASE("plan: keys are split for few rows over many keys, and where the scratch stays below the limit") {
  const auto split = [](exattn_attention_args args, std::int32_t threads) { return cut_of(args, threads).split; };
  const exattn_attention_args args = sizes(1, 1, 1, 1, 100000, 128).args;
  CHECK(split(args, 2));
  CHECK(split(args, 64));
  CHECK_FALSE(split(args, 1));
  CHECK_FALSE(split(sizes(1, 1, 1, 1, 64, 128).args, 2));
  CHECK_FALSE(split(sizes(1, 1, 1, 4096, 100000, 128).args, 2)); // rows enough
  CHECK_FALSE(split(sizes(1, 8, 8, 1, 100000, 128).args, 2));    // heads enough
  CHECK_FALSE(split(sizes(8, 1, 1, 1, 100000, 128).args, 2));    // sequences enough
  Sizes window = sizes(1, 1, 1, 1, 100000, 128);
  window.args.causal = 1;
  window.args.window = 128;
  window.args.q_offset = 99999;
  CHECK_FALSE(split(window.args, 2));
  CHECK(attention_split_scratch(window.args, 2).bytes == 0);
  Sizes short_sequence = sizes(1, 1, 1, 1, 100000, 128);
  short_sequence.kv_lens = {100};
  CHECK_FALSE(split(args_of(short_sequence, true), 2));

  exattn_attention_args other = args;
  other.split_keys = EXATTN_SPLIT_KEYS_NEVER;
  CHECK_FALSE(split(other, 2));
  CHECK(attention_split_scratch(other, 2).bytes == 0);
  for (const std::int64_t heads : {1, 4, 8, 13}) {
    // 4 bytes for each key and row, rows rounded up to a power of 2, and a tenth of that at most.
    other = sizes(1, heads, 1, 1, 100000, 128).args;
    const std::size_t bytes = attention_split_scratch(other, 2).bytes;
    const std::int64_t rows = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(heads)));
    CHECK(bytes >= static_cast<std::size_t>(4 * 100000 * heads));
    CHECK(10 * bytes <= static_cast<std::size_t>(11 * 4 * 100000 * rows));
    other.split_limit = bytes;
    CHECK(split(other, 2));
    other.split_limit = bytes - 1;
    CHECK_FALSE(split(other, 2));
    CHECK(attention_split_scratch(other, 2).bytes == 0);
  }
  other = sizes(1, 1, 1, 1, std::int64_t{1} << 40, 128).args;
  CHECK_FALSE(split(other, 2)); // above the default
  other = sizes(1, 1, 1, 1, 16'000'000, 128).args;
  CHECK(attention_split_scratch(other, 2).bytes <= EXATTN_SPLIT_LIMIT_DEFAULT);
  for (const std::int64_t size : {INT64_MAX, INT64_MAX / 2, std::int64_t{1} << 40}) { // nothing overflows
    other = sizes(size, size, 1, size, size, std::int64_t{1} << 40).args;
    other.split_keys = EXATTN_SPLIT_KEYS_ALWAYS;
    CHECK(attention_split_scratch(other, 4096).bytes == 0);
  }
}
