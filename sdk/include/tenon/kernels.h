// SPDX-License-Identifier: Apache-2.0
//
// Plugin extension "tenon.kernels/1": kernels for devices of other plugins. A plugin may have no
// device of its own, and add kernels to the cpu plugin or to the cuda plugin: for ops of one's own
// (op.h), or for ops of tenon that the other plugin lacks. The device's own kernels come first.
//
// How it works. The host keeps the rows of all plugins of the process. A plugin that accepts such
// kernels asks the host for the rows of its kind of device, and calls their makers in query() and in
// compile(). A maker sees one node, and gives a kernel or refuses. The struct that describes a kernel
// has a form, named by an id, which the owner of the device defines:
//
//   tenon.host_kernel/1   tenon_host_kernel, below: a function over host memory. Every plugin whose
//                         device has host memory and is made with plugin.hpp accepts it
//   tenon.cuda_kernel/1   tenon_cuda_kernel, cuda_kernel.h: a text in CUDA C++
//
// If several plugins have kernels for an op on a device, the first one that does not refuse the node
// runs it, in the order of loading. All tensors of a kernel are dense and row-major. A node of an op
// of one's own carries all its attributes and positions, whatever their defaults. A plugin with
// nothing but ops and such kernels should demand ABI 0.3 (TENON_MIN_HOST_MINOR): an older host loads
// it without effect. C++: PluginSpec::kernels.

// The layout is made by hand:
// clang-format off
#ifndef TENON_KERNELS_H
#define TENON_KERNELS_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// The id of the plugin's extension (tenon_kernels) and of the host's (tenon_kernel_list).
#define TENON_KERNELS_ID "tenon.kernels/1"

// A node for which a kernel is wanted. Valid only during the call of the maker.
typedef struct tenon_kernel_request tenon_kernel_request;
struct tenon_kernel_request {
  uint64_t struct_size;
  void* owner;                // of the device's plugin; not for makers
  const void* blob;           // a graph (blob.h), which the host has checked
  uint64_t blob_size;         // bytes
  uint32_t node;              // index in function 0
  uint32_t abi_minor;         // of the device's plugin
  uint64_t alignment;         // bytes, of all tensors; also of those in memory of the app

  // A maker calls one of these, once. reason: TENON_REASON_*. kernel: the struct of the row's form,
  // copied; what it points to must stay valid until its destroy().
  void (*refuse)(const tenon_kernel_request* request, uint32_t reason, tenon_str text);
  void (*give)(const tenon_kernel_request* request, const void* kernel);
};

// The kernels for an op on a kind of device.
typedef struct tenon_kernel_row {
  tenon_str device_kind;      // "cpu", "cuda"
  tenon_str form;             // id of what make() gives
  tenon_str domain;           // of the op
  tenon_str op;
  uint32_t version;           // the highest of the op that it runs; it runs all versions below, too
  uint32_t reserved0;
  const void* user;

  // Inspects a node. Pure: equal nodes get equal answers. Called by any thread.
  // (required)
  void (*make)(const void* user, const tenon_kernel_request* request);
} tenon_kernel_row;
#define TENON_KERNEL_ROW_SIZE_V1 88u

// What the plugin's get_extension() returns. The host copies the rows and their texts; `user` and
// the makers must stay valid until the process ends.
typedef struct tenon_kernels {
  uint64_t struct_size;
  const tenon_kernel_row* rows;
  uint64_t row_stride;        // bytes from one row to the next: sizeof(tenon_kernel_row)
  uint32_t row_count;
  uint32_t reserved0;
} tenon_kernels;
#define TENON_KERNELS_SIZE_V1 32u

// What tenon_host::get_extension() returns.
typedef struct tenon_kernel_list {
  uint64_t struct_size;

  // Calls put for each row for this kind of device and this form, in the order of loading. The rows
  // stay valid until the process ends. put must not call the host.
  // [any-thread]
  void (*each)(tenon_str device_kind, tenon_str form,
               void (*put)(void* user, const tenon_kernel_row* row), void* user);
} tenon_kernel_list;
#define TENON_KERNEL_LIST_SIZE_V1 16u


// ---- Kernels over host memory -------------------------------------------------------------------

#define TENON_HOST_KERNEL_ID "tenon.host_kernel/1"

// One run of a kernel. Valid only during the call.
typedef struct tenon_kernel_call tenon_kernel_call;
struct tenon_kernel_call {
  uint64_t struct_size;
  void* owner;                // of the device's plugin; not for kernels
  void* const* inputs;        // addresses by position; NULL = absent
  void* const* outputs;       // likewise; NULL = not wanted
  uint32_t input_count;       // positions. For an op of one's own all of them; for an op of tenon,
  uint32_t output_count;      // absent ones at the end are left out
  void* scratch;

  // Reports that the data is bad, or that memory is short: the run fails. Only the first call counts.
  // index: flat index of the first bad element, -1 = none. Call it before anything is written.
  void (*fail)(const tenon_kernel_call* call, tenon_code code, tenon_str text, int64_t index);
};

typedef struct tenon_host_kernel {
  uint64_t struct_size;
  void* self;                 // passed to the functions

  // Computes the outputs, in the calling thread. It may be called by several threads at the same
  // time, for different runs, and may share its work with threads of its own.
  // (required)
  void (*run)(void* self, const tenon_kernel_call* call);

  // (optional) Called once, after the last run.
  void (*destroy)(void* self);

  uint64_t scratch;           // bytes of memory that run() needs
  double cost;                // estimated seconds, 0 = unknown
  // Pairs of an operand and an output that may have the same address: operand 0, output 0, ...
  const uint32_t* in_place;
  uint32_t in_place_count;    // of pairs
  uint32_t reserved0;
} tenon_host_kernel;
#define TENON_HOST_KERNEL_SIZE_V1 64u

TENON_STATIC_ASSERT(sizeof(tenon_kernel_row) >= TENON_KERNEL_ROW_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_kernels) >= TENON_KERNELS_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_kernel_list) >= TENON_KERNEL_LIST_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_host_kernel) >= TENON_HOST_KERNEL_SIZE_V1, "it shrank");

#ifdef __cplusplus
}
#endif
#endif
