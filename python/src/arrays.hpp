// Arrays of Python as exattn.hpp wants them: address, element type, sizes, and strides in elements. Nothing is copied.
#pragma once

#include <exattn/exattn.hpp>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

namespace exattn_python {

namespace py = pybind11;

/// What an input may be made of.
enum class Elements {
  kFloat32,      ///< float32
  kFloats,       ///< float32, float16, bfloat16
  kBytes,        ///< bool or uint8
  kMask,         ///< float32, bool or uint8
  kAnythingKnown ///< any of them
};

/// Memory of an array, which lives as long as the owner does.
struct ArrayView {
  void *data = nullptr;
  std::int32_t dtype = EXATTN_F32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides; ///< in elements
  py::object owner;

  std::size_t rank() const noexcept { return shape.size(); }
  /// With leading sizes of 1. The rank must be at most 4.
  exattn::tensor tensor() const;
  exattn::output output() const;
};

/// An array by numpy's own object, the buffer protocol, DLPack on the CPU or `__array__`, in this order. `name` is what
/// errors call it. Throws py::type_error for what is no array, exattn::error for one that does not do.
ArrayView view_of(const py::handle &object, const std::string &name, Elements allowed);

/// The same for what is written: numpy's arrays and the buffer protocol alone, which say whether memory may be written.
ArrayView writable_view_of(const py::handle &object, const std::string &name);

/// A numpy array over the same memory, bfloat16 as uint16; a numpy array as it is, whatever its type.
py::array as_numpy(const py::handle &object);

/// "[2, 3]".
std::string shape_text(const std::vector<std::int64_t> &shape);

/// `found`, or one of its parts; "q is ..., must be ...".
[[noreturn]] void refuse(exattn_status status, const std::string &what, const std::string &found,
                         const std::string &wanted);

} // namespace exattn_python
