// SPDX-License-Identifier: Apache-2.0
//
// Plugin extension "tenon.import_memory/1": buffers over memory that somebody else owns, and the
// native addresses of buffers. With it an app's tensors are read and written in place. The host
// copies through buffers of its own on devices of a plugin without this extension.
//
// An address is what the device's own code uses: a pointer to host memory on a device that computes
// there, a device pointer (CUdeviceptr) on a GPU.

// The layout is made by hand:
// clang-format off
#ifndef TENON_IMPORT_MEMORY_H
#define TENON_IMPORT_MEMORY_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_IMPORT_MEMORY_ID "tenon.import_memory/1"

typedef struct tenon_import_info {
  uint64_t struct_size;       // set by the caller
  uint64_t alignment;         // bytes; an imported address is a multiple of it and of the size of
                              // an element, whatever the programs declare for their values. A power
                              // of two up to 2^30; 0 = the device imports nothing
  uint32_t dlpack_type;       // how DLPack names the device: DLDevice.device_type and .device_id;
  uint32_t dlpack_id;         // type 0 = DLPack has no name for it
} tenon_import_info;
#define TENON_IMPORT_INFO_SIZE_V1 24u

typedef struct tenon_import_options {
  uint64_t struct_size;
  void* address;
  uint64_t size;              // bytes, > 0
  tenon_str name;             // what the memory is for ("input"), for reports; may be empty
} tenon_import_options;
#define TENON_IMPORT_OPTIONS_SIZE_V1 40u

typedef struct tenon_import_memory {
  uint64_t struct_size;

  // States what the device imports. Writes the fields that out_info->struct_size covers. After a
  // failure the host imports nothing on this device.
  // (required) [any-thread]
  tenon_status* (*info)(tenon_device* device, tenon_import_info* out_info);

  // Creates a buffer over the memory. Nothing is copied. The owner keeps the memory in place until
  // buffer_destroy() has returned; the plugin does not touch it afterwards. Several buffers may
  // cover the same memory. The host has checked that the range is not empty, does not wrap around
  // the address space, and is aligned as info() says. Fails with TENON_INVALID_ARGUMENT if the
  // plugin finds that the device cannot reach the range; it may check only the first and the last
  // byte. The host does not call buffer_address() on such a buffer.
  // (required) [any-thread]
  tenon_status* (*import_buffer)(tenon_device* device, const tenon_import_options* options,
                                 tenon_buffer** out_buffer);

  // Returns the address of a buffer of kind DEVICE, imported or not. It stays the same as long as
  // the buffer.
  // (required) [any-thread]
  void* (*address)(tenon_buffer* buffer);
} tenon_import_memory;
#define TENON_IMPORT_MEMORY_SIZE_V1 32u

TENON_STATIC_ASSERT(sizeof(tenon_import_info) >= TENON_IMPORT_INFO_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_import_options) >= TENON_IMPORT_OPTIONS_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_import_memory) >= TENON_IMPORT_MEMORY_SIZE_V1, "it shrank");

#ifdef __cplusplus
}
#endif
#endif
