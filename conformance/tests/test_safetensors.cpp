// Reading safetensors files. The files here are spelled out from the format's description: 8 bytes that say how long
// the header is, the header, the tensors' bytes.
#include "src/program/npy.hpp"
#include "src/program/program.hpp"
#include "src/program/safetensors.hpp"

#include "test_files.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using namespace exattn::program;
using exattn::tests::TemporaryFolder;
using exattn::tests::write_file;

namespace {

std::string size_bytes(std::uint64_t size) {
  std::string bytes;
  for (int n = 0; n < 8; ++n) {
    bytes += static_cast<char>(size >> (8 * n) & 0xFF);
  }
  return bytes;
}

std::string safetensors(const std::string &header, const std::string &data) {
  return size_bytes(header.size()) + header + data;
}

std::string error_of(const std::string &file) {
  try {
    parse_safetensors(file, "x");
  } catch (const InputError &error) {
    return error.what();
  }
  return "no error";
}

std::string error_of_header(const std::string &header, const std::string &data = "") {
  return error_of(safetensors(header, data));
}

// A tensor of 8 bytes that begins the data.
std::string tensor(const std::string &dtype, const std::string &shape, const std::string &offsets) {
  return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

const std::string kOneAndTwo("\0\0\200\77\0\0\0\100", 8); // 1 and 2

} // namespace

TEST_CASE("safetensors: a tensor by its name, of every type that is read") {
  const TemporaryFolder folder;
  const std::string path = (folder / "m.safetensors").string();
  const std::string header = R"({"__metadata__":{"made":"by hand"},)"
                             R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
                             R"("a.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                             R"("empty":{"dtype":"F32","shape":[0,9],"data_offsets":[12,12]},)"
                             R"("h":{"dtype":"F16","shape":[],"data_offsets":[12,14]}})";
  write_file(path, safetensors(header, kOneAndTwo + std::string("\200\77\0\100", 4) + std::string("\0\74", 2)));
  const NpyArray a = read_tensor(path + ":a.weight");
  CHECK(a.shape == std::vector<std::int64_t>{1, 2});
  CHECK(a.strides == std::vector<std::int64_t>{2, 1});
  CHECK(std::vector<float>(a.floats(), a.floats() + 2) == std::vector<float>{1, 2});
  // Where float16 is allowed, bfloat16 is: the file says which it is.
  const NpyTypes sixteen{NpyType::kFloat32, NpyType::kFloat16};
  const NpyArray b = read_tensor(path + ":b", sixteen);
  CHECK(b.type == NpyType::kBfloat16);
  CHECK(b.size() == 2);
  CHECK(static_cast<const std::uint16_t *>(b.data)[1] == 0x4000);
  const NpyArray h = read_tensor(path + ":h", sixteen);
  CHECK(h.type == NpyType::kFloat16);
  CHECK(h.shape.empty());
  CHECK(read_tensor(path + ":empty").size() == 0);

  const auto error = [&](const std::string &name) {
    try {
      read_tensor(name);
    } catch (const InputError &failure) {
      return std::string(failure.what()).substr(path.size());
    }
    return std::string("no error");
  };
  CHECK(error(path + ":b") == ":b: its dtype is BF16; allowed here: F32");
  CHECK(error(path + ":c") == ": has no tensor \"c\"; it has a.weight, b, empty, h");
  CHECK(error(path) ==
        ": which of its tensors? Name one after a colon, " + path + ":TENSOR; it has a.weight, b, empty, h");
}

TEST_CASE("safetensors: hostile files are refused, with what is wrong") {
  CHECK(error_of("\1\0\0") == "x: is cut off: a safetensors file begins with 8 bytes that say how long its header is");
  CHECK(error_of(size_bytes(3) + "{}") == "x: is cut off: its header would have 3 bytes, 2 are there");
  CHECK(error_of(size_bytes(100'000'001) + "{}") ==
        "x: its header would have 100000001 bytes, at most 100000000 are allowed");
  CHECK(error_of(size_bytes(~std::uint64_t{0}) + "{}") ==
        "x: its header would have 18446744073709551615 bytes, at most 100000000 are allowed");
  CHECK(error_of_header("{}") == "no error");
  CHECK(error_of_header("{}", "1") == "x: has 1 bytes at its end that belong to no tensor");
  CHECK(error_of_header("[]") == "x: its header is no JSON object");
  CHECK(error_of_header("{\"a\":").starts_with("x: its header is no JSON: "));
  CHECK(error_of_header("{\"a\xFF\":1}").starts_with("x: its header is no JSON: "));
  CHECK(error_of_header(std::string(100'000, '[')) ==
        "x: its header is no safetensors header: objects or lists lie too deep");
  CHECK(error_of_header(R"({"__metadata__":{"a":1}})") == "x: its __metadata__ must be an object of strings");

  const std::string good = tensor("\"F32\"", "[2]", "[0,8]");
  CHECK(error_of_header(good, kOneAndTwo) == "no error");
  CHECK(error_of_header(good, kOneAndTwo.substr(1)) ==
        "x: tensor \"t\": its data_offsets end at 8, after the header are 7 bytes");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"({"t":{"dtype":"F32","shape":[2]}})",
       "must be an object with dtype, shape and data_offsets, and nothing else"},
      {R"({"t":7})", "must be an object with dtype, shape and data_offsets, and nothing else"},
      {tensor("32", "[2]", "[0,8]"), "its dtype must be a string"},
      {tensor("\"F33\"", "[2]", "[0,8]"), "its dtype \"F33\" is none of the format's"},
      {tensor("\"F32\"", "[-2]", "[0,8]"), "its shape must be a list of at most 32 integers of 0 or more"},
      {tensor("\"F32\"", "[2.0]", "[0,8]"), "its shape must be a list of at most 32 integers of 0 or more"},
      {tensor("\"F32\"", "2", "[0,8]"), "its shape must be a list of at most 32 integers of 0 or more"},
      {tensor("\"F32\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]"),
       "its shape must be a list of at most 32 integers of 0 or more"},
      {tensor("\"F32\"", "[4611686018427387904]", "[0,8]"), "its shape does not fit in 63 bits"},
      {tensor("\"F32\"", "[4294967296,4294967296,4294967296]", "[0,0]"), "its shape does not fit in 63 bits"},
      {tensor("\"U8\"", "[18446744073709551615]", "[0,8]"), "its shape does not fit in 63 bits"},
      {tensor("\"F32\"", "[2]", "[8,0]"), "its shape takes 8 bytes, its data_offsets are 8 to 0"},
      {tensor("\"F32\"", "[2]", "[0,7]"), "its shape takes 8 bytes, its data_offsets are 0 to 7"},
      {tensor("\"F32\"", "[2]", "[0,-8]"), "its data_offsets must be two integers of 0 or more"},
      {tensor("\"F32\"", "[2]", "[0,8,8]"), "its data_offsets must be two integers of 0 or more"},
  };
  for (const auto &[header, problem] : wrong) {
    CHECK(error_of_header(header, kOneAndTwo) == "x: tensor \"t\": " + problem);
  }
  CHECK(error_of_header(tensor("\"F32\"", "[2]", "[1,9]"), kOneAndTwo + " ") ==
        "x: tensor \"t\" begins at byte 1, must begin where the one before it ends, at 0");

  const std::string half = R"("dtype":"F32","shape":[1],"data_offsets":)";
  CHECK(error_of_header("{\"a\":{" + half + "[0,4]},\"a\":{" + half + "[4,8]}}", kOneAndTwo) ==
        "x: its header has \"a\" twice");
  CHECK(error_of_header("{\"a\":{" + half + "[0,4]},\"b\":{" + half + "[4,8]}}", kOneAndTwo) == "no error");
  // The same bytes twice.
  CHECK(error_of_header("{\"a\":{" + half + "[0,4]},\"b\":{" + half + "[0,4]}}", kOneAndTwo) ==
        "x: tensor \"b\" begins at byte 0, must begin where the one before it ends, at 4");
}

TEST_CASE("safetensors: data at an odd place is copied, not read where the machine can't") {
  const TemporaryFolder folder;
  const std::string path = (folder / "odd.safetensors").string();
  const std::string header = R"({"n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("t":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  write_file(path, safetensors(header, "z" + kOneAndTwo));
  const NpyArray t = read_tensor(path + ":t");
  CHECK(reinterpret_cast<std::uintptr_t>(t.data) % alignof(float) == 0);
  CHECK(std::vector<float>(t.floats(), t.floats() + 2) == std::vector<float>{1, 2});
}
