// SPDX-License-Identifier: Apache-2.0
// attention of few query rows per key head.
// Defines: as attention_decode.cuh.
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=2 STAGES=3 CLUSTER=1
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=2 STAGES=3 CLUSTER=8
//variant: TT=f16 TS=f32 MASK=2 DP=64 VP=80 SPLIT=0 SOFTCAP=1 KV_LEN=i32 PAST_LEN=i64 STAGES=2 CLUSTER=1
//variant: TT=bf16 TS=f32 MASK=0 DP=128 VP=128 SPLIT=2 KV_LEN=i64 PAST_LEN=i64 STAGES=3 BLOCK_TABLE=i64 CLUSTER=4
//variant: TT=f16 TS=f32 MASK=1 DP=96 VP=64 SPLIT=0 KV_LEN=i32 STAGES=2 BLOCK_TABLE=i32 CLUSTER=1
#include "attention_decode.cuh"

#if __CUDA_ARCH__ >= 800
extern "C" IN_CLUSTER __global__ void __launch_bounds__(kWarps * 32) attention(const Attention p) {
  extern __shared__ __align__(16) u8 smem[];
  begin_early();
  const QueryTile tile(p, kRows);
  NoNewKey none;
  attend(p, tile, smem, [&](const QuadRows& rows) { return StoredQueries(p, tile, rows); }, none);
}
#endif
