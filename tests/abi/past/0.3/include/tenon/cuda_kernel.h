// SPDX-License-Identifier: Apache-2.0
//
// Kernels for devices of the cuda plugin, from other plugins (kernels.h): a text in CUDA C++, which
// the cuda plugin compiles with NVRTC for the device, keeps on disk, and launches on the run's
// stream, captured or not. The author needs neither the CUDA toolkit nor a GPU to build the plugin.
//
//   extern "C" __global__ void softcap(const float* x, float* y, long long count, double cap) {...}
//
// The entry's parameters are, in this order: one pointer for each operand of the node, by position
// (an absent one is null), one for each output (one that is not wanted is null), one to the scratch
// memory if the kernel has any, and then the scalars. Pointers are to device memory, dense, and
// aligned as the request says. For an op of tenon, absent operands at the end, and outputs likewise,
// have no parameter. What NVRTC offers without include files is there; the text may not include files
// of the toolkit.
//
// A description that is not valid refuses the node, which is then decomposed or runs elsewhere. The
// text is compiled when it is first needed: one that does not compile, or whose entry has other
// parameters, makes the run fail, or the compilation ahead of time.

// The layout is made by hand:
// clang-format off
#ifndef TENON_CUDA_KERNEL_H
#define TENON_CUDA_KERNEL_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_CUDA_KERNEL_ID "tenon.cuda_kernel/1"

// Copied with all texts and arrays when it is given.
typedef struct tenon_cuda_kernel {
  uint64_t struct_size;
  tenon_str name;             // for messages of the compiler
  tenon_str text;             // CUDA C++. Equal texts are compiled once: prefer scalars to constants
  tenon_str entry;            // extern "C" __global__
  const uint64_t* scalars;    // 8 bytes each: a long long, or the bits of a double
  uint32_t scalar_count;      // at most 64
  uint32_t threads;           // of a block, 1 to 1024
  uint64_t blocks;            // of the grid, at most 2^31 - 1; 0: nothing is launched
  uint32_t blocks_y;          // 1 to 65535
  uint32_t blocks_z;          // 1 to 65535
  uint32_t shared;            // bytes of dynamic shared memory of a block
  uint32_t reserved0;
  uint64_t scratch;           // bytes of device memory
} tenon_cuda_kernel;
#define TENON_CUDA_KERNEL_SIZE_V1 104u

TENON_STATIC_ASSERT(sizeof(tenon_cuda_kernel) >= TENON_CUDA_KERNEL_SIZE_V1, "it shrank");

#ifdef __cplusplus
}
#endif
#endif
