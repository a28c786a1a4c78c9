#include "output_file.hpp"

#include "on_signal.hpp"
#include "program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace exattn::program {
namespace {

// Whether a file that this process has open aside is that one, however its path is written.
bool is_open_aside(const std::string &path) {
  const std::vector<std::string> open = files_to_remove();
  return std::any_of(open.begin(), open.end(), [&](const std::string &name) {
    std::error_code error;
    return std::filesystem::equivalent(name, path, error);
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
      remove_on_signal(aside.c_str());
      struct stat old {}; // a file that is replaced keeps its permissions
      if (stat(target.c_str(), &old) == 0 && fchmod(descriptor, old.st_mode & 07777) != 0) {
        const int reason = errno;
        std::fclose(file);
        unlink(aside.c_str());
        keep_on_signal(aside.c_str());
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
    keep_on_signal(aside.c_str());
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
