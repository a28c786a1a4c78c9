#include "output_file.hpp"

#include "program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace exattn::program {
namespace {

// Files that are open aside, for a signal to remove. A command has no more than this many at once.
std::array<std::atomic<const char *>, 4> open_aside;

extern "C" void remove_aside_and_stop(int signal) {
  for (const std::atomic<const char *> &path : open_aside) {
    if (const char *name = path.load(); name != nullptr) {
      unlink(name);
    }
  }
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void remember(const char *path) {
  for (std::atomic<const char *> &place : open_aside) {
    const char *empty = nullptr;
    if (place.compare_exchange_strong(empty, path)) {
      break;
    }
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) { // an ignored one stays ignored
      action.sa_handler = remove_aside_and_stop;
      sigaction(signal, &action, nullptr);
    }
  }
}

void forget(const char *path) {
  for (std::atomic<const char *> &place : open_aside) {
    const char *same = path;
    place.compare_exchange_strong(same, nullptr);
  }
}

// Whether a file that this process has open aside is that one, however its path is written.
bool is_open_aside(const std::string &path) {
  return std::any_of(open_aside.begin(), open_aside.end(), [&](const std::atomic<const char *> &open) {
    const char *name = open.load();
    std::error_code error;
    return name != nullptr && std::filesystem::equivalent(name, path, error);
  });
}

const std::string &refuse_inputs(const NamedFile &output, std::span<const NamedFile> inputs) {
  std::error_code error;
  for (const NamedFile &input : inputs) {
    if (std::filesystem::equivalent(input.path, output.path, error)) {
      throw InputError(output.option + ": " + output.path + " is an input, of " + input.option +
                       "; an output needs a file of its own");
    }
  }
  return output.path;
}

} // namespace

OutputFile::OutputFile(const NamedFile &output, std::span<const NamedFile> inputs)
    : OutputFile(refuse_inputs(output, inputs)) {}

OutputFile::OutputFile(const std::string &name) : path(name), target(name) {
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    target = std::filesystem::weakly_canonical(path, error).string();
    if (error) {
      throw InputError(path + ": " + error.message());
    }
  }
  const std::filesystem::file_status status = std::filesystem::status(target, error);
  if (std::filesystem::is_directory(status)) {
    throw InputError(path + ": is a directory");
  }
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    file = std::fopen(target.c_str(), "wb"); // renaming over a device would replace it
  } else {
    // A file that may not be written may not be replaced either.
    if (std::filesystem::exists(status) && access(target.c_str(), W_OK) != 0) {
      fail("cannot be written");
    }
    aside = target + ".aside-" + std::to_string(getpid());
    const int descriptor = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno == EEXIST && is_open_aside(aside)) {
      throw InputError(path + ": is named for two outputs; each needs a file of its own");
    }
    file = descriptor < 0 ? nullptr : fdopen(descriptor, "wb");
    if (file != nullptr) {
      remember(aside.c_str());
      struct stat old {}; // a file that is replaced keeps its permissions
      if (stat(target.c_str(), &old) == 0 && fchmod(descriptor, old.st_mode & 07777) != 0) {
        const int reason = errno;
        std::fclose(file);
        unlink(aside.c_str());
        forget(aside.c_str());
        errno = reason;
        fail("cannot be given the permissions that it has");
      }
    }
  }
  if (file == nullptr) {
    fail("cannot be written");
  }
}

OutputFile::~OutputFile() {
  if (file != nullptr) {
    std::fclose(file);
  }
  if (!aside.empty()) {
    if (!committed) {
      unlink(aside.c_str());
    }
    forget(aside.c_str());
  }
}

void OutputFile::write(const void *bytes, std::size_t size) {
  if (size > 0 && std::fwrite(bytes, 1, size, file) != size) {
    fail("cannot be written");
  }
}

void OutputFile::finish() {
  std::FILE *closing = file;
  if (std::fflush(closing) != 0) {
    fail("cannot be written");
  }
  file = nullptr;
  if (std::fclose(closing) != 0) {
    fail("cannot be written");
  }
}

void OutputFile::commit() {
  if (file != nullptr) {
    finish();
  }
  if (!aside.empty() && std::rename(aside.c_str(), target.c_str()) != 0) {
    fail("cannot be written");
  }
  committed = true;
}

void OutputFile::fail(const std::string &what) const {
  throw InputError(path + ": " + what + ": " + std::strerror(errno));
}

} // namespace exattn::program
