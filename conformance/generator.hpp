// Inputs of the golden cases, from integers alone (docs/goldens.md, "Generator"), so that any language can make them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace exattn::conformance {

// What an element is stored as.
enum class Storage { kFloat32, kBfloat16, kFloat16, kByte };

std::size_t element_size(Storage storage); // in bytes

enum class InputKind {
  kNormal,   // close to normally distributed: a sum of four 16-bit fields, centred, times 2^-scale_exponent
  kConstant, // `bits` everywhere
  kBits,     // any bits: NaN, infinities and subnormal numbers among them
  kVisible   // bytes that are 1 for `per_256` of 256 elements, else 0
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
// Within these every value of kNormal is a binary16 number.
inline constexpr int kMinScaleExponent16 = 1;
inline constexpr int kMaxScaleExponent16 = 24;
// Seeds stay integers in every JSON reader.
inline constexpr std::uint64_t kMaxSeed = (std::uint64_t{1} << 53) - 1;

struct Input {
  InputKind kind = InputKind::kNormal;
  std::uint64_t seed = 0;                     // kNormal, kBits, kVisible
  int scale_exponent = kDefaultScaleExponent; // kNormal
  std::uint32_t bits = 0;                     // kConstant
  int per_256 = 128;                          // kVisible
  std::vector<Box> set;                       // in order; a later box wins
};

// Word i of the stream of a seed: SplitMix64, addressed by index.
std::uint64_t random_word(std::uint64_t seed, std::uint64_t index);

// The bit pattern of element `index` (C order) before the boxes are applied.
std::uint32_t element_bits(const Input &input, std::uint64_t index, Storage storage = Storage::kFloat32);

// A whole tensor in C order, stored as `storage` says.
struct Elements {
  Storage storage = Storage::kFloat32;
  std::vector<unsigned char> bytes; // in this machine's byte order

  std::size_t size() const { return bytes.size() / element_size(storage); }
  std::uint32_t bits(std::size_t index) const;
  void set_bits(std::size_t index, std::uint32_t bits);
  std::string sha256() const; // of the elements least significant byte first
};

// Throws std::invalid_argument when a parameter or a box does not fit the shape.
Elements generate(const Input &input, std::span<const std::int64_t> shape, Storage storage);
std::vector<float> generate(const Input &input, std::span<const std::int64_t> shape); // binary32

// What generate would refuse, in words; empty when all is well.
std::string input_problem(const Input &input, std::span<const std::int64_t> shape, Storage storage = Storage::kFloat32);

} // namespace exattn::conformance
