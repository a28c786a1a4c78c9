// The program exattn, run as a user runs it, and the .npy files that it reads and writes.
#pragma once

#include "src/program/npy.hpp"
#include "src/program/output_file.hpp"

#include "test_files.hpp"

#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace exattn::tests {

struct Output {
  int exit_code = -1;
  std::string out, err;
};

// Runs the program in a folder, through a shell.
inline Output run(const TemporaryFolder &folder, const std::string &arguments, const std::string &environment = "") {
  const std::string command = "cd '" + folder.get().string() + "' && env -u EXATTN_LANES -u EXATTN_GOLDEN " +
                              environment + " " EXATTN_LAUNCHER " '" EXATTN_PROGRAM "' " + arguments +
                              " > .stdout 2> .stderr < /dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / ".stdout"), read_file(folder / ".stderr")};
}

inline void save(const TemporaryFolder &folder, const std::string &name, const std::vector<std::int64_t> &shape,
                 const std::vector<float> &data) {
  program::OutputFile file((folder / name).string());
  program::write_npy(file, shape, data);
  file.commit();
}

inline std::vector<float> load(const TemporaryFolder &folder, const std::string &name) {
  const program::NpyArray array = program::read_npy((folder / name).string());
  return {array.floats(), array.floats() + array.size()};
}

} // namespace exattn::tests
