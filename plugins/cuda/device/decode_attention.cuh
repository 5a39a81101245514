// SPDX-License-Identifier: Apache-2.0
// The token of a block of decode_attention.cu and decode_attention_spans.cu.
// Defines: as they have.
//variant: TT=f16 TS=f32 MASK=0 V_DIM=128 K_HEADS=8 SPLITS=8 KV_LEN=i64 PAST_LEN=i64 ROWS=i64
//variant: TT=bf16 TS=f32 MASK=0 V_DIM=80 K_HEADS=2 SPLITS=1 KV_LEN=i32 PAST_LEN=i32 ROWS=i32 BLOCK_TABLE=i64
#pragma once
#include "attention_epilogue.cuh"
#include "decode_attention.args.cuh"

__device__ inline int lane() { return threadIdx.x % 32; }

struct TokenOfBlock {
  i32 split;
  Head head;
  Limits keys;
  i32 own = -1;  // the key that is the token's, if its row is one of the caches
  i64 row = -1;

  __device__ TokenOfBlock(const DecodeAttention& d)
      : split((i32)blockIdx.x % SPLITS),
        head((i32)blockIdx.x / SPLITS / K_HEADS, (i32)blockIdx.x / SPLITS % K_HEADS),
        keys(limits_of(d.attention, head.batch, 0)) {
    const i64 at = ((const PAST_LEN*)d.attention.past_len)[head.batch];
    i64 to = ((const ROWS*)d.rows)[head.batch];
    if (to < 0) to += d.cache_rows;
    if (at >= keys.first && at < keys.last && to >= 0 && to < d.cache_rows) own = (i32)at, row = to;
  }
  // Is the token's key among the `count` from `key` on?
  __device__ bool among(i32 key, i32 count) const { return own >= key && own < key + count; }
  // Puts the token's value into its row of the cache. By a warp.
  __device__ void append_value(const DecodeAttention& d, const T* value) const {
    T* const to = (T*)d.v_next + (row * K_HEADS + head.k_head) * V_DIM;
    for (int c = lane() * 8; c < V_DIM; c += 32 * 8) store(to + c, load<T, 8>(value + c));
  }
};
