#include "child_process.hpp"

#include "on_signal.hpp"

#include "conformance/runner.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <utility>

#ifdef __APPLE__
extern char **environ; // which only other systems' unistd.h declares
#endif

namespace exattn::program {
namespace {

using conformance::ForeignError;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

[[noreturn]] void fail_to_start(int reason) {
  throw ForeignError(std::string("the implementation can't be started: ") + std::strerror(reason));
}

// Both ends of a pipe. Neither goes to a child by itself, nor is one of the three standard streams.
class Pipe {
public:
  Pipe() {
    std::array<int, 2> made{};
    if (pipe(made.data()) != 0) {
      fail_to_start(errno);
    }
    for (std::size_t n = 0; n < 2; ++n) {
      ends[n] = fcntl(made[n], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    }
    const int reason = errno;
    close(made[0]);
    close(made[1]);
    if (ends[0] < 0 || ends[1] < 0) {
      close_both();
      fail_to_start(reason);
    }
  }
  ~Pipe() { close_both(); }
  Pipe(const Pipe &) = delete;
  Pipe &operator=(const Pipe &) = delete;

  int reading() const { return ends[0]; }
  int writing() const { return ends[1]; }
  int take(std::size_t end) { return std::exchange(ends[end], -1); }

private:
  void close_both() const {
    for (const int end : ends) {
      if (end >= 0) {
        close(end);
      }
    }
  }

  std::array<int, 2> ends = {-1, -1};
};

// While it lives, these signals wait.
class Blocked {
public:
  explicit Blocked(std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) {
      sigaddset(&set, signal);
    }
    pthread_sigmask(SIG_BLOCK, &set, &old);
  }
  ~Blocked() { pthread_sigmask(SIG_SETMASK, &old, nullptr); }
  Blocked(const Blocked &) = delete;
  Blocked &operator=(const Blocked &) = delete;

  const sigset_t &before() const { return old; }

private:
  sigset_t old{};
};

// Writing to a pipe that nobody reads is an error here and no reason to end, as it is for standard output.
ssize_t write_without_signal(int file, const char *bytes, std::size_t size) {
  const auto pending = []() {
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, SIGPIPE) == 1;
  };
  const Blocked blocked({SIGPIPE});
  const bool was_pending = pending();
  const ssize_t count = write(file, bytes, size);
  const int reason = errno;
  if (count < 0 && reason == EPIPE && !was_pending && pending()) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    int taken = 0;
    sigwait(&set, &taken);
  }
  errno = reason;
  return count;
}

pid_t start(const std::string &command, const Pipe &to_child, const Pipe &from_child) {
  const std::array<const char *, 4> arguments = {"sh", "-c", command.c_str(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, to_child.reading(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, from_child.writing(), STDOUT_FILENO);
  posix_spawnattr_init(&attributes);
  // A group of its own, so that what the shell starts can be ended with it; and no signal in between, so that it is
  // either not there or known to be.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  const Blocked blocked({SIGINT, SIGTERM, SIGHUP});
  posix_spawnattr_setsigmask(&attributes, &blocked.before());
  pid_t process = -1;
  const int reason =
      posix_spawn(&process, "/bin/sh", &files, &attributes, const_cast<char **>(arguments.data()), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (reason != 0) {
    fail_to_start(reason);
  }
  kill_on_signal(process);
  return process;
}

int milliseconds_until(Clock::time_point time) {
  const auto left = std::chrono::ceil<milliseconds>(time - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
}

std::string seconds_text(milliseconds time) {
  const std::int64_t count = time.count() / 1000;
  return time.count() % 1000 != 0 ? std::to_string(time.count()) + " milliseconds"
                                  : std::to_string(count) + (count == 1 ? " second" : " seconds");
}

} // namespace

ChildProcess::ChildProcess(const std::string &command, milliseconds timeout) : patience(timeout) {
  Pipe to_child, from_child;
  process = start(command, to_child, from_child);
  input = to_child.take(1);
  output = from_child.take(0);
  fcntl(input, F_SETFL, O_NONBLOCK);
  fcntl(output, F_SETFL, O_NONBLOCK);
}

ChildProcess::~ChildProcess() {
  stop();
}

bool ChildProcess::write_some(const std::string &text, std::size_t &written) {
  const ssize_t count = write_without_signal(input, text.data() + written, text.size() - written);
  if (count >= 0) {
    written += static_cast<std::size_t>(count);
    return written < text.size();
  }
  if (errno == EPIPE) { // it reads no more; what it has said, or that it has ended, comes by the other pipe
    return false;
  }
  if (errno != EAGAIN && errno != EINTR) {
    throw ForeignError(std::string("the implementation can't be written to: ") + std::strerror(errno));
  }
  return true;
}

bool ChildProcess::read_some(std::string &text) {
  static constexpr std::size_t kPart = std::size_t{64} << 10;
  const std::size_t before = text.size();
  text.resize(before + kPart);
  const ssize_t count = read(output, text.data() + before, kPart);
  text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0 && errno != EAGAIN && errno != EINTR) {
    throw ForeignError(std::string("the implementation can't be read from: ") + std::strerror(errno));
  }
  return count != 0;
}

std::string ChildProcess::exchange(const std::string &line, std::size_t most) {
  const std::string text = line + "\n";
  std::size_t written = 0;
  bool writing = true;
  std::string answer;
  const Time until = Clock::now() + patience;
  for (;;) {
    std::array<pollfd, 2> files = {pollfd{output, POLLIN, 0}, pollfd{writing ? input : -1, POLLOUT, 0}};
    const int ready = poll(files.data(), files.size(), milliseconds_until(until));
    if (ready < 0 && errno != EINTR) {
      throw ForeignError(std::string("waiting for the implementation: ") + std::strerror(errno));
    }
    if (ready == 0) {
      throw ForeignError("no answer within " + seconds_text(patience));
    }
    if (ready < 0) {
      continue;
    }
    if (files[1].revents != 0) {
      writing = write_some(text, written);
    }
    if (files[0].revents == 0) {
      continue;
    }
    const std::size_t before = answer.size();
    if (!read_some(answer)) {
      static constexpr milliseconds kMoment{2000}; // how it ended is known soon after
      wait_for_end(std::min(until, Clock::now() + kMoment));
      throw ForeignError("no answer: the implementation " + end());
    }
    const std::size_t feed = answer.find('\n', before);
    if (std::min(feed, answer.size()) > most) {
      throw ForeignError("the answer has more than " + std::to_string(most) +
                         " bytes, which is too long for a right one");
    }
    if (feed != std::string::npos) {
      if (feed + 1 != answer.size()) {
        throw ForeignError("the answer has more than one line");
      }
      if (writing && written < text.size()) {
        throw ForeignError("the answer came before all of the message was read");
      }
      answer.pop_back();
      return answer;
    }
  }
}

void ChildProcess::finish() {
  close(std::exchange(input, -1));
  const Time until = Clock::now() + patience;
  std::string rest;
  for (bool open = true; open && rest.empty() && Clock::now() < until;) {
    pollfd file = {output, POLLIN, 0};
    open = poll(&file, 1, milliseconds_until(until)) <= 0 || read_some(rest);
  }
  if (!rest.empty()) {
    throw ForeignError("the implementation has written more after its last answer");
  }
  wait_for_end(until);
  if (!ended) {
    throw ForeignError("the implementation has not ended within " + seconds_text(patience) +
                       " after its standard input was closed");
  }
  if (exit_code != 0 || exit_signal != 0) {
    throw ForeignError("the implementation " + end() + " after its standard input was closed; 0 is asked for");
  }
  stop();
}

bool ChildProcess::has_ended() {
  siginfo_t info{};
  if (!ended && waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == process) {
    ended = true;
    exit_code = info.si_code == CLD_EXITED ? info.si_status : 0;
    exit_signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
  }
  return ended;
}

void ChildProcess::wait_for_end(Time until) {
  for (int pause = 1; !has_ended() && Clock::now() < until; pause = std::min(2 * pause, 50)) {
    poll(nullptr, 0, std::min(pause, milliseconds_until(until)));
  }
}

std::string ChildProcess::end() const {
  if (!ended) {
    return "has closed its standard output";
  }
  return exit_signal != 0 ? "was ended by signal " + std::to_string(exit_signal)
                          : "ended with exit code " + std::to_string(exit_code);
}

void ChildProcess::stop() {
  for (int *file : {&input, &output}) {
    if (*file >= 0) {
      close(std::exchange(*file, -1));
    }
  }
  if (process > 0) {
    kill(-process, SIGKILL); // before it is reaped: until then its number is not another's
    spare_on_signal(process);
    while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
    }
    process = -1;
  }
}

} // namespace exattn::program
