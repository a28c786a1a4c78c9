// What the subcommands share. Exit codes everywhere: 0 same or done, 1 differs, 2 usage or bad input.
#pragma once

#include <exattn/exattn.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace exattn::program {

inline constexpr int kExitSame = 0;
inline constexpr int kExitDiffers = 1;
inline constexpr int kExitBadInput = 2;

// What the user gave is wrong: printed as one line, exit code 2.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Each adds one subcommand; when it was chosen, its callback sets the exit code or throws InputError.
void add_attention(CLI::App &app, int &exit_code);
void add_softmax(CLI::App &app, int &exit_code);
void add_compare(CLI::App &app, int &exit_code);
void add_conformance(CLI::App &app, int &exit_code);
void add_functions(CLI::App &app, int &exit_code);
void add_info(CLI::App &app, int &exit_code);
void add_bench(CLI::App &app, int &exit_code);
void add_audit(CLI::App &app, int &exit_code);
void add_bench_memory(CLI::App &bench, int &exit_code);

// The options of every command that computes.
struct RunOptions {
  std::string flavour = "exact";
  std::string lanes = "auto";
  std::string threads = "all";
  std::string out;
  bool json = false;
};
void add_run_options(CLI::App &command, RunOptions &options);

std::vector<std::string> split_list(const std::string &list); // at commas
std::int32_t parse_flavour(const std::string &name);
std::int32_t parse_lanes(const std::string &name);   // "auto" as well
std::int32_t parse_threads(const std::string &text); // "all" is 0
std::int64_t parse_integer(const std::string &text, const char *option, std::int64_t least);
// The nearest binary32 of a number, which must not overflow; inf, -inf and nan; or bits: 0x and eight hex digits.
float parse_float(const std::string &text, const char *option);

// Threads for one call. One thread: no pool, serial.
class Pool {
public:
  explicit Pool(std::int32_t threads);
  exattn_pool *get() const { return pool.get(); }
  std::int32_t threads() const { return pool ? exattn_pool_threads(pool.get()) : 1; }

private:
  struct Destroy {
    void operator()(exattn_pool *pointer) const { exattn_pool_destroy(pointer); }
  };
  std::unique_ptr<exattn_pool, Destroy> pool;
};

std::string shape_text(std::span<const std::int64_t> shape); // 1x8x300x15

// "has 1 dimension; 2 to 4 are allowed"
std::string dimensions_text(std::size_t count, std::size_t least, std::size_t most);

// Turns a status into an InputError; `message` is the library's own sentence, if it wrote one.
void require_ok(exattn_status status, const char *message = "");

bool colours(std::FILE *stream); // a terminal, and NO_COLOR is not set
bool is_terminal(std::FILE *stream);

} // namespace exattn::program
