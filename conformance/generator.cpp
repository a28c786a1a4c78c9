#include "generator.hpp"

#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace exattn::conformance {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 32;

// value * 2^-scale_exponent as binary32. |value| < 2^18, so the significand always fits.
std::uint32_t scaled_integer_bits(std::int32_t value, int scale_exponent) {
  if (value == 0) {
    return 0;
  }
  const std::uint32_t sign = value < 0 ? 0x80000000u : 0u;
  const auto magnitude = static_cast<std::uint32_t>(value < 0 ? -value : value);
  const int top = static_cast<int>(std::bit_width(magnitude)) - 1;
  const auto exponent = static_cast<std::uint32_t>(top - scale_exponent + 127);
  const std::uint32_t fraction = (magnitude << (23 - top)) & 0x007FFFFFu;
  return sign | (exponent << 23) | fraction;
}

std::string index_text(const std::vector<std::int64_t> &index) {
  std::string text = "[";
  for (std::size_t n = 0; n < index.size(); ++n) {
    text += (n == 0 ? "" : ", ") + std::to_string(index[n]);
  }
  return text + "]";
}

void fill_box(std::vector<float> &data, std::span<const std::int64_t> shape, const Box &box) {
  std::vector<std::int64_t> index = box.from;
  for (;;) {
    std::int64_t position = 0;
    for (std::size_t n = 0; n < shape.size(); ++n) {
      position = position * shape[n] + index[n];
    }
    std::memcpy(&data[static_cast<std::size_t>(position)], &box.bits, sizeof box.bits);
    std::size_t n = shape.size();
    while (n > 0 && ++index[n - 1] == box.to[n - 1]) {
      index[n - 1] = box.from[n - 1];
      --n;
    }
    if (n == 0) {
      return;
    }
  }
}

} // namespace

std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::uint32_t element_bits(const Input &input, std::uint64_t index) {
  switch (input.kind) {
  case InputKind::kNormal: {
    const std::uint64_t word = random_word(input.seed, index);
    const std::uint64_t sum =
        (word & 0xFFFFu) + ((word >> 16) & 0xFFFFu) + ((word >> 32) & 0xFFFFu) + ((word >> 48) & 0xFFFFu);
    return scaled_integer_bits(static_cast<std::int32_t>(sum) - 131070, input.scale_exponent);
  }
  case InputKind::kConstant:
    return input.bits;
  case InputKind::kBits:
    return static_cast<std::uint32_t>(random_word(input.seed, index) & 0xFFFFFFFFu);
  }
  throw std::invalid_argument("unknown input kind");
}

std::string input_problem(const Input &input, std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0) {
      return "a size is negative";
    }
    if (size != 0 && count > kMaxElements / size) {
      return "more than 2^32 elements";
    }
    count *= size;
  }
  if (input.seed > kMaxSeed) {
    return "seed is above 2^53 - 1";
  }
  if (input.kind == InputKind::kNormal &&
      (input.scale_exponent < kMinScaleExponent || input.scale_exponent > kMaxScaleExponent)) {
    return "scale_exponent is outside " + std::to_string(kMinScaleExponent) + " to " +
           std::to_string(kMaxScaleExponent);
  }
  for (const Box &box : input.set) {
    bool fits = box.from.size() == shape.size() && box.to.size() == shape.size();
    for (std::size_t n = 0; fits && n < shape.size(); ++n) {
      fits = 0 <= box.from[n] && box.from[n] < box.to[n] && box.to[n] <= shape[n];
    }
    if (!fits) {
      return "box " + index_text(box.from) + " to " + index_text(box.to) + " is empty or not inside " +
             index_text({shape.begin(), shape.end()});
    }
  }
  return {};
}

std::vector<float> generate(const Input &input, std::span<const std::int64_t> shape) {
  if (const std::string problem = input_problem(input, shape); !problem.empty()) {
    throw std::invalid_argument(problem);
  }
  std::size_t count = 1;
  for (const std::int64_t size : shape) {
    count *= static_cast<std::size_t>(size);
  }
  static_assert(sizeof(float) == 4 && std::numeric_limits<float>::is_iec559);
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    // As bits: a signalling NaN must not pass through a floating-point register.
    const std::uint32_t bits = element_bits(input, i);
    std::memcpy(&data[i], &bits, sizeof bits);
  }
  for (const Box &box : input.set) {
    fill_box(data, shape, box);
  }
  return data;
}

} // namespace exattn::conformance
