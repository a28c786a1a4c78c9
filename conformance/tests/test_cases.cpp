// The reader of golden files: it refuses whatever is not a whole, known, consistent file.
#include "conformance/cases.hpp"

#include "test_files.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <string>

using namespace exattn;
using namespace exattn::conformance;
using exattn::tests::replaced;
using exattn::tests::TemporaryFolder;
using exattn::tests::write_file;
using exattn::tests::write_goldens;
using nlohmann::json;

namespace {

const std::string kHash(64, 'a');

json attention_document() {
  return {{"definition", "exattn-1"},
          {"kind", "attention"},
          {"cases",
           {{{"id", "first"},
             {"guards", "something"},
             {"tier", "full"},
             {"params",
              {{"batch", 2},
               {"heads", 6},
               {"kv_heads", 3},
               {"q_len", 5},
               {"kv_len", 7},
               {"head_dim", 4},
               {"value_dim", 3},
               {"scale", "3e800000"},
               {"causal", true},
               {"window", 9},
               {"q_offset", 11},
               {"q_offsets", {1, 2}},
               {"kv_lens", {7, 0}},
               {"fully_masked", "zero"}}},
             {"inputs",
              {{"q", {{"kind", "normal"}, {"seed", 5}, {"scale_exponent", 14}}},
               {"k", {{"kind", "bits"}, {"seed", 6}}},
               {"v", {{"kind", "constant"}, {"bits", "80000000"}}},
               {"mask",
                {{"kind", "constant"},
                 {"bits", "00000000"},
                 {"shape", {1, 6, 1, 7}},
                 {"set", {{{"from", {0, 0, 0, 0}}, {"to", {1, 6, 1, 2}}, {"bits", "ff800000"}}}}}},
               {"sinks", {{"kind", "normal"}, {"seed", 9007199254740991}}}}},
             {"sha256",
              {{"inputs", {{"q", kHash}, {"k", kHash}, {"v", kHash}, {"mask", kHash}, {"sinks", kHash}}},
               {"exact", {{"out", std::string(64, '1')}, {"lse", std::string(64, '2')}}},
               {"fast", {{"out", std::string(64, '3')}, {"lse", std::string(64, '4')}}}}}}}}};
}

// With every option that a case may have, but those that exclude others.
json full_document() {
  json document = attention_document();
  json &item = document["cases"][0];
  json &params = item["params"];
  params["kv_len"] = 200;
  params["kv_lens"] = {100, 60};
  params["softcap"] = "42480000";
  params["q_starts"] = {0, 2, 5};
  params["kv_starts"] = {3, 133, 193};
  params["resume"] = {64, 128};
  params["storage"] = {{"k", "bf16"}, {"v", "f16"}};
  item["inputs"]["v"]["bits"] = "8000";
  item["inputs"]["k"]["set"] = {{{"from", {0, 0, 0, 0}}, {"to", {1, 3, 200, 4}}, {"bits", "7fc1"}}};
  item["inputs"]["mask"]["shape"] = {1, 6, 1, 130};
  item["inputs"]["mask_bool"] = {{"kind", "visible"},
                                 {"seed", 3},
                                 {"per_256", 200},
                                 {"shape", {1, 1, 5, 130}},
                                 {"set", {{{"from", {0, 0, 0, 0}}, {"to", {1, 1, 5, 1}}, {"bits", "ff"}}}}};
  item["inputs"]["alibi"] = {{"kind", "constant"}, {"bits", "3e800000"}};
  item["sha256"]["inputs"]["mask_bool"] = kHash;
  item["sha256"]["inputs"]["alibi"] = kHash;
  item["sha256"]["exact"]["states"] = {std::string(64, '5'), std::string(64, '6')};
  item["sha256"]["fast"]["states"] = {std::string(64, '7'), std::string(64, '8')};
  return document;
}

json softmax_document() {
  return {{"definition", "exattn-1"},
          {"kind", "softmax"},
          {"cases",
           {{{"id", "rows"},
             {"guards", "something"},
             {"tier", "quick"},
             {"params", {{"rows", 3}, {"columns", 0}}},
             {"inputs", {{"x", {{"kind", "normal"}, {"seed", 0}}}}},
             {"sha256", {{"inputs", {{"x", kHash}}}, {"exact", {{"out", kHash}}}, {"fast", {{"out", kHash}}}}}}}}};
}

std::string error_of(const std::function<void()> &action) {
  try {
    action();
  } catch (const GoldenError &error) {
    return error.what();
  }
  return "no error";
}

std::string attention_error(const json &document) {
  return error_of([&] { parse_attention_cases(document.dump(), "attention.json"); });
}

// The error of a document in which one thing was changed.
std::string changed(const std::function<void(json &item)> &change) {
  json document = attention_document();
  change(document["cases"][0]);
  return attention_error(document);
}

std::string full_changed(const std::function<void(json &item)> &change) {
  json document = full_document();
  change(document["cases"][0]);
  return attention_error(document);
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("every field of an attention case arrives") {
  const std::vector<AttentionCase> cases = parse_attention_cases(attention_document().dump(), "attention.json");
  REQUIRE(cases.size() == 1);
  const AttentionCase &item = cases[0];
  CHECK(item.id == "first");
  CHECK(item.guards == "something");
  CHECK(item.tier == Tier::kFull);
  CHECK(item.params.batch == 2);
  CHECK(item.params.heads == 6);
  CHECK(item.params.kv_heads == 3);
  CHECK(item.params.q_len == 5);
  CHECK(item.params.kv_len == 7);
  CHECK(item.params.head_dim == 4);
  CHECK(item.params.value_dim == 3);
  CHECK(item.params.scale_bits == 0x3e800000u);
  CHECK(item.params.causal);
  CHECK(item.params.window == 9);
  CHECK(item.params.q_offset == 11);
  CHECK(item.params.q_offsets == std::vector<std::int64_t>{1, 2});
  CHECK(item.params.kv_lens == std::vector<std::int64_t>{7, 0});
  CHECK(item.params.fully_masked_zero);
  CHECK(item.q.shape == std::vector<std::int64_t>{2, 6, 5, 4});
  CHECK(item.k.shape == std::vector<std::int64_t>{2, 3, 7, 4});
  CHECK(item.v.shape == std::vector<std::int64_t>{2, 3, 7, 3});
  CHECK(item.q.input.seed == 5);
  CHECK(item.q.input.scale_exponent == 14);
  CHECK(item.k.input.kind == InputKind::kBits);
  CHECK(item.v.input.bits == 0x80000000u);
  REQUIRE(item.mask.has_value());
  CHECK(item.mask->shape == std::vector<std::int64_t>{1, 6, 1, 7});
  REQUIRE(item.mask->input.set.size() == 1);
  CHECK(item.mask->input.set[0].to == std::vector<std::int64_t>{1, 6, 1, 2});
  CHECK(item.mask->input.set[0].bits == 0xff800000u);
  REQUIRE(item.sinks.has_value());
  CHECK(item.sinks->shape == std::vector<std::int64_t>{6});
  CHECK(item.sinks->input.scale_exponent == 15);
  CHECK(item.exact.out == std::string(64, '1'));
  CHECK(item.exact.lse == std::string(64, '2'));
  CHECK(item.fast.out == std::string(64, '3'));
  CHECK(item.fast.lse == std::string(64, '4'));
}

TEST_CASE("optional parts may be absent") {
  json document = attention_document();
  json &item = document["cases"][0];
  for (const char *key : {"mask", "sinks"}) {
    item["inputs"].erase(key);
    item["sha256"]["inputs"].erase(key);
  }
  item["params"].erase("q_offsets");
  item["params"].erase("kv_lens");
  item["params"]["scale"] = "default";
  const AttentionCase parsed = parse_attention_cases(document.dump(), "attention.json").at(0);
  CHECK_FALSE(parsed.mask.has_value());
  CHECK_FALSE(parsed.sinks.has_value());
  CHECK_FALSE(parsed.params.q_offsets.has_value());
  CHECK_FALSE(parsed.params.kv_lens.has_value());
  CHECK_FALSE(parsed.params.scale_bits.has_value());
}

TEST_CASE("every optional field of an attention case arrives") {
  const std::vector<AttentionCase> cases = parse_attention_cases(full_document().dump(), "attention.json");
  REQUIRE(cases.size() == 1);
  const AttentionCase &item = cases[0];
  CHECK(item.params.softcap_bits == 0x42480000u);
  CHECK(item.params.q_starts == std::vector<std::int64_t>{0, 2, 5});
  CHECK(item.params.kv_starts == std::vector<std::int64_t>{3, 133, 193});
  CHECK(item.params.resume == std::vector<std::int64_t>{64, 128});
  CHECK(item.q.storage == Storage::kFloat32);
  CHECK(item.k.storage == Storage::kBfloat16);
  CHECK(item.v.storage == Storage::kFloat16);
  CHECK(item.v.input.bits == 0x8000u);
  CHECK(item.k.input.set.at(0).bits == 0x7fc1u);
  CHECK(item.q.shape == std::vector<std::int64_t>{1, 6, 5, 4});
  CHECK(item.k.shape == std::vector<std::int64_t>{1, 3, 200, 4});
  CHECK(item.v.shape == std::vector<std::int64_t>{1, 3, 200, 3});
  CHECK(out_shape(item.params) == std::vector<std::int64_t>{1, 6, 5, 3});
  CHECK(lse_shape(item.params) == std::vector<std::int64_t>{1, 6, 5});
  REQUIRE(item.mask_bool.has_value());
  CHECK(item.mask_bool->storage == Storage::kByte);
  CHECK(item.mask_bool->input.kind == InputKind::kVisible);
  CHECK(item.mask_bool->input.per_256 == 200);
  CHECK(item.mask_bool->shape == std::vector<std::int64_t>{1, 1, 5, 130});
  CHECK(item.mask_bool->input.set.at(0).bits == 0xffu);
  REQUIRE(item.alibi.has_value());
  CHECK(item.alibi->shape == std::vector<std::int64_t>{6});
  CHECK(item.exact.states == std::vector<std::string>{std::string(64, '5'), std::string(64, '6')});
  CHECK(item.fast.states == std::vector<std::string>{std::string(64, '7'), std::string(64, '8')});
  CHECK(rows_of(item.params, 0) == 2);
  CHECK(rows_of(item.params, 1) == 3);
  CHECK(keys_of(item.params, 0) == 130);
  CHECK(keys_of(item.params, 1) == 60);
  CHECK(most_keys(item.params) == 130);

  json document = full_document();
  json &params = document["cases"][0]["params"];
  params.erase("kv_starts");
  params["page_size"] = 48;
  json &inputs = document["cases"][0]["inputs"];
  inputs["k"].erase("set");
  inputs["mask"]["shape"] = {1, 6, 1, 200};
  inputs["mask_bool"]["shape"] = {1, 1, 5, 1};
  const AttentionCase paged = parse_attention_cases(document.dump(), "attention.json").at(0);
  CHECK(paged.params.page_size == 48);
  CHECK(paged.k.shape == std::vector<std::int64_t>{2, 3, 200, 4});
  CHECK(most_keys(paged.params) == 200);
}

TEST_CASE("optional fields that do not fit are refused") {
  const auto params = [](const char *key, const json &value) {
    return full_changed([&](json &item) { item["params"][key] = value; });
  };
  CHECK(full_changed([](json &) {}) == "no error");
  for (const char *bits : {"00000000", "80000000", "7f800000", "7fc00000", "bf800000"}) {
    CHECK(contains(params("softcap", bits), "\"softcap\" must be the bits of a finite number above 0"));
  }
  CHECK(contains(params("softcap", 50), "\"softcap\" must be a string"));
  for (const json &starts : {json::array(), json({0, 5}), json({0, 1, 2, 5}), json({0, 4, 3})}) {
    CHECK(contains(params("q_starts", starts), "\"q_starts\" must hold batch + 1 numbers"));
  }
  CHECK(contains(params("q_starts", {0, 2, 4}), "must begin with 0 and end with q_len"));
  CHECK(contains(params("q_starts", {1, 2, 5}), "must begin with 0 and end with q_len"));
  CHECK(contains(params("q_starts", {0, 2, 6}), "\"q_starts\" must be an integer from 0 to 5"));
  CHECK(contains(params("kv_starts", {0, 100}), "\"kv_starts\" must hold batch + 1 numbers"));
  CHECK(contains(params("kv_starts", {0, 100, 99}), "none less than the one before it"));
  CHECK(contains(params("kv_starts", {0, 100, 201}), "\"kv_starts\" must be an integer from 0 to 200"));
  CHECK(contains(params("kv_lens", {100, 61}), "must not be more than the keys of their sequences"));
  CHECK(contains(params("page_size", 16), "\"page_size\" and \"kv_starts\" exclude each other"));
  CHECK(contains(params("page_size", 0), "\"page_size\" must be an integer from 1"));
  for (const json &edges : {json::array(), json({64, 64}), json({128, 64}), json({64, 100}), json({192})}) {
    CHECK(contains(params("resume", edges), "\"resume\" must hold multiples of 64"));
  }
  CHECK(contains(params("resume", {0, 64}), "\"resume\" must be an integer from 64"));
  CHECK(contains(params("resume", 64), "\"resume\" must be a list of integers"));
  CHECK(contains(params("storage", json::object()), "must name at least one of"));
  CHECK(contains(params("storage", {{"k", "f32"}}), "\"k\" must be \"bf16\" or \"f16\""));
  CHECK(contains(params("storage", {{"mask", "bf16"}}), "unknown key \"mask\""));
  CHECK(contains(params("storage", "bf16"), "storage: must be an object"));
  CHECK(contains(params("kv_offset", 64), "unknown key \"kv_offset\""));

  const auto input = [](const char *name, const json &value) {
    return full_changed([&](json &item) { item["inputs"][name] = value; });
  };
  const json visible = {{"kind", "visible"}, {"seed", 3}, {"per_256", 200}};
  const auto bytes = [&](const char *key, const json &value) {
    json changed_input = visible;
    changed_input["shape"] = {1, 1, 5, 130};
    changed_input[key] = value;
    return input("mask_bool", changed_input);
  };
  CHECK(contains(input("mask_bool", visible), "\"mask_bool\" must have a \"shape\""));
  CHECK(contains(bytes("shape", {2, 1, 5, 130}), "\"shape\" must hold"));
  CHECK(contains(bytes("shape", {1, 1, 5, 200}), "\"shape\" must hold"));
  CHECK(contains(bytes("per_256", 257), "\"per_256\" must be an integer from 0 to 256"));
  CHECK(contains(bytes("bits", "01"), "unknown key \"bits\""));
  CHECK(contains(bytes("kind", "normal"), "unknown key \"per_256\""));
  CHECK(contains(input("mask_bool", {{"kind", "normal"}, {"seed", 3}, {"shape", {1, 1, 5, 130}}}), "bytes are never"));
  CHECK(contains(input("mask_bool", {{"kind", "constant"}, {"bits", "00000001"}, {"shape", {1, 1, 5, 130}}}),
                 "\"bits\" must be 2 lower-case hex digits"));
  CHECK(contains(input("alibi", visible), "the kind \"visible\" is for bytes"));
  CHECK(contains(input("alibi", {{"kind", "normal"}, {"seed", 3}, {"shape", {6}}}), "none of its own"));
  CHECK(contains(input("v", {{"kind", "constant"}, {"bits", "80000000"}}), "\"bits\" must be 4 lower-case hex digits"));
  CHECK(contains(input("q", {{"kind", "constant"}, {"bits", "8000"}}), "\"bits\" must be 8 lower-case hex digits"));
  CHECK(contains(input("v", {{"kind", "normal"}, {"seed", 1}, {"scale_exponent", 25}}), "binary16 is outside 1 to 24"));

  for (const char *key : {"mask_bool", "alibi"}) {
    CHECK(contains(full_changed([&](json &item) { item["sha256"]["inputs"].erase(key); }), "is missing"));
    CHECK(contains(full_changed([&](json &item) { item["inputs"].erase(key); }), "unknown key"));
  }
  CHECK(contains(full_changed([](json &item) { item["sha256"]["fast"].erase("states"); }), "\"states\" is missing"));
  for (const json &states : {json::array(), json({kHash}), json({kHash, "a"}), json({kHash, 1}), json(kHash)}) {
    CHECK(contains(full_changed([&](json &item) { item["sha256"]["exact"]["states"] = states; }),
                   "\"states\" must be a list of 2 hashes"));
  }
  CHECK(contains(full_changed([](json &item) { item["params"].erase("resume"); }), "unknown key \"states\""));
}

TEST_CASE("a softmax case") {
  const std::vector<SoftmaxCase> cases = parse_softmax_cases(softmax_document().dump(), "softmax.json");
  REQUIRE(cases.size() == 1);
  CHECK(cases[0].x.shape == std::vector<std::int64_t>{3, 0});
  CHECK(cases[0].tier == Tier::kQuick);
}

TEST_CASE("errors name the file and the case") {
  const std::string error = changed([](json &item) { item["params"]["extra"] = 1; });
  CHECK(error == "attention.json: case first: params: unknown key \"extra\"");
}

TEST_CASE("an unknown key is refused at every level") {
  CHECK(contains(changed([](json &item) { item["extra"] = 1; }), "unknown key \"extra\""));
  CHECK(contains(changed([](json &item) { item["inputs"]["extra"] = 1; }), "unknown key \"extra\""));
  CHECK(contains(changed([](json &item) { item["inputs"]["q"]["extra"] = 1; }), "unknown key \"extra\""));
  CHECK(contains(changed([](json &item) { item["inputs"]["mask"]["set"][0]["extra"] = 1; }), "unknown key"));
  CHECK(contains(changed([](json &item) { item["sha256"]["extra"] = kHash; }), "unknown key \"extra\""));
  CHECK(contains(changed([](json &item) { item["sha256"]["inputs"]["extra"] = kHash; }), "unknown key"));
  CHECK(contains(changed([](json &item) { item["sha256"]["exact"]["extra"] = kHash; }), "unknown key"));
  json document = attention_document();
  document["extra"] = 1;
  CHECK(contains(attention_error(document), "unknown key \"extra\""));
}

TEST_CASE("a missing key is refused, hashes above all") {
  for (const char *key : {"id", "guards", "tier", "params", "inputs", "sha256"}) {
    CHECK(contains(changed([&](json &item) { item.erase(key); }), std::string("\"") + key + "\" is missing"));
  }
  for (const char *key : {"batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "value_dim", "scale", "causal",
                          "window", "q_offset", "fully_masked"}) {
    CHECK(contains(changed([&](json &item) { item["params"].erase(key); }), "is missing"));
  }
  for (const char *key : {"q", "k", "v", "mask", "sinks"}) {
    CHECK(contains(changed([&](json &item) { item["sha256"]["inputs"].erase(key); }), "is missing"));
  }
  for (const char *flavour : {"exact", "fast"}) {
    CHECK(contains(changed([&](json &item) { item["sha256"].erase(flavour); }), "is missing"));
    for (const char *key : {"out", "lse"}) {
      CHECK(contains(changed([&](json &item) { item["sha256"][flavour].erase(key); }), "is missing"));
    }
  }
}

TEST_CASE("values of the wrong type or out of range are refused") {
  const auto params = [](const char *key, const json &value) {
    return changed([&](json &item) { item["params"][key] = value; });
  };
  for (const json &value : {json(-1), json(1.0), json("2"), json(true), json(nullptr), json(2147483648)}) {
    CHECK(contains(params("q_len", value), "\"q_len\" must be an integer"));
  }
  CHECK(contains(params("window", std::uint64_t{18446744073709551615u}), "\"window\" must be an integer"));
  CHECK(contains(params("head_dim", 0), "\"head_dim\" must be an integer from 1"));
  CHECK(contains(params("kv_heads", 4), "\"heads\" must be a multiple of \"kv_heads\""));
  CHECK(contains(params("q_offsets", {1, 2, 3}), "one number per sequence"));
  CHECK(contains(params("kv_lens", {1}), "one number per sequence"));
  CHECK(contains(params("kv_lens", {1, 8}), "\"kv_lens\" must be an integer from 0 to 7"));
  CHECK(contains(params("scale", "3E800000"), "\"scale\" must be 8 lower-case hex digits"));
  CHECK(contains(params("causal", 1), "\"causal\" must be true or false"));
  CHECK(contains(params("fully_masked", "none"), "must be \"nan\" or \"zero\""));
  CHECK(contains(changed([](json &item) { item["tier"] = "slow"; }), "must be \"quick\" or \"full\""));
  CHECK(contains(changed([](json &item) { item["id"] = "First case"; }), "\"id\" may hold"));
  CHECK(contains(changed([](json &item) { item["guards"] = ""; }), "\"guards\" must be a string"));
  CHECK(contains(changed([](json &item) { item["sha256"]["fast"]["lse"] = std::string(63, 'a'); }), "64 lower-case"));
  CHECK(contains(changed([](json &item) { item["sha256"]["fast"]["lse"] = std::string(64, 'A'); }), "64 lower-case"));
}

TEST_CASE("inputs that cannot be made are refused") {
  const auto input = [](const char *name, const json &value) {
    return changed([&](json &item) { item["inputs"][name] = value; });
  };
  CHECK(contains(input("q", {{"kind", "uniform"}, {"seed", 1}}), "\"kind\" must be"));
  CHECK(contains(input("q", {{"kind", "normal"}}), "\"seed\" is missing"));
  CHECK(contains(input("q", {{"kind", "normal"}, {"seed", 9007199254740992}}), "\"seed\" must be an integer"));
  CHECK(contains(input("q", {{"kind", "bits"}, {"seed", 1}, {"scale_exponent", 3}}), "unknown key"));
  CHECK(contains(input("q", {{"kind", "constant"}, {"bits", "0"}}), "8 lower-case hex digits"));
  CHECK(contains(input("q", {{"kind", "normal"}, {"seed", 1}, {"scale_exponent", 127}}), "\"scale_exponent\""));
  CHECK(contains(input("q", {{"kind", "normal"}, {"seed", 1}, {"shape", {2, 6, 5, 4}}}), "none of its own"));
  CHECK(contains(input("mask", {{"kind", "normal"}, {"seed", 1}}), "must have a \"shape\""));
  CHECK(contains(input("mask", {{"kind", "normal"}, {"seed", 1}, {"shape", {2, 6, 5, 6}}}), "\"shape\" must hold"));
  CHECK(contains(input("mask", {{"kind", "normal"}, {"seed", 1}, {"shape", {5, 7}}}), "\"shape\" must hold"));
  const json outside = {{{"from", {0, 0, 0, 0}}, {"to", {2, 6, 5, 5}}, {"bits", "00000000"}}};
  CHECK(contains(input("q", {{"kind", "normal"}, {"seed", 1}, {"set", outside}}), "is empty or not inside"));
}

TEST_CASE("damaged files are refused") {
  const std::string text = attention_document().dump(1);
  const auto error = [](const std::string &damaged) {
    return error_of([&] { parse_attention_cases(damaged, "attention.json"); });
  };
  CHECK(error(text) == "no error");
  // Cut anywhere: never a file.
  for (std::size_t length = 0; length < text.size(); length += 97) {
    CHECK(contains(error(text.substr(0, length)), "attention.json: not valid JSON"));
  }
  CHECK(contains(error(text + "}"), "not valid JSON"));
  CHECK(contains(error(replaced(text, "\"exattn-1\"", "\"exattn-2\"")), "\"definition\" is \"exattn-2\""));
  CHECK(contains(error(replaced(text, "\"attention\"", "\"softmax\"")), "\"kind\" must be \"attention\""));
  CHECK(contains(error(replaced(text, "\"batch\": 2", "\"batch\": 2, \"batch\": 2")), "\"batch\" occurs twice"));
  CHECK(contains(error("[]"), "must be an object"));

  json document = attention_document();
  document["cases"] = json::array();
  CHECK(contains(attention_error(document), "\"cases\" must be a list that is not empty"));
  document = attention_document();
  document["cases"].push_back(document["cases"][0]);
  CHECK(contains(attention_error(document), "case first: the id occurs twice"));
}

TEST_CASE("a folder of goldens is read only when VERSION and SHA256SUMS agree") {
  const TemporaryFolder folder;
  const std::string attention = attention_document().dump(1);
  const std::string softmax = softmax_document().dump(1);
  const auto error = [&] { return error_of([&] { read_goldens(folder.get()); }); };
  write_goldens(folder.get(), attention, softmax);
  const Goldens goldens = read_goldens(folder.get());
  CHECK(goldens.attention.size() == 1);
  CHECK(goldens.softmax.size() == 1);

  // One digit of one hash: a valid file, but not the one that was summed.
  write_file(folder / "attention.json", replaced(attention, "1111", "1112"));
  CHECK(contains(error(), "attention.json: its SHA-256 is not the one in"));
  write_file(folder / "attention.json", "");
  CHECK(contains(error(), "attention.json: cannot be read, or is empty"));
  std::filesystem::remove(folder / "attention.json");
  CHECK(contains(error(), "attention.json: cannot be read"));

  write_goldens(folder.get(), attention, softmax);
  write_file(folder / "SHA256SUMS", sha256_of(attention) + "  attention.json\n");
  CHECK(contains(error(), "does not list softmax.json"));
  write_file(folder / "SHA256SUMS", "attention.json\n");
  CHECK(contains(error(), "is not \"<64 hex digits>  <file name>\""));
  std::filesystem::remove(folder / "SHA256SUMS");
  CHECK(contains(error(), "SHA256SUMS: cannot be read"));

  write_goldens(folder.get(), attention, softmax);
  write_file(folder / "VERSION", "exattn-2\n");
  CHECK(contains(error(), "VERSION: is not the one line exattn-1; these goldens are of another definition"));
  std::filesystem::remove(folder / "VERSION");
  CHECK(contains(error(), "VERSION: cannot be read"));

  write_goldens(folder.get(), attention, replaced(softmax, "\"rows\",", "\"first\","));
  CHECK(contains(error(), "case first: the id occurs twice"));
}

TEST_CASE("cases in another order are the same cases") {
  json document = attention_document();
  json second = document["cases"][0];
  second["id"] = "second";
  document["cases"].insert(document["cases"].begin(), second);
  const std::vector<AttentionCase> cases = parse_attention_cases(document.dump(), "attention.json");
  REQUIRE(cases.size() == 2);
  CHECK(cases[0].id == "second");
  CHECK(cases[1].id == "first");
}
