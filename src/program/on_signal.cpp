#include "on_signal.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace exattn::program {
namespace {

// No command has more than this many at once.
std::array<std::atomic<const char *>, 4> files;
std::array<std::atomic<pid_t>, 4> groups;

extern "C" void clean_up_and_stop(int signal) {
  for (const std::atomic<const char *> &path : files) {
    if (const char *name = path.load(); name != nullptr) {
      unlink(name);
    }
  }
  for (const std::atomic<pid_t> &group : groups) {
    if (const pid_t leader = group.load(); leader > 0) {
      kill(-leader, SIGKILL);
    }
  }
  std::signal(signal, SIG_DFL);
  raise(signal);
}

template <class Value>
void add(std::array<std::atomic<Value>, 4> &places, Value value) {
  for (std::atomic<Value> &place : places) {
    Value empty{};
    if (place.compare_exchange_strong(empty, value)) {
      break;
    }
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) { // an ignored one stays ignored
      action.sa_handler = clean_up_and_stop;
      sigaction(signal, &action, nullptr);
    }
  }
}

template <class Value>
void take_away(std::array<std::atomic<Value>, 4> &places, Value value) {
  for (std::atomic<Value> &place : places) {
    Value same = value;
    place.compare_exchange_strong(same, Value{});
  }
}

} // namespace

void remove_on_signal(const char *path) {
  add(files, path);
}

void keep_on_signal(const char *path) {
  take_away(files, path);
}

std::vector<std::string> files_to_remove() {
  std::vector<std::string> paths;
  for (const std::atomic<const char *> &path : files) {
    if (const char *name = path.load(); name != nullptr) {
      paths.emplace_back(name);
    }
  }
  return paths;
}

void kill_on_signal(pid_t group) {
  add(groups, group);
}

void spare_on_signal(pid_t group) {
  take_away(groups, group);
}

} // namespace exattn::program
