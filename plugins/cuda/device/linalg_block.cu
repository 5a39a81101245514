//variant: TYPE=f32 AREA=0
//variant: TYPE=f64 AREA=0
//variant: TYPE=f32 AREA=1
// SPDX-License-Identifier: Apache-2.0
// A block for each matrix, which lies in shared memory, or with AREA in a work area of the block: block: LU
// with partial pivoting and solutions, beside its right sides; cholesky. triangle: a warp for each column of
// right sides.
//entry: linalg_block = block(In, In, Out, Out, i32*, Out, Solve)
//entry: linalg_cholesky = cholesky(In, Out, Out, Solve)
//entry: linalg_triangle = triangle(In, In, Out, TriangleSolve)
#include "common.cuh"
#include "linalg.args.cuh"
#include "rows.cuh"

typedef TYPE T;
constexpr int kThreads = 256, kSide = 16, kWarps = 4;
extern __shared__ __align__(16) unsigned char memory[];

// Where the matrix of this block lies.
__device__ inline T* tile_of(unsigned char* area, const Solve& s) {
#if AREA
  return reinterpret_cast<T*>(area + blockIdx.x * s.area);
#else
  return reinterpret_cast<T*>(memory);
#endif
}

__device__ inline T size_of(T x) { return x == x ? (x < T(0) ? -x : x) : T(-1); }

struct Candidate {
  T size;
  int row;
};
// The row of the pivot of column k: the largest, the first one of equals.
__device__ inline int pivot_row(const T* tile, int k, int n, int row) {
  __shared__ int found;
  if (threadIdx.x < 32) {
    Candidate best{T(-2), n};
    for (int i = k + threadIdx.x; i < n; i += 32) {
      const T size = size_of(tile[i * row + k]);
      if (size > best.size) best = {size, i};
    }
    best = choose_warp<32>(best, [](const Candidate& a, const Candidate& b) {
      return b.size > a.size || (b.size == a.size && b.row < a.row) ? b : a;
    });
    if (threadIdx.x == 0) found = best.row;
  }
  __syncthreads();
  return found;
}

__device__ inline void solve_one(i64 matrix, const T* a, const T* b, T* x, T* lu, i32* perm, T* tile,
                                 const Solve& s) {
  const int n = s.n, columns = (int)s.columns, row = (n + columns) | 1;
  i32* const order = reinterpret_cast<i32*>(tile + n * row);
  const int tid = threadIdx.x, tx = tid % kSide, ty = tid / kSide;
  for (int i = tid; i < n * n; i += kThreads) tile[i / n * row + i % n] = a[matrix * n * n + i];
  for (int i = tid; i < n * columns; i += kThreads)
    tile[i / columns * row + n + i % columns] = b[matrix * n * columns + i];
  for (int i = tid; i < n; i += kThreads) order[i] = i;
  __syncthreads();

  bool regular = true;
  for (int k = 0; k < n; ++k) {
    const int best = pivot_row(tile, k, n, row);
    if (best != k) {
      for (int j = tid; j < n + columns; j += kThreads) {
        const T upper = tile[k * row + j];
        tile[k * row + j] = tile[best * row + j];
        tile[best * row + j] = upper;
      }
      if (tid == 0) {
        const i32 first = order[k];
        order[k] = order[best];
        order[best] = first;
      }
    }
    __syncthreads();
    const T pivot = tile[k * row + k];
    regular = regular && pivot != T(0) && isfinite(pivot);
    if (pivot == T(0)) continue;  // all threads do
    for (int i = k + 1 + tid; i < n; i += kThreads) tile[i * row + k] /= pivot;
    __syncthreads();
    for (int i = k + 1 + ty; i < n; i += kSide) {
      const T factor = tile[i * row + k];
      for (int j = k + 1 + tx; j < n + columns; j += kSide)
        tile[i * row + j] -= factor * tile[k * row + j];
    }
    __syncthreads();
  }

  const bool bad = !regular && !s.keeps;
  const T nan = T(0) / T(0);
  if (bad && s.fails && tid == 0) report(s.sink, kNumericError, (u64)matrix);
  if (perm)
    for (int i = tid; i < n; i += kThreads) perm[matrix * n + i] = bad ? i : order[i];
  if (lu)
    for (int i = tid; i < n * n; i += kThreads)
      lu[matrix * n * n + i] = bad ? nan : tile[i / n * row + i % n];
  if (!x) {
    __syncthreads();  // before the next matrix
    return;
  }
  for (int k = n - 1; k >= 0 && !bad; --k) {
    for (int c = tid; c < columns; c += kThreads) tile[k * row + n + c] /= tile[k * row + k];
    __syncthreads();
    for (int i = tid; i < k * columns; i += kThreads) {
      const int above = i / columns, c = n + i % columns;
      tile[above * row + c] -= tile[above * row + k] * tile[k * row + c];
    }
    __syncthreads();
  }
  for (int i = tid; i < n * columns; i += kThreads)
    x[matrix * n * columns + i] = bad ? nan : tile[i / columns * row + n + i % columns];
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(256)
    block(const T* a, const T* b, T* x, T* lu, i32* perm, unsigned char* area, const Solve s) {
  for (i64 matrix = blockIdx.x; matrix < s.matrices; matrix += gridDim.x)
    solve_one(matrix, a, b, x, lu, perm, tile_of(area, s), s);
}

__device__ inline void cholesky_one(i64 matrix, const T* a, T* l, T* tile, const Solve& s) {
  const int n = s.n, row = n | 1;
  const int tid = threadIdx.x, tx = tid % kSide, ty = tid / kSide;
  for (int i = tid; i < n * n; i += kThreads) tile[i / n * row + i % n] = a[matrix * n * n + i];
  __syncthreads();
  bool definite = true;
  for (int k = 0; k < n && definite; ++k) {
    const T pivot = tile[k * row + k];
    definite = pivot > T(0) && isfinite(pivot);
    const T root = sqrt(pivot);
    for (int i = k + 1 + tid; i < n; i += kThreads) tile[i * row + k] /= root;
    __syncthreads();
    if (tid == 0) tile[k * row + k] = root;
    for (int i = k + 1 + ty; i < n; i += kSide)
      for (int j = k + 1 + tx; j <= i; j += kSide)
        tile[i * row + j] -= tile[i * row + k] * tile[j * row + k];
    __syncthreads();
  }
  const T nan = T(0) / T(0);
  if (!definite && s.fails && tid == 0) report(s.sink, kNumericError, (u64)matrix);
  for (int i = tid; i < n * n; i += kThreads) {
    const int line = i / n, column = i % n;
    l[matrix * n * n + i] = !definite ? nan : column <= line ? tile[line * row + column] : T(0);
  }
  __syncthreads();  // before the next matrix
}

extern "C" __global__ void __launch_bounds__(256)
    cholesky(const T* a, T* l, unsigned char* area, const Solve s) {
  for (i64 matrix = blockIdx.x; matrix < s.matrices; matrix += gridDim.x)
    cholesky_one(matrix, a, l, tile_of(area, s), s);
}

extern "C" __global__ void __launch_bounds__(128)
    triangle(const T* a, const T* b, T* x, const TriangleSolve s) {
  const int lane = threadIdx.x % 32, n = s.n;
  const i64 item = (i64)blockIdx.x * kWarps + threadIdx.x / 32;
  if (item >= s.matrices * s.columns) return;
  const i64 matrix = item / s.columns, column = item - matrix * s.columns;
  const T *from = a, *right = b + column;
  i64 rest = matrix;
  for (int d = s.rank - 1; d >= 0; --d) {
    const i64 outer = rest / s.dims[d], at = rest - outer * s.dims[d];
    from += at * s.a_steps[d], right += at * s.b_steps[d];
    rest = outer;
  }
  T* const to = x + matrix * n * s.columns + column;
  // What is known of the column: a copy, where it fits shared memory.
#if AREA
  const i64 known_step = s.columns;
  T* const known = to;
#else
  const i64 known_step = 1;
  T* const known = reinterpret_cast<T*>(memory) + threadIdx.x / 32 * n;
#endif
  for (int step = 0; step < n; ++step) {
    const int i = s.lower ? step : n - 1 - step;
    const int first = s.lower ? 0 : i + 1, end = s.lower ? i : n;
    T sum = T(0);
    for (int j = first + lane; j < end; j += 32)
      sum += from[i * s.row + j * s.column] * known[j * known_step];
    sum = sum_warp<32>(sum);
    if (lane == 0) {
      T v = right[i * s.columns] - sum;
      if (!s.unit) v /= from[i * (s.row + s.column)];
      known[i * known_step] = v;
      if (!AREA) to[i * s.columns] = v;
    }
    __syncwarp();
  }
}
