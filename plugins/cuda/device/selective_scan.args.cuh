// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in selective_scan.cu and selective_scan_backward.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// Absent operands are null. A block takes some channels of one group of a sequence.
struct SelectiveScan {
  const void *u, *dt, *b, *c, *z;
  const f32 *a, *d, *dt_bias, *h0;
  i64 channels, steps;
  i32 states, groups, each, blocks;  // each: channels of a group; blocks: of a group
  bool softplus;
};
// before: the states before each chunk, [B, chunks, D, N]. parts: db and dc of each block, [B, G,
// blocks, L, 2 N]. da [B, D, N], dd and ddt_bias [B, D]: of each sequence.
struct SelectiveScanGradients {
  const void* dy;
  const f32 *dh_last, *before;
  void *du, *ddt, *dz;
  f32 *parts, *da, *dd, *ddt_bias, *dh0;
};
TENON_ARGUMENTS_END
