// SPDX-License-Identifier: Apache-2.0
// f32 as a sum of two tf32 numbers, for products on tensor cores: the three products of such parts
// that matter lose about as much as sums in f32 do.
#pragma once
#include "types.cuh"

struct Parts {
  u32 high, low;
};
// Of infinity and NaN the low part is NaN. Tensor cores read only the upper bits of the low part.
__device__ inline Parts split(f32 x) {
  const u32 high = (__float_as_uint(x) + 0x1000) & 0xFFFFE000;  // rounded to nearest
  return {high, __float_as_uint(x - __uint_as_float(high))};
}
