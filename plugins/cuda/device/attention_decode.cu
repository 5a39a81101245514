// SPDX-License-Identifier: Apache-2.0
// Attention forward of at most 16 query rows per key head (decoding), bound by the copies of keys
// and values. A block takes a range of the keys, each of its four warps every fourth group of 16
// keys, with a pipeline of copies of its own. The block joins its warps' sums in order;
// attention_merge.cu joins those of blocks.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), STAGES (of the pipeline).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=1 STAGES=3
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=80 SPLIT=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64 STAGES=2
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=1 KV_LEN=i64 PAST_LEN=i64 STAGES=3 BLOCK_TABLE=i64
//variant: TT=f16 TS=f32 MASK=1 DP=96 VP=64 SPLIT=0 KV_LEN=i32 STAGES=2 BLOCK_TABLE=i32
#include "attention_quads.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kRows = 16, kKeys = 16, kWarps = 4;
constexpr int kQStride = DP + 8, kVStride = VP + 8, kOStride = VP + 2;
constexpr int kStage = kKeys * (kQStride + kVStride);  // elements

// As copy_async, for long runs that are read once: L2 fetches 128 bytes.
__device__ inline void copy_run(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
// A warp copies kKeys rows of COLS elements, `step` apart; zeros from row `count` and column `cols`
// on.
template <int COLS>
__device__ __forceinline__ void load_by_warp(T* to, const KeyPlaces& places, int cols) {
  constexpr int kPieces = COLS / 8;
#pragma unroll
  for (int c = threadIdx.x % 32; c < kKeys * kPieces; c += 32) {
    const int row = c / kPieces, col = c % kPieces * 8;
    const bool real = row < places.count && col < cols;
    copy_run(to + row * (COLS + 8) + col,
             real ? places.from + row * places.step + col : places.from, real);
  }
}

#ifdef BLOCK_TABLE
// The same of keys in blocks. Lane i knows the line of row i, -1 if it does not exist.
struct LinePlaces {
  const T* base;
  i64 step;
  i32 line;
};
template <int COLS>
__device__ __forceinline__ void load_by_warp(T* to, const LinePlaces& places, int cols) {
  constexpr int kPieces = COLS / 8;
#pragma unroll
  for (int c = threadIdx.x % 32; c < kKeys * kPieces; c += 32) {
    const int row = c / kPieces, col = c % kPieces * 8;
    const i32 line = __shfl_sync(~0u, places.line, row);
    const bool real = line >= 0 && col < cols;
    copy_run(to + row * (COLS + 8) + col, real ? places.base + line * places.step + col : places.base,
             real);
  }
}
#endif

extern "C" __global__ void __launch_bounds__(kWarps * 32) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  begin_early();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const QueryTile tile(p, kRows);
  const Head& head = tile.head;
  T* stages = (T*)smem + warp * STAGES * kStage;
  const i32 begin = tile.keys.first + warp * kKeys, last = tile.keys.last;
  const i32 steps = max(last - begin + kWarps * kKeys - 1, 0) / (kWarps * kKeys);
#ifdef BLOCK_TABLE
  const auto find = [&](i32 step) {
    const i32 key = begin + step * kWarps * kKeys + lane % kKeys;
    return key < last ? line_of(p, head.batch, key) : -1;
  };
  i32 line = find(0);  // of the step to load next: the table's numbers arrive ahead of their use
#endif
  const auto load = [&](i32 step) {
    if (step < steps) {
      T* to = stages + step % STAGES * kStage;
#ifdef BLOCK_TABLE
      const i32 now = line;
      line = find(step + 1);
      const auto places = [&](const void* base, const Strides& strides) {
        return LinePlaces{first_key(head, base, strides), strides.step, now};
      };
#else
      const i32 key = begin + step * kWarps * kKeys;
      const auto places = [&](const void* base, const Strides& strides) {
        return KeyPlaces(head, base, strides, key, last);
      };
#endif
      load_by_warp<DP>(to, places(p.k, p.k_strides), p.dim);
      load_by_warp<VP>(to + kKeys * kQStride, places(p.v, p.v_strides), p.v_dim);
    }
    copy_commit();
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) load(i);

  const QuadRows rows(p, head, 0, tile.end);
  const QueryPlaces places{p, head, p.q, p.q_strides, 0, tile.end};
  u32 queries[DP / 16][4];  // as a left operand: both rows, then the same 8 columns further
#pragma unroll
  for (int d = 0; d < DP / 16; ++d)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int col = d * 16 + e / 2 * 8 + lane % 4 * 2;
      const T* from = places(rows.row[e % 2]);
      queries[d][e] = from && col < p.dim ? *(const u32*)(from + col) : 0;
    }
  f32 o[VP / 2] = {}, row_max[2] = {-infinity(0.f), -infinity(0.f)}, row_sum[2] = {}, rescale[2];
  for (i32 step = 0; step < steps; ++step) {
    copy_wait<STAGES - 2>();
    __syncwarp();
    load(step + STAGES - 1);
    const i32 key = begin + step * kWarps * kKeys;
    const T *ks = stages + step % STAGES * kStage, *vs = ks + kKeys * kQStride;
    f32 s[kKeys / 2] = {};
#pragma unroll
    for (int d = 0; d < DP / 16; ++d) {
      u32 b[4];
      load_right<true>(b, ks, kQStride, 0, d * 16);
      multiply_add(s, queries[d], b[0], b[1], T{});
      multiply_add(s + 4, queries[d], b[2], b[3], T{});
    }
    mask_scores(p, rows, key, s);
    softmax_step<false>(s, kLog2E, row_max, row_sum, rescale);
#pragma unroll
    for (int i = 0; i < VP / 2; ++i) o[i] *= rescale[i / 2 % 2];
    u32 weights[4], rest[4];  // the second product costs no time here
    round_sixteen<true>(s, weights, rest);
#pragma unroll
    for (int d = 0; d < VP; d += 16) {
      u32 b[4];
      load_right<false>(b, vs, kVStride, d, 0);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        multiply_add(o + d / 2 + i * 4, weights, b[i * 2], b[i * 2 + 1], T{});
        multiply_add(o + d / 2 + i * 4, rest, b[i * 2], b[i * 2 + 1], T{});
      }
    }
    __syncwarp();
  }
  copy_wait<0>();
  __syncthreads();
  f32* sums = (f32*)smem;  // of each warp and row: VP sums, the maximum, the sum of weights
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const f32 sum = quad_sum(row_sum[h]);
    f32* to = sums + (warp * kRows + rows.row[h]) * kOStride;
#pragma unroll
    for (int i = h * 2; i < VP / 2; i += 4) to[quad_column(i)] = o[i], to[quad_column(i + 1)] = o[i + 1];
    if (lane % 4 == 0) to[VP] = row_max[h], to[VP + 1] = sum;
  }
  __syncthreads();
  for (int r = warp; r < tile.end; r += kWarps) {
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
    T* to = result_of(p, head, place);
    f32* left = part_of(p, tile.index, tile.split, r);
    for (int col = lane; col < p.v_dim; col += 32) {
      f32 x = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) x += part[w][col] * factor[w];
      if (SPLIT)
        left[col] = x;
      else
        to[col] = mean(x, total);
    }
    if (lane != 0) continue;
    if (SPLIT)
      left[p.v_dim] = top, left[p.v_dim + 1] = total;
    else
      store_lse(p, head, place, top, total);
  }
}
#endif
