// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in linalg.cu and linalg_block.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// Matrices [n, n] and right sides [n, columns]. x, lu and perm may be null.
struct Solve {
  i64 matrices, columns;
  i64 area;  // bytes of a block's work area, where shared memory is too small
  i32 n;
  bool keeps, fails;  // what becomes of singular matrices; neither: NaN
  ErrorSink sink;
};
// op(a)·x = b: element (i, j) of op(a) is a[i * row + j * column]. Matrices are numbered by the dims of
// the batch; along each of these a and b have steps of their own, 0 where they repeat.
struct TriangleSolve {
  i64 matrices, columns;
  i64 dims[kMostAxes], a_steps[kMostAxes], b_steps[kMostAxes];
  i32 rank;  // of the batch
  i64 row, column;
  i32 n;
  bool lower, unit;
};
TENON_ARGUMENTS_END
