// exattn audit, run as a user runs it. Hashes are computed here from bytes that were worked out by hand.
#include "src/program/audit_record.hpp"

#include "conformance/sha256.hpp"

#include "run_program.hpp"
#include "test_files.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

using namespace exattn;
using namespace exattn::program;
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
using nlohmann::ordered_json;

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

std::string bytes_of(const std::string &hex) {
  std::string bytes;
  for (std::size_t n = 0; n < hex.size(); n += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(n, 2), nullptr, 16));
  }
  return bytes;
}

std::string hash_of_floats(const std::vector<float> &values) {
  std::string bytes;
  for (const float value : values) {
    for (int n = 0; n < 4; ++n) {
      bytes += static_cast<char>(std::bit_cast<std::uint32_t>(value) >> (8 * n) & 0xFF);
    }
  }
  return sha256_of(bytes);
}

// Numbers of no meaning, of both signs and several sizes.
std::vector<float> numbers(std::size_t count, std::uint32_t seed) {
  std::vector<float> values(count);
  for (float &value : values) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-30F;
  }
  return values;
}

void save_numbers(const TemporaryFolder &folder, const std::string &name, const std::vector<std::int64_t> &shape,
                  std::uint32_t seed) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) {
    count *= static_cast<std::size_t>(size);
  }
  save(folder, name, shape, numbers(count, seed));
}

void save_bytes(const TemporaryFolder &folder, const std::string &name, const char *dtype, const char *shape,
                const std::string &bytes, const char *fortran = "False") {
  write_file(folder / name, npy_file(1, padded(1, npy_dict(dtype, fortran, shape), 64), bytes));
}

// One bit of a file's last element, or of one so many bytes before its end.
void flip(const TemporaryFolder &folder, const std::string &name, std::size_t from_end = 4) {
  std::string bytes = read_file(folder / name);
  bytes[bytes.size() - from_end] = static_cast<char>(bytes[bytes.size() - from_end] ^ 1);
  write_file(folder / name, bytes);
}

const std::string kFiles = " --q q.npy --k k.npy --v v.npy ";

// 2 heads of 70 rows over 70 keys: work items of 32, 32 and 6 rows.
void save_problem(const TemporaryFolder &folder) {
  save_numbers(folder, "q.npy", {1, 2, 70, 4}, 1);
  save_numbers(folder, "k.npy", {1, 2, 70, 4}, 2);
  save_numbers(folder, "v.npy", {1, 2, 70, 3}, 3);
}

// A record whose hash is right whatever was changed in it.
std::string with_its_hash(ordered_json document) {
  ordered_json counted = document;
  counted.erase("record");
  counted.erase("run");
  document["record"] = sha256_of(counted.dump());
  return document.dump();
}

} // namespace

TEST_CASE("audit: the root of a tree is that of RFC 9162") {
  std::vector<AuditLeaf> leaves;
  std::vector<std::string> hashed;
  for (int n = 0; n < 6; ++n) {
    leaves.push_back({sha256_of(std::to_string(n)), sha256_of("l" + std::to_string(n))});
    hashed.push_back(
        bytes_of(sha256_of(std::string(1, '\0') + bytes_of(leaves.back().out) + bytes_of(leaves.back().lse))));
  }
  const auto node = [](const std::string &left, const std::string &right) {
    return bytes_of(sha256_of("\1" + left + right));
  };
  const auto root = [&](std::size_t count) { return bytes_of(tree_root(std::span(leaves).first(count))); };
  CHECK(tree_root({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"); // of no bytes
  CHECK(root(1) == hashed[0]);
  CHECK(root(2) == node(hashed[0], hashed[1]));
  CHECK(root(3) == node(node(hashed[0], hashed[1]), hashed[2]));
  const std::string four = node(node(hashed[0], hashed[1]), node(hashed[2], hashed[3]));
  CHECK(root(5) == node(four, hashed[4]));
  CHECK(root(6) == node(four, node(hashed[4], hashed[5])));
}

TEST_CASE("audit: a record holds the hashes of what goes in and comes out") {
  const TemporaryFolder folder;
  // One key: the output is its value, and of a score of 0 the log-sum-exp is log 1.
  save(folder, "q.npy", {1, 1}, {0});
  save(folder, "k.npy", {1, 1}, {5});
  save(folder, "v.npy", {1, 2}, {7, -8});
  const Output output = run(folder, "audit record" + kFiles + "-o r.json --out o.npy --lse-out l.npy --window 9");
  CAPTURE(output.err);
  REQUIRE(output.exit_code == 0);
  const ordered_json record = ordered_json::parse(read_file(folder / "r.json"));
  const std::string out = hash_of_floats({7, -8}), lse = hash_of_floats({0});
  CHECK(record["format"] == "exattn-audit-1");
  CHECK(record["definition"] == "exattn-1");
  CHECK(record["flavour"] == "exact");
  CHECK(record["options"]["window"] == 9);
  CHECK(record["options"]["scale"] == "3f800000");
  CHECK(record["options"]["softcap"] == nullptr);
  CHECK(record["inputs"].size() == 3);
  CHECK(record["inputs"]["k"]["sha256"] == hash_of_floats({5}));
  CHECK(record["inputs"]["k"]["shape"] == std::vector<int>{1, 1});
  CHECK(record["outputs"]["out"]["sha256"] == out);
  CHECK(record["outputs"]["lse"]["sha256"] == lse);
  CHECK(record["tree"]["items"] == 1);
  CHECK(record["tree"]["root"] == sha256_of(std::string(1, '\0') + bytes_of(out) + bytes_of(lse)));
  CHECK(read_file(folder / "r.leaves") == out + " " + lse + "\n");
  CHECK(load(folder, "o.npy") == std::vector<float>{7, -8});
  CHECK(load(folder, "l.npy") == std::vector<float>{0});
  CHECK(with_its_hash(record) == record.dump());
  CHECK(contains(output.out, "record " + record["record"].get<std::string>()));

  // Byte for byte the same but for the last part, whatever computes it.
  REQUIRE(run(folder, "audit record" + kFiles + "-o s.json --window 9 --lanes scalar --threads 3").exit_code == 0);
  ordered_json again = ordered_json::parse(read_file(folder / "s.json"));
  CHECK(again["run"]["kernel"] == "scalar/exact");
  again["run"] = record["run"];
  CHECK(again.dump() == record.dump());
  CHECK(read_file(folder / "s.leaves") == read_file(folder / "r.leaves"));
}

TEST_CASE("audit: the schema has the keys that a record has, and no others") {
  const TemporaryFolder folder;
  save_problem(folder);
  REQUIRE(run(folder, "audit record" + kFiles + "-o r.json").exit_code == 0);
  const ordered_json record = ordered_json::parse(read_file(folder / "r.json"));
  const ordered_json schema = ordered_json::parse(read_file(EXATTN_SOURCE_DIR "/docs/audit-1.schema.json"));
  const auto keys = [](const ordered_json &object) {
    std::vector<std::string> names;
    for (const auto &item : object.items()) {
      names.push_back(item.key());
    }
    return names;
  };
  const ordered_json &properties = schema["properties"];
  CHECK(keys(properties) == keys(record));
  CHECK(schema["required"] == ordered_json(keys(record)));
  for (const char *part : {"options", "tree"}) {
    CHECK(keys(properties[part]["properties"]) == keys(record[part]));
    CHECK(properties[part]["required"] == ordered_json(keys(record[part])));
  }
  CHECK(schema["$defs"]["input"]["required"] == ordered_json(keys(record["inputs"]["q"])));
  CHECK(schema["$defs"]["output"]["required"] == ordered_json(keys(record["outputs"]["out"])));
}

TEST_CASE("audit: whatever is recorded is verified, whole and item by item") {
  const TemporaryFolder folder;
  save_numbers(folder, "q.npy", {2, 4, 70, 8}, 1);
  save_numbers(folder, "k.npy", {2, 2, 90, 8}, 2);
  save_numbers(folder, "v.npy", {2, 2, 90, 5}, 3);
  save_numbers(folder, "mask.npy", {2, 1, 1, 90}, 4);
  save_bytes(folder, "seen.npy", "|b1", "(70, 90)", [] {
    std::string bytes;
    for (int n = 0; n < 70 * 90; ++n) {
      bytes += static_cast<char>(n % 7 != 0 && n / 90 != 33 ? 1 : 0); // row 33 sees none
    }
    return bytes;
  }());
  save_numbers(folder, "ragged_q.npy", {1, 4, 110, 8}, 5);
  save_numbers(folder, "ragged_k.npy", {1, 2, 150, 8}, 6);
  save_numbers(folder, "ragged_v.npy", {1, 2, 150, 5}, 7);
  save_numbers(folder, "page_k.npy", {9, 2, 16, 8}, 8);
  save_numbers(folder, "page_v.npy", {9, 2, 16, 5}, 9);
  save_bytes(folder, "table.npy", "<i4", "(2, 4)",
             std::string("\7\0\0\0\1\0\0\0\3\0\0\0\0\0\0\0"
                         "\2\0\0\0\5\0\0\0\x8\0\0\0\4\0\0\0",
                         32));
  std::string halves, brains;
  for (int n = 0; n < 2 * 2 * 90 * 8; ++n) {
    halves += static_cast<char>(n * 37);
    halves += static_cast<char>(0x30 + n % 13 + (n % 3 == 0 ? 0x80 : 0));
    brains += static_cast<char>(n * 41);
    brains += static_cast<char>(0x3F + (n % 3 == 0 ? 0x80 : 0));
  }
  save_bytes(folder, "half_k.npy", "<f2", "(2, 2, 90, 8)", halves);
  save_bytes(folder, "brain_k.npy", "<u2", "(2, 2, 90, 8)", brains);
  save_bytes(folder, "fortran_k.npy", "<f4", "(2, 2, 90, 8)", read_file(folder / "k.npy").substr(128), "True");
  const std::string qv = " --q q.npy --v v.npy ";
  struct Problem {
    std::string files, options; // what a verifier has to name again, and what the record holds
    std::size_t items;
  };
  const std::size_t usual = 2 * 4 * 3; // 70 rows: 32, 32 and 6
  const std::vector<Problem> problems = {
      {kFiles, "", usual},
      {kFiles, "--causal --q-offset 20 --flavour fast", usual},
      {kFiles, "--causal --q-offset 0,30 --window 25 --kv-len 90,64 --scale 0x3e000000 --softcap 2.5", usual},
      {kFiles + "--mask mask.npy --mask-bool seen.npy", "--fully-masked zero", usual},
      {kFiles + "--sinks 1,2,-inf,0 --alibi 0.5,0.25,1,2", "--causal", usual},
      {qv + "--k half_k.npy", "", usual},
      {qv + "--k fortran_k.npy", "", usual},
      {kFiles, "--pack-k --kv-len 11,90", usual},
      {" --q ragged_q.npy --k ragged_k.npy --v ragged_v.npy ", "--q-starts 0,37,110 --kv-starts 3,90,150 --causal",
       4 * (2 + 3)},
      {" --q q.npy --k page_k.npy --v page_v.npy --page-table table.npy ", "--kv-len 64,50 --causal --q-offset 9",
       usual},
  };
  for (const Problem &problem : problems) {
    CAPTURE(problem.files + problem.options);
    const Output recorded =
        run(folder, "audit record" + problem.files + " " + problem.options + " -o r.json --lanes scalar --threads 1");
    CAPTURE(recorded.err);
    REQUIRE(recorded.exit_code == 0);
    const std::string count = std::to_string(problem.items);
    const Output whole = run(folder, "audit verify r.json" + problem.files + " --threads 2");
    CHECK(whole.err == "");
    CHECK(whole.out.starts_with("same bits: all " + count + " work items, recomputed by "));
    CHECK(whole.exit_code == 0);
    const Output items = run(folder, "audit verify r.json --sample 1000" + problem.files);
    CHECK(items.err == "");
    CHECK(items.out == "same bits in " + count + " of " + count + " work items, chosen by seed 0\n");
    CHECK(items.exit_code == 0);
    const Output some = run(folder, "audit verify r.json --sample 3 --seed 8 --json" + problem.files);
    CHECK(ordered_json::parse(some.out)["recomputed"] == 3);
    CHECK(some.exit_code == 0);
  }
  // bfloat16 is in the record, so nobody has to say it again; the numbers are as wide in a safetensors file.
  REQUIRE(run(folder, "audit record --bf16 k --k brain_k.npy" + qv + "-o r.json").exit_code == 0);
  CHECK(run(folder, "audit verify r.json --k brain_k.npy" + qv).exit_code == 0);
  const std::string header = R"({"k":{"dtype":"BF16","shape":[2,2,90,8],"data_offsets":[0,5760]}})";
  write_file(folder / "m.safetensors",
             std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + brains);
  CHECK(run(folder, "audit verify r.json --k m.safetensors:k" + qv).exit_code == 0);
  CHECK(contains(run(folder, "audit verify r.json" + kFiles).err, "k.npy: its dtype is '<f4'"));

  // States: whole runs only.
  save_numbers(folder, "k64.npy", {2, 2, 64, 8}, 10);
  save_numbers(folder, "v64.npy", {2, 2, 64, 5}, 11);
  REQUIRE(run(folder, "attention --q q.npy --k k64.npy --v v64.npy --state-out s.bin").exit_code == 0);
  REQUIRE(
      run(folder, "audit record" + kFiles + "--kv-offset 64 --state-in s.bin --state-out t.bin -o r.json").exit_code ==
      0);
  CHECK(run(folder, "audit verify r.json --state-in s.bin" + kFiles).exit_code == 0);
  const Output refused = run(folder, "audit verify r.json --sample 2 --state-in s.bin" + kFiles);
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "can't be recomputed alone; verify the whole"));
}

TEST_CASE("audit: one flipped bit in an input, an output, the record or its leaves is found") {
  const TemporaryFolder folder;
  save_problem(folder);
  save_numbers(folder, "mask.npy", {70, 70}, 4);
  const std::string files = kFiles + "--mask mask.npy --sinks 1,2 ";
  REQUIRE(run(folder, "audit record" + files + "-o r.json --out o.npy --lse-out l.npy").exit_code == 0);
  for (const std::string name : {"q", "k", "v", "mask"}) {
    const std::string before = read_file(folder / (name + ".npy"));
    flip(folder, name + ".npy");
    for (const char *how : {"", " --sample 1"}) {
      const Output output = run(folder, "audit verify r.json" + files + how);
      CHECK(output.exit_code == 1);
      CHECK(output.out.starts_with("not the same\n  input " + name + ": sha256 "));
    }
    write_file(folder / (name + ".npy"), before);
  }
  const Output sinks = run(folder, "audit verify r.json" + kFiles + "--mask mask.npy --sinks 1,3");
  CHECK(sinks.exit_code == 1);
  CHECK(contains(sinks.out,
                 "input sinks: sha256 " + hash_of_floats({1, 2}) + " in the record, " + hash_of_floats({1, 3})));
  CHECK(run(folder, "audit verify r.json" + files).exit_code == 0);

  CHECK(run(folder, "audit verify r.json --output o.npy --lse l.npy").exit_code == 0);
  flip(folder, "o.npy", 4 * 3 * 26 + 4); // the last element of row 43 of head 1
  const Output output = run(folder, "audit verify r.json --output o.npy --lse l.npy");
  CHECK(output.exit_code == 1);
  CHECK(contains(output.out, "output out: 1 of 6 work items differ: b 0, h 1, rows 32 to 63\n"));
  CHECK(!contains(output.out, "output lse"));

  const std::string record = read_file(folder / "r.json"), leaves = read_file(folder / "r.leaves");
  const ordered_json document = ordered_json::parse(record);
  // An option that may not even change a bit, and a hash.
  for (const auto &[from, to] : {std::pair<std::string, std::string>{"\"window\": 0", "\"window\": 1"},
                                 {"\"fully_masked\": \"nan\"", "\"fully_masked\": \"zero\""},
                                 {"\"flavour\": \"exact\"", "\"flavour\": \"fast\""},
                                 {"\"layout\": \"c\"", "\"layout\": \"fortran\""}}) {
    write_file(folder / "r.json", replaced(record, from, to));
    const Output changed = run(folder, "audit verify r.json" + files);
    CHECK(changed.exit_code == 2);
    CHECK(contains(changed.err, "something in it was changed after it was made"));
  }
  // A record that was made anew with another hash of an output passes its own check, and fails against the numbers.
  ordered_json forged = document;
  forged["outputs"]["out"]["sha256"] = std::string(64, '0');
  write_file(folder / "r.json", with_its_hash(forged));
  const Output caught = run(folder, "audit verify r.json" + files);
  CHECK(caught.exit_code == 1);
  CHECK(contains(caught.out, "output out: sha256 " + std::string(64, '0') + " in the record, "));
  write_file(folder / "r.json", record);

  write_file(folder / "r.leaves", replaced(leaves, leaves.substr(0, 4), leaves[0] == 'a' ? "b000" : "a000"));
  const Output leaf = run(folder, "audit verify r.json" + files);
  CHECK(leaf.exit_code == 2);
  CHECK(contains(leaf.err, "r.leaves: its tree has the root "));
  write_file(folder / "r.leaves", leaves.substr(1));
  CHECK(contains(run(folder, "audit verify r.json" + files).err, "r.leaves: has 779 bytes; 6 work items take 780"));
}

TEST_CASE("audit: diff says in what two records differ, and where their outputs do") {
  const TemporaryFolder folder;
  save_problem(folder);
  REQUIRE(run(folder, "audit record" + kFiles + "-o a.json --out a.npy").exit_code == 0);
  CHECK(run(folder, "audit diff a.json a.json --a-out a.npy --b-out a.npy").out ==
        "the same: options, inputs, outputs and all 6 work items\n");
  flip(folder, "k.npy", 4); // head 1 alone
  REQUIRE(run(folder, "audit record" + kFiles + "-o b.json --out b.npy --causal --q-offset 3").exit_code == 0);
  const Output both = run(folder, "audit diff a.json b.json");
  CHECK(both.exit_code == 1);
  CHECK(contains(both.out, "option causal: false in a, true in b\n"));
  CHECK(contains(both.out, "option q_offsets: [0] in a, [3] in b\n"));
  CHECK(contains(both.out, "input k: sha256 "));
  REQUIRE(run(folder, "audit record" + kFiles + "-o c.json").exit_code == 0);
  const Output head = run(folder, "audit diff a.json c.json");
  CHECK(contains(head.out, "work items differ: b 0, h 1, rows 0 to 31"));
  CHECK(!contains(head.out, "h 0"));

  // One element, by its lowest bit.
  save(folder, "x.npy", {2, 2}, {1, 2, 3, 4});
  save(folder, "y.npy", {2, 2}, {1, 2, std::bit_cast<float>(0x40400001U), 4});
  const Output element = run(folder, "audit diff a.json c.json --a-out x.npy --b-out y.npy --json");
  const ordered_json found = ordered_json::parse(element.out);
  CHECK(found["differing"] == 1);
  CHECK(found["first"]["index"] == std::vector<int>{1, 0});
  CHECK(found["first"]["bits"] == std::vector<std::string>{"40400000", "40400001"});
  CHECK(found["max_abs"] == 0x1p-22);
  CHECK(contains(element.out, "40400000 in a, 40400001 in b, 1 ulp apart"));
}

TEST_CASE("audit: diff explains another flavour, flushed subnormals and contraction, by recomputing") {
  const TemporaryFolder folder;
  save_problem(folder);
  REQUIRE(run(folder, "audit record" + kFiles + "-o a.json").exit_code == 0);
  REQUIRE(run(folder, "audit record" + kFiles + "-o b.json --flavour fast").exit_code == 0);
  const Output flavours = run(folder, "audit diff a.json b.json" + kFiles);
  CHECK(contains(flavours.out, ": a has the bits of the exact flavour\n"));
  CHECK(contains(flavours.out, ": b has the bits of the fast flavour\n"));

  // One key with the value 2^-149, and weight 1: the output is that, and +0 where it is flushed.
  save(folder, "q.npy", {1, 1}, {0});
  save(folder, "k.npy", {1, 1}, {0});
  save(folder, "v.npy", {1, 1}, {0x1p-149F});
  REQUIRE(run(folder, "audit record" + kFiles + "-o a.json").exit_code == 0);
  ordered_json document = ordered_json::parse(read_file(folder / "a.json"));
  const auto with_output = [&](float out, float lse, const std::string &name) {
    const AuditLeaf leaf{hash_of_floats({out}), hash_of_floats({lse})};
    document["outputs"]["out"]["sha256"] = leaf.out;
    document["outputs"]["lse"]["sha256"] = leaf.lse;
    document["tree"]["root"] = tree_root(std::span(&leaf, 1));
    write_file(folder / (name + ".json"), with_its_hash(document));
    write_file(folder / (name + ".leaves"), leaf.out + " " + leaf.lse + "\n");
  };
  with_output(0.0F, 0.0F, "b");
  CHECK(contains(run(folder, "audit diff a.json b.json" + kFiles).out,
                 ": b has the bits of the exact flavour, subnormal numbers flushed to zero\n"));
  with_output(3.0F, 0.0F, "b");
  const Output nothing = run(folder, "audit diff b.json b.json" + kFiles);
  CHECK(nothing.exit_code == 0);
  const Output unknown = run(folder, "audit diff b.json a.json" + kFiles);
  CHECK(unknown.exit_code == 1);
  CHECK(contains(unknown.out, ": b has the bits of the exact flavour\n"));
  CHECK(!contains(unknown.out, ": a has the bits"));

  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24, and the last part is lost where the product is rounded first; with -1 - 2^-11
  // from the elements before, the score is 0 unfused and 2^-24 fused, and so is the log-sum-exp of one key.
  save(folder, "q.npy", {1, 2}, {1, 1 + 0x1p-12F});
  save(folder, "k.npy", {1, 2}, {-1 - 0x1p-11F, 1 + 0x1p-12F});
  save(folder, "v.npy", {1, 1}, {1});
  REQUIRE(run(folder, "audit record" + kFiles + "-o a.json --scale 1").exit_code == 0);
  CHECK(ordered_json::parse(read_file(folder / "a.json"))["outputs"]["lse"]["sha256"] == hash_of_floats({0}));
  document = ordered_json::parse(read_file(folder / "a.json"));
  with_output(1.0F, 0x1p-24F, "b");
  const Output contracted = run(folder, "audit diff a.json b.json" + kFiles);
  CHECK(contains(contracted.out, ": a has the bits of the exact flavour\n"));
  CHECK(contains(contracted.out, ": b has the bits of the fast flavour\n")); // which is the first that fuses it
  save_numbers(folder, "q.npy", {1, 2}, 1);
  CHECK(contains(run(folder, "audit diff a.json b.json" + kFiles).err, "must be a's inputs; they have other hashes"));
}

TEST_CASE("audit: records and leaves that are wrong are refused, with what is wrong") {
  const TemporaryFolder folder;
  save_problem(folder);
  REQUIRE(run(folder, "audit record" + kFiles + "-o r.json").exit_code == 0);
  const std::string text = read_file(folder / "r.json");
  const ordered_json record = ordered_json::parse(text);
  const auto refused = [&](const std::string &changed) {
    write_file(folder / "r.json", changed);
    const Output output = run(folder, "audit verify r.json" + kFiles);
    CHECK(output.exit_code == 2);
    CHECK(output.out == "");
    return output.err;
  };
  const auto changed = [&](const char *pointer, const ordered_json &value) {
    ordered_json copy = record;
    copy[ordered_json::json_pointer(pointer)] = value;
    return refused(with_its_hash(copy));
  };
  CHECK(contains(refused(""), "r.json: "));
  CHECK(contains(refused("{"), "not valid JSON"));
  CHECK(contains(refused("[1]"), "record: must be an object"));
  CHECK(contains(refused(std::string(100000, '[')), "too deep"));
  CHECK(contains(refused(replaced(text, "\"flavour\"", "\"format\": \"x\", \"flavour\"")), "\"format\" occurs twice"));
  CHECK(contains(changed("/format", "exattn-audit-2"), "\"format\" is \"exattn-audit-2\""));
  CHECK(contains(changed("/definition", "exattn-9"), "this program follows \"exattn-1\""));
  CHECK(contains(changed("/operation", "softmax"), "must be \"attention\""));
  CHECK(contains(changed("/flavour", "slow"), "\"flavour\" must be \"exact\" or \"fast\""));
  CHECK(contains(changed("/more", 1), "unknown key \"more\""));
  CHECK(contains(changed("/options/batch", -1), "\"batch\" must be an integer from 0"));
  CHECK(contains(changed("/options/batch", 2), "\"q_offsets\" has 1 numbers, batch is 2"));
  CHECK(contains(changed("/options/scale", "3F800000"), "\"scale\" must be 8 lower-case hex digits"));
  CHECK(contains(changed("/options/q_starts", {5, 3}), "\"q_starts\" must not fall"));
  CHECK(contains(changed("/options/q_len", 9223372036854775807), "the sizes give more than 2^40"));
  CHECK(contains(changed("/tree/items", 7), "\"items\" is 7, the sizes give 6"));
  CHECK(contains(changed("/tree/rows", 64), "\"rows\" must be 32"));
  CHECK(contains(changed("/inputs/q/sha256", "12"), "must be 64 lower-case hex digits"));
  CHECK(contains(changed("/inputs/other", record["inputs"]["q"]), "unknown key \"other\""));
  ordered_json without = record;
  without["inputs"].erase("k");
  CHECK(contains(refused(with_its_hash(without)), "input \"k\" is missing"));
  ordered_json wide = record;
  wide["outputs"]["out"]["shape"] = {1, 2, 70, 9};
  write_file(folder / "r.json", with_its_hash(wide));
  const Output shapes = run(folder, "audit verify r.json" + kFiles);
  CHECK(shapes.exit_code == 1);
  CHECK(contains(shapes.out, "output out: f32 1x2x70x9 in the record, f32 1x2x70x3 here"));
  write_file(folder / "r.json", text);
  CHECK(contains(run(folder, "audit verify r.json --q q.npy --k k.npy").err,
                 "the record has the input v: name its file by --v"));
  CHECK(
      contains(run(folder, "audit verify r.json --sinks 1,2" + kFiles).err, "--sinks: the record has no input sinks"));
  CHECK(contains(run(folder, "audit verify r.json --output q.npy").err, "the record's out has 1x2x70x3"));
  CHECK(contains(run(folder, "audit verify no.json" + kFiles).err, "no.json"));
  CHECK(contains(run(folder, "audit verify r.json --sample 0" + kFiles).err,
                 "--sample: '0' is not an integer of at least 1"));
  CHECK(contains(run(folder, "audit diff r.json r.json --a-out q.npy").err, "--a-out and --b-out go together"));
  CHECK(contains(run(folder, "audit record" + kFiles).err, "--record"));
  CHECK(contains(run(folder, "audit record" + kFiles + "-o q.npy").err, "is an input"));
  CHECK(run(folder, "audit").exit_code == 2);
}
