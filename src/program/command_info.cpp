#include "program.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <iostream>
#include <optional>

namespace exattn::program {
namespace {

// The name that the kernel gives itself while it computes: one query, one key, so that the output is the value.
// Empty, with the reason in `why`, when none can run.
std::string kernel_that_runs(std::int32_t lanes, std::int32_t flavour, std::string &why) {
  const std::array<float, 3> q{1, 2, 3};
  const std::array<float, 3> k{4, 5, 6};
  const std::array<float, 2> v{7, -8};
  std::array<float, 2> out{};
  const char *kernel = nullptr;
  std::array<char, 256> message{};
  exattn_attention_args args{};
  args.struct_size = sizeof args;
  args.flavour = flavour;
  args.lanes = lanes;
  args.batch = args.heads = args.kv_heads = args.q_len = args.kv_len = 1;
  args.head_dim = 3;
  args.value_dim = 2;
  args.q = {q.data(), EXATTN_F32, 4, {3, 3, 3, 1}};
  args.k = {k.data(), EXATTN_F32, 4, {3, 3, 3, 1}};
  args.v = {v.data(), EXATTN_F32, 4, {2, 2, 2, 1}};
  args.out = {out.data(), 0, 4, {2, 2, 2, 1}};
  args.kernel = &kernel;
  args.message = message.data();
  args.message_size = message.size();
  if (const exattn_status status = exattn_attention(&args); status != EXATTN_OK) {
    why = message[0] != '\0' ? message.data() : exattn_status_string(status);
    return {};
  }
  if (out != v || kernel == nullptr) {
    why = "its kernel gives a wrong result";
    return {};
  }
  return kernel;
}

struct Choice {
  std::int32_t flavour;
  std::string kernel; // empty: none
  std::string why;
};

struct Row {
  std::int32_t lanes;
  exattn_lanes_info info;
  std::array<Choice, 2> choices;
};

std::array<Choice, 2> choices_of(std::int32_t lanes) {
  std::array<Choice, 2> choices{Choice{EXATTN_EXACT, {}, {}}, Choice{EXATTN_FAST, {}, {}}};
  for (Choice &choice : choices) {
    choice.kernel = kernel_that_runs(lanes, choice.flavour, choice.why);
  }
  return choices;
}

void print_text(const std::vector<Row> &rows, const std::array<Choice, 2> &automatic) {
  std::printf("exattn %s, definition %s\n\n", exattn_version(), exattn_definition());
  std::printf("%-8s %5s  %-5s %-4s %-3s  %-14s %s\n", "lanes", "width", "built", "cpu", "os", "exact", "fast");
  for (const Row &row : rows) {
    const auto word = [](std::int32_t value) { return value != 0 ? "yes" : "no"; };
    const auto kernel = [](const Choice &choice) { return choice.kernel.empty() ? "no" : choice.kernel.c_str(); };
    std::printf("%-8s %5d  %-5s %-4s %-3s  %-14s %s\n", exattn_lanes_name(row.lanes), row.info.width,
                word(row.info.built), word(row.info.cpu), word(row.info.os), kernel(row.choices[0]),
                kernel(row.choices[1]));
  }
  std::printf("\n");
  for (const Choice &choice : automatic) {
    std::printf("auto, %s: %s\n", exattn_flavour_name(choice.flavour),
                choice.kernel.empty() ? ("refused: " + choice.why).c_str() : choice.kernel.c_str());
  }
}

nlohmann::ordered_json choice_json(const Choice &choice) {
  return choice.kernel.empty() ? nlohmann::ordered_json{{"kernel", nullptr}, {"refused", choice.why}}
                               : nlohmann::ordered_json{{"kernel", choice.kernel}};
}

void print_json(const std::vector<Row> &rows, const std::array<Choice, 2> &automatic) {
  nlohmann::ordered_json document;
  document["version"] = exattn_version();
  document["definition"] = exattn_definition();
  for (const Row &row : rows) {
    document["lanes"][exattn_lanes_name(row.lanes)] = {
        {"width", row.info.width}, {"built", row.info.built != 0},         {"cpu", row.info.cpu != 0},
        {"os", row.info.os != 0},  {"exact", choice_json(row.choices[0])}, {"fast", choice_json(row.choices[1])}};
  }
  document["auto"] = {{"exact", choice_json(automatic[0])}, {"fast", choice_json(automatic[1])}};
  std::cout << document.dump(2) << "\n";
}

void info(bool json) {
  std::vector<Row> rows;
  for (std::int32_t lanes = EXATTN_LANES_AUTO + 1; lanes < EXATTN_LANES_COUNT; ++lanes) {
    Row row{lanes, {}, choices_of(lanes)};
    row.info.struct_size = sizeof row.info;
    require_ok(exattn_lanes_query(lanes, &row.info));
    rows.push_back(std::move(row));
  }
  const std::array<Choice, 2> automatic = choices_of(EXATTN_LANES_AUTO);
  if (json) {
    print_json(rows, automatic);
  } else {
    print_text(rows, automatic);
  }
}

} // namespace

void add_info(CLI::App &app, int &exit_code) {
  CLI::App *command = app.add_subcommand("info", "Say which lane kinds there are, and which kernels really run");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON")->disable_flag_override();
  command->footer(
      "The columns exact and fast hold the name that the kernel reported from a call made just now; the lines\n"
      "\"auto\" what a call gets that names no lane kind. EXATTN_LANES in the environment changes those.\n\n"
      "Example:\n  exattn info");
  command->callback([json, &exit_code] {
    info(*json);
    exit_code = kExitSame;
  });
}

} // namespace exattn::program
