// A file that is written aside and renamed, so that it is there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace exattn::program {

// A file that the user named, and by which option.
struct NamedFile {
  std::string option; // "--q"
  std::string path;
};

class OutputFile {
public:
  // Opens the file aside, so that a path that cannot be written, or is open as another output, is found before any work
  // is done. Throws InputError.
  explicit OutputFile(const std::string &path);
  // The same, and refuses a path that is one of the inputs.
  OutputFile(const NamedFile &output, std::span<const NamedFile> inputs);
  ~OutputFile(); // without commit: as if it had never been opened
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  void write(const void *bytes, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void finish(); // ends the writing, so that of several files none takes its place when one has no room
  void commit(); // finishes, and puts the file in its place

private:
  [[noreturn]] void fail(const std::string &what) const;

  std::string path;   // as the user wrote it
  std::string target; // behind symbolic links
  std::string aside;  // empty: a device or pipe, written in place
  std::FILE *file = nullptr;
  bool committed = false;
};

} // namespace exattn::program
