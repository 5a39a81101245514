// SPDX-License-Identifier: Apache-2.0
// Attention forward of halves over a cache on the tensor cores of sm_80 and later, in the order of sums of
// attention_spans.cuh: a block takes 64 query rows through the keys, a segment at a time. With SPLIT=2 a
// block takes spans in turn, `splits` apart, and attention_join.cu joins them.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=0 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64
//variant: TT=f16 TS=f32 MASK=0 DP=64 VP=80 SPLIT=2 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//entry: attention_steps = attention(Attention)
#include "attention_quads.cuh"
#include "attention_spans.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kRows = 64, kThreads = 128;
constexpr int kQStride = DP + 8, kVStride = VP + 8;

// Sums of the values of both rows of a quad, as multiply_add leaves them, with the maxima that they are
// relative to and the sums of weights.
struct RowSums {
  f32 of[VP / 2] = {}, top[2] = {-infinity(0.f), -infinity(0.f)}, total[2] = {};
};
// `of(i)`: element i of the sums so far.
template <class Of>
__device__ __forceinline__ void join_rows(Of of, f32 (&top)[2], f32 (&total)[2],
                                          const RowSums& now) {
  const Joint joint[2] = {{top[0], now.top[0]}, {top[1], now.top[1]}};
#pragma unroll
  for (int i = 0; i < VP / 2; ++i) {
    f32& sum = of(i);
    sum = joint[i / 2 % 2].of(sum, now.of[i]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) total[h] = joint[h].of(total[h], now.total[h]), top[h] = joint[h].top;
}

// Products with the 64 keys of a segment become weights. top and total: the maxima of scores and the sums of
// weights of both rows.
__device__ __forceinline__ void weigh(const Attention& p, const QuadRows& rows, i32 key,
                                      f32 (&s)[kSegment / 2], f32 (&top)[2], f32 (&total)[2]) {
  const bool all = rows.see_all(key, kSegment);
#pragma unroll
  for (int i = 0; i < kSegment / 2; ++i) {
    const int h = i / 2 % 2;
    const i32 at = key + quad_column(i);
    // Without short-circuit: selects, not branches.
    const bool seen = all | ((at >= rows.limits[h].first) & (at < rows.limits[h].last));
    s[i] = seen ? fixed_score(p, s[i]) : -infinity(0.f);
    top[h] = fmaxf(top[h], s[i]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
  }
  const f32 base[2] = {base_of(top[0]), base_of(top[1])};
#pragma unroll
  for (int i = 0; i < kSegment / 2; ++i) s[i] = fixed_weight(s[i], base[i / 2 % 2]);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    total[h] = 0;
#pragma unroll
    for (int i = h * 2; i < kSegment / 2; i += 4) total[h] += s[i] + s[i + 1];
    total[h] = quad_sum(total[h]);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  T *qs = (T*)smem, *ks = qs + kRows * kQStride, *vs = ks + kSegment * kQStride;
  // Sums of the spans before, of this thread: kThreads apart.
  f32* const before = (f32*)(vs + kSegment * kVStride) + threadIdx.x;
  begin_early();
  const QueryTile tile(p, kRows);
  const Head& head = tile.head;
  const i32 last = tile.keys.last;
  const int warp = threadIdx.x / 32;
  // The segment behind the one at `key`; of spans that are this block's.
  const auto next_of = [&](i32 key) {
    key += kSegment;
    return SPLIT && key % kSpan == 0 ? key + kSpan * (p.splits - 1) : key;
  };
  i32 key = tile.keys.first / kSegment * kSegment;
  if (SPLIT) {
    const i32 span = key / kSpan, ahead = (tile.split + p.splits - span % p.splits) % p.splits;
    if (ahead > 0) key = (span + ahead) * kSpan;
  }
  KeyTile keys(p, head, key, last);
  const auto load_k = [&] {
    load_rows<DP, kQStride, true, kThreads>(ks, p.k, kSegment, p.dim,
                                            keys.places(head, p.k, p.k_strides));
    copy_commit();
  };
  // Values that no row attends to may hold anything, and zero times infinity is no zero.
  const auto load_v = [&] {
    const auto places = keys.places(head, p.v, p.v_strides);
    load_rows<VP, kVStride, true, kThreads>(vs, p.v, kSegment, p.v_dim, [&](int row) {
      const T* const from = places(row);
      return key + row < tile.keys.first ? nullptr : from;
    });
    copy_commit();
  };
  load_rows<DP, kQStride, true, kThreads>(
      qs, p.q, kRows, p.dim, QueryPlaces{p, head, p.q, p.q_strides, tile.r0, tile.end});
  load_k();

  const bool idle = tile.r0 + warp * 16 >= tile.end;  // none of the warp's rows exists
  const QuadRows rows(p, head, tile.r0 + warp * 16, tile.end);
  RowSums span;
  f32 top[2] = {-infinity(0.f), -infinity(0.f)}, total[2] = {};
  bool first_span = true;
  while (key < last) {
    copy_wait<0>();
    __syncthreads();
    load_v();
    const i32 next = next_of(key);
    keys = KeyTile(p, head, next, last);
    f32 s[kSegment / 2] = {};
    if (!idle) multiply_rows<DP, kSegment>(s, qs, warp * 16, ks);
    RowSums segment;
    weigh(p, rows, key, s, segment.top, segment.total);
    copy_wait<0>();
    __syncthreads();
    if (next < last) load_k();
    if (!idle) {
#pragma unroll
      for (int j = 0; j < kSegment / 16; ++j) {
        u32 weights[4], rest[4];
        round_sixteen<true>(s + j * 8, weights, rest);
#pragma unroll
        for (int d = 0; d < VP; d += 16) {
          u32 b[4];
          load_right<false>(b, vs, kVStride, d, j * 16);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            multiply_add(segment.of + d / 2 + i * 4, weights, b[i * 2], b[i * 2 + 1], T{});
            multiply_add(segment.of + d / 2 + i * 4, rest, b[i * 2], b[i * 2 + 1], T{});
          }
        }
      }
      join_rows([&](int i) -> f32& { return span.of[i]; }, span.top, span.total, segment);
    }
    if (next >= last || next % kSpan == 0) {  // the span ends
#if SPLIT
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (rows.row[h] >= tile.end) continue;
        f32* const part = span_part(p, key / kSpan, tile.index, rows.row[h]);
#pragma unroll
        for (int i = h * 2; i < VP / 2; i += 4)
          if (quad_column(i) < p.v_dim)
            store(part + quad_column(i), Vec<f32, 2>{span.of[i], span.of[i + 1]});
        if (threadIdx.x % 4 == 0) store(part + p.v_dim, Vec<f32, 2>{span.top[h], span.total[h]});
      }
#else
      if (first_span) {
#pragma unroll
        for (int i = 0; i < VP / 2; ++i) before[i * kThreads] = span.of[i];
#pragma unroll
        for (int h = 0; h < 2; ++h) top[h] = span.top[h], total[h] = span.total[h];
        first_span = false;
      } else {
        join_rows([&](int i) -> f32& { return before[i * kThreads]; }, top, total, span);
      }
#endif
      span = RowSums();
    }
    key = next;
  }
  copy_wait<0>();
#if !SPLIT
  f32 o[VP / 2];
#pragma unroll
  for (int i = 0; i < VP / 2; ++i) o[i] = first_span ? 0.0f : before[i * kThreads];
  const bool own = threadIdx.x % 4 == 0;  // finish_quads adds what the lanes of a quad have
  finish_quads<true>(p, tile, rows, o, top, {own ? total[0] : 0.0f, own ? total[1] : 0.0f});
#endif
}
#endif
