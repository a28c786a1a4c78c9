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
  const auto aligned = [](std::int64_t floats) { return static_cast<std::size_t>((floats + 15) / 16 * 16); };
  const std::int64_t rows = attention_rows_per_item(head_dim, value_dim);
  // For the narrowest strips, of one row, the rounding up of each array weighs most.
  const std::size_t block = aligned(kBlockKeys * head_dim) + aligned(kBlockKeys * kTileRows) + aligned(kBlockKeys * 16);
  const std::size_t state = static_cast<std::size_t>(rows) *
                            (static_cast<std::size_t>(head_dim) + static_cast<std::size_t>(value_dim) + 2 + 4 * 15);
  return (block + state) * sizeof(float);
}

} // namespace exattn
