#include "output_file.hpp"

#include "program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

} // namespace

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
    unlink(aside.c_str());
  }
  forget(aside.c_str());
}

void OutputFile::write(const void *bytes, std::size_t size) {
  if (size > 0 && std::fwrite(bytes, 1, size, file) != size) {
    fail("cannot be written");
  }
}

void OutputFile::commit() {
  std::FILE *closing = file;
  if (std::fflush(closing) != 0) {
    fail("cannot be written");
  }
  file = nullptr;
  if (std::fclose(closing) != 0 || (!aside.empty() && std::rename(aside.c_str(), target.c_str()) != 0)) {
    const int reason = errno;
    unlink(aside.c_str());
    errno = reason;
    fail("cannot be written");
  }
}

void OutputFile::fail(const std::string &what) const {
  throw InputError(path + ": " + what + ": " + std::strerror(errno));
}

} // namespace exattn::program
