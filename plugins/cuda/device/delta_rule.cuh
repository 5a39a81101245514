// SPDX-License-Identifier: Apache-2.0
// The state of gated_delta_rule in registers: LANES lanes of a warp share the rows of COLUMNS
// columns, ROWS rows each. TYPE: of q; BYKEY: a decay for each row; THREADS: of a block; STEPS:
// tokens whose operands are in shared memory at once.
//variant: TYPE=bf16 BYKEY=0 LANES=8 ROWS=16 COLUMNS=2 THREADS=128 STEPS=16
#pragma once
#include "common.cuh"
#include "delta_rule.args.cuh"
#include "rows.cuh"

typedef TYPE T;
constexpr int kLanes = LANES, kRows = ROWS, kOwn = COLUMNS, kThreads = THREADS, kSteps = STEPS;
constexpr int kKeys = kLanes * kRows, kColumns = kThreads / kLanes * kOwn, kWarps = kThreads / 32;
constexpr int kWidth = kRows < 4 ? kRows : 4;                   // rows side by side
constexpr int kChunk = 64, kPart = 8, kParts = kChunk / kPart;  // tokens
constexpr bool kByKey = BYKEY != 0;
constexpr int kDecays = kByKey ? kKeys : 1;

// The block's columns, and the tokens of its sequence.
struct Place {
  i64 sequence, entry, begin, end;  // entry: of the batch
  int head, tile, column;           // head: value head; column: the first one

  __device__ explicit Place(const DeltaRule& s) {
    const i64 heads = (i64)s.heads * s.each, row = blockIdx.x / s.tiles;
    tile = (int)(blockIdx.x % s.tiles);
    head = (int)(row % heads), sequence = row / heads;
    column = tile * kColumns;
    entry = s.ends ? 0 : sequence, begin = 0, end = s.tokens;
    if (!s.ends) return;
    begin = end_at(s, sequence), end = end_at(s, sequence + 1);
    // check() has reported it.
    if (begin < 0 || end < begin || end > s.tokens) begin = end = 0;
  }
  __device__ static i64 end_at(const DeltaRule& s, i64 i) {
    return s.wide ? static_cast<const i64*>(s.ends)[i] : static_cast<const i32*>(s.ends)[i];
  }
  __device__ i64 row(const DeltaRule& s, i64 token) const {  // of [B, T, HV]
    return (entry * s.tokens + token) * s.heads * s.each + head;
  }
  __device__ i64 key_row(const DeltaRule& s, i64 token) const {  // of [B, T, H]
    return (entry * s.tokens + token) * s.heads + head / s.each;
  }
  __device__ i64 state(const DeltaRule& s) const {
    return (sequence * s.heads * s.each + head) * s.keys * (i64)s.values;
  }
  // Of DeltaRuleSaved.
  __device__ i64 chunk(const DeltaRule& s, i64 token) const {
    const i64 first = (entry * s.tokens + begin) / kChunk + sequence;
    return ((first + (token - begin) / kChunk) * s.heads * s.each + head) * s.keys * (i64)s.values;
  }
};

// Row i of this thread, and the first of its columns.
__device__ inline int own_key(int i) {
  return (i / kWidth * kLanes + (int)threadIdx.x % kLanes) * kWidth + i % kWidth;
}
__device__ inline int own_column() { return (int)threadIdx.x / kLanes * kOwn; }
// f(i, j, where it is in [K, V]) for the elements of the state that exist.
template <class F>
__device__ inline void for_state(const DeltaRule& s, const Place& place, F&& f) {
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int key = own_key(i), column = place.column + own_column() + j;
      if (key < s.keys && column < s.values) f(i, j, (i64)key * s.values + column);
    }
}

// Operands of some tokens, in shared memory.
struct Tokens {
  f32 q[kSteps][kKeys], k[kSteps][kKeys];
  f32 decay[kSteps][kDecays];
  f32 v[kSteps][kColumns];
  f32 beta[kSteps];
};
// Columns of an operand like v, as floats; zeros for what is not there.
template <class S>
__device__ inline void read_columns(const DeltaRule& s, const Place& place, const S* from,
                                    i64 token, int count, f32 (*to)[kColumns]) {
  for (int i = threadIdx.x; i < kSteps * kColumns; i += kThreads) {
    const int t = i / kColumns, c = i % kColumns;
    to[t][c] = t < count && place.column + c < s.values
                   ? (f32)widen(from[place.row(s, token + t) * s.values + place.column + c])
                   : 0.f;
  }
}
// All threads come here, behind those that still read `to`. Keys and queries are of unit length
// where wanted, queries have the scale.
__device__ inline void read_tokens(const DeltaRule& s, const Place& place, i64 token, int count,
                                   Tokens& to, bool queries) {
  for (int i = threadIdx.x; i < kSteps * kKeys; i += kThreads) {
    const int t = i / kKeys, n = i % kKeys;
    const bool there = t < count && n < s.keys;
    const i64 at = there ? place.key_row(s, token + t) * s.keys + n : 0;
    to.k[t][n] = there ? (f32)widen(static_cast<const T*>(s.k)[at]) : 0.f;
    if (queries) to.q[t][n] = there ? (f32)widen(static_cast<const T*>(s.q)[at]) : 0.f;
    if constexpr (kByKey)
      to.decay[t][n] = there ? expf(s.g[place.row(s, token + t) * s.keys + n]) : 0.f;
  }
  for (int t = threadIdx.x; t < kSteps; t += kThreads) {
    const bool there = t < count;
    const i64 row = there ? place.row(s, token + t) : 0;
    to.beta[t] = there ? (f32)widen(static_cast<const T*>(s.beta)[row]) : 0.f;
    if constexpr (!kByKey) to.decay[t][0] = there ? expf(s.g[row]) : 0.f;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int t = threadIdx.x / 32; t < 2 * count; t += kWarps) {
    if (t >= count && !queries) break;
    f32* const x = t < count ? to.k[t] : to.q[t - count];
    f32 factor = t < count ? 1.f : s.scale;
    if (s.unit) {
      f32 sum = 0;
      for (int n = lane; n < kKeys; n += 32) sum = fmaf(x[n], x[n], sum);
      factor *= 1.f / sqrtf(sum_warp<32>(sum) + 1e-6f);
    }
    for (int n = lane; n < kKeys; n += 32) x[n] *= factor;
  }
  __syncthreads();
}

typedef f32 State[kRows][kOwn];
__device__ inline void own_rows(const f32* from, f32 (&to)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; i += kWidth) {
    const Vec<f32, kWidth> part = load<f32, kWidth>(from + own_key(i));
#pragma unroll
    for (int e = 0; e < kWidth; ++e) to[i + e] = part.v[e];
  }
}
__device__ inline void decay_state(const Tokens& tokens, int t, State& state) {
  f32 rows[kRows];
  if constexpr (kByKey) {
    own_rows(tokens.decay[t], rows);
  } else {
#pragma unroll
    for (int i = 0; i < kRows; ++i) rows[i] = tokens.decay[t][0];
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kOwn; ++j) state[i][j] *= rows[i];
}
// The sums over all rows of row[i] · state[i][j], in all lanes of the columns.
__device__ inline void all_rows(const f32 (&row)[kRows], const State& state, f32 (&sum)[kOwn]) {
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    f32 own = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) own = fmaf(row[i], state[i][j], own);
    sum[j] = sum_warp<kLanes>(own);
  }
}
