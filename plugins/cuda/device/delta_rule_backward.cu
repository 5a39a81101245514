//variant: TYPE=bf16 BYKEY=0 LANES=8 ROWS=16 COLUMNS=2 THREADS=512 STEPS=8
//variant: TYPE=f32 BYKEY=1 LANES=1 ROWS=2 COLUMNS=2 THREADS=64 STEPS=8
//variant: TYPE=f16 BYKEY=1 LANES=32 ROWS=16 COLUMNS=2 THREADS=64 STEPS=8
// SPDX-License-Identifier: Apache-2.0
// The gradients of gated_delta_rule. A block walks back through the chunks of its columns. It computes
// the states of a chunk again, which r of each token makes cheap: those before each part of the chunk
// go to memory, those inside a part are computed anew for each token.
//entry: delta_rule_backward = backward(DeltaRule, DeltaRuleSaved, DeltaRuleGradients)
//entry: delta_rule_give_rows = give_rows(const f32*, Out, i64, i64)
//entry: delta_rule_give_decays = give_decays(const f32*, f32*, i64, i64)
//entry: delta_rule_give_keys = give_keys(DeltaRule, In, const f32*, Out, i64, f32)
//entry: delta_rule_give_odd = give_odd(DeltaRule, DeltaRuleGradients, DeltaChunkGradients)
#include "delta_rule.cuh"
#include "scatter_sums.cuh"

static_assert(kSteps == kPart, "");
constexpr int kSums = kByKey ? 3 : 2;  // dq, dk and dg of a row
constexpr int kGroups = 32 / kLanes;   // columns of a warp, over kOwn
extern __shared__ __align__(16) unsigned char memory[];

struct Area {
  Tokens tokens;
  f32 dout[kPart][kColumns];
  f32 sums[2][kWarps][kSums][kKeys];  // of a token, and of the next one
  f32 scalars[2][kWarps][2];          // dbeta, dg
};

// S becomes e^g S + k e.
__device__ inline void next_state(const Tokens& tokens, int t, State& state) {
  decay_state(tokens, t, state);
  f32 key[kRows];
  own_rows(tokens.k[t], key);
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    const f32 e = tokens.beta[t] * tokens.v[t][own_column() + j];
#pragma unroll
    for (int i = 0; i < kRows; ++i) state[i][j] = fmaf(key[i], e, state[i][j]);
  }
}

// Adds values of the rows over the columns of a warp; `to`: of the warp.
__device__ inline void give_sums(f32 (&v)[kRows], f32* to) {
  const int group = threadIdx.x % 32 / kLanes;
  constexpr int each = kRows >= kGroups ? kRows / kGroups : 1;
  scatter_sums<kRows, kGroups>(v, group, kLanes);
  if (!keeps_sums<kRows, kGroups>(group)) return;
  const int first = place_of_sums<kRows, kGroups>(group);
#pragma unroll
  for (int i = 0; i < each; ++i) to[own_key(first + i)] = v[i];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    backward(const DeltaRule s, const DeltaRuleSaved saved, const DeltaRuleGradients g) {
  Area& a = *reinterpret_cast<Area*>(memory);
  Tokens& tokens = a.tokens;
  const Place place(s);
  if (s.odd_heads && !is_odd(s, s.odd_heads, place.sequence, place.head)) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  State slope = {};
  if (g.dstate_out)
    for_state(s, place,
              [&](int i, int j, i64 at) { slope[i][j] = g.dstate_out[place.state(s) + at]; });
  f32* const area = g.area + place.state(s) * kParts;
  const i64 part_size = s.keys * (i64)s.values;
  const i64 first_row = place.tile * g.rows;
  const auto read = [&](i64 token, int count, bool queries) {
    __syncthreads();
    read_columns(s, place, saved.rest, token, count, tokens.v);
    if (queries) read_columns(s, place, static_cast<const T*>(g.dout), token, count, a.dout);
    read_tokens(s, place, token, count, tokens, queries);
  };

  const i64 length = place.end - place.begin;
  for (i64 chunk = (length + kChunk - 1) / kChunk; chunk-- > 0;) {
    const i64 first = place.begin + chunk * kChunk;
    const int in_chunk = (int)min((i64)kChunk, place.end - first);
    const int parts = (in_chunk + kPart - 1) / kPart;
    State state = {};
    for_state(s, place,
              [&](int i, int j, i64 at) { state[i][j] = saved.saved[place.chunk(s, first) + at]; });
    for (int part = 0; part < parts; ++part) {
      for_state(s, place, [&](int i, int j, i64 at) { area[part * part_size + at] = state[i][j]; });
      if (part + 1 == parts) break;
      read(first + part * kPart, kPart, false);
      for (int t = 0; t < kPart; ++t) next_state(tokens, t, state);
    }
    for (int part = parts; part-- > 0;) {
      const i64 token = first + part * kPart;
      const int count = min(kPart, in_chunk - part * kPart);
      read(token, count, true);
      for (int t = count; t-- > 0;) {
        State kept = {};
        for_state(s, place,
                  [&](int i, int j, i64 at) { kept[i][j] = area[part * part_size + at]; });
        for (int i = 0; i < t; ++i) next_state(tokens, i, kept);
        decay_state(tokens, t, kept);

        f32 key[kRows], query[kRows], dout[kOwn], rest[kOwn], de[kOwn];
        own_rows(tokens.k[t], key);
        own_rows(tokens.q[t], query);
        const f32 beta = tokens.beta[t];
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          dout[j] = a.dout[t][own_column() + j], rest[j] = tokens.v[t][own_column() + j];
#pragma unroll
          for (int i = 0; i < kRows; ++i) slope[i][j] = fmaf(query[i], dout[j], slope[i][j]);
        }
        all_rows(key, slope, de);
        f32 dbeta = 0, dg = 0, dq[kRows] = {}, dk[kRows] = {}, by_key[kRows] = {};
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          const f32 e = beta * rest[j], dr = beta * de[j];
          dbeta = fmaf(de[j], rest[j], dbeta);
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
            dq[i] = fmaf(fmaf(key[i], e, kept[i][j]), dout[j], dq[i]);
            dk[i] = fmaf(slope[i][j], e, fmaf(-kept[i][j], dr, dk[i]));
            slope[i][j] = fmaf(-key[i], dr, slope[i][j]);
            by_key[i] = fmaf(slope[i][j], kept[i][j], by_key[i]);
          }
        }
        decay_state(tokens, t, slope);
        if constexpr (!kByKey) {
#pragma unroll
          for (int i = 0; i < kRows; ++i) dg += by_key[i];
          dg = sum_warp<32>(dg);
        }
        // All lanes of a column have the same: each column counts once.
        dbeta = sum_warp<32>(lane % kLanes == 0 ? dbeta : 0.f);
        const int turn = t % 2;
        give_sums(dq, a.sums[turn][warp][0]);
        give_sums(dk, a.sums[turn][warp][1]);
        if constexpr (kByKey) give_sums(by_key, a.sums[turn][warp][kSums - 1]);
        if (lane == 0) a.scalars[turn][warp][0] = dbeta, a.scalars[turn][warp][1] = dg;
        __syncwarp();  // all lanes of the columns have read dout
        if (lane % kLanes == 0)
#pragma unroll
          for (int j = 0; j < kOwn; ++j) a.dout[t][own_column() + j] = beta * de[j];
        // The sums of the token after this one were read before the last barrier.
        __syncthreads();
        const i64 row = first_row + place.row(s, token + t);
        for (int i = threadIdx.x; i < kSums * kKeys; i += kThreads) {
          const int n = i % kKeys;
          if (n >= s.keys) continue;
          f32 sum = 0;
          for (int w = 0; w < kWarps; ++w) sum += a.sums[turn][w][i / kKeys][n];
          (i < kKeys ? g.dq : i < 2 * kKeys ? g.dk : g.dg)[row * s.keys + n] = sum;
        }
        if (threadIdx.x < (kByKey ? 1 : 2)) {
          f32 sum = 0;
          for (int w = 0; w < kWarps; ++w) sum += a.scalars[turn][w][threadIdx.x];
          (threadIdx.x == 0 ? g.dbeta : g.dg)[row] = sum;
        }
      }
      if (g.dv)
        for (int i = threadIdx.x; i < count * kColumns; i += kThreads) {
          const int t = i / kColumns, c = i % kColumns;
          if (place.column + c < s.values)
            static_cast<T*>(g.dv)[place.row(s, token + t) * s.values + place.column + c] =
                narrow<T>(a.dout[t][c]);
        }
    }
  }
  if (g.dstate)
    for_state(s, place, [&](int i, int j, i64 at) { g.dstate[place.state(s) + at] = slope[i][j]; });
}

// The sums over the tiles.
template <class To>
__device__ inline void add_tiles(const f32* from, To* to, i64 count, i64 tiles) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  f32 sum = 0;
  for (i64 k = 0; k < tiles; ++k) sum += from[k * count + i];
  to[i] = narrow<To>(sum);
}
extern "C" __global__ void __launch_bounds__(256)
    give_rows(const f32* from, T* to, i64 count, i64 tiles) {
  add_tiles(from, to, count, tiles);
}
extern "C" __global__ void __launch_bounds__(256)
    give_decays(const f32* from, f32* to, i64 count, i64 tiles) {
  add_tiles(from, to, count, tiles);
}

// dq or dk of a token of a key head: a warp adds the value heads, and goes back through the unit length
// of x. row: of [B, T, H], of which there are `count`.
__device__ inline void give_key(const DeltaRule& s, const T* x, const f32* from, T* to, i64 row,
                                i64 count, f32 scale) {
  const int lane = threadIdx.x % 32;
  const i64 size = count * s.each * s.keys;  // of a tile
  const auto slope = [&](int n) {
    f32 sum = 0;
    for (int k = 0; k < s.tiles; ++k)
      for (int e = 0; e < s.each; ++e) sum += from[k * size + (row * s.each + e) * s.keys + n];
    return sum * scale;
  };
  const T* const own = x + row * s.keys;
  f32 factor = 1, along = 0;
  if (s.unit) {
    f32 squares = 0, dot = 0;
    for (int n = lane; n < s.keys; n += 32) {
      const f32 v = (f32)widen(own[n]);
      squares = fmaf(v, v, squares), dot = fmaf(v, slope(n), dot);
    }
    factor = 1.f / sqrtf(sum_warp<32>(squares) + 1e-6f);
    along = sum_warp<32>(dot) * factor * factor;
  }
  for (int n = lane; n < s.keys; n += 32) {
    const f32 v = s.unit ? (f32)widen(own[n]) : 0.f;
    to[row * s.keys + n] = narrow<T>(factor * (slope(n) - v * along));
  }
}
extern "C" __global__ void __launch_bounds__(128)
    give_keys(const DeltaRule s, const T* x, const f32* from, T* to, i64 count, f32 scale) {
  const i64 row = (i64)blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= count) return;
  // give_odd takes those.
  if (s.odd_heads &&
      is_odd(s, s.odd_heads, row / (s.tokens * s.heads), (int)(row % s.heads) * s.each))
    return;
  give_key(s, x, from, to, row, count, scale);
}
// All sums of the odd heads, where other heads went by chunks. A block takes every kOddBlocks-th four
// tokens of a key head of a sequence.
extern "C" __global__ void __launch_bounds__(128)
    give_odd(const DeltaRule s, const DeltaRuleGradients g, const DeltaChunkGradients to) {
  const i64 outer = blockIdx.x / kOddBlocks, sequence = outer / s.heads;
  const int head = (int)(outer % s.heads), lane = threadIdx.x % 32;
  if (!is_odd(s, s.odd_heads, sequence, head * s.each)) return;
  const i64 keys = s.sequences * s.tokens * s.heads;
  const int first = (int)(blockIdx.x % kOddBlocks) * 4 + threadIdx.x / 32;
  for (i64 t = first; t < s.tokens; t += kOddBlocks * 4) {
    const i64 row = (sequence * s.tokens + t) * s.heads + head;
    if (to.dq)
      give_key(s, static_cast<const T*>(s.q), g.dq, static_cast<T*>(to.dq), row, keys, s.scale);
    if (to.dk)
      give_key(s, static_cast<const T*>(s.k), g.dk, static_cast<T*>(to.dk), row, keys, 1.f);
    for (i64 i = row * s.each + lane; i < (row + 1) * s.each; i += 32) {
      f32 dbeta = 0, dg = 0;
      for (int k = 0; k < s.tiles; ++k)
        dbeta += g.dbeta[k * g.rows + i], dg += g.dg[k * g.rows + i];
      if (to.dbeta) static_cast<T*>(to.dbeta)[i] = narrow<T>(dbeta);
      if (to.dg) to.dg[i] = dg;
    }
  }
}
