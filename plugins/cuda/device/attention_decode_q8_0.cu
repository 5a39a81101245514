// SPDX-License-Identifier: Apache-2.0
// Attention forward of few query rows per key head (decoding) over keys and values in blocks of q8_0, which are read
// as they are. As attention_decode.cu, in tiles of 16 query rows. Scores and sums are those of the exact elements:
// sums of products with levels are multiplied by scales (keys), and weights are (values). A weight times a scale is
// the sum of two bf16, which have the range of f32.
// Defines: as attention.cuh; DP and VP (dim and v_dim, multiples of 32), ALIGN (of keys and values, in bytes: 2, 4
// or 8), STAGES (of the pipeline). Strides of keys and values count bytes.
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 ALIGN=8 SPLIT=1 STAGES=3 KV_LEN=i64 PAST_LEN=i64
//variant: TT=f16 TS=f32 MASK=0 DP=128 VP=128 ALIGN=8 SPLIT=1 STAGES=3 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=96 ALIGN=4 SPLIT=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64 STAGES=2
//variant: TT=bf16 TS=f32 MASK=0 DP=256 VP=256 ALIGN=8 SPLIT=1 STAGES=3 KV_LEN=i64 PAST_LEN=i64 BLOCK_TABLE=i64
//variant: TT=bf16 TS=f32 MASK=1 DP=96 VP=32 ALIGN=2 SPLIT=0 KV_LEN=i32 STAGES=3 BLOCK_TABLE=i32
#include "attention_levels.cuh"

#if __CUDA_ARCH__ >= 800
typedef LevelRows<DP / kElements> Keys;
typedef LevelRows<VP / kElements> Values;
constexpr int kStage = kKeys * (Keys::kStride + Values::kStride);  // bytes

// The column of element i of a lane's sums: a lane has eight adjacent ones of a block.
__device__ __forceinline__ int column_of(int i) {
  return i / 16 * kElements + (int)(threadIdx.x % 4) * 8 + i % 2 * 4 + i / 4 % 4;
}

extern "C" __global__ void __launch_bounds__(kWarps * 32, DP + VP > 256 ? 2 : 3) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  begin_early();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4, quad = lane % 4;
  const QueryTile tile(p, kRows);
  const Head& head = tile.head;
  u8* stages = smem + warp * STAGES * kStage;
  const i32 begin = tile.keys.first + warp * kKeys, last = tile.keys.last;
  const i32 steps = max(last - begin + kWarps * kKeys - 1, 0) / (kWarps * kKeys);
  WarpKeys keys(p, head, begin, last);
  const auto load = [&](i32 step) {
    if (step < steps) {
      u8* to = stages + step % STAGES * kStage;
      keys.find(p, head, begin + step * kWarps * kKeys, last);
      Keys::load(to, keys.places<u8>(p, head, p.k, p.k_strides));
      Values::load(to + kKeys * Keys::kStride, keys.places<u8>(p, head, p.v, p.v_strides));
    }
    copy_commit();
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) load(i);

  const QuadRows rows(p, head, tile.r0, tile.end);
  const QueryPlaces places{p, head, p.q, p.q_strides, 0, tile.end};
  const T* const query[2] = {places(rows.row[0]), places(rows.row[1])};
  // As a left operand, both rows. A lane's terms of each 16 are four adjacent ones: so it reads levels.
  u32 queries[DP / 16][4];
#pragma unroll
  for (int d = 0; d < DP / 16; ++d)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const T* const from = query[e % 2];
      queries[d][e] = from ? *(const u32*)(from + d * 16 + quad * 4 + e / 2 * 2) : 0;
    }
  f32 o[VP / 2] = {}, row_max[2] = {-infinity(0.f), -infinity(0.f)}, row_sum[2] = {}, rescale[2];
  for (i32 step = 0; step < steps; ++step) {
    copy_wait<STAGES - 2>();
    __syncwarp();
    load(step + STAGES - 1);
    const i32 key = begin + step * kWarps * kKeys;
    const u8 *ks = stages + step % STAGES * kStage, *vs = ks + kKeys * Keys::kStride;
    // The keys of a lane's scores.
    const auto scored = [&](int i) { return i / 2 * 8 + quad * 2 + i % 2; };
    f32 s[kKeys / 2] = {};
    {
      const u8* const mine[2] = {Keys::row(ks, line), Keys::row(ks, line + 8)};
      const u8* of_scores[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) of_scores[i] = Keys::row(ks, scored(i));
#pragma unroll
      for (int b = 0; b < DP / kElements; ++b) {
        f32 sum[kKeys / 2] = {};
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const u32 levels = Keys::four(mine[n], b, h * 4 + quad);
            multiply_add(sum + n * 4, queries[b * 2 + h], two_levels<0>(levels, T{}),
                         two_levels<1>(levels, T{}), T{});
          }
        f32 scale[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) scale[i] = Keys::scale(of_scores[i], b);
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i) s[i] += sum[i] * scale[i / 4 * 2 + i % 2];
      }
    }
    mask_scores(p, rows, key, s);
    softmax_step<false>(s, kLog2E, row_max, row_sum, rescale);
    rescale_sums(o, rescale);
    const u8* of_values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) of_values[i] = Values::row(vs, scored(i));
#pragma unroll
    for (int b = 0; b < VP / kElements; ++b) {
      f32 scale[4], x[kKeys / 2];
      u32 levels[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scale[i] = Values::scale(of_values[i], b);
        levels[i] = Values::four(of_values[i], b, line);
      }
      // A weight of 0 is that of a key that the row does not attend to, whatever its scale is.
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) x[i] = s[i] == 0 ? 0.f : s[i] * scale[i / 4 * 2 + i % 2];
      u32 weights[4], rest[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[i] = pack<bf16>(x[i * 2], x[i * 2 + 1]);
        rest[i] = pack_rest<bf16>(weights[i], x[i * 2], x[i * 2 + 1]);
      }
      // Pairs of levels are those of two keys.
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const u32 low = __byte_perm(levels[0], levels[1], c ? 0x7362 : 0x5140),
                  high = __byte_perm(levels[2], levels[3], c ? 0x7362 : 0x5140);
        const u32 first[2] = {two_levels<0>(low, bf16{}), two_levels<0>(high, bf16{})},
                  second[2] = {two_levels<1>(low, bf16{}), two_levels<1>(high, bf16{})};
        f32* const to = o + (b * 4 + c * 2) * 4;
        multiply_add(to, weights, first[0], first[1], bf16{});
        multiply_add(to, rest, first[0], first[1], bf16{});
        multiply_add(to + 4, weights, second[0], second[1], bf16{});
        multiply_add(to + 4, rest, second[0], second[1], bf16{});
      }
    }
    __syncwarp();
  }
  copy_wait<0>();
  join_warps<VP>(p, tile, smem, rows, o, row_max, row_sum, column_of);
}
#endif
