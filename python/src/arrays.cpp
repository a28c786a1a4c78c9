#include "arrays.hpp"

#include "dlpack.hpp"

#include <algorithm>
#include <cstddef>

namespace exattn_python {

namespace {

// numpy's numbers of its types, which never change; its headers are not needed for more than these.
constexpr int kNumpyBool = 0;
constexpr int kNumpyUint8 = 2;
constexpr int kNumpyFloat32 = 11;
constexpr int kNumpyFloat16 = 23;
constexpr int kNumpyUserDefined = 256;

constexpr std::int32_t kNoType = -1;

std::int64_t width_of(std::int32_t dtype) {
  return dtype == EXATTN_F32 ? 4 : dtype == EXATTN_U8 ? 1 : 2;
}

std::string text_of(const py::handle &object) {
  return py::str(object);
}

std::string type_name(const py::handle &object) {
  return text_of(py::type::handle_of(object).attr("__name__"));
}

bool has(const py::handle &object, const char *attribute) {
  return py::hasattr(object, attribute);
}

const char *names_of(Elements allowed) {
  switch (allowed) {
  case Elements::kFloat32:
    return "float32";
  case Elements::kFloats:
    return "float32, float16 or bfloat16";
  case Elements::kBytes:
    return "bool or uint8 (0 hides the key)";
  case Elements::kMask:
    return "float32 (added to the scores), bool or uint8 (0 hides the key)";
  default:
    return "float32, float16, bfloat16, bool or uint8";
  }
}

bool is_allowed(std::int32_t dtype, Elements allowed) {
  switch (allowed) {
  case Elements::kFloat32:
    return dtype == EXATTN_F32;
  case Elements::kFloats:
    return dtype == EXATTN_F32 || dtype == EXATTN_F16 || dtype == EXATTN_BF16;
  case Elements::kBytes:
    return dtype == EXATTN_U8;
  case Elements::kMask:
    return dtype == EXATTN_F32 || dtype == EXATTN_U8;
  default:
    return dtype != kNoType;
  }
}

void expect_type(std::int32_t dtype, const std::string &found, const std::string &name, Elements allowed) {
  if (!is_allowed(dtype, allowed)) {
    refuse(EXATTN_ERROR_ENUM, "the dtype of " + name, found, names_of(allowed));
  }
}

std::int32_t type_of(const py::dtype &dtype) {
  switch (dtype.num()) {
  case kNumpyFloat32:
    return EXATTN_F32;
  case kNumpyFloat16:
    return EXATTN_F16;
  case kNumpyBool:
  case kNumpyUint8:
    return EXATTN_U8;
  default: // numpy has no bfloat16 of its own; packages register one by this name
    return dtype.num() >= kNumpyUserDefined && dtype.itemsize() == 2 && text_of(dtype) == "bfloat16" ? EXATTN_BF16
                                                                                                     : kNoType;
  }
}

std::int32_t type_of(const dlpack::Type &type) {
  if (type.lanes != 1) {
    return kNoType;
  }
  if (type.code == dlpack::kFloat && type.bits == 32) {
    return EXATTN_F32;
  }
  if (type.code == dlpack::kFloat && type.bits == 16) {
    return EXATTN_F16;
  }
  if (type.code == dlpack::kBfloat && type.bits == 16) {
    return EXATTN_BF16;
  }
  return (type.code == dlpack::kBool || type.code == dlpack::kUnsigned) && type.bits == 8 ? EXATTN_U8 : kNoType;
}

py::array to_array(const py::handle &object) {
  return py::reinterpret_steal<py::array>(
      py::module_::import("numpy").attr("asarray")(object).release()); // shares memory; throws numpy's own errors
}

ArrayView view_of_numpy(const py::array &array, const std::string &name, Elements allowed) {
  ArrayView view;
  view.dtype = type_of(array.dtype());
  const std::string found = text_of(array.dtype());
  if (is_allowed(view.dtype, allowed) && !array.dtype().attr("isnative").cast<bool>()) {
    refuse(EXATTN_ERROR_ENUM, "the dtype of " + name, found, "in the byte order of this machine");
  }
  expect_type(view.dtype, found, name, allowed);
  view.data = const_cast<void *>(array.data());
  view.shape.assign(array.shape(), array.shape() + array.ndim());
  view.strides.assign(array.strides(), array.strides() + array.ndim());
  const std::int64_t width = width_of(view.dtype);
  const bool empty = std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end();
  for (std::size_t n = 0; n < view.rank(); ++n) {
    // A field of a record can have any stride; one that is never stepped does not matter.
    if (view.strides[n] % width != 0 && view.shape[n] > 1 && !empty) {
      refuse(EXATTN_ERROR_STRIDES, "stride " + std::to_string(n) + " of " + name,
             std::to_string(view.strides[n]) + " bytes",
             "a multiple of the " + std::to_string(width) + " bytes of an element");
    }
    view.strides[n] /= width;
  }
  view.owner = array;
  return view;
}

// Takes the tensor out of the capsule; it is given back with the owner that is returned.
py::capsule take(const py::object &capsule, const std::string &name, dlpack::Managed *&managed) {
  managed = PyCapsule_IsValid(capsule.ptr(), dlpack::kCapsule) == 0
                ? nullptr
                : static_cast<dlpack::Managed *>(PyCapsule_GetPointer(capsule.ptr(), dlpack::kCapsule));
  if (managed == nullptr) {
    throw py::type_error(name + ".__dlpack__() gave no capsule named \"dltensor\" that is still to be used");
  }
  py::capsule owner(managed, [](void *taken) {
    dlpack::Managed *const tensor = static_cast<dlpack::Managed *>(taken);
    if (tensor->deleter != nullptr) {
      tensor->deleter(tensor);
    }
  });
  PyCapsule_SetName(capsule.ptr(), dlpack::kUsedCapsule); // its own destructor then leaves the tensor alone
  return owner;
}

void expect_cpu(std::int32_t device, const std::string &name) {
  if (device != dlpack::kDeviceCpu) {
    refuse(EXATTN_ERROR_OPTION, "the DLPack device type of " + name, std::to_string(device), "1, memory of the CPU");
  }
}

ArrayView view_of_dlpack(const py::object &capsule, const std::string &name, Elements allowed) {
  dlpack::Managed *managed = nullptr;
  ArrayView view;
  view.owner = take(capsule, name, managed);
  const dlpack::Tensor &tensor = managed->tensor;
  expect_cpu(tensor.device.type, name);
  view.dtype = type_of(tensor.type);
  expect_type(view.dtype,
              "DLPack code " + std::to_string(tensor.type.code) + " of " + std::to_string(tensor.type.bits) + " bits",
              name, allowed);
  if (tensor.data != nullptr) {
    view.data = static_cast<std::byte *>(tensor.data) + tensor.byte_offset;
  }
  view.shape.assign(tensor.shape, tensor.shape + tensor.rank);
  if (tensor.strides != nullptr) {
    view.strides.assign(tensor.strides, tensor.strides + tensor.rank);
    return view;
  }
  view.strides.assign(view.rank(), 1);
  for (std::size_t n = view.rank(); n > 1; --n) {
    view.strides[n - 2] = view.strides[n - 1] * std::max<std::int64_t>(view.shape[n - 1], 1);
  }
  return view;
}

[[noreturn]] void refuse_type(const py::handle &object, const std::string &name, const std::string &wanted) {
  throw py::type_error(name + " is of type " + type_name(object) + ", must be " + wanted);
}

} // namespace

void refuse(exattn_status status, const std::string &what, const std::string &found, const std::string &wanted) {
  throw exattn::error(status, what + " is " + found + ", must be " + wanted);
}

std::string shape_text(const std::vector<std::int64_t> &shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
  }
  return text + "]";
}

exattn::tensor ArrayView::tensor() const {
  exattn::tensor result;
  result.data = data;
  result.dtype = dtype;
  result.shape = {1, 1, 1, 1};
  std::copy_backward(shape.begin(), shape.end(), result.shape.end());
  std::copy_backward(strides.begin(), strides.end(), result.strides.end());
  return result;
}

exattn::output ArrayView::output() const {
  const exattn::tensor same = tensor();
  return {static_cast<float *>(data), same.shape, same.strides};
}

ArrayView view_of(const py::handle &object, const std::string &name, Elements allowed) {
  if (py::isinstance<py::array>(object)) {
    return view_of_numpy(py::reinterpret_borrow<py::array>(object), name, allowed);
  }
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    return view_of_numpy(to_array(object), name, allowed);
  }
  if (has(object, "__dlpack__") && has(object, "__dlpack_device__")) {
    expect_cpu(object.attr("__dlpack_device__")().cast<py::tuple>()[0].cast<std::int32_t>(), name);
    py::object capsule;
    try {
      capsule = object.attr("__dlpack__")();
    } catch (const py::error_already_set &) {
      if (!has(object, "__array__")) {
        throw;
      }
    }
    if (capsule) {
      return view_of_dlpack(capsule, name, allowed);
    } // else a type that its DLPack does not know, such as bool
  }
  if (has(object, "__array__") || has(object, "__array_interface__")) {
    return view_of_numpy(to_array(object), name, allowed);
  }
  refuse_type(object, name, "an array: of numpy, by the buffer protocol, or by DLPack");
}

ArrayView writable_view_of(const py::handle &object, const std::string &name) {
  const bool is_array = py::isinstance<py::array>(object);
  if (!is_array && PyObject_CheckBuffer(object.ptr()) == 0) {
    refuse_type(object, name,
                "an array of numpy or a writable buffer (of a tensor of torch, tensor.numpy() is one: no copy)");
  }
  const py::array array = is_array ? py::reinterpret_borrow<py::array>(object) : to_array(object);
  ArrayView view = view_of_numpy(array, name, Elements::kFloat32);
  if (!array.writeable()) {
    throw exattn::error(EXATTN_ERROR_OPTION, name + " is read-only, must be writable");
  }
  return view;
}

py::array as_numpy(const py::handle &object) {
  if (py::isinstance<py::array>(object)) {
    return py::reinterpret_borrow<py::array>(object);
  }
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    return to_array(object);
  }
  const ArrayView view = view_of(object, "array", Elements::kAnythingKnown);
  if (py::isinstance<py::array>(view.owner)) {
    return py::reinterpret_borrow<py::array>(view.owner);
  }
  const char *const name = view.dtype == EXATTN_F32   ? "float32"
                           : view.dtype == EXATTN_F16 ? "float16"
                           : view.dtype == EXATTN_U8  ? "uint8"
                                                      : "uint16";
  std::vector<py::ssize_t> strides(view.strides.begin(), view.strides.end());
  for (py::ssize_t &stride : strides) {
    stride *= width_of(view.dtype);
  }
  return {py::dtype(name), std::vector<py::ssize_t>(view.shape.begin(), view.shape.end()), strides, view.data,
          view.owner};
}

} // namespace exattn_python
