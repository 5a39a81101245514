// SPDX-License-Identifier: Apache-2.0
// The structs of DLPack 1, as its specification fixes them, under names of our own: an app may
// include dlpack.h beside tenon.h.
#pragma once

#include <cstdint>

#include "ir/type.hpp"
#include "tenon/tenon.h"

namespace tenon::core::dlpack {

inline constexpr uint32_t kMajor = 1, kMinor = 0;

// Device types that are host memory: plain, and two that drivers of GPUs have pinned.
inline constexpr int32_t kHostMemory[] = {1, 3, 11};

// Managed::flags
inline constexpr uint64_t kReadOnly = 1, kPaddedSubBytes = 4;

struct Device {
  int32_t type;
  int32_t id;
};
struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  int32_t rank;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null = dense
  uint64_t byte_offset;
};
struct Managed {
  uint32_t major, minor;
  void* context;
  void (*deleter)(Managed*);
  uint64_t flags;
  Tensor tensor;
};
static_assert(sizeof(Tensor) == 48 && sizeof(Managed) == 80);

// TENON_DTYPE_NONE, or bits of 0, where the other side has no such dtype.
DType dtype_of(DataType type);
DataType dtype_of(DType dtype);

}  // namespace tenon::core::dlpack
