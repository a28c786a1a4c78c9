#include "child_process.hpp"
#include "output_file.hpp"
#include "program.hpp"

#include "conformance/foreign.hpp"
#include "conformance/runner.hpp"

#include <CLI/CLI.hpp>

#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

namespace exattn::program {
namespace {

struct ConformanceOptions {
  std::string flavour, lanes, threads, require, cases, golden, json, junit;
  std::string implementation, max_work, timeout;
  std::string tier = "all";
  bool allow_unsupported = false;
  bool quiet = false;
};

// Where the golden files are: as told, or of the source tree that this was built from, or as installed.
std::filesystem::path golden_directory(const std::string &option) {
  if (!option.empty()) {
    return option;
  }
  if (const char *environment = std::getenv("EXATTN_GOLDEN"); environment != nullptr && environment[0] != '\0') {
    return environment;
  }
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path moved = program.parent_path().parent_path() / "share/exattn/golden";
  for (const std::filesystem::path &known :
       {std::filesystem::path(EXATTN_GOLDEN_DIR), std::filesystem::path(EXATTN_GOLDEN_INSTALL_DIR), moved}) {
    if (std::filesystem::exists(known / conformance::kSumsFile, error)) {
      return known;
    }
  }
  throw InputError("no golden files in " EXATTN_GOLDEN_DIR " or " EXATTN_GOLDEN_INSTALL_DIR
                   "; name their folder with --golden or the environment variable EXATTN_GOLDEN");
}

std::vector<std::int32_t> parse_lane_list(const std::string &list, const char *option) {
  std::vector<std::int32_t> result;
  for (const std::string &name : split_list(list)) {
    result.push_back(parse_lanes(name));
    if (result.back() == EXATTN_LANES_AUTO) {
      throw InputError(std::string(option) + ": auto is not a lane kind of its own; name the lane kinds");
    }
  }
  return result;
}

// Options that say nothing where they are given.
void refuse_in_vain(const ConformanceOptions &options) {
  const bool foreign = !options.implementation.empty();
  for (const auto &[name, given] : {std::pair{"--lanes", !options.lanes.empty()},
                                    {"--threads", !options.threads.empty()},
                                    {"--require", !options.require.empty()}}) {
    if (foreign && given) {
      throw InputError(std::string(name) +
                       " is of this library's kernels; lane kinds and threads of an --implementation "
                       "are its own matter");
    }
  }
  for (const auto &[name, given] : {std::pair{"--max-work", !options.max_work.empty()},
                                    {"--allow-unsupported", options.allow_unsupported},
                                    {"--timeout", !options.timeout.empty()}}) {
    if (!foreign && given) {
      throw InputError(std::string(name) + " needs an --implementation: this library supports every case");
    }
  }
}

std::chrono::seconds parse_timeout(const std::string &text) {
  static constexpr std::int64_t kDefault = 600;
  static constexpr std::int64_t kMost = 1'000'000;
  const std::int64_t seconds = text.empty() ? kDefault : parse_integer(text, "--timeout", 1);
  if (seconds > kMost) {
    throw InputError("--timeout: '" + text + "' is more than " + std::to_string(kMost) + " seconds");
  }
  return std::chrono::seconds(seconds);
}

conformance::Selection select(const ConformanceOptions &options) {
  conformance::Selection selection;
  selection.packed = options.implementation.empty();
  selection.allow_unsupported = options.allow_unsupported;
  if (!options.max_work.empty()) {
    selection.max_work = parse_integer(options.max_work, "--max-work", 0);
  }
  if (!options.flavour.empty()) {
    for (const std::string &name : split_list(options.flavour)) {
      const std::int32_t flavour = parse_flavour(name);
      if (std::find(selection.flavours.begin(), selection.flavours.end(), flavour) == selection.flavours.end()) {
        selection.flavours.push_back(flavour);
      }
    }
  }
  if (!options.lanes.empty()) {
    selection.lanes = parse_lane_list(options.lanes, "--lanes");
  }
  if (!options.require.empty()) {
    selection.require = parse_lane_list(options.require, "--require");
  }
  if (!options.threads.empty()) {
    for (const std::string &count : split_list(options.threads)) {
      selection.threads.push_back(parse_threads(count));
    }
  }
  if (options.tier == "quick" || options.tier == "full") {
    selection.tier = options.tier == "quick" ? conformance::Tier::kQuick : conformance::Tier::kFull;
  } else if (options.tier != "all") {
    throw InputError("--tier: '" + options.tier + "' is none of quick, full, all");
  }
  if (!options.cases.empty()) {
    selection.matches = [glob = options.cases](const std::string &id) {
      return fnmatch(glob.c_str(), id.c_str(), 0) == 0;
    };
  }
  return selection;
}

// Prints a line per result, and on a terminal what is being computed.
class Printer {
public:
  explicit Printer(bool only_failures) : quiet(only_failures) {}

  void before(std::size_t done, std::size_t total, const conformance::Result &next) const {
    if (progress) {
      const std::string line = "[" + std::to_string(done + 1) + "/" + std::to_string(total) + "] " + describe(next);
      std::fprintf(stderr, "\r\033[K%s", line.substr(0, 78).c_str());
      std::fflush(stderr);
    }
  }

  void after(const conformance::Result &result) {
    clear_progress();
    if (!result.failed() && quiet) {
      return;
    }
    if (!result.implementation.empty()) {
      std::printf("%-40s %-5s %s %s %10.2f ms\n", result.id.c_str(), exattn_flavour_name(result.flavour),
                  result.implementation.c_str(), word(result, result.difference ? "MISMATCH" : "FAILED  ").c_str(),
                  result.milliseconds);
    } else if (result.inputs_alone()) {
      std::printf("%-40s %s\n", result.id.c_str(), word(result, "INPUT").c_str());
    } else {
      std::printf("%-40s %-5s %-7s threads %-3d%-7s %s %10.2f ms\n", result.id.c_str(),
                  exattn_flavour_name(result.flavour), exattn_lanes_name(result.lanes), result.threads,
                  result.packed ? " packed" : "", word(result, "MISMATCH").c_str(), result.milliseconds);
    }
    for (const std::string &problem : result.problems) {
      std::printf("    %s\n", problem.c_str());
    }
    if (!result.unsupported.empty()) {
      std::printf("    %s\n", result.unsupported.c_str());
    }
    if (!result.passed || progress) {
      std::fflush(stdout);
    }
  }

  void clear_progress() const {
    if (progress) {
      std::fprintf(stderr, "\r\033[K");
      std::fflush(stderr);
    }
  }

private:
  std::string word(const conformance::Result &result, const char *failure) const {
    const std::string text = result.passed ? "ok      " : result.failed() ? failure : "not run ";
    const char *colour = result.passed ? "\033[32m" : result.failed() ? "\033[31m" : "\033[33m";
    return !coloured ? text : colour + text + "\033[0m";
  }

  bool quiet;
  bool progress = is_terminal(stderr);
  bool coloured = colours(stdout);
};

std::string count_text(std::size_t count, const char *what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

void print_foreign(const conformance::Report &report) {
  std::printf("; implementation %s%s%s; flavours", report.foreign->name.c_str(),
              report.foreign->version.empty() ? "" : " ", report.foreign->version.c_str());
  for (const std::int32_t flavour : report.foreign->flavours) {
    std::printf(" %s", exattn_flavour_name(flavour));
  }
  if (report.unsupported > 0) {
    std::printf("\n%s not run: unsupported", count_text(report.unsupported, "result").c_str());
  }
  if (report.left_out > 0) {
    std::printf("\n%s left out: more than %lld multiply-adds", count_text(report.left_out, "case").c_str(),
                static_cast<long long>(report.max_work.value_or(0)));
  }
}

void print_lane_kinds(const conformance::Report &report) {
  std::printf("; lane kinds");
  std::vector<std::int32_t> ran;
  for (const conformance::Result &result : report.results) {
    if (!result.inputs_alone() && std::count(ran.begin(), ran.end(), result.lanes) == 0) {
      ran.push_back(result.lanes);
      std::printf(" %s", exattn_lanes_name(result.lanes));
    }
  }
  std::printf("%s", ran.empty() ? " none" : "");
  for (const conformance::LaneKind &kind : conformance::lane_kinds()) {
    if (std::count(ran.begin(), ran.end(), kind.lanes) == 0) {
      std::printf("; no %s (%s)", exattn_lanes_name(kind.lanes),
                  kind.missing.empty() ? "not selected" : kind.missing.c_str());
    }
  }
}

void print_summary(const conformance::Report &report) {
  for (const std::string &failure : report.failures) {
    std::printf("%s\n", failure.c_str());
  }
  std::printf("%s", count_text(report.cases, "case").c_str());
  report.foreign ? print_foreign(report) : print_lane_kinds(report);
  std::printf("\n%zu passed, %zu failed\n", report.passed, report.failed);
}

int run_conformance(const ConformanceOptions &options) {
  refuse_in_vain(options);
  const conformance::Selection selection = select(options);
  const conformance::Goldens goldens = conformance::read_goldens(golden_directory(options.golden));
  std::optional<OutputFile> json;
  std::optional<OutputFile> junit;
  if (!options.json.empty()) {
    json.emplace(options.json);
  }
  if (!options.junit.empty()) {
    junit.emplace(options.junit);
  }
  std::optional<ChildProcess> child;
  conformance::Implementation implementation = conformance::linked_library();
  if (!options.implementation.empty()) {
    child.emplace(options.implementation, parse_timeout(options.timeout));
    implementation = conformance::foreign_implementation(
        [&child](const std::string &line, std::size_t most) { return child->exchange(line, most); });
  }
  Printer printer(options.quiet);
  const conformance::Observer observer{
      [&](std::size_t done, std::size_t total, const conformance::Result &next) { printer.before(done, total, next); },
      [&](const conformance::Result &result) { printer.after(result); }};
  const conformance::Report report = conformance::run(goldens, selection, implementation, observer);
  printer.clear_progress();
  if (child) {
    child->finish();
  }
  if (json) {
    json->write(conformance::to_json(report));
    json->commit();
  }
  if (junit) {
    junit->write(conformance::to_junit(report));
    junit->commit();
  }
  print_summary(report);
  return report.ok() ? kExitSame : kExitDiffers;
}

} // namespace

void add_conformance(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<ConformanceOptions>();
  CLI::App *command = app.add_subcommand(
      "conformance", "Compute the golden cases with every kernel that runs here, or with another implementation, and "
                     "compare the hashes");
  command->add_option("--flavour", options->flavour, "exact, fast, or both with a comma; default both");
  command->add_option("--lanes", options->lanes, "Lane kinds, with commas; default all that are usable here");
  command->add_option("--threads", options->threads, "Numbers of threads, with commas; default 1,2,3,all");
  command->add_option("--case", options->cases, "Only cases whose id matches, such as 'bert-*'")->type_name("GLOB");
  command->add_option("--tier", options->tier, "Which cases")->type_name("quick|full|all")->capture_default_str();
  command->add_option("--require", options->require, "Fail unless these lane kinds were executed, with commas");
  command
      ->add_option("--implementation", options->implementation,
                   "Ask this command, started by sh -c, instead of this library (docs/protocol.md)")
      ->type_name("COMMAND");
  command->add_option("--max-work", options->max_work, "Leave out cases of more multiply-adds, of softmax elements")
      ->type_name("N");
  command
      ->add_flag("--allow-unsupported", options->allow_unsupported,
                 "What the implementation says it lacks counts as not run, not as failed")
      ->disable_flag_override();
  command->add_option("--timeout", options->timeout, "Seconds that an answer may take; default 600")->type_name("S");
  command->add_option("--golden", options->golden, "Where the golden files are")->type_name("DIR");
  command->add_option("--json", options->json, "Write a report to this file")->type_name("FILE");
  command->add_option("--junit", options->junit, "Write a JUnit report to this file")->type_name("FILE");
  command->add_flag("--quiet", options->quiet, "Print failures and the summary only")->disable_flag_override();
  command->footer(
      "Exit code 0 when everything matches, 1 on a mismatch or when nothing was executed, 2 on wrong usage,\n"
      "a golden file that is damaged, or an implementation that can't be started or breaks the protocol.\n"
      "The last line is: N passed, N failed.\n"
      "Each case is computed with keys as rows on every number of threads, then with packed keys on the fewest.\n"
      "The environment variable EXATTN_LANES is not looked at: --lanes alone chooses.\n\n"
      "Example:\n  exattn conformance --tier quick --require avx2\n"
      "  exattn conformance --implementation 'python3 examples/foreign.py' --max-work 20000");
  command->callback([options, &exit_code] { exit_code = run_conformance(*options); });
}

} // namespace exattn::program
