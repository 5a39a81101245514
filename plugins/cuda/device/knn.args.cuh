// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in knn.cu and knn_near.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// x [batch, rows, coords] and y [batch, others, coords] in f32. Lists have 32 entries each, for each
// point of each batch and each part of the candidates: the order of the distance, then the candidate.
struct Knn {
  const f32 *x = nullptr, *y = nullptr, *x_norm = nullptr, *y_norm = nullptr;  // norms: Σx²
  u64* lists = nullptr;
  i32* unsure = nullptr;  // how many rows of all batches are unsure, then these
  i64 rows = 0, others = 0, batch = 0;
  i32 coords = 0, k = 0, parts = 1;
  i32 metric = 0;  // 0: Σ(x - y)², 1: its root, 2: its half, of unit vectors, 3: -Σ x·y
  bool own = false, excluded = false;  // own: y is x
};
TENON_ARGUMENTS_END
