// NumPy's .npy files, float32 only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace exattn::program {

// What the header of a file says.
struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;
};

// Reads the header at the start of `bytes` (the whole file, or at least all of its header). Checks syntax, dtype and
// that the shape's size in bytes does not overflow. `name` is for messages. Throws InputError.
NpyHeader parse_npy_header(std::string_view bytes, const std::string &name);

// A tensor in a file: mapped, not copied, wherever the machine can read it in place.
struct NpyArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides; // in elements; Fortran order is only a matter of strides
  const float *data = nullptr;
  std::shared_ptr<const void> owner; // of the mapping or the copy

  std::size_t size() const;
};

// Throws InputError.
NpyArray read_npy(const std::string &path);

// Version 1.0, C order. The bytes of the header, data excluded.
std::string npy_header(std::span<const std::int64_t> shape);

class OutputFile;
// The whole array, in C order; the caller commits.
void write_npy(OutputFile &file, std::span<const std::int64_t> shape, std::span<const float> data);

} // namespace exattn::program
