// SPDX-License-Identifier: Apache-2.0
// Attention of at most 16 query rows to a key head (decoding), which is as fast as keys and values
// arrive: a block takes a range of the keys, and each of its warps every fourth 16 of them, with
// copies of its own under way. The warps' sums are joined in order, those of blocks by `merge`.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), SPLIT (1: leaves parts), STAGES
// (of the pipeline of copies).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=1 STAGES=3
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=80 SPLIT=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64 STAGES=2
#include "attention_parts.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kRows = 16, kKeys = 16, kWarps = 4, kStages = STAGES;
constexpr int kQStride = DP + 8, kVStride = VP + 8, kOStride = VP + 2;
constexpr int kStage = kKeys * (kQStride + kVStride);  // elements

// As copy_async, for what is read once and in long runs.
__device__ inline void copy_run(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
// kKeys rows of COLS elements by a warp, from `from`, `step` apart; zeros behind row `valid` and
// from column `cols` on.
template <int COLS>
__device__ __forceinline__ void load_by_warp(T* to, const T* from, i64 step, i32 valid, int cols) {
  constexpr int kPieces = COLS / 8;
#pragma unroll
  for (int c = threadIdx.x % 32; c < kKeys * kPieces; c += 32) {
    const int row = c / kPieces, col = c % kPieces * 8;
    const bool real = row < valid && col < cols;
    copy_run(to + row * (COLS + 8) + col, real ? from + row * step + col : from, real);
  }
}

extern "C" __global__ void __launch_bounds__(kWarps * 32) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i32 rows = p.q_len * p.group, index = blockIdx.x / p.splits, split = blockIdx.x % p.splits;
  const Head head(p, index);
  Limits all = limits_of_rows(p, head, 0, rows);
  if (SPLIT) {
    all.first = max(all.first, split * p.split_keys);
    all.last = min(all.last, (split + 1) * p.split_keys);
  }
  T* stages = (T*)smem + warp * kStages * kStage;
  const T *q = (const T*)p.q, *k = (const T*)p.k + at(p.k_strides, head.batch, head.k_head, 0),
          *v = (const T*)p.v + at(p.v_strides, head.batch, head.k_head, 0);
  const i32 begin = all.first + warp * kKeys;
  const i32 steps = max(all.last - begin + kWarps * kKeys - 1, 0) / (kWarps * kKeys);
  const auto load = [&](i32 step) {
    if (step < steps) {
      const i32 key = begin + step * kWarps * kKeys;
      T* to = stages + step % kStages * kStage;
      load_by_warp<DP>(to, k + key * p.k_strides.step, p.k_strides.step, all.last - key, p.dim);
      load_by_warp<VP>(to + kKeys * kQStride, v + key * p.v_strides.step, p.v_strides.step,
                       all.last - key, p.v_dim);
    }
    copy_commit();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) load(i);

  i32 row[2];
  Limits limits[2];
  const T *mask[2], *from[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    row[h] = h * 8 + lane / 4;
    const RowPlace r = head.row(p, row[h]);
    const bool real = row[h] < rows;
    limits[h] = real ? limits_of(p, head.batch, r.step) : Limits{0, 0};
    mask[h] = real ? mask_row_of(p, head, r) : (const T*)nullptr;
    from[h] = real ? q + at(p.q_strides, head.batch, r.head, r.step) : (const T*)nullptr;
  }
  u32 queries[DP / 16][4];  // as a left operand: row h, then the same behind 8 columns
#pragma unroll
  for (int d = 0; d < DP / 16; ++d)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int col = d * 16 + e / 2 * 8 + lane % 4 * 2;
      queries[d][e] = from[e % 2] && col < p.dim ? *(const u32*)(from[e % 2] + col) : 0;
    }
  f32 o[VP / 8][4] = {}, most[2] = {-infinity(0.f), -infinity(0.f)}, sum[2] = {};
  for (i32 step = 0; step < steps; ++step) {
    copy_wait<kStages - 2>();
    __syncwarp();
    load(step + kStages - 1);
    const i32 key = begin + step * kWarps * kKeys;
    const T *ks = stages + step % kStages * kStage, *vs = ks + kKeys * kQStride;
    f32 s[2][4] = {};
#pragma unroll
    for (int d = 0; d < DP / 16; ++d) {
      u32 b[4];
      load_right<true>(b, ks, kQStride, 0, d * 16);
      multiply_add(s[0], queries[d], b[0], b[1], T{});
      multiply_add(s[1], queries[d], b[2], b[3], T{});
    }
    f32 kept[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      f32 now = most[h];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        f32& x = s[j / 2][h * 2 + j % 2];
        const i32 c = key + j / 2 * 8 + lane % 4 * 2 + j % 2;
        f32 capped;
        x = c >= limits[h].first && c < limits[h].last ? score(p, x, mask[h], c, capped)
                                                       : -infinity(0.f);
        now = fmaxf(now, x);
      }
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
      // Scores may be far from zero: they are subtracted before they are multiplied.
      const f32 base = now == -infinity(0.f) ? 0.f : now;
      kept[h] = exp2_of((most[h] - base) * kLog2E);
      most[h] = now;
      sum[h] *= kept[h];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        f32& x = s[j / 2][h * 2 + j % 2];
        x = exp2_of((x - base) * kLog2E);
        sum[h] += x;
      }
    }
    // Weights in two parts cost nothing here.
    u32 a[4], rest[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const f32 x = s[e / 2][e % 2 * 2], y = s[e / 2][e % 2 * 2 + 1];
      a[e] = pack(x, y), rest[e] = pack_rest(a[e], x, y);
    }
#pragma unroll
    for (int d = 0; d < VP; d += 16) {
      u32 b[4];
      load_right<false>(b, vs, kVStride, d, 0);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        f32(&c)[4] = o[d / 8 + i];
#pragma unroll
        for (int e = 0; e < 4; ++e) c[e] *= kept[e / 2];
        multiply_add(c, a, b[i * 2], b[i * 2 + 1], T{});
        multiply_add(c, rest, b[i * 2], b[i * 2 + 1], T{});
      }
    }
    __syncwarp();
  }
  copy_wait<0>();
  __syncthreads();
  f32* sums = (f32*)smem;  // of each warp, a row: VP sums, the maximum, the sum of weights
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    f32* to = sums + (warp * kRows + row[h]) * kOStride;
#pragma unroll
    for (int j = 0; j < VP / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) to[j * 8 + lane % 4 * 2 + e] = o[j][h * 2 + e];
    if (lane % 4 == 0) to[VP] = most[h], to[VP + 1] = sum[h];
  }
  __syncthreads();
  for (int r = warp; r < rows; r += kWarps) {
    const f32* part[kWarps];
    f32 top = -infinity(0.f), total = 0, factor[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      part[w] = sums + (w * kRows + r) * kOStride;
      top = fmaxf(top, part[w][VP]);
    }
    const f32 base = top == -infinity(0.f) ? 0.f : top;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      factor[w] = exp2_of((part[w][VP] - base) * kLog2E);
      total += part[w][VP + 1] * factor[w];
    }
    const RowPlace place = head.row(p, r);
    T* to = (T*)p.o + at(p.o_strides, head.batch, place.head, place.step);
    f32* left = part_of(p, index, split, r);
    for (int col = lane; col < p.v_dim; col += 32) {
      f32 x = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) x += part[w][col] * factor[w];
      if (SPLIT)
        left[col] = x;
      else
        to[col] = narrow<T>(total == 0 ? 0.f : x / total);
    }
    if (lane != 0) continue;
    if (SPLIT)
      left[p.v_dim] = top, left[p.v_dim + 1] = total;
    else if (p.lse)
      ((f32*)p.lse)[row_index(p, head, place)] = total == 0 ? -infinity(0.f) : base + logf(total);
  }
}
#endif
