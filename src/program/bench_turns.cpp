#include "bench.hpp"

#include <benchmark/benchmark.h>

#include <array>
#include <sstream>

namespace exattn::program {

// Keeps the time of each run, and hands the run to the library's own JSON, named so that files of different machines
// and numbers of rounds can be compared.
class Turns::Reporter : public benchmark::BenchmarkReporter {
public:
  std::vector<std::vector<double>> milliseconds; // of each call
  int rounds = 0, round = 0;

  Reporter() { writer.SetOutputStream(&text); }

  bool ReportContext(const Context &context) override {
    return std::exchange(begun, true) || writer.ReportContext(context);
  }

  void ReportRuns(const std::vector<Run> &runs) override {
    for (Run run : runs) {
      milliseconds[static_cast<std::size_t>(run.family_index)].push_back(run.GetAdjustedRealTime());
      run.run_name.iterations.clear();
      run.run_name.repetitions.clear();
      run.repetitions = rounds;
      run.repetition_index = round;
      writer.ReportRuns({run});
    }
  }

  std::string finish() {
    writer.Finalize();
    return text.str();
  }

private:
  std::ostringstream text;
  benchmark::JSONReporter writer;
  bool begun = false;
};

Turns::Turns() : reporter(std::make_unique<Reporter>()) {
  static char name[] = "exattn"; // its address is kept
  // Environment variables could have the library do other things.
  char run[] = "--benchmark_list_tests=false", no_file[] = "--benchmark_out=";
  std::array<char *, 4> arguments = {name, run, no_file, nullptr};
  int count = 3;
  benchmark::Initialize(&count, arguments.data());
  benchmark::AddCustomContext("exattn", exattn_version());
}

Turns::~Turns() = default;

std::vector<std::vector<double>> Turns::measure(std::span<const Call> calls, const Shape &shape, int rounds,
                                                int times) {
  benchmark::ClearRegisteredBenchmarks();
  for (const Call &call : calls) {
    benchmark::RegisterBenchmark(
        call.name.c_str(),
        [&](benchmark::State &state) {
          for ([[maybe_unused]] auto step : state) {
            call.run();
          }
          state.counters["flops"] = {shape.flops(), benchmark::Counter::kIsIterationInvariantRate};
          state.SetBytesProcessed(state.iterations() * shape.bytes());
        })
        ->Iterations(times)
        ->Repetitions(1)
        ->MeasureProcessCPUTime()
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  reporter->milliseconds.assign(calls.size(), {});
  reporter->rounds = rounds;
  // Its repetitions would run all of one call before the other: a round for each of them lets the calls take turns.
  for (reporter->round = 0; reporter->round < rounds; ++reporter->round) {
    benchmark::RunSpecifiedBenchmarks(reporter.get(), ".");
  }
  return reporter->milliseconds;
}

std::string Turns::json() {
  return reporter->finish();
}

} // namespace exattn::program
