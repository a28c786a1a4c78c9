#include "generator.hpp"

#include "sha256.hpp"

#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string_view>

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

// The same as binary16: its 11 highest bits, times 2^-scale_exponent, which binary16 holds.
std::uint32_t scaled_integer_bits16(std::int32_t value, int scale_exponent) {
  if (value == 0) {
    return 0;
  }
  const std::uint32_t sign = value < 0 ? 0x8000u : 0u;
  const auto magnitude = static_cast<std::uint32_t>(value < 0 ? -value : value);
  const int top = static_cast<int>(std::bit_width(magnitude)) - 1;
  const std::uint32_t highest = top > 10 ? magnitude >> (top - 10) : magnitude << (10 - top); // 11 bits
  const int exponent = top - scale_exponent;
  if (exponent < -14) { // subnormal: units of 2^-24, and the bits that fall off are zeros
    return sign | (highest >> (-14 - exponent));
  }
  return sign | (static_cast<std::uint32_t>(exponent + 15) << 10) | (highest & 0x3FFu);
}

std::string index_text(const std::vector<std::int64_t> &index) {
  std::string text = "[";
  for (std::size_t n = 0; n < index.size(); ++n) {
    text += (n == 0 ? "" : ", ") + std::to_string(index[n]);
  }
  return text + "]";
}

void fill_box(Elements &data, std::span<const std::int64_t> shape, const Box &box) {
  std::vector<std::int64_t> index = box.from;
  for (;;) {
    std::int64_t position = 0;
    for (std::size_t n = 0; n < shape.size(); ++n) {
      position = position * shape[n] + index[n];
    }
    data.set_bits(static_cast<std::size_t>(position), box.bits);
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

std::size_t element_size(Storage storage) {
  switch (storage) {
  case Storage::kFloat32:
    return 4;
  case Storage::kBfloat16:
  case Storage::kFloat16:
    return 2;
  case Storage::kByte:
    return 1;
  }
  throw std::invalid_argument("unknown storage");
}

std::uint32_t element_bits(const Input &input, std::uint64_t index, Storage storage) {
  switch (input.kind) {
  case InputKind::kNormal: {
    const std::uint64_t word = random_word(input.seed, index);
    const std::uint64_t sum =
        (word & 0xFFFFu) + ((word >> 16) & 0xFFFFu) + ((word >> 32) & 0xFFFFu) + ((word >> 48) & 0xFFFFu);
    const std::int32_t centred = static_cast<std::int32_t>(sum) - 131070;
    if (storage == Storage::kFloat16) {
      return scaled_integer_bits16(centred, input.scale_exponent);
    }
    return scaled_integer_bits(centred, input.scale_exponent) >> (storage == Storage::kBfloat16 ? 16 : 0);
  }
  case InputKind::kConstant:
    return input.bits;
  case InputKind::kBits:
    return static_cast<std::uint32_t>(random_word(input.seed, index) &
                                      ((std::uint64_t{1} << (8 * element_size(storage))) - 1));
  case InputKind::kVisible:
    return random_word(input.seed, index) >> 56 < static_cast<std::uint64_t>(input.per_256) ? 1u : 0u;
  }
  throw std::invalid_argument("unknown input kind");
}

std::uint32_t Elements::bits(std::size_t index) const {
  const std::size_t size = element_size(storage);
  const unsigned char *const from = &bytes[index * size];
  if (size == 1) {
    return *from;
  }
  if (size == 2) {
    std::uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return half;
  }
  std::uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

void Elements::set_bits(std::size_t index, std::uint32_t bits) {
  const std::size_t size = element_size(storage);
  unsigned char *const to = &bytes[index * size];
  if (size == 1) {
    *to = static_cast<unsigned char>(bits);
  } else if (size == 2) {
    const auto half = static_cast<std::uint16_t>(bits);
    std::memcpy(to, &half, sizeof half);
  } else {
    std::memcpy(to, &bits, sizeof bits);
  }
}

std::string Elements::sha256() const {
  const auto hash = [](const std::vector<unsigned char> &data) {
    return sha256_of(std::string_view(reinterpret_cast<const char *>(data.data()), data.size()));
  };
  if constexpr (std::endian::native == std::endian::little) {
    return hash(bytes);
  }
  std::vector<unsigned char> swapped(bytes.size());
  const std::size_t size = element_size(storage);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    swapped[i] = bytes[i - i % size + (size - 1 - i % size)];
  }
  return hash(swapped);
}

std::string input_problem(const Input &input, std::span<const std::int64_t> shape, Storage storage) {
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
  if (storage == Storage::kFloat16 && input.kind == InputKind::kNormal &&
      (input.scale_exponent < kMinScaleExponent16 || input.scale_exponent > kMaxScaleExponent16)) {
    return "scale_exponent of binary16 is outside " + std::to_string(kMinScaleExponent16) + " to " +
           std::to_string(kMaxScaleExponent16);
  }
  if (storage == Storage::kByte && input.kind == InputKind::kNormal) {
    return "bytes are never of the kind \"normal\"";
  }
  if (input.kind == InputKind::kVisible && (storage != Storage::kByte || input.per_256 < 0 || input.per_256 > 256)) {
    return storage != Storage::kByte ? "the kind \"visible\" is for bytes" : "per_256 is outside 0 to 256";
  }
  const auto too_wide = [&](std::uint32_t bits) {
    return static_cast<std::uint64_t>(bits) >> (8 * element_size(storage)) != 0;
  };
  if (input.kind == InputKind::kConstant && too_wide(input.bits)) {
    return "bits are more than an element has";
  }
  for (const Box &box : input.set) {
    if (too_wide(box.bits)) {
      return "bits of a box are more than an element has";
    }
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

Elements generate(const Input &input, std::span<const std::int64_t> shape, Storage storage) {
  if (const std::string problem = input_problem(input, shape, storage); !problem.empty()) {
    throw std::invalid_argument(problem);
  }
  std::size_t count = 1;
  for (const std::int64_t size : shape) {
    count *= static_cast<std::size_t>(size);
  }
  Elements data{storage, std::vector<unsigned char>(count * element_size(storage))};
  for (std::size_t i = 0; i < count; ++i) {
    data.set_bits(i, element_bits(input, i, storage));
  }
  for (const Box &box : input.set) {
    fill_box(data, shape, box);
  }
  return data;
}

std::vector<float> generate(const Input &input, std::span<const std::int64_t> shape) {
  static_assert(sizeof(float) == 4 && std::numeric_limits<float>::is_iec559);
  const Elements elements = generate(input, shape, Storage::kFloat32);
  std::vector<float> data(elements.size());
  if (!data.empty()) {
    // As bytes: a signalling NaN must not pass through a floating-point register.
    std::memcpy(data.data(), elements.bytes.data(), elements.bytes.size());
  }
  return data;
}

} // namespace exattn::conformance
