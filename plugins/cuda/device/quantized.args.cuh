// SPDX-License-Identifier: Apache-2.0
// Arguments of the products of 8-bit integers.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// What follows the sums of x·w, and the zero points of both. Absent operands are null. A channel is a
// filter, or a column of the right matrix.
struct QuantizedEnds {
  const i32* bias = nullptr;
  const f32* multiplier = nullptr;
  const void *x_zero = nullptr, *w_zero = nullptr, *y_zero = nullptr;
  const i32* w_sums = nullptr;  // of a channel's w; null: the sums are already those of x - x_zero
  void* y = nullptr;
  u32 terms = 0;                             // of a sum
  u32 multiplier_step = 0, w_zero_step = 0;  // 0: one number for all channels
  u32 relu = 0;
};
// y [batch][m][n] = a [m][pieces·16] times the rows of b [n][pieces·16], in steps of batches.
struct ByteProduct {
  const void *a = nullptr, *b = nullptr;
  QuantizedEnds ends{};
  u32* parts = nullptr;  // sums of each split
  i64 count = 0;         // elements of y
  u32 m = 0, n = 0, pieces = 0;
  u32 tiles_m = 1, tiles_n = 1, splits = 1, split_pieces = 0;
  i32 batch_rank = 0;
  i64 batch_dims[6] = {}, a_steps[6] = {}, b_steps[6] = {};  // steps in matrices
};
// Parts of a product, added up.
struct ByteFinish {
  i64 count = 0;
  u32 n = 1, splits = 1;
};
TENON_ARGUMENTS_END
