#include "program.hpp"

#include "conformance/runner.hpp"
#include "conformance/sha256.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace exattn::program {
namespace {

constexpr std::uint32_t kInfinity = 0x7F800000u;
constexpr std::uint64_t kChunk = 1u << 18;

struct FunctionsOptions {
  std::string function, flavour;
  std::string lanes = "all";
  std::string threads = "all";
  std::string max_ulp;
  bool json = false;
};

// The arguments of a function, all of them, in the order of |x|. Of one sign: +0, then `count - 1` consecutive bit
// patterns. Of both: +0, -0, the least number above 0, its negative, and so on; the function is odd then.
struct Domain {
  const char *name;
  std::int32_t function;
  bool both_signs;
  std::uint32_t second;        // of one sign: the bit pattern after +0
  std::uint64_t count;         // of arguments
  bool rising;                 // along this order; of both signs: from +0 up
  std::uint32_t zero_at;       // the one argument after +0 whose true value is 0
  double (*reference)(double); // error below 2 ulp of double: about 4e-9 ulp of binary32
  const char *text;

  std::uint32_t argument_bits(std::uint64_t n) const {
    if (both_signs) {
      return static_cast<std::uint32_t>(n / 2) | static_cast<std::uint32_t>(n % 2) << 31;
    }
    return n == 0 ? 0 : second + static_cast<std::uint32_t>(n - 1);
  }
};

const Domain &domain_of(const std::string &name) {
  static const Domain kDomains[] = {
      {"exp", EXATTN_FUNCTION_EXP, false, 0x80000000u, std::uint64_t{kInfinity} + 2, false, 0x80000000u | kInfinity,
       [](double x) { return std::exp(x); }, "+0, and every float from -0 down to -inf"},
      {"log", EXATTN_FUNCTION_LOG, false, 0x3F800000u, std::uint64_t{kInfinity - 0x3F800000u} + 2, true, 0x3F800000u,
       [](double x) { return std::log(x); }, "+0, and every float from 1 up to +inf"},
      {"tanh", EXATTN_FUNCTION_TANH, true, 0, 2 * (std::uint64_t{kInfinity} + 1), true, 0,
       [](double x) { return std::tanh(x); }, "every float from -inf to +inf"}};
  for (const Domain &domain : kDomains) {
    if (name == domain.name) {
      return domain;
    }
  }
  throw InputError("there is no function '" + name + "'; there are exp, log and tanh");
}

// Error against the reference, in units in the last place of the true value's binade.
struct Accuracy {
  double worst = -1;
  std::uint32_t worst_x = 0;
  std::uint32_t worst_y = 0;
  std::uint64_t nearest = 0;       // results that are the binary32 nearest to the true value
  std::uint64_t flushed = 0;       // +0 where the true value is above 0 and below 2^-126
  std::uint32_t flushed_first = 0; // bit patterns of x
  std::uint32_t flushed_last = 0;

  void add(std::uint32_t x_bits, float y, double truth, std::uint32_t zero_at) {
    const auto y_bits = std::bit_cast<std::uint32_t>(y);
    nearest += std::bit_cast<std::uint32_t>(static_cast<float>(truth)) == y_bits ? 1u : 0u;
    if (y_bits == 0 && truth >= 0 && truth < 0x1p-126 && x_bits != zero_at) {
      flushed_first = flushed++ == 0 ? x_bits : flushed_first;
      flushed_last = x_bits;
      return;
    }
    const double error = error_of(y, truth);
    if (!(error <= worst)) {
      worst = error;
      worst_x = x_bits;
      worst_y = y_bits;
    }
  }

  // In chunks' order.
  void append(const Accuracy &next) {
    if (next.flushed > 0) {
      flushed_first = flushed == 0 ? next.flushed_first : flushed_first;
      flushed_last = next.flushed_last;
    }
    flushed += next.flushed;
    nearest += next.nearest;
    if (!(next.worst <= worst)) {
      worst = next.worst;
      worst_x = next.worst_x;
      worst_y = next.worst_y;
    }
  }

private:
  static double error_of(float y, double truth) {
    if (static_cast<double>(y) == truth) {
      return 0; // infinities as well
    }
    const double difference = std::fabs(static_cast<double>(y) - truth);
    if (!std::isfinite(difference)) {
      return std::numeric_limits<double>::infinity();
    }
    const int binade = std::max(std::ilogb(truth), -126);
    return std::ldexp(difference, 23 - binade);
  }
};

struct Measurement {
  const Domain *domain = nullptr;
  std::int32_t flavour = EXATTN_EXACT;
  std::int32_t lanes = EXATTN_LANES_AUTO;
  std::optional<Accuracy> accuracy;
  bool monotone = true;
  std::uint32_t first_fall = 0; // the argument at which it first is not
  bool odd = true;              // where the domain has both signs
  std::uint32_t first_uneven = 0;
  std::string sha256;
  double seconds = 0;
};

// Evaluates every argument. Chunks are computed on all threads and hashed in order.
class Sweep {
public:
  Sweep(const Domain &which, std::int32_t flavour, std::int32_t lanes, bool with_accuracy)
      : domain(which), chunks((which.count + kChunk - 1) / kChunk) {
    result.domain = &which;
    result.flavour = flavour;
    result.lanes = lanes;
    if (with_accuracy) {
      result.accuracy.emplace();
    }
  }

  Measurement run(int threads) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (int n = 1; n < threads; ++n) {
      try {
        workers.emplace_back([this] { work(); });
      } catch (const std::system_error &) {
        break; // fewer threads give the same result
      }
    }
    work();
    for (std::thread &worker : workers) {
      worker.join();
    }
    if (progress) {
      std::fprintf(stderr, "\r\033[K");
    }
    if (failure) {
      std::rethrow_exception(failure);
    }
    result.sha256 = hash.finish();
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

private:
  void work() {
    std::vector<float> x(kChunk);
    std::vector<float> y(kChunk);
    for (;;) {
      const std::uint64_t chunk = next_chunk.fetch_add(1);
      if (chunk >= chunks) {
        return;
      }
      try {
        const std::uint64_t first = chunk * kChunk;
        const auto count = static_cast<std::size_t>(std::min(kChunk, domain.count - first));
        for (std::size_t i = 0; i < count; ++i) {
          x[i] = std::bit_cast<float>(domain.argument_bits(first + i));
        }
        require_ok(exattn_evaluate(domain.function, result.flavour, result.lanes, x.data(), y.data(), count));
        Accuracy accuracy;
        if (result.accuracy) {
          double truth = 0;
          for (std::size_t i = 0; i < count; ++i) {
            truth = domain.both_signs && i % 2 == 1 ? -truth : domain.reference(static_cast<double>(x[i]));
            accuracy.add(domain.argument_bits(first + i), y[i], truth, domain.zero_at);
          }
        }
        const std::span<const float> results = std::span(y).first(count);
        const std::size_t fall = first_fall(results);
        const std::size_t uneven = first_uneven(results);
        std::unique_lock lock(mutex);
        turn.wait(lock, [&] { return finished == chunk || failure; });
        if (failure) {
          return;
        }
        take(chunk, results, accuracy, fall, uneven);
        ++finished;
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = failure ? failure : std::current_exception();
        turn.notify_all();
        return;
      }
      turn.notify_all();
    }
  }

  bool in_order(float a, float b) const { return domain.rising ? a <= b : a >= b; }

  // From one result to the next for an argument of the same sign.
  std::size_t step() const { return domain.both_signs ? 2 : 1; }

  // The index of the first result that is out of order with the one before it; y.size() if there is none. Of both
  // signs, the positive arguments are looked at: an odd function is monotone if it is there.
  std::size_t first_fall(std::span<const float> y) const {
    for (std::size_t i = step(); i < y.size(); i += step()) {
      if (!in_order(y[i - step()], y[i])) {
        return i;
      }
    }
    return y.size();
  }

  // The index of the first result that is not the one before it with the other sign; y.size() if there is none.
  std::size_t first_uneven(std::span<const float> y) const {
    for (std::size_t i = 1; domain.both_signs && i < y.size(); i += 2) {
      if (std::bit_cast<std::uint32_t>(y[i]) != (std::bit_cast<std::uint32_t>(y[i - 1]) ^ 0x80000000u)) {
        return i;
      }
    }
    return y.size();
  }

  // Called for one chunk after the other, by whichever thread has it.
  void take(std::uint64_t chunk, std::span<const float> y, const Accuracy &accuracy, std::size_t fall,
            std::size_t uneven) {
    if (result.monotone) {
      if (chunk > 0 && !in_order(last, y[0])) {
        fall = 0;
      }
      if (fall < y.size()) {
        result.monotone = false;
        result.first_fall = domain.argument_bits(chunk * kChunk + fall);
      }
    }
    if (result.odd && uneven < y.size()) {
      result.odd = false;
      result.first_uneven = domain.argument_bits(chunk * kChunk + uneven);
    }
    last = y[y.size() - step()];
    hash.update(y);
    if (result.accuracy) {
      result.accuracy->append(accuracy);
    }
    if (progress && chunk % 64 == 0) {
      std::fprintf(stderr, "\r\033[K%s %s %s %d %%", domain.name, exattn_flavour_name(result.flavour),
                   exattn_lanes_name(result.lanes), static_cast<int>(100 * chunk / chunks));
      std::fflush(stderr);
    }
  }

  const Domain &domain;
  const std::uint64_t chunks;
  const bool progress = is_terminal(stderr);
  std::atomic<std::uint64_t> next_chunk = 0;
  std::mutex mutex; // of all below
  std::condition_variable turn;
  std::uint64_t finished = 0;
  float last = 0;
  Sha256 hash;
  Measurement result;
  std::exception_ptr failure;
};

std::string number(double value, const char *format) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string point(std::uint32_t bits) {
  return conformance::hex_bits(bits) + " (" + number(static_cast<double>(std::bit_cast<float>(bits)), "%.9g") + ")";
}

void print_accuracy(const Measurement &measurement) {
  const Accuracy &accuracy = *measurement.accuracy;
  const auto count = static_cast<double>(measurement.domain->count);
  std::printf("  worst error %.4f ulp at x = %s, where the result is %s\n", accuracy.worst,
              point(accuracy.worst_x).c_str(), point(accuracy.worst_y).c_str());
  std::printf("  nearest float in %.4f %% of %llu arguments\n", 100 * static_cast<double>(accuracy.nearest) / count,
              static_cast<unsigned long long>(measurement.domain->count));
  if (accuracy.flushed > 0) {
    std::printf("  +0 by definition, true value below 2^-126: %llu arguments, x from %s to %s\n",
                static_cast<unsigned long long>(accuracy.flushed), point(accuracy.flushed_first).c_str(),
                point(accuracy.flushed_last).c_str());
  }
}

void print_lanes(const Measurement &measurement, const std::string &expected) {
  std::string shape = measurement.monotone ? "monotone" : "NOT MONOTONE at x = " + point(measurement.first_fall);
  if (measurement.domain->both_signs) {
    shape += measurement.odd ? ", odd" : ", NOT ODD at x = " + point(measurement.first_uneven);
  }
  std::printf("  %-7s sha256 %s  %s  %.1f s\n", exattn_lanes_name(measurement.lanes), measurement.sha256.c_str(),
              shape.c_str(), measurement.seconds);
  if (measurement.sha256 != expected) {
    std::printf("          DIFFERENT from the first\n");
  }
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const std::vector<Measurement> &group) {
  nlohmann::ordered_json item;
  item["function"] = group.front().domain->name;
  item["flavour"] = exattn_flavour_name(group.front().flavour);
  item["count"] = group.front().domain->count;
  for (const Measurement &measurement : group) {
    if (measurement.accuracy) {
      const Accuracy &accuracy = *measurement.accuracy;
      item["worst_ulp"] =
          std::isfinite(accuracy.worst) ? nlohmann::ordered_json(accuracy.worst) : nlohmann::ordered_json(nullptr);
      item["worst_x_bits"] = conformance::hex_bits(accuracy.worst_x);
      item["worst_result_bits"] = conformance::hex_bits(accuracy.worst_y);
      item["nearest"] = accuracy.nearest;
      item["flushed"] = accuracy.flushed;
      if (accuracy.flushed > 0) {
        item["flushed_x_bits"] = {conformance::hex_bits(accuracy.flushed_first),
                                  conformance::hex_bits(accuracy.flushed_last)};
      }
    }
    nlohmann::ordered_json lanes{
        {"sha256", measurement.sha256}, {"monotone", measurement.monotone}, {"seconds", measurement.seconds}};
    if (!measurement.monotone) {
      lanes["first_fall_x_bits"] = conformance::hex_bits(measurement.first_fall);
    }
    if (measurement.domain->both_signs) {
      lanes["odd"] = measurement.odd;
    }
    item["lanes"][exattn_lanes_name(measurement.lanes)] = std::move(lanes);
  }
  return item;
}

// The lane kinds to measure. A lane kind that was named and is not usable is refused; of "all", the widest comes first.
std::vector<std::int32_t> choose_lanes(const FunctionsOptions &options, std::int32_t flavour) {
  std::vector<std::int32_t> chosen;
  if (options.lanes == "all") {
    for (const conformance::LaneKind &kind : conformance::lane_kinds()) {
      if (kind.usable(flavour)) {
        chosen.insert(chosen.begin(), kind.lanes);
      }
    }
    return chosen;
  }
  for (const std::string &name : split_list(options.lanes)) {
    std::int32_t resolved = EXATTN_LANES_AUTO;
    if (const exattn_status status = exattn_lanes_resolve(parse_lanes(name), flavour, &resolved, nullptr);
        status != EXATTN_OK) {
      throw InputError(name + ", " + exattn_flavour_name(flavour) + ": " + exattn_status_string(status));
    }
    chosen.push_back(resolved);
  }
  return chosen;
}

int functions(const FunctionsOptions &options) {
  std::vector<const Domain *> domains;
  for (const std::string &name : split_list(options.function.empty() ? "exp,log,tanh" : options.function)) {
    domains.push_back(&domain_of(name));
  }
  std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>> flavours;
  for (const std::string &name : split_list(options.flavour.empty() ? "exact,fast" : options.flavour)) {
    const std::int32_t flavour = parse_flavour(name);
    flavours.emplace_back(flavour, choose_lanes(options, flavour));
  }
  const std::int32_t wanted = parse_threads(options.threads);
  const int threads = wanted == 0 ? static_cast<int>(std::max(1u, std::thread::hardware_concurrency())) : wanted;

  const double bound = options.max_ulp.empty() ? std::numeric_limits<double>::infinity()
                                               : static_cast<double>(parse_float(options.max_ulp, "--max-ulp"));
  bool good = true;
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (const Domain *domain : domains) {
    for (const auto &[flavour, lanes] : flavours) {
      std::vector<Measurement> group;
      if (!options.json) {
        std::printf("%s, %s: %s\n", domain->name, exattn_flavour_name(flavour), domain->text);
      }
      for (const std::int32_t kind : lanes) {
        group.push_back(Sweep(*domain, flavour, kind, group.empty()).run(threads));
        const Measurement &measurement = group.back();
        const bool equal = measurement.sha256 == group.front().sha256;
        good = good && equal && measurement.monotone && measurement.odd;
        good = good && (!measurement.accuracy || measurement.accuracy->worst <= bound);
        if (!options.json) {
          if (measurement.accuracy) {
            print_accuracy(measurement);
          }
          print_lanes(measurement, group.front().sha256);
        }
      }
      if (!options.json && group.size() > 1) {
        const bool equal = std::all_of(group.begin(), group.end(),
                                       [&](const Measurement &m) { return m.sha256 == group.front().sha256; });
        std::printf("  %s\n", equal ? "the same bits at all of them" : "DIFFERENT BITS");
      }
      document.push_back(to_json(group));
    }
  }
  if (options.json) {
    std::cout << document.dump(2) << "\n";
  }
  return good ? kExitSame : kExitDiffers;
}

} // namespace

void add_functions(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<FunctionsOptions>();
  CLI::App *command =
      app.add_subcommand("functions", "Measure the functions of the definition at every float of their domains");
  command->add_option("--function", options->function, "exp, log, tanh, or several with commas; default all");
  command->add_option("--flavour", options->flavour, "exact, fast, or both with a comma; default both");
  command->add_option("--lanes", options->lanes, "Lane kinds, with commas, or all")->capture_default_str();
  command->add_option("--threads", options->threads, "Number of threads, or all")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--max-ulp", options->max_ulp, "Exit code 1 when a worst error is above this")->type_name("X");
  command->add_flag("--json", options->json, "Print JSON")->disable_flag_override();
  command->footer(
      "The error is against e^x, ln x and tanh x in double precision (good to about 4e-9 of these ulp), in units in\n"
      "the last place of the true value's binade. The SHA-256 is over all results, little-endian, in the order of "
      "|x|,\n"
      "for tanh f(x) before f(-x). Exit code 1 when two lane kinds differ, a function is not monotone, tanh is not "
      "odd,\n"
      "or an error is above --max-ulp.\n"
      "The fast flavour at scalar is emulated, and slow.\n\n"
      "Example:\n  exattn functions --function exp --flavour exact");
  command->callback([options, &exit_code] { exit_code = functions(*options); });
}

} // namespace exattn::program
