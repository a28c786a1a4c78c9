#include "plan.hpp"

#include <algorithm>
#include <bit>

namespace exattn {

namespace {

// In multiply-adds. Waking a thread is worth as many; so are the barriers between phases of split keys.
constexpr std::int64_t kWorkPerThread = 100'000;
constexpr std::int64_t kWorkOfSplitting = 500'000;
// Fewer rows in an item share the packed keys less well, but threads end together.
constexpr std::int64_t kItemsPerThread = 4;
constexpr std::int64_t kPasses = 3;
// Reading the keys and values takes as long as computing with so many rows.
constexpr std::int64_t kLeastRows = 4;
constexpr std::int64_t kColumnsOfALine = 16; // floats of a cache line
// Floats between the slices of workers. Processors read ahead of what is read in order, even into the next slice, and
// so take lines from the one that writes them: without the gap, both of two threads were 10 % slower on Zen 5.
constexpr std::int64_t kGap = 1792; // 7 KiB: a slice stays below 128 KiB for head_dim 128

// Nothing here is as large but what overflows elsewhere.
constexpr std::int64_t kMost = INT64_MAX;

std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? kMost : result;
}

std::int64_t quotient_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// Rows of an item share the packed keys; their state should stay in the second-level cache, so fewer rows for larger
// heads.
std::int64_t most_rows_per_item(std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t tiles = 256 / std::max<std::int64_t>(1, std::max(head_dim, value_dim));
  return kTileRows * std::clamp<std::int64_t>(tiles, 1, kMaxItemRows / kTileRows);
}

std::int64_t group_of(const exattn_attention_args &args) {
  return args.heads / args.kv_heads;
}

// Runs of the sequences before b. In ragged batches, as many as leave each room for a last run that is shorter.
std::int64_t runs_before(const exattn_attention_args &args, std::int64_t rows_per_item, std::int64_t b) {
  if (args.q_starts == nullptr) {
    return b * quotient_up(group_of(args) * args.q_len, rows_per_item);
  }
  const std::int64_t rows = group_of(args) * (args.q_starts[b] - args.q_starts[0]);
  return (rows + b * (rows_per_item - 1)) / rows_per_item;
}

// Fewer rows, until each thread has some items.
std::int64_t choose_rows(const exattn_attention_args &args, std::int32_t threads) {
  std::int64_t rows = most_rows_per_item(args.head_dim, args.value_dim);
  while (rows > kMaxStripRows &&
         product(args.kv_heads, runs_before(args, rows, args.batch)) < kItemsPerThread * threads) {
    rows = std::max(kMaxStripRows, rows / 2 / kMaxStripRows * kMaxStripRows);
  }
  return rows;
}

std::int64_t blocks_of(const KeyRange &keys) {
  return keys.begin < keys.end ? (keys.end - 1) / kBlockKeys - keys.begin / kBlockKeys + 1 : 0;
}

// What there is to do, in rows times blocks.
struct Load {
  std::int64_t sum = 0;         // of a KV head
  std::int64_t heaviest = 0;    // at most that of an item
  std::int64_t most_blocks = 0; // at most that of an item
};

Load load_of(const exattn_attention_args &args, std::int64_t rows_per_item) {
  Load load;
  for (std::int64_t b = 0; b < args.batch; ++b) {
    const std::int64_t rows = std::max(kLeastRows, group_of(args) * rows_of(args, b));
    const std::int64_t blocks = blocks_of(keys_seen(args, b, 0, rows_of(args, b)));
    load.most_blocks = std::max(load.most_blocks, blocks);
    load.heaviest = std::max(load.heaviest, std::min(rows, rows_per_item) * blocks);
    if (__builtin_add_overflow(load.sum, product(rows, blocks), &load.sum)) {
      load.sum = kMost;
    }
  }
  return load;
}

std::int64_t multiply_adds(const exattn_attention_args &args, std::int64_t rows, std::int64_t blocks) {
  return product(product(rows, blocks), kBlockKeys * (args.head_dim + args.value_dim));
}

// Whether as many equal items leave the threads idle for more than a fifth of the time.
bool leaves_idle(std::int64_t items, std::int64_t threads) {
  return product(5, items) < product(4, product(quotient_up(items, threads), threads));
}

// Items of more than half the work of the heaviest come first, then those of more than a quarter.
std::int64_t pass_of(const exattn_attention_args &args, const Cut &cut, const WorkItem &item) {
  const std::int64_t first = item.first_row / group_of(args);
  const std::int64_t last = (item.first_row + item.rows - 1) / group_of(args);
  const std::int64_t load =
      std::max(kLeastRows, item.rows) * blocks_of(keys_seen(args, item.batch, first, last - first + 1));
  return load > cut.heaviest / 2 ? 0 : load > cut.heaviest / 4 ? 1 : 2;
}

// A range of value columns for each item, so that the busiest thread has the fewest.
std::int64_t choose_columns(std::int64_t value_dim, std::int64_t runs, std::int64_t threads) {
  const std::int64_t lines = quotient_up(value_dim, kColumnsOfALine);
  const auto most_lines = [&](std::int64_t range) {
    return quotient_up(runs * quotient_up(lines, range), threads) * range;
  };
  std::int64_t best = lines;
  for (std::int64_t ranges = 2; ranges <= std::min(lines, threads); ++ranges) {
    const std::int64_t range = quotient_up(lines, ranges);
    best = most_lines(range) < most_lines(best) ? range : best;
  }
  return best * kColumnsOfALine;
}

} // namespace

KeyRange keys_seen(const exattn_attention_args &args, std::int64_t b, std::int64_t row, std::int64_t rows) noexcept {
  // The rows' positions follow each other, so the keys that any of them sees are an interval.
  const std::int64_t position = first_position_of(args, b) + row;
  KeyRange keys{0, rows == 0 ? 0 : present_keys_of(args, b)};
  if (args.window > 0 && position - args.window + 1 > args.kv_offset) {
    keys.begin = position - args.window + 1 - args.kv_offset;
  }
  if (args.causal != 0) {
    const std::int64_t behind = position + rows;
    keys.end = behind <= args.kv_offset ? 0 : std::min(keys.end, behind - args.kv_offset);
  }
  return keys;
}

std::size_t attention_slice_bytes(std::int64_t head_dim, std::int64_t value_dim) noexcept {
  const std::int64_t block = kBlockKeys * (head_dim + 3 * kMaxStripRows); // packed keys; three tiles
  const std::int64_t row = head_dim + value_dim + 2;                      // query, accumulators, m and l
  const std::int64_t floats = block + most_rows_per_item(head_dim, value_dim) * row + kGap;
  return static_cast<std::size_t>((floats + 15) / 16 * 16) * sizeof(float);
}

SplitScratch attention_split_scratch(const exattn_attention_args &args, std::int32_t threads) noexcept {
  const bool always = args.split_keys == EXATTN_SPLIT_KEYS_ALWAYS;
  if (args.split_keys == EXATTN_SPLIT_KEYS_NEVER || (threads == 1 && !always) || args.batch == 0 || args.heads == 0 ||
      args.q_len == 0 || args.kv_len == 0) {
    return {};
  }
  const std::int64_t rows = product(group_of(args), args.q_len);
  const std::int64_t sequences = product(args.batch, args.kv_heads);
  const std::int64_t most = most_rows_per_item(args.head_dim, args.value_dim);
  std::int64_t blocks = quotient_up(args.kv_len, kBlockKeys);
  if (args.causal != 0 && args.window > 0 && args.window < args.kv_len) {
    blocks = std::min(blocks, args.window / kBlockKeys + std::min(args.q_len, args.kv_len) / kBlockKeys + 3);
  }
  if (!always && (!leaves_idle(product(sequences, quotient_up(rows, kMaxStripRows)), threads) ||
                  multiply_adds(args, std::clamp(rows, kLeastRows, most), blocks) < kWorkOfSplitting)) {
    return {};
  }
  // Strips that are no more than half full need the rows that they have, others all of their own. Whatever a lane kind
  // has in a strip, a power of 2, this is enough.
  constexpr std::int64_t kHalf = kMaxStripRows / 2;
  const std::int64_t item_rows = std::min(rows, most);
  SplitScratch scratch{0, blocks, 0};
  scratch.rows = item_rows > kHalf ? quotient_up(item_rows, kHalf) * kHalf
                                   : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(item_rows)));
  const std::size_t limit = args.split_limit != 0 ? args.split_limit : EXATTN_SPLIT_LIMIT_DEFAULT;
  const std::int64_t items = product(sequences, quotient_up(rows, most));
  if (product(product(scratch.rows, blocks), kBlockKeys + 5) == kMost ||
      __builtin_mul_overflow(static_cast<std::size_t>(split_floats(scratch.rows, blocks)) * sizeof(float),
                             static_cast<std::size_t>(items), &scratch.bytes) ||
      scratch.bytes > limit) {
    return {};
  }
  return scratch;
}

bool cut_attention(const exattn_attention_args &args, std::int32_t threads, const SplitScratch &scratch,
                   Cut &cut) noexcept {
  cut = {};
  if (args.heads == 0 || args.q_len == 0) {
    return true;
  }
  if (product(product(args.batch, args.kv_heads), kPasses * kMaxItemRows) == kMost) {
    return false;
  }
  const Load load = load_of(args, kMaxStripRows);
  const std::int64_t work = multiply_adds(args, args.kv_heads, load.sum);
  const bool always = args.split_keys == EXATTN_SPLIT_KEYS_ALWAYS;
  cut.threads =
      always ? threads : static_cast<std::int32_t>(std::clamp<std::int64_t>(work / kWorkPerThread, 1, threads));
  // What the busiest thread would have to do with the smallest items, beyond its share.
  const std::int64_t rounds = quotient_up(args.kv_heads * runs_before(args, kMaxStripRows, args.batch), cut.threads);
  const std::int64_t busiest = product(rounds, multiply_adds(args, 1, load.heaviest));
  cut.split = scratch.bytes != 0 && (always || busiest - work / cut.threads > kWorkOfSplitting);
  cut.rows_per_item = cut.split ? most_rows_per_item(args.head_dim, args.value_dim) : choose_rows(args, cut.threads);
  cut.runs = runs_before(args, cut.rows_per_item, args.batch);
  const std::int64_t runs = args.kv_heads * cut.runs;
  const std::int64_t items = kItemsPerThread * cut.threads;
  if (cut.split) {
    cut.blocks = quotient_up(std::max<std::int64_t>(1, product(load.most_blocks, runs)), items);
    cut.pieces = std::max<std::int64_t>(1, quotient_up(load.most_blocks, cut.blocks));
    cut.columns = choose_columns(args.value_dim, runs, cut.threads);
  } else if (cut.threads > 1 && (args.q_starts != nullptr || args.q_offsets != nullptr || args.kv_starts != nullptr ||
                                 args.kv_lens != nullptr)) {
    cut.passes = kPasses;
    cut.heaviest = load_of(args, cut.rows_per_item).heaviest;
  }
  // Heavy items first, so that threads end together; but with a head for each thread, its items are enough.
  cut.in_order = cut.passes > 1 || (args.causal != 0 && args.kv_heads < cut.threads);
  return true;
}

std::int64_t count_items(const exattn_attention_args &args, const Cut &cut, Phase phase) noexcept {
  const std::int64_t runs = args.kv_heads * cut.runs;
  return runs * (phase == Phase::kWhole    ? cut.passes
                 : phase == Phase::kValues ? quotient_up(args.value_dim, cut.columns)
                                           : cut.pieces);
}

WorkItem work_item(const exattn_attention_args &args, const Cut &cut, Phase phase, std::int64_t number) noexcept {
  const std::int64_t runs = args.kv_heads * cut.runs;
  const std::int64_t piece = number / runs; // or pass
  WorkItem item{phase, 0, number % runs / cut.runs, 0, 0, number % runs, 0, kMost, 0, args.value_dim};
  // The last rows of a causal call see the most keys.
  const std::int64_t run = args.causal != 0 ? cut.runs - 1 - number % cut.runs : number % cut.runs;
  for (std::int64_t end = args.batch; item.batch + 1 < end;) { // the last sequence that does not begin behind the run
    const std::int64_t middle = item.batch + (end - item.batch) / 2;
    (runs_before(args, cut.rows_per_item, middle) <= run ? item.batch : end) = middle;
  }
  item.first_row = (run - runs_before(args, cut.rows_per_item, item.batch)) * cut.rows_per_item;
  item.rows =
      std::clamp<std::int64_t>(group_of(args) * rows_of(args, item.batch) - item.first_row, 0, cut.rows_per_item);
  if (phase == Phase::kValues) {
    item.first_column = piece * cut.columns;
    item.columns = std::min(cut.columns, args.value_dim - item.first_column);
  } else if (phase != Phase::kWhole) {
    item.first_block = piece * cut.blocks;
    item.end_block = item.first_block + cut.blocks;
    item.columns = 0;
  } else if (cut.passes > 1 && item.rows > 0 && pass_of(args, cut, item) != piece) {
    item.rows = 0;
  }
  return item;
}

} // namespace exattn
