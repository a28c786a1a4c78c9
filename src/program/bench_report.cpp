#include "bench.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <limits>

namespace exattn::program {
namespace {

template <class... Values>
std::string format(const char *form, Values... values) {
  char text[128];
  std::snprintf(text, sizeof text, form, values...);
  return text;
}

std::string percent_text(double percent) {
  return std::isnan(percent) ? "" : format("%.1f", percent);
}

const char *unit(const Shape &shape) {
  return shape.streams() ? "GB/s" : "GFLOP/s";
}

// Time, rate and %.
std::string columns(const Measurement &measurement, const Summary &times) {
  return format("%.3f (%.3f to %.3f) | %.1f %s | ", times.median, times.least, times.greatest, measurement.rate(times),
                unit(measurement.shape)) +
         percent_text(measurement.percent(times));
}

nlohmann::ordered_json to_json(const Measurement &measurement, const Summary &times) {
  return {{"median_ms", times.median},
          {"min_ms", times.least},
          {"max_ms", times.greatest},
          {"rounds", times.count},
          {measurement.shape.streams() ? "gbytes_per_second" : "gflops", measurement.rate(times)},
          {"percent_of_peak", measurement.percent(times)}}; // NaN is written as null
}

} // namespace

Summary summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back(), values.size()};
}

std::string Measurement::lanes_name() const {
  const std::string name = exattn_lanes_name(lanes);
  return !fast || fast_lanes == lanes ? name : name + ", " + exattn_lanes_name(fast_lanes);
}

double Measurement::rate(const Summary &times) const {
  return (shape.streams() ? static_cast<double>(shape.bytes()) : shape.flops()) * 1e-6 / times.median;
}

double Measurement::most() const {
  const double rate = shape.streams() ? bandwidth : peak.fused > 0 ? peak.fused : peak.unfused;
  return rate > 0 ? rate : std::numeric_limits<double>::quiet_NaN();
}

std::optional<double> Measurement::percent_of_unfused() const {
  constexpr double kLower = 0.9; // less of a difference is noise
  if (shape.streams() || peak.unfused >= kLower * peak.fused) {
    return std::nullopt;
  }
  return 100 * rate(exact) / peak.unfused;
}

std::string bench_table_head() {
  return "Milliseconds are medians (least to greatest); exact and fast take turns. % is of the fused multiply-add "
         "peak\n"
         "at that width with as many threads (of unfused: of the peak of separate multiplications and additions, "
         "where\n"
         "that is lower), or, where there are at most 8 query rows, of what reading as many bytes of keys and values\n"
         "takes; all as measured in the same run.\n\n"
         "| shape | lanes | threads | exact, ms | rate | % | % of unfused | fast, ms | rate | % | exact/fast |\n"
         "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
}

std::string bench_table_row(const Measurement &measurement) {
  const std::optional<double> unfused = measurement.percent_of_unfused();
  return "| " + measurement.shape.name +
         format(" | %s | %d | ", measurement.lanes_name().c_str(), measurement.threads) +
         columns(measurement, measurement.exact) + " | " + (unfused ? percent_text(*unfused) : "") + " | " +
         (measurement.fast ? columns(measurement, *measurement.fast) + format(" | %.3f |\n", measurement.ratio->median)
                           : "| | | |\n");
}

nlohmann::ordered_json bench_json(const Measurement &measurement) {
  const Shape &shape = measurement.shape;
  nlohmann::ordered_json row = {{"shape", shape.name},
                                {"storage", kStorages[static_cast<std::size_t>(shape.dtype)]},
                                {"page_size", shape.page_size},
                                {"packed", shape.packed},
                                {"flops", shape.flops()},
                                {"bytes", shape.bytes()},
                                {"lanes", measurement.lanes_name()},
                                {"threads", measurement.threads},
                                {"fused_peak_gflops", measurement.peak.fused},
                                {"unfused_peak_gflops", measurement.peak.unfused},
                                {"exact", to_json(measurement, measurement.exact)}};
  if (shape.streams()) {
    row["read_gbytes_per_second"] = measurement.bandwidth;
  }
  if (measurement.fast) {
    row["fast"] = to_json(measurement, *measurement.fast);
    row["exact_over_fast"] = measurement.ratio->median;
  }
  return row;
}

} // namespace exattn::program
