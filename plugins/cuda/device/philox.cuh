// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator of Salmon et al. (SC 2011).
#pragma once
#include "common.cuh"

struct Words {
  u32 w[4];
};
// rng: seed and offset.
__device__ inline Words philox(const u64* rng, u64 block) {
  u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = (u32)rng[1], c3 = (u32)(rng[1] >> 32);
  u32 k0 = (u32)rng[0], k1 = (u32)(rng[0] >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0, c1 = low1;
    c2 = high0 ^ c3 ^ k1, c3 = low0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// [0, 1) in steps of 2^-24, and of 2^-53.
__device__ inline f32 unit_f32(u32 w) { return (f32)(w >> 8) * 0x1p-24f; }
__device__ inline f64 unit_f64(u32 w0, u32 w1) {
  return ((f64)(w0 >> 5) * 0x1p26 + (f64)(w1 >> 6)) * 0x1p-53;
}
