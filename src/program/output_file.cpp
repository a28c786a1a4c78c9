#include "output_file.hpp"

#include "program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace exattn::program {

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
    if (file == nullptr) {
      aside.clear();
    }
  }
  if (file == nullptr) {
    fail("cannot be written");
  }
}

OutputFile::~OutputFile() {
  if (file != nullptr) {
    std::fclose(file);
    if (!aside.empty()) {
      unlink(aside.c_str());
    }
  }
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
  const bool closed = std::fclose(closing) == 0;
  if (!closed || (!aside.empty() && std::rename(aside.c_str(), target.c_str()) != 0)) {
    const int reason = errno;
    if (!aside.empty()) {
      unlink(aside.c_str());
    }
    errno = reason;
    fail("cannot be written");
  }
}

void OutputFile::fail(const std::string &what) const {
  throw InputError(path + ": " + what + ": " + std::strerror(errno));
}

} // namespace exattn::program
