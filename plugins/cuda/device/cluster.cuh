//variant: CLUSTER=1
//variant: CLUSTER=8
// SPDX-License-Identifier: Apache-2.0
// The CLUSTER blocks of a thread block cluster, on sm_90; elsewhere CLUSTER is 1, and nothing happens.
#pragma once
#include "common.cuh"

#if __CUDA_ARCH__ >= 900 && CLUSTER > 1
#define IN_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTER
#endif

// All blocks of a cluster pass a barrier; between arrive and wait a block goes on.
__device__ inline void cluster_begin() {  // nothing was written: there is nothing to be seen
#if __CUDA_ARCH__ >= 900 && CLUSTER > 1
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900 && CLUSTER > 1
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900 && CLUSTER > 1
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// What lies in shared memory at `here`, in block `rank` of the cluster. It may be read once the blocks have
// passed a barrier, and none of them may end before another one.
template <class E>
__device__ inline const E* in_block(const E* here, [[maybe_unused]] int rank) {
  const E* there = here;
#if __CUDA_ARCH__ >= 900 && CLUSTER > 1
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(rank));
#endif
  return there;
}
