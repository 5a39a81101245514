//variant: VEC=4
//variant: VEC=1
// SPDX-License-Identifier: Apache-2.0
// Candidates of knn by |x|² + |y|² - 2 x·y, less a bound of its error: below the distance. Then the
// distances of the 32 best, and the rows whose k nearest may not be among them. VEC: coordinates of
// an access.
//entry: knn_near = near(Knn)
//entry: knn_choose = choose(Knn, i32*, f32*)
#include "knn.cuh"

constexpr int kTile = 128, kDepth = 16, kPitch = kTile + 4,
              kRoom = 16;  // kRoom: new entries of a row
constexpr int kThreads = 256;
constexpr f32 kLargeNorm = 1e37f, kLargeDistance = 1e38f;

struct Area {
  f32 x[2][kDepth][kPitch], y[2][kDepth][kPitch];
  f32 norm[kTile], limits[kTile];
  int counts[kTile];
  u64 found[kTile][kRoom];
};
static_assert(sizeof(Area) == 51712, "what kernels/knn.cpp asks for");
extern __shared__ __align__(16) unsigned char memory[];

// kDepth coordinates of the points of a tile, on the way to shared memory.
struct Slice {
  static constexpr int kEach = kTile * kDepth / VEC / kThreads;
  Vec<f32, VEC> v[kEach];

  __device__ void read(const f32* points, i64 there, int coords, int begin) {
#pragma unroll
    for (int p = 0; p < kEach; ++p) {
      const int i = p * kThreads + (int)threadIdx.x, c = i % (kDepth / VEC) * VEC;
      const int row = i / (kDepth / VEC);
      if (row < there && begin + c < coords)
        v[p] = load<f32, VEC>(points + (i64)row * coords + begin + c);
      else
        v[p] = Vec<f32, VEC>{};
    }
  }
  __device__ void put(f32 (*to)[kPitch]) const {
#pragma unroll
    for (int p = 0; p < kEach; ++p) {
      const int i = p * kThreads + (int)threadIdx.x, c = i % (kDepth / VEC) * VEC;
#pragma unroll
      for (int e = 0; e < VEC; ++e) to[c + e][i / (kDepth / VEC)] = v[p].v[e];
    }
  }
};

// Element k of 8 of a thread: four, and four more half a tile further on.
__device__ inline int place_of(int thread, int k) {
  return thread * 4 + k % 4 + k / 4 * (kTile / 2);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) near(const Knn s) {
  Area& a = *reinterpret_cast<Area*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int across = threadIdx.x % 16, down = threadIdx.x / 16;
  const i64 tiles = (s.rows + kTile - 1) / kTile;
  const i64 part = blockIdx.x % s.parts, tile = blockIdx.x / s.parts % tiles;
  const i64 batch = blockIdx.x / s.parts / tiles, row = tile * kTile;
  const f32* const x = s.x + (batch * s.rows + row) * s.coords;
  const i64 rows = min((i64)kTile, s.rows - row);
  u64* const lists = s.lists + ((batch * s.rows + row) * s.parts + part) * 32;
  for (int r = warp; r < rows; r += kThreads / 32) lists[(i64)r * s.parts * 32 + lane] = kNone;
  if (blockIdx.x == 0 && threadIdx.x == 0) *s.unsure = 0;
  for (int r = threadIdx.x; r < kTile; r += kThreads) {
    // Rows that are not there take no candidates.
    a.limits[r] = __uint_as_float(r < rows ? 0x7f800000u : 0xff800000u);
    a.counts[r] = 0;
  }
  f32 x_norm[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int r = place_of(down, k);
    x_norm[k] = r < rows ? s.x_norm[batch * s.rows + row + r] : 0.f;
  }
  const f32 less = (4.f * (f32)s.coords + 32.f) * 6e-8f;
  const i64 size = ((s.others + s.parts - 1) / s.parts + kTile - 1) / kTile * kTile;
  const i64 end = min(s.others, (part + 1) * size);

  for (i64 first = part * size; first < end; first += kTile) {
    const f32* const y = s.y + (batch * s.others + first) * s.coords;
    const i64 others = min((i64)kTile, end - first);
    f32 sums[8][8] = {};
    Slice next_x, next_y;
    next_x.read(x, rows, s.coords, 0), next_y.read(y, others, s.coords, 0);
    __syncthreads();  // the tile before was read
    for (int j = threadIdx.x; j < kTile; j += kThreads)
      a.norm[j] = j < others ? s.y_norm[batch * s.others + first + j]
                             : __uint_as_float(0x7f800000u);  // takes it out
    next_x.put(a.x[0]), next_y.put(a.y[0]);
    __syncthreads();
    for (int begin = 0, turn = 0; begin < s.coords; begin += kDepth, turn ^= 1) {
      const bool more = begin + kDepth < s.coords;
      if (more) {
        next_x.read(x, rows, s.coords, begin + kDepth);
        next_y.read(y, others, s.coords, begin + kDepth);
      }
#pragma unroll
      for (int c = 0; c < kDepth; ++c) {
        f32 xs[8], ys[8];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Vec<f32, 4> p = load<f32, 4>(a.x[turn][c] + down * 4 + half * (kTile / 2));
          const Vec<f32, 4> q = load<f32, 4>(a.y[turn][c] + across * 4 + half * (kTile / 2));
#pragma unroll
          for (int e = 0; e < 4; ++e) xs[half * 4 + e] = p.v[e], ys[half * 4 + e] = q.v[e];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
          for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(xs[i], ys[j], sums[i][j]);
      }
      if (more) {
        next_x.put(a.x[turn ^ 1]), next_y.put(a.y[turn ^ 1]);
        __syncthreads();
      }
    }

    // Not finite: never below a limit. Such distances are larger than kLargeDistance.
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const f32 squares = x_norm[i] + a.norm[place_of(across, j)];
        sums[i][j] = squares - less * squares - 2.f * sums[i][j];
      }
    if (s.excluded && row < first + kTile && first < row + kTile) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
          if (row + place_of(down, i) == first + place_of(across, j))
            sums[i][j] = __uint_as_float(0x7f800000u);
    }
    // Lists have little room for new entries: what finds none tries again.
    for (;;) {
      bool left = false;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = place_of(down, i);
        const f32 limit = a.limits[r];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          if (!(sums[i][j] < limit)) continue;
          const int at = atomicAdd(&a.counts[r], 1);
          if (at < kRoom) {
            a.found[r][at] = entry_of(sums[i][j], (u32)(first + place_of(across, j)));
            sums[i][j] = __uint_as_float(0x7f800000u);
          } else {
            left = true;
          }
        }
      }
      const bool again = __syncthreads_or(left) != 0;
      for (int r = warp; r < rows; r += kThreads / 32) {
        const int count = min(a.counts[r], kRoom);
        if (count == 0) continue;
        u64* const list = lists + (i64)r * s.parts * 32;
        const u64 best = take_entries(list[lane], lane < count ? a.found[r][lane] : kNone);
        list[lane] = best;
        if (lane == 31)
          a.limits[r] =
              best == kNone ? __uint_as_float(0x7f800000u) : distance_of((u32)(best >> 32));
        if (lane == 0) a.counts[r] = 0;
      }
      if (!again) break;
      __syncthreads();
    }
  }
}

// A warp for each row: the distances of what the parts found.
extern "C" __global__ void __launch_bounds__(128) choose(const Knn s, i32* index, f32* distance) {
  const i64 row = (i64)blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= s.batch * s.rows) return;
  const int lane = threadIdx.x % 32;
  const i64 batch = row / s.rows, i = row % s.rows;
  const f32* const x = s.x + row * s.coords;
  u64 list = kNone;
  f32 below = kLargeDistance;  // all other candidates are at least so far
  for (int p = 0; p < s.parts; ++p) {
    const u64 near = s.lists[(row * s.parts + p) * 32 + lane];
    u64 exact = kNone;
    for (int n = 0; n < 32; ++n) {
      const u64 one = from_lane(near, n);
      if (one == kNone) break;
      const i64 j = (i64)(u32)one;
      const f32* const y = s.y + (batch * s.others + j) * s.coords;
      f32 sum = 0;
      for (int c = lane; c < s.coords; c += 32) {
        const f32 d = x[c] - y[c];
        sum = fmaf(d, d, sum);
      }
      sum = compared(s, batch, i, j, sum_warp<32>(sum));
      if (lane == n) exact = entry_of(sum, (u32)j);
    }
    list = take_entries(list, exact);
    const u64 last = from_lane(near, 31);
    if (last != kNone) below = fminf(below, distance_of((u32)(last >> 32)));
  }
  const u64 last = from_lane(list, s.k - 1);
  const bool sure =
      last != kNone && distance_of((u32)(last >> 32)) < below && s.x_norm[row] < kLargeNorm;
  if (sure)
    give(s, row, list, index, distance);
  else if (lane == 0)
    s.unsure[1 + atomicAdd(s.unsure, 1)] = (i32)row;
}
