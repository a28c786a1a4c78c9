#include "program.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace exattn::program {
namespace {

constexpr std::int64_t kHeadDim = 64;
constexpr std::int64_t kMostKeys = 32768; // 8 GiB of scores and weights

struct MemoryOptions {
  std::string keys = "512,1024,2048,4096,8192,16384";
  std::string threads = "1";
};

// One head, as many queries as keys.
struct Inputs {
  explicit Inputs(std::int64_t keys)
      : q(static_cast<std::size_t>(keys * kHeadDim), 0.5F), k(q), v(q), out(q.size(), 1.0F) {}
  std::vector<float> q, k, v, out;
};

exattn_attention_args arguments(Inputs &inputs, std::int64_t keys) {
  exattn_attention_args args{};
  args.struct_size = sizeof args;
  args.batch = args.heads = args.kv_heads = 1;
  args.q_len = args.kv_len = keys;
  args.head_dim = args.value_dim = kHeadDim;
  const std::int64_t size = keys * kHeadDim;
  args.q = {inputs.q.data(), EXATTN_F32, 4, {size, size, kHeadDim, 1}};
  args.k = {inputs.k.data(), EXATTN_F32, 4, {size, size, kHeadDim, 1}};
  args.v = {inputs.v.data(), EXATTN_F32, 4, {size, size, kHeadDim, 1}};
  args.out = {inputs.out.data(), 0, 4, {size, size, kHeadDim, 1}};
  return args;
}

// The formula as it is written: all scores are stored, and all weights.
void naive(Inputs &inputs, std::int64_t keys) {
  const auto n = static_cast<std::size_t>(keys);
  constexpr std::size_t d = kHeadDim;
  std::vector<float> transposed(n * d), scores(n * n), weights(n * n);
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t x = 0; x < d; ++x) {
      transposed[x * n + j] = inputs.k[j * d + x];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    float *const score = scores.data() + i * n;
    for (std::size_t x = 0; x < d; ++x) {
      const float q = inputs.q[i * d + x] * 0.125F;
      for (std::size_t j = 0; j < n; ++j) {
        score[j] += q * transposed[x * n + j];
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    const float *const score = scores.data() + i * n;
    float *const weight = weights.data() + i * n;
    const float largest = *std::max_element(score, score + n);
    float sum = 0;
    for (std::size_t j = 0; j < n; ++j) {
      weight[j] = std::exp(score[j] - largest);
      sum += weight[j];
    }
    float *const out = inputs.out.data() + i * d;
    std::fill(out, out + d, 0.0F);
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t x = 0; x < d; ++x) {
        out[x] += weight[j] / sum * inputs.v[j * d + x];
      }
    }
  }
}

#if defined(__linux__)
// Bytes: a line of /proc/self/status.
double memory(const char *name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) {
      return 1024 * std::strtod(line.c_str() + line.find(':') + 1, nullptr);
    }
  }
  return std::nan("");
}

// How far the resident memory of a process of its own rises above what it has with the inputs in place.
template <class Run>
double growth(std::int64_t keys, Run run) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) {
    throw InputError("bench memory: no pipe can be made");
  }
  const pid_t child = fork();
  if (child == 0) {
    Inputs inputs(keys);
    std::ofstream("/proc/self/clear_refs") << 5; // the peak begins anew
    const double before = memory("VmRSS");
    run(inputs);
    const double grown = memory("VmHWM") - before;
    _exit(write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  close(ends[1]);
  double grown = std::nan("");
  const bool answered = child > 0 && read(ends[0], &grown, sizeof grown) == sizeof grown;
  close(ends[0]);
  if (child > 0) {
    waitpid(child, nullptr, 0);
  }
  if (!answered) {
    throw InputError("bench memory: " + std::to_string(keys) + " keys: the measuring process ended; is memory short?");
  }
  return grown;
}

std::string mebibytes(double bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", bytes / 1048576);
  return text.data();
}

void bench_memory(const MemoryOptions &options) {
  std::vector<std::int64_t> counts;
  for (const std::string &text : split_list(options.keys)) {
    counts.push_back(parse_integer(text, "--keys", 1));
    if (counts.back() > kMostKeys) {
      throw InputError("--keys: " + text + " is too many for scores that are stored; at most " +
                       std::to_string(kMostKeys) + " are allowed");
    }
  }
  const std::int32_t threads = parse_threads(options.threads);
  std::cout
      << "MiB, one head, head_dim 64, as many queries as keys. Peaks are how far resident memory rises above what\n"
         "a process has with the inputs and the output in place.\n\n"
         "| keys | exattn: scratch | exattn: peak | naive: scores and weights | naive: peak |\n"
         "| --- | --- | --- | --- | --- |\n";
  for (const std::int64_t keys : counts) {
    Inputs inputs(1);
    exattn_attention_args args = arguments(inputs, keys);
    const Pool pool(threads);
    args.pool = pool.get();
    std::size_t scratch = 0;
    require_ok(exattn_attention_scratch_size(&args, &scratch));
    const double ours = growth(keys, [&](Inputs &own) {
      const Pool own_pool(threads); // threads do not survive a fork
      exattn_attention_args call = arguments(own, keys);
      call.pool = own_pool.get();
      require_ok(exattn_attention(&call));
    });
    const double others = growth(keys, [&](Inputs &own) { naive(own, keys); });
    std::cout << "| " << keys << " | " << mebibytes(static_cast<double>(scratch)) << " | " << mebibytes(ours) << " | "
              << mebibytes(8.0 * static_cast<double>(keys) * static_cast<double>(keys)) << " | " << mebibytes(others)
              << " |\n"
              << std::flush;
  }
}
#else
void bench_memory(const MemoryOptions &) {
  throw InputError("bench memory: needs what Linux tells of a process in /proc");
}
#endif

} // namespace

void add_bench_memory(CLI::App &bench, int &exit_code) {
  auto options = std::make_shared<MemoryOptions>();
  CLI::App *command = bench.add_subcommand("memory", "Measure the memory of a call, against storing the scores");
  command->add_option("--keys", options->keys, "Numbers of keys")->type_name("N,...")->capture_default_str();
  command->add_option("--threads", options->threads, "Threads of exattn")->type_name("N")->capture_default_str();
  command->callback([options, &bench, &exit_code] {
    for (const CLI::Option *option : bench.get_options()) {
      if (option->count() > 0) {
        throw InputError("bench memory: " + option->get_name() +
                         " is for bench without memory; there are --keys, --threads");
      }
    }
    bench_memory(*options);
    exit_code = kExitSame;
  });
}

} // namespace exattn::program
