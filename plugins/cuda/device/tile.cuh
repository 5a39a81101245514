// SPDX-License-Identifier: Apache-2.0
// A tile of a product by one block of 256 threads: fma_tile for any dtype, mma_tile on tensor cores
// for f16 and bf16 (from sm_80 on). Both sum over k in a fixed order. mma_tile adds 16 terms at a time,
// in order, to one sum that begins at zero, whatever TILE is. On sm_90, other kernels with this order give
// the same bits: matmul_few_rows.cu, and kernels of cuBLASLt that do not split the sum.
#pragma once
#include "async.cuh"
#include "common.cuh"

constexpr int kTileThreads = 256;

// ---- Any dtype. get_a(i, k) and get_b(j, k) give elements of the tile, 0 beyond the edges.
// A thread holds rows and columns tile_at(i, y or x) of the tile.
constexpr int kFmaDepth = 16;
__device__ inline int tile_at(int i, int thread) { return (i / 4) * 64 + thread * 4 + i % 4; }

// before(k0): called before elements of k0 and the next kFmaDepth - 1 are asked for.
struct NothingBefore {
  __device__ void operator()(i64) const {}
};
template <class S, int TILE, bool A_BY_K, bool B_BY_K, class GetA, class GetB,
          class Before = NothingBefore>
__device__ __forceinline__ void fma_tile(GetA get_a, GetB get_b, i64 k_len,
                                         S (&acc)[TILE / 16][TILE / 16], Before before = {}) {
  constexpr int P = TILE * kFmaDepth / kTileThreads;
  __shared__ __align__(16) S as[kFmaDepth][TILE + 4];
  __shared__ __align__(16) S bs[kFmaDepth][TILE + 4];
  const int tid = threadIdx.x, tx = tid % 16, ty = tid / 16;
  S ra[P], rb[P];
  const auto fetch = [&](i64 k0) {
    before(k0);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int e = tid + p * kTileThreads;
      ra[p] = A_BY_K ? get_a(e / kFmaDepth, k0 + e % kFmaDepth) : get_a(e % TILE, k0 + e / TILE);
      rb[p] = B_BY_K ? get_b(e / kFmaDepth, k0 + e % kFmaDepth) : get_b(e % TILE, k0 + e / TILE);
    }
  };
  if (k_len > 0) fetch(0);
  for (i64 k0 = 0; k0 < k_len; k0 += kFmaDepth) {
    __syncthreads();
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int e = tid + p * kTileThreads;
      if (A_BY_K)
        as[e % kFmaDepth][e / kFmaDepth] = ra[p];
      else
        as[e / TILE][e % TILE] = ra[p];
      if (B_BY_K)
        bs[e % kFmaDepth][e / kFmaDepth] = rb[p];
      else
        bs[e / TILE][e % TILE] = rb[p];
    }
    __syncthreads();
    if (k0 + kFmaDepth < k_len) fetch(k0 + kFmaDepth);
#pragma unroll
    for (int k = 0; k < kFmaDepth; ++k) {
      S a[TILE / 16], b[TILE / 16];
#pragma unroll
      for (int i = 0; i < TILE / 16; ++i)
        a[i] = as[k][tile_at(i, ty)], b[i] = bs[k][tile_at(i, tx)];
#pragma unroll
      for (int i = 0; i < TILE / 16; ++i)
#pragma unroll
        for (int j = 0; j < TILE / 16; ++j) acc[i][j] += a[i] * b[j];
    }
  }
}

// Two neighbouring terms of a product of bytes, as one element of 16 bits: the tensor cores want the
// same bytes in the same places. L: dtype of the left operand, R: of the right one.
template <class L, class R>
struct BytePairs {
  u16 bits;
};

// ---- Tensor cores
#if __CUDA_ARCH__ >= 800

// Four 8 x 8 matrices of 16-bit elements; each lane gives the address of one of their 32 rows.
template <bool TRANSPOSED>
__device__ inline void load_matrices(u32 (&r)[4], const void* row) {
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// The 16 x 16 block of the left operand at (i, k): `stride` elements from one stored row to the
// next; stored rows are i's when BY_K, else k's.
template <bool BY_K, class T>
__device__ inline void load_left(u32 (&r)[4], const T* tile, int stride, int i, int k) {
  const int lane = threadIdx.x % 32;
  if (BY_K)
    load_matrices<false>(r, tile + (i + lane % 16) * stride + k + lane / 16 * 8);
  else
    load_matrices<true>(r, tile + (k + lane / 16 * 8 + lane % 8) * stride + i + lane / 8 % 2 * 8);
}
// Two 16 x 8 blocks of the right operand at (k, j) and (k, j + 8): r[0..1] and r[2..3].
template <bool BY_K, class T>
__device__ inline void load_right(u32 (&r)[4], const T* tile, int stride, int j, int k) {
  const int lane = threadIdx.x % 32;
  if (BY_K)
    load_matrices<false>(r, tile + (j + lane / 16 * 8 + lane % 8) * stride + k + lane / 8 % 2 * 8);
  else
    load_matrices<true>(r, tile + (k + lane / 8 % 2 * 8 + lane % 8) * stride + j + lane / 16 * 8);
}
// c (16 x 8) += a (16 x 16) b (16 x 8). A lane holds c's rows lane / 4 (c[0..1]) and 8 more
// (c[2..3]), columns 2 * (lane % 4) and the next.
__device__ inline void multiply_add(f32* c, const u32 (&a)[4], u32 b0, u32 b1, f16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply_add(f32* c, const u32 (&a)[4], u32 b0, u32 b1, bf16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same of bytes, 32 terms: sums wrap.
#define BYTE_PRODUCT(L, R, LEFT, RIGHT)                                                            \
  __device__ inline void multiply_add(u32* c, const u32(&a)[4], u32 b0, u32 b1, BytePairs<L, R>) { \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." LEFT "." RIGHT                           \
                 ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                  \
  }
BYTE_PRODUCT(i8, i8, "s8", "s8")
BYTE_PRODUCT(i8, u8, "s8", "u8")
BYTE_PRODUCT(u8, i8, "u8", "s8")
BYTE_PRODUCT(u8, u8, "u8", "u8")
#undef BYTE_PRODUCT

// A matrix in global memory with contiguous rows. order: row r is stored as row order[r].
template <class T>
struct Rows {
  const T* p;
  i64 ld, rows, cols;
  const i32* order;
};

constexpr int kMmaDepth = 32, kMmaStages = 4, kMmaPad = 8;
template <int TILE, bool BY_K>
struct MmaPart {  // of one operand in shared memory
  static constexpr int kRows = BY_K ? TILE : kMmaDepth, kCols = BY_K ? kMmaDepth : TILE;
  static constexpr int kStride = kCols + kMmaPad, kSize = kRows * kStride;
};

// The first `real` of eight elements to shared memory, zeros behind them. VEC: all or none, and the
// addresses are multiples of 16 bytes.
template <bool VEC, class T>
__device__ __forceinline__ void load_eight(T* to, const T* from, i64 real) {
  if (VEC) {
    copy_async(to, from, real > 0);
  } else {
    Vec<T, 8> v;
#pragma unroll
    for (int e = 0; e < 8; ++e) v.v[e] = e < real ? from[e] : T{0};
    store(to, v);
  }
}
// VEC: all addresses are multiples of 16 bytes, and so are the rows' lengths.
template <int TILE, bool BY_K, bool VEC, class T>
__device__ __forceinline__ void load_part(T* part, const Rows<T>& m, i64 i0, i64 k0) {
  using Part = MmaPart<TILE, BY_K>;
  constexpr int kPerRow = Part::kCols / 8;
#pragma unroll
  for (int c = threadIdx.x; c < Part::kRows * kPerRow; c += kTileThreads) {
    const i64 row = (BY_K ? i0 : k0) + c / kPerRow, col = (BY_K ? k0 : i0) + c % kPerRow * 8;
    T* to = part + c / kPerRow * Part::kStride + c % kPerRow * 8;
    const bool valid = row < m.rows && col < m.cols;
    const i64 stored = valid ? (m.order ? (i64)m.order[row] : row) : 0;
    const T* from = m.p + (valid ? stored * m.ld + col : 0);
    load_eight<VEC>(to, from, valid ? m.cols - col : 0);
  }
}

// The same rows from the tile at i0 on, as a thread walks them: addresses are found once, and step
// on with the parts, loaded one after the other. An order is followed where rows are not k's. Lengths
// are below 2^31.
template <int TILE, bool BY_K, class T>
struct Walk {
  using Part = MmaPart<TILE, BY_K>;
  static constexpr int kPerRow = Part::kCols / 8, kPass = kTileThreads / kPerRow;
  static constexpr int kLoads = Part::kRows / kPass;
  const T *base, *at[kLoads];
  i64 step;
  i32 terms, cols;  // from at[0] on
  u32 rows;         // a bit for each load

  __device__ Walk(const Rows<T>& m, i64 i0) {
    const int row = threadIdx.x / kPerRow, col = threadIdx.x % kPerRow * 8;
    base = m.p, rows = 0;
#pragma unroll
    for (int q = 0; q < kLoads; ++q) {
      const i64 r = (BY_K ? i0 : 0) + row + q * kPass;
      const bool real = !BY_K || r < m.rows;
      rows |= (u32)real << q;
      const i64 stored = !real ? 0 : BY_K && m.order ? (i64)m.order[r] : r;
      at[q] = m.p + stored * m.ld + (BY_K ? 0 : i0) + col;
    }
    step = BY_K ? kMmaDepth : kMmaDepth * m.ld;
    cols = (i32)(m.cols - (BY_K ? 0 : i0) - col);
    terms = BY_K ? cols : cols > 0 ? (i32)m.rows - row : 0;
  }
};
template <int TILE, bool BY_K, bool VEC, class T>
__device__ __forceinline__ void load_part(T* part, Walk<TILE, BY_K, T>& m, i64, i64 k0) {
  using W = Walk<TILE, BY_K, T>;
  T* to = part + threadIdx.x / W::kPerRow * W::Part::kStride + threadIdx.x % W::kPerRow * 8;
#pragma unroll
  for (int q = 0; q < W::kLoads; ++q, to += W::kPass * W::Part::kStride) {
    const i32 left = m.terms - (i32)k0 - (BY_K ? 0 : q * W::kPass);
    const bool valid = left > 0 && (m.rows >> q & 1);
    load_eight<VEC>(to, valid ? m.at[q] : m.base, valid ? (BY_K ? left : m.cols) : 0);
    m.at[q] += m.step;
  }
}

// Warps lie 2 x 4 over the tile; a warp's part is TILE / 2 x TILE / 4, acc[i][j] its 16 x 8 blocks.
template <int TILE>
struct MmaAcc {
  static constexpr int kM = TILE / 2, kN = TILE / 4;
  f32 v[kM / 16][kN / 8][4];
  static __device__ int row(int i, int half) {
    return threadIdx.x / 128 * kM + i * 16 + half * 8 + threadIdx.x % 32 / 4;
  }
  static __device__ int col(int j) {
    return threadIdx.x / 32 % 4 * kN + j * 8 + threadIdx.x % 4 * 2;
  }
};

// smem: kMmaStages * (both parts).
template <int TILE, bool A_BY_K, bool B_BY_K, bool VEC, class RowsA, class RowsB, class T>
__device__ __forceinline__ void mma_tile(RowsA& a, i64 i0, RowsB& b, i64 j0, i64 k_len, T* smem,
                                         MmaAcc<TILE>& acc) {
  using A = MmaPart<TILE, A_BY_K>;
  using B = MmaPart<TILE, B_BY_K>;
  constexpr int kM = MmaAcc<TILE>::kM, kN = MmaAcc<TILE>::kN;
  const int warp = threadIdx.x / 32, wm = warp / 4 * kM, wn = warp % 4 * kN;
  const int steps = (int)((k_len + kMmaDepth - 1) / kMmaDepth);
  const auto part = [&](int step) { return smem + step % kMmaStages * (A::kSize + B::kSize); };
  const auto fetch = [&](int step) {
    if (step < steps) {
      load_part<TILE, A_BY_K, VEC>(part(step), a, i0, (i64)step * kMmaDepth);
      load_part<TILE, B_BY_K, VEC>(part(step) + A::kSize, b, j0, (i64)step * kMmaDepth);
    }
    copy_commit();
  };
#pragma unroll
  for (int s = 0; s < kMmaStages - 1; ++s) fetch(s);
  for (int step = 0; step < steps; ++step) {
    copy_wait<kMmaStages - 2>();
    __syncthreads();
    fetch(step + kMmaStages - 1);
    const T *as = part(step), *bs = as + A::kSize;
#pragma unroll
    for (int k = 0; k < kMmaDepth; k += 16) {
      u32 left[kM / 16][4], right[kN / 16][4];
#pragma unroll
      for (int i = 0; i < kM / 16; ++i) load_left<A_BY_K>(left[i], as, A::kStride, wm + i * 16, k);
#pragma unroll
      for (int j = 0; j < kN / 16; ++j)
        load_right<B_BY_K>(right[j], bs, B::kStride, wn + j * 16, k);
#pragma unroll
      for (int i = 0; i < kM / 16; ++i)
#pragma unroll
        for (int j = 0; j < kN / 8; ++j)
          multiply_add(acc.v[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1],
                       T{});
    }
  }
  copy_wait<0>();
}
#endif
