//variant: TYPE=bf16 KEYS=128
//variant: TYPE=bf16 KEYS=64
// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule in chunks of 64 tokens: what needs neither values nor state, of all chunks at once.
// With M_ij = e^(γ_i - γ_j) for i >= j, the keys K and queries Q with their factors, and the strict lower
// part L of K K^T ∘ M:
//   X = (1 + L diag(β))^-1,   P = (Q K^T ∘ M) diag(β),
//   r = X (V - diag(e^γ) K S),   O = diag(e^γ) Q S + P r,
// and S becomes e^γ_C S + (diag(β e^(γ_C - γ)) K)^T r. The gradient of V is
//   X^T (P^T dO + diag(β e^(γ_C - γ)) K dS).
// So x and pairs are X and P.
//entry: delta_chunks_solve = solve(DeltaRule, DeltaChunks)
#include "delta_chunks.cuh"

constexpr int kThreads = 128, kRow = kTokens + 4;
extern __shared__ __align__(16) unsigned char memory[];

struct Area {
  T k[kTokens][kKeyPitch];
  union {
    T q[kTokens][kKeyPitch];
    f32 x[kTokens][kRow];  // L diag(β), then X
  };
  f32 g[kTokens], facts[kFacts][kTokens];
};

// What kernels/delta_rule_chunks.cpp asks for.
static_assert(sizeof(Area) == 20480 + kKeys * 128, "");

#if __CUDA_ARCH__ >= 800

__device__ inline bool is_finite(f32 x) { return fabsf(x) <= 3.402823466e38f; }
// Are all bf16 of a row finite? The sum of squares may also overflow: the row then counts as odd.
__device__ inline f32 sum_of_squares(const T* row) {
  f32 sum = 0;
#pragma unroll
  for (int n = 0; n < kKeys; n += 8) {
    const Vec<T, 8> part = load<T, 8>(row + n);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const f32 x = (f32)widen(part.v[e]);
      sum = fmaf(x, x, sum);
    }
  }
  return sum;
}

// x becomes the inverse of 1 + x, whose elements on and above the diagonal count as zeros: first the
// 16 x 16 blocks on the diagonal by substitution, a warp each, then pairs of blocks of 16 and of 32:
// of (A 0; B C) it is (A^-1 0; -C^-1 B A^-1 C^-1). The upper blocks keep B A^-1 meanwhile.
template <int kSize, int kPairs>
__device__ inline void join_inverses(f32 (&x)[kTokens][kRow]) {
  constexpr int threads = kThreads / kPairs, each = kSize * kSize / threads, across = kSize / each;
  const int pair = threadIdx.x / threads, own = threadIdx.x % threads;
  const int first = pair * 2 * kSize, second = first + kSize;
  const int row = own / across, column = own % across * each;
  const auto product = [&](int to_row, int to_column, int left_row, int left_column, int right_row,
                           int right_column, f32 sign) {
    f32 sum[each] = {};
#pragma unroll 8
    for (int m = 0; m < kSize; ++m) {
      const f32 left = x[left_row + row][left_column + m];
#pragma unroll
      for (int e = 0; e < each; e += 4) {
        const Vec<f32, 4> right = load<f32, 4>(&x[right_row + m][right_column + column + e]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[e + i] = fmaf(left, right.v[i], sum[e + i]);
      }
    }
#pragma unroll
    for (int e = 0; e < each; e += 4)
      store(&x[to_row + row][to_column + column + e],
            Vec<f32, 4>{{sign * sum[e], sign * sum[e + 1], sign * sum[e + 2], sign * sum[e + 3]}});
  };
  __syncthreads();
  product(first, second, second, first, first, first, 1.f);
  __syncthreads();
  product(second, first, second, second, first, second, -1.f);
  if constexpr (kSize < 32) {
    __syncthreads();
    constexpr f32 zero[each] = {};
#pragma unroll
    for (int e = 0; e < each; e += 4)
      store(&x[first + row][second + column + e], load<f32, 4>(zero + e));
  }
}
__device__ inline void invert(f32 (&x)[kTokens][kRow]) {
  const int own = threadIdx.x / 32 * 16, column = threadIdx.x % 16;
  f32 mine[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    f32 sum = i == column ? 1.f : 0.f;
#pragma unroll
    for (int m = 0; m < i; ++m) sum = fmaf(-x[own + i][own + m], mine[m], sum);
    mine[i] = sum;
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16; ++i) x[own + i][own + column] = mine[i];
  join_inverses<16, 2>(x);
  join_inverses<32, 1>(x);
  __syncthreads();
}

#endif

extern "C" __global__ void __launch_bounds__(kThreads, 5)
    solve(const DeltaRule s, const DeltaChunks to) {
#if __CUDA_ARCH__ >= 800
  Area& a = *reinterpret_cast<Area*>(memory);
  const int heads = s.heads * s.each;
  const i64 all = (s.tokens + kTokens - 1) / kTokens, outer = blockIdx.x / heads;
  const ChunkPlace place(s, outer / all, outer % all, (int)(blockIdx.x % heads));
  const int own = threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
  const i64 key_stride = (i64)s.heads * s.keys, keys = place.key_row(s) * s.keys;
  bool odd = false;

  fetch_rows<kThreads, kKeys>(static_cast<const T*>(s.k) + keys, key_stride, place.count, a.k);
  fetch_rows<kThreads, kKeys>(static_cast<const T*>(s.q) + keys, key_stride, place.count, a.q);
  copy_commit();
  if (threadIdx.x < kTokens) {
    const int t = threadIdx.x;
    const i64 row = place.row(s) + (i64)t * heads;
    // Sums of g keep their last bits: e^-128 is 0 as well.
    const f32 g = t < place.count ? s.g[row] : 0.f;
    const f32 beta = t < place.count ? (f32)widen(static_cast<const T*>(s.beta)[row]) : 0.f;
    a.g[t] = g < -128.f ? -128.f : g;
    a.facts[kBeta][t] = beta;
    odd = !(g <= 0.f) || !is_finite(beta);
  }
  copy_wait<0>();
  __syncthreads();
  {
    const bool of_key = threadIdx.x < kTokens;
    const int t = threadIdx.x % kTokens;
    const f32 squares = sum_of_squares(of_key ? a.k[t] : a.q[t]);
    // A query that is not finite reaches the gradients of other tokens.
    odd = odd || ((of_key || to.slopes) && !is_finite(squares));
    const f32 factor = s.unit ? 1.f / sqrtf(squares + 1e-6f) : 1.f;
    a.facts[of_key ? kKey : kQuery][t] = factor;
    f32 sum = 0, end = 0;
#pragma unroll
    for (int i = 0; i < kTokens; i += 4) {
      const Vec<f32, 4> g = load<f32, 4>(a.g + i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        end += g.v[e];
        if (i + e == t) sum = end;
      }
    }
    const f32 grown = expf(sum);
    if (of_key) {
      a.facts[kGamma][t] = sum;
      a.facts[kLate][t] = a.facts[kBeta][t] * factor * expf(end - sum);
      a.facts[kIn][t] = factor * grown;
    } else {
      a.facts[kOut][t] = s.scale * factor * grown;
    }
  }
  __syncthreads();
  // e^(γ_i - γ_j) with the factors of key j; 0 above the diagonal.
  const auto decay = [&](int i, int j) {
    return i >= j ? a.facts[kKey][j] * a.facts[kBeta][j] *
                        __expf(a.facts[kGamma][i] - a.facts[kGamma][j])
                  : 0.f;
  };
  {
    f32 acc[8][4] = {};
    multiply<kKeys, true, true>(acc, a.q, own, a.k, 0);
    __syncthreads();  // x takes the place of q; its rows of a warp are room for pairs
    T* const rows = reinterpret_cast<T*>(a.x[own]);
    for_pairs<8>([&](int j, int i, int r, int c) {
      const int row = own + r;
      const f32 query = s.scale * a.facts[kQuery][row];
      put_pair(rows + r * kPitch + c, query * decay(row, c) * acc[j][i],
               query * decay(row, c + 1) * acc[j][i + 1]);
    });
    __syncwarp();
    T* const pairs = static_cast<T*>(to.pairs) + (place.index(s) * kTokens + own) * kTokens;
#pragma unroll
    for (int i = 0; i < 16 * kTokens; i += 32 * 8) {
      const int at = i + lane * 8;
      store(pairs + at, load<T, 8>(rows + at / kTokens * kPitch + at % kTokens));
    }
    __syncwarp();
  }
  {
    f32 acc[8][4] = {};
    multiply<kKeys, true, true>(acc, a.k, own, a.k, 0);
    for_elements<8>([&](int j, int i, int r, int c) {
      const int row = own + r;
      a.x[row][c] = row > c ? a.facts[kKey][row] * decay(row, c) * acc[j][i] : 0.f;
    });
  }
  __syncwarp();
  invert(a.x);

  T* const x = static_cast<T*>(to.x) + place.index(s) * kTokens * kTokens;
#pragma unroll
  for (int i = 0; i < kTokens * kTokens; i += kThreads * 8) {
    const int at = i + (int)threadIdx.x * 8, row = at / kTokens, column = at % kTokens;
    f32 values[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] = column + e <= row ? a.x[row][column + e] : 0.f;
    store(x + at, narrow_all<T, 8>(values));
  }
  f32* const facts = to.facts + place.index(s) * kFacts * kTokens;
  for (int i = threadIdx.x; i < kFacts * kTokens; i += kThreads) facts[i] = (&a.facts[0][0])[i];
  odd = __syncthreads_or(odd) != 0;
  if (threadIdx.x == 0) {
    to.odd[place.index(s)] = odd;
    // delta_walk.cu marks heads.
    if (place.chunk == 0) to.odd_heads[place.sequence * s.heads + place.head / s.each] = 0;
  }
#endif
}
