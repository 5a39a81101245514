// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory behind a thread's back (from sm_80 on).
#pragma once
#include "common.cuh"

#if __CUDA_ARCH__ >= 800
__device__ inline u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// 16 bytes from global to shared memory, behind the thread's back; zeros when not valid.
__device__ inline void copy_async(u32 to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_async(void* to, const void* from, bool valid) {
  copy_async(shared_address(to), from, valid);
}
__device__ inline void copy_word_async(u32 to, const void* from) {  // 4 bytes
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ inline void copy_wait() {  // until at most N groups are under way
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif
