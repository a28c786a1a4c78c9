// exattn-mint, run as its user runs it, and what every golden file has to be. Small cases only: the tool computes them
// again in milliseconds.
#include "conformance/cases.hpp"
#include "conformance/generator.hpp"
#include "conformance/oracle_case.hpp"
#include "conformance/sha256.hpp"

#include "test_files.hpp"

#include <doctest/doctest.h>

#include <sys/wait.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

using namespace exattn;
using namespace exattn::conformance;
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

Output mint(const TemporaryFolder &folder, const std::string &arguments, const std::string &golden = "") {
  const std::string out = folder / ".stdout";
  const std::string err = folder / ".stderr";
  const std::string command = EXATTN_LAUNCHER " '" EXATTN_MINT "' --golden '" +
                              (golden.empty() ? folder.get().string() : golden) + "' " + arguments + " > '" + out +
                              "' 2> '" + err + "' < /dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

std::string all_files(const TemporaryFolder &folder) {
  std::string text;
  for (const char *name : {kAttentionFile, kSoftmaxFile, kSumsFile, "VERSION"}) {
    text += read_file(folder / name) + "\n";
  }
  return text;
}

std::size_t file_count(const TemporaryFolder &folder) {
  std::size_t count = 0;
  for (const auto &entry : std::filesystem::directory_iterator(folder.get())) {
    count += entry.path().filename().string().starts_with(".std") ? 0u : 1u;
  }
  return count;
}

std::string repeated(std::uint32_t bits, std::size_t count) {
  return sha256_of(std::vector<float>(count, std::bit_cast<float>(bits)));
}

const AttentionCase &find(const std::vector<AttentionCase> &cases, const std::string &id) {
  for (const AttentionCase &item : cases) {
    if (item.id == id) {
      return item;
    }
  }
  throw std::logic_error("no case " + id);
}

const char *const kSmallCases = "'*s-0'"; // heads-0, rows-0, keys-0, softmax-rows-0, softmax-columns-0 and others

} // namespace

TEST_CASE("what is minted passes its check and has the values that were worked out by hand") {
  const TemporaryFolder folder;
  const Output minted = mint(folder, std::string("--case ") + kSmallCases);
  CHECK(minted.exit_code == 0);
  CHECK(contains(minted.out, "cases added"));
  CHECK(file_count(folder) == 4);
  CHECK(read_file(folder / "VERSION") == "exattn-1\n");

  // The strict reader takes them. No key: +0, and a log-sum-exp of -inf, in both flavours.
  const Goldens goldens = read_goldens(folder.get());
  const AttentionCase &no_keys = find(goldens.attention, "keys-0");
  for (const AttentionHashes &hashes : {no_keys.exact, no_keys.fast}) {
    CHECK(hashes.out == repeated(0, 2 * 2 * 3 * 6));
    CHECK(hashes.lse == repeated(0xFF800000u, 2 * 2 * 3));
  }
  // No row: nothing.
  CHECK(find(goldens.attention, "rows-0").exact.out == sha256_of(std::string_view()));

  // More cases beside them leave those as they are, in the catalogue's order.
  const Output more = mint(folder, "--case 'softmax-[14]'");
  CHECK(more.exit_code == 0);
  const Goldens both = read_goldens(folder.get());
  CHECK(both.attention.size() == goldens.attention.size());
  CHECK(both.softmax.size() == goldens.softmax.size() + 2);
  CHECK(both.softmax.front().id == "softmax-1");
  // A row of one number is 1.
  CHECK(both.softmax.front().exact.out == repeated(0x3F800000u, 5));
  CHECK(both.softmax.front().fast.out == repeated(0x3F800000u, 5));

  // Again: nothing is added, and not a byte changes.
  const std::string before = all_files(folder);
  const Output again = mint(folder, "--case 'softmax-[14]'");
  CHECK(again.exit_code == 0);
  CHECK(contains(again.out, "0 cases added"));
  CHECK(all_files(folder) == before);
}

TEST_CASE("a golden that exists is never changed") {
  const TemporaryFolder folder;
  REQUIRE(mint(folder, std::string("--case ") + kSmallCases).exit_code == 0);
  const std::string attention = read_file(folder / kAttentionFile);
  const std::string softmax = read_file(folder / kSoftmaxFile);
  const auto refused = [&](const std::string &id) {
    const std::string before = all_files(folder);
    const Output output = mint(folder, "--case 'softmax-1'");
    CHECK(output.exit_code == 1);
    CHECK(contains(output.err, id + ":"));
    CHECK(contains(output.err, "nothing has been written"));
    CHECK(all_files(folder) == before);
    CHECK(file_count(folder) == 4);
    const Output checked = mint(folder, "--check");
    CHECK(checked.exit_code == 1);
    CHECK(contains(checked.err, id + ":"));
  };
  SUBCASE("other parameters") {
    write_goldens(folder.get(), replaced(attention, "\"value_dim\": 6", "\"value_dim\": 7"), softmax);
    refused("heads-0");
  }
  SUBCASE("another text") {
    write_goldens(folder.get(), attention, replaced(softmax, "no row", "no rows"));
    refused("softmax-rows-0");
  }
  SUBCASE("an id that the catalogue does not have") {
    write_goldens(folder.get(), replaced(attention, "\"keys-0\"", "\"keys-none\""), softmax);
    refused("keys-none");
  }
}

TEST_CASE("the check finds what is not what the oracle gives") {
  const TemporaryFolder folder;
  REQUIRE(mint(folder, "--case 'keys-0'").exit_code == 1); // no softmax case: such a file would not be valid
  CHECK(file_count(folder) == 0);

  // The whole catalogue is expected, so start from the project's files.
  for (const char *name : {kAttentionFile, kSoftmaxFile, kSumsFile, "VERSION"}) {
    std::filesystem::copy_file(std::filesystem::path(EXATTN_GOLDEN_DIR) / name, folder / name);
  }
  const std::string attention = read_file(folder / kAttentionFile);
  const std::string softmax = read_file(folder / kSoftmaxFile);
  const auto check = [&](const std::string &arguments) { return mint(folder, "--check " + arguments); };
  CHECK(check("--case 'keys-0'").exit_code == 0);
  CHECK(check("--case 'softmax-1?' --tier quick --threads 1").exit_code == 0);

  SUBCASE("nothing selected") {
    CHECK(check("--case 'no-such-case'").exit_code == 1);
    CHECK(check("--case 'keys-0' --tier full").exit_code == 1);
  }
  SUBCASE("another hash of an output") {
    const std::string hash = find(read_goldens(folder.get()).attention, "keys-0").exact.lse;
    // Only in the case that is computed again, which comes first with this hash.
    write_goldens(folder.get(), replaced(attention, hash, replaced(hash, hash.substr(0, 8), "00000000")), softmax);
    const Output output = check("--case 'keys-0'");
    CHECK(output.exit_code == 1);
    CHECK(contains(output.err, "keys-0: exact lse is " + hash));
  }
  SUBCASE("another hash of an input") {
    const std::string hash = find(read_goldens(folder.get()).attention, "size-1").q.sha256;
    write_goldens(folder.get(), replaced(attention, hash, replaced(hash, hash.substr(0, 8), "00000000")), softmax);
    const Output output = check("--case 'size-1'");
    CHECK(output.exit_code == 1);
    CHECK(contains(output.err, "size-1: inputs q is " + hash));
  }
  SUBCASE("a case that is missing") {
    const std::size_t begin = softmax.find("    {\n      \"id\": \"softmax-2\"");
    const std::size_t end = softmax.find("    {\n      \"id\": \"softmax-3\"");
    REQUIRE(begin < end);
    REQUIRE(end != std::string::npos);
    write_goldens(folder.get(), attention, softmax.substr(0, begin) + softmax.substr(end));
    const Output output = check("--case 'keys-0'");
    CHECK(output.exit_code == 1);
    CHECK(contains(output.err, "softmax-2: is in the catalogue and not in the golden files"));
    // Minting brings it back, byte for byte.
    CHECK(mint(folder, "").exit_code == 0);
    CHECK(read_file(folder / kSoftmaxFile) == softmax);
    CHECK(read_file(folder / kAttentionFile) == attention);
  }
  SUBCASE("other spacing") {
    write_goldens(folder.get(), attention, softmax + "\n");
    const Output output = check("--case 'keys-0'");
    CHECK(output.exit_code == 1);
    CHECK(contains(output.err, std::string(kSoftmaxFile) + ": is not, byte for byte"));
  }
  SUBCASE("another version") {
    write_file(folder / "VERSION", "exattn-2\n");
    const Output output = check("--case 'keys-0'");
    CHECK(output.exit_code == 2);
    CHECK(contains(output.err, "VERSION: is not the one line exattn-1"));
  }
  SUBCASE("a file that its sum does not fit") {
    write_file(folder / kSoftmaxFile, softmax + "\n");
    CHECK(check("--case 'keys-0'").exit_code == 2);
  }
}

TEST_CASE("usage errors of exattn-mint") {
  const TemporaryFolder folder;
  CHECK(mint(folder, "--tier some").exit_code == 2);
  CHECK(mint(folder, "--threads 0").exit_code == 2);
  CHECK(mint(folder, "--frobnicate").exit_code == 2);
  CHECK(mint(folder, "--check").exit_code == 2); // no files there
  CHECK(mint(folder, "", folder / "no-such-folder").exit_code == 2);
  CHECK(mint(folder, "--help").exit_code == 0);
  CHECK(file_count(folder) == 0);
}

TEST_CASE("the project's golden files") {
  const Goldens goldens = read_goldens(EXATTN_GOLDEN_DIR);
  CHECK(read_file(std::filesystem::path(EXATTN_GOLDEN_DIR) / "VERSION") == "exattn-1\n");
  const std::string nothing = sha256_of(std::string_view());
  std::int64_t quick = 0;
  std::set<std::uint64_t> seeds;
  for (const AttentionCase &item : goldens.attention) {
    const AttentionParams &p = item.params;
    INFO("case: " << item.id);
    std::int64_t scores = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      scores += rows_of(p, b) * keys_of(p, b);
    }
    const std::int64_t cost = p.heads * scores * (p.head_dim + p.value_dim);
    if (item.tier == Tier::kQuick) {
      CHECK(cost < 30'000'000);
      quick += cost;
    }
    // No two tensors are made from the same seed.
    for (const auto &[name, tensor] : tensors_of(item)) {
      if (tensor->input.kind != InputKind::kConstant) {
        CHECK(seeds.insert(tensor->input.seed).second);
      }
    }
    // Only a tensor without elements has the hash of nothing.
    const bool empty = p.heads * p.q_len == 0 || (!p.q_starts && p.batch == 0);
    for (const AttentionHashes &hashes : {item.exact, item.fast}) {
      CHECK((hashes.out == nothing) == empty);
      CHECK((hashes.lse == nothing) == empty);
    }
  }
  CHECK(quick < 300'000'000);
  for (const SoftmaxCase &item : goldens.softmax) {
    INFO("case: " << item.id);
    const bool empty = item.params.rows * item.params.columns == 0;
    CHECK((item.exact.out == nothing) == empty);
    CHECK((item.fast.out == nothing) == empty);
  }
}

TEST_CASE("golden hashes of outputs that are known without computing") {
  const Goldens goldens = read_goldens(EXATTN_GOLDEN_DIR);
  const auto check = [&](const char *id, const std::string &out, const std::string &lse) {
    INFO("case: " << std::string(id));
    const AttentionCase &item = find(goldens.attention, id);
    for (const AttentionHashes &hashes : {item.exact, item.fast}) {
      CHECK((out.empty() || hashes.out == out));
      CHECK((lse.empty() || hashes.lse == lse));
    }
  };
  constexpr std::uint32_t kNan = 0x7FC00000u;
  // [1, 2, 7, 70, 8, 9]: every score is a NaN.
  check("scale-nan", repeated(kNan, 2 * 5 * 9), repeated(kNan, 2 * 5));
  // Values of -0: sums start from +0.
  check("v-minus-0", repeated(0, 2 * 7 * 9), {});
  // Scores of -inf only.
  check("all-masked-nan", repeated(kNan, 2 * 5 * 6), repeated(0xFF800000u, 2 * 5));
  check("all-masked-zero", repeated(0, 2 * 5 * 6), repeated(0xFF800000u, 2 * 5));
  // One key: the score 0 + its mask entry is the log-sum-exp.
  const std::vector<float> subnormal = {std::bit_cast<float>(1u), std::bit_cast<float>(0x807FFFFFu),
                                        std::bit_cast<float>(1u)};
  check("mask-subnormal", {}, sha256_of(subnormal));
  // Cases worked out by hand. Means of values with equal weights; 1 / 3 and 1 / 5 are rounded in the fast flavour, and
  // the products with them are the whole numbers again.
  const auto two_columns = [](const std::vector<float> &rows) {
    std::vector<float> elements;
    for (const float row : rows) {
      elements.insert(elements.end(), 2, row);
    }
    return sha256_of(elements);
  };
  check("hand-causal", two_columns({1.0F, 1.5F, 2.0F}), {});
  check("hand-causal-offset", two_columns({2.0F, 2.5F, 3.0F}), {});
  check("hand-window-1", two_columns({5.0F}), repeated(0, 1));
  check("hand-window-3", two_columns({4.0F}), {});
  check("hand-window-4", two_columns({3.5F}), {});
  check("hand-window-6", two_columns({2.5F}), {});
  check("hand-window-rows", two_columns({3.5F, 4.5F}), repeated(0x3F317218u, 2)); // L(2) is on the definition's page
  check("hand-window-past", two_columns({0.0F}), repeated(0xFF800000u, 1));
  check("hand-sink", two_columns({0.75F}), {});
  check("hand-sink-alone", two_columns({0.0F}), repeated(0xBFC00000u, 1));
  check("hand-mask-lowest", two_columns({2.0F}), repeated(0xFF7FFFFFu, 1));
  check("hand-groups-4", sha256_of(std::vector<float>{10, 10, 20, 20}), repeated(0, 4));
  check("hand-groups-6", sha256_of(std::vector<float>{10, 10, 10, 20, 20, 20}), repeated(0, 6));
  check("hand-mask-bool", two_columns({2.0F}), {});
  check("hand-alibi", {}, sha256_of(std::vector<float>{-1.25F}));
  check("hand-softcap", {}, sha256_of(std::vector<float>{3.0F}));
  check("hand-ragged", two_columns({2.0F, 4.5F}), {});
  check("hand-pages", two_columns({3.0F}), {});
  check("hand-alpha-zero", sha256_of(std::vector<float>{std::bit_cast<float>(kNan), std::bit_cast<float>(kNan), 1.0F}),
        repeated(0, 1));
  // 1 + 2^-23 + 2^-24 is a tie, which goes to the even 1 + 2^-22; 2^-54 less is below it.
  const AttentionCase &once = find(goldens.attention, "hand-fma-once");
  CHECK(once.exact.lse == repeated(0x3F800002u, 1));
  CHECK(once.fast.lse == repeated(0x3F800001u, 1));
  check("hand-state", two_columns({1.0F}), {});
  // Its state's bytes, from the layout of the definition's section 14: m 0, l 64, flag 1, acc 64 and 64.
  for (const bool fast : {false, true}) {
    const auto number = [](std::uint64_t value, int bytes) {
      std::string text;
      for (int byte = 0; byte < bytes; ++byte) {
        text += static_cast<char>((value >> (8 * byte)) & 0xFF);
      }
      return text;
    };
    std::string state = "exattn-1" + number(fast ? 1 : 0, 4) + number(0, 4);
    for (const std::uint64_t word : {1u, 1u, 1u, 2u, 64u, 0u, 64u}) { // B, H, Tq, Dv, the next key, not ragged, its end
      state += number(word, 8);
    }
    for (const std::uint64_t word : {0u, 0x42800000u, 1u, 0x42800000u, 0x42800000u}) {
      state += number(word, 4);
    }
    const AttentionCase &item = find(goldens.attention, "hand-state");
    CHECK((fast ? item.fast : item.exact).states == std::vector<std::string>{sha256_of(state)});
  }
  // A boolean mask of 0 alone: no row sees a key. One of 2 alone: as if there were none, so no row is empty.
  check("mask-bool-one-hides", repeated(0, 2 * 2 * 3 * 4), repeated(0xFF800000u, 2 * 2 * 3));
  CHECK(find(goldens.attention, "mask-bool-one-shows").exact.lse != repeated(0xFF800000u, 2 * 2 * 3));
  // Every score is NaN; a softcap does not hide it.
  check("softcap-scale-nan", repeated(kNan, 3 * 4), repeated(kNan, 3));
  // 5000 weights of 1: ln 5000 = 8.51719319 lies between 8.51719284 and 8.51719379, and the logarithm is off by less
  // than 0.8 units in the last place.
  const AttentionCase &equal = find(goldens.attention, "keys-5000-equal");
  const auto one = [](std::uint32_t bits) { return repeated(bits, 1); };
  CHECK((equal.exact.lse == one(0x4108466Cu) || equal.exact.lse == one(0x4108466Du)));
  // A window of one key: the value of the row's own position, which is an input, divided by a sum of 1.
  const AttentionCase &window = find(goldens.attention, "window-1");
  const std::vector<float> values = generate(window.v.input, window.v.shape);
  check("window-1", sha256_of(std::vector<float>(values.begin() + 55 * 8, values.begin() + 75 * 8)), {});
}
