//variant: TYPE=f32 SCORE=0
//variant: TYPE=bf16 SCORE=1
//variant: TYPE=f16 SCORE=2
// SPDX-License-Identifier: Apache-2.0
// group_limited_gate: a warp for each token. SCORE 0: sigmoid, 1: softmax, 2: identity. Ranks become
// keys of the same order, in which NaN is the largest; 0 is the key of what may not be chosen.
//entry: gate_route = route(In, const f32*, i32*, f32*, Gate)
#include "common.cuh"
#include "gate.args.cuh"
#include "rows.cuh"

typedef TYPE T;
constexpr int kWarps = 4;
constexpr u32 kAll = 0xffffffffu;
extern __shared__ __align__(16) unsigned char memory[];

__device__ inline u32 key_of(f32 x) {
  if (x != x) return kAll;
  const u32 bits = __float_as_uint(x + 0.f);  // -0 equals 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline f32 rank_of(u32 key) {
  if (key == kAll) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
// A key before the place, so that the first one of equals is the largest.
__device__ inline u64 placed(u32 key, u32 place) { return (u64)key << 32 | (kAll - place); }
__device__ inline u32 place_of(u64 best) { return kAll - (u32)best; }
__device__ inline u64 best_of(u64 x) {
  return choose_warp<32>(x, [](u64 a, u64 b) { return a > b ? a : b; });
}

extern "C" __global__ void __launch_bounds__(128)
    route(const T* logits, const f32* bias, i32* index, f32* weight, const Gate g) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 token = (i64)blockIdx.x * kWarps + warp;
  if (token >= g.tokens) return;
  f32* const scores = reinterpret_cast<f32*>(memory) + warp * 2 * g.experts;
  u32* const keys = reinterpret_cast<u32*>(scores + g.experts);
  const T* const x = logits + token * g.experts;

#if SCORE == 1
  f32 most = -__int_as_float(0x7f800000), total = 0;
  for (int e = lane; e < g.experts; e += 32) most = fmaxf(most, (f32)widen(x[e]));
  most = choose_warp<32>(most, [](f32 a, f32 b) { return fmaxf(a, b); });
  for (int e = lane; e < g.experts; e += 32) total += scores[e] = expf((f32)widen(x[e]) - most);
  total = sum_warp<32>(total);
#endif
  for (int e = lane; e < g.experts; e += 32) {
#if SCORE == 0
    const f32 score = 1.f / (1.f + expf(-(f32)widen(x[e])));
#elif SCORE == 1
    const f32 score = scores[e] / total;
#else
    const f32 score = (f32)widen(x[e]);
#endif
    scores[e] = score;
    keys[e] = key_of(bias ? score + bias[e] : score);
  }
  __syncwarp();

  // The rank of group k is in lane k.
  const int size = g.experts / g.groups;
  u32 group = 0;
  for (int k = 0; k < g.groups; ++k) {
    u64 first = 0, second = 0;  // of this lane
    for (int e = lane; e < size; e += 32) {
      const u64 own = placed(keys[k * size + e], e);
      if (own > first)
        second = first, first = own;
      else if (own > second)
        second = own;
    }
    const u64 best = best_of(first);
    f32 rank = rank_of((u32)(best >> 32));
    if (!g.by_max) rank += rank_of((u32)(best_of(first == best ? second : first) >> 32));
    if (lane == k) group = key_of(rank);
  }
  bool left = lane < g.groups;
  u32 kept = 0;
  for (int k = 0; k < g.kept; ++k) {
    const u32 best = place_of(best_of(left ? placed(group, lane) : 0));
    kept |= 1u << best;
    if (lane == (int)best) left = false;
  }
  for (int e = lane; e < g.experts; e += 32)
    if (!(kept >> (e / size) & 1)) keys[e] = 0;
  __syncwarp();

  u32 own = 0;  // the expert of this lane
  for (int k = 0; k < g.chosen; ++k) {
    u64 best = 0;
    for (int e = lane; e < g.experts; e += 32) {
      const u64 one = placed(keys[e], e);
      best = one > best ? one : best;
    }
    const u32 expert = place_of(best_of(best));
    if (lane == k) own = expert;
    if (lane == (int)(expert % 32)) keys[expert] = 0;
    __syncwarp();
  }
  const bool writes = lane < g.chosen;
  f32 w = writes ? scores[own] : 0.f;
  if (g.normalize) w /= sum_warp<32>(w) + 1e-20f;
  if (!writes) return;
  index[token * g.chosen + lane] = (i32)own;
  weight[token * g.chosen + lane] = w * g.scaling;
}
