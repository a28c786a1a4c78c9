// NumPy's .npy files: float32 is written; what is read depends on what a tensor is for. Tensors of safetensors files
// are read into the same form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace exattn::program {

// Element types by their names in .npy files. That format has no name for bfloat16: kBits16 is any 16 bits.
enum class NpyType : std::uint8_t {
  kFloat32, // '<f4'
  kFloat16, // '<f2'
  kBits16,  // '<u2', '<V2', '|V2'
  kBool,    // '|b1', each 0 or 1
  kUint8,   // '|u1'
  kInt32,   // '<i4'
  kInt64,   // '<i8'
  kBfloat16 // of safetensors files alone
};

// What the header of a file says.
struct NpyHeader {
  std::string descr;
  NpyType type = NpyType::kFloat32;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;
};

// Which types are read, and a remark for who brings another: "bfloat16 needs --bf16".
struct NpyTypes {
  NpyTypes(std::initializer_list<NpyType> list, std::string text = "") : allowed(list), remark(std::move(text)) {}
  std::vector<NpyType> allowed;
  std::string remark;
};

// Reads the header at the start of `bytes` (the whole file, or at least all of its header). Checks syntax, dtype and
// that the shape's size in bytes does not overflow. `name` is for messages. Throws InputError.
NpyHeader parse_npy_header(std::string_view bytes, const std::string &name,
                           const NpyTypes &types = {NpyType::kFloat32});

// A whole file, mapped and not copied.
struct MappedFile {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

// Throws InputError.
MappedFile map_file(const std::string &path);

// A tensor in a file: mapped, not copied, wherever the machine can read it in place.
struct NpyArray {
  std::string name;
  NpyType type = NpyType::kFloat32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides; // in elements; Fortran order is only a matter of strides
  const void *data = nullptr;
  std::shared_ptr<const void> owner; // of the mapping or the copy

  std::size_t size() const;
  const float *floats() const { return static_cast<const float *>(data); } // of kFloat32
  std::vector<std::int64_t> integers() const;                              // of kInt32 or kInt64, in C order
};

// Throws InputError.
NpyArray read_npy(const std::string &path, const NpyTypes &types = {NpyType::kFloat32});

// A tensor as the user names it: a .npy file, or FILE.safetensors:TENSOR (safetensors.cpp), and the file that it lies
// in. Throws InputError.
NpyArray read_tensor(const std::string &name, const NpyTypes &types = {NpyType::kFloat32});
std::string file_of_tensor(const std::string &name);

std::size_t element_size(NpyType type);
// Takes data, which lies in the file, in place, or copies it where the machine can't read it there.
void set_data(NpyArray &array, std::string_view data, MappedFile file);
// Strides of C order.
std::vector<std::int64_t> c_strides(std::span<const std::int64_t> shape);

// Version 1.0, C order. The bytes of the header, data excluded.
std::string npy_header(std::span<const std::int64_t> shape);

class OutputFile;
// The whole array, in C order; the caller commits.
void write_npy(OutputFile &file, std::span<const std::int64_t> shape, std::span<const float> data);

} // namespace exattn::program
