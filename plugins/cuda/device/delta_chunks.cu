//variant: TYPE=bf16 KEYS=128
//variant: TYPE=bf16 KEYS=64
// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule in chunks of 64 tokens: what needs no state, of all chunks at once. With M_ij =
// e^(γ_i - γ_j) for i >= j, the keys K and queries Q with their factors, and the strict lower part L of
// K K^T ∘ M:
//   X = (1 + L diag(β))^-1,   r = X V - X diag(e^γ) K S,   O = diag(e^γ) Q S + (Q K^T ∘ M) diag(β) r,
// and S becomes e^γ_C S + (diag(β e^(γ_C - γ)) K)^T r. The gradient of V is
//   X^T diag(β) (K Q^T ∘ M^T) dO + X^T diag(β e^(γ_C - γ)) K dS.
// So w = X diag(e^γ) K, u = X V, and w_back and u_back are the factors of the gradient.
//entry: delta_chunks_solve = solve(DeltaRule, DeltaChunks)
//entry: delta_chunks_solve_back = solve_back(DeltaRule, DeltaChunks, In)
#include "delta_chunks.cuh"

constexpr int kThreads = 128, kRow = kTokens + 4;
extern __shared__ __align__(16) unsigned char memory[];

struct Area {
  T k[kTokens][kKeyPitch], q[kTokens][kKeyPitch];  // q: later columns of v and dO
  f32 x[kTokens][kRow];                            // L diag(β), then X
  f32 g[kTokens], facts[kFacts][kTokens];
};
struct BackArea : Area {
  T pairs[kTokens][kPitch];
};

// What kernels/delta_rule_chunks.cpp asks for.
static_assert(sizeof(Area) == 21504 + kKeys * 256, "");
static_assert(sizeof(BackArea) == sizeof(Area) + 9216, "");

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
// Columns of all rows: has this thread seen only finite numbers?
template <int kTo>
__device__ inline bool rows_are_finite(const T (*rows)[kTo], int columns) {
  f32 sum = 0;
  for (int i = threadIdx.x * 8; i < kTokens * columns; i += kThreads * 8) {
    const Vec<T, 8> part = load<T, 8>(&rows[i / columns][i % columns]);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum = fmaf((f32)widen(part.v[e]), 0.f, sum);
  }
  return sum == 0.f;  // else it is NaN
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
      for (int e = 0; e < each; ++e)
        sum[e] = fmaf(left, x[right_row + m][right_column + column + e], sum[e]);
    }
#pragma unroll
    for (int e = 0; e < each; ++e) x[to_row + row][to_column + column + e] = sign * sum[e];
  };
  __syncthreads();
  product(first, second, second, first, first, first, 1.f);
  __syncthreads();
  product(second, first, second, second, first, second, -1.f);
  if constexpr (kSize < 32) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < each; ++e) x[first + row][second + column + e] = 0.f;
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

// The 16 x 16 block of X, or of X^T, at (row, k) as a left operand, with factors of the columns.
template <bool kTransposed>
__device__ inline void load_inverse(u32 (&a)[4], const f32 (&x)[kTokens][kRow], int row, int k,
                                    const f32* factors) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = row + lane / 4 + i % 2 * 8, c = k + lane % 4 * 2 + i / 2 * 8;
    f32 pair[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool there = kTransposed ? c + e >= r : c + e <= r;
      const f32 value = kTransposed ? x[c + e][r] : x[r][c + e];
      pair[e] = there ? value * (factors ? factors[c + e] : 1.f) : 0.f;
    }
    a[i] = narrow_pair(pair[0], pair[1], T{});
  }
}
// to [64, columns] = a right; a: 16 rows of 64 terms for each warp.
template <int kTo>
__device__ inline void give_product(const u32 (&a)[4][4], const T (*right)[kTo], T* to, i64 stride,
                                    int columns) {
  const int own = threadIdx.x / 32 * 16;
#pragma unroll 1
  for (int first = 0; first < columns; first += 64) {
    f32 acc[8][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_left<false>(acc, a[k], right, first, k * 16);
    for_pairs<8>([&](int j, int i, int row, int c) {
      put_pair(to + (own + row) * stride + first + c, acc[j][i], acc[j][i + 1]);
    });
  }
}

// to [64, V] = a times the chunk's rows of v or dO; returns whether all that this thread saw is finite.
__device__ inline bool give_values(const DeltaRule& s, const ChunkPlace& place, Area& a,
                                   const u32 (&left)[4][4], const void* from, void* to) {
  const i64 stride = (i64)s.heads * s.each * s.values;
  const T* const rows = static_cast<const T*>(from) + place.row(s) * s.values;
  T* const own = static_cast<T*>(to) + place.index(s) * kTokens * s.values;
  bool fine = true;
  for (int first = 0; first < s.values; first += kKeys) {
    const int columns = min(kKeys, s.values - first);
    __syncthreads();
    for (int c = 0; c < columns; c += 64)
      fetch_rows<kThreads, 64>(rows + first + c, stride, place.count,
                               reinterpret_cast<T(*)[kKeyPitch]>(&a.q[0][c]));
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    fine = rows_are_finite(a.q, columns) && fine;
    give_product(left, a.q, own + first, s.values, columns);
  }
  return fine;
}

template <bool kBack>
__device__ inline void solve_chunk(const DeltaRule& s, const DeltaChunks& to, const void* dout) {
  Area& a = *reinterpret_cast<Area*>(memory);
  const int heads = s.heads * s.each;
  const i64 all = (s.tokens + kTokens - 1) / kTokens, outer = blockIdx.x / heads;
  const ChunkPlace place(s, outer / all, outer % all, (int)(blockIdx.x % heads));
  const int own = threadIdx.x / 32 * 16;
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
    odd = odd || ((of_key || kBack) && !is_finite(squares));
    a.facts[of_key ? kKey : kQuery][t] = s.unit ? 1.f / sqrtf(squares + 1e-6f) : 1.f;
    if (of_key) {
      f32 sum = 0, end = 0;
      for (int i = 0; i < kTokens; ++i) {
        end += a.g[i];
        if (i == t) sum = end;
      }
      a.facts[kGamma][t] = sum;
      a.facts[kLate][t] = expf(end - sum);
    }
  }
  __syncthreads();
  if (threadIdx.x < kTokens) {
    const int t = threadIdx.x;
    const f32 grown = expf(a.facts[kGamma][t]), key = a.facts[kKey][t];
    a.facts[kOut][t] = s.scale * a.facts[kQuery][t] * grown;
    a.facts[kLate][t] *= a.facts[kBeta][t] * key;
    a.facts[kIn][t] = key * grown;
  }
  // e^(γ_i - γ_j) with the factor of key j; 0 above the diagonal.
  const auto decay = [&](int i, int j) {
    return i >= j ? a.facts[kKey][j] * a.facts[kBeta][j] *
                        expf(a.facts[kGamma][i] - a.facts[kGamma][j])
                  : 0.f;
  };
  {
    f32 acc[8][4] = {};
    multiply<kKeys, true, true>(acc, a.k, own, a.k, 0);
    for_elements<8>([&](int j, int i, int r, int c) {
      const int row = own + r;
      a.x[row][c] = row > c ? a.facts[kKey][row] * decay(row, c) * acc[j][i] : 0.f;
    });
  }
  {
    f32 acc[8][4] = {};
    multiply<kKeys, true, true>(acc, a.q, own, a.k, 0);
    T* const pairs = kBack ? &reinterpret_cast<BackArea*>(memory)->pairs[0][0]
                           : static_cast<T*>(to.pairs) + place.index(s) * kTokens * kTokens;
    for_pairs<8>([&](int j, int i, int r, int c) {
      const int row = own + r;
      const f32 query = s.scale * a.facts[kQuery][row];
      put_pair(pairs + row * (kBack ? kPitch : kTokens) + c, query * decay(row, c) * acc[j][i],
               query * decay(row, c + 1) * acc[j][i + 1]);
    });
  }
  __syncwarp();
  invert(a.x);

  u32 left[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) load_inverse<false>(left[k], a.x, own, k * 16, a.facts[kIn]);
  give_product(left, a.k, static_cast<T*>(to.w) + place.index(s) * kTokens * kKeys, kKeys, kKeys);
#pragma unroll
  for (int k = 0; k < 4; ++k) load_inverse<false>(left[k], a.x, own, k * 16, nullptr);
  odd = !give_values(s, place, a, left, s.v, to.u) || odd;
  if constexpr (kBack) {
    const auto& pairs = reinterpret_cast<BackArea*>(memory)->pairs;
    f32 acc[8][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      load_inverse<true>(left[k], a.x, own, k * 16, nullptr);
      multiply_left<true>(acc, left[k], pairs, 0, k * 16);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) load_inverse<true>(left[k], a.x, own, k * 16, a.facts[kLate]);
    give_product(left, a.k, static_cast<T*>(to.w_back) + place.index(s) * kTokens * kKeys, kKeys,
                 kKeys);
#pragma unroll
    for (int k = 0; k < 4; ++k) as_left(left[k], acc, k);
    odd = !give_values(s, place, a, left, dout, to.u_back) || odd;
  }
  f32* const facts = to.facts + place.index(s) * kFacts * kTokens;
  for (int i = threadIdx.x; i < kFacts * kTokens; i += kThreads) facts[i] = (&a.facts[0][0])[i];
  odd = __syncthreads_or(odd) != 0;
  if (threadIdx.x == 0) to.odd[place.index(s)] = odd;
}

#endif

extern "C" __global__ void __launch_bounds__(kThreads)
    solve(const DeltaRule s, const DeltaChunks to) {
#if __CUDA_ARCH__ >= 800
  solve_chunk<false>(s, to, nullptr);
#endif
}
extern "C" __global__ void __launch_bounds__(kThreads)
    solve_back(const DeltaRule s, const DeltaChunks to, const T* dout) {
#if __CUDA_ARCH__ >= 800
  solve_chunk<true>(s, to, dout);
#endif
}
