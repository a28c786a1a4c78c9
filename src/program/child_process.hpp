// A command that is asked line by line over its standard input and output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace exattn::program {

// Every function throws conformance::ForeignError when the command can't be started, is gone, or doesn't answer.
class ChildProcess {
public:
  // Starts it by `sh -c`; its standard error is ours. No answer may take longer than `timeout`.
  ChildProcess(const std::string &command, std::chrono::milliseconds timeout);
  ~ChildProcess(); // ends it with all that it has started
  ChildProcess(const ChildProcess &) = delete;
  ChildProcess &operator=(const ChildProcess &) = delete;

  // Sends a line and waits for the next, both without the line feed. A line of more than `most` bytes is refused.
  std::string exchange(const std::string &line, std::size_t most);

  // Closes its standard input and waits until it has ended, which has to be with exit code 0 and without another word.
  void finish();

  pid_t id() const { return process; }

private:
  using Time = std::chrono::steady_clock::time_point;

  // Both return whether there may be more to do.
  bool write_some(const std::string &text, std::size_t &written);
  bool read_some(std::string &text);

  bool has_ended();              // leaves it to be reaped
  void wait_for_end(Time until); // or until then
  std::string end() const;       // how it ended, in words
  void stop();

  std::chrono::milliseconds patience;
  pid_t process = -1;
  int input = -1;  // its standard input
  int output = -1; // its standard output
  int exit_code = 0;
  int exit_signal = 0;
  bool ended = false;
};

} // namespace exattn::program
