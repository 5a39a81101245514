// SPDX-License-Identifier: Apache-2.0
// The structs of DLPack that Python passes on in capsules: version 1, and the older form without one.
#pragma once

#include <cstdint>

extern "C" {

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor dl_tensor;
};

// How types of Python give DLPack tensors without a capsule: the pointer in the capsule
// `__dlpack_c_exchange_api__` of the type.
struct DLPackExchangeAPI {
  uint32_t major, minor;
  DLPackExchangeAPI* older;
  void *allocate, *to_managed, *from_managed;
  int (*to_tensor)(void* object, DLTensor* out);  // borrows from the object; may be null
  void* current_stream;
};

}  // extern "C"

namespace tenon::python {

constexpr uint64_t kDlReadOnly = 1, kDlCopied = 2;
constexpr int32_t kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3;
constexpr const char* kCapsule = "dltensor_versioned";
constexpr const char* kUsedCapsule = "used_dltensor_versioned";
constexpr const char* kOldCapsule = "dltensor";
constexpr const char* kUsedOldCapsule = "used_dltensor";

inline bool on_host(DLDevice d) { return d.device_type == kDlCpu || d.device_type == kDlCudaHost; }

}  // namespace tenon::python
