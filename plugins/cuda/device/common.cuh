// SPDX-License-Identifier: Apache-2.0
// What every kernel text may need besides dtypes: bad data, division by a number that the host knows.
#pragma once
#include "arguments.cuh"

constexpr u32 kIndexOutOfRange = 5, kNumericError = 6, kOutOfMemory = 7;  // TENON_*
// To the host's error_sink(call); the smallest value stays.
__device__ inline void report(const ErrorSink& sink, u32 code, u64 index) {
  const u64 value = sink.step << 44 | (u64)code << 40 | index;
  // The host's memory is far: few of many reports go there.
  if (value < atomicMin(&sink.word->first, value)) atomicMin(sink.word->told, value);
}

// For kernels that are launched as Grid::early: all that was launched before has ended at await_earlier.
// Before it a kernel writes nothing. It may read frozen weights, and what neither the kernel in front
// writes nor, where that one was launched early itself, any before it.
__device__ inline void await_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may begin, up to its await_earlier, when all blocks came here or ended.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void begin_early() {  // with nothing to do ahead
  let_next_begin();
  await_earlier();
}
// Brings what will be read into L2, which every kernel writes through; `from` lies on 16 bytes.
__device__ inline void fetch_ahead([[maybe_unused]] const void* from, [[maybe_unused]] u32 bytes) {
#if __CUDA_ARCH__ >= 900
  bytes &= ~15u;  // the instruction takes no other sizes; what is left is fetched when it is read
  if (bytes > 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

__device__ inline void fetch_ahead([[maybe_unused]] const void* from) {  // what lies there
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
#endif
}
