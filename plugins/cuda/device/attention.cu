// SPDX-License-Identifier: Apache-2.0
// Attention forward of halves on the tensor cores of sm_80 and later, with heads of up to 256
// elements: a block takes 64 query rows through the keys, 64 at a time. With SPLIT=1 a block takes
// a range of the keys, and attention_merge.cu joins the parts.
// Defines: as attention.cuh; DP and VP (dim and v_dim, padded to 16), WIDE (rows are multiples of
// 16 bytes, and so are addresses).
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 WIDE=1 SPLIT=0
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=64 WIDE=0 SPLIT=1 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64
//variant: TT=f16 TS=f32 MASK=0 DP=128 VP=112 WIDE=1 SPLIT=0 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64
//variant: TT=bf16 TS=f32 MASK=1 DP=48 VP=64 WIDE=0 SPLIT=1 KV_LEN=i32 BLOCK_TABLE=i32
#include "attention_quads.cuh"

#if __CUDA_ARCH__ >= 800
constexpr int kRows = 64, kKeys = 64, kThreads = 128;
constexpr int kQStride = DP + 8, kVStride = VP + 8;

extern "C" __global__ void __launch_bounds__(kThreads) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  T *qs = (T*)smem, *ks = qs + kRows * kQStride, *vs = ks + kKeys * kQStride;
  const QueryTile tile(p, kRows);
  const Head& head = tile.head;
  const i32 last = tile.keys.last;
  const int warp = threadIdx.x / 32;
  KeyTile keys(p, head, tile.keys.first, last);
  const auto load_k = [&] {
    load_rows<DP, kQStride, (bool)WIDE, kThreads>(ks, p.k, kKeys, p.dim,
                                                  keys.places(head, p.k, p.k_strides));
    copy_commit();
  };
  const auto load_v = [&] {
    load_rows<VP, kVStride, (bool)WIDE, kThreads>(vs, p.v, kKeys, p.v_dim,
                                                  keys.places(head, p.v, p.v_strides));
    copy_commit();
  };
  load_rows<DP, kQStride, (bool)WIDE, kThreads>(
      qs, p.q, kRows, p.dim, QueryPlaces{p, head, p.q, p.q_strides, tile.r0, tile.end});
  load_k();

  const bool few_keys = SPLIT || has_few_keys(p, head, tile.r0, tile.end);
  const bool idle = tile.r0 + warp * 16 >= tile.end;  // none of the warp's rows exists
  const QuadRows rows(p, head, tile.r0 + warp * 16, tile.end);
  f32 o[VP / 2] = {}, row_max[2] = {-infinity(0.f), -infinity(0.f)}, row_sum[2] = {}, rescale[2];
  for (i32 key = tile.keys.first; key < last; key += kKeys) {
    copy_wait<0>();
    __syncthreads();
    load_v();
    keys = KeyTile(p, head, key + kKeys, last);
    f32 s[kKeys / 2] = {};
    if (!idle) multiply_rows<DP, kKeys>(s, qs, warp * 16, ks);
    mask_scores(p, rows, key, s);
    softmax_step<false>(s, kLog2E, row_max, row_sum, rescale);
    rescale_sums(o, rescale);
    copy_wait<0>();
    __syncthreads();
    if (key + kKeys < last) load_k();
    if (!idle)
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        u32 weights[4], rest[4];
        round_sixteen<true>(s + j * 8, weights, rest);
#pragma unroll
        for (int d = 0; d < VP; d += 16) {
          u32 b[4];
          load_right<false>(b, vs, kVStride, d, j * 16);
          multiply_add(o + d / 2, weights, b[0], b[1], T{});
          multiply_add(o + d / 2 + 4, weights, b[2], b[3], T{});
          if (few_keys) {
            multiply_add(o + d / 2, rest, b[0], b[1], T{});
            multiply_add(o + d / 2 + 4, rest, b[2], b[3], T{});
          }
        }
      }
  }
  copy_wait<0>();
  finish_quads<(bool)WIDE>(p, tile, rows, o, row_max, row_sum);
}
#endif
