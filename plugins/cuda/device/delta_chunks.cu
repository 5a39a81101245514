//variant: TYPE=bf16 KEYS=128
//variant: TYPE=bf16 KEYS=64
// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule in chunks of 64 tokens, by products on tensor cores (from sm_80 on). With γ, the
// sum of g in a chunk, and M_ij = e^(γ_i - γ_j) for i >= j:
//   X = (1 + the strict lower part of diag(β) (K K^T ∘ M))^-1
//   E = X diag(β) V - X diag(β e^γ) K S,   O = scale (diag(e^γ) Q S + (Q K^T ∘ M) E)
// and S becomes e^γ_64 S + (diag(e^(γ_64 - γ)) K)^T E. solve() does what needs no S, of all chunks.
//entry: delta_chunks_solve = solve(DeltaRule, DeltaChunks)
//entry: delta_chunks_walk = walk(DeltaRule, DeltaChunks, Out, f32*)
#include "delta_rule.args.cuh"
#include "rows.cuh"
#include "tile.cuh"

typedef TYPE T;
constexpr int kKeys = KEYS, kTokens = 64, kColumns = 64, kThreads = 128;
constexpr int kKeyPitch = kKeys + 8, kPitch = kTokens + 8;
extern __shared__ __align__(16) unsigned char memory[];

struct SolveArea {
  T k[kTokens][kKeyPitch];
  union {
    struct {
      f32 lower[kTokens][kTokens + 1], inverse[kTokens][kTokens + 1];
    };
    T v[kTokens][kColumns + 8];
  };
  T for_v[kTokens][kPitch], for_k[kTokens][kPitch];  // X with the factors of its columns
  f32 g[kTokens], gamma[kTokens], beta[kTokens], key[kTokens];
};
struct WalkArea {
  T q[kTokens][kKeyPitch], k[kTokens][kKeyPitch], w[kTokens][kKeyPitch];
  T state[kKeys][kColumns + 8];
  T e[kTokens][kColumns + 8], late[kTokens][kColumns + 8];  // late: E with the factors of S
  f32 gamma[kTokens], key[kTokens], query[kTokens];
};

// What kernels/delta_rule.cpp asks for.
static_assert(sizeof(SolveArea) == 53760 + kKeys * 128, "");
static_assert(sizeof(WalkArea) == 22272 + kKeys * 528, "");

#if __CUDA_ARCH__ >= 800

// kTokens rows of `width` elements, `stride` apart; zeros from row `count` on.
template <int kWidth, int kTo>
__device__ inline void read_rows(const T* from, i64 stride, int count, T (*to)[kTo]) {
  constexpr int each = kWidth / 8;
  for (int i = threadIdx.x; i < kTokens * each; i += kThreads) {
    const int t = i / each, c = i % each * 8;
    store(&to[t][c], t < count ? load<T, 8>(from + t * stride + c) : Vec<T, 8>{});
  }
}
// 16 rows of a product with 64 columns: acc += left right, over kDepth terms.
template <int kDepth, bool kLeftByK, bool kRightByK, int kLeft, int kRight>
__device__ inline void multiply(f32 (&acc)[8][4], const T (*left)[kLeft], int row,
                                const T (*right)[kRight]) {
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    u32 a[4];
    load_left<kLeftByK>(a, &left[0][0], kLeft, row, k);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      u32 b[4];
      load_right<kRightByK>(b, &right[0][0], kRight, j * 8, k);
      multiply_add(acc[j], a, b[0], b[1], T{});
      multiply_add(acc[j + 1], a, b[2], b[3], T{});
    }
  }
}
// f(which of acc's pairs, its row, its first column).
template <class F>
__device__ inline void for_pairs(int row, F&& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      f(j, half * 2, row + lane / 4 + half * 8, j * 8 + lane % 4 * 2);
}
__device__ inline void put_pair(T* to, f32 low, f32 high) {
  *reinterpret_cast<u32*>(to) = narrow_pair(low, high, T{});
}
__device__ inline bool is_finite(f32 x) { return fabsf(x) <= 3.402823466e38f; }
// Are all numbers of the rows that read_rows read finite?
template <int kWidth, int kTo>
__device__ inline bool rows_are_finite(const T (*rows)[kTo]) {
  bool fine = true;
  for (int i = threadIdx.x; i < kTokens * kWidth; i += kThreads)
    fine = fine && is_finite((f32)widen(rows[i / kWidth][i % kWidth]));
  return fine;
}
__device__ inline f32 inverse_length(f32 squares) { return 1.f / sqrtf(squares + 1e-6f); }

#endif

// Chunk `chunk` of a value head of a sequence.
struct ChunkPlace {
  i64 sequence, chunk, chunks;
  int head, count;  // count: tokens

  __device__ ChunkPlace(const DeltaRule& s, i64 sequence, i64 chunk, int head)
      : sequence(sequence), chunk(chunk), chunks((s.tokens + kTokens - 1) / kTokens), head(head) {
    count = (int)min((i64)kTokens, s.tokens - chunk * kTokens);
  }
  __device__ i64 row(const DeltaRule& s) const {  // of [B, T, HV]
    return (sequence * s.tokens + chunk * kTokens) * s.heads * s.each + head;
  }
  __device__ i64 key_row(const DeltaRule& s) const {  // of [B, T, H]
    return (sequence * s.tokens + chunk * kTokens) * s.heads + head / s.each;
  }
  __device__ i64 index(const DeltaRule& s) const {
    return (sequence * chunks + chunk) * s.heads * s.each + head;
  }
};

extern "C" __global__ void __launch_bounds__(kThreads)
    solve(const DeltaRule s, const DeltaChunks to) {
#if __CUDA_ARCH__ >= 800
  SolveArea& a = *reinterpret_cast<SolveArea*>(memory);
  const int heads = s.heads * s.each;
  const i64 all = (s.tokens + kTokens - 1) / kTokens, outer = blockIdx.x / heads;
  const ChunkPlace place(s, outer / all, outer % all, (int)(blockIdx.x % heads));
  const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16;
  const i64 key_stride = (i64)s.heads * s.keys, value_stride = (i64)heads * s.values;
  const T* const keys = static_cast<const T*>(s.k) + place.key_row(s) * s.keys;
  const T* const queries = static_cast<const T*>(s.q) + place.key_row(s) * s.keys;
  f32* const facts = to.facts + place.index(s) * 3 * kTokens;
  bool odd = false;

  read_rows<kKeys>(keys, key_stride, place.count, a.k);
  if (threadIdx.x < kTokens) {
    const int t = threadIdx.x;
    const i64 row = place.row(s) + (i64)t * heads;
    // Sums of g keep their last bits: e^-128 is 0 as well.
    const f32 g = t < place.count ? s.g[row] : 0.f;
    a.g[t] = g < -128.f ? -128.f : g;
    a.beta[t] = t < place.count ? (f32)widen(static_cast<const T*>(s.beta)[row]) : 0.f;
    odd = !(g <= 0.f) || !is_finite(a.beta[t]);
  }
  __syncthreads();
  odd = odd || !rows_are_finite<kKeys>(a.k);
  if (threadIdx.x < kTokens) {
    f32 sum = 0;
    for (int t = 0; t <= (int)threadIdx.x; ++t) sum += a.g[t];
    a.gamma[threadIdx.x] = facts[threadIdx.x] = sum;
  }
  for (int t = own; t < own + 16; ++t) {
    f32 key = 1.f, query = s.scale;
    if (s.unit) {
      f32 of_k = 0, of_q = 0;
      for (int n = lane; n < kKeys; n += 32) {
        const f32 x = (f32)widen(a.k[t][n]);
        const f32 y = t < place.count ? (f32)widen(queries[t * key_stride + n]) : 0.f;
        of_k = fmaf(x, x, of_k), of_q = fmaf(y, y, of_q);
      }
      key *= inverse_length(sum_warp<32>(of_k)), query *= inverse_length(sum_warp<32>(of_q));
    }
    if (lane == 0) {
      a.key[t] = facts[kTokens + t] = key;
      facts[2 * kTokens + t] = query;
    }
  }
  __syncthreads();
  {
    f32 acc[8][4] = {};
    multiply<kKeys, true, true>(acc, a.k, own, a.k);
    for_pairs(own, [&](int j, int at, int row, int column) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int c = column + e;
        a.lower[row][c] = row > c ? a.beta[row] * a.key[row] * a.key[c] * acc[j][at + e] *
                                        expf(a.gamma[row] - a.gamma[c])
                                  : 0.f;
      }
    });
  }
  __syncthreads();
  if (threadIdx.x < kTokens) {
    const int c = threadIdx.x;
    for (int i = 0; i < kTokens; ++i) {
      f32 sums[4] = {};
      // Rows above c are zeros; four terms at a time, and `lower` ends at the diagonal.
      for (int m = c / 4 * 4; m < i; m += 4)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (m + e < i) sums[e] = fmaf(a.lower[i][m + e], a.inverse[m + e][c], sums[e]);
      a.inverse[i][c] = i < c ? 0.f : i == c ? 1.f : -((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTokens * kTokens / 2; i += kThreads) {
    const int row = i / (kTokens / 2), c = i % (kTokens / 2) * 2;
    f32 x[2], y[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      x[e] = a.inverse[row][c + e] * a.beta[c + e];
      y[e] = row >= c + e ? x[e] * a.key[c + e] * expf(a.gamma[c + e]) : 0.f;
    }
    put_pair(&a.for_v[row][c], x[0], x[1]), put_pair(&a.for_k[row][c], y[0], y[1]);
  }
  __syncthreads();
  T* const w = static_cast<T*>(to.w) + place.index(s) * kTokens * kKeys;
#pragma unroll 1
  for (int first = 0; first < kKeys; first += 64) {
    f32 acc[8][4] = {};
    multiply<kTokens, true, false>(acc, a.for_k, own,
                                   reinterpret_cast<const T(*)[kKeyPitch]>(&a.k[0][first]));
    for_pairs(own, [&](int j, int at, int row, int column) {
      put_pair(w + row * kKeys + first + column, acc[j][at], acc[j][at + 1]);
    });
  }
  T* const u = static_cast<T*>(to.u) + place.index(s) * kTokens * s.values;
  const T* const values = static_cast<const T*>(s.v) + place.row(s) * s.values;
#pragma unroll 1
  for (int first = 0; first < s.values; first += kColumns) {
    __syncthreads();
    read_rows<kColumns>(values + first, value_stride, place.count, a.v);
    __syncthreads();
    odd = odd || !rows_are_finite<kColumns>(a.v);
    f32 acc[8][4] = {};
    multiply<kTokens, true, false>(acc, a.for_v, own, a.v);
    for_pairs(own, [&](int j, int at, int row, int column) {
      put_pair(u + (i64)row * s.values + first + column, acc[j][at], acc[j][at + 1]);
    });
  }
  odd = __syncthreads_or(odd) != 0;
  if (threadIdx.x == 0) to.odd[place.index(s)] = odd;
#endif
}

// A block takes kColumns columns of the state of a value head through all chunks.
extern "C" __global__ void __launch_bounds__(kThreads, 2)
    walk(const DeltaRule s, const DeltaChunks from, T* o, f32* last) {
#if __CUDA_ARCH__ >= 800
  constexpr int kParts = kKeys / 64;  // 16 rows of the state each, of a warp
  WalkArea& a = *reinterpret_cast<WalkArea*>(memory);
  const int heads = s.heads * s.each, column = (int)(blockIdx.x % s.tiles) * kColumns;
  const i64 outer = blockIdx.x / s.tiles, sequence = outer / heads;
  const int head = (int)(outer % heads);
  if (is_odd(s, from.odd, sequence, head)) return;  // delta_rule.cu takes it
  const int own = threadIdx.x / 32 * 16;
  const i64 key_stride = (i64)s.heads * s.keys, chunks = (s.tokens + kTokens - 1) / kTokens;
  const i64 state_at = outer * s.keys * (i64)s.values + column;
  f32 state[kParts][8][4] = {};
#pragma unroll
  for (int part = 0; part < kParts; ++part)
    if (s.state)
      for_pairs(part * 64 + own, [&](int j, int at, int row, int c) {
        const f32* const p = s.state + state_at + row * (i64)s.values + c;
        state[part][j][at] = p[0], state[part][j][at + 1] = p[1];
      });

  for (i64 chunk = 0; chunk < chunks; ++chunk) {
    const ChunkPlace place(s, sequence, chunk, head);
    __syncthreads();  // the chunk before was read
    read_rows<kKeys>(static_cast<const T*>(s.q) + place.key_row(s) * s.keys, key_stride,
                     place.count, a.q);
    read_rows<kKeys>(static_cast<const T*>(s.k) + place.key_row(s) * s.keys, key_stride,
                     place.count, a.k);
    read_rows<kKeys>(static_cast<const T*>(from.w) + place.index(s) * kTokens * kKeys, kKeys,
                     kTokens, a.w);
    if (threadIdx.x < kTokens) {
      const f32* const facts = from.facts + place.index(s) * 3 * kTokens + threadIdx.x;
      a.gamma[threadIdx.x] = facts[0], a.key[threadIdx.x] = facts[kTokens];
      a.query[threadIdx.x] = facts[2 * kTokens];
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      for_pairs(part * 64 + own, [&](int j, int at, int row, int c) {
        put_pair(&a.state[row][c], state[part][j][at], state[part][j][at + 1]);
      });
    __syncthreads();
    const f32 end = a.gamma[kTokens - 1];
    {
      f32 acc[8][4] = {};
      multiply<kKeys, true, false>(acc, a.w, own, a.state);
      const T* const u =
          static_cast<const T*>(from.u) + place.index(s) * kTokens * s.values + column;
      for_pairs(own, [&](int j, int at, int row, int c) {
        const u32 word = *reinterpret_cast<const u32*>(u + (i64)row * s.values + c);
        const f32 low = widen_half(word, 0, T{}) - acc[j][at];
        const f32 high = widen_half(word, 1, T{}) - acc[j][at + 1];
        const f32 late = a.key[row] * expf(end - a.gamma[row]);
        put_pair(&a.e[row][c], low, high), put_pair(&a.late[row][c], low * late, high * late);
      });
    }
    f32 out[8][4] = {}, pairs[8][4] = {};
    multiply<kKeys, true, false>(out, a.q, own, a.state);
    multiply<kKeys, true, true>(pairs, a.q, own, a.k);
    for_pairs(own, [&](int j, int at, int row, int c) {
      const f32 query = a.query[row], gamma = a.gamma[row], factor = query * expf(gamma);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        out[j][at + e] *= factor;
        pairs[j][at + e] =
            row >= c + e ? pairs[j][at + e] * query * a.key[c + e] * expf(gamma - a.gamma[c + e])
                         : 0.f;
      }
    });
    __syncthreads();  // e and late are there
#pragma unroll
    for (int k = 0; k < kTokens / 16; ++k) {
      // What a lane holds of two blocks of a result is what it holds of a left operand.
      u32 left[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        left[i] =
            narrow_pair(pairs[2 * k + i / 2][i % 2 * 2], pairs[2 * k + i / 2][i % 2 * 2 + 1], T{});
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        u32 b[4];
        load_right<false>(b, &a.e[0][0], kColumns + 8, j * 8, k * 16);
        multiply_add(out[j], left, b[0], b[1], T{});
        multiply_add(out[j + 1], left, b[2], b[3], T{});
      }
    }
    T* const to = o + place.row(s) * s.values + column;
    for_pairs(own, [&](int j, int at, int row, int c) {
      if (row < place.count)
        put_pair(to + (i64)row * heads * s.values + c, out[j][at], out[j][at + 1]);
    });
    const f32 decay = expf(end);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) state[part][j][i] *= decay;
      multiply<kTokens, false, false>(state[part], a.k, part * 64 + own, a.late);
    }
  }
#pragma unroll
  for (int part = 0; part < kParts; ++part)
    if (last)
      for_pairs(part * 64 + own, [&](int j, int at, int row, int c) {
        f32* const p = last + state_at + row * (i64)s.values + c;
        p[0] = state[part][j][at], p[1] = state[part][j][at + 1];
      });
#endif
}
