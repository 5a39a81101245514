//variant: TYPE=bf16 BYKEY=0 LANES=8 ROWS=16 COLUMNS=2 THREADS=128 STEPS=16
//variant: TYPE=f32 BYKEY=1 LANES=1 ROWS=2 COLUMNS=2 THREADS=128 STEPS=16
//variant: TYPE=f16 BYKEY=1 LANES=32 ROWS=16 COLUMNS=2 THREADS=128 STEPS=4
// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule, token by token, and the states that its gradient begins with.
//entry: delta_rule_check = check(DeltaRule, ErrorSink)
//entry: delta_rule_forward = forward(DeltaRule, Out, f32*)
//entry: delta_rule_states = states(DeltaRule, DeltaRuleSaved)
#include "delta_rule.cuh"

extern __shared__ __align__(16) unsigned char memory[];

// One block. cu_seqlens begin with 0, never decrease, and end with the number of tokens.
extern "C" __global__ void __launch_bounds__(256) check(const DeltaRule s, const ErrorSink sink) {
  for (i64 i = threadIdx.x; i <= s.sequences; i += 256) {
    const i64 own = Place::end_at(s, i);
    const bool fine =
        (i > 0 ? own >= Place::end_at(s, i - 1) : own == 0) && (i < s.sequences || own == s.tokens);
    if (!fine) report(sink, kIndexOutOfRange, (u64)i);
  }
}

template <bool kSaves>
__device__ inline void walk(const DeltaRule& s, T* o, f32* last, const DeltaRuleSaved& to) {
  Tokens& tokens = *reinterpret_cast<Tokens*>(memory);
  const Place place(s);
  if (s.odd_heads && !is_odd(s, s.odd_heads, place.sequence, place.head)) return;
  State state = {};
  if (s.state)
    for_state(s, place, [&](int i, int j, i64 at) { state[i][j] = s.state[place.state(s) + at]; });
  for (i64 token = place.begin; token < place.end; token += kSteps) {
    const int count = (int)min((i64)kSteps, place.end - token);
    __syncthreads();
    read_columns(s, place, static_cast<const T*>(s.v), token, count, tokens.v);
    read_tokens(s, place, token, count, tokens, !kSaves);
    for (int t = 0; t < count; ++t) {
      if (kSaves && (token + t - place.begin) % kChunk == 0)
        for_state(s, place, [&](int i, int j, i64 at) {
          to.saved[place.chunk(s, token + t) + at] = state[i][j];
        });
      decay_state(tokens, t, state);
      f32 key[kRows], dot[kOwn];
      own_rows(tokens.k[t], key);
      all_rows(key, state, dot);
      const f32 beta = tokens.beta[t];
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        f32& v = tokens.v[t][own_column() + j];
        const f32 rest = v - dot[j];
        if constexpr (kSaves) dot[j] = rest;
#pragma unroll
        for (int i = 0; i < kRows; ++i) state[i][j] = fmaf(key[i], beta * rest, state[i][j]);
      }
      if constexpr (!kSaves) {
        own_rows(tokens.q[t], key);
        all_rows(key, state, dot);
      }
      __syncwarp();  // all lanes of the columns have read v
      if (threadIdx.x % kLanes == 0)
#pragma unroll
        for (int j = 0; j < kOwn; ++j) tokens.v[t][own_column() + j] = dot[j];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * kColumns; i += kThreads) {
      const int t = i / kColumns, c = i % kColumns;
      if (place.column + c >= s.values) continue;
      const i64 at = place.row(s, token + t) * s.values + place.column + c;
      if constexpr (kSaves)
        to.rest[at] = tokens.v[t][c];
      else
        o[at] = narrow<T>(tokens.v[t][c]);
    }
  }
  if (!kSaves && last)
    for_state(s, place, [&](int i, int j, i64 at) { last[place.state(s) + at] = state[i][j]; });
}

extern "C" __global__ void __launch_bounds__(THREADS) forward(const DeltaRule s, T* o, f32* last) {
  walk<false>(s, o, last, {});
}
extern "C" __global__ void __launch_bounds__(THREADS)
    states(const DeltaRule s, const DeltaRuleSaved to) {
  walk<true>(s, nullptr, nullptr, to);
}
