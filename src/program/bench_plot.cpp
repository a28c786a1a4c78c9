#include "bench.hpp"

#include <cmath>
#include <cstdio>

namespace exattn::program {
namespace {

// The look of conformance/peers/report.py's plot; colours that can be told apart on white and on black.
constexpr const char *kStyle = R"(<style>
  svg { background: #fff } text { font: 12px sans-serif; fill: #222 } .title { font-weight: bold }
  .value { font-size: 10px; fill: #555 } line { stroke: #999; stroke-dasharray: 3 3 }
  .exact { fill: #1a6fd4 } .fast { fill: #6db0f5 } .mark { fill: #d9541e }
  @media (prefers-color-scheme: dark) {
    svg { background: #16181c } text { fill: #e4e4e4 } .value { fill: #aaa } line { stroke: #777 }
  }
</style>
)";

constexpr double kPanel = 440, kNames = 56, kFull = 250,
                 kNumber = 34;         // widths: a panel, the lane kinds, 100 %, a number
constexpr double kMost = 125;          // bars of more % are cut off
constexpr double kBar = 11, kTop = 60; // heights: a bar, what is above the first group

class Drawing {
public:
  void text(double x, double y, const char *kind, const std::string &words) { // words hold nothing to escape
    body += R"(<text x=")" + number(x) + R"(" y=")" + number(y) + R"(" class=")" + kind + "\">" + words + "</text>\n";
  }

  void rectangle(double x, double y, double width, double height, const char *kind) {
    body += R"(<rect x=")" + number(x) + R"(" y=")" + number(y) + R"(" width=")" + number(width) + R"(" height=")" +
            number(height) + R"(" class=")" + kind + "\"/>\n";
  }

  void vertical(double x, double y, double end) {
    body += R"(<line x1=")" + number(x) + R"(" y1=")" + number(y) + R"(" x2=")" + number(x) + R"(" y2=")" +
            number(end) + "\"/>\n";
  }

  // A bar with its number, and a mark where another peak is.
  void bar(double x, double y, double percent, const char *kind, double mark) {
    if (std::isnan(percent)) {
      text(x, y + 9, "value", "no peak is known");
      return;
    }
    const double length = kFull / 100 * std::min(percent, kMost);
    const double mark_at = kFull / 100 * mark;
    rectangle(x, y, length, kBar - 1, kind);
    if (mark > 0) {
      rectangle(x + mark_at - 1, y - 1, 2, kBar + 1, "mark");
    }
    const bool in_the_way = mark_at > length && mark_at < length + kNumber;
    text(x + (in_the_way ? mark_at : length) + 4, y + 9, "value", number(percent));
  }

  std::string svg(double width, double height) const {
    return R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 )" + number(width) + " " + number(height) + "\">\n" +
           kStyle + body + "</svg>\n";
  }

private:
  static std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    return text;
  }

  std::string body;
};

// A shape's bars, from y on; returns where they end.
double draw_shape(Drawing &drawing, double x, double y, std::span<const Measurement> measurements) {
  const Shape &shape = measurements.front().shape;
  drawing.text(x, y + 12, "name", shape.name + (shape.streams() ? " (% of read bandwidth)" : ""));
  y += 17;
  const double start = y;
  for (const Measurement &measurement : measurements) {
    drawing.text(x, y + 9, "value", measurement.lanes_name());
    const bool marked = measurement.percent_of_unfused() && measurement.peak.fused > 0;
    drawing.bar(x + kNames, y, measurement.percent(measurement.exact), "exact",
                marked ? 100 * measurement.peak.unfused / measurement.peak.fused : 0);
    y += kBar;
    if (measurement.fast) {
      drawing.bar(x + kNames, y, measurement.percent(*measurement.fast), "fast", 0);
      y += kBar;
    }
    y += 2;
  }
  drawing.vertical(x + kNames + kFull, start, y);
  return y + 8;
}

// The measurements at the front that have one value of something in common.
template <class Value>
std::span<const Measurement> front_run(std::span<const Measurement> measurements, Value value) {
  const auto end = std::find_if(measurements.begin(), measurements.end(), [&](const Measurement &measurement) {
    return value(measurement) != value(measurements.front());
  });
  return measurements.first(static_cast<std::size_t>(end - measurements.begin()));
}

} // namespace

std::string bench_plot(std::span<const Measurement> measurements) {
  Drawing drawing;
  drawing.rectangle(10, 12, 11, 11, "exact");
  drawing.text(26, 22, "name", "exact");
  drawing.rectangle(90, 12, 11, 11, "fast");
  drawing.text(106, 22, "name", "fast");
  drawing.text(160, 22, "value", "% of the fused multiply-add peak");
  drawing.rectangle(340, 11, 2, 13, "mark");
  drawing.text(348, 22, "value", "unfused peak, where it is lower");
  double x = 10, bottom = 0;
  while (!measurements.empty()) { // a panel for each number of threads
    const auto panel = front_run(measurements, [](const Measurement &one) { return one.threads; });
    measurements = measurements.subspan(panel.size());
    const std::int32_t threads = panel.front().threads;
    drawing.text(x, kTop - 12, "title", std::to_string(threads) + (threads == 1 ? " thread" : " threads"));
    drawing.text(x + kNames + kFull - 14, kTop - 12, "value", "100 %");
    double y = kTop;
    for (auto rest = panel; !rest.empty();) {
      const auto group = front_run(rest, [](const Measurement &one) { return one.shape.name; });
      rest = rest.subspan(group.size());
      y = draw_shape(drawing, x, y, group);
    }
    bottom = std::max(bottom, y);
    x += kPanel;
  }
  return drawing.svg(std::max(x, 560.0) + 10, bottom + 4);
}

} // namespace exattn::program
