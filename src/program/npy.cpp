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
#include <optional>

namespace exattn::program {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxDimensions = 32; // NumPy's own limit

// The header is a Python dict literal with three known keys; this reads that and nothing more.
class HeaderParser {
public:
  HeaderParser(std::string_view dict, const std::string &file) : text(dict), name(file) {}

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
          fail("its dtype is a structured one; only '<f4' (little-endian float32) is read");
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
  std::size_t position = 0;
};

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

void check_dtype(const NpyHeader &header, const std::string &name) {
  if (header.descr == "<f4") {
    return;
  }
  const char *known = dtype_name(header.descr);
  const bool big_endian = !header.descr.empty() && header.descr[0] == '>';
  throw InputError(name + ": its dtype is '" + header.descr + "'" +
                   (known != nullptr ? std::string(" (") + (big_endian ? "big-endian " : "") + known + ")" : "") +
                   "; only '<f4' (little-endian float32) is read");
}

std::size_t byte_count(const NpyHeader &header, const std::string &name) {
  std::size_t bytes = sizeof(float);
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
std::shared_ptr<std::vector<float>> copy_floats(const char *bytes, std::size_t count) {
  auto copy = std::make_shared<std::vector<float>>(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    for (std::size_t byte = 0; byte < 4; ++byte) {
      bits |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[4 * i + byte])) << (8 * byte);
    }
    std::memcpy(&(*copy)[i], &bits, sizeof bits);
  }
  return copy;
}

} // namespace

NpyHeader parse_npy_header(std::string_view bytes, const std::string &name) {
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
  NpyHeader header = HeaderParser(bytes.substr(start, length), name).parse();
  header.data_offset = start + length;
  check_dtype(header, name);
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

NpyArray read_npy(const std::string &path) {
  auto mapping = std::make_shared<Mapping>(path);
  const std::string_view bytes(static_cast<const char *>(mapping->address), mapping->size);
  const NpyHeader header = parse_npy_header(bytes, path);
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
  array.strides.resize(header.shape.size());
  std::int64_t step = 1;
  for (std::size_t n = 0; n < array.shape.size(); ++n) {
    const std::size_t d = header.fortran_order ? n : array.shape.size() - 1 - n;
    array.strides[d] = step;
    step *= std::max<std::int64_t>(array.shape[d], 1);
  }
  const char *data = bytes.data() + header.data_offset;
  if (std::endian::native == std::endian::little && header.data_offset % alignof(float) == 0 && wanted > 0) {
    array.data = reinterpret_cast<const float *>(data); // the mapping itself starts on a page
    array.owner = std::move(mapping);
  } else {
    auto copy = copy_floats(data, wanted / sizeof(float));
    copy->reserve(1); // an array without elements needs an address as well
    array.data = copy->data();
    array.owner = std::move(copy);
  }
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
