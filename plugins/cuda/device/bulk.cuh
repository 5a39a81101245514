// SPDX-License-Identifier: Apache-2.0
// Tiles of a matrix copied to shared memory by the copy engine of sm_90.
#pragma once
#include "barrier.cuh"

// A matrix as the copy engine knows it; the host's TensorMap.
typedef TensorMap Map;

#if __CUDA_ARCH__ >= 900
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
