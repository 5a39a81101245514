// SPDX-License-Identifier: Apache-2.0
// For a check of the order in which a product sums: operands whose products cancel, so that a result is
// nothing but rounding errors, and the comparison of two results. Elements have 16 bits.
//entry: matmul_cancelling = cancelling(Out, Cancelling)
//entry: matmul_compare = compare(In, In, i64, u32*)
#include "common.cuh"
#include "matmul.args.cuh"

// Random numbers from 1 to 2, of either sign. Terms of the second half of a sum repeat those of the first half,
// with the other sign in one of the operands; the last of an odd number is 0.
extern "C" __global__ void __launch_bounds__(256) cancelling(u16* to, const Cancelling t) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < t.count; i += (i64)gridDim.x * 256) {
    const u32 row = (u32)(i / t.ld), column = (u32)(i % t.ld), half = (u32)t.k / 2;
    const u32 term = t.in_rows ? column : row, line = t.in_rows ? row : column;
    u32 bits = (line * 2 + t.negated) * 0x9E3779B1u ^ (term < half ? term : term - half);
#pragma unroll
    for (int round = 0; round < 2; ++round) bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
    bits ^= bits >> 15;
    const u32 sign = t.negated && term >= half ? 0x8000u : 0;
    to[i] = term < 2 * half ? (u16)((bits & t.random | t.one) ^ sign) : 0;
  }
}

extern "C" __global__ void __launch_bounds__(256)
    compare(const u16* left, const u16* right, i64 count, u32* different) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < count; i += (i64)gridDim.x * 256)
    if (left[i] != right[i]) *different = 1;
}
