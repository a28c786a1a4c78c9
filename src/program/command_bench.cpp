#include "bench.hpp"
#include "output_file.hpp"
#include "program.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <numeric>

namespace exattn::program {
namespace {

struct BenchOptions {
  std::vector<std::string> shapes;
  std::string storage = kStorages[EXATTN_F32];
  std::string page_size;
  bool pack_k = false;
  std::string lanes = "auto";
  std::string threads = "1";
  std::string rounds;
  std::string json, benchmark_json, svg;
};

// EXATTN_LANES_AUTO where the flavour has no kernel. What auto comes to may depend on the flavour.
std::int32_t resolved(std::int32_t lanes, std::int32_t flavour) {
  std::int32_t kind = EXATTN_LANES_AUTO;
  exattn_lanes_resolve(lanes, flavour, &kind, nullptr);
  return kind;
}

std::vector<std::int32_t> lane_kinds(const std::string &names) {
  std::vector<std::int32_t> kinds;
  if (names == "all") {
    kinds.resize(EXATTN_LANES_COUNT - 1);
    std::iota(kinds.begin(), kinds.end(), std::int32_t{EXATTN_LANES_SCALAR});
    std::erase_if(kinds, [](std::int32_t lanes) {
      return lanes == EXATTN_LANES_SCALAR || resolved(lanes, EXATTN_EXACT) == EXATTN_LANES_AUTO;
    });
    return kinds;
  }
  const std::vector<std::string> listed = split_list(names);
  kinds.resize(listed.size());
  std::transform(listed.begin(), listed.end(), kinds.begin(), [](const std::string &name) {
    const std::int32_t lanes = parse_lanes(name);
    std::int32_t exact = 0;
    require_ok(exattn_lanes_resolve(lanes, EXATTN_EXACT, &exact, nullptr), name.c_str());
    return lanes;
  });
  return kinds;
}

std::vector<Shape> shapes_of(const BenchOptions &options) {
  std::vector<Shape> shapes(options.shapes.size());
  std::transform(options.shapes.begin(), options.shapes.end(), shapes.begin(), parse_shape);
  if (shapes.empty()) {
    shapes = usual_shapes();
  }
  for (Shape &shape : shapes) {
    set_storage(shape, options.storage);
    if (!options.page_size.empty()) {
      set_page_size(shape, parse_integer(options.page_size, "--page-size", 1));
    }
    if (options.pack_k) {
      set_packed(shape);
    }
  }
  return shapes;
}

// The best of what is measured before the calls and after them.
void measure_limits(Measurement &measurement) {
  constexpr double kSeconds = 0.1;
  const Peak peak = measure_peak(measurement.lanes, measurement.threads, kSeconds);
  measurement.peak.fused = std::max(measurement.peak.fused, peak.fused);
  measurement.peak.unfused = std::max(measurement.peak.unfused, peak.unfused);
  if (measurement.shape.streams()) {
    measurement.bandwidth =
        std::max(measurement.bandwidth, measure_bandwidth(measurement.shape.bytes(), measurement.threads, kSeconds));
  }
}

double milliseconds_of(const std::function<void()> &run) {
  const auto before = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
}

Measurement measure(Turns &turns, BenchProblem &problem, const Shape &shape, std::int32_t asked, const Pool &pool,
                    int wanted_rounds) {
  Measurement measurement;
  measurement.shape = shape;
  measurement.lanes = resolved(asked, EXATTN_EXACT);
  measurement.fast_lanes = resolved(asked, EXATTN_FAST);
  measurement.threads = pool.threads();
  const auto call = [&](std::int32_t flavour) {
    const std::int32_t lanes = flavour == EXATTN_EXACT ? measurement.lanes : measurement.fast_lanes;
    return Turns::Call{shape.name + "/" + exattn_lanes_name(lanes) + "/threads:" + std::to_string(pool.threads()) +
                           "/" + exattn_flavour_name(flavour),
                       [&problem, &pool, lanes, flavour] { problem.run(flavour, lanes, pool.get()); }};
  };
  std::vector<Turns::Call> calls = {call(EXATTN_EXACT)};
  // Scalar lanes emulate the fused multiply-add: nothing to compare.
  if (measurement.fast_lanes != EXATTN_LANES_AUTO && measurement.fast_lanes != EXATTN_LANES_SCALAR) {
    calls.push_back(call(EXATTN_FAST));
  }
  for (const Turns::Call &one : calls) {
    one.run(); // finds errors, and warms up
  }
  measure_limits(measurement);
  const double once = std::max(milliseconds_of(calls.front().run), 1e-3);
  const int times = once < 1 ? static_cast<int>(1 / once) : 1;
  const int rounds =
      wanted_rounds > 0 ? wanted_rounds : static_cast<int>(std::clamp(1500 / (times * once), 5.0, 301.0));
  const std::vector<std::vector<double>> milliseconds = turns.measure(calls, shape, rounds, times);
  measure_limits(measurement);
  measurement.exact = summarize(milliseconds[0]);
  if (calls.size() > 1) {
    std::vector<double> ratios(milliseconds[0].size());
    std::transform(milliseconds[0].begin(), milliseconds[0].end(), milliseconds[1].begin(), ratios.begin(),
                   std::divides<>());
    measurement.fast = summarize(milliseconds[1]);
    measurement.ratio = summarize(ratios);
  }
  return measurement;
}

// A line for each lane kind and number of threads: the best of what its rows saw.
void print_peaks(std::span<const Measurement> measurements) {
  std::vector<Measurement> best;
  for (const Measurement &one : measurements) {
    const auto known = std::find_if(best.begin(), best.end(), [&](const Measurement &other) {
      return one.lanes == other.lanes && one.threads == other.threads;
    });
    if (known == best.end()) {
      best.push_back(one);
    } else {
      known->peak.fused = std::max(known->peak.fused, one.peak.fused);
      known->peak.unfused = std::max(known->peak.unfused, one.peak.unfused);
    }
  }
  for (const Measurement &one : best) {
    std::printf("\n%s, threads: %d: ", exattn_lanes_name(one.lanes), one.threads);
    if (one.peak.fused > 0.0) {
      std::printf("fused peak %.1f GFLOP/s, ", one.peak.fused);
    }
    std::printf("unfused peak %.1f GFLOP/s", one.peak.unfused);
  }
  std::printf("\n");
}

void bench(const BenchOptions &options) {
  const std::vector<Shape> shapes = shapes_of(options);
  const std::vector<std::int32_t> kinds = lane_kinds(options.lanes);
  std::vector<std::int32_t> thread_counts;
  for (const std::string &text : split_list(options.threads)) {
    thread_counts.push_back(parse_threads(text));
  }
  const auto open = [](const std::string &path) {
    return path.empty() ? std::unique_ptr<OutputFile>() : std::make_unique<OutputFile>(path);
  };
  const std::unique_ptr<OutputFile> json = open(options.json), benchmark_json = open(options.benchmark_json),
                                    svg = open(options.svg);
  constexpr std::int64_t kMostRounds = 1'000'000;
  const std::int64_t rounds = options.rounds.empty() ? 0 : parse_integer(options.rounds, "--rounds", 1);
  if (rounds > kMostRounds) {
    throw InputError("--rounds: " + options.rounds + " is more than 1000000");
  }
  Turns turns;
  std::vector<Measurement> measurements;
  std::printf("%s", bench_table_head().c_str());
  for (const std::int32_t threads : thread_counts) {
    const Pool pool(threads);
    for (const Shape &shape : shapes) {
      BenchProblem problem(shape);
      for (const std::int32_t lanes : kinds) {
        measurements.push_back(measure(turns, problem, shape, lanes, pool, static_cast<int>(rounds)));
        std::printf("%s", bench_table_row(measurements.back()).c_str());
        std::fflush(stdout);
      }
    }
  }
  print_peaks(measurements);
  const auto write = [](const std::unique_ptr<OutputFile> &file, const auto &text) {
    if (file) {
      file->write(text());
      file->commit();
    }
  };
  write(json, [&] {
    nlohmann::ordered_json rows;
    std::transform(measurements.begin(), measurements.end(), std::back_inserter(rows), bench_json);
    return rows.dump(2) + "\n";
  });
  write(benchmark_json, [&] { return turns.json(); });
  write(svg, [&] { return bench_plot(measurements); });
}

} // namespace

void add_bench(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App *command = app.add_subcommand("bench", "Measure both flavours against each other and the machine's peak");
  command->add_option("--shape", options->shapes, "B,H,Hkv,Tq,Tk,D[,causal][,WINDOW]; may be repeated")
      ->type_name("SHAPE")
      ->allow_extra_args(false);
  command->add_option("--storage", options->storage, "How keys and values are stored")
      ->type_name("f32|bf16|f16")
      ->check(CLI::IsMember(std::vector<std::string>(kStorages.begin(), kStorages.end())).description(""))
      ->capture_default_str();
  command->add_option("--page-size", options->page_size, "Keys and values in pages of so many keys, in no order")
      ->type_name("N");
  command->add_flag("--pack-k", options->pack_k, "Keys packed once, before what is measured");
  command->add_option("--lanes", options->lanes, "Lane kinds, or all")->type_name("NAMES")->capture_default_str();
  command->add_option("--threads", options->threads, "Numbers of threads")->type_name("N,...")->capture_default_str();
  command->add_option("--rounds", options->rounds, "Rounds (default: as many as fit 3 seconds)")->type_name("N");
  command->add_option("--json", options->json, "Write the figures to this file");
  command->add_option("--benchmark-json", options->benchmark_json,
                      "Write every round to this file, as Google Benchmark's tools (compare.py) read it");
  command->add_option("--svg", options->svg, "Draw the plot into this file");
  command->footer("Prints a Markdown table. Timings never decide anything: conformance does.\n\n"
                  "Example:\n  exattn bench --shape 1,12,12,512,512,64 --lanes all --threads 1,2 --svg bench.svg");
  add_bench_memory(*command, exit_code);
  command->callback([options, command, &exit_code] {
    if (command->get_subcommands().empty()) {
      bench(*options);
      exit_code = kExitSame;
    }
  });
}

} // namespace exattn::program
