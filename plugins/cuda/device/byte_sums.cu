// SPDX-License-Identifier: Apache-2.0
// Sums of rows of 8-bit integers, which are whole pieces of 16 bytes.
// Defines: TYPE.
//variant: TYPE=i8
//variant: TYPE=u8
//entry: byte_row_sums = row_sums(In, u32*, u32, u32)
#include "rows.cuh"

typedef TYPE T;

// A warp for a row.
extern "C" __global__ void __launch_bounds__(256)
    row_sums(const T* w, u32* sums, u32 rows, u32 pieces) {
  const u32 row = blockIdx.x * 8 + threadIdx.x / 32;
  if (row >= rows) return;
  u32 sum = 0;
  for (u32 k = threadIdx.x % 32; k < pieces; k += 32) {
    const Vec<u32, 4> v = load<u32, 4>((const u32*)w + ((i64)row * pieces + k) * 4);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if constexpr ((T)-1 < (T)0)
        sum = (u32)__dp4a((i32)v.v[e], 0x01010101, (i32)sum);
      else
        sum = __dp4a(v.v[e], 0x01010101u, sum);
    }
  }
  sum = join_lanes<32>(sum, Add());
  if (threadIdx.x % 32 == 0) sums[row] = sum;
}
