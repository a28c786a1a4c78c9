// The generator of golden inputs. Every number here comes from docs/goldens.md's rules followed in another language's
// integers (Python), except the words of seed 1234567, which are SplitMix64's published test vector.
#include "conformance/generator.hpp"
#include "conformance/sha256.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

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

TEST_CASE("elements of 16 bits: what the binary32 element keeps of its significand") {
  const std::int64_t shape[] = {2, 3, 4};
  Input input;
  input.seed = 1;
  const auto first = [&](Storage storage) {
    const Elements data = generate(input, shape, storage);
    CHECK(data.size() == 24);
    CHECK(data.bytes.size() == 48);
    return std::vector<std::uint32_t>{data.bits(0), data.bits(1), data.bits(2), data.bits(3)};
  };
  CHECK(first(Storage::kBfloat16) == std::vector<std::uint32_t>{0xbf36, 0x3f9e, 0x3fec, 0x3faf});
  CHECK(first(Storage::kFloat16) == std::vector<std::uint32_t>{0xb9b4, 0x3cf4, 0x3f60, 0x3d7d});
  CHECK(generate(input, shape, Storage::kBfloat16).sha256() ==
        "8c02d9b54333dda33af8b2fb8fa39bf153381bdf9526a9e937c313456b834440");
  CHECK(generate(input, shape, Storage::kFloat16).sha256() ==
        "ad111a168e80db52b8c354430396610e55e34fec1be27663b354546eefa9ac7a");
  // binary32 is as it was.
  CHECK(generate(input, shape, Storage::kFloat32).sha256() ==
        "58748a80ec795d6ebda9862f8843d1a8d75a7636e07349943987dbde7081631f");
}

TEST_CASE("binary16 at both ends of its exponents, and bfloat16 at the lower end") {
  Input input;
  input.seed = 42;
  input.scale_exponent = kMinScaleExponent16;
  const std::int64_t shape[] = {1000};
  CHECK(element_bits(input, 0, Storage::kFloat16) == 0xf318);
  CHECK(generate(input, shape, Storage::kFloat16).sha256() ==
        "f4cd18030e8b68127126d4af70233dcc5563993e6ce4d2464c27d7048e6b82a2");
  // 2^-24 is the least subnormal number: elements of fewer than 11 bits are subnormal. Sums 621, -356, 574.
  input.scale_exponent = kMaxScaleExponent16;
  CHECK(element_bits(input, 29, Storage::kFloat16) == 621);
  CHECK(element_bits(input, 42, Storage::kFloat16) == (0x8000 | 356));
  CHECK(element_bits(input, 56, Storage::kFloat16) == 574);
  CHECK(generate(input, shape, Storage::kFloat16).sha256() ==
        "5f238e52bfe16b6b2ccd7a053bd40023eb248159b8f8adca46d79723ae047411");
  input.scale_exponent = kMinScaleExponent;
  CHECK(element_bits(input, 0, Storage::kBfloat16) == 0xfde3);
  CHECK(element_bits(input, 1, Storage::kBfloat16) == 0x7e2f);
}

TEST_CASE("any bits of 16 and of 8, and bytes that are 1 or 0") {
  Input input;
  input.kind = InputKind::kBits;
  input.seed = 7;
  const std::int64_t shape[] = {1000};
  CHECK(generate(input, shape, Storage::kBfloat16).sha256() ==
        "d71b4b6dbcc45df31445eb15f9cb4d4534fa8d9642f587179c6b9b7ec64c98f5");
  CHECK(generate(input, shape, Storage::kFloat16).bytes == generate(input, shape, Storage::kBfloat16).bytes);
  CHECK(generate(input, shape, Storage::kByte).sha256() ==
        "0492d5aed571f2fd7d4a43382f4adaded2c9611acff5f8c0f6b8b231a4afec66");

  // The top bytes of seed 1 are 0x91, 0xbe, 0xf8, 0x71.
  input.kind = InputKind::kVisible;
  input.seed = 1;
  const std::int64_t four[] = {4};
  const auto bytes = [&](int per_256) {
    input.per_256 = per_256;
    return generate(input, four, Storage::kByte).bytes;
  };
  CHECK(bytes(0) == std::vector<unsigned char>{0, 0, 0, 0});
  CHECK(bytes(0x71) == std::vector<unsigned char>{0, 0, 0, 0});
  CHECK(bytes(0x72) == std::vector<unsigned char>{0, 0, 0, 1});
  CHECK(bytes(0x92) == std::vector<unsigned char>{1, 0, 0, 1});
  CHECK(bytes(256) == std::vector<unsigned char>{1, 1, 1, 1});
  const std::int64_t long_shape[] = {2, 3, 4};
  input.per_256 = 128;
  CHECK(generate(input, long_shape, Storage::kByte).sha256() ==
        "cd90e27ffdfcc3552829e0bdc6b44929d68e3c1aa5d0c268ac617408c30bfce9");
}

TEST_CASE("boxes of 16 bits and of bytes") {
  Input input;
  input.kind = InputKind::kConstant;
  input.bits = 0xff80;
  input.set = {{{1}, {3}, 0x0001}};
  const std::int64_t shape[] = {4};
  const Elements data = generate(input, shape, Storage::kBfloat16);
  CHECK(data.bits(0) == 0xff80);
  CHECK(data.bits(1) == 0x0001);
  CHECK(data.bits(2) == 0x0001);
  CHECK(data.bits(3) == 0xff80);
  // Least significant byte first: 80 ff 01 00 01 00 80 ff.
  CHECK(data.sha256() == sha256_of(std::string_view("\x80\xff\x01\x00\x01\x00\x80\xff", 8)));
  input.bits = 0xfe;
  CHECK(generate(input, shape, Storage::kByte).bytes == std::vector<unsigned char>{0xfe, 1, 1, 0xfe});
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

  input = {};
  input.kind = InputKind::kVisible;
  refused(input); // for bytes alone
  const auto problem = [&](Storage storage) { return input_problem(input, shape, storage); };
  CHECK(problem(Storage::kBfloat16) == "the kind \"visible\" is for bytes");
  CHECK(problem(Storage::kByte).empty());
  for (const int per_256 : {-1, 257}) {
    input.per_256 = per_256;
    CHECK(problem(Storage::kByte) == "per_256 is outside 0 to 256");
  }
  input = {};
  CHECK(problem(Storage::kByte) == "bytes are never of the kind \"normal\"");
  for (const int exponent : {0, 25}) {
    input.scale_exponent = exponent;
    CHECK(problem(Storage::kFloat16) == "scale_exponent of binary16 is outside 1 to 24");
    CHECK(problem(Storage::kBfloat16).empty());
  }
  input.kind = InputKind::kConstant;
  input.bits = 0x10000;
  CHECK(problem(Storage::kFloat16) == "bits are more than an element has");
  CHECK(problem(Storage::kFloat32).empty());
  input.bits = 0;
  input.set = {{{0, 0}, {1, 1}, 0x100}};
  CHECK(problem(Storage::kByte) == "bits of a box are more than an element has");
  CHECK(problem(Storage::kFloat16).empty());

  const std::int64_t negative[] = {2, -1};
  CHECK_THROWS_AS(generate(Input(), negative), std::invalid_argument);
  const std::int64_t huge[] = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  CHECK_THROWS_AS(generate(Input(), huge), std::invalid_argument);
}
