#include "output_file.hpp"
#include "peak.hpp"
#include "program.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>

namespace exattn::program {
namespace {

struct Shape {
  std::string name;
  std::int64_t batch, heads, kv_heads, q_len, kv_len, head_dim;
  bool causal;             // the last row is at the last key
  std::int64_t window = 0; // 0: none

  std::int64_t q_offset() const { return causal || window > 0 ? std::max<std::int64_t>(0, kv_len - q_len) : 0; }

  // The keys that row i sees.
  std::int64_t begin(std::int64_t i) const {
    return window > 0 ? std::max<std::int64_t>(0, q_offset() + i - window + 1) : 0;
  }
  std::int64_t end(std::int64_t i) const { return causal ? std::min(q_offset() + i + 1, kv_len) : kv_len; }

  // So few rows that reading keys and values is what takes time.
  bool streams() const { return q_len <= 8; }
};

std::vector<Shape> usual_shapes() {
  return {
      {"BERT-base 128", 1, 12, 12, 128, 128, 64, false},
      {"BERT-base 512", 1, 12, 12, 512, 512, 64, false},
      {"MiniLM 128", 1, 12, 12, 128, 128, 32, false},
      {"Whisper encoder 1500", 1, 12, 12, 1500, 1500, 64, false},
      {"Whisper cross 1 x 1500", 1, 12, 12, 1, 1500, 64, false},
      {"Whisper cross 448 x 1500", 1, 12, 12, 448, 1500, 64, false},
      {"one head 4096", 1, 1, 1, 4096, 4096, 64, false},
      {"Llama prefill 2048", 1, 32, 8, 2048, 2048, 128, true},
      {"Llama decode 1 x 8192", 1, 32, 8, 1, 8192, 128, false},
  };
}

struct BenchOptions {
  std::vector<std::string> shapes;
  std::string lanes = "auto";
  std::string threads = "1";
  int rounds = 0;
  std::string json;
};

struct Times {
  std::vector<double> milliseconds;
  double at(double part) const {
    return milliseconds[static_cast<std::size_t>(part * static_cast<double>(milliseconds.size() - 1))];
  }
  double median() const { return at(0.5); }
};

Shape parse_shape(const std::string &text) {
  const std::vector<std::string> fields = split_list(text);
  const auto refuse = [&] {
    throw InputError("--shape " + text + ": must be B,H,Hkv,Tq,Tk,D, then causal or a window of so many keys or both");
  };
  if (fields.size() < 6 || fields.size() > 8) {
    refuse();
  }
  std::array<std::int64_t, 6> n{};
  for (std::size_t i = 0; i < n.size(); ++i) {
    n[i] = parse_integer(fields[i], "--shape", 1);
  }
  Shape shape{text, n[0], n[1], n[2], n[3], n[4], n[5], false};
  for (std::size_t i = n.size(); i < fields.size(); ++i) {
    if (fields[i] == "causal" && !shape.causal && shape.window == 0) {
      shape.causal = true;
    } else if (fields[i] != "causal" && shape.window == 0) {
      shape.window = parse_integer(fields[i], "--shape", 1);
    } else {
      refuse();
    }
  }
  return shape;
}

// Of visible keys alone.
double flops(const Shape &shape) {
  double pairs = 0;
  for (std::int64_t i = 0; i < shape.q_len; ++i) {
    pairs += static_cast<double>(std::max<std::int64_t>(0, shape.end(i) - shape.begin(i)));
  }
  return 4.0 * static_cast<double>(shape.batch * shape.heads * shape.head_dim) * pairs;
}

// Of the keys that any row sees, and their values.
std::int64_t bytes_read(const Shape &shape) {
  const std::int64_t keys = std::max<std::int64_t>(0, shape.end(shape.q_len - 1) - shape.begin(0));
  return shape.batch * shape.kv_heads * keys * 2 * shape.head_dim * static_cast<std::int64_t>(sizeof(float));
}

class Problem {
public:
  explicit Problem(const Shape &shape)
      : q(numbers(shape.batch * shape.heads * shape.q_len * shape.head_dim, 1)),
        k(numbers(shape.batch * shape.kv_heads * shape.kv_len * shape.head_dim, 2)),
        v(numbers(shape.batch * shape.kv_heads * shape.kv_len * shape.head_dim, 3)), out(q.size()) {
    const auto strides = [&](std::int64_t heads, std::int64_t rows, std::int64_t(&stride)[4]) {
      stride[3] = 1;
      stride[2] = shape.head_dim;
      stride[1] = rows * stride[2];
      stride[0] = heads * stride[1];
    };
    args.struct_size = sizeof args;
    args.batch = shape.batch;
    args.heads = shape.heads;
    args.kv_heads = shape.kv_heads;
    args.q_len = shape.q_len;
    args.kv_len = shape.kv_len;
    args.head_dim = args.value_dim = shape.head_dim;
    args.causal = shape.causal ? 1 : 0;
    args.window = shape.window;
    args.q_offset = shape.q_offset();
    args.q = {q.data(), EXATTN_F32, 4, {}};
    args.k = {k.data(), EXATTN_F32, 4, {}};
    args.v = {v.data(), EXATTN_F32, 4, {}};
    args.out = {out.data(), 0, 4, {}};
    strides(shape.heads, shape.q_len, args.q.stride);
    strides(shape.kv_heads, shape.kv_len, args.k.stride);
    strides(shape.kv_heads, shape.kv_len, args.v.stride);
    strides(shape.heads, shape.q_len, args.out.stride);
  }

  double run(std::int32_t flavour, std::int32_t lanes, exattn_pool *pool) {
    std::array<char, 512> message{};
    args.flavour = flavour;
    args.lanes = lanes;
    args.pool = pool;
    args.message = message.data();
    args.message_size = message.size();
    const auto before = std::chrono::steady_clock::now();
    const exattn_status status = exattn_attention(&args);
    const double elapsed = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
    require_ok(status, message.data());
    return elapsed;
  }

private:
  // Roughly normal, standard deviation 1.15: sums of four uniform numbers.
  static std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::uint64_t state = seed * 0x9E3779B97F4A7C15U;
    for (float &value : values) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const std::uint64_t word = state ^ (state >> 31);
      const std::int64_t sum =
          static_cast<std::int64_t>((word & 0xFFFF) + (word >> 16 & 0xFFFF) + (word >> 32 & 0xFFFF) + (word >> 48)) -
          131070;
      value = static_cast<float>(sum) / 32768.0F;
    }
    return values;
  }

  std::vector<float> q, k, v, out;
  exattn_attention_args args{};
};

std::string cell(const Times &times) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f (%.3f to %.3f)", times.median(), times.at(0), times.at(1));
  return text;
}

nlohmann::ordered_json to_json(const Times &times) {
  return {{"median_ms", times.median()},
          {"min_ms", times.at(0)},
          {"max_ms", times.at(1)},
          {"rounds", times.milliseconds.size()}};
}

bool usable(std::int32_t lanes, std::int32_t flavour) {
  std::int32_t resolved = 0;
  return exattn_lanes_resolve(lanes, flavour, &resolved, nullptr) == EXATTN_OK;
}

std::vector<std::int32_t> lane_kinds(const std::string &names) {
  std::vector<std::int32_t> kinds;
  if (names == "all") {
    kinds.resize(EXATTN_LANES_COUNT - 1);
    std::iota(kinds.begin(), kinds.end(), std::int32_t{EXATTN_LANES_SCALAR});
    std::erase_if(kinds,
                  [](std::int32_t lanes) { return lanes == EXATTN_LANES_SCALAR || !usable(lanes, EXATTN_EXACT); });
    return kinds;
  }
  const std::vector<std::string> listed = split_list(names);
  kinds.resize(listed.size());
  std::transform(listed.begin(), listed.end(), kinds.begin(), [](const std::string &name) {
    std::int32_t resolved = 0;
    require_ok(exattn_lanes_resolve(parse_lanes(name), EXATTN_EXACT, &resolved, nullptr), name.c_str());
    return resolved;
  });
  return kinds;
}

void bench(const BenchOptions &options) {
  std::vector<Shape> shapes(options.shapes.size());
  std::transform(options.shapes.begin(), options.shapes.end(), shapes.begin(), parse_shape);
  if (shapes.empty()) {
    shapes = usual_shapes();
  }
  const std::vector<std::int32_t> kinds = lane_kinds(options.lanes);
  std::optional<OutputFile> file;
  if (!options.json.empty()) {
    file.emplace(options.json);
  }
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  std::printf(
      "Milliseconds are medians (least to greatest); exact and fast take turns. %% is of the fused multiply-add peak\n"
      "at that width, or, where there are at most 8 query rows, of what reading as many bytes of keys and values\n"
      "takes; both as measured in the same run.\n\n"
      "| shape | lanes | threads | exact, ms | rate | %% | fast, ms | rate | %% | exact/fast |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const std::string &thread_text : split_list(options.threads)) {
    const Pool pool(parse_threads(thread_text));
    for (const Shape &shape : shapes) {
      Problem problem(shape);
      for (const std::int32_t lanes : kinds) {
        // Scalar lanes emulate the fused multiply-add: nothing to compare.
        const bool has_fast = usable(lanes, EXATTN_FAST) && lanes != EXATTN_LANES_SCALAR;
        Peak peak = measure_peak(lanes, 0.1);
        double bandwidth = shape.streams() ? measure_bandwidth(bytes_read(shape), pool.threads(), 0.1) : 0;
        Times exact, fast, ratio;
        const double once = problem.run(EXATTN_EXACT, lanes, pool.get());
        const int rounds =
            options.rounds > 0 ? options.rounds : static_cast<int>(std::clamp(1500.0 / once, 5.0, 301.0));
        for (int round = 0; round < rounds; ++round) {
          exact.milliseconds.push_back(problem.run(EXATTN_EXACT, lanes, pool.get()));
          if (has_fast) {
            fast.milliseconds.push_back(problem.run(EXATTN_FAST, lanes, pool.get()));
            ratio.milliseconds.push_back(exact.milliseconds.back() / fast.milliseconds.back());
          }
        }
        const Peak again = measure_peak(lanes, 0.1);
        peak.fused = std::max(peak.fused, again.fused);
        peak.unfused = std::max(peak.unfused, again.unfused);
        for (Times *times : {&exact, &fast, &ratio}) {
          std::sort(times->milliseconds.begin(), times->milliseconds.end());
        }
        if (shape.streams()) {
          bandwidth = std::max(bandwidth, measure_bandwidth(bytes_read(shape), pool.threads(), 0.1));
        }
        const double work = (shape.streams() ? static_cast<double>(bytes_read(shape)) : flops(shape)) * 1e-6;
        const double most = shape.streams() ? bandwidth : (peak.fused > 0 ? peak.fused : peak.unfused) * pool.threads();
        const auto columns = [&](const Times &times) {
          const double rate = work / times.median();
          char text[96];
          std::snprintf(text, sizeof text, "%s | %.1f %s | %.1f", cell(times).c_str(), rate,
                        shape.streams() ? "GB/s" : "GFLOP/s", most > 0 ? 100.0 * rate / most : std::nan(""));
          return std::string(text);
        };
        nlohmann::ordered_json row = {{"shape", shape.name},
                                      {"flops", flops(shape)},
                                      {"bytes", bytes_read(shape)},
                                      {"lanes", exattn_lanes_name(lanes)},
                                      {"threads", pool.threads()},
                                      {"fused_peak_gflops", peak.fused},
                                      {"unfused_peak_gflops", peak.unfused},
                                      {"exact", to_json(exact)}};
        if (shape.streams()) {
          row["read_gbytes_per_second"] = bandwidth;
        }
        if (has_fast) {
          row["fast"] = to_json(fast);
          row["exact_over_fast"] = ratio.median();
          std::printf("| %s | %s | %d | %s | %s | %.3f |\n", shape.name.c_str(), exattn_lanes_name(lanes),
                      pool.threads(), columns(exact).c_str(), columns(fast).c_str(), ratio.median());
        } else {
          std::printf("| %s | %s | %d | %s | | | | |\n", shape.name.c_str(), exattn_lanes_name(lanes), pool.threads(),
                      columns(exact).c_str());
        }
        std::fflush(stdout);
        results.push_back(row);
      }
    }
  }
  for (const std::int32_t lanes : kinds) {
    const Peak peak = measure_peak(lanes, 0.2);
    std::printf("\n%s: fused peak %.1f GFLOP/s, unfused peak %.1f GFLOP/s, one thread", exattn_lanes_name(lanes),
                peak.fused, peak.unfused);
  }
  std::printf("\n");
  if (file) {
    file->write(results.dump(2) + "\n");
    file->commit();
  }
}

} // namespace

void add_bench(CLI::App &app, int &exit_code) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App *command = app.add_subcommand("bench", "Measure both flavours against each other and the machine's peak");
  command->add_option("--shape", options->shapes, "B,H,Hkv,Tq,Tk,D[,causal][,WINDOW]; may be repeated")
      ->type_name("SHAPE")
      ->allow_extra_args(false);
  command->add_option("--lanes", options->lanes, "Lane kinds, or all")->type_name("NAMES")->capture_default_str();
  command->add_option("--threads", options->threads, "Numbers of threads")->type_name("N,...")->capture_default_str();
  command->add_option("--rounds", options->rounds, "Rounds (default: as many as fit 3 seconds)")
      ->check(CLI::PositiveNumber);
  command->add_option("--json", options->json, "Write the figures to this file");
  command->footer("Prints a Markdown table. Timings never decide anything: conformance does.\n\n"
                  "Example:\n  exattn bench --shape 1,12,12,512,512,64 --lanes all --threads 1,2");
  add_bench_memory(*command, exit_code);
  command->callback([options, command, &exit_code] {
    if (command->get_subcommands().empty()) {
      bench(*options);
      exit_code = kExitSame;
    }
  });
}

} // namespace exattn::program
