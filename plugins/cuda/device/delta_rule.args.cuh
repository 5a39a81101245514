// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of gated_delta_rule: delta_rule*.cu and delta_*.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// Absent operands are null. A block takes some columns of the state of one value head of a sequence.
struct DeltaRule {
  const void *q, *k, *v, *beta, *ends;  // ends: cu_seqlens
  const f32 *g, *state;
  i64 tokens;
  i32 heads, each, keys, values;  // each: value heads of a key head
  i32 sequences, tiles;           // tiles: blocks of a value head
  f32 scale;
  bool unit, wide;       // wide: ends are i64, else i32
  const i32* odd_heads;  // of DeltaChunks; null: token by token for all heads
};
// saved: the states before each chunk of tokens, [chunks, HV, K, V], where chunk c of a sequence that
// begins with token t of entry b is number (b T + t) / kChunk + sequence + c. rest: r of each token,
// [B, T, HV, V].
struct DeltaRuleSaved {
  f32 *saved, *rest;
};
// area: states of a chunk, [sequences, HV, kParts, K, V]. Sums over the columns of a block, for each
// tile: dq and dk [tiles, B, T, HV, K], dg [tiles, B, T, HV (, K)], dbeta [tiles, B, T, HV].
struct DeltaRuleGradients {
  const void* dout;
  const f32* dstate_out;
  f32 *area, *dq, *dk, *dg, *dbeta, *dstate;
  void* dv;
  i64 rows;  // B T HV
};
// Of each chunk of 64 tokens of each value head of each sequence, in q's dtype: x and pairs [64, 64]
// (delta_chunks.cu). rest: r [64, V]. states: before the chunk, slopes: the gradient of the state after
// it, both [V, K]. facts: numbers of each token. odd: the chunk has growth, or keys that are not finite.
// Null where not wanted.
struct DeltaChunks {
  void *x, *pairs, *rest, *states, *slopes;
  f32* facts;
  i32 *odd, *odd_heads;  // odd_heads: of each key head of each sequence; its values count too
};
// dq_sums, dk_sums: [B, T, HV, K], where several value heads share a key head; else null.
struct DeltaChunkGradients {
  const void* dout;
  const f32* dstate_out;
  void *dq, *dk, *dv, *dbeta;
  f32 *dg, *dstate, *dq_sums, *dk_sums;
};
constexpr int kOddBlocks = 16;  // of a key head of a sequence, in give_odd
#ifdef __CUDACC__
// Does a key head of a sequence have an odd chunk? Its value heads then go token by token: products of
// chunks would round sums that cancel growth, and carry NaN to other tokens.
__device__ inline bool is_odd(const DeltaRule& s, const i32* odd_heads, i64 sequence, int head) {
  return odd_heads[sequence * s.heads + head / s.each] != 0;
}
#endif
TENON_ARGUMENTS_END
