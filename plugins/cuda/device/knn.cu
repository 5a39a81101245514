//variant: TYPE=f32 INNER=0
//variant: TYPE=bf16 INNER=1
// SPDX-License-Identifier: Apache-2.0
// knn by the distances themselves: all of them, or those of rows that knn_near.cu is unsure of.
//entry: knn_prepare = prepare(In, f32*, f32*, i64, i32, bool)
//entry: knn_scan = scan(Knn, i32*, f32*)
//entry: knn_scan_unsure = scan_unsure(Knn, i32*, f32*)
//entry: knn_join = join(Knn, i32*, f32*)
#include "knn.cuh"

typedef TYPE T;

// A warp for each point: as floats, of length 1 where `unit`, and Σx² of them.
extern "C" __global__ void __launch_bounds__(128)
    prepare(const T* from, f32* to, f32* norm, i64 points, i32 coords, bool unit) {
  const i64 point = (i64)blockIdx.x * 4 + threadIdx.x / 32;
  if (point >= points) return;
  const int lane = threadIdx.x % 32;
  const T* const own = from + point * coords;
  f32 largest = 1, length = 1;
  if (unit) {
    // Divided by its largest element first, a vector neither overflows nor vanishes.
    f32 most = 0;
    bool zero = true;
    for (int i = lane; i < coords; i += 32) {
      const f32 v = (f32)widen(own[i]);
      most = fmaxf(most, fabsf(v)), zero = zero && v == 0.f;
    }
    most = choose_warp<32>(most, [](f32 a, f32 b) { return fmaxf(a, b); });
    if (!__any_sync(~0u, !zero)) {
      for (int i = lane; i < coords; i += 32) to[point * coords + i] = 0.f;
      if (lane == 0) norm[point] = 0.f;
      return;
    }
    largest = most;
    f32 squares = 0;
    for (int i = lane; i < coords; i += 32) {
      const f32 v = (f32)widen(own[i]) / largest;
      squares = fmaf(v, v, squares);
    }
    length = sqrtf(sum_warp<32>(squares));
  }
  f32 squares = 0;
  for (int i = lane; i < coords; i += 32) {
    f32 v = (f32)widen(own[i]);
    if (unit) v = v / largest / length;
    if (to) to[point * coords + i] = v;
    squares = fmaf(v, v, squares);
  }
  squares = sum_warp<32>(squares);
  if (lane == 0 && norm) norm[point] = squares;
}

constexpr int kRows = 16, kOthers = 128, kCoords = 32, kOwn = kRows / 4;  // kOwn: rows of a warp

// A block for kRows points, of one batch where they are not listed, and a part of the candidates.
template <bool kListed>
__device__ inline void walk(const Knn& s, i32* index, f32* distance) {
  __shared__ f32 xs[kCoords][kRows];
  __shared__ f32 ys[kCoords][kOthers + 1];
  __shared__ u64 found[kRows][kOthers], limits[kRows];
  __shared__ int counts[kRows];
  __shared__ i64 rows[kRows];  // of all batches, or -1
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 tiles = (s.rows + kRows - 1) / kRows;
  const i64 tile = blockIdx.x / s.parts, part = blockIdx.x % s.parts;
  i64 batch = tile / tiles;
  if (threadIdx.x < kRows) {
    const i64 at = tile % tiles * kRows + threadIdx.x;
    if constexpr (kListed)
      rows[threadIdx.x] = (i64)blockIdx.x * kRows + threadIdx.x < s.unsure[0]
                              ? (i64)s.unsure[1 + (i64)blockIdx.x * kRows + threadIdx.x]
                              : -1;
    else
      rows[threadIdx.x] = at < s.rows ? batch * s.rows + at : -1;
    counts[threadIdx.x] = 0, limits[threadIdx.x] = kNone;
  }
  __syncthreads();
  if (rows[0] < 0) return;
  u64 lists[kOwn];
#pragma unroll
  for (int r = 0; r < kOwn; ++r) lists[r] = kNone;
  const i64 size = ((s.others + s.parts - 1) / s.parts + kOthers - 1) / kOthers * kOthers;
  const i64 end = min(s.others, (part + 1) * size);

  for (i64 first = part * size; first < end; first += kOthers) {
    f32 sums[kRows] = {};
    for (int begin = 0; begin < s.coords; begin += kCoords) {
      const int width = min(kCoords, s.coords - begin);
      __syncthreads();
      for (int i = threadIdx.x; i < kRows * kCoords; i += 128) {
        const int r = i / kCoords, c = i % kCoords;
        xs[c][r] = rows[r] >= 0 && c < width ? s.x[rows[r] * s.coords + begin + c] : 0.f;
      }
      for (int i = threadIdx.x; i < kOthers * kCoords; i += 128) {
        const int j = i / kCoords, c = i % kCoords;
        ys[c][j] = first + j < end && c < width
                       ? s.y[(batch * s.others + first + j) * s.coords + begin + c]
                       : 0.f;
      }
      __syncthreads();
      for (int c = 0; c < width; ++c) {
        const f32 y = ys[c][threadIdx.x];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#if INNER
          sums[r] = fmaf(xs[c][r], y, sums[r]);
#else
          const f32 d = xs[c][r] - y;
          sums[r] = fmaf(d, d, sums[r]);
#endif
        }
      }
    }
    const i64 j = first + threadIdx.x;
    if (j < end) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const i64 row = rows[r], i = row - batch * s.rows;
        if (row < 0 || (s.excluded && i == j)) continue;
        const u64 entry = entry_of(compared(s, batch, i, j, sums[r]), (u32)j);
        if (entry < limits[r]) found[r][atomicAdd(&counts[r], 1)] = entry;
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const int row = warp * kOwn + r, count = counts[row];
      for (int at = 0; at < count; at += 32)
        lists[r] = take_entries(lists[r], at + lane < count ? found[row][at + lane] : kNone);
      __syncwarp();
      if (lane == s.k - 1) limits[row] = lists[r], counts[row] = 0;
    }
    // The next tile begins with a barrier.
  }
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const i64 row = rows[warp * kOwn + r];
    if (row < 0) continue;
    if (s.parts == 1)
      give(s, row, lists[r], index, distance);
    else
      s.lists[(row * s.parts + part) * 32 + lane] = lists[r];
  }
}
extern "C" __global__ void __launch_bounds__(128) scan(const Knn s, i32* index, f32* distance) {
  walk<false>(s, index, distance);
}
// Of one batch, with one part.
extern "C" __global__ void __launch_bounds__(128)
    scan_unsure(const Knn s, i32* index, f32* distance) {
  walk<true>(s, index, distance);
}

// A warp for each point: the lists of the parts become one.
extern "C" __global__ void __launch_bounds__(128) join(const Knn s, i32* index, f32* distance) {
  const i64 row = (i64)blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= s.batch * s.rows) return;
  u64 list = kNone;
  for (int p = 0; p < s.parts; ++p)
    list = take_entries(list, s.lists[(row * s.parts + p) * 32 + threadIdx.x % 32]);
  give(s, row, list, index, distance);
}
