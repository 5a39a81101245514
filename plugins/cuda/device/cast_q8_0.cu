// SPDX-License-Identifier: Apache-2.0
// cast of floats to blocks of q8_0, with the bits of sdk::encode_q8_0(). Eight threads make a block, of
// four numbers each.
// Defines: FROM (the dtype), RANK (axes of CastBlocks), WIDE (1: four numbers are one aligned load).
//variant: FROM=f32 RANK=1 WIDE=1
//variant: FROM=bf16 RANK=3 WIDE=1
//variant: FROM=f16 RANK=2 WIDE=0
//variant: FROM=f64 RANK=8 WIDE=0
#include "common.cuh"

constexpr int kThreads = 256, kElements = 32, kBytes = 34, kEach = 4, kLanes = kElements / kEach;

extern "C" __global__ void __launch_bounds__(kThreads)
    cast_q8_0(const FROM* x, u8* y, const CastBlocks s) {
  begin_early();
  const i64 thread = (i64)blockIdx.x * kThreads + threadIdx.x, block = thread / kLanes;
  const int part = (int)(thread % kLanes);
  const bool real = block < s.count;
  f32 v[kEach] = {};
  if (real) {
    i64 at = part * kEach * s.step;
    u32 rest = (u32)block;
#pragma unroll
    for (int k = RANK - 1; k >= 0; --k) {
      const u32 outer = k == 0 ? 0 : s.divisors[k].quotient(rest);
      at += (i64)(rest - outer * s.divisors[k].value) * s.strides[k];
      rest = outer;
    }
    Vec<FROM, kEach> in;
    if (WIDE) {
      in = load<FROM, kEach>(x + at);
    } else {
#pragma unroll
      for (int e = 0; e < kEach; ++e) in.v[e] = x[at + e * s.step];
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) v[e] = (f32)widen(in.v[e]);
  }
  constexpr f32 kLargest = 3.4028234663852886e38f, kLargestScale = 65504.0f;
  f32 most = 0;
  bool finite = true;
#pragma unroll
  for (int e = 0; e < kEach; ++e) most = fmaxf(most, fabsf(v[e])), finite &= fabsf(v[e]) <= kLargest;
#pragma unroll
  for (int lanes = 1; lanes < kLanes; lanes *= 2)
    most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
  const u32 all = (1u << kLanes) - 1, first = threadIdx.x % 32 / kLanes * kLanes;
  finite = (__ballot_sync(~0u, finite) >> first & all) == all;
  if (!real) return;
  const f32 scale = __fdiv_rn(most, 127.0f);
  f32 inverse = __fdiv_rn(1.0f, scale);
  if (!(inverse <= kLargest)) inverse = 0;
  u32 levels = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const f32 level = finite ? roundf(__fmul_rn(v[e], inverse)) : 0.0f;
    levels |= ((u32)(i32)fminf(fmaxf(level, -127.0f), 127.0f) & 255) << 8 * e;
  }
  u16* const to = (u16*)(y + block * kBytes);  // blocks lie on 2 bytes
  to[1 + part * 2] = (u16)levels, to[2 + part * 2] = (u16)(levels >> 16);
  if (part == 0) to[0] = finite ? f32_to_f16(fminf(scale, kLargestScale)) : (u16)0x7E00;
}
