// The part of DLPack's binary interface (version 0.8, "unversioned") that arrays on the CPU need. It is fixed for good.
#pragma once

#include <cstdint>

namespace exattn_python::dlpack {

constexpr std::int32_t kDeviceCpu = 1;

enum Code : std::uint8_t { kUnsigned = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct Type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void *data;
  Device device;
  std::int32_t rank;
  Type type;
  std::int64_t *shape;
  std::int64_t *strides; // in elements; null: C order, without gaps
  std::uint64_t byte_offset;
};

struct Managed {
  Tensor tensor;
  void *context;
  void (*deleter)(Managed *self); // may be null
};

constexpr const char *kCapsule = "dltensor";
constexpr const char *kUsedCapsule = "used_dltensor";

} // namespace exattn_python::dlpack
