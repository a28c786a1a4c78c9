// Inputs of the golden cases, from integers alone (docs/goldens.md, "Generator"), so that any language can make them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace exattn::conformance {

enum class InputKind {
  kNormal,   // close to normally distributed: a sum of four 16-bit fields, centred, times 2^-scale_exponent
  kConstant, // `bits` everywhere
  kBits      // any 32 bits: NaN, infinities and subnormal numbers among them
};

// A half-open box of indices that is overwritten with one bit pattern.
struct Box {
  std::vector<std::int64_t> from;
  std::vector<std::int64_t> to;
  std::uint32_t bits = 0;
};

inline constexpr int kDefaultScaleExponent = 15; // standard deviation 1.1547
// Within these every value of kNormal is a normal number or zero, so nothing is rounded.
inline constexpr int kMinScaleExponent = -110;
inline constexpr int kMaxScaleExponent = 126;
// Seeds stay integers in every JSON reader.
inline constexpr std::uint64_t kMaxSeed = (std::uint64_t{1} << 53) - 1;

struct Input {
  InputKind kind = InputKind::kNormal;
  std::uint64_t seed = 0;                     // kNormal, kBits
  int scale_exponent = kDefaultScaleExponent; // kNormal
  std::uint32_t bits = 0;                     // kConstant
  std::vector<Box> set;                       // in order; a later box wins
};

// Word i of the stream of a seed: SplitMix64, addressed by index.
std::uint64_t random_word(std::uint64_t seed, std::uint64_t index);

// The bit pattern of element `index` (C order) before the boxes are applied.
std::uint32_t element_bits(const Input &input, std::uint64_t index);

// The whole tensor in C order. Throws std::invalid_argument when a parameter or a box does not fit the shape.
std::vector<float> generate(const Input &input, std::span<const std::int64_t> shape);

// What generate would refuse, in words; empty when all is well.
std::string input_problem(const Input &input, std::span<const std::int64_t> shape);

} // namespace exattn::conformance
