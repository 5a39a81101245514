// SPDX-License-Identifier: Apache-2.0
// Products of one a with several b, each stored row by row (its rows are y's columns) and with its
// bias and y: in one launch, of which every block works on one of them.
// Defines: SETS (of b).
//variant: SETS=3
#pragma once
#include "common.cuh"

typedef JoinedSet Set;
typedef JoinedProducts<SETS> Products;
// The block's own.
__device__ inline Set set_of(const Products& p) {
  Set set = p.sets[0];
#pragma unroll
  for (int s = 1; s < SETS; ++s)
    if (blockIdx.x >= p.sets[s].first_block) set = p.sets[s];
  return set;
}
