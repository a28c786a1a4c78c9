#include "npy.hpp"
#include "program.hpp"

#include "conformance/runner.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <optional>

namespace exattn::program {
namespace {

struct CompareOptions {
  std::string a, b;
  std::string max_abs;
  bool json = false;
};

struct Comparison {
  std::size_t elements = 0;
  std::size_t differing = 0;                          // in bits
  double max_abs = 0;                                 // infinite where only one is NaN
  std::vector<std::int64_t> first_index, worst_index; // of the first that differs in bits, of the largest difference
  std::uint32_t first_bits[2] = {0, 0};
};

double distance(float a, float b) {
  if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b)) ||
      a == b) {
    return 0;
  }
  const double difference = std::fabs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

Comparison compare_arrays(const NpyArray &a, const NpyArray &b) {
  Comparison result;
  result.elements = a.size();
  const float *const data[2] = {a.floats(), b.floats()};
  std::vector<std::int64_t> index(a.shape.size(), 0);
  for (std::size_t n = 0; n < result.elements; ++n) {
    std::int64_t at[2] = {0, 0};
    for (std::size_t d = 0; d < index.size(); ++d) {
      at[0] += index[d] * a.strides[d];
      at[1] += index[d] * b.strides[d];
    }
    const std::uint32_t bits[2] = {std::bit_cast<std::uint32_t>(data[0][at[0]]),
                                   std::bit_cast<std::uint32_t>(data[1][at[1]])};
    if (bits[0] != bits[1]) {
      if (++result.differing == 1) {
        result.first_index = result.worst_index = index;
        result.first_bits[0] = bits[0];
        result.first_bits[1] = bits[1];
      }
      if (const double difference = distance(data[0][at[0]], data[1][at[1]]); difference > result.max_abs) {
        result.max_abs = difference;
        result.worst_index = index;
      }
    }
    for (std::size_t d = index.size(); d > 0; --d) { // the next index, last dimension fastest
      index[d - 1] += 1;
      if (index[d - 1] < a.shape[d - 1]) {
        break;
      }
      index[d - 1] = 0;
    }
  }
  return result;
}

std::string index_text(const std::vector<std::int64_t> &index) {
  std::string text = "[";
  for (std::size_t n = 0; n < index.size(); ++n) {
    text += (n == 0 ? "" : ", ") + std::to_string(index[n]);
  }
  return text + "]";
}

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
