// The program exattn, run as a user runs it. What it must print was worked out by hand: one key gives its value, equal
// scores give the mean of the values that are visible.
#include "src/program/npy.hpp"
#include "src/program/output_file.hpp"
#include "src/program/program.hpp"

#include "run_program.hpp"
#include "test_files.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

using namespace exattn;
using exattn::tests::kOneKeyGolden;
using exattn::tests::kTwoEqualGolden;
using exattn::tests::little_endian;
using exattn::tests::load;
using exattn::tests::npy_dict;
using exattn::tests::npy_file;
using exattn::tests::Output;
using exattn::tests::padded;
using exattn::tests::read_file;
using exattn::tests::replaced;
using exattn::tests::run;
using exattn::tests::save;
using exattn::tests::TemporaryFolder;
using exattn::tests::write_file;
using exattn::tests::write_goldens;

namespace {

// A file of any type, its elements given as bytes.
void save_bytes(const TemporaryFolder &folder, const std::string &name, const char *dtype, const char *shape,
                const std::string &bytes) {
  write_file(folder / name, npy_file(1, padded(1, npy_dict(dtype, "False", shape), 64), bytes));
}

// Integers of `size` bytes each, least significant first.
std::string integer_bytes(const std::vector<std::int64_t> &values, int size) {
  std::string bytes;
  for (const std::int64_t value : values) {
    for (int byte = 0; byte < size; ++byte) {
      bytes += static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * byte)) & 0xFF);
    }
  }
  return bytes;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

// Exit code 2, nothing on standard output, and one line on standard error that holds `part`.
void check_refused(const TemporaryFolder &folder, const std::string &arguments, const std::string &part) {
  CAPTURE(arguments);
  const Output output = run(folder, arguments);
  CAPTURE(output.err);
  CHECK(output.exit_code == 2);
  CHECK(output.out == "");
  CHECK(output.err.starts_with("exattn: "));
  CHECK(std::count(output.err.begin(), output.err.end(), '\n') == 1);
  CHECK(contains(output.err, part));
}

// One key: 2 heads, 2 queries of size 1, one key of one head; out is (0.5, -1.25) four times, lse is 2 * 3 * scale.
void save_one_key(const TemporaryFolder &folder) {
  save(folder, "q.npy", {1, 2, 2, 1}, {2, 2, 2, 2});
  save(folder, "k.npy", {1, 1, 1, 1}, {3});
  save(folder, "v.npy", {1, 1, 1, 2}, {0.5f, -1.25f});
}

// SHA-256 of (0.5, -1.25) four times, computed outside of this project.
const std::string kOneKeyHash = "cd4ceb387134564af8a52dca527c03c11fe991566a70f5929df324869e703095";

// Zero scores: q is [queries, 1], k is [keys, 1], and v counts 0, 1, 2, ... from `first`.
void save_counting(const TemporaryFolder &folder, std::int64_t queries, std::int64_t keys, float first) {
  save(folder, "q.npy", {queries, 1}, std::vector<float>(static_cast<std::size_t>(queries), 0));
  save(folder, "k.npy", {keys, 1}, std::vector<float>(static_cast<std::size_t>(keys), 0));
  std::vector<float> values;
  for (std::int64_t j = 0; j < keys; ++j) {
    values.push_back(first + static_cast<float>(j));
  }
  save(folder, "v.npy", {keys, 1}, values);
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::string kFiles = "attention --q q.npy --k k.npy --v v.npy ";

std::vector<float> attention_out(const TemporaryFolder &folder, const std::string &options) {
  CAPTURE(options);
  const Output output = run(folder, kFiles + "--out o.npy " + options);
  CAPTURE(output.err);
  REQUIRE(output.exit_code == 0);
  return load(folder, "o.npy");
}

} // namespace

TEST_CASE("help and version") {
  const TemporaryFolder folder;
  const Output version = run(folder, "--version");
  CHECK(version.exit_code == 0);
  CHECK(contains(version.out, "definition exattn-1"));
  for (const char *name : {"attention", "softmax", "compare", "conformance", "functions", "bench", "info"}) {
    const Output help = run(folder, std::string(name) + " --help");
    CHECK(help.exit_code == 0);
    CHECK(contains(help.out, "Example:\n  exattn " + std::string(name)));
  }
}

TEST_CASE("wrong usage") {
  const TemporaryFolder folder;
  check_refused(folder, "", "a subcommand is required");
  check_refused(folder, "atention", "atention");
  check_refused(folder, "info --jason", "--jason");
  check_refused(folder, "attention --q q.npy", "--k is required");
  // The help that is of use is the subcommand's.
  check_refused(folder, "atention", "(see exattn --help)");
  check_refused(folder, "attention --q q.npy", "(see exattn attention --help)");
  check_refused(folder, "attention --q q.npy --k k.npy --v v.npy --kv-heads 2", "(see exattn attention --help)");
  check_refused(folder, "softmax --x", "(see exattn softmax --help)");
  check_refused(folder, "info --jason", "(see exattn info --help)");
  check_refused(folder, "functions --function tan", "there are exp, log and tanh");
  check_refused(folder, "functions --lanes mmx", "there are auto, scalar, sse2, avx2, avx512, neon64, avx512n");
  check_refused(folder, "functions --flavour quick", "there are exact and fast");
  // What an unset variable of a script leaves behind.
  check_refused(folder, "conformance --require ''", "argument 3 is empty, after --require");
  check_refused(folder, "conformance --lanes=", "argument 2 is empty");
}

TEST_CASE("standard output that cannot be written is an error") {
#ifdef __linux__
  const TemporaryFolder folder;
  const std::string command = EXATTN_LAUNCHER " '" EXATTN_PROGRAM "' info > /dev/full 2> /dev/null";
  CHECK(WEXITSTATUS(std::system(command.c_str())) == 2);
#endif
}

TEST_CASE("info shows kernels that ran") {
  const TemporaryFolder folder;
  const Output text = run(folder, "info");
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "scalar/exact"));
  CHECK(contains(text.out, "auto, exact: "));
  const nlohmann::json json = nlohmann::json::parse(run(folder, "info --json").out);
  CHECK(json["definition"] == "exattn-1");
  CHECK(json["lanes"].size() == 6);
  CHECK(json["lanes"]["scalar"]["exact"]["kernel"] == "scalar/exact");
  CHECK(json["lanes"]["scalar"]["fast"]["kernel"] == "scalar/fast");
  CHECK(json["lanes"]["sse2"]["fast"]["kernel"].is_null());
  CHECK(json["lanes"]["sse2"]["fast"]["refused"].get<std::string>() != "");

  const nlohmann::json forced = nlohmann::json::parse(run(folder, "info --json", "EXATTN_LANES=scalar").out);
  CHECK(forced["auto"]["exact"]["kernel"] == "scalar/exact");
  const nlohmann::json unknown = nlohmann::json::parse(run(folder, "info --json", "EXATTN_LANES=mmx").out);
  CHECK(unknown["auto"]["exact"]["kernel"].is_null());
}

TEST_CASE("attention prints the output's hash and shape") {
  const TemporaryFolder folder;
  save_one_key(folder);
  for (const char *options : {"", "--flavour fast", "--lanes scalar", "--threads 1", "--threads 3", "--scale -2",
                              "--flavour fast --lanes scalar", "--threads all"}) {
    const Output output = run(folder, kFiles + options);
    CHECK(output.exit_code == 0);
    CHECK(output.out == "sha256 " + kOneKeyHash + " 1x2x2x2\n");
    CHECK(output.err == "");
  }
}

TEST_CASE("attention writes the output and the log-sum-exp") {
  const TemporaryFolder folder;
  save_one_key(folder);
  const Output output = run(folder, kFiles + "--scale 0.5 --out o.npy --lse-out l.npy");
  CHECK(output.exit_code == 0);
  CHECK(contains(output.out, "\nsha256-lse "));
  CHECK(contains(output.out, " 1x2x2\n"));
  CHECK(load(folder, "o.npy") == std::vector<float>{0.5f, -1.25f, 0.5f, -1.25f, 0.5f, -1.25f, 0.5f, -1.25f});
  CHECK(load(folder, "l.npy") == std::vector<float>{3, 3, 3, 3});
  CHECK(program::read_npy((folder / "l.npy").string()).shape == std::vector<std::int64_t>{1, 2, 2});

  const nlohmann::json json = nlohmann::json::parse(run(folder, kFiles + "--scale 0.1 --lanes scalar --json").out);
  CHECK(json["out"]["sha256"] == kOneKeyHash);
  CHECK(json["out"]["shape"] == nlohmann::json::array({1, 2, 2, 2}));
  CHECK(json["kernel"] == "scalar/exact");
  CHECK(json["scale_bits"] == "3dcccccd"); // the float32 nearest to 0.1
}

TEST_CASE("two and three dimensions, and Fortran order") {
  const TemporaryFolder folder;
  save(folder, "q.npy", {2, 2, 1}, {2, 2, 2, 2});
  save(folder, "k.npy", {1, 1, 1}, {3});
  save(folder, "v.npy", {1, 1, 2}, {0.5f, -1.25f});
  CHECK(run(folder, kFiles).out == "sha256 " + kOneKeyHash + " 2x2x2\n");
  save(folder, "q.npy", {4, 1}, {2, 2, 2, 2});
  save(folder, "k.npy", {1, 1}, {3});
  save(folder, "v.npy", {1, 2}, {0.5f, -1.25f});
  CHECK(run(folder, kFiles).out == "sha256 " + kOneKeyHash + " 4x2\n");

  // Two keys far apart in score: each query takes the value of the key that its own direction points to.
  save(folder, "q.npy", {2, 2}, {200, 0, 0, 200});
  save(folder, "k.npy", {2, 2}, {1, -1, -1, 1});
  write_file(folder / "v.npy", npy_file(1, padded(1, npy_dict("<f4", "True", "(2, 3)"), 64),
                                        little_endian({1, 4, 2, 5, 3, 6}))); // [[1, 2, 3], [4, 5, 6]]
  CHECK(attention_out(folder, "--scale 1") == std::vector<float>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("masks are broadcast as NumPy does") {
  const TemporaryFolder folder;
  save_counting(folder, 2, 4, 1); // values 1, 2, 3, 4
  const float hide = -std::numeric_limits<float>::infinity();
  CHECK(attention_out(folder, "") == std::vector<float>{2.5f, 2.5f});
  save(folder, "row.npy", {1, 4}, {0, hide, 0, hide});
  CHECK(attention_out(folder, "--mask row.npy") == std::vector<float>{2, 2});
  save(folder, "full.npy", {1, 1, 2, 4}, {0, hide, hide, 0, hide, hide, 0, 0});
  CHECK(attention_out(folder, "--mask full.npy") == std::vector<float>{2.5f, 3.5f});
  save(folder, "column.npy", {2, 1}, {0, hide});
  const std::vector<float> out = attention_out(folder, "--mask column.npy");
  CHECK(out[0] == 2.5f);
  CHECK(out[1] != out[1]); // NaN
  CHECK(attention_out(folder, "--mask column.npy --fully-masked zero") == std::vector<float>{2.5f, 0});

  save(folder, "bad.npy", {1, 3}, {0, 0, 0});
  check_refused(folder, kFiles + "--mask bad.npy", "cannot be broadcast to 1x1x2x4");
  save(folder, "flat.npy", {4}, {0, 0, 0, 0});
  check_refused(folder, kFiles + "--mask flat.npy", "has 1 dimension; 2 to 4 are allowed");
}

TEST_CASE("causal, window, lengths and sinks") {
  const TemporaryFolder folder;
  save_counting(folder, 3, 5, 1); // values 1 to 5
  CHECK(attention_out(folder, "--causal") == std::vector<float>{1, 1.5f, 2});
  CHECK(attention_out(folder, "--causal --q-offset 2") == std::vector<float>{2, 2.5f, 3});
  CHECK(attention_out(folder, "--kv-len 3") == std::vector<float>{2, 2, 2});
  save_counting(folder, 1, 6, 0); // values 0 to 5
  CHECK(attention_out(folder, "--causal --q-offset 5 --window 3") == std::vector<float>{4});
  CHECK(attention_out(folder, "--causal --q-offset 5 --window 1") == std::vector<float>{5});
  save(folder, "v.npy", {6, 1}, {1, 1, 1, 1, 1, 1});
  save(folder, "sinks.npy", {1}, {0});
  CHECK(attention_out(folder, "--kv-len 3 --sinks sinks.npy") == std::vector<float>{0.75f}); // 3 of 4 equal shares

  // One number per sequence.
  save(folder, "q.npy", {2, 1, 1, 1}, {0, 0});
  save(folder, "k.npy", {2, 1, 3, 1}, {0, 0, 0, 0, 0, 0});
  save(folder, "v.npy", {2, 1, 3, 1}, {1, 2, 3, 4, 5, 6});
  CHECK(attention_out(folder, "--kv-len 1,3") == std::vector<float>{1, 5});
  CHECK(attention_out(folder, "--causal --q-offset 1,0") == std::vector<float>{1.5f, 4});
  check_refused(folder, kFiles + "--kv-len 1,2,3", "allowed are 1, or one per sequence: 2");
  check_refused(folder, kFiles + "--kv-len 4", "kv_len");
  check_refused(folder, kFiles + "--q-offset -1", "--q-offset: '-1' is not an integer of at least 0");
  check_refused(folder, kFiles + "--sinks q.npy", "has 4 dimensions; 1 is allowed");
}

TEST_CASE("attention refuses what does not fit and writes nothing") {
  const TemporaryFolder folder;
  save_one_key(folder);
  const std::string out = " --out o.npy";
  check_refused(folder, "attention --q none.npy --k k.npy --v v.npy" + out, "none.npy: cannot be opened");
  check_refused(folder, kFiles + "--scale 1/8" + out, "--scale: '1/8'");
  check_refused(folder, kFiles + "--scale 1e99" + out, "--scale: '1e99'");
  for (const char *text : {"0x1", "0x3e00000", "0x3e0000000", "-0x3e000000", "0x3e00000g", "0x", "0x+3e00000",
                           "infinity", "NaN", "nan(1)", "1.0f", "' 1'", "1,2", "-nan", "."}) {
    check_refused(folder, kFiles + "--scale " + text + out, "--scale: '");
  }
  check_refused(folder, kFiles + "--threads 0" + out, "1 to 4096");
  check_refused(folder, kFiles + "--lanes mmx" + out, "there is no lane kind 'mmx'");
  check_refused(folder, kFiles + "--lanes sse2 --flavour fast" + out, "");
  check_refused(folder, kFiles + "--fully-masked no" + out, "neither nan nor zero");
  check_refused(folder, kFiles + "--out no/such/folder/o.npy", "cannot be written");

  write_file(folder / "bad.npy", npy_file(1, padded(1, npy_dict(">f4", "False", "(1, 1, 1, 1)"), 64), "0123"));
  check_refused(folder, "attention --q q.npy --k bad.npy --v v.npy" + out, "bad.npy: its dtype is '>f4'");
  save(folder, "bad.npy", {1, 1, 1}, {3});
  check_refused(folder, "attention --q q.npy --k bad.npy --v v.npy" + out, "as many dimensions as q");
  check_refused(folder, "attention --q q.npy --k k.npy --v bad.npy" + out, "as many dimensions as k");
  save(folder, "bad.npy", {1, 1, 1, 2}, {3, 3});
  check_refused(folder, "attention --q q.npy --k bad.npy --v v.npy" + out, "its last size must be q's, 1");
  save(folder, "bad.npy", {1, 1, 2, 2}, {3, 3, 3, 3});
  check_refused(folder, "attention --q q.npy --k k.npy --v bad.npy" + out, "all sizes but the last must be k's");
  save(folder, "bad.npy", {2, 1, 1, 1}, {3, 3});
  check_refused(folder, "attention --q q.npy --k bad.npy --v bad.npy" + out, "its batch size must be q's, 1");
  save(folder, "bad.npy", {1, 3, 1, 1}, {3, 3, 3});
  check_refused(folder, "attention --q q.npy --k bad.npy --v bad.npy" + out, "a multiple of k's 3");
  save(folder, "bad.npy", {5}, {1, 2, 3, 4, 5});
  check_refused(folder, "attention --q bad.npy --k k.npy --v v.npy" + out, "has 1 dimension; 2 to 4 are allowed");
  save(folder, "bad.npy", {1, 2, 2, 0}, {});
  save(folder, "none.npy", {1, 1, 1, 0}, {});
  check_refused(folder, "attention --q bad.npy --k none.npy --v v.npy" + out, "head_dim");
  CHECK_FALSE(std::filesystem::exists(folder / "o.npy"));
}

TEST_CASE("scale: numbers, infinities, NaN, bits") {
  const TemporaryFolder folder;
  save_one_key(folder); // the score is 6 * scale, and so is the log-sum-exp of one key
  const auto lse_of = [&](const std::string &scale) {
    attention_out(folder, "--lse-out l.npy --scale " + scale);
    return load(folder, "l.npy")[0];
  };
  CHECK(lse_of("0x3E000000") == 0.75f); // 1/8
  CHECK(lse_of("0xbe000000") == -0.75f);
  CHECK(lse_of("0x1p-3") == 0.75f);
  CHECK(lse_of(".5") == 3);
  CHECK(lse_of("-2") == -12);
  CHECK(lse_of("0") == 0);
  CHECK(std::isnan(lse_of("inf")));
  CHECK(lse_of("-inf") == -kInf);
  CHECK(std::isnan(lse_of("nan")));
  CHECK(std::isnan(lse_of("0x7f800000")));
  CHECK(std::isnan(lse_of("0x7FC00000")));
  const auto bits_of = [&](const std::string &scale) -> std::string {
    return nlohmann::json::parse(run(folder, kFiles + "--json --scale " + scale).out)["scale_bits"];
  };
  CHECK(bits_of("0x00000001") == "00000001");
  CHECK(bits_of("0x80000000") == "80000000");
  CHECK(bits_of("-inf") == "ff800000");
  CHECK(bits_of("+inf") == "7f800000");
  CHECK(bits_of("nan") == "7fc00000");
}

TEST_CASE("two different weights") {
  const TemporaryFolder folder;
  save(folder, "q.npy", {1, 2}, {0.69314718f, 1.09861229f}); // ln 2, ln 3
  save(folder, "k.npy", {3, 2}, {1, 0, 0, 1, 1, 1});
  save(folder, "v.npy", {3, 1}, {1, 2, 3});
  for (const char *flavour : {"exact", "fast"}) {
    const std::vector<float> out =
        attention_out(folder, std::string("--scale 1 --lse-out l.npy --flavour ") + flavour); // weights 2, 3, 6
    CHECK(out[0] == doctest::Approx(26.0 / 11).epsilon(1e-6));
    CHECK(load(folder, "l.npy")[0] == doctest::Approx(std::log(11.0)).epsilon(1e-6));
  }
}

TEST_CASE("softcap") {
  const TemporaryFolder folder;
  save_one_key(folder); // the score is 6
  const auto lse_of = [&](const std::string &options) {
    attention_out(folder, "--lse-out l.npy --scale 1 " + options);
    return load(folder, "l.npy")[0];
  };
  CHECK(lse_of("--softcap 2") == doctest::Approx(2 * std::tanh(3.0)).epsilon(1e-6));
  CHECK(lse_of("--softcap 0x41200000") == doctest::Approx(10 * std::tanh(0.6)).epsilon(1e-6));
  check_refused(folder, kFiles + "--out no.npy --softcap 1e-46", "'1e-46' is closer to 0 than any float32 but 0");
  check_refused(folder, kFiles + "--out no.npy --scale 0x1p-151", "'0x1p-151' is closer to 0 than any float32 but 0");
  for (const char *softcap : {"-1", "inf", "nan", "-0", "0"}) {
    check_refused(folder, kFiles + "--out no.npy --softcap " + softcap, "softcap");
  }
  check_refused(folder, kFiles + "--out no.npy --softcap x", "--softcap: 'x' is not a float32");
  CHECK_FALSE(std::filesystem::exists(folder / "no.npy"));
}

TEST_CASE("heads share keys and values by their shape") {
  const TemporaryFolder folder;
  save(folder, "k.npy", {1, 2, 1, 1}, {0, 0});
  save(folder, "v.npy", {1, 2, 1, 1}, {10, 20});
  save(folder, "q.npy", {1, 4, 1, 1}, {0, 0, 0, 0});
  CHECK(attention_out(folder, "--scale 1") == std::vector<float>{10, 10, 20, 20});
  save(folder, "q.npy", {1, 6, 1, 1}, {0, 0, 0, 0, 0, 0});
  CHECK(attention_out(folder, "--scale 1") == std::vector<float>{10, 10, 10, 20, 20, 20});
  save(folder, "q.npy", {1, 5, 1, 1}, {0, 0, 0, 0, 0});
  check_refused(folder, kFiles + "--out five.npy", "q has 5 heads, which must be a multiple of k's 2");
  CHECK_FALSE(std::filesystem::exists(folder / "five.npy"));
}

TEST_CASE("16-bit queries, keys and values") {
  const TemporaryFolder folder;
  save_one_key(folder);                             // 2, 3, (0.5, -1.25)
  const std::string q = std::string("\x00\x40", 2); // bfloat16 2; as binary16 it is 2 as well
  save_bytes(folder, "q16.npy", "<u2", "(1, 2, 2, 1)", q + q + q + q);
  save_bytes(folder, "qf16.npy", "<f2", "(1, 2, 2, 1)", q + q + q + q);
  save_bytes(folder, "k16.npy", "<V2", "(1, 1, 1, 1)", "\x40\x40");                  // bfloat16 3
  save_bytes(folder, "kf16.npy", "<f2", "(1, 1, 1, 1)", std::string("\x00\x42", 2)); // binary16 3
  save_bytes(folder, "v16.npy", "|V2", "(1, 1, 1, 2)", std::string("\x00\x3f\xa0\xbf", 4));
  save_bytes(folder, "vf16.npy", "<f2", "(1, 1, 1, 2)", std::string("\x00\x38\x00\xbd", 4));
  for (const char *files :
       {"--q q16.npy --k k16.npy --v v16.npy --bf16 q,k,v", "--q qf16.npy --k kf16.npy --v vf16.npy",
        "--q q.npy --k kf16.npy --v v16.npy --bf16 v", "--q q16.npy --k k.npy --v v.npy --bf16 q"}) {
    CAPTURE(files);
    const Output output = run(folder, std::string("attention --scale 0.5 --lse-out l.npy ") + files);
    CAPTURE(output.err);
    CHECK(output.exit_code == 0);
    CHECK(contains(output.out, "sha256 " + kOneKeyHash + " 1x2x2x2\n"));
    CHECK(load(folder, "l.npy") == std::vector<float>{3, 3, 3, 3});
  }
  const std::string out = " --out o.npy";
  check_refused(
      folder, "attention --q q16.npy --k k.npy --v v.npy" + out,
      "q16.npy: its dtype is '<u2' (uint16); '<f4' (little-endian float32), '<f2' (little-endian float16) are "
      "read; bfloat16 needs --bf16 q");
  check_refused(folder, kFiles + "--bf16 k" + out, "k.npy: its dtype is '<f4' (float32)");
  check_refused(folder, kFiles + "--bf16 k" + out, "--bf16 names k");
  check_refused(folder, kFiles + "--bf16 q,w" + out, "--bf16: 'w' is none of q, k, v");
  check_refused(folder, kFiles + "--bf16 q,,k" + out, "--bf16: '' is none of q, k, v");
  CHECK_FALSE(std::filesystem::exists(folder / "o.npy"));
}

TEST_CASE("boolean masks") {
  const TemporaryFolder folder;
  save_counting(folder, 3, 5, 1); // values 1 to 5
  save_bytes(folder, "m.npy", "|b1", "(3, 5)", std::string("\1\1\0\0\0\0\0\0\0\1\0\0\0\0\0", 15));
  CHECK(attention_out(folder, "--lse-out l.npy --mask-bool m.npy") == std::vector<float>{1.5f, 5, 0});
  CHECK(load(folder, "l.npy")[1] == 0);
  CHECK(load(folder, "l.npy")[2] == -kInf);
  save_bytes(folder, "u.npy", "|u1", "(1, 5)", std::string("\x00\x02\x00\xff\x00", 5)); // anything but 0 shows
  CHECK(attention_out(folder, "--mask-bool u.npy") == std::vector<float>{3, 3, 3});
  save_bytes(folder, "f.npy", "|u1", "(1, 1, 3, 1)", std::string("\1\0\1", 3));
  CHECK(attention_out(folder, "--mask-bool f.npy") == std::vector<float>{3, 0, 3});
  // What is hidden may hold anything, in the values as well as in the additive mask.
  save(folder, "v.npy", {5, 1}, {1, 2, kNan, kInf, 5});
  save(folder, "a.npy", {1, 5}, {0, 0, kNan, kInf, 0});
  CHECK(attention_out(folder, "--mask-bool m.npy --mask a.npy") == std::vector<float>{1.5f, 5, 0});
  CHECK(attention_out(folder, "--mask-bool m.npy --causal") == std::vector<float>{1, 0, 0});

  const std::string out = "--out no.npy ";
  check_refused(folder, kFiles + out + "--mask-bool a.npy",
                "a.npy: its dtype is '<f4' (float32); '|b1' (bool), '|u1' (uint8) are read");
  check_refused(folder, kFiles + out + "--mask m.npy", "one that hides keys is given by --mask-bool");
  save_bytes(folder, "bad.npy", "|b1", "(1, 5)", "\1\1\1\2\1");
  check_refused(folder, kFiles + out + "--mask-bool bad.npy", "bad.npy: element 3 is 2; a bool must be 0 or 1");
  save_bytes(folder, "bad.npy", "|b1", "(1, 4)", "\1\1\1\1");
  check_refused(folder, kFiles + out + "--mask-bool bad.npy", "cannot be broadcast to 1x1x3x5");
  save_bytes(folder, "bad.npy", "|b1", "(5,)", "\1\1\1\1\1");
  check_refused(folder, kFiles + out + "--mask-bool bad.npy", "has 1 dimension; 2 to 4 are allowed");
  CHECK_FALSE(std::filesystem::exists(folder / "no.npy"));
}

TEST_CASE("ALiBi slopes and sinks, from lists and files") {
  const TemporaryFolder folder;
  // Two heads, one query at position 1, two keys with the values 0 and 3.
  save(folder, "q.npy", {2, 1, 1}, {0, 0});
  save(folder, "k.npy", {1, 2, 1}, {0, 0});
  save(folder, "v.npy", {1, 2, 1}, {0, 3});
  save(folder, "slopes.npy", {2}, {0.69314718f, 0}); // ln 2: the far key weighs half
  for (const char *slopes : {"slopes.npy", "0.69314718,0", "./slopes.npy"}) {
    const std::vector<float> out =
        attention_out(folder, std::string("--causal --q-offset 1 --lse-out l.npy --alibi ") + slopes);
    CHECK(out[0] == doctest::Approx(2).epsilon(1e-6));
    CHECK(out[1] == 1.5f);
    CHECK(load(folder, "l.npy")[0] == doctest::Approx(std::log(1.5)).epsilon(1e-6));
    CHECK(load(folder, "l.npy")[1] == doctest::Approx(std::log(2.0)).epsilon(1e-6));
  }
  save(folder, "sinks.npy", {2}, {0, -kInf});
  for (const char *sinks : {"sinks.npy", "0,-inf", "0x00000000,0xff800000"}) {
    CHECK(attention_out(folder, std::string("--sinks ") + sinks) == std::vector<float>{1, 1.5f}); // 3/3, 3/2
  }
  const std::string out = "--out no.npy ";
  check_refused(folder, kFiles + out + "--alibi 1", "--alibi: 1 number is given; one per head is needed: 2");
  check_refused(folder, kFiles + out + "--alibi 1,x", "--alibi: 'x' is not a float32");
  check_refused(folder, kFiles + out + "--alibi 1,", "--alibi: '' is not a float32");
  check_refused(folder, kFiles + out + "--sinks 1,2,3", "--sinks: 3 numbers are given; one per head is needed: 2");
  check_refused(folder, kFiles + out + "--sinks absent", "absent: cannot be opened");
  save(folder, "bad.npy", {3}, {1, 2, 3});
  check_refused(folder, kFiles + out + "--alibi bad.npy", "its shape is 3; one number per head is needed: 2");
  save_bytes(folder, "bad.npy", "<i4", "(2,)", integer_bytes({1, 2}, 4));
  check_refused(folder, kFiles + out + "--alibi bad.npy", "its dtype is '<i4' (int32); only '<f4'");
  CHECK_FALSE(std::filesystem::exists(folder / "no.npy"));
}

TEST_CASE("positions and lengths from files") {
  const TemporaryFolder folder;
  save(folder, "q.npy", {2, 1, 1, 1}, {0, 0});
  save(folder, "k.npy", {2, 1, 3, 1}, {0, 0, 0, 0, 0, 0});
  save(folder, "v.npy", {2, 1, 3, 1}, {1, 2, 3, 4, 5, 6});
  save_bytes(folder, "two.npy", "<i8", "(2,)", integer_bytes({1, 3}, 8));
  save_bytes(folder, "one.npy", "<i4", "(1,)", integer_bytes({1}, 4));
  save_bytes(folder, "scalar.npy", "<i4", "()", integer_bytes({2}, 4));
  CHECK(attention_out(folder, "--kv-len two.npy") == std::vector<float>{1, 5});
  CHECK(attention_out(folder, "--kv-len one.npy") == std::vector<float>{1, 4});
  CHECK(attention_out(folder, "--kv-len scalar.npy") == std::vector<float>{1.5f, 4.5f});
  CHECK(attention_out(folder, "--causal --q-offset one.npy") == std::vector<float>{1.5f, 4.5f});
  const std::string out = "--out no.npy ";
  save_bytes(folder, "bad.npy", "<i4", "(2,)", integer_bytes({1, -2}, 4));
  check_refused(folder, kFiles + out + "--kv-len bad.npy", "bad.npy: element 1 is -2; --kv-len must be 0 or more");
  save_bytes(folder, "bad.npy", "<i4", "(3,)", integer_bytes({1, 1, 1}, 4));
  check_refused(folder, kFiles + out + "--kv-len bad.npy",
                "--kv-len: 3 numbers are given; allowed are 1, or one per sequence: 2");
  save_bytes(folder, "bad.npy", "<i4", "(0,)", "");
  check_refused(folder, kFiles + out + "--q-offset bad.npy", "--q-offset: 0 numbers are given");
  save_bytes(folder, "bad.npy", "<i4", "(2, 1)", integer_bytes({1, 1}, 4));
  check_refused(folder, kFiles + out + "--q-offset bad.npy", "has 2 dimensions; 0 to 1 are allowed");
  check_refused(folder, kFiles + out + "--q-offset v.npy",
                "'<f4' (float32); '<i4' (little-endian int32), '<i8' (little-endian int64) are read");
  check_refused(folder, kFiles + out + "--kv-len 1,x", "--kv-len: 'x' is not an integer of at least 0");
  CHECK_FALSE(std::filesystem::exists(folder / "no.npy"));
}

TEST_CASE("ragged batches") {
  const TemporaryFolder folder;
  save_counting(folder, 3, 5, 1); // values 1 to 5
  CHECK(attention_out(folder, "--q-starts 0,1,3 --kv-starts 0,2,5") == std::vector<float>{1.5f, 4, 4});
  CHECK(attention_out(folder, "--q-starts 0,1,3 --kv-starts 0,2,5 --causal") == std::vector<float>{1, 3, 3.5f});
  CHECK(attention_out(folder, "--q-starts 0,1,3 --kv-starts 0,2,5 --causal --q-offset 1,0") ==
        std::vector<float>{1.5f, 3, 3.5f});
  CHECK(attention_out(folder, "--q-starts 0,1,3 --kv-starts 0,2,5 --kv-len 1,2") == std::vector<float>{1, 3.5f, 3.5f});
  save_bytes(folder, "starts.npy", "<i4", "(3,)", integer_bytes({0, 2, 3}, 4));
  CHECK(attention_out(folder, "--q-starts starts.npy --kv-starts 0,0,5") == std::vector<float>{0, 0, 3}); // no keys
  // Rows of no sequence are 0, in the log-sum-exp as well.
  CHECK(attention_out(folder, "--q-starts 1,2 --kv-starts 3,5 --lse-out l.npy") == std::vector<float>{0, 4.5f, 0});
  const std::vector<float> lse = load(folder, "l.npy");
  CHECK(lse[0] == 0);
  CHECK(lse[1] == doctest::Approx(std::log(2.0)).epsilon(1e-6));
  CHECK(lse[2] == 0);
  // A mask has a column for each key of the longest sequence.
  save_bytes(folder, "m.npy", "|b1", "(3, 3)", std::string("\0\1\0\1\1\0\0\0\1", 9));
  CHECK(attention_out(folder, "--q-starts 0,1,3 --kv-starts 0,2,5 --mask-bool m.npy") ==
        std::vector<float>{2, 3.5f, 5});

  // Ragged queries alone: keys and values have a batch. Ragged keys alone: queries have one.
  save(folder, "k.npy", {2, 1, 2, 1}, {0, 0, 0, 0});
  save(folder, "v.npy", {2, 1, 2, 1}, {1, 2, 3, 5});
  CHECK(attention_out(folder, "--q-starts 0,1,3") == std::vector<float>{1.5f, 4, 4});
  save_counting(folder, 3, 5, 1);
  save(folder, "q.npy", {2, 1, 1, 1}, {0, 0});
  CHECK(attention_out(folder, "--kv-starts 0,2,5") == std::vector<float>{1.5f, 4});
  CHECK(program::read_npy((folder / "o.npy").string()).shape == std::vector<std::int64_t>{2, 1, 1, 1});

  const std::string out = "--out no.npy ";
  check_refused(folder, kFiles + out + "--q-starts 0,1", "q.npy: its shape is 2x1x1x1; its batch size must be 1");
  save_counting(folder, 3, 5, 1);
  check_refused(folder, kFiles + out + "--q-starts 0,1,3 --kv-starts 0,5",
                "--kv-starts: 2 numbers are given; needed are 3");
  check_refused(folder, kFiles + out + "--q-starts 0,1,3", "its batch size must be that of --q-starts, 2");
  check_refused(folder, kFiles + out + "--q-starts 0,2,1 --kv-starts 0,2,5", "q_starts");
  check_refused(folder, kFiles + out + "--q-starts 0,1,4 --kv-starts 0,2,5", "q_starts");
  check_refused(folder, kFiles + out + "--q-starts 0,1,3 --kv-starts 0,2,6", "kv_starts");
  check_refused(folder, kFiles + out + "--q-starts 0,-1", "--q-starts: '-1' is not an integer of at least 0");
  check_refused(folder, kFiles + out + "--q-starts 0,1,3 --kv-starts 0,2,5 --kv-len 3,3", "kv_lens[0]");
  save_bytes(folder, "none.npy", "<i4", "(0,)", "");
  check_refused(folder, kFiles + out + "--q-starts none.npy", "--q-starts: 0 numbers are given; needed are the start");
  save(folder, "k.npy", {2, 1, 1, 1}, {0, 0});
  save(folder, "v.npy", {2, 1, 1, 1}, {0, 0});
  save(folder, "q.npy", {2, 1, 1, 1}, {0, 0});
  check_refused(folder, kFiles + out + "--kv-starts 0,1,2", "k.npy: its shape is 2x1x1x1; its batch size must be 1");
  CHECK_FALSE(std::filesystem::exists(folder / "no.npy"));
}

TEST_CASE("pages") {
  const TemporaryFolder folder;
  // Two sequences, pages of two keys: (1, 2), (3, 4), (5, unused) and (10, 20); page 2 is of nobody.
  save(folder, "q.npy", {2, 1, 1, 1}, {0, 0});
  save(folder, "k.npy", {5, 1, 2, 1}, {0, kNan, 0, 0, kNan, kNan, 0, 0, 0, 0});
  save(folder, "v.npy", {5, 1, 2, 1}, {5, kNan, 1, 2, kNan, kNan, 3, 4, 10, 20});
  const std::string table = integer_bytes({1, 3, 0, 4, -1, 99}, 4);
  save_bytes(folder, "table.npy", "<i4", "(2, 3)", table);
  const std::string pages = "--page-table table.npy ";
  CHECK(attention_out(folder, pages + "--kv-len 5,2") == std::vector<float>{3, 15});
  CHECK(attention_out(folder, pages + "--kv-len 5,2 --page-size 2") == std::vector<float>{3, 15});
  CHECK(attention_out(folder, pages + "--kv-len 4,1 --causal --q-offset 2,0") == std::vector<float>{2, 10});
  save_bytes(folder, "fortran.npy", "<i8", "(2, 3)", integer_bytes({1, 3, 0, 4, -1, 99}, 8));
  write_file(folder / "fortran.npy",
             npy_file(1, padded(1, npy_dict("<i8", "True", "(2, 3)"), 64), integer_bytes({1, 4, 3, -1, 0, 99}, 8)));
  CHECK(attention_out(folder, "--page-table fortran.npy --kv-len 5,2") == std::vector<float>{3, 15});
  // As many keys as the table has room for: (1, 2, 3, 4) and (10, 20, 1, 2).
  save_bytes(folder, "table.npy", "<i4", "(2, 2)", integer_bytes({1, 3, 4, 1}, 4));
  CHECK(attention_out(folder, pages) == std::vector<float>{2.5f, 8.25f});
  save_bytes(folder, "mask.npy", "|b1", "(1, 4)", std::string("\1\0\0\1", 4));
  CHECK(attention_out(folder, pages + "--mask-bool mask.npy") == std::vector<float>{2.5f, 6});
  // Ragged queries, and a table of one sequence in one dimension.
  save(folder, "q.npy", {3, 1}, {0, 0, 0});
  CHECK(attention_out(folder, pages + "--q-starts 0,1,3") == std::vector<float>{2.5f, 8.25f, 8.25f});
  save_bytes(folder, "row.npy", "<i4", "(2,)", integer_bytes({4, 1}, 4));
  CHECK(attention_out(folder, "--page-table row.npy") == std::vector<float>{8.25f, 8.25f, 8.25f});

  const std::string out = "--out no.npy ";
  const std::string row = out + "--page-table row.npy ";
  check_refused(folder, kFiles + row + "--page-size 3", "k.npy: its shape is 5x1x2x1; its third size must be that of");
  check_refused(folder, kFiles + row + "--page-size 0", "--page-size: '0' is not an integer of at least 1");
  check_refused(folder, kFiles + out + "--page-size 2", "--page-size needs --page-table");
  check_refused(folder, kFiles + row + "--kv-starts 0,2", "--page-table and --kv-starts exclude each other");
  check_refused(folder, kFiles + row + "--kv-len 5", "page_table_stride");
  check_refused(folder, kFiles + out + pages, "one row per sequence is needed: 1");
  save_bytes(folder, "bad.npy", "<i4", "(2,)", integer_bytes({4, 5}, 4));
  check_refused(folder, kFiles + out + "--page-table bad.npy", "page_table");
  save_bytes(folder, "bad.npy", "<i4", "(2,)", integer_bytes({4, -1}, 4));
  check_refused(folder, kFiles + out + "--page-table bad.npy", "page_table");
  save_bytes(folder, "bad.npy", "<i8", "(2,)", integer_bytes({4, std::int64_t{1} << 32}, 8));
  check_refused(folder, kFiles + out + "--page-table bad.npy", "holds 4294967296, which does not fit in 32 bits");
  check_refused(folder, kFiles + out + "--page-table v.npy", "its dtype is '<f4' (float32)");
  save(folder, "k.npy", {2, 1}, {0, 0});
  check_refused(folder, kFiles + row, "k.npy: has 2 dimensions; 4 are allowed");
  CHECK_FALSE(std::filesystem::exists(folder / "no.npy"));
}

namespace {

// The state of one query whose scores are 0, after `keys` keys with the value 1 (definition, section 14).
std::string state_bytes(std::int64_t keys) {
  return "exattn-1" + integer_bytes({0, 0}, 4) + integer_bytes({1, 1, 1, 1, keys, 0, keys}, 8) +
         little_endian({0, static_cast<float>(keys)}) + integer_bytes({1}, 4) +
         little_endian({static_cast<float>(keys)});
}

} // namespace

TEST_CASE("states") {
  const TemporaryFolder folder;
  save_counting(folder, 1, 64, 0);
  save(folder, "v.npy", {64, 1}, std::vector<float>(64, 1));
  const Output stop = run(folder, kFiles + "--state-out s.bin --lse-out l.npy");
  CAPTURE(stop.err);
  REQUIRE(stop.exit_code == 0);
  CHECK(read_file(folder / "s.bin") == state_bytes(64));
  CHECK(contains(stop.out, "\nsha256-lse "));
  CHECK(contains(stop.out, "\nsha256-state " + sha256_of(state_bytes(64)) + " 88\n"));
  const nlohmann::json json = nlohmann::json::parse(run(folder, kFiles + "--state-out s.bin --json").out);
  CHECK(json["state"]["sha256"] == sha256_of(state_bytes(64)));
  CHECK(json["state"]["shape"] == nlohmann::json::array({88}));

  // Another 64 values of 1, then 2 of 66: (128 + 132) / 130 = 2.
  CHECK(attention_out(folder, "--state-in s.bin --kv-offset 64 --state-out t.bin") == std::vector<float>{1});
  CHECK(read_file(folder / "t.bin") == state_bytes(128));
  save_counting(folder, 1, 2, 0);
  save(folder, "v.npy", {2, 1}, {66, 66});
  CHECK(attention_out(folder, "--state-in t.bin --kv-offset 128") == std::vector<float>{2});
  // Sinks count where a row starts.
  CHECK(attention_out(folder, "--state-in t.bin --kv-offset 128 --sinks 3") == std::vector<float>{2});
  // Without a state, an offset is a matter of positions: the query at 129 sees both keys, at 128 one.
  save(folder, "v.npy", {2, 1}, {1, 2});
  CHECK(attention_out(folder, "--kv-offset 128 --causal --q-offset 129") == std::vector<float>{1.5f});
  CHECK(attention_out(folder, "--kv-offset 128 --causal --q-offset 128") == std::vector<float>{1});

  const std::string out = "--out no.npy --state-out no.bin ";
  check_refused(folder, kFiles + out + "--kv-offset 63", "kv_offset");
  check_refused(folder, kFiles + out + "--kv-offset -64", "--kv-offset: '-64' is not an integer of at least 0");
  check_refused(folder, kFiles + out + "--state-in s.bin --kv-offset 128", "state_in");
  check_refused(folder, kFiles + out + "--state-in s.bin --kv-offset 64 --flavour fast", "state_in");
  check_refused(folder, kFiles + out + "--state-in absent.bin --kv-offset 64", "absent.bin: cannot be opened");
  write_file(folder / "cut.bin", state_bytes(64).substr(0, 87));
  check_refused(folder, kFiles + out + "--state-in cut.bin --kv-offset 64", "state_in");
  write_file(folder / "other.bin", "x" + state_bytes(64).substr(1));
  check_refused(folder, kFiles + out + "--state-in other.bin --kv-offset 64", "state_in");
  CHECK_FALSE(std::filesystem::exists(folder / "no.npy"));
  CHECK_FALSE(std::filesystem::exists(folder / "no.bin"));
  CHECK(read_file(folder / "s.bin") == state_bytes(64));
}

TEST_CASE("an output is no other file of the call") {
  const TemporaryFolder folder;
  save_one_key(folder);
  const std::string q = read_file(folder / "q.npy");
  const std::string twice = "o.npy: is named for two outputs; each needs a file of its own";
  check_refused(folder, kFiles + "--out o.npy --lse-out o.npy", twice);
  check_refused(folder, kFiles + "--out ./o.npy --state-out o.npy", twice);
  check_refused(folder, kFiles + "--lse-out o.npy --state-out o.npy", twice);
  CHECK_FALSE(std::filesystem::exists(folder / "o.npy"));
  check_refused(folder, kFiles + "--out q.npy", "--out: q.npy is an input, of --q; an output needs a file of its own");
  check_refused(folder, kFiles + "--lse-out ./k.npy", "--lse-out: ./k.npy is an input, of --k");
  check_refused(folder, kFiles + "--state-out v.npy", "--state-out: v.npy is an input, of --v");
  save(folder, "m.npy", {1, 1}, {0});
  check_refused(folder, kFiles + "--mask m.npy --out m.npy", "is an input, of --mask");
  save_bytes(folder, "b.npy", "|b1", "(1, 1)", "\1");
  check_refused(folder, kFiles + "--mask-bool b.npy --out b.npy", "is an input, of --mask-bool");
  save(folder, "h.npy", {2}, {0, 0});
  check_refused(folder, kFiles + "--sinks h.npy --out h.npy", "is an input, of --sinks");
  check_refused(folder, kFiles + "--alibi h.npy --out h.npy", "is an input, of --alibi");
  save_bytes(folder, "i.npy", "<i4", "(1,)", integer_bytes({1}, 4));
  check_refused(folder, kFiles + "--kv-len i.npy --out i.npy", "is an input, of --kv-len");
  check_refused(folder, kFiles + "--q-offset i.npy --out i.npy", "is an input, of --q-offset");
  std::filesystem::create_symlink("q.npy", folder / "link.npy");
  check_refused(folder, kFiles + "--out link.npy", "--out: link.npy is an input, of --q");
  write_file(folder / "s.bin", "state");
  check_refused(folder, kFiles + "--state-in s.bin --state-out s.bin", "--state-out: s.bin is an input, of --state-in");
  save(folder, "x.npy", {2, 2}, {3, 3, 3, 3});
  check_refused(folder, "softmax --x x.npy --out x.npy", "--out: x.npy is an input, of --x");
  check_refused(folder, "conformance --json r.json --junit r.json", "r.json: is named for two outputs");
  CHECK(read_file(folder / "q.npy") == q);
  CHECK(run(folder, kFiles + "--out /dev/null --lse-out /dev/null").exit_code == 0);
}

TEST_CASE("no queries and no keys") {
  const TemporaryFolder folder;
  save(folder, "q.npy", {0, 2}, {});
  save(folder, "k.npy", {3, 2}, std::vector<float>(6, 1));
  save(folder, "v.npy", {3, 1}, {1, 2, 3});
  CHECK(run(folder, kFiles).out ==
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0x1\n"); // of no bytes
  save(folder, "q.npy", {1, 2}, {1, 1});
  save(folder, "k.npy", {0, 2}, {});
  save(folder, "v.npy", {0, 1}, {});
  CHECK(attention_out(folder, "--lse-out l.npy") == std::vector<float>{0});
  CHECK(load(folder, "l.npy") == std::vector<float>{-std::numeric_limits<float>::infinity()});
}

TEST_CASE("softmax") {
  const TemporaryFolder folder;
  save(folder, "x.npy", {2, 2}, {3, 3, 3, 3});
  for (const char *options : {"", "--flavour fast", "--lanes scalar", "--threads 2"}) {
    const Output output = run(folder, std::string("softmax --x x.npy --out y.npy ") + options);
    CHECK(output.exit_code == 0);
    // SHA-256 of four times 0.5, computed outside of this project.
    CHECK(output.out == "sha256 1dc5c8e021c663cd8f7ecf1fb0c6d4112bc8d7f3c9e0095cd26bd7af7b8d7f13 2x2\n");
    CHECK(load(folder, "y.npy") == std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f});
  }
  const nlohmann::json json = nlohmann::json::parse(run(folder, "softmax --x x.npy --json --lanes scalar").out);
  CHECK(json["kernel"] == "scalar/exact");
  constexpr auto kOwnerOnly = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  std::filesystem::permissions(folder / "y.npy", kOwnerOnly);
  CHECK(run(folder, "softmax --x x.npy --out y.npy").exit_code == 0);
  CHECK(std::filesystem::status(folder / "y.npy").permissions() == kOwnerOnly);
  save(folder, "x.npy", {1, 1, 1, 1, 1}, {3});
  check_refused(folder, "softmax --x x.npy", "has 5 dimensions; 1 to 4 are allowed");
  write_file(folder / "x.npy", "text");
  check_refused(folder, "softmax --x x.npy", "is not a .npy file");
}

TEST_CASE("compare") {
  const TemporaryFolder folder;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  save(folder, "a.npy", {2, 2}, {1, 2, 3, nan});
  write_file(folder / "fortran.npy",
             npy_file(1, padded(1, npy_dict("<f4", "True", "(2, 2)"), 64), little_endian({1, 3, 2, nan})));
  const Output same = run(folder, "compare a.npy fortran.npy");
  CHECK(same.exit_code == 0);
  CHECK(same.out == "max abs difference 0\n0 of 4 elements differ in bits\n");

  save(folder, "b.npy", {2, 2}, {1, 2.25f, 2.5f, nan});
  const Output above = run(folder, "compare a.npy b.npy --max-abs 0.25");
  CHECK(above.exit_code == 1);
  CHECK(above.out == "max abs difference 0.5 at [1, 0], above 0.25\n"
                     "2 of 4 elements differ in bits, first at [0, 1]: 40000000 and 40100000\n");
  CHECK(run(folder, "compare a.npy b.npy --max-abs 0.5").exit_code == 0);
  CHECK(run(folder, "compare a.npy b.npy").exit_code == 1);
  const nlohmann::json json = nlohmann::json::parse(run(folder, "compare a.npy b.npy --json").out);
  CHECK(json["max_abs"] == 0.5);
  CHECK(json["differing"] == 2);

  save(folder, "zero.npy", {1, 2}, {0.0f, 1});
  save(folder, "minus.npy", {1, 2}, {-0.0f, 1});
  CHECK(run(folder, "compare zero.npy minus.npy").exit_code == 1);
  CHECK(run(folder, "compare zero.npy minus.npy --max-abs 0").exit_code == 0);
  save(folder, "nan.npy", {1, 2}, {nan, 1});
  const Output one_nan = run(folder, "compare zero.npy nan.npy --max-abs 1e30");
  CHECK(one_nan.exit_code == 1);
  CHECK(contains(one_nan.out, "max abs difference inf"));

  check_refused(folder, "compare a.npy zero.npy", "shapes differ");
  check_refused(folder, "compare a.npy b.npy --max-abs x", "--max-abs: 'x'");
  check_refused(folder, "compare a.npy b.npy --max-abs nan", "--max-abs: 'nan'");
  check_refused(folder, "compare a.npy b.npy --max-abs inf", "--max-abs: 'inf'");
}

namespace {

// The commands of a page: its ```sh blocks as they are, and each command of a ```console block with what it prints.
struct Page {
  std::string script;
  std::vector<std::string> commands;
  std::vector<std::string> expected;
};

const std::string kMark = "@@ next";

Page read_page(const std::string &path) {
  Page page;
  std::istringstream text(read_file(path));
  std::string line;
  std::string block;
  while (std::getline(text, line)) {
    if (line.starts_with("```")) {
      block = block.empty() ? line : "";
    } else if (block == "```sh") {
      page.script += line + "\n";
    } else if (block == "```console" && line.starts_with("$ ")) {
      page.commands.push_back(line.substr(2));
      page.expected.emplace_back();
      page.script += "echo '" + kMark + "'\n{ " + line.substr(2) + "\n} 2>&1\n";
    } else if (block == "```console") {
      page.expected.back() += line + "\n";
    }
  }
  return page;
}

std::vector<std::string> words_of(const std::string &text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// The same word, or numbers that agree to six digits.
bool agree(const std::string &word, const std::string &expected) {
  const auto number = [](const std::string &digits, double &value) {
    char *end = nullptr;
    value = std::strtod(digits.c_str(), &end);
    return digits.size() < 16 && end == digits.c_str() + digits.size();
  };
  double a = 0;
  double b = 0;
  return word == expected || (number(word, a) && number(expected, b) &&
                              (std::isnan(b) ? std::isnan(a) : std::fabs(a - b) <= 1e-6 * std::fabs(b)));
}

} // namespace

TEST_CASE("docs/attention.md has an example of each option, and all of them print what it says") {
  const TemporaryFolder folder;
  const Page page = read_page(EXATTN_SOURCE_DIR "/docs/attention.md");
  REQUIRE(page.commands.size() > 20);

  const std::string help = run(folder, "attention --help").out;
  std::size_t options = 0;
  for (const std::string &word : words_of(help)) {
    for (const std::string &option : program::split_list(word)) {
      if (option.starts_with("--") && option != "--help" && option != "--lse") { // --lse is short for --lse-out
        CAPTURE(option);
        ++options;
        CHECK(std::any_of(page.commands.begin(), page.commands.end(),
                          [&](const std::string &command) { return contains(command + " ", " " + option + " "); }));
      }
    }
  }
  CHECK(options >= 28);

  std::filesystem::create_directory(folder / "bin");
  write_file(folder / "bin" / "exattn", "#!/bin/sh\nexec " EXATTN_LAUNCHER " '" EXATTN_PROGRAM "' \"$@\"\n");
  std::filesystem::permissions(folder / "bin" / "exattn", std::filesystem::perms::owner_all);
  write_file(folder / "page.sh", "set -eu\n" + page.script);
  const std::string command = "cd '" + folder.get().string() +
                              "' && PATH=\"$PWD/bin:$PATH\" env -u EXATTN_LANES sh page.sh > .stdout 2> .stderr";
  const int status = std::system(command.c_str());
  CAPTURE(read_file(folder / ".stderr"));
  CHECK(status == 0);
  std::string printed = read_file(folder / ".stdout");
  for (std::size_t n = 0; n < page.commands.size(); ++n) {
    CAPTURE(page.commands[n]);
    const std::size_t begin = printed.find(kMark);
    REQUIRE(begin != std::string::npos);
    printed = printed.substr(begin + kMark.size() + 1);
    const std::string part = printed.substr(0, printed.find(kMark));
    CAPTURE(part);
    const std::vector<std::string> words = words_of(part);
    const std::vector<std::string> expected = words_of(page.expected[n]);
    REQUIRE(words.size() == expected.size());
    for (std::size_t w = 0; w < words.size(); ++w) {
      CHECK(agree(words[w], expected[w]));
    }
  }
  CHECK(printed.find(kMark) == std::string::npos);
}

namespace {

std::string last_line(const std::string &text) {
  const std::size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

// What keeps a text from being well-formed XML, of the parts that a plot has: elements, quoted attributes, text; or "".
std::string xml_fault(const std::string &text) {
  static const std::regex tag(R"(<(/?)([a-z]+)((?: [a-zA-Z0-9]+="[^"<&]*")*)(/?)>)");
  std::vector<std::string> open;
  std::size_t at = 0;
  bool root_ended = false;
  for (std::sregex_iterator found(text.begin(), text.end(), tag), end; found != end; ++found) {
    const std::smatch &match = *found;
    const std::string between = text.substr(at, static_cast<std::size_t>(match.position()) - at);
    if (between.find_first_of("<>&") != std::string::npos) {
      return "stray mark in: " + between;
    }
    at = static_cast<std::size_t>(match.position() + match.length());
    if (root_ended || (open.empty() && between.find_first_not_of('\n') != std::string::npos)) {
      return "outside of the root: " + match.str();
    }
    if (match[1].length() == 0 && match[4].length() == 0) {
      open.push_back(match[2]);
    } else if (match[1].length() != 0) {
      if (open.empty() || open.back() != match[2]) {
        return "ends what is not open: " + match.str();
      }
      open.pop_back();
      root_ended = open.empty();
    }
  }
  return root_ended && text.substr(at) == "\n" ? "" : "does not end with its root";
}

std::ptrdiff_t count_of(const std::string &text, const std::string &part) {
  std::ptrdiff_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

} // namespace

TEST_CASE("bench counts what is seen, and gives every row of its table all columns") {
  // 64 rows and keys; two rows at the end of 70 keys with windows of 5, which see 6 keys together.
  const TemporaryFolder folder;
  const Output output = run(folder, "bench --rounds 1 --threads 1,2 --shape 1,2,1,64,64,4,causal "
                                    "--shape 3,4,2,2,70,8,causal,5 --json b.json");
  CAPTURE(output.err);
  REQUIRE(output.exit_code == 0);
  const nlohmann::json rows = nlohmann::json::parse(read_file(folder / "b.json"));
  REQUIRE(rows.size() == 4);
  for (const std::size_t n : {0U, 2U}) {
    CHECK(rows[n]["flops"] == 4 * 2 * 4 * (64 * 65 / 2));
    CHECK(rows[n]["bytes"] == 64 * 2 * 4 * 4);
    CHECK(rows[n]["threads"] == n / 2 + 1);
    CHECK(!rows[n].contains("read_gbytes_per_second"));
    CHECK(rows[n]["exact"].contains("gflops"));
    CHECK(rows[n + 1]["flops"] == 3 * 4 * 4 * 8 * (2 * 5));
    CHECK(rows[n + 1]["bytes"] == 3 * 2 * 6 * 2 * 8 * 4);
    CHECK(rows[n + 1]["read_gbytes_per_second"] > 0);
    CHECK(rows[n + 1]["exact"].contains("gbytes_per_second"));
  }
  int lines = 0;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("|")) {
      CHECK(std::count(line.begin(), line.end(), '|') == 12);
      ++lines;
    }
  }
  CHECK(lines == 2 + 4);
}

TEST_CASE("bash completion offers what --help names") {
  const TemporaryFolder folder;
  write_file(folder / "query.npy", "");
  write_file(folder / "complete.sh", R"(source ")" EXATTN_SOURCE_DIR R"(/src/program/completion.bash"
exattn() { )" EXATTN_LAUNCHER R"( ")" EXATTN_PROGRAM R"(" "$@"; }
offers() { # WORD...: what is offered in the place of the last
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _exattn
  echo "${COMPREPLY[*]}"
}
offers exattn co
offers exattn audit ''
offers exattn audit verify --sa
offers exattn attention --flavour ''
offers exattn attention --lanes sc
offers exattn attention --causal --fully-masked z
offers exattn attention --q que
offers exattn bench m
)");
  const int status = std::system(("cd '" + folder.get().string() + "' && bash complete.sh > out 2> err").c_str());
  CAPTURE(read_file(folder / "err"));
  REQUIRE(status == 0);
  CHECK(read_file(folder / "out") == "compare conformance\nrecord verify diff\n--sample\nexact fast\nscalar\nzero\n"
                                     "query.npy\nmemory\n");
}

TEST_CASE("bench measures packed keys") {
  const TemporaryFolder folder;
  for (const char *more : {"", " --page-size 32"}) {
    const Output output = run(folder, std::string("bench --rounds 1 --lanes scalar --shape 2,2,1,1,70,4 --pack-k "
                                                  "--storage bf16 --json b.json") +
                                          more);
    CAPTURE(output.err);
    REQUIRE(output.exit_code == 0);
    const nlohmann::json rows = nlohmann::json::parse(read_file(folder / "b.json"));
    REQUIRE(rows.size() == 1);
    CHECK(rows[0]["packed"] == true);
    CHECK(rows[0]["bytes"] == 2 * 70 * 2 * 4 * 2);
  }
  const Output refused = run(folder, "bench --lanes scalar --shape 2,2,1,1,70,4 --pack-k --page-size 9");
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("multiple of 16") != std::string::npos);
}

TEST_CASE("bench measures keys and values of 16 bits and in pages") {
  const TemporaryFolder folder;
  for (const std::string storage : {"bf16", "f16"}) {
    const Output output =
        run(folder, "bench --rounds 1 --lanes scalar --shape 2,2,1,1,70,4 --shape 1,1,1,9,33,4,causal "
                    "--page-size 16 --json b.json --storage " +
                        storage);
    CAPTURE(output.err);
    REQUIRE(output.exit_code == 0);
    const nlohmann::json rows = nlohmann::json::parse(read_file(folder / "b.json"));
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["shape"] == "2,2,1,1,70,4 " + storage + " pages of 16");
    CHECK(rows[0]["storage"] == storage);
    CHECK(rows[0]["page_size"] == 16);
    CHECK(rows[0]["bytes"] == 2 * 70 * 2 * 4 * 2);
    CHECK(rows[1]["bytes"] == 33 * 2 * 4 * 2);
  }
}

TEST_CASE("bench writes what Google Benchmark's tools read: every round, with the medians that the table has") {
  const TemporaryFolder folder;
  const Output output = run(folder,
                            "bench --rounds 3 --threads 1,2 --lanes all --shape 1,2,1,20,64,8 --json b.json "
                            "--benchmark-json g.json",
                            "BENCHMARK_LIST_TESTS=true BENCHMARK_OUT=no.json");
  CAPTURE(output.err);
  REQUIRE(output.exit_code == 0);
  CHECK(!std::filesystem::exists(folder / "no.json"));
  const nlohmann::json rows = nlohmann::json::parse(read_file(folder / "b.json"));
  const nlohmann::json file = nlohmann::json::parse(read_file(folder / "g.json"));
  CHECK(file["context"]["exattn"] == exattn_version());
  CHECK(file["context"]["executable"] == "exattn");
  std::size_t runs = 0;
  for (const nlohmann::json &row : rows) {
    for (const std::string flavour : {"exact", "fast"}) {
      if (!row.contains(flavour)) {
        continue;
      }
      const std::string name = row["shape"].get<std::string>() + "/" + row["lanes"].get<std::string>() +
                               "/threads:" + std::to_string(row["threads"].get<int>()) + "/" + flavour + "/";
      CAPTURE(name);
      std::vector<double> times;
      for (const nlohmann::json &one : file["benchmarks"]) {
        if (one["name"].get<std::string>().starts_with(name)) {
          CHECK(one["run_type"] == "iteration");
          CHECK(one["time_unit"] == "ms");
          CHECK(one["repetitions"] == 3);
          CHECK(one["repetition_index"] == times.size());
          CHECK(one["flops"].get<double>() ==
                doctest::Approx(row["flops"].get<double>() / one["real_time"].get<double>() * 1e3));
          times.push_back(one["real_time"]);
        }
      }
      REQUIRE(times.size() == 3);
      std::sort(times.begin(), times.end());
      CHECK(row[flavour]["min_ms"].get<double>() == doctest::Approx(times[0]));
      CHECK(row[flavour]["median_ms"].get<double>() == doctest::Approx(times[1]));
      CHECK(row[flavour]["max_ms"].get<double>() == doctest::Approx(times[2]));
      CHECK(row[flavour]["rounds"] == 3);
      runs += 3;
    }
  }
  CHECK(file["benchmarks"].size() == runs);
}

TEST_CASE("bench draws a plot that stands by itself, with a bar for each figure of the table") {
  const TemporaryFolder folder;
  const std::string shapes = "--shape 1,2,1,20,64,8 --shape 1,2,1,1,64,8,causal,5";
  const Output output = run(folder, "bench --rounds 2 --threads 1,2 --lanes all --json b.json --svg b.svg " + shapes);
  CAPTURE(output.err);
  REQUIRE(output.exit_code == 0);
  const std::string plot = read_file(folder / "b.svg");
  CHECK(xml_fault(plot) == "");
  CHECK(plot.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(contains(plot, "prefers-color-scheme: dark"));
  CHECK(count_of(plot, "http") == 1); // nothing is fetched
  CHECK(count_of(plot, ">1,2,1,20,64,8</text>") == 2);
  CHECK(count_of(plot, ">1,2,1,1,64,8,causal,5 (% of read bandwidth)</text>") == 2);
  CHECK(count_of(plot, ">1 thread</text>") == 1);
  CHECK(count_of(plot, ">2 threads</text>") == 1);
  const nlohmann::json rows = nlohmann::json::parse(read_file(folder / "b.json"));
  const auto fast = std::count_if(rows.begin(), rows.end(), [](const auto &row) { return row.contains("fast"); });
  CHECK(count_of(plot, "class=\"exact\"/>") == 1 + static_cast<std::ptrdiff_t>(rows.size())); // and the legend
  CHECK(count_of(plot, "class=\"fast\"/>") == 1 + fast);
  // No peak is known of scalar lanes.
  REQUIRE(run(folder, "bench --rounds 1 --lanes scalar --svg s.svg --json s.json --shape 1,1,1,9,9,4").exit_code == 0);
  CHECK(xml_fault(read_file(folder / "s.svg")) == "");
  CHECK(count_of(read_file(folder / "s.svg"), ">no peak is known</text>") == 1);
  CHECK(nlohmann::json::parse(read_file(folder / "s.json"))[0]["exact"]["percent_of_peak"].is_null());
}

TEST_CASE("the check of XML finds what is wrong") {
  CHECK(xml_fault("<a><b c=\"d\"/>e</a>\n") == "");
  for (const char *text : {"", "<a>", "<a></b>\n", "<a><b></a></b>\n", "<a b=c></a>\n", "<a>&</a>\n",
                           "<a></a><a></a>\n", "<a>1 < 2</a>\n", "x<a></a>\n", "<a></a>x"}) {
    CAPTURE(text);
    CHECK(xml_fault(text) != "");
  }
}

TEST_CASE("bench refuses what it can't measure, and writes nothing") {
  const TemporaryFolder folder;
  check_refused(folder, "bench --shape 1,1,1,1,1", "--shape 1,1,1,1,1: must be B,H,Hkv,Tq,Tk,D");
  check_refused(folder, "bench --shape 1,1,1,1,1,1,causal,5,7", "must be B,H,Hkv,Tq,Tk,D");
  check_refused(folder, "bench --shape 1,1,1,0,1,1", "--shape: '0' is not an integer of at least 1");
  check_refused(folder, "bench --shape 1,3,2,1,1,1", "heads must be a multiple of kv_heads");
  check_refused(folder, "bench --shape 1,1,1,1,9000000000000000000,9", "more than 2^40 elements");
  check_refused(folder, "bench --shape 1,1,1,1,1,9 --page-size 9000000000000000000", "more than 2^40 elements");
  check_refused(folder, "bench --shape 2,1,1,1,2000000000,1 --page-size 1", "more than 2^31 - 1 pages");
  check_refused(folder, "bench --storage f64", "f64 not in {f32,bf16,f16}");
  check_refused(folder, "bench --page-size 0", "--page-size: '0' is not an integer of at least 1");
  check_refused(folder, "bench --rounds 0", "--rounds: '0' is not an integer of at least 1");
  check_refused(folder, "bench --svg no/b.svg", "no/b.svg");
  check_refused(folder, "bench --json b --svg b", "b");
  check_refused(folder, "bench --threads 2 memory", "bench memory: --threads is for bench without memory");
  for (const char *name : {"b", "no"}) {
    CHECK(!std::filesystem::exists(folder / name));
  }
}

TEST_CASE("bench at every lane kind: exact alone where there is no fast flavour") {
  const TemporaryFolder folder;
  const nlohmann::json kinds = nlohmann::json::parse(run(folder, "info --json").out)["lanes"];
  std::map<std::string, bool> expected; // whether there is a fast flavour
  for (const auto &[name, kind] : kinds.items()) {
    if (name != "scalar" && !kind["exact"]["kernel"].is_null()) {
      expected[name] = !kind["fast"]["kernel"].is_null();
    }
  }
  const Output output = run(folder, "bench --rounds 1 --lanes all --shape 1,1,1,9,9,4 --json b.json");
  CAPTURE(output.err);
  REQUIRE(output.exit_code == 0);
  std::map<std::string, bool> shown;
  for (const nlohmann::json &row : nlohmann::json::parse(read_file(folder / "b.json"))) {
    CHECK(row.contains("exact"));
    shown[row["lanes"]] = row.contains("fast");
  }
  CHECK(shown == expected);
}

TEST_CASE("bench memory shows that stored scores grow with the square of the keys, and a call's memory does not") {
  const TemporaryFolder folder;
  check_refused(folder, "bench memory --keys 512,0", "--keys: '0' is not an integer of at least 1");
  check_refused(folder, "bench memory --keys 32769", "--keys: 32769 is too many for scores that are stored");
  const Output output = run(folder, "bench memory --keys 512,2048 --threads 2");
  CAPTURE(output.out);
  REQUIRE(output.exit_code == 0);
  // Two of 512 x 512 and of 2048 x 2048 floats.
  for (const char *row : {"\n| 512 | ", "\n| 2048 | "}) {
    const std::size_t at = output.out.find(row);
    REQUIRE(at != std::string::npos);
    std::istringstream cells(output.out.substr(at + std::string(row).size()));
    double scratch = 0, ours = 0, stored = 0, naive = 0;
    char bar = 0;
    cells >> scratch >> bar >> ours >> bar >> stored >> bar >> naive;
    CHECK(stored == (std::string(row) == "\n| 512 | " ? 2.0 : 32.0));
    CHECK(naive >= stored);
    CHECK(scratch > 0);
    CHECK(scratch < 0.25); // of two workers
    CHECK(ours < 8);
  }
}

TEST_CASE("conformance looks at --lanes alone") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  CHECK(contains(run(folder, "conformance --help").out, "EXATTN_LANES is not looked at"));
  const std::string command = "conformance --golden . --lanes scalar --threads 1";
  CHECK(last_line(run(folder, command, "EXATTN_LANES=mmx").out) == "6 passed, 0 failed");
}

TEST_CASE("conformance passes, a line per combination and a summary") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  const Output output =
      run(folder,
          "conformance --golden . --flavour exact,fast,exact --lanes scalar --threads 1,3 --json r.json --junit r.xml");
  CHECK(output.exit_code == 0);
  CHECK(output.err == "");
  // One case of attention and one of softmax in two flavours on 1 and 3 threads, and that of attention packed on 1.
  CHECK(last_line(output.out) == "10 passed, 0 failed");
  CHECK(contains(output.out, "lane kinds scalar; no "));
  std::size_t lines = 0;
  for (std::size_t at = output.out.find(" ok "); at != std::string::npos; at = output.out.find(" ok ", at + 1)) {
    ++lines;
  }
  CHECK(lines == 10);
  CHECK(nlohmann::json::parse(read_file(folder / "r.json"))["passed"] == 10);
  CHECK(contains(read_file(folder / "r.xml"), "tests=\"10\" failures=\"0\""));

  const Output quiet = run(folder, "conformance --quiet --lanes scalar --threads 1", "EXATTN_GOLDEN=.");
  CHECK(quiet.exit_code == 0);
  CHECK_FALSE(contains(quiet.out, " ok "));
  CHECK(last_line(quiet.out) == "6 passed, 0 failed");
  CHECK(last_line(run(folder, "conformance --golden . --lanes scalar --threads 1 --tier full").out) ==
        "2 passed, 0 failed");
  CHECK(last_line(run(folder, "conformance --golden . --lanes scalar --threads 1 --flavour fast").out) ==
        "3 passed, 0 failed");
  CHECK(last_line(run(folder, "conformance --golden . --lanes scalar --threads 1 --case 'one-*'").out) ==
        "4 passed, 0 failed");
}

TEST_CASE("conformance at every lane kind of this machine") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  const nlohmann::json kinds = nlohmann::json::parse(run(folder, "info --json").out)["lanes"];
  std::string usable;
  for (const auto &[name, kind] : kinds.items()) {
    usable += kind["exact"]["kernel"].is_null() ? "" : (usable.empty() ? "" : ",") + name;
  }
  const Output output = run(folder, "conformance --golden . --require " + usable);
  CAPTURE(output.out);
  CHECK(output.exit_code == 0);
  CHECK(contains(last_line(output.out), " passed, 0 failed"));
}

TEST_CASE("conformance fails closed") {
  const TemporaryFolder folder;
  const std::string command = "conformance --golden . --lanes scalar --threads 1 ";
  const auto expect = [&](const std::string &options, int exit_code, const std::string &part) {
    CAPTURE(options);
    const Output output = run(folder, command + options);
    CAPTURE(output.out);
    CAPTURE(output.err);
    CHECK(output.exit_code == exit_code);
    CHECK(contains(exit_code == 2 ? output.err : output.out, part));
    if (exit_code == 1) {
      CHECK(contains(last_line(output.out), " failed"));
      CHECK_FALSE(contains(last_line(output.out), ", 0 failed"));
    }
  };
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  expect("--case nothing", 1, "nothing was executed: no case matches");
  expect("--require neon64,avx512", 1, "required, but not executed: ");
  expect("--tier slow", 2, "none of quick, full, all");
  expect("--json no/such/folder/r.json", 2, "cannot be written");

  // A wrong golden in a folder that is otherwise in order.
  write_goldens(folder.get(), replaced(kOneKeyGolden, "\"exact\": {\"out\": \"cd4c", "\"exact\": {\"out\": \"cd4d"),
                kTwoEqualGolden);
  expect("", 1, "MISMATCH");
  // A wrong hash of an input.
  write_goldens(folder.get(), replaced(kOneKeyGolden, "\"v\": \"7b45", "\"v\": \"7b46"), kTwoEqualGolden);
  expect("", 1, "input v has SHA-256 7b45");
  // A doubled id, no cases, no hash, half a file, an empty file: each with sums that agree.
  write_goldens(folder.get(), kOneKeyGolden, replaced(kTwoEqualGolden, "two-equal", "one-key"));
  expect("", 2, "case one-key: the id occurs twice");
  write_goldens(folder.get(), kOneKeyGolden, R"({"definition": "exattn-1", "kind": "softmax", "cases": []})");
  expect("", 2, "softmax.json: top level: \"cases\" must be a list that is not empty");
  write_goldens(folder.get(), std::string(kOneKeyGolden).substr(0, 500), kTwoEqualGolden);
  expect("", 2, "attention.json: not valid JSON");
  write_goldens(folder.get(), "", kTwoEqualGolden);
  expect("", 2, "attention.json: cannot be read, or is empty");
  // A file that is not the one in SHA256SUMS.
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  write_file(folder / "softmax.json", std::string(kTwoEqualGolden) + "\n");
  expect("", 2, "softmax.json: its SHA-256 is not the one in");
  std::filesystem::remove(folder / "SHA256SUMS");
  expect("", 2, "SHA256SUMS: cannot be read");
}

TEST_CASE("conformance refuses lane kinds by name") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  check_refused(folder, "conformance --golden . --lanes mmx", "there is no lane kind 'mmx'");
  check_refused(folder, "conformance --golden . --lanes auto", "auto is not a lane kind of its own");
  check_refused(folder, "conformance --golden . --lanes sse2 --flavour fast", "sse2");
#if defined(__x86_64__)
  check_refused(folder, "conformance --golden . --lanes neon64",
                "lane kind neon64 is not usable here: not in this build");
#elif defined(__aarch64__)
  check_refused(folder, "conformance --golden . --lanes avx2", "lane kind avx2 is not usable here: not in this build");
#endif
  check_refused(folder, "conformance --golden . --threads 0", "1 to 4096");
}
