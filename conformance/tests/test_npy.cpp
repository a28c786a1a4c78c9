// Reading and writing .npy files. The files here are spelled out byte by byte from the format's description.
#include "src/program/npy.hpp"
#include "src/program/output_file.hpp"
#include "src/program/program.hpp"

#include "test_files.hpp"

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <string>

using namespace exattn::program;
using exattn::tests::little_endian;
using exattn::tests::npy_dict;
using exattn::tests::npy_file;
using exattn::tests::padded;
using exattn::tests::read_file;
using exattn::tests::TemporaryFolder;
using exattn::tests::write_file;
using namespace std::string_literals;

namespace {

const std::vector<float> kSix = {1, 2, 3, 4, 5, 6};

std::string error_of(const std::function<void()> &action) {
  try {
    action();
  } catch (const InputError &error) {
    return error.what();
  }
  return "no error";
}

std::string header_error(const std::string &header) {
  return error_of([&] { parse_npy_header(npy_file(1, header, ""), "x.npy"); });
}

std::size_t file_count(const TemporaryFolder &folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator(folder.get())) {
    ++count;
  }
  return count;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("versions 1, 2 and 3, aligned and not") {
  const TemporaryFolder folder;
  for (const int version : {1, 2, 3}) {
    for (std::size_t rest = 0; rest < 4; ++rest) {
      const std::string path = folder / "x.npy";
      const std::string header = padded(version, npy_dict("<f4", "False", "(2, 3)"), 64, rest);
      write_file(path, npy_file(version, header, little_endian(kSix)));
      const NpyArray array = read_npy(path);
      CHECK(array.shape == std::vector<std::int64_t>{2, 3});
      CHECK(array.strides == std::vector<std::int64_t>{3, 1});
      REQUIRE(array.size() == 6);
      CHECK(std::vector<float>(array.floats(), array.floats() + 6) == kSix);
    }
  }
}

TEST_CASE("Fortran order is a matter of strides") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  // [[1, 2, 3], [4, 5, 6]] stored column by column.
  write_file(path, npy_file(1, padded(1, npy_dict("<f4", "True", "(2, 3)"), 64), little_endian({1, 4, 2, 5, 3, 6})));
  const NpyArray array = read_npy(path);
  CHECK(array.shape == std::vector<std::int64_t>{2, 3});
  CHECK(array.strides == std::vector<std::int64_t>{1, 2});
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t column = 0; column < 3; ++column) {
      CHECK(array.floats()[row * array.strides[0] + column * array.strides[1]] ==
            kSix[static_cast<std::size_t>(row * 3 + column)]);
    }
  }
}

TEST_CASE("special values arrive bit for bit") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  const std::string bits = "\x01\x00\xa0\x7f"   // a signalling NaN
                           "\x00\x00\x00\x80"   // -0
                           "\x01\x00\x00\x00"   // the smallest subnormal
                           "\x00\x00\x80\xff"s; // -inf
  write_file(path, npy_file(1, padded(1, npy_dict("<f4", "False", "(4,)"), 64), bits));
  const NpyArray array = read_npy(path);
  std::uint32_t read[4];
  std::memcpy(read, array.data, sizeof read);
  CHECK(read[0] == 0x7fa00001u);
  CHECK(read[1] == 0x80000000u);
  CHECK(read[2] == 0x00000001u);
  CHECK(read[3] == 0xff800000u);
}

TEST_CASE("tensors without elements, and scalars") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  write_file(path, npy_file(1, padded(1, npy_dict("<f4", "False", "(4, 0, 3)"), 64), ""));
  const NpyArray none = read_npy(path);
  CHECK(none.size() == 0);
  CHECK(none.data != nullptr);
  CHECK(none.shape == std::vector<std::int64_t>{4, 0, 3});
  write_file(path, npy_file(1, padded(1, npy_dict("<f4", "False", "()"), 64), little_endian({7})));
  const NpyArray scalar = read_npy(path);
  CHECK(scalar.size() == 1);
  CHECK(scalar.floats()[0] == 7);
}

TEST_CASE("the header may be written in any order, spacing and quotes") {
  const auto shape_of = [](const std::string &header) {
    return parse_npy_header(npy_file(1, header, ""), "x.npy").shape;
  };
  using Shape = std::vector<std::int64_t>;
  CHECK(shape_of("{'shape':(3,4),'descr':'<f4','fortran_order':True}") == Shape{3, 4});
  CHECK(shape_of("{\"descr\" : \"<f4\" ,\n \"fortran_order\": False,\t'shape': ( 3 , 4 , ) , }  \n") == Shape{3, 4});
  CHECK(shape_of(npy_dict("<f4", "False", "(5,)")) == Shape{5});
  CHECK(shape_of(npy_dict("<f4", "False", "( )")) == Shape{});
  CHECK(parse_npy_header(npy_file(1, npy_dict("<f4", "True", "(1,)"), ""), "x.npy").fortran_order);
}

TEST_CASE("other dtypes are refused by name") {
  const auto error = [](const std::string &descr) { return header_error(npy_dict(descr, "False", "(2,)")); };
  CHECK(error("<f4") == "no error");
  CHECK(contains(error("<f8"), "x.npy: its dtype is '<f8' (float64); only '<f4' (little-endian float32) is read"));
  CHECK(contains(error(">f4"), "'>f4' (big-endian float32)"));
  CHECK(contains(error("<f2"), "float16"));
  CHECK(contains(error("<i4"), "int32"));
  CHECK(contains(error("|u1"), "uint8"));
  CHECK(contains(error("|O"), "its dtype is '|O'"));
  CHECK(contains(error(""), "its dtype is ''"));
  CHECK(contains(header_error("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"), "structured"));
}

TEST_CASE("the other types, aligned and not, each only where it is asked for") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  // 1, 2 and 3 in three elements, spelled out.
  const struct {
    const char *descr;
    NpyType type;
    std::string data;
  } kinds[] = {{"<f2", NpyType::kFloat16, "\x00\x3c\x00\x40\x00\x42"s},
               {"<u2", NpyType::kBits16, "\x80\x3f\x00\x40\x40\x40"s},
               {"<V2", NpyType::kBits16, "\x80\x3f\x00\x40\x40\x40"s},
               {"|V2", NpyType::kBits16, "\x80\x3f\x00\x40\x40\x40"s},
               {"|b1", NpyType::kBool, "\x00\x01\x01"s},
               {"|u1", NpyType::kUint8, "\x01\x02\xff"s},
               {"<i4", NpyType::kInt32, "\x01\x00\x00\x00\x02\x00\x00\x00\xfd\xff\xff\xff"s},
               {"<i8", NpyType::kInt64,
                "\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\xfd\xff\xff\xff\xff\xff\xff\xff"s}};
  for (const auto &kind : kinds) {
    CAPTURE(kind.descr);
    for (std::size_t rest = 0; rest < 8; ++rest) {
      write_file(path, npy_file(1, padded(1, npy_dict(kind.descr, "False", "(3,)"), 64, rest), kind.data));
      const NpyArray array = read_npy(path, {NpyType::kFloat32, kind.type});
      CHECK(array.type == kind.type);
      REQUIRE(array.size() == 3);
      CHECK(std::memcmp(array.data, kind.data.data(), kind.data.size()) ==
            0); // this test runs on little-endian machines
      CHECK(reinterpret_cast<std::uintptr_t>(array.data) % (kind.data.size() / 3) == 0);
      if (kind.type == NpyType::kInt32 || kind.type == NpyType::kInt64) {
        CHECK(array.integers() == std::vector<std::int64_t>{1, 2, -3});
      }
    }
    CHECK(contains(error_of([&] { read_npy(path); }), "only '<f4' (little-endian float32) is read"));
    write_file(path, npy_file(1, padded(1, npy_dict(kind.descr, "False", "(3,)"), 64), kind.data.substr(1)));
    CHECK(contains(error_of([&] { read_npy(path, {kind.type}); }),
                   "is cut off: shape 3 takes " + std::to_string(kind.data.size()) + " bytes, there are " +
                       std::to_string(kind.data.size() - 1)));
  }
}

TEST_CASE("what is allowed is named, with a remark where there is one") {
  const auto error = [](const std::string &descr, const NpyTypes &types) {
    return error_of([&] { parse_npy_header(npy_file(1, npy_dict(descr, "False", "(2,)"), ""), "x.npy", types); });
  };
  CHECK(error("<f8", {NpyType::kInt32, NpyType::kInt64}) ==
        "x.npy: its dtype is '<f8' (float64); '<i4' (little-endian int32), '<i8' (little-endian int64) are read");
  CHECK(error(">i8", {NpyType::kInt64}) ==
        "x.npy: its dtype is '>i8' (big-endian int64); only '<i8' (little-endian int64) is read");
  CHECK(error("|u1", {{NpyType::kFloat32}, "such is life"}) ==
        "x.npy: its dtype is '|u1' (uint8); only '<f4' (little-endian float32) is read; such is life");
  CHECK(contains(error(">f2", {NpyType::kFloat16}), "'>f2' (big-endian float16)"));
  CHECK(contains(error(">V2", {NpyType::kBits16}), "its dtype is '>V2'"));
  CHECK(contains(error("<V4", {NpyType::kBits16}), "its dtype is '<V4'"));
  CHECK(contains(error("|i1", {NpyType::kBool, NpyType::kUint8}), "'|b1' (bool), '|u1' (uint8) are read"));
}

TEST_CASE("a size in bytes counts the element's") {
  const auto error = [](const std::string &descr, NpyType type, const std::string &count) {
    return error_of(
        [&] { parse_npy_header(npy_file(1, npy_dict(descr, "False", "(" + count + ",)"), ""), "x.npy", {type}); });
  };
  const std::string most = "9223372036854775807"; // 2^63 - 1
  CHECK(error("|u1", NpyType::kUint8, most) == "no error");
  CHECK(contains(error("<f2", NpyType::kFloat16, "4611686018427387904"), "does not fit in 63 bits")); // 2^62
  CHECK(error("<f2", NpyType::kFloat16, "4611686018427387903") == "no error");
  CHECK(contains(error("<i8", NpyType::kInt64, "1152921504606846976"), "does not fit in 63 bits")); // 2^60
  CHECK(error("<i8", NpyType::kInt64, "1152921504606846975") == "no error");
}

TEST_CASE("a bool is 0 or 1") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  for (int value = 0; value < 256; ++value) {
    const std::string data = "\x00\x01"s + static_cast<char>(value) + "\x01"s;
    write_file(path, npy_file(1, padded(1, npy_dict("|b1", "False", "(2, 2)"), 64), data));
    const std::string error = error_of([&] { read_npy(path, {NpyType::kBool}); });
    if (value < 2) {
      CHECK(error == "no error");
    } else {
      CHECK(error == path + ": element 2 is " + std::to_string(value) + "; a bool must be 0 or 1");
    }
  }
}

TEST_CASE("integers in C order, whatever the file's") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  // [[1, 2, 3], [4, 5, 6]] stored column by column.
  const std::string data = "\1\0\0\0\4\0\0\0\2\0\0\0\5\0\0\0\3\0\0\0\6\0\0\0"s;
  write_file(path, npy_file(1, padded(1, npy_dict("<i4", "True", "(2, 3)"), 64), data));
  CHECK(read_npy(path, {NpyType::kInt32}).integers() == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
  write_file(path, npy_file(1, padded(1, npy_dict("<i4", "False", "(0, 3)"), 64), ""));
  CHECK(read_npy(path, {NpyType::kInt32}).integers().empty());
}

TEST_CASE("headers that are not what they should be") {
  CHECK(contains(header_error(""), "not a Python dict"));
  CHECK(contains(header_error("{"), "not a Python dict"));
  CHECK(contains(header_error("{}"), "lacks the key 'descr'"));
  CHECK(contains(header_error("{'descr': '<f4', 'shape': (2,)}"), "lacks the key 'fortran_order'"));
  CHECK(contains(header_error("{'descr': '<f4', 'fortran_order': False}"), "lacks the key 'shape'"));
  CHECK(contains(header_error(npy_dict("<f4", "False", "(2,)") + "x"), "goes on after the closing brace"));
  CHECK(contains(header_error("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}"), "twice"));
  CHECK(contains(header_error("{'descr': '<f4', 'color': 1}"), "unknown key 'color'"));
  CHECK(contains(header_error("{'descr': '<f4' 'fortran_order': False, 'shape': ()}"), "'}' expected"));
  CHECK(contains(header_error("{'descr': '<f4"), "in quotes expected"));
  CHECK(contains(header_error("{'descr': <f4}"), "in quotes expected"));
  CHECK(contains(header_error(npy_dict("<f4", "0", "(2,)")), "must be True or False"));
  for (const char *shape : {"2", "[2]", "(2", "(2 3)", "(2,,3)", "(a)", "(2.0,)", "(,)"}) {
    CHECK(header_error(npy_dict("<f4", "False", shape)) != "no error");
  }
  CHECK(contains(header_error(npy_dict("<f4", "False", "(2)")), "must be a tuple"));
  CHECK(contains(header_error(npy_dict("<f4", "False", "(-1,)")), "negative"));
  CHECK(contains(header_error(npy_dict("<f4", "False", "(9223372036854775808,)")), "does not fit in 63 bits"));
  CHECK(contains(header_error(npy_dict("<f4", "False", "(4294967296, 4294967296)")), "does not fit in 63 bits"));
  CHECK(contains(header_error(npy_dict("<f4", "False", "(2305843009213693952,)")), "does not fit in 63 bits")); // 2^61
  CHECK(contains(header_error(npy_dict("<f4", "False", "(0, 4294967296, 4294967296)")), "does not fit in 63 bits"));
  std::string many = "(";
  for (int n = 0; n < 33; ++n) {
    many += "1, ";
  }
  CHECK(contains(header_error(npy_dict("<f4", "False", many + ")")), "more than 32 dimensions"));
}

TEST_CASE("files that are cut, too long, or no .npy files at all") {
  const TemporaryFolder folder;
  const std::string path = folder / "x.npy";
  const std::string good = npy_file(1, padded(1, npy_dict("<f4", "False", "(2, 3)"), 64), little_endian(kSix));
  const auto error = [&](const std::string &bytes) {
    write_file(path, bytes);
    return error_of([&] { read_npy(path); });
  };
  CHECK(error(good) == "no error");
  for (std::size_t length = 0; length < good.size(); ++length) {
    CHECK(error(good.substr(0, length)) != "no error");
  }
  CHECK(contains(error(good.substr(0, good.size() - 1)), "is cut off: shape 2x3 takes 24 bytes, there are 23"));
  CHECK(contains(error(good.substr(0, 40)), "is cut off inside its header"));
  CHECK(contains(error(good + "x"), "has extra bytes at its end: shape 2x3 takes 24 bytes, there are 25"));
  CHECK(contains(error(""), "is empty"));
  CHECK(contains(error("PK\x03\x04 an .npz file"), "is not a .npy file"));
  std::string other = good;
  other[6] = 4;
  CHECK(contains(error(other), "version 4.0"));
  other[6] = 1;
  other[7] = 1;
  CHECK(contains(error(other), "version 1.1"));
  // A header length far beyond the file.
  CHECK(contains(error("\x93NUMPY\x02\x00\xff\xff\xff\xff{}"s), "4294967295 bytes"));
  CHECK(contains(error_of([&] { read_npy(folder / "absent.npy"); }), "cannot be opened: No such file"));
  CHECK(contains(error_of([&] { read_npy(folder.get()); }), "is not a regular file"));
}

TEST_CASE("what is written is a version 1.0 file in C order") {
  const TemporaryFolder folder;
  const std::string path = folder / "y.npy";
  const std::int64_t shape[] = {2, 3};
  OutputFile file(path);
  write_npy(file, shape, kSix);
  CHECK_FALSE(std::filesystem::exists(path)); // not before it is whole
  file.commit();
  CHECK(read_file(path) ==
        npy_file(1, padded(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 64), little_endian(kSix)));
  const std::int64_t one[] = {5};
  CHECK(contains(npy_header(one), "'shape': (5,), }"));
  CHECK(npy_header({}).size() % 64 == 0);
  CHECK(contains(npy_header({}), "'shape': (), }"));
}

TEST_CASE("a file that is not committed leaves what was there") {
  const TemporaryFolder folder;
  const std::string path = folder / "y.npy";
  write_file(path, "old");
  {
    OutputFile file(path);
    file.write("new");
  }
  CHECK(read_file(path) == "old");
  {
    OutputFile file(path);
    file.write("new");
    file.commit();
  }
  CHECK(read_file(path) == "new");
  CHECK(file_count(folder) == 1);
}

TEST_CASE("a file that is finished, but not committed, leaves what was there") {
  const TemporaryFolder folder;
  const std::string path = folder / "y.npy";
  write_file(path, "old");
  {
    OutputFile file(path);
    file.write("new");
    file.finish();
  }
  CHECK(read_file(path) == "old");
  CHECK(file_count(folder) == 1);
  {
    OutputFile file(path);
    file.write("new");
    file.finish();
    file.commit();
  }
  CHECK(read_file(path) == "new");
  CHECK(file_count(folder) == 1);
}

TEST_CASE("an output needs a file of its own") {
  const TemporaryFolder folder;
  const std::string path = folder / "y.npy";
  {
    OutputFile file(path);
    CHECK(error_of([&] { OutputFile{path}; }) == path + ": is named for two outputs; each needs a file of its own");
    CHECK(contains(error_of([&] { OutputFile(folder / "./y.npy"); }), "is named for two outputs"));
    std::filesystem::create_symlink(path, folder / "link");
    file.write("x");
    file.commit();
  }
  OutputFile file(path);
  CHECK(contains(error_of([&] { OutputFile(folder / "link"); }), "is named for two outputs"));
  // An input under another name.
  const NamedFile input{"--q", path};
  const auto refused = [&](const std::string &output) {
    return error_of([&] { OutputFile(NamedFile{"--out", output}, std::span(&input, 1)); });
  };
  CHECK(refused(folder / "link") ==
        "--out: " + std::string(folder / "link") + " is an input, of --q; an output needs a file of its own");
  CHECK(refused(folder / "z.npy") == "no error");
  // A device is not replaced, so it may take everything.
  OutputFile first("/dev/null");
  OutputFile second("/dev/null");
  first.commit();
  second.commit();
}

TEST_CASE("a program that is interrupted leaves what was there") {
  const TemporaryFolder folder;
  const std::string path = folder / "y.npy";
  write_file(path, "old");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGTERM, SIG_DFL); // not the handler of the test framework
    OutputFile file(path);
    file.write("new");
    raise(SIGTERM);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
  CHECK(read_file(path) == "old");
  CHECK(file_count(folder) == 1);
}

TEST_CASE("a symbolic link stays one, and a device is not replaced") {
  const TemporaryFolder folder;
  write_file(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  OutputFile file((folder / "link").string());
  file.write("new");
  file.commit();
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_file(folder / "target") == "new");

  OutputFile device("/dev/null");
  device.write("nothing");
  device.commit();
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("paths that cannot be written are refused at once") {
  const TemporaryFolder folder;
  CHECK(contains(error_of([&] { OutputFile(folder / "no/such/folder/y.npy"); }), "cannot be written: No such file"));
  CHECK(contains(error_of([&] { OutputFile{folder.get().string()}; }), "is a directory"));
#ifdef __linux__
  CHECK(contains(error_of([&] {
                   OutputFile file("/dev/full");
                   file.write("x");
                   file.commit();
                 }),
                 "No space left"));
#endif
}
