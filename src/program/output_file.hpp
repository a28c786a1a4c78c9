// A file that is written aside and renamed, so that it is there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace exattn::program {

class OutputFile {
public:
  // Opens the file aside, so that a path that cannot be written is found before any work is done. Throws InputError.
  explicit OutputFile(const std::string &path);
  ~OutputFile(); // without commit: as if it had never been opened
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  void write(const void *bytes, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

private:
  [[noreturn]] void fail(const std::string &what) const;

  std::string path;   // as the user wrote it
  std::string target; // behind symbolic links
  std::string aside;  // empty: a device or pipe, written in place
  std::FILE *file = nullptr;
};

} // namespace exattn::program
