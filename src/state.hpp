// The bytes of a state (definition, section 14): sizes, offsets, and loads and stores that work on any host, aligned or
// not. Nothing here depends on the host's byte order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace exattn {

inline constexpr std::size_t kStateHeaderBytes = 64;
inline constexpr std::size_t kStateEndBytes = 8; // of each sequence, after the header

// The header.
inline constexpr unsigned char kStateMagic[8] = {'e', 'x', 'a', 't', 't', 'n', '-', '1'};
inline constexpr std::size_t kStateFlavourAt = 8;
inline constexpr std::size_t kStateZeroAt = 12;
inline constexpr std::size_t kStateBatchAt = 16;
inline constexpr std::size_t kStateHeadsAt = 24;
inline constexpr std::size_t kStateRowsAt = 32;
inline constexpr std::size_t kStateValueDimAt = 40;
inline constexpr std::size_t kStateNextKeyAt = 48;
inline constexpr std::size_t kStateRaggedAt = 56;

// A row, in words of 4 bytes: m, l, flags, acc[0], ..., acc[value_dim - 1].
inline constexpr std::size_t kStateMaximumWord = 0;
inline constexpr std::size_t kStateSumWord = 1;
inline constexpr std::size_t kStateFlagsWord = 2;
inline constexpr std::size_t kStateValuesWord = 3;

inline constexpr std::uint32_t kStateSawKey = 1;
inline constexpr std::uint32_t kStateHasSink = 2;

// Words of a row, and its bytes.
constexpr std::int64_t state_row_words(std::int64_t value_dim) {
  return static_cast<std::int64_t>(kStateValuesWord) + value_dim;
}
constexpr std::int64_t state_row_bytes(std::int64_t value_dim) {
  return 4 * state_row_words(value_dim);
}

inline void store_le32(unsigned char *to, std::uint32_t value) {
  for (int n = 0; n < 4; ++n) {
    to[n] = static_cast<unsigned char>(value >> (8 * n));
  }
}

inline std::uint32_t load_le32(const unsigned char *from) {
  std::uint32_t value = 0;
  for (int n = 0; n < 4; ++n) {
    value |= static_cast<std::uint32_t>(from[n]) << (8 * n);
  }
  return value;
}

inline void store_le64(unsigned char *to, std::uint64_t value) {
  for (int n = 0; n < 8; ++n) {
    to[n] = static_cast<unsigned char>(value >> (8 * n));
  }
}

inline std::uint64_t load_le64(const unsigned char *from) {
  std::uint64_t value = 0;
  for (int n = 0; n < 8; ++n) {
    value |= static_cast<std::uint64_t>(from[n]) << (8 * n);
  }
  return value;
}

} // namespace exattn
