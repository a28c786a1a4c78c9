// Sizes that follow from the head sizes alone: never from lengths, threads or the machine.
#include <algorithm>

#include "kernel.hpp"

namespace exattn {

// Rows of an item share the packed keys; their state should stay in the second-level cache, so fewer rows for larger
// heads. No bit depends on it.
std::int64_t attention_rows_per_item(std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t tiles = 256 / std::max<std::int64_t>(1, std::max(head_dim, value_dim));
  return kTileRows * std::clamp<std::int64_t>(tiles, 1, kMaxItemRows / kTileRows);
}

std::size_t attention_scratch_bytes(std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t block = kBlockKeys * (head_dim + 3 * kMaxStripRows); // packed keys; three tiles
  const std::int64_t row = head_dim + value_dim + 2;                      // query, accumulators, m and l
  return static_cast<std::size_t>(block + attention_rows_per_item(head_dim, value_dim) * row) * sizeof(float);
}

} // namespace exattn
