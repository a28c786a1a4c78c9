#include "program.hpp"

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace exattn::program {

void add_run_options(CLI::App &command, RunOptions &options) {
  command.add_option("--flavour", options.flavour, "Which definition")->type_name("exact|fast")->capture_default_str();
  command.add_option("--lanes", options.lanes, "Lane kind; never changes a bit")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Number of threads, or all; never changes a bit")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--out", options.out, "Write the output to this .npy file");
  command.add_flag("--json", options.json, "Print JSON")->disable_flag_override();
}

std::vector<std::string> split_list(const std::string &list) {
  std::vector<std::string> items;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t comma = list.find(',', begin);
    items.push_back(list.substr(begin, comma - begin));
    if (comma == std::string::npos) {
      return items;
    }
    begin = comma + 1;
  }
}

std::int32_t parse_flavour(const std::string &name) {
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    if (name == exattn_flavour_name(flavour)) {
      return flavour;
    }
  }
  throw InputError("there is no flavour '" + name + "'; there are exact and fast");
}

std::int32_t parse_lanes(const std::string &name) {
  std::int32_t lanes = EXATTN_LANES_AUTO;
  if (exattn_lanes_from_name(name.c_str(), &lanes) != EXATTN_OK) {
    std::string known;
    for (std::int32_t kind = EXATTN_LANES_AUTO; kind < EXATTN_LANES_COUNT; ++kind) {
      known += std::string(known.empty() ? "" : ", ") + exattn_lanes_name(kind);
    }
    throw InputError("there is no lane kind '" + name + "'; there are " + known);
  }
  return lanes;
}

std::int32_t parse_threads(const std::string &text) {
  static constexpr std::int32_t kMost = 4096;
  std::int32_t threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (text == "all") {
    return 0;
  }
  if (error != std::errc() || end != text.data() + text.size() || threads < 1 || threads > kMost) {
    throw InputError("'" + text + "' is not a number of threads; allowed are 1 to 4096, or all");
  }
  return threads;
}

std::int64_t parse_integer(const std::string &text, const char *option, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    throw InputError(std::string(option) + ": '" + text + "' is not an integer of at least " + std::to_string(least));
  }
  return value;
}

float parse_float(const std::string &text, const char *option) {
  const auto refuse = [&]() {
    throw InputError(std::string(option) + ": '" + text +
                     "' is not a float32: a number such as 0.125 or 0x1p-3, inf, -inf, nan, or bits as 0x3e000000");
  };
  if (text == "nan") {
    return std::bit_cast<float>(std::uint32_t{0x7FC00000});
  }
  if (text == "inf" || text == "+inf" || text == "-inf") {
    return std::bit_cast<float>(std::uint32_t{text[0] == '-' ? 0xFF800000 : 0x7F800000});
  }
  // Hexadecimal without an exponent is bits, all eight digits of them: 0x1 could be meant either way.
  if (text.find_first_of("xX") != std::string::npos && text.find_first_of("pP") == std::string::npos) {
    std::uint32_t bits = 0;
    const std::size_t first = std::min<std::size_t>(2, text.size());
    const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), bits, 16);
    if (text.size() != 10 || !(text.starts_with("0x") || text.starts_with("0X")) || error != std::errc() ||
        end != text.data() + text.size()) {
      refuse();
    }
    return std::bit_cast<float>(bits);
  }
  // strtof rounds to nearest and, unlike from_chars, is there for float in every standard library. The locale is "C".
  char *end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  const bool digits_alone = text.find_first_not_of("+-.0123456789abcdefpxABCDEFPX") == std::string::npos;
  if (text.empty() || !digits_alone || end != text.c_str() + text.size() || !std::isfinite(value)) {
    refuse();
  }
  const std::string digits =
      text.substr(0, text.find_first_of(text.find_first_of("xX") == std::string::npos ? "eE" : "pP"));
  if (value == 0.0F && digits.find_first_of("123456789abcdefABCDEF") != std::string::npos) {
    throw InputError(std::string(option) + ": '" + text +
                     "' is closer to 0 than any float32 but 0; write 0 if that is meant");
  }
  return value;
}

Pool::Pool(std::int32_t threads) {
  if (threads == 1) {
    return;
  }
  exattn_pool *made = nullptr;
  require_ok(exattn_pool_create(threads, &made));
  pool.reset(made);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t size : shape) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text;
}

std::string dimensions_text(std::size_t count, std::size_t least, std::size_t most) {
  const std::string range =
      least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most);
  return "has " + std::to_string(count) + (count == 1 ? " dimension; " : " dimensions; ") + range +
         (least == 1 && most == 1 ? " is allowed" : " are allowed");
}

void require_ok(exattn_status status, const char *message) {
  if (status != EXATTN_OK) {
    throw InputError(message[0] != '\0' ? message : exattn_status_string(status));
  }
}

bool is_terminal(std::FILE *stream) {
  return isatty(fileno(stream)) == 1;
}

bool colours(std::FILE *stream) {
  const char *no_color = std::getenv("NO_COLOR");
  return is_terminal(stream) && (no_color == nullptr || no_color[0] == '\0');
}

} // namespace exattn::program
