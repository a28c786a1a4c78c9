// Implementations that are asked by messages (docs/protocol.md): what is asked, that right answers pass, that wrong
// ones and broken promises are found and told apart, and that nothing of a process stays behind.
#include "conformance/foreign.hpp"
#include "src/program/child_process.hpp"

#include "run_program.hpp"
#include "test_files.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace exattn;
using namespace exattn::conformance;
using exattn::program::ChildProcess;
using exattn::tests::kOneKeyGolden;
using exattn::tests::kStopGolden;
using exattn::tests::kTwoEqualGolden;
using exattn::tests::little_endian;
using exattn::tests::Output;
using exattn::tests::read_file;
using exattn::tests::replaced;
using exattn::tests::run;
using exattn::tests::TemporaryFolder;
using exattn::tests::write_file;
using exattn::tests::write_goldens;
using nlohmann::json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

// ---- Base64 by RFC 4648, for answers and for what is asked

const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64(const std::string &bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t n = 0; n < 3; ++n) {
      group = group << 8 | (at + n < bytes.size() ? static_cast<unsigned char>(bytes[at + n]) : 0u);
    }
    for (std::size_t n = 0; n < 4; ++n) {
      text += n > bytes.size() - at ? '=' : kAlphabet[group >> (18 - 6 * n) & 63u];
    }
  }
  return text;
}

std::string bytes_of(const std::string &text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') {
      break;
    }
    const std::size_t digit = kAlphabet.find(c);
    if (digit == std::string::npos) {
      throw std::invalid_argument("not Base64");
    }
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xFFu);
    }
  }
  return bytes;
}

std::string tensor(const std::vector<float> &values, const std::string &shape) {
  return R"({"dtype": "f32", "shape": )" + shape + R"(, "data": ")" + base64(little_endian(values)) + "\"}";
}

const std::string kGreeting =
    R"({"protocol": "exattn-protocol-1", "name": "an abacus", "version": "3", "flavours": ["exact", "fast"]})";
const std::vector<float> kOneKeyOut = {0.5F, -1.25F, 0.5F, -1.25F, 0.5F, -1.25F, 0.5F, -1.25F};

std::string one_key_answer(int request, const std::vector<float> &out = kOneKeyOut,
                           const std::vector<float> &lse = {6, 6, 6, 6}) {
  return R"({"request": )" + std::to_string(request) + R"(, "outputs": {"out": )" + tensor(out, "[1, 2, 2, 2]") +
         R"(, "lse": )" + tensor(lse, "[1, 2, 2]") + "}}";
}

std::string two_equal_answer(int request) {
  return R"({"request": )" + std::to_string(request) + R"(, "outputs": {"out": )" +
         tensor({0.5F, 0.5F, 0.5F, 0.5F}, "[2, 2]") + "}}";
}

// ---- An implementation in this process: the library, behind messages

// Memory of a tensor in a message, aligned for any element.
struct Memory {
  explicit Memory(const json &message) : Memory(bytes_of(message.at("data").get<std::string>())) {}
  explicit Memory(const std::string &bytes) : words(bytes.size() / 8 + 1) {
    std::memcpy(words.data(), bytes.data(), bytes.size());
  }
  std::vector<std::uint64_t> words;
};

class Abacus {
public:
  std::vector<json> requests;
  std::function<void(json &answer)> change;                           // of every answer to a request
  std::function<std::string(const std::string &, std::size_t)> spoil; // of the answer's text, by its number from 0
  std::string greeting = kGreeting;

  Exchange exchange() {
    return [this](const std::string &line, std::size_t most) {
      std::string text = answer(json::parse(line));
      CHECK(line.find('\n') == std::string::npos);
      CHECK(text.size() <= most);
      return spoil ? spoil(text, answers++) : text;
    };
  }

private:
  std::string answer(const json &message) {
    if (message.contains("protocol")) {
      CHECK(message == json{{"protocol", "exattn-protocol-1"}, {"definition", "exattn-1"}});
      return greeting;
    }
    requests.push_back(message);
    json reply = {{"request", message.at("request")}};
    reply["outputs"] = message.at("operation") == "softmax" ? softmax(message) : attention(message);
    if (change) {
      change(reply);
    }
    return reply.dump();
  }

  const void *keep(const json &message) {
    memory.emplace_back(message);
    return memory.back().words.data();
  }

  // Contiguous, and broadcast along sizes of 1.
  exattn_tensor view(const json &message) {
    static const std::map<std::string, std::int32_t> kTypes = {
        {"f32", EXATTN_F32}, {"f16", EXATTN_F16}, {"bf16", EXATTN_BF16}, {"u8", EXATTN_U8}};
    const auto shape = message.at("shape").get<std::vector<std::int64_t>>();
    REQUIRE(shape.size() == 4);
    exattn_tensor result{keep(message), kTypes.at(message.at("dtype")), 4, {0, 0, 0, 0}};
    std::int64_t step = 1;
    for (std::size_t n = 4; n-- > 0;) {
      result.stride[n] = shape[n] == 1 ? 0 : step;
      step *= shape[n];
    }
    return result;
  }

  static float float_of(const json &bits) {
    const auto word = static_cast<std::uint32_t>(std::stoul(bits.get<std::string>(), nullptr, 16));
    return std::bit_cast<float>(word);
  }

  static json floats(const std::vector<float> &values, const std::vector<std::int64_t> &shape) {
    return {{"dtype", "f32"}, {"shape", shape}, {"data", base64(little_endian(values))}};
  }

  json attention(const json &message) {
    const json &params = message.at("params");
    const json &inputs = message.at("inputs");
    exattn_attention_args args = EXATTN_ATTENTION_ARGS_INIT;
    args.lanes = EXATTN_LANES_SCALAR;
    args.flavour = message.at("flavour") == "fast" ? EXATTN_FAST : EXATTN_EXACT;
    args.batch = params.at("batch"), args.heads = params.at("heads"), args.kv_heads = params.at("kv_heads");
    args.q_len = params.at("q_len"), args.kv_len = params.at("kv_len");
    args.head_dim = params.at("head_dim"), args.value_dim = params.at("value_dim");
    args.causal = params.at("causal") ? 1 : 0;
    args.window = params.at("window"), args.q_offset = params.at("q_offset");
    args.fully_masked = params.at("fully_masked") == "zero" ? EXATTN_FULLY_MASKED_ZERO : EXATTN_FULLY_MASKED_NAN;
    args.kv_offset = params.value("kv_offset", std::int64_t{0});
    if (params.at("scale") != "default") {
      args.scale_mode = EXATTN_SCALE_GIVEN;
      args.scale = float_of(params.at("scale"));
    }
    args.softcap = params.contains("softcap") ? float_of(params.at("softcap")) : 0.0F;
    std::map<std::string, std::vector<std::int64_t>> lists;
    for (const auto &[name, field] : {std::pair{"q_offsets", &args.q_offsets},
                                      {"kv_lens", &args.kv_lens},
                                      {"q_starts", &args.q_starts},
                                      {"kv_starts", &args.kv_starts}}) {
      if (params.contains(name)) {
        lists[name] = params.at(name).get<std::vector<std::int64_t>>();
        lists[name].reserve(1); // also of no sequence it is a list
        *field = lists[name].data();
      }
    }
    memory.clear();
    args.q = view(inputs.at("q"));
    args.k = view(inputs.at("k"));
    args.v = view(inputs.at("v"));
    args.mask = inputs.contains("mask") ? view(inputs.at("mask")) : args.mask;
    args.mask_bool = inputs.contains("mask_bool") ? view(inputs.at("mask_bool")) : args.mask_bool;
    args.sinks = inputs.contains("sinks") ? static_cast<const float *>(keep(inputs.at("sinks"))) : nullptr;
    args.alibi_slopes = inputs.contains("alibi") ? static_cast<const float *>(keep(inputs.at("alibi"))) : nullptr;
    const std::string state = message.contains("state") ? bytes_of(message.at("state").get<std::string>()) : "";
    args.state_in = state.empty() ? nullptr : state.data();
    args.state_in_size = state.size();
    const auto wanted = message.at("outputs").get<std::vector<std::string>>();
    const auto wants = [&](const char *name) { return std::count(wanted.begin(), wanted.end(), name) > 0; };
    const std::int64_t sequences = args.q_starts != nullptr ? 1 : args.batch;
    const auto rows = static_cast<std::size_t>(sequences * args.heads * args.q_len);
    std::vector<float> out(rows * static_cast<std::size_t>(args.value_dim)), lse(rows);
    out.reserve(1), lse.reserve(1);
    const std::int64_t row = args.value_dim, head = std::max<std::int64_t>(args.q_len, 1);
    if (wants("out")) {
      args.out = {out.data(), 0, 4, {args.heads * head * row, head * row, row, 1}};
    }
    if (wants("lse")) {
      args.lse = {lse.data(), 0, 3, {args.heads * head, head, 1, 0}};
    }
    std::size_t size = 0;
    REQUIRE(exattn_attention_state_size(&args, &size) == EXATTN_OK);
    std::string new_state(wants("state") ? size : 0, '\0');
    args.state_out = wants("state") ? new_state.data() : nullptr;
    args.state_out_size = new_state.size();
    std::array<char, 300> why{};
    args.message = why.data();
    args.message_size = why.size();
    const exattn_status status = exattn_attention(&args);
    CAPTURE(why.data());
    REQUIRE(status == EXATTN_OK);
    json outputs;
    if (wants("out")) {
      outputs["out"] = floats(out, {sequences, args.heads, args.q_len, args.value_dim});
    }
    if (wants("lse")) {
      outputs["lse"] = floats(lse, {sequences, args.heads, args.q_len});
    }
    if (wants("state")) {
      outputs["state"] = base64(new_state);
    }
    return outputs;
  }

  json softmax(const json &message) {
    CHECK(message.at("outputs") == json::array({"out"}));
    CHECK(message.at("params").size() == 2);
    const std::int64_t rows = message.at("params").at("rows"), columns = message.at("params").at("columns");
    const json &x = message.at("inputs").at("x");
    CHECK(x.at("dtype") == "f32");
    CHECK(x.at("shape") == json::array({rows, columns}));
    memory.clear();
    std::vector<float> out(static_cast<std::size_t>(rows * columns));
    out.reserve(1);
    exattn_softmax_args args = EXATTN_SOFTMAX_ARGS_INIT;
    args.lanes = EXATTN_LANES_SCALAR;
    args.flavour = message.at("flavour") == "fast" ? EXATTN_FAST : EXATTN_EXACT;
    args.shape[0] = args.shape[1] = 1, args.shape[2] = rows, args.shape[3] = columns;
    const std::int64_t step = std::max<std::int64_t>(columns, 1), all = step * std::max<std::int64_t>(rows, 1);
    args.x = {keep(x), EXATTN_F32, 4, {all, all, step, 1}};
    args.y = {out.data(), 0, 4, {all, all, step, 1}};
    REQUIRE(exattn_softmax(&args) == EXATTN_OK);
    return {{"out", floats(out, {rows, columns})}};
  }

  std::vector<Memory> memory; // of one call
  std::size_t answers = 0;
};

Goldens goldens_of(const std::string &attention) {
  return {parse_attention_cases(attention, "attention.json"), parse_softmax_cases(kTwoEqualGolden, "softmax.json")};
}

Report ask(Abacus &abacus, const Goldens &goldens, const Selection &selection = {}) {
  return run(goldens, selection, foreign_implementation(abacus.exchange()), {});
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

std::string all_problems(const Report &report) {
  std::string text;
  for (const Result &result : report.results) {
    for (const std::string &problem : result.problems) {
      text += problem + "\n";
    }
  }
  return text;
}

// What is said when it throws; "" when it doesn't.
std::string said_by(const std::function<void()> &action) {
  try {
    action();
  } catch (const ForeignError &error) {
    return error.what();
  }
  return "";
}

} // namespace

TEST_CASE("foreign: Base64 of this test, by the vectors of RFC 4648") {
  const std::map<std::string, std::string> vectors = {{"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
                                                      {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"foobar", "Zm9vYmFy"}};
  for (const auto &[bytes, text] : vectors) {
    CHECK(base64(bytes) == text);
    CHECK(bytes_of(text) == bytes);
  }
}

TEST_CASE("foreign: right answers pass, once for each flavour, and reports name the implementation") {
  Abacus abacus;
  const Report report = ask(abacus, goldens_of(kOneKeyGolden));
  CHECK(all_problems(report) == "");
  CHECK(report.ok());
  CHECK(report.cases == 2);
  CHECK(report.passed == 4);
  REQUIRE(report.results.size() == 4);
  CHECK(describe(report.results[0]) == "one-key exact by an abacus");
  CHECK(describe(report.results[3]) == "two-equal fast by an abacus");
  const json document = json::parse(to_json(report));
  CHECK(document["implementation"] == json{{"name", "an abacus"}, {"version", "3"}, {"flavours", {"exact", "fast"}}});
  CHECK_FALSE(document.contains("lanes"));
  CHECK(document["passed"] == 4);
  CHECK(document["not_run"] == 0);
  CHECK(document["cases_left_out"] == 0);
  CHECK(document["results"][0]["implementation"] == "an abacus");
  CHECK(document["results"][0]["flavour"] == "exact");
  for (const char *key : {"lanes", "threads", "packed", "kernel"}) {
    CHECK_FALSE(document["results"][0].contains(key));
  }
  const std::string junit = to_junit(report);
  CHECK(contains(junit, R"(tests="4" failures="0" errors="0" skipped="0")"));
  CHECK(contains(junit, R"(<property name="implementation" value="an abacus"/>)"));
  CHECK(contains(junit, R"(<testcase classname="exattn.exact.an abacus" name="one-key")"));
}

TEST_CASE("foreign: what is asked, word by word") {
  Abacus abacus;
  CHECK(ask(abacus, goldens_of(kOneKeyGolden)).ok());
  REQUIRE(abacus.requests.size() == 4);
  // 2 is 40000000, 3 is 40400000, 0.5 and -1.25 are 3f000000 and bfa00000: bytes from the last.
  CHECK(abacus.requests[1] == json::parse(R"({"request": 2, "operation": "attention", "flavour": "fast",
      "params": {"batch": 1, "heads": 2, "kv_heads": 1, "q_len": 2, "kv_len": 1, "head_dim": 1, "value_dim": 2,
                 "scale": "3f800000", "causal": false, "window": 0, "q_offset": 0, "fully_masked": "nan"},
      "inputs": {"q": {"dtype": "f32", "shape": [1, 2, 2, 1], "data": "AAAAQAAAAEAAAABAAAAAQA=="},
                 "k": {"dtype": "f32", "shape": [1, 1, 1, 1], "data": "AABAQA=="},
                 "v": {"dtype": "f32", "shape": [1, 1, 1, 2], "data": "AAAAPwAAoL8="}},
      "outputs": ["out", "lse"]})"));
  CHECK(abacus.requests[2] == json::parse(R"({"request": 3, "operation": "softmax", "flavour": "exact",
      "params": {"rows": 2, "columns": 2},
      "inputs": {"x": {"dtype": "f32", "shape": [2, 2], "data": "AABAQAAAQEAAAEBAAABAQA=="}}, "outputs": ["out"]})"));
}

TEST_CASE("foreign: a case that stops is two requests without pages") {
  Abacus abacus;
  const Report report = ask(abacus, goldens_of(kStopGolden));
  CHECK(all_problems(report) == "");
  CHECK(report.ok());
  REQUIRE(abacus.requests.size() == 6);
  const json &first = abacus.requests[0], &second = abacus.requests[1];
  CHECK(first["outputs"] == json::array({"state"}));
  CHECK(second["outputs"] == json::array({"out", "lse"}));
  CHECK_FALSE(first.contains("state"));
  CHECK_FALSE(first["params"].contains("kv_offset"));
  CHECK(second["params"]["kv_offset"] == 64);
  for (const json *request : {&first, &second}) {
    const json &params = (*request)["params"], &inputs = (*request)["inputs"];
    CHECK(params["kv_len"] == 64);
    CHECK(params["storage"] == json{{"k", "bf16"}, {"v", "f16"}});
    for (const char *key : {"page_size", "resume", "kv_lens", "q_offsets", "softcap"}) {
      CHECK_FALSE(params.contains(key));
    }
    CHECK(inputs["k"]["dtype"] == "bf16");
    CHECK(inputs["v"]["dtype"] == "f16");
    CHECK(inputs["v"]["shape"] == json::array({1, 1, 64, 2}));
    std::string ones;
    for (int n = 0; n < 128; ++n) {
      ones += std::string("\x00\x3c", 2); // 1 as binary16
    }
    CHECK(bytes_of(inputs["v"]["data"]) == ones);
    CHECK(inputs["mask_bool"]["dtype"] == "u8");
    CHECK(inputs["mask_bool"]["shape"] == json::array({1, 1, 1, 64}));
    CHECK(bytes_of(inputs["mask_bool"]["data"]) == std::string(64, '\x02'));
  }
  const std::string state = bytes_of(second["state"]);
  CHECK(sha256_of(state) == "119a093685aeb45d59a4811b0a2532d379b273005c44d511e15f3746556be9ce"); // the golden's
}

TEST_CASE("foreign: inputs of golden cases arrive as they are hashed, and the cases pass") {
  const Goldens goldens = read_goldens(EXATTN_GOLDEN_DIR);
  std::map<std::string, const AttentionCase *> cases;
  for (const AttentionCase &item : goldens.attention) {
    cases[item.id] = &item;
  }
  Abacus abacus;
  const Implementation implementation = foreign_implementation(abacus.exchange());
  Selection selection;
  selection.tier = Tier::kQuick;
  selection.max_work = 100'000;
  std::size_t inputs_seen = 0, pages_seen = 0, resumed = 0;
  const Observer observer{[&](std::size_t, std::size_t, const Result &) { abacus.requests.clear(); },
                          [&](const Result &result) {
                            const auto found = cases.find(result.id);
                            if (found == cases.end()) {
                              return;
                            }
                            const AttentionCase &item = *found->second;
                            CAPTURE(item.id);
                            CHECK(abacus.requests.size() == item.params.resume.size() + 1);
                            resumed += item.params.resume.empty() ? 0u : 1u;
                            if (!item.params.resume.empty() || abacus.requests.empty()) {
                              return;
                            }
                            pages_seen += item.params.page_size ? 1u : 0u;
                            const json &inputs = abacus.requests[0]["inputs"];
                            std::size_t count = 0;
                            const auto check = [&](const char *name, const CaseTensor &expected) {
                              CAPTURE(name);
                              ++count;
                              REQUIRE(inputs.contains(name));
                              CHECK(sha256_of(bytes_of(inputs[name]["data"])) == expected.sha256);
                              if (inputs[name]["data"] != "") {
                                CHECK(inputs[name]["shape"] == json(expected.shape));
                              }
                            };
                            check("q", item.q), check("k", item.k), check("v", item.v);
                            for (const auto &[name, optional] : {std::pair{"mask", &item.mask},
                                                                 {"mask_bool", &item.mask_bool},
                                                                 {"sinks", &item.sinks},
                                                                 {"alibi", &item.alibi}}) {
                              if (*optional) {
                                check(name, **optional);
                              }
                            }
                            CHECK(inputs.size() == count);
                            inputs_seen += count;
                          }};
  const Report report = run(goldens, selection, implementation, observer);
  CHECK(all_problems(report) == "");
  CHECK(report.ok());
  CHECK(inputs_seen > 300);
  CHECK(pages_seen > 5);
  CHECK(resumed > 10);
  std::size_t quick = 0;
  for (const AttentionCase &item : goldens.attention) {
    quick += item.tier == Tier::kQuick ? 1u : 0u;
  }
  for (const SoftmaxCase &item : goldens.softmax) {
    quick += item.tier == Tier::kQuick ? 1u : 0u;
  }
  CHECK(report.left_out > 0);
  CHECK(report.cases + report.left_out == quick);
  CHECK(report.passed == 2 * report.cases);
}

TEST_CASE("foreign: one flipped bit of any output is found and located") {
  const auto flip = [](json &data, std::size_t byte, int bit) {
    std::string bytes = bytes_of(data.get<std::string>());
    bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
    data = base64(bytes);
  };
  Abacus out;
  out.change = [&](json &answer) { // element [0, 1, 0, 1] of [1, 2, 2, 2]
    if (answer["outputs"].contains("lse")) {
      flip(answer["outputs"]["out"]["data"], 4 * 5, 0);
    }
  };
  const Report report = ask(out, goldens_of(kOneKeyGolden));
  CHECK(report.failed == 2);
  CHECK(report.passed == 2);
  CHECK(contains(all_problems(report), "out[b 0, h 1, row 0, column 1] is bfa00001"));
  CHECK(contains(all_problems(report), "the oracle has bfa00000 (-1.25); 1 element differs"));
  CHECK(json::parse(to_json(report))["failures"] ==
        json::array({"one-key exact by an abacus", "one-key fast by an abacus"}));
  CHECK(contains(to_junit(report), R"(tests="4" failures="2")"));

  Abacus lse;
  lse.change = [&](json &answer) {
    if (answer["outputs"].contains("lse")) {
      flip(answer["outputs"]["lse"]["data"], 4 * 3 + 3, 7); // 6 becomes -6
    }
  };
  CHECK(contains(all_problems(ask(lse, goldens_of(kOneKeyGolden))), "lse[b 0, h 1, row 1] is c0c00000 (-6)"));

  Abacus state;
  state.change = [&](json &answer) {
    if (answer["outputs"].contains("state")) {
      flip(answer["outputs"]["state"], 90, 4); // acc[1], from 64 (42800000) to 72
    }
  };
  const Report stopped = ask(state, goldens_of(kStopGolden));
  CHECK(stopped.failed == 2);
  CHECK(contains(all_problems(stopped), "state 64[byte 90] is 90, the oracle has 80; 1 byte differs"));

  Abacus softmax;
  softmax.change = [&](json &answer) {
    if (!answer["outputs"].contains("lse")) {
      flip(answer["outputs"]["out"]["data"], 4 * 2, 1);
    }
  };
  const Report rows = ask(softmax, goldens_of(kOneKeyGolden));
  CHECK(rows.failed == 2);
  CHECK(contains(all_problems(rows), "out[row 1, column 0] is 3f000002"));
}

TEST_CASE("foreign: an answer that is not as the protocol says ends the run, and says why") {
  const auto said = [](const std::string &golden, const std::function<std::string(const std::string &)> &change) {
    Abacus abacus;
    abacus.spoil = [&](const std::string &text, std::size_t number) { return number == 1 ? change(text) : text; };
    return said_by([&]() { ask(abacus, goldens_of(golden)); });
  };
  const auto edited = [&](const std::string &golden, const std::function<void(json &)> &edit) {
    return said(golden, [&](const std::string &text) {
      json answer = json::parse(text);
      edit(answer);
      return answer.dump();
    });
  };
  const auto one_key = [&](const std::function<void(json &)> &edit) { return edited(kOneKeyGolden, edit); };
  const auto out_data = [&](const std::string &data) {
    return one_key([&](json &answer) { answer["outputs"]["out"]["data"] = data; });
  };
  const std::string where = "one-key exact by an abacus: the answer to request 1";
  struct Broken {
    std::string got, wanted;
  };
  const std::string out = base64(little_endian(kOneKeyOut)); // 44 characters, with one of padding
  const std::vector<Broken> broken = {
      {said(kOneKeyGolden, [](const std::string &) { return ""; }), where + ": not valid JSON"},
      {said(kOneKeyGolden, [](const std::string &text) { return text.substr(0, 40); }), where + ": not valid JSON"},
      {said(kOneKeyGolden, [](const std::string &text) { return text + "{}"; }), where + ": not valid JSON"},
      {said(kOneKeyGolden, [](const std::string &) { return "[1]"; }), where + ": must be an object"},
      {said(kOneKeyGolden, [](const std::string &text) { return replaced(text, "{", R"({"request": 1, )"); }),
       "key \"request\" occurs twice"},
      {said(kOneKeyGolden, [](const std::string &text) { return replaced(text, "f32", "f3\xff"); }),
       where + ": not valid JSON"},
      {one_key([](json &a) { a.erase("request"); }), where + ": \"request\" is missing"},
      {one_key([](json &a) { a["request"] = 2; }), where + ": \"request\" must be 1, and is 2"},
      {one_key([](json &a) { a["request"] = 1.0; }), "\"request\" must be 1, and is 1.0"},
      {one_key([](json &a) { a["request"] = "1"; }), "\"request\" must be 1, and is \"1\""},
      {one_key([](json &a) { a["time"] = 3; }), where + ": unknown key \"time\""},
      {one_key([](json &a) { a.erase("outputs"); }), where + ": \"outputs\" is missing"},
      {one_key([](json &a) { a["outputs"] = 7; }), where + ": outputs: must be an object"},
      {one_key([](json &a) { a["outputs"].erase("lse"); }), where + ": outputs: \"lse\" is missing"},
      {one_key([](json &a) { a["outputs"]["state"] = ""; }), where + ": outputs: unknown key \"state\""},
      {one_key([](json &a) { a["outputs"]["out"]["order"] = "C"; }), ": outputs: out: unknown key \"order\""},
      {one_key([](json &a) { a["outputs"]["out"].erase("dtype"); }), ": out: \"dtype\" is missing"},
      {one_key([](json &a) { a["outputs"]["out"]["dtype"] = "f64"; }), ": out: \"dtype\" must be \"f32\""},
      {one_key([](json &a) {
         a["outputs"]["lse"]["shape"] = {1, 4};
       }),
       ": lse: \"shape\" must be [1,2,2], and is [1,4]"},
      {one_key([](json &a) { a["outputs"]["lse"]["shape"] = "[1,2,2]"; }), ": lse: \"shape\" must be [1,2,2], and is"},
      {one_key([](json &a) { a["outputs"]["out"]["data"] = 5; }), ": out: \"data\" must be a string"},
      {one_key([](json &a) { a["unsupported"] = "sums"; }), where + ": unknown key \"outputs\""},
      {one_key([](json &a) {
         a = {{"request", 1}, {"unsupported", 1}};
       }),
       "\"unsupported\" must be a string"},
      {one_key([](json &a) {
         a = {{"request", 2}, {"unsupported", "sums"}};
       }),
       "\"request\" must be 1, and is 2"},
      {out_data(""), "\"data\" must be the Base64 of 32 bytes, 44 characters with their padding; it has 0"},
      {out_data(base64(std::string(28, '\0'))), "44 characters with their padding; it has 40"},
      {out_data(base64(std::string(33, '\0'))), "must be the Base64 of 32 bytes, 44 characters with their padding; it "
                                                "has 44, but they are not Base64, or not in its one form"},
      {out_data(out.substr(0, 43)), "it has 43"},
      {out_data(replaced(out, "A", "-")), "they are not Base64"},
      {out_data(replaced(out, "A", " ")), "they are not Base64"},
      {out_data(" " + out.substr(0, 42) + "="), "they are not Base64"},
      {out_data(out.substr(0, 42) + "=="), "they are not Base64"}, // a byte short
      // The last group holds two bytes, a0bf: 16 bits and two zeros, "oL8". With a one in their place it is "oL9".
      {out_data(replaced(out, "oL8=", "oL9=")), "not in its one form"},
      {edited(kStopGolden, [](json &a) { a["outputs"]["state"] = base64(std::string(91, 'x')); }),
       "stop exact by an abacus: the answer to request 1: outputs: \"state\" must be the Base64 of 92 bytes"},
  };
  for (std::size_t n = 0; n < broken.size(); ++n) {
    CAPTURE(n);
    CAPTURE(broken[n].got);
    CAPTURE(broken[n].wanted);
    CHECK(broken[n].got != "");
    CHECK(contains(broken[n].got, broken[n].wanted));
  }
}

TEST_CASE("foreign: a first answer that is not as the protocol says") {
  const auto said = [](const std::function<void(json &)> &edit) {
    Abacus abacus;
    json greeting = json::parse(kGreeting);
    edit(greeting);
    abacus.greeting = greeting.dump();
    return said_by([&]() { foreign_implementation(abacus.exchange()); });
  };
  const std::string where = "the answer to the first message: ";
  CHECK(said([](json &) {}) == "");
  CHECK(said([](json &a) { a["protocol"] = "exattn-protocol-2"; }) ==
        where + "\"protocol\" is \"exattn-protocol-2\", this program speaks \"exattn-protocol-1\"");
  CHECK(said([](json &a) { a["name"] = ""; }) == where + "\"name\" must be a string that is not empty");
  CHECK(said([](json &a) { a["version"] = ""; }) == "");
  CHECK(said([](json &a) { a["version"] = 1; }) == where + "\"version\" must be a string");
  CHECK(said([](json &a) { a["language"] = "C"; }) == where + "unknown key \"language\"");
  CHECK(said([](json &a) { a.erase("flavours"); }) == where + "\"flavours\" is missing");
  const std::string flavours = where + R"("flavours" must be a list of "exact", "fast" or both)";
  for (const json &wrong : {json::array(), json("exact"), json::array({"exact", "exact"}), json::array({"exact", 1}),
                            json::array({"vanilla"}), json::object()}) {
    CAPTURE(wrong.dump());
    CHECK(said([&](json &a) { a["flavours"] = wrong; }) == flavours);
  }
}

TEST_CASE("foreign: what is unsupported fails, or counts as not run") {
  Abacus abacus;
  abacus.change = [](json &answer) {
    if (answer["outputs"].contains("state")) { // the first of two requests
      answer = {{"request", answer["request"]}, {"unsupported", "no states"}};
    }
  };
  const Report failed = ask(abacus, goldens_of(kStopGolden));
  CHECK_FALSE(failed.ok());
  CHECK(failed.failed == 2);
  CHECK(failed.unsupported == 0);
  CHECK(failed.passed == 2);
  CHECK(contains(all_problems(failed), "unsupported: no states"));

  Selection selection;
  selection.allow_unsupported = true;
  const Report allowed = ask(abacus, goldens_of(kStopGolden), selection);
  CHECK(allowed.ok());
  CHECK(allowed.failed == 0);
  CHECK(allowed.unsupported == 2);
  CHECK(allowed.passed == 2);
  CHECK_FALSE(allowed.results[0].passed);
  CHECK_FALSE(allowed.results[0].failed());
  const json document = json::parse(to_json(allowed));
  CHECK(document["passed"] == 2);
  CHECK(document["failed"] == 0);
  CHECK(document["not_run"] == 2);
  CHECK(document["failures"].empty());
  CHECK(document["results"][0]["passed"] == false);
  CHECK(document["results"][0]["not_run"] == "unsupported: no states");
  const std::string junit = to_junit(allowed);
  CHECK(contains(junit, R"(tests="4" failures="0" errors="0" skipped="2")"));
  CHECK(contains(junit, R"(<skipped message="unsupported: no states"/>)"));

  // Nothing but unsupported cases is no run.
  selection.matches = [](const std::string &id) { return id == "stop"; };
  const Report nothing = ask(abacus, goldens_of(kStopGolden), selection);
  CHECK_FALSE(nothing.ok());
  CHECK(nothing.passed == 0);
  CHECK(nothing.failures ==
        std::vector<std::string>{"nothing was executed: the implementation supports no case that was asked of it"});

  // An error is a failure in any case. Reports show reasons without what would garble a terminal, or XML.
  abacus.change = [](json &answer) {
    answer = {{"request", answer["request"]}, {"error", "out of beads\n\x1b[31m" + std::string(1000, 'x')}};
  };
  const Report errors = ask(abacus, goldens_of(kStopGolden), selection);
  CHECK(errors.failed == 2);
  CHECK(errors.unsupported == 0);
  CHECK(contains(all_problems(errors), "error: out of beads  [31mxxx"));
  CHECK(contains(all_problems(errors), "xxx...\n"));
  CHECK(all_problems(errors).size() < 1000);
}

TEST_CASE("foreign: cases of more work than wanted are left out and counted") {
  // Of one-key 2 rows, 1 key, 2 heads, 1 + 2 columns; of two-equal 4 elements; of stop 128 keys, 1 + 2 columns.
  struct Expected {
    std::int64_t most;
    std::size_t cases, left_out;
  };
  const auto check = [](const std::string &golden, const std::vector<Expected> &expected) {
    for (const Expected &wanted : expected) {
      CAPTURE(wanted.most);
      Abacus abacus;
      Selection selection;
      selection.max_work = wanted.most;
      const Report report = ask(abacus, goldens_of(golden), selection);
      CHECK(report.cases == wanted.cases);
      CHECK(report.left_out == wanted.left_out);
      CHECK(report.passed == 2 * wanted.cases);
      CHECK(report.ok() == (wanted.cases > 0));
      CHECK(json::parse(to_json(report))["cases_left_out"] == wanted.left_out);
      CHECK(json::parse(to_json(report))["max_work"] == wanted.most);
      CHECK(contains(to_junit(report), "\"cases left out\" value=\"" + std::to_string(wanted.left_out) + "\""));
      if (wanted.cases == 0) {
        CHECK(report.failures ==
              std::vector<std::string>{"nothing was executed: every case that matches was left out as too much work"});
      }
    }
  };
  check(kOneKeyGolden, {{12, 2, 0}, {11, 1, 1}, {4, 1, 1}, {3, 0, 2}});
  check(kStopGolden, {{384, 2, 0}, {383, 1, 1}});
}

TEST_CASE("foreign: flavours are those that it has, and one that was asked for is not dropped") {
  Abacus abacus;
  abacus.greeting = replaced(kGreeting, R"("exact", "fast")", R"("fast")");
  const Report report = ask(abacus, goldens_of(kOneKeyGolden));
  CHECK(report.ok());
  CHECK(report.passed == 2);
  for (const Result &result : report.results) {
    CHECK(result.flavour == EXATTN_FAST);
  }
  Selection selection;
  selection.flavours = {EXATTN_EXACT};
  CHECK_THROWS_WITH_AS(ask(abacus, goldens_of(kOneKeyGolden), selection), "\"an abacus\" has no exact flavour",
                       SelectionError);
  selection.flavours = {EXATTN_FAST};
  CHECK(ask(abacus, goldens_of(kOneKeyGolden), selection).passed == 2);
}

// ---- Processes

namespace {

constexpr milliseconds kLong{20'000};

// A pipe that every process started while it is open on this side inherits: it ends when the last of them has.
class Lifeline {
public:
  Lifeline() { REQUIRE(pipe(ends.data()) == 0); }
  ~Lifeline() {
    let_go();
    close(ends[0]);
  }
  Lifeline(const Lifeline &) = delete;
  Lifeline &operator=(const Lifeline &) = delete;

  void let_go() {
    if (ends[1] >= 0) {
      close(ends[1]);
      ends[1] = -1;
    }
  }

  // Whether all that hold it are gone, now or within the time.
  bool gone(milliseconds time = kLong) {
    let_go();
    pollfd file = {ends[0], POLLIN, 0};
    return poll(&file, 1, static_cast<int>(time.count())) == 1 && (file.revents & POLLHUP) != 0;
  }

private:
  std::array<int, 2> ends{};
};

std::string said_by_child(const std::string &command, const std::string &line = "hello", milliseconds timeout = kLong) {
  Lifeline lifeline;
  const std::string said = said_by([&]() { ChildProcess(command, timeout).exchange(line, 100); });
  CHECK(lifeline.gone());
  return said;
}

} // namespace

TEST_CASE("child process: lines go both ways, also such as fill every pipe") {
  Lifeline lifeline;
  ChildProcess child("cat", kLong);
  lifeline.let_go();
  CHECK(child.exchange("hello", 100) == "hello");
  CHECK(child.exchange("", 0) == "");
  const std::string longer(5'000'000, 'x');
  CHECK(child.exchange(longer, longer.size()) == longer);
  CHECK_FALSE(lifeline.gone(milliseconds(0)));
  child.finish();
  CHECK(lifeline.gone());
}

TEST_CASE("child process: one that ends, closes its output, floods or says too much") {
  CHECK(said_by_child("exit 3") == "no answer: the implementation ended with exit code 3");
  CHECK(said_by_child("read -r line; exit 0") == "no answer: the implementation ended with exit code 0");
  CHECK(said_by_child("no-such-command-here 2> /dev/null") == "no answer: the implementation ended with exit code 127");
  CHECK(said_by_child("kill -9 $$") == "no answer: the implementation was ended by signal 9");
  CHECK(said_by_child("exec >&-; sleep 60") == "no answer: the implementation has closed its standard output");
  CHECK(said_by_child("printf half; exit 0") == "no answer: the implementation ended with exit code 0");
  CHECK(said_by_child("printf 'one\\ntwo\\n'") == "the answer has more than one line");
  const std::string flood = "the answer has more than 100 bytes, which is too long for a right one";
  CHECK(said_by_child("cat /dev/zero") == flood); // without end, and without a line feed
  CHECK(said_by_child("cat", std::string(101, 'x')) == flood);
  CHECK(said_by_child("cat", std::string(100, 'x')) == "");
  // Its end is not ours, though there is nobody to write to (SIGPIPE).
  CHECK(said_by_child("exit 3", std::string(5'000'000, 'x')) == "no answer: the implementation ended with exit code 3");
  CHECK(said_by_child("echo early; sleep 60", std::string(5'000'000, 'x')) ==
        "the answer came before all of the message was read");
}

TEST_CASE("child process: one that says nothing is ended, with all that it has started") {
  const auto start = Clock::now();
  CHECK(said_by_child("sleep 600", "hello", milliseconds(300)) == "no answer within 300 milliseconds");
  CHECK(said_by_child("sleep 600 & sleep 600 & wait", "hello", milliseconds(300)) ==
        "no answer within 300 milliseconds");
  CHECK(said_by_child("trap '' TERM INT HUP; while :; do sleep 1; done", "hello", milliseconds(1000)) ==
        "no answer within 1 second");
  CHECK(said_by_child("while :; do printf .; sleep 0.1; done", "hello", milliseconds(300)) ==
        "no answer within 300 milliseconds");
  CHECK(Clock::now() - start > milliseconds(1900));
}

TEST_CASE("child process: the end is exit code 0 and nothing more to say") {
  const auto said = [](const std::string &command, milliseconds timeout = kLong) {
    Lifeline lifeline;
    const std::string text = said_by([&]() {
      ChildProcess child(command, timeout);
      CHECK(child.exchange("hello", 100) == "hello");
      child.finish();
    });
    CHECK(lifeline.gone());
    return text;
  };
  const std::string echo = "read -r line; echo \"$line\"; read -r line; ";
  CHECK(said(echo + "exit 0") == "");
  CHECK(said(echo + "exit 4") ==
        "the implementation ended with exit code 4 after its standard input was closed; 0 is asked for");
  CHECK(said(echo + "echo bye") == "the implementation has written more after its last answer");
  CHECK(said(echo + "cat /dev/zero") == "the implementation has written more after its last answer");
  CHECK(said(echo + "sleep 600", milliseconds(500)) ==
        "the implementation has not ended within 500 milliseconds after its standard input was closed");
  CHECK(said(echo + "sleep 600 > /dev/null & cat") == ""); // what it leaves behind is ended
}

// ---- The program

namespace {

// A shell script that gives these answers, one for each line that it reads.
void write_script(const TemporaryFolder &folder, const std::vector<std::string> &answers) {
  std::string script = "echo 'to whom it may concern' >&2\n";
  for (const std::string &answer : answers) {
    script += "read -r line || exit 5\necho '" + answer + "'\n";
  }
  write_file(folder / "abacus.sh", script + "read -r line && exit 6\nexit 0\n");
}

const std::string kConformance = "conformance --golden . --implementation 'sh abacus.sh' --timeout 20 ";
const std::vector<std::string> kRight = {kGreeting, one_key_answer(1), one_key_answer(2), two_equal_answer(3),
                                         two_equal_answer(4)};

std::vector<std::string> with(std::size_t place, const std::string &answer) {
  std::vector<std::string> answers = kRight;
  answers[place] = answer;
  return answers;
}

Output run_with(const TemporaryFolder &folder, const std::vector<std::string> &answers,
                const std::string &options = "") {
  write_script(folder, answers);
  return run(folder, kConformance + options);
}

// The last lines of a text.
std::string tail(const std::string &text, int lines) {
  std::size_t at = text.size() - (text.empty() ? 0 : 1);
  for (; lines > 0 && at != std::string::npos; --lines) {
    at = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  }
  return at == std::string::npos ? text : text.substr(at + 1);
}

} // namespace

TEST_CASE("conformance of another implementation: it passes, and is shown") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  const Output output = run_with(folder, kRight, "--json r.json --junit r.xml");
  CAPTURE(output.out);
  CHECK(output.exit_code == 0);
  CHECK(output.err == "to whom it may concern\n");
  CHECK(contains(output.out, " exact an abacus ok "));
  CHECK(contains(output.out, " fast  an abacus ok "));
  CHECK(tail(output.out, 2) == "2 cases; implementation an abacus 3; flavours exact fast\n4 passed, 0 failed\n");
  CHECK(json::parse(read_file(folder / "r.json"))["implementation"]["name"] == "an abacus");
  CHECK(contains(read_file(folder / "r.xml"), "tests=\"4\" failures=\"0\""));

  const Output quick = run_with(folder, {kGreeting, one_key_answer(1)}, "--tier quick --flavour exact --quiet");
  CHECK(quick.exit_code == 0);
  CHECK(quick.out == "1 case; implementation an abacus 3; flavours exact fast\n1 passed, 0 failed\n");
  CHECK(run_with(folder, {kGreeting, two_equal_answer(1), two_equal_answer(2)}, "--case 'two-*'").exit_code == 0);
  const Output little = run_with(folder, {kGreeting, two_equal_answer(1), two_equal_answer(2)}, "--max-work 11");
  CHECK(little.exit_code == 0);
  CHECK(tail(little.out, 2) == "1 case left out: more than 11 multiply-adds\n2 passed, 0 failed\n");
  const Output least = run_with(folder, {kGreeting}, "--max-work 0");
  CHECK(least.exit_code == 1);
  CHECK(contains(least.out, "nothing was executed: every case that matches was left out as too much work"));
  CHECK(tail(least.out, 1) == "0 passed, 1 failed\n");
}

TEST_CASE("conformance of another implementation: wrong bits, and what it lacks") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  std::vector<float> out = kOneKeyOut;
  out[6] = std::bit_cast<float>(0x3f000001u);
  const Output wrong = run_with(folder, with(2, one_key_answer(2, out)));
  CHECK(wrong.exit_code == 1);
  CHECK(contains(wrong.out, "an abacus MISMATCH"));
  CHECK(contains(wrong.out, "out[b 0, h 1, row 1, column 0] is 3f000001"));
  CHECK(tail(wrong.out, 1) == "3 passed, 1 failed\n");

  const std::vector<std::string> lacking = with(1, R"({"request": 1, "unsupported": "no heads"})");
  const Output failed = run_with(folder, lacking);
  CHECK(failed.exit_code == 1);
  CHECK(contains(failed.out, "an abacus FAILED"));
  CHECK(contains(failed.out, "    unsupported: no heads\n"));
  CHECK(tail(failed.out, 1) == "3 passed, 1 failed\n");
  const Output allowed = run_with(folder, lacking, "--allow-unsupported");
  CHECK(allowed.exit_code == 0);
  CHECK(contains(allowed.out, "an abacus not run"));
  CHECK(tail(allowed.out, 2) == "1 result not run: unsupported\n3 passed, 0 failed\n");
  const Output none = run_with(
      folder, {kGreeting, R"({"request": 1, "unsupported": "sums"})", R"({"request": 2, "unsupported": "sums"})"},
      "--allow-unsupported --tier quick");
  CHECK(none.exit_code == 1);
  CHECK(contains(none.out, "nothing was executed: the implementation supports no case"));
  CHECK(tail(none.out, 2) == "2 results not run: unsupported\n0 passed, 1 failed\n");
  const Output error = run_with(folder, with(3, R"({"request": 3, "error": "a bead is lost"})"), "--allow-unsupported");
  CHECK(error.exit_code == 1);
  CHECK(contains(error.out, "    error: a bead is lost\n"));
}

TEST_CASE("conformance of another implementation: one that breaks the protocol is exit code 2") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  const auto check = [&](const Output &output, const std::string &message) {
    CAPTURE(output.out);
    CAPTURE(output.err);
    CHECK(output.exit_code == 2);
    CHECK(contains(output.err, "exattn: " + message));
    CHECK_FALSE(contains(output.out, "passed"));
    CHECK_FALSE(std::filesystem::exists(folder / "r.json"));
  };
  const std::string json_too = "--json r.json ";
  check(run_with(folder, with(1, "Traceback"), json_too),
        "one-key exact by an abacus: the answer to request 1: not valid JSON");
  check(run_with(folder, with(4, two_equal_answer(3)), json_too),
        "two-equal fast by an abacus: the answer to request 4: \"request\" must be 4, and is 3");
  check(run_with(folder, {kGreeting, one_key_answer(1)}, json_too),
        "one-key fast by an abacus: request 2: no answer: the implementation ended with exit code 6");
  check(run_with(folder, {}, json_too), "the first message: no answer: the implementation ended with exit code 6");
  std::vector<std::string> more = kRight;
  more.back() += "'; echo 'bye";
  check(run_with(folder, more, json_too), "");
  const std::string golden = "conformance --golden . --json r.json ";
  check(run(folder, golden + "--timeout 1 --implementation 'sleep 600'"),
        "the first message: no answer within 1 second");
  check(run(folder, golden + "--implementation ./none"),
        "the first message: no answer: the implementation ended with exit code 127");
  check(run(folder, golden + "--implementation 'cat /dev/zero'"),
        "the first message: the answer has more than 65536 bytes");
  check(run_with(folder, {replaced(kGreeting, ", \"fast\"", "")}, "--flavour fast"),
        "\"an abacus\" has no fast flavour");
}

TEST_CASE("conformance of another implementation: options that have no meaning together") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  const auto refused = [&](const std::string &options, const std::string &message) {
    CAPTURE(options);
    const Output output = run(folder, "conformance --golden . " + options);
    CHECK(output.exit_code == 2);
    CHECK(output.out == "");
    CHECK(contains(output.err, "exattn: " + message));
  };
  for (const std::string option : {"--lanes scalar", "--threads 1", "--require scalar"}) {
    refused("--implementation 'sh abacus.sh' " + option,
            option.substr(0, option.find(' ')) + " is of this library's kernels; lane kinds and threads of an "
                                                 "--implementation are its own matter");
  }
  for (const std::string option : {"--max-work 20", "--allow-unsupported", "--timeout 5"}) {
    refused(option, option.substr(0, option.find(' ')) + " needs an --implementation");
  }
  refused("--implementation cat --max-work -1", "--max-work: '-1' is not an integer of at least 0");
  refused("--implementation cat --timeout 0", "--timeout: '0' is not an integer of at least 1");
  refused("--implementation cat --timeout 1000001", "--timeout: '1000001' is more than 1000000 seconds");
  refused("--implementation ''", "argument 5 is empty");
  CHECK(contains(run(folder, "conformance --help").out, "exattn conformance --implementation 'python3 "));
}

TEST_CASE("conformance of another implementation: nothing stays behind when a signal ends it") {
  const TemporaryFolder folder;
  write_goldens(folder.get(), kOneKeyGolden, kTwoEqualGolden);
  write_file(folder / "abacus.sh", "trap '' TERM HUP INT\n: > started\nwhile :; do sleep 1; done\n");
  for (const std::string signal : {"TERM", "HUP"}) {
    CAPTURE(signal);
    std::filesystem::remove(folder / "started");
    Lifeline lifeline;
    const std::string command =
        "cd '" + folder.get().string() + "' || exit 1; " EXATTN_LAUNCHER " '" EXATTN_PROGRAM "' " + kConformance +
        "--json r.json & until [ -e started ]; do sleep 0.1; done; kill -" + signal + " $!; wait $! 2> .stderr";
    const int status = std::system(command.c_str());
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + (signal == "TERM" ? SIGTERM : SIGHUP));
    CHECK(lifeline.gone());
    for (const auto &entry : std::filesystem::directory_iterator(folder.get())) {
      CHECK_FALSE(contains(entry.path().filename().string(), "r.json"));
    }
  }
}
