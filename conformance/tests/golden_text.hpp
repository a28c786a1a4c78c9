// Golden files small enough to read, and folders to put them into.
#pragma once

#include "conformance/cases.hpp"
#include "conformance/sha256.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace exattn::tests {

inline std::string read_file(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::filesystem::path &path, const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A folder of its own that goes when the test does.
class TemporaryFolder {
public:
  TemporaryFolder() {
    static int count = 0;
    path = std::filesystem::temp_directory_path() /
           ("exattn-test-" + std::to_string(getpid()) + "-" + std::to_string(++count));
    std::filesystem::create_directories(path);
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  std::filesystem::path operator/(const std::string &name) const { return path / name; }
  const std::filesystem::path &get() const { return path; }

private:
  std::filesystem::path path;
};

inline std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) {
    throw std::logic_error("not in the text: " + from);
  }
  return text.replace(at, from.size(), to);
}

// Writes both files and the sums of what was written.
inline void write_goldens(const std::filesystem::path &folder, const std::string &attention,
                          const std::string &softmax) {
  write_file(folder / conformance::kAttentionFile, attention);
  write_file(folder / conformance::kSoftmaxFile, softmax);
  write_file(folder / conformance::kSumsFile, sha256_of(attention) + "  " + conformance::kAttentionFile + "\n" +
                                                  sha256_of(softmax) + "  " + conformance::kSoftmaxFile + "\n");
}

} // namespace exattn::tests
