//variant: TYPE=bf16 KEYS=128 VALUES=128
//variant: TYPE=bf16 KEYS=128 VALUES=64
//variant: TYPE=bf16 KEYS=64 VALUES=64
// SPDX-License-Identifier: Apache-2.0
// The gradients of gated_delta_rule in chunks of 64 tokens, of all chunks at once, from what
// delta_walk.cu left: r, dv, the state S before the chunk and the gradient dS of the one after it. With
// H = dO r^T ∘ M, N = -dv r^T ∘ M below the diagonal, keys and queries with their factors:
//   dq = diag(e^γ) dO S^T + H diag(β) K
//   p = -diag(e^γ) dv S^T + N diag(β) K,   m = diag(e^(γ_C - γ)) r dS^T + H^T Q + N^T K
//   dk = p + β m,   dβ = ⟨k, m⟩,   dγ = ⟨q, dq⟩ + ⟨k, p - β m⟩
// and γ_C also decays S and the late part of m. VALUES: of a head that are in shared memory at once.
//entry: delta_gradients = gradients(DeltaRule, DeltaChunks, DeltaChunkGradients)
#include "delta_chunks.cuh"

constexpr int kValues = VALUES, kWarps = kKeys / 16, kThreads = kWarps * 32;
constexpr int kHalves = kKeys / 64;       // warps of the same rows; each has 64 keys of a gradient
constexpr int kPairBlocks = 8 / kHalves;  // of its part of H and N
extern __shared__ __align__(16) unsigned char memory[];

enum Sum { kQueryDot, kMinusDot, kPlusDot, kLateDot, kSums };
struct Area {
  union {
    struct {
      T dout[kTokens][kValues + 8], rest[kTokens][kValues + 8], dv[kTokens][kValues + 8];
    };
    struct {
      T q[kTokens][kKeyPitch], k[kTokens][kKeyPitch];
    };
  };
  T state[64][kKeyPitch], slope[64][kKeyPitch];  // 64 values; then dq and dk
  T h[kTokens][kPitch], n[kTokens][kPitch];
  f32 facts[kFacts][kTokens];
  f32 sums[kSums][kHalves][kTokens];
  f32 decays[kTokens], whole[kWarps];
};

// What kernels/delta_rule_chunks.cpp asks for.
constexpr int kValueBytes = 384 * (kValues + 8), kKeyBytes = 256 * kKeyPitch;
static_assert(sizeof(Area) == (kValueBytes > kKeyBytes ? kValueBytes : kKeyBytes) + kKeyBytes +
                                  20480 + kKeys * 16 + kKeys / 4,
              "");

#if __CUDA_ARCH__ >= 800

// Adds the numbers that the four lanes of a row hold.
__device__ inline f32 sum_row(f32 x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
// The sums of a row · b over the warp's columns, for its two rows: to `sums` of the warp's half.
template <int kTo>
__device__ inline void give_dots(const f32 (&acc)[8][4], const T (*b)[kTo], int row, int column,
                                 f32* sums) {
  f32 dots[2] = {};
  for_pairs<8>([&](int j, int i, int r, int c) {
    const u32 word = *reinterpret_cast<const u32*>(&b[row + r][column + c]);
    f32& dot = dots[i / 2];
    dot = fmaf(acc[j][i], widen_half(word, 0, T{}), dot);
    dot = fmaf(acc[j][i + 1], widen_half(word, 1, T{}), dot);
  });
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const f32 dot = sum_row(dots[half]);
    if (threadIdx.x % 4 == 0) sums[row + threadIdx.x % 32 / 4 + half * 8] = dot;
  }
}
__device__ inline f32 both(const f32 (&sums)[kHalves][kTokens], int t) {
  f32 sum = 0;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) sum += sums[half][t];
  return sum;
}

// dq or dk of a chunk, rows of kKeys: x, less what lies along the row of `own`, whose factor is given.
template <int kTo>
__device__ inline void give_keys(const DeltaRule& s, const ChunkPlace& place, f32 (&x)[8][4],
                                 const T (*own)[kTo], int row, int column, const f32* factors,
                                 const f32 (&along)[2], T (*area)[kKeyPitch], f32* sums) {
  for_pairs<8>([&](int j, int i, int r, int c) {
    const int t = row + r;
    const f32 factor = factors[t];
    if (sums) {  // delta_rule_backward.cu goes on from here, with the factor
      f32* const to = sums + (place.row(s) + (i64)t * s.heads * s.each) * kKeys + column + c;
      if (t < place.count) to[0] = x[j][i] / factor, to[1] = x[j][i + 1] / factor;
      return;
    }
    const u32 word = *reinterpret_cast<const u32*>(&own[t][column + c]);
    const f32 less = s.unit ? factor * factor * along[i / 2] : 0.f;
    put_pair(&area[t][column + c], fmaf(-less, widen_half(word, 0, T{}), x[j][i]),
             fmaf(-less, widen_half(word, 1, T{}), x[j][i + 1]));
  });
}
__device__ inline void store_keys(const DeltaRule& s, const ChunkPlace& place,
                                  const T (*area)[kKeyPitch], void* to) {
  constexpr int each = kKeys / 8;
  if (!to) return;
  T* const rows = static_cast<T*>(to) + place.key_row(s) * kKeys;
  for (int i = threadIdx.x; i < place.count * each; i += kThreads) {
    const int t = i / each, c = i % each * 8;
    store(rows + (i64)t * s.heads * kKeys + c, load<T, 8>(&area[t][c]));
  }
}

#endif

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    gradients(const DeltaRule s, const DeltaChunks from, const DeltaChunkGradients g) {
#if __CUDA_ARCH__ >= 800
  Area& a = *reinterpret_cast<Area*>(memory);
  const int heads = s.heads * s.each;
  const i64 all = (s.tokens + kTokens - 1) / kTokens, outer = blockIdx.x / heads;
  const ChunkPlace place(s, outer / all, outer % all, (int)(blockIdx.x % heads));
  if (is_odd(s, from.odd_heads, place.sequence, place.head)) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int own = warp % 4 * 16, half = warp / 4, column = half * 64;
  const i64 value_stride = (i64)heads * s.values, values = place.row(s) * s.values;
  const i64 chunk_values = place.index(s) * s.values;
  const auto fetch_values = [&](int first) {
    fetch_rows<kThreads, kValues>(static_cast<const T*>(g.dout) + values + first, value_stride,
                                  place.count, a.dout);
    fetch_rows<kThreads, kValues>(static_cast<const T*>(g.dv) + values + first, value_stride,
                                  place.count, a.dv);
    fetch_rows<kThreads, kValues>(static_cast<const T*>(from.rest) + chunk_values * kTokens + first,
                                  s.values, kTokens, a.rest);
  };
  const auto fetch_states = [&](int first) {  // rows are values here
    const i64 at = (chunk_values + first) * kKeys;
    fetch_rows<kThreads, kKeys>(static_cast<const T*>(from.states) + at, kKeys, 64, a.state);
    fetch_rows<kThreads, kKeys>(static_cast<const T*>(from.slopes) + at, kKeys, 64, a.slope);
  };
  const auto arrive = [] {
    copy_commit();
    copy_wait<0>();
    __syncthreads();
  };

  fetch_facts<kThreads>(from.facts + place.index(s) * kFacts * kTokens, a.facts);
  const f32* const gamma = a.facts[kGamma];
  {
    f32 h[kPairBlocks][4] = {}, n[kPairBlocks][4] = {};
    const int first_pair = half * kPairBlocks * 8;
    for (int first = 0; first < s.values; first += kValues) {
      if (first > 0) __syncthreads();
      fetch_values(first);
      copy_commit();
      if (first == 0) fetch_states(0);
      copy_commit();
      copy_wait<1>();
      __syncthreads();
      multiply<kValues, true, true>(h, a.dout, own, a.rest, first_pair);
      multiply<kValues, true, true>(n, a.dv, own, a.rest, first_pair);
    }
    for_pairs<kPairBlocks>([&](int j, int i, int r, int c) {
      const int row = own + r;
      f32 pairs[2], below[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int t = first_pair + c + e;
        const f32 decay = row >= t ? a.facts[kKey][t] * expf(gamma[row] - gamma[t]) : 0.f;
        pairs[e] = s.scale * a.facts[kQuery][row] * decay * h[j][i + e];
        below[e] = row > t ? -a.facts[kKey][row] * decay * n[j][i + e] : 0.f;
      }
      put_pair(&a.h[row][first_pair + c], pairs[0], pairs[1]);
      put_pair(&a.n[row][first_pair + c], below[0], below[1]);
    });
  }

  // With the factors of their rows: dq, p, and m.
  f32 dq[8][4] = {}, plus[8][4] = {}, minus[8][4] = {}, whole = 0;
  for (int first = 0; first < s.values; first += 64) {
    if (first > 0) {
      __syncthreads();
      fetch_states(first);
    }
    if (s.values > kValues && first % kValues == 0) {
      __syncthreads();
      fetch_values(first);
    }
    arrive();
    const int from_value = first % kValues;
#pragma unroll
    for (int k = 0; k < 64; k += 16) {
      u32 of_out[4], of_v[4], of_rest[4];
      load_left<true>(of_out, &a.dout[0][0], kValues + 8, own, from_value + k);
      load_left<true>(of_v, &a.dv[0][0], kValues + 8, own, from_value + k);
      load_left<true>(of_rest, &a.rest[0][0], kValues + 8, own, from_value + k);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        u32 b[4];
        load_right<false>(b, &a.state[0][0], kKeyPitch, column + j * 8, k);
        multiply_add(dq[j], of_out, b[0], b[1], T{});
        multiply_add(dq[j + 1], of_out, b[2], b[3], T{});
        multiply_add(plus[j], of_v, b[0], b[1], T{});
        multiply_add(plus[j + 1], of_v, b[2], b[3], T{});
        load_right<false>(b, &a.slope[0][0], kKeyPitch, column + j * 8, k);
        multiply_add(minus[j], of_rest, b[0], b[1], T{});
        multiply_add(minus[j + 1], of_rest, b[2], b[3], T{});
      }
    }
    for (int i = threadIdx.x * 8; i < 64 * kKeys; i += kThreads * 8) {
      const Vec<T, 8> x = load<T, 8>(&a.state[i / kKeys][i % kKeys]);
      const Vec<T, 8> y = load<T, 8>(&a.slope[i / kKeys][i % kKeys]);
#pragma unroll
      for (int e = 0; e < 8; ++e) whole = fmaf((f32)widen(x.v[e]), (f32)widen(y.v[e]), whole);
    }
  }
  __syncthreads();
  const i64 keys = place.key_row(s) * s.keys, key_stride = (i64)s.heads * s.keys;
  fetch_rows<kThreads, kKeys>(static_cast<const T*>(s.q) + keys, key_stride, place.count, a.q);
  fetch_rows<kThreads, kKeys>(static_cast<const T*>(s.k) + keys, key_stride, place.count, a.k);
  copy_commit();
  for_elements<8>([&](int j, int i, int r, int) {
    const int row = own + r;
    const f32 in = -a.facts[kIn][row];
    dq[j][i] *= a.facts[kOut][row], plus[j][i] *= in;
    minus[j][i] *= a.facts[kKey][row] * expf(gamma[kTokens - 1] - gamma[row]);
  });
  whole = sum_warp<32>(whole);
  if (lane == 0) a.whole[warp] = whole;
  arrive();
  give_dots(minus, a.k, own, column, a.sums[kLateDot][half]);
#pragma unroll
  for (int k = 0; k < kTokens; k += 16) {
    // Terms of dγ cancel only if both sides have H and N with the same rounding.
    u32 left[4], rest[4];
    load_left<true>(left, &a.h[0][0], kPitch, own, k);
    scale_left(left, a.facts[kBeta] + k, &rest);
    multiply_left<false>(dq, left, a.k, column, k);
    multiply_left<false>(dq, rest, a.k, column, k);
    load_left<true>(left, &a.n[0][0], kPitch, own, k);
    scale_left(left, a.facts[kBeta] + k, &rest);
    multiply_left<false>(plus, left, a.k, column, k);
    multiply_left<false>(plus, rest, a.k, column, k);
    load_left<false>(left, &a.h[0][0], kPitch, own, k);
    multiply_left<false>(minus, left, a.q, column, k);
    load_left<false>(left, &a.n[0][0], kPitch, own, k);
    multiply_left<false>(minus, left, a.k, column, k);
  }
  give_dots(dq, a.q, own, column, a.sums[kQueryDot][half]);
  give_dots(plus, a.k, own, column, a.sums[kPlusDot][half]);
  give_dots(minus, a.k, own, column, a.sums[kMinusDot][half]);
  __syncthreads();
  f32 along_q[2], along_k[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = own + lane / 4 + i * 8;
    along_q[i] = both(a.sums[kQueryDot], t);
    along_k[i] = fmaf(a.facts[kBeta][t], both(a.sums[kMinusDot], t), both(a.sums[kPlusDot], t));
  }
  for_elements<8>([&](int j, int i, int r, int) {
    plus[j][i] = fmaf(a.facts[kBeta][own + r], minus[j][i], plus[j][i]);
  });
  give_keys(s, place, dq, a.q, own, column, a.facts[kQuery], along_q, a.state, g.dq_sums);
  give_keys(s, place, plus, a.k, own, column, a.facts[kKey], along_k, a.slope, g.dk_sums);
  if (threadIdx.x < kTokens) {
    const int t = threadIdx.x;
    const f32 minus_dot = both(a.sums[kMinusDot], t), beta = a.facts[kBeta][t];
    a.decays[t] = both(a.sums[kQueryDot], t) + fmaf(-beta, minus_dot, both(a.sums[kPlusDot], t));
    a.sums[kLateDot][0][t] = beta * both(a.sums[kLateDot], t);
    const i64 row = place.row(s) + (i64)t * heads;
    if (g.dbeta && t < place.count) static_cast<T*>(g.dbeta)[row] = narrow<T>(minus_dot);
  }
  __syncthreads();
  if (!g.dq_sums) store_keys(s, place, a.state, g.dq);
  if (!g.dk_sums) store_keys(s, place, a.slope, g.dk);
  if (threadIdx.x < place.count && g.dg) {
    f32 sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += a.whole[w];
    sum *= expf(gamma[kTokens - 1]);
    // Late parts of later tokens cancel what those tokens have.
    for (int t = 0; t < kTokens; ++t)
      sum += t < (int)threadIdx.x ? a.sums[kLateDot][0][t] : a.decays[t] + a.sums[kLateDot][0][t];
    g.dg[place.row(s) + (i64)threadIdx.x * heads] = sum;
  }
#endif
}
