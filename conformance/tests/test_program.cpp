// The program exattn, run as a user runs it. What it must print was worked out by hand: one key gives its value, equal
// scores give the mean of the values that are visible.
#include "src/program/npy.hpp"
#include "src/program/output_file.hpp"

#include "test_files.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

using namespace exattn;
using exattn::tests::kOneKeyGolden;
using exattn::tests::kTwoEqualGolden;
using exattn::tests::little_endian;
using exattn::tests::npy_dict;
using exattn::tests::npy_file;
using exattn::tests::padded;
using exattn::tests::read_file;
using exattn::tests::replaced;
using exattn::tests::TemporaryFolder;
using exattn::tests::write_file;
using exattn::tests::write_goldens;

namespace {

struct Output {
  int exit_code = -1;
  std::string out, err;
};

// Runs the program in a folder, through a shell.
Output run(const TemporaryFolder &folder, const std::string &arguments, const std::string &environment = "") {
  const std::string command = "cd '" + folder.get().string() + "' && env -u EXATTN_LANES -u EXATTN_GOLDEN " +
                              environment + " " EXATTN_LAUNCHER " '" EXATTN_PROGRAM "' " + arguments +
                              " > .stdout 2> .stderr < /dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / ".stdout"), read_file(folder / ".stderr")};
}

void save(const TemporaryFolder &folder, const std::string &name, const std::vector<std::int64_t> &shape,
          const std::vector<float> &data) {
  program::OutputFile file((folder / name).string());
  program::write_npy(file, shape, data);
  file.commit();
}

std::vector<float> load(const TemporaryFolder &folder, const std::string &name) {
  const program::NpyArray array = program::read_npy((folder / name).string());
  return {array.data, array.data + array.size()};
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
  check_refused(folder, "functions --function tan", "there are exp and log");
  check_refused(folder, "functions --lanes mmx", "there are auto, scalar, sse2, avx2, avx512, neon64");
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
  CHECK(json["lanes"].size() == 5);
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
  const Output output = run(folder, kFiles + "--scale 0.5 --out o.npy --lse l.npy");
  CHECK(output.exit_code == 0);
  CHECK(contains(output.out, "\nlse-sha256 "));
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
  check_refused(folder, kFiles + "--mask flat.npy", "has 1 dimensions; 2 to 4 are allowed");
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
  check_refused(folder, kFiles + "--sinks q.npy", "has 4 dimensions; 1 are allowed");
}

TEST_CASE("attention refuses what does not fit and writes nothing") {
  const TemporaryFolder folder;
  save_one_key(folder);
  const std::string out = " --out o.npy";
  check_refused(folder, "attention --q none.npy --k k.npy --v v.npy" + out, "none.npy: cannot be opened");
  check_refused(folder, kFiles + "--scale 1/8" + out, "--scale: '1/8'");
  check_refused(folder, kFiles + "--scale nan" + out, "--scale: 'nan'");
  check_refused(folder, kFiles + "--scale 1e99" + out, "--scale: '1e99'");
  check_refused(folder, kFiles + "--threads 0" + out, "1 to 4096");
  check_refused(folder, kFiles + "--lanes mmx" + out, "there is no lane kind 'mmx'");
  check_refused(folder, kFiles + "--lanes sse2 --flavour fast" + out, "");
  check_refused(folder, kFiles + "--fully-masked no" + out, "neither nan nor zero");
  check_refused(folder, kFiles + "--out no/such/folder/o.npy", "cannot be written");

  write_file(folder / "bad.npy", npy_file(1, padded(1, npy_dict(">f4", "False", "(1, 1, 1, 1)"), 64), "0123"));
  check_refused(folder, "attention --q q.npy --k bad.npy --v v.npy" + out, "bad.npy: its dtype is '>f4'");
  save(folder, "bad.npy", {1, 1, 1}, {3});
  check_refused(folder, "attention --q q.npy --k bad.npy --v v.npy" + out, "as many dimensions as q");
  save(folder, "bad.npy", {1, 1, 1, 2}, {3, 3});
  check_refused(folder, "attention --q q.npy --k bad.npy --v v.npy" + out, "its last size must be q's, 1");
  save(folder, "bad.npy", {1, 1, 2, 2}, {3, 3, 3, 3});
  check_refused(folder, "attention --q q.npy --k k.npy --v bad.npy" + out, "all sizes but the last must be k's");
  save(folder, "bad.npy", {2, 1, 1, 1}, {3, 3});
  check_refused(folder, "attention --q q.npy --k bad.npy --v bad.npy" + out, "its batch size must be q's, 1");
  save(folder, "bad.npy", {1, 3, 1, 1}, {3, 3, 3});
  check_refused(folder, "attention --q q.npy --k bad.npy --v bad.npy" + out, "a multiple of k's 3");
  save(folder, "bad.npy", {5}, {1, 2, 3, 4, 5});
  check_refused(folder, "attention --q bad.npy --k k.npy --v v.npy" + out, "has 1 dimensions; 2 to 4 are allowed");
  save(folder, "bad.npy", {1, 2, 2, 0}, {});
  save(folder, "none.npy", {1, 1, 1, 0}, {});
  check_refused(folder, "attention --q bad.npy --k none.npy --v v.npy" + out, "head_dim");
  CHECK_FALSE(std::filesystem::exists(folder / "o.npy"));
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
  CHECK(attention_out(folder, "--lse l.npy") == std::vector<float>{0});
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

std::string last_line(const std::string &text) {
  const std::size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

} // namespace

TEST_CASE("conformance passes, a line per combination and a summary") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  const Output output =
      run(folder,
          "conformance --golden . --flavour exact,fast,exact --lanes scalar --threads 1,3 --json r.json --junit r.xml");
  CHECK(output.exit_code == 0);
  CHECK(output.err == "");
  CHECK(last_line(output.out) == "8 passed, 0 failed");
  CHECK(contains(output.out, "lane kinds scalar; no "));
  std::size_t lines = 0;
  for (std::size_t at = output.out.find(" ok "); at != std::string::npos; at = output.out.find(" ok ", at + 1)) {
    ++lines;
  }
  CHECK(lines == 8);
  CHECK(nlohmann::json::parse(read_file(folder / "r.json"))["passed"] == 8);
  CHECK(contains(read_file(folder / "r.xml"), "tests=\"8\" failures=\"0\""));

  const Output quiet = run(folder, "conformance --quiet --lanes scalar --threads 1", "EXATTN_GOLDEN=.");
  CHECK(quiet.exit_code == 0);
  CHECK_FALSE(contains(quiet.out, " ok "));
  CHECK(last_line(quiet.out) == "4 passed, 0 failed");
  CHECK(last_line(run(folder, "conformance --golden . --lanes scalar --threads 1 --tier full").out) ==
        "2 passed, 0 failed");
  CHECK(last_line(run(folder, "conformance --golden . --lanes scalar --threads 1 --flavour fast").out) ==
        "2 passed, 0 failed");
  CHECK(last_line(run(folder, "conformance --golden . --lanes scalar --threads 1 --case 'one-*'").out) ==
        "2 passed, 0 failed");
}

TEST_CASE("conformance at every lane kind of this machine") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  const Output output = run(folder, "conformance --golden . --require scalar");
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
