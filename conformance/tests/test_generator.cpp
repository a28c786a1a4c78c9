// The generator of golden inputs. Every number here comes from docs/goldens.md's rules followed in another language's
// integers (Python), except the words of seed 1234567, which are SplitMix64's published test vector.
#include "conformance/generator.hpp"
#include "conformance/sha256.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>

using namespace exattn;
using namespace exattn::conformance;

namespace {

std::uint32_t bits_at(const std::vector<float> &data, std::size_t i) {
  std::uint32_t bits;
  std::memcpy(&bits, &data[i], sizeof bits);
  return bits;
}

} // namespace

TEST_CASE("the words are SplitMix64's published test vector") {
  CHECK(random_word(1234567, 0) == 6457827717110365317u);
  CHECK(random_word(1234567, 1) == 3203168211198807973u);
  CHECK(random_word(1234567, 2) == 9817491932198370423u);
  CHECK(random_word(1234567, 3) == 4593380528125082431u);
  CHECK(random_word(1234567, 4) == 16408922859458223821u);
}

TEST_CASE("the first values of seed 1, as in docs/goldens.md") {
  Input input;
  input.seed = 1;
  CHECK(random_word(1, 0) == 0x910a2dec89025cc1u);
  const std::int64_t shape[] = {6};
  const std::vector<float> data = generate(input, shape);
  CHECK(data == std::vector<float>{-0.713043212890625f, 1.238372802734375f, 1.844329833984375f, 1.3720703125f,
                                   0.603973388671875f, -1.235260009765625f});
  CHECK(bits_at(data, 0) == 0xbf368a00u);
  CHECK(bits_at(data, 5) == 0xbf9e1d00u);
}

TEST_CASE("scale_exponent moves the binary point and nothing else") {
  Input input;
  input.seed = 42;
  input.scale_exponent = 20;
  CHECK(element_bits(input, 0) == 0xbce30200u);
  CHECK(element_bits(input, 4) == 0xbdaad700u);
  // The field sums of seed 42 are -29057, 44941, ...: exact at both ends of the allowed range.
  const std::int64_t shape[] = {2};
  input.scale_exponent = kMinScaleExponent;
  CHECK(generate(input, shape) == std::vector<float>{std::ldexp(-29057.0f, 110), std::ldexp(44941.0f, 110)});
  input.scale_exponent = kMaxScaleExponent;
  CHECK(generate(input, shape) == std::vector<float>{std::ldexp(-29057.0f, -126), std::ldexp(44941.0f, -126)});
}

TEST_CASE("hashes of whole tensors, with and without boxes") {
  const std::int64_t shape[] = {2, 3, 4};
  Input input;
  input.seed = 1;
  CHECK(sha256_of(generate(input, shape)) == "58748a80ec795d6ebda9862f8843d1a8d75a7636e07349943987dbde7081631f");
  input.set = {{{0, 1, 1}, {2, 3, 2}, 0xff800000u}, {{1, 2, 0}, {2, 3, 4}, 0x3f800000u}};
  CHECK(sha256_of(generate(input, shape)) == "79941b66c51b33c383a02217ae6b043b89dca69cb488c894929d9170b5dda7b0");

  Input raw;
  raw.kind = InputKind::kBits;
  raw.seed = 7;
  const std::int64_t long_shape[] = {1000};
  CHECK(sha256_of(generate(raw, long_shape)) == "159220bee836ddeff5371a11eddd73c0d5d57c3037e3396010fa410aae81d14e");
}

TEST_CASE("boxes overwrite in order, the last one wins") {
  Input input;
  input.kind = InputKind::kConstant;
  input.bits = 0x40000000u;
  input.set = {{{0, 0}, {2, 2}, 0x7fa5a5a5u}, {{1, 1}, {3, 3}, 0x80000001u}};
  const std::int64_t shape[] = {3, 3};
  const std::vector<float> data = generate(input, shape);
  const std::uint32_t a = 0x40000000u, b = 0x7fa5a5a5u, c = 0x80000001u; // b is a signalling NaN, c subnormal
  const std::uint32_t wanted[] = {b, b, a, b, c, c, a, c, c};
  for (std::size_t i = 0; i < 9; ++i) {
    CHECK(bits_at(data, i) == wanted[i]);
  }
}

TEST_CASE("tensors without elements, and of rank 0") {
  Input input;
  const std::int64_t none[] = {3, 0, 5};
  CHECK(generate(input, none).empty());
  CHECK(generate(input, {}).size() == 1);
  // SHA-256 of no bytes and of "abc": FIPS 180-2's examples.
  CHECK(sha256_of(std::string_view()) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_of(std::string_view("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("what does not fit is refused") {
  const std::int64_t shape[] = {2, 3};
  const auto refused = [&](const Input &input) {
    CHECK_FALSE(input_problem(input, shape).empty());
    CHECK_THROWS_AS(generate(input, shape), std::invalid_argument);
  };
  Input good;
  good.set = {{{0, 0}, {2, 3}, 0}};
  CHECK(input_problem(good, shape).empty());

  const std::vector<Box> boxes = {{{0, 0}, {2, 4}, 0},      {{0, 0}, {3, 3}, 0}, {{-1, 0}, {1, 1}, 0},
                                  {{1, 1}, {1, 2}, 0},      {{1, 1}, {0, 2}, 0}, {{0}, {1}, 0},
                                  {{0, 0, 0}, {1, 1, 1}, 0}};
  for (const Box &box : boxes) {
    Input input;
    input.set = {box};
    refused(input);
  }
  Input input;
  input.scale_exponent = kMinScaleExponent - 1;
  refused(input);
  input.scale_exponent = kMaxScaleExponent + 1;
  refused(input);
  input.scale_exponent = kDefaultScaleExponent;
  input.seed = kMaxSeed + 1;
  refused(input);

  const std::int64_t negative[] = {2, -1};
  CHECK_THROWS_AS(generate(Input(), negative), std::invalid_argument);
  const std::int64_t huge[] = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  CHECK_THROWS_AS(generate(Input(), huge), std::invalid_argument);
}
