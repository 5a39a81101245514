// SPDX-License-Identifier: Apache-2.0
// Gradients of attention, rows with a large lse. Such an lse has lost bits of the logarithm of the
// row's sum (all of them at 1e9, which masks add), so this kernel computes the maximum and the sum
// of weights again. A block takes a tile of query rows through the keys; it does nothing if all of
// its rows are ordinary.
// Defines: as attention_tiles.cuh; TRUSTED (the largest lse of an ordinary row).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 MMA=1 WIDE=1 SIZE=64 TRUSTED=1024
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=32 MMA=1 WIDE=0 SIZE=64 TRUSTED=16 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f32 TS=f32 MASK=1 DP=64 VP=64 MMA=0 WIDE=0 SIZE=64 TRUSTED=16
//variant: TT=f64 TS=f64 MASK=2 DP=16 VP=32 MMA=0 WIDE=0 SIZE=32 TRUSTED=16 SOFTCAP=1 KV_LEN=i64 PAST_LEN=i32
#include "attention_facts.cuh"
#include "attention_tiles.cuh"

#if !MMA || __CUDA_ARCH__ >= 800
#if MMA
constexpr int kRows = 64, kKeys = 64;
#else
constexpr int kRows = kTile, kKeys = kTile;
#endif

// A thread's part of a row: the maximum so far and the sum of weights relative to it.
struct RowSum {
  S row_max, sum;
  // Adds a sum of weights relative to the maximum `of`.
  __device__ void add(S more, S of) {
    const S top = of > row_max ? of : row_max, base = top == -infinity(S(0)) ? S(0) : top;
    sum = sum * exp(row_max - base) + more * exp(of - base);
    row_max = top;
  }
  // Adds N scores; those that are not allowed are -infinity.
  template <int N>
  __device__ void add(const S (&scores)[N]) {
    S top = -infinity(S(0)), part = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) top = scores[i] > top ? scores[i] : top;
    const S base = top == -infinity(S(0)) ? S(0) : top;
#pragma unroll
    for (int i = 0; i < N; ++i) part += exp(scores[i] - base);
    add(part, top);
  }
  // Joins the parts of LANES adjacent lanes, in the same order for all.
  template <int LANES>
  __device__ void join() {
#pragma unroll
    for (int lanes = 1; lanes < LANES; lanes *= 2) {
      const S other_max = __shfl_xor_sync(~0u, row_max, lanes),
              other_sum = __shfl_xor_sync(~0u, sum, lanes);
      add(other_sum, other_max);
    }
  }
};

struct Row {
  Limits limits;
  const T* mask;
  __device__ Row(const Attention& p, const Head& head, i32 r, i32 rows)
      : limits{0, 0}, mask(nullptr) {
    if (r >= rows) return;
    const RowPlace place = head.row(p, r);
    limits = limits_of(p, head.batch, place.step);
    mask = mask_row_of(p, head, place);
  }
  __device__ S score_of(const Attention& p, S product, i32 key) const {
    S capped;
    return key >= limits.first && key < limits.last ? score(p, product, mask, key, capped)
                                                    : -infinity(S(0));
  }
};

__device__ inline bool is_large(const RowFacts& row) {
  return !is_dead(row) && (row.shift > S(TRUSTED) || row.shift < -S(TRUSTED));
}
// Corrects the facts of a row if its lse is large: no row depends on its neighbours.
__device__ inline void correct(RowFacts* facts, i32 r, i32 rows, const RowSum& found) {
  if (r >= rows || !is_large(facts[r])) return;
  if (found.sum == 0)
    facts[r] = dead_row();
  else
    facts[r].shift = found.row_max, facts[r].factor = 1 / found.sum;
}

extern "C" __global__ void __launch_bounds__(kThreads) sums(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  const i32 rows = p.q_len * p.group, tiles = (rows + kRows - 1) / kRows;
  const i32 index = blockIdx.x / tiles, tile = blockIdx.x % tiles, r0 = tile * kRows;
  RowFacts* facts = facts_of(p, index);
  const i32 mine = r0 + (i32)threadIdx.x;
  const bool real = (int)threadIdx.x < kRows && mine < rows;
  const bool large = __syncthreads_or(real && is_large(facts[mine]));
#if MMA
  const bool dead = __syncthreads_or(real && is_dead(facts[mine]));
  if (threadIdx.x == 0)
    tile_flags(p, index)[tile] = (large ? kCorrected : 0) | (dead ? kHasDead : 0);
#endif
  if (!large) return;
  const Head head(p, index);
  const Limits all = limits_of_rows(p, head, r0, min(r0 + kRows, rows));
#if MMA
  T *qs = (T*)smem, *ks = qs + kRows * kQStride;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = r0 + warp * 16 + lane / 4;
  load_query_rows<DP>(qs, kRows, p, head, p.q, p.q_strides, r0, p.dim);
  const Row row[2] = {Row(p, head, first, rows), Row(p, head, first + 8, rows)};
  RowSum sum[2] = {{-infinity(0.f), 0.f}, {-infinity(0.f), 0.f}};
  for (i32 key = all.first; key < all.last; key += kKeys) {
    __syncthreads();
    load_key_rows<DP>(ks, kKeys, head, p.k, p.k_strides, key, all.last, p.dim);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    f32 s[kKeys / 2] = {};
    multiply_rows<DP, kKeys>(s, qs, warp * 16, ks);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      f32 scores[kKeys / 4];
#pragma unroll
      for (int j = 0; j < kKeys / 4; ++j)
        scores[j] =
            row[h].score_of(p, s[j / 2 * 4 + h * 2 + j % 2], key + j / 2 * 8 + lane % 4 * 2 + j % 2);
      sum[h].add(scores);
    }
  }
  copy_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h].join<4>();
    if (lane % 4 == 0) correct(facts, first + h * 8, rows, sum[h]);
  }
#else
  S *qs = (S*)smem, *ks = qs + kTile * kQStride;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  load_query_tile<DP>(qs, p, head, p.q, p.q_strides, r0, p.dim);
  RowSum sum[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum[i] = {-infinity(S(0)), S(0)};
  for (i32 key = all.first; key < all.last; key += kKeys) {
    __syncthreads();
    load_key_tile<DP>(ks, head, p.k, p.k_strides, key, all.last, p.dim);
    __syncthreads();
    S s[kEach][kEach] = {};
    multiply_tiles<DP>(s, qs, ks);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const Row row(p, head, r0 + y + 16 * i, rows);
#pragma unroll
      for (int j = 0; j < kEach; ++j) s[i][j] = row.score_of(p, s[i][j], key + x + 16 * j);
      sum[i].add(s[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    sum[i].join<16>();
    if (x == 0) correct(facts, r0 + y + 16 * i, rows, sum[i]);
  }
#endif
}
#endif
