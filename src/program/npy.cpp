#include "npy.hpp"

#include "output_file.hpp"
#include "program.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

namespace exattn::program {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxDimensions = 32; // NumPy's own limit

// The header is a Python dict literal with three known keys; this reads that and nothing more.
class HeaderParser {
public:
  HeaderParser(std::string_view dict, const std::string &file, std::string allowed_types)
      : text(dict), name(file), allowed(std::move(allowed_types)) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string("a key");
      expect(':');
      bool *seen = nullptr;
      if (key == "descr") {
        seen = &has_descr;
        skip_space();
        if (position < text.size() && text[position] == '[') {
          fail("its dtype is a structured one; " + allowed);
        }
        header.descr = string("the dtype");
      } else if (key == "fortran_order") {
        seen = &has_order;
        header.fortran_order = boolean();
      } else if (key == "shape") {
        seen = &has_shape;
        header.shape = tuple();
      } else {
        fail("its header has the unknown key '" + key + "'");
      }
      if (*seen) {
        fail("its header has the key '" + key + "' twice");
      }
      *seen = true;
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (position != text.size()) {
      fail("its header goes on after the closing brace");
    }
    if (!has_descr || !has_order || !has_shape) {
      fail(std::string("its header lacks the key ") +
           (!has_descr ? "'descr'" : (!has_order ? "'fortran_order'" : "'shape'")));
    }
    return header;
  }

private:
  [[noreturn]] void fail(const std::string &what) const { throw InputError(name + ": " + what); }

  void skip_space() {
    while (position < text.size() && (text[position] == ' ' || text[position] == '\t' || text[position] == '\n' ||
                                      text[position] == '\r' || text[position] == '\f')) {
      ++position;
    }
  }

  bool accept(char c) {
    skip_space();
    if (position < text.size() && text[position] == c) {
      ++position;
      return true;
    }
    return false;
  }

  void expect(char c) {
    if (!accept(c)) {
      fail(std::string("its header is not a Python dict: '") + c + "' expected at byte " + std::to_string(position));
    }
  }

  std::string string(const char *what) {
    skip_space();
    const char quote = position < text.size() ? text[position] : '\0';
    const std::size_t end = quote == '\'' || quote == '"' ? text.find(quote, position + 1) : std::string_view::npos;
    if (end == std::string_view::npos) {
      fail(std::string("its header is not a Python dict: ") + what + " in quotes expected at byte " +
           std::to_string(position));
    }
    const std::string value(text.substr(position + 1, end - position - 1));
    if (!std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~' && c != '\\'; })) {
      fail(std::string("its header holds characters in ") + what + " that do not belong there");
    }
    position = end + 1;
    return value;
  }

  bool boolean() {
    skip_space();
    for (const auto &[word, value] : {std::pair{std::string_view("True"), true}, {std::string_view("False"), false}}) {
      if (text.substr(position).starts_with(word)) {
        position += word.size();
        return value;
      }
    }
    fail("its header's 'fortran_order' must be True or False");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      skip_space();
      std::int64_t value = 0;
      const char *begin = text.data() + position;
      const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
      if (!comma || error == std::errc::invalid_argument) {
        fail("its header's 'shape' must be a tuple of integers");
      }
      if (error == std::errc::result_out_of_range || value < 0) {
        fail("its header's 'shape' holds a size that is negative or does not fit in 63 bits");
      }
      if (values.size() == kMaxDimensions) {
        fail("its header's 'shape' has more than 32 dimensions");
      }
      position += static_cast<std::size_t>(end - begin);
      values.push_back(value);
      comma = accept(',');
    }
    if (values.size() == 1 && !comma) {
      fail("its header's 'shape' must be a tuple: (n,) and not (n)");
    }
    return values;
  }

  std::string_view text;
  const std::string &name;
  std::string allowed;
  std::size_t position = 0;
};

struct Dtype {
  std::string_view descr;
  NpyType type;
  std::size_t size;
  const char *name;
};

constexpr Dtype kDtypes[] = {{"<f4", NpyType::kFloat32, 4, "little-endian float32"},
                             {"<f2", NpyType::kFloat16, 2, "little-endian float16"},
                             {"<u2", NpyType::kBits16, 2, "little-endian uint16"},
                             {"<V2", NpyType::kBits16, 2, "16 bits, such as bfloat16"},
                             {"|V2", NpyType::kBits16, 2, "16 bits"},
                             {"|b1", NpyType::kBool, 1, "bool"},
                             {"|u1", NpyType::kUint8, 1, "uint8"},
                             {"<i4", NpyType::kInt32, 4, "little-endian int32"},
                             {"<i8", NpyType::kInt64, 8, "little-endian int64"}};

const char *dtype_name(const std::string &descr) {
  static constexpr std::pair<std::string_view, const char *> kNames[] = {
      {"f2", "float16"},     {"f4", "float32"}, {"f8", "float64"}, {"f16", "float128"}, {"c8", "complex64"},
      {"c16", "complex128"}, {"b1", "bool"},    {"i1", "int8"},    {"i2", "int16"},     {"i4", "int32"},
      {"i8", "int64"},       {"u1", "uint8"},   {"u2", "uint16"},  {"u4", "uint32"},    {"u8", "uint64"}};
  for (const auto &[suffix, name] : kNames) {
    if (descr.size() == suffix.size() + 1 && descr.substr(1) == suffix) {
      return name;
    }
  }
  return nullptr;
}

// "only '<f4' (little-endian float32) is read", "'|b1' (bool), '|u1' (uint8) are read"
std::string allowed_text(const NpyTypes &types) {
  std::string text;
  std::size_t count = 0;
  for (const Dtype &dtype : kDtypes) {
    if (std::count(types.allowed.begin(), types.allowed.end(), dtype.type) > 0) {
      text += (count++ == 0 ? "" : ", ") + ("'" + std::string(dtype.descr) + "' (") + dtype.name + ")";
    }
  }
  return (count == 1 ? "only " + text + " is read" : text + " are read") +
         (types.remark.empty() ? "" : "; " + types.remark);
}

NpyType find_type(const NpyHeader &header, const std::string &name, const NpyTypes &types) {
  for (const Dtype &dtype : kDtypes) {
    if (header.descr == dtype.descr && std::count(types.allowed.begin(), types.allowed.end(), dtype.type) > 0) {
      return dtype.type;
    }
  }
  const char *known = dtype_name(header.descr);
  const bool big_endian = !header.descr.empty() && header.descr[0] == '>';
  throw InputError(name + ": its dtype is '" + header.descr + "'" +
                   (known != nullptr ? std::string(" (") + (big_endian ? "big-endian " : "") + known + ")" : "") +
                   "; " + allowed_text(types));
}

std::size_t byte_count(const NpyHeader &header, const std::string &name) {
  std::size_t bytes = element_size(header.type);
  bool empty = false;
  for (const std::int64_t size : header.shape) {
    if (size == 0) {
      empty = true;
    } else if (bytes >
               static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()) / static_cast<std::size_t>(size)) {
      throw InputError(name + ": its shape " + shape_text(header.shape) + " does not fit in 63 bits");
    } else {
      bytes *= static_cast<std::size_t>(size);
    }
  }
  return empty ? 0 : bytes;
}

// A whole file, mapped read-only.
struct Mapping {
  void *address = nullptr;
  std::size_t size = 0;

  explicit Mapping(const std::string &path) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
      throw InputError(path + ": cannot be opened: " + std::strerror(errno));
    }
    struct stat status {};
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
      close(descriptor);
      throw InputError(path + (S_ISREG(status.st_mode) ? ": is empty" : ": is not a regular file"));
    }
    size = static_cast<std::size_t>(status.st_size);
    address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int reason = errno;
    close(descriptor);
    if (address == MAP_FAILED) {
      throw InputError(path + ": cannot be mapped: " + std::strerror(reason));
    }
  }
  ~Mapping() { munmap(address, size); }
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
};

// For data that the machine cannot read in place: at an odd address, or in the other byte order.
std::shared_ptr<std::vector<std::byte>> copy_elements(std::string_view bytes, std::size_t size) {
  auto copy = std::make_shared<std::vector<std::byte>>(std::max(bytes.size(), size)); // none needs an address as well
  std::memcpy(copy->data(), bytes.data(), bytes.size());
  if constexpr (std::endian::native != std::endian::little) {
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      std::reverse(copy->data() + at, copy->data() + at + size);
    }
  }
  return copy;
}

void check_bools(std::string_view bytes, const std::string &name) {
  if (const std::size_t wrong = bytes.find_first_not_of(std::string_view("\0\1", 2)); wrong != bytes.npos) {
    throw InputError(name + ": element " + std::to_string(wrong) + " is " +
                     std::to_string(static_cast<unsigned char>(bytes[wrong])) + "; a bool must be 0 or 1");
  }
}

} // namespace

NpyHeader parse_npy_header(std::string_view bytes, const std::string &name, const NpyTypes &types) {
  if (!bytes.starts_with(kMagic)) {
    throw InputError(name + ": is not a .npy file (it does not start with \\x93NUMPY)");
  }
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
  const std::size_t major = bytes.size() > 6 ? byte(6) : 0;
  const std::size_t minor = bytes.size() > 7 ? byte(7) : 0;
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  if (bytes.size() < 8 + length_bytes) {
    throw InputError(name + ": is cut off inside its header");
  }
  if (major < 1 || major > 3 || minor != 0) {
    throw InputError(name + ": is of .npy version " + std::to_string(major) + "." + std::to_string(minor) +
                     "; versions 1.0, 2.0 and 3.0 are read");
  }
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= byte(8 + i) << (8 * i);
  }
  const std::size_t start = 8 + length_bytes;
  if (length > bytes.size() - start) {
    throw InputError(name + ": is cut off inside its header, which should have " + std::to_string(length) + " bytes");
  }
  NpyHeader header = HeaderParser(bytes.substr(start, length), name, allowed_text(types)).parse();
  header.data_offset = start + length;
  header.type = find_type(header, name, types);
  byte_count(header, name);
  return header;
}

std::size_t NpyArray::size() const {
  std::size_t count = 1;
  for (const std::int64_t n : shape) {
    count *= static_cast<std::size_t>(n);
  }
  return count;
}

std::vector<std::int64_t> NpyArray::integers() const {
  std::vector<std::int64_t> values(size());
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::int64_t &value : values) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      at += index[d] * strides[d];
    }
    value = type == NpyType::kInt32 ? static_cast<const std::int32_t *>(data)[at]
                                    : static_cast<const std::int64_t *>(data)[at];
    for (std::size_t d = index.size(); d > 0 && ++index[d - 1] == shape[d - 1]; --d) { // last dimension fastest
      index[d - 1] = 0;
    }
  }
  return values;
}

MappedFile map_file(const std::string &path) {
  auto mapping = std::make_shared<Mapping>(path);
  return {{static_cast<const char *>(mapping->address), mapping->size}, mapping};
}

std::size_t element_size(NpyType type) {
  return type == NpyType::kBfloat16 ? 2 : std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype &d) {
                                            return d.type == type;
                                          })->size;
}

std::vector<std::int64_t> c_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<std::int64_t>(shape[d], 1);
  }
  return strides;
}

void set_data(NpyArray &array, std::string_view data, MappedFile file) {
  const std::size_t size = element_size(array.type);
  if (array.type == NpyType::kBool) {
    check_bools(data, array.name);
  }
  // The mapping itself starts on a page.
  const bool aligned = static_cast<std::size_t>(data.data() - file.bytes.data()) % size == 0;
  if (std::endian::native == std::endian::little && aligned && !data.empty()) {
    array.data = data.data();
    array.owner = std::move(file.owner);
  } else {
    auto copy = copy_elements(data, size);
    array.data = copy->data();
    array.owner = std::move(copy);
  }
}

NpyArray read_npy(const std::string &path, const NpyTypes &types) {
  MappedFile file = map_file(path);
  const std::string_view bytes = file.bytes;
  const NpyHeader header = parse_npy_header(bytes, path, types);
  const std::size_t wanted = byte_count(header, path);
  const std::size_t there = bytes.size() - header.data_offset;
  if (there != wanted) {
    throw InputError(path + ": " + (there < wanted ? "is cut off" : "has extra bytes at its end") + ": shape " +
                     shape_text(header.shape) + " takes " + std::to_string(wanted) + " bytes, there are " +
                     std::to_string(there));
  }

  NpyArray array;
  array.name = path;
  array.shape = header.shape;
  array.strides = c_strides(header.shape);
  if (header.fortran_order) {
    const std::vector<std::int64_t> reversed(header.shape.rbegin(), header.shape.rend());
    array.strides = c_strides(reversed);
    std::reverse(array.strides.begin(), array.strides.end());
  }
  array.type = header.type;
  set_data(array, bytes.substr(header.data_offset), std::move(file));
  return array;
}

std::string npy_header(std::span<const std::int64_t> shape) {
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (std::size_t n = 0; n < shape.size(); ++n) {
    dict += (n == 0 ? "" : ", ") + std::to_string(shape[n]);
  }
  dict += shape.size() == 1 ? ",), }" : "), }";
  // Spaces and a newline, so that the data starts at a multiple of 64.
  const std::size_t used = 10 + dict.size() + 1;
  dict.append((64 - used % 64) % 64, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(dict.size() & 0xFF);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

void write_npy(OutputFile &file, std::span<const std::int64_t> shape, std::span<const float> data) {
  file.write(npy_header(shape));
  if constexpr (std::endian::native == std::endian::little) {
    file.write(data.data(), data.size_bytes());
  } else {
    for (const float &value : data) {
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      const unsigned char little[4] = {static_cast<unsigned char>(bits), static_cast<unsigned char>(bits >> 8),
                                       static_cast<unsigned char>(bits >> 16), static_cast<unsigned char>(bits >> 24)};
      file.write(little, sizeof little);
    }
  }
}

} // namespace exattn::program
