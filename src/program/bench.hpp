// What the files of `exattn bench` share.
#pragma once

#include "peak.hpp"

#include <exattn/exattn.h>

#include <nlohmann/json_fwd.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace exattn::program {

inline constexpr std::array<const char *, 3> kStorages = {"f32", "bf16", "f16"}; // by dtype

// A call to measure, and what it has to do. Its causal and windowed forms have the last row at the last key.
struct Shape {
  std::string name;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0;
  bool causal = false;
  std::int64_t window = 0;         // 0: none
  std::int32_t dtype = EXATTN_F32; // of keys and values
  std::int64_t page_size = 0;      // 0: keys and values lie side by side
  bool packed = false;             // keys

  std::int64_t q_offset() const { return causal || window > 0 ? std::max<std::int64_t>(0, kv_len - q_len) : 0; }
  double flops() const;                       // of visible keys alone
  std::int64_t bytes() const;                 // of the keys that any row sees, and their values
  bool streams() const { return q_len <= 8; } // so few rows that reading keys and values is what takes time

private:
  // The keys that row i sees.
  std::int64_t begin(std::int64_t i) const {
    return window > 0 ? std::max<std::int64_t>(0, q_offset() + i - window + 1) : 0;
  }
  std::int64_t end(std::int64_t i) const { return causal ? std::min(q_offset() + i + 1, kv_len) : kv_len; }
};

std::vector<Shape> usual_shapes();
Shape parse_shape(const std::string &text);                 // B,H,Hkv,Tq,Tk,D[,causal][,WINDOW]
void set_storage(Shape &shape, const std::string &storage); // one of kStorages
void set_page_size(Shape &shape, std::int64_t page_size);
void set_packed(Shape &shape);

// A shape with numbers in it.
class BenchProblem {
public:
  explicit BenchProblem(const Shape &shape);
  void run(std::int32_t flavour, std::int32_t lanes, exattn_pool *pool);

private:
  void pack_keys(std::int64_t parts, std::int64_t rows); // of [parts, Hkv, rows, D]

  std::vector<float> q, k, v, out, packed;
  std::vector<std::uint16_t> narrow_k, narrow_v;
  std::vector<std::int32_t> pages;
  exattn_attention_args args{};
};

struct Summary {
  double median = 0, least = 0, greatest = 0;
  std::size_t count = 0;
};
Summary summarize(std::vector<double> values);

// Google Benchmark, made to let calls take turns.
class Turns {
public:
  struct Call {
    std::string name;
    std::function<void()> run;
  };

  Turns();
  ~Turns();
  // Milliseconds of each call in each round; a round runs them in order, each so many times for their mean.
  std::vector<std::vector<double>> measure(std::span<const Call> calls, const Shape &shape, int rounds, int times);
  std::string json(); // of all that was measured, as Google Benchmark writes it

private:
  class Reporter;
  std::unique_ptr<Reporter> reporter;
};

// A row of the table.
struct Measurement {
  Shape shape;
  std::int32_t lanes = EXATTN_LANES_AUTO, fast_lanes = EXATTN_LANES_AUTO; // exact's, and fast's, which may be others
  std::int32_t threads = 1;
  Peak peak;            // of all threads
  double bandwidth = 0; // GB/s, where the shape streams
  Summary exact;
  std::optional<Summary> fast, ratio; // none where the lane kind has no fused multiply-add of its own

  std::string lanes_name() const;
  double rate(const Summary &times) const; // GFLOP/s, or GB/s where the shape streams
  double percent(const Summary &times) const { return 100 * rate(times) / most(); } // NaN where nothing is known
  std::optional<double> percent_of_unfused() const; // of exact, where its peak is another
private:
  double most() const;
};

std::string bench_table_head();
std::string bench_table_row(const Measurement &measurement);
nlohmann::ordered_json bench_json(const Measurement &measurement);
std::string bench_plot(std::span<const Measurement> measurements); // SVG

} // namespace exattn::program
