#include "comparison.hpp"
#include "npy.hpp"
#include "program.hpp"

#include "conformance/runner.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <optional>

namespace exattn::program {
namespace {

struct CompareOptions {
  std::string a, b;
  std::string max_abs;
  bool json = false;
};

int compare(const CompareOptions &options) {
  std::optional<double> bound;
  if (!options.max_abs.empty()) {
    char *end = nullptr;
    bound = std::strtod(options.max_abs.c_str(), &end);
    if (end != options.max_abs.c_str() + options.max_abs.size() || !(*bound >= 0) || std::isinf(*bound)) {
      throw InputError("--max-abs: '" + options.max_abs + "' is not a finite number of at least 0, such as 2e-6");
    }
  }
  const NpyArray a = read_tensor(options.a);
  const NpyArray b = read_tensor(options.b);
  if (a.shape != b.shape) {
    throw InputError("shapes differ: " + a.name + " has " + shape_text(a.shape) + ", " + b.name + " has " +
                     shape_text(b.shape));
  }
  const Comparison result = compare_arrays(a, b);
  const bool same = bound ? result.max_abs <= *bound : result.differing == 0;
  if (options.json) {
    nlohmann::ordered_json document;
    document["same"] = same;
    document["elements"] = result.elements;
    document["differing"] = result.differing;
    // JSON has no infinity: null stands for it
    document["max_abs"] = std::isfinite(result.max_abs) ? nlohmann::ordered_json(result.max_abs) : nullptr;
    if (bound) {
      document["bound"] = *bound;
    }
    if (result.differing > 0) {
      document["max_abs_index"] = result.worst_index;
      document["first_index"] = result.first_index;
      document["first_bits"] = {conformance::hex_bits(result.first_bits[0]),
                                conformance::hex_bits(result.first_bits[1])};
    }
    std::cout << document.dump(2) << "\n";
  } else {
    std::array<char, 64> number{};
    std::snprintf(number.data(), number.size(), "%.6g", result.max_abs);
    std::cout << "max abs difference " << number.data();
    if (result.differing > 0) {
      std::cout << " at " << index_text(result.worst_index);
    }
    if (bound) {
      std::cout << (same ? ", within " : ", above ") << options.max_abs;
    }
    std::cout << "\n" << result.differing << " of " << result.elements << " elements differ in bits";
    if (result.differing > 0) {
      std::cout << ", first at " << index_text(result.first_index) << ": "
                << conformance::hex_bits(result.first_bits[0]) << " and "
                << conformance::hex_bits(result.first_bits[1]);
    }
    std::cout << "\n";
  }
  return same ? kExitSame : kExitDiffers;
}

} // namespace

void add_compare(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App *command = app.add_subcommand("compare", "Compare two .npy files element by element");
  command->add_option("a", options->a, "The one file, float32")->required();
  command->add_option("b", options->b, "The other, of the same shape")->required();
  command
      ->add_option("--max-abs", options->max_abs,
                   "Largest difference that passes; without it the bits must be the same")
      ->type_name("X");
  command->add_flag("--json", options->json, "Print JSON")->disable_flag_override();
  command->footer(
      "Differences are computed in double precision; two NaNs do not differ there, one NaN differs without\n"
      "bound. Exit code 0 when the files pass, 1 when they do not.\n\n"
      "Example:\n  exattn compare out.npy expected.npy --max-abs 2e-6");
  command->callback([options, &exit_code] { exit_code = compare(*options); });
}

} // namespace exattn::program
