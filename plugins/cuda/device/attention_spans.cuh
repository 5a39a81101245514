// SPDX-License-Identifier: Apache-2.0
// The order of sums of attention over a cache, which is the same for one query row as for many, so that a
// row has the same bits alone and among others, whatever part of a prompt it comes with. Keys are in segments
// of 64 and spans of 256, from multiples of 64 and 256 on. Of a segment, the weights are relative to its own
// maximum. Products add up on tensor cores from 0 on, 16 terms at a time; of values, those with 16 rounded
// weights, and then those with what rounding took. Of the sum of weights, lane l of a quad adds columns
// 2 * l and the next of each eight, in order, and then lanes are added. Segments join to spans, and spans to
// the result, one after the other. A row skips what it does not attend to, or joins it: the bits are the same, but for the sign of a zero.
//variant: TT=bf16 TS=f32 MASK=0
//variant: TT=f16 TS=f32 MASK=0 SOFTCAP=1 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64
#pragma once
#include "attention_epilogue.cuh"
#include "row_max.cuh"

constexpr i32 kSegment = 64, kSpan = 256;

// As score(), where nothing of it may be fused with what follows. Without a mask.
__device__ __forceinline__ f32 fixed_score(const Attention& p, f32 product) {
  f32 s = __fmul_rn(product, (f32)p.scale);
#ifdef SOFTCAP
  const f32 cap = (f32)p.softcap;
  s = __fmul_rn(cap, tanh(s / cap));
#endif
  return s;
}
// The weight of a score beside a maximum.
__device__ __forceinline__ f32 base_of(f32 top) { return top == -infinity(0.f) ? 0.f : top; }
__device__ __forceinline__ f32 fixed_weight(f32 score, f32 base) {
  return weight_of<false>(score, base, kLog2E);
}

// Sums relative to one maximum, and more relative to another one, become sums relative to the larger one.
struct Joint {
  f32 top, earlier, later;  // the factors of both

  __device__ __forceinline__ Joint(f32 before, f32 now) : top(fmaxf(before, now)) {
    const f32 base = base_of(top);
    earlier = fixed_weight(before, base), later = fixed_weight(now, base);
  }
  __device__ __forceinline__ f32 of(f32 before, f32 now) const {
    return __fmaf_rn(before, earlier, __fmul_rn(now, later));
  }
};

// What a block leaves of a span of row r of a head: v_dim sums of values, the maximum, the sum of weights,
// from a multiple of 16 bytes on.
__device__ inline f32* span_part(const Attention& p, i32 span, i32 head, i32 r) {
  const i64 heads = (i64)p.batch * p.k_heads, rows = (i64)p.q_len * p.group;
  return (f32*)p.parts + ((span * heads + head) * rows + r) * (p.v_dim + 4);
}
// Joins the spans that hold `keys`, for row r of a head: of a span, part_of(span) has what span_part() says.
// `threads`, of which this is `thread`, take four elements each.
template <class PartOf>
__device__ inline void join_spans(const Attention& p, const Head& head, const Limits& keys, i32 r,
                                  int thread, int threads, PartOf part_of) {
  constexpr int kAhead = 4;
  const i32 first = keys.first / kSpan, last = (keys.last + kSpan - 1) / kSpan;
  const RowPlace place = head.row(p, r);
  for (int four = thread; four * 4 < p.v_dim; four += threads) {
    f32 sum[4] = {}, top = -infinity(0.f), total = 0;
    for (i32 begin = first; begin < last; begin += kAhead) {
      Vec<f32, 4> of[kAhead];
      Vec<f32, 2> own[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (begin + i < last) {
          const f32* const part = part_of(begin + i);
          of[i] = load<f32, 4>(part + four * 4), own[i] = load<f32, 2>(part + p.v_dim);
        }
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (begin + i < last) {
          const Joint joint(top, own[i].v[0]);
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[e] = joint.of(sum[e], of[i].v[e]);
          total = joint.of(total, own[i].v[1]), top = joint.top;
        }
    }
    T* const to = result_of(p, head, place);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (four * 4 + e < p.v_dim) to[four * 4 + e] = mean(sum[e], total);
    if (four == 0) store_lse(p, head, place, top, total);
  }
}
