// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in linalg.cu and linalg_block.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// Matrices [n, n] and right sides [n, columns]. x, lu and perm may be null.
struct Solve {
  i64 matrices, columns;
  i32 n;
  bool keeps, fails;  // what becomes of singular matrices; neither: NaN
  ErrorSink sink;
};
// op(a)·x = b: element (i, j) of op(a) is a[i * row + j * column].
struct TriangleSolve {
  i64 matrices, columns;
  i64 a_step, b_step;  // from matrix to matrix; 0: the same for all
  i64 row, column;
  i32 n;
  bool lower, unit;
};
TENON_ARGUMENTS_END
