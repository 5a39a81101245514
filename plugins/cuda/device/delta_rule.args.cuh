// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in delta_rule.cu, delta_rule_backward.cu and delta_chunks.cu.
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
  bool unit, wide;  // wide: ends are i64, else i32
  const i32* odd;   // of DeltaChunks; null: token by token for all heads
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
// Of each chunk of 64 tokens of each value head of each sequence: w [64, K] and u [64, V] in q's dtype,
// and the sum of g, the factor of k and the factor of q of each token.
struct DeltaChunks {
  void *w, *u;
  f32* facts;
  i32* odd;  // of each chunk: it has growth, or numbers that are not finite
};
#ifdef __CUDACC__
// Returns whether a head of a sequence has such a chunk. The head then goes token by token: products of
// chunks would round sums that cancel growth, and carry NaN to earlier tokens. All threads of the block
// come here.
__device__ inline bool is_odd(const DeltaRule& s, const i32* odd, i64 sequence, int head) {
  const i64 chunks = (s.tokens + 63) / 64, heads = (i64)s.heads * s.each;
  bool found = false;
  for (i64 c = threadIdx.x; c < chunks; c += blockDim.x)
    found = found || odd[(sequence * chunks + c) * heads + head] != 0;
  return __syncthreads_or(found) != 0;
}
#endif
TENON_ARGUMENTS_END
