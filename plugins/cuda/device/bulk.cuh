// SPDX-License-Identifier: Apache-2.0
// Tiles of a matrix copied to shared memory by the copy engine of sm_90, and the barriers at which
// such copies and their readers meet.
#pragma once
#include "wgmma.cuh"

// A matrix as the copy engine knows it; the host's TensorMap.
typedef TensorMap Map;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Barriers that were made are known to the copy engine.
__device__ __forceinline__ void barriers_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// The same, and the phase lasts until so many bytes have come, too.
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Until the phase, whose parity this is, is over.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 phase) {
  u32 done = 0;
  while (!done)
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
        "p;}"
        : "=r"(done)
        : "r"(barrier), "r"(phase)
        : "memory");
}
// What a map takes at a time, from (column, row) on, to shared memory, zeros where the matrix has
// ended; the barrier counts its bytes.
__device__ __forceinline__ void copy_tile(u32 to, const Map* map, i32 column, i32 row,
                                          u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// The same of tensors of four and five dimensions.
__device__ __forceinline__ void copy_tile(u32 to, const Map* map, const i32 (&from)[4],
                                          u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4, %5}], [%6];" ::"r"(to),
      "l"(map), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_tile(u32 to, const Map* map, const i32 (&from)[5],
                                          u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4, %5, %6}], [%7];" ::"r"(to),
      "l"(map), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "r"(from[4]), "r"(barrier)
      : "memory");
}
// Brings a part of a matrix into L2, which every kernel writes through.
__device__ __forceinline__ void fetch_tile_ahead(const Map* map, i32 column, i32 row) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(column),
               "r"(row)
               : "memory");
}
#endif
