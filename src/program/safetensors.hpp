// Tensors in safetensors files: https://huggingface.co/docs/safetensors, read strictly and mapped, never copied as a
// whole.
#pragma once

#include "npy.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace exattn::program {

// What the header says of one tensor. Its bytes are [begin, end) of what follows the header.
struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::size_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors; // in the order of their bytes
  std::size_t data_offset = 0;
};

// Reads and checks the header of a whole file: its size and syntax, no name twice, only known dtypes, sizes that agree
// with their shapes, and tensors that cover all bytes without gap or overlap. `name` is for messages. Throws
// InputError.
SafetensorsHeader parse_safetensors(std::string_view bytes, const std::string &name);

// Throws InputError; when there is no such tensor, it names those that there are.
NpyArray read_safetensors(const std::string &path, const std::string &tensor, const NpyTypes &types);

} // namespace exattn::program
