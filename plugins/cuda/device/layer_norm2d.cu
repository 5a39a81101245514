// SPDX-License-Identifier: Apache-2.0
// layer_norm2d and its backward op: a block of THREADS has a tile of pixels with all their channels
// in its registers. LANES threads side by side have VEC pixels each; the rows of such threads share
// the channels, CHUNKS for each. AHEAD: in the backward op the tile comes through shared memory,
// and the next one takes its room as it is left: for registers where there are enough of them, else
// when it was used. GAMMA, BETA: dtypes of the parameters.
//variant: TYPE=f32 GAMMA=f32 BETA=f32 OUT=f32 JOIN=256 THREADS=512 FEW=0 LANES=8 CHUNKS=8 VEC=4 AHEAD=1 GIVEN=1
//variant: TYPE=f32 GAMMA=f32 BETA=f32 OUT=f32 JOIN=256 THREADS=512 FEW=0 LANES=8 CHUNKS=12 VEC=4 AHEAD=1 GIVEN=0
//variant: TYPE=bf16 GAMMA=f32 BETA=bf16 OUT=f32 JOIN=32 THREADS=512 FEW=0 LANES=4 CHUNKS=4 VEC=8 AHEAD=1 GIVEN=0
//variant: TYPE=f16 GAMMA=f16 BETA=f16 OUT=f16 JOIN=256 THREADS=256 FEW=1 LANES=32 CHUNKS=4 VEC=1 AHEAD=0 GIVEN=1
//variant: TYPE=f64 GAMMA=f64 BETA=f32 OUT=f64 JOIN=32 THREADS=512 FEW=0 LANES=1 CHUNKS=16 VEC=1 AHEAD=0 GIVEN=0
#include "async.cuh"
#include "channel_norm.cuh"

constexpr u32 kRows = THREADS / LANES, kWarps = THREADS / 32;

typedef PixelNormShape Shape;

// Where a thread works in a tile.
struct Place {
  i64 start, pixel;  // of its pixels in its first channel; of them among all images' pixels
  u32 pixels;
  bool there, full;  // whether it has pixels, and a channel in the last chunk

  __device__ Place(const Shape& s, i64 tile) : pixels(s.pixels) {
    const i64 image = (u64)tile >> 32 == 0 ? (u32)tile / s.image_tiles : tile / s.image_tiles;
    const u32 first = ((u32)(tile - image * s.image_tiles) * LANES + threadIdx.x % LANES) * VEC;
    there = first < s.pixels;
    full = channel(CHUNKS - 1) < s.channels;
    start = image * s.channels * s.pixels + (i64)channel(0) * s.pixels + first;
    pixel = image * s.pixels + first;
  }
  __device__ u32 channel(int c) const { return threadIdx.x / LANES + c * kRows; }
  __device__ bool fills(int c) const { return c < CHUNKS - 1 || full; }
  __device__ bool has(int c) const { return there && fills(c); }
  __device__ i64 at(int c) const { return start + (i64)(c * kRows) * pixels; }
  // Where chunks lie is found again after this: kept beside the tile it would take its registers.
  __device__ void forget() { asm volatile("" : "+l"(start)); }
};

struct Part {
  Vec<T, VEC> v[CHUNKS];
  __device__ Part() {}
  __device__ Part(const T* p, const Place& place) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
      v[c] = place.has(c) ? load<T, VEC>(p + place.at(c)) : Vec<T, VEC>{};
  }
  __device__ A operator()(int c, int k) const { return widen_at(v[c], k); }
  __device__ void forget_widened() {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) forget(v[c]);
  }
};
#if AHEAD && __CUDA_ARCH__ >= 800
#define COPIES 1
#if GIVEN && CHUNKS <= 8 && VEC <= 4  // registers do for two operands' chunks beside what is made
#define TAKES 1
#endif
// The same in shared memory; a thread reads what it copied itself.
struct Kept {
  Vec<T, VEC>* const v;
  __device__ explicit Kept(int operand)
      : v(reinterpret_cast<Vec<T, VEC>*>(shared_lines) + operand * CHUNKS * THREADS + threadIdx.x) {
  }
  __device__ A operator()(int c, int k) const { return widen_at(v[c * THREADS], k); }
  __device__ void fetch(int c, const T* p, const Place& place) {
    if (place.has(c)) copy_async(v + c * THREADS, p + place.at(c), true);
  }
};
#endif

// Memory in which the warps of a block meet; a barrier must lie between two uses.
__device__ inline void* meeting() {
  __shared__ __align__(16) u8 memory[3 * THREADS * VEC * sizeof(A)];
  return memory;
}
// Sums over a warp's rows, for each of N numbers.
template <int N>
__device__ inline void join_in_warp(A (&v)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int o = LANES; o < 32; o *= 2)
      v[k] += each_word(v[k], [=](u32 w) { return __shfl_xor_sync(~0u, w, o); });
}
// Sums over the block's rows. All threads come here.
template <int N>
__device__ inline void join_rows(A (&v)[N]) {
  typedef Vec<A, N> Numbers;
  Numbers* const parts = static_cast<Numbers*>(meeting());
  const u32 lane = threadIdx.x % 32;
  join_in_warp(v);
  __syncthreads();  // what was there was read
  if (lane < LANES) {
    Numbers mine;
#pragma unroll
    for (int k = 0; k < N; ++k) mine.v[k] = v[k];
    parts[threadIdx.x / 32 * LANES + lane] = mine;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] = 0;
  for (u32 w = lane / LANES; w < kWarps; w += 32 / LANES) {
    const Numbers part = parts[w * LANES + lane % LANES];
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] += part.v[k];
  }
  join_in_warp(v);
}

// Distances from a pixel's mean are (x - pivot) - rest: the pivot is the mean, whose rounding the
// rest makes good where channels are FEW and would show it.
struct PixelStatistics {
  A pivot[VEC], rest[VEC] = {}, inverse[VEC];
  __device__ A distance(A x, int k) const { return (x - pivot[k]) - rest[k]; }
  __device__ A mean(int k) const { return pivot[k] + rest[k]; }
};
template <class Values>
__device__ inline void find_rest(PixelStatistics& f, Values& x, const Place& p, const Shape& s) {
#if FEW
#pragma unroll
  for (int k = 0; k < VEC; ++k)
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
      if (p.has(c)) f.rest[k] += x(c, k) - f.pivot[k];
  join_rows(f.rest);
#pragma unroll
  for (int k = 0; k < VEC; ++k) f.rest[k] /= (A)s.channels;
#endif
}
// A thread takes the distances of its channels from the first of them, for each of its pixels; then
// some threads for each pixel join what all found. What the distances sum to is carried along, so
// that the place of the first does not matter to the squares, nor the rounding of a mean far from
// zero.
template <class Values>
__device__ inline void find_statistics(PixelStatistics& f, Values& x, const Place& p,
                                       const Shape& s) {
  typedef Vec<A, VEC> Pixels;
  constexpr u32 kPixels = LANES * VEC, kLeast = kRows < 32 ? kRows : 32;
  constexpr u32 kTeam = THREADS / kPixels < kLeast ? THREADS / kPixels : kLeast;
  Pixels* const parts = static_cast<Pixels*>(meeting());  // firsts, sums, sums of squares
  // Of a row's lane, turned against bank conflicts.
  const auto slot = [](u32 row, u32 lane) { return row * LANES + (lane ^ row % LANES); };
  Pixels first{}, sum{}, squares{};
#pragma unroll
  for (int k = 0; k < VEC; ++k) {
    if (p.fills(0)) first.v[k] = x(0, k);
#pragma unroll
    for (int c = 1; c < CHUNKS; ++c) {
      if (!p.fills(c)) continue;
      const A d = x(c, k) - first.v[k];
      sum.v[k] += d, squares.v[k] += d * d;
    }
  }
  const u32 mine = slot(threadIdx.x / LANES, threadIdx.x % LANES);
  __syncthreads();  // what was there was read
  parts[mine] = first, parts[THREADS + mine] = sum, parts[2 * THREADS + mine] = squares;
  __syncthreads();
  const A share = 1 / (A)s.channels;
  const u32 pixel = threadIdx.x / kTeam, member = threadIdx.x % kTeam;
  A mean = 0, left = 0, spread = 0;
  const auto each_row = [&](auto&& take) {
    if (pixel < kPixels)
#pragma unroll 4
      for (u32 row = member; row < kRows; row += kTeam) {
        const bool full = row + (CHUNKS - 1) * kRows < s.channels;
        const u32 at = slot(row, pixel / VEC);
        take((A)(CHUNKS - 1 + full), parts[at].v[pixel % VEC], parts[THREADS + at].v[pixel % VEC],
             parts[2 * THREADS + at].v[pixel % VEC]);
      }
  };
  each_row([&](A n, A from, A sum, A) { mean += n * from + sum; });
  mean = sum_warp<kTeam>(mean) * share;
  each_row([&](A n, A from, A sum, A squares) {
    const A off = from - mean;
    left += sum + n * off;
    spread += squares + off * (2 * sum + n * off);
  });
  left = sum_warp<kTeam>(left), spread = sum_warp<kTeam>(spread);
  __syncwarp();  // the team's numbers were read
  if (pixel < kPixels && member == 0) {
    const A rest = left * share, square = spread - left * rest;
    const u32 at = slot(0, pixel / VEC), k = pixel % VEC;
    parts[at].v[k] = FEW ? mean : mean + rest;
    parts[THREADS + at].v[k] = rest;
    parts[2 * THREADS + at].v[k] = 1 / sqrt((square < 0 ? A(0) : square) * share + (A)s.eps);
  }
  __syncthreads();
  const u32 at = slot(0, threadIdx.x % LANES);
#pragma unroll
  for (int k = 0; k < VEC; ++k) {
    f.pivot[k] = parts[at].v[k];
    if (FEW) f.rest[k] = parts[THREADS + at].v[k];
    f.inverse[k] = parts[2 * THREADS + at].v[k];
  }
}
template <class Values>
__device__ inline void take_statistics(PixelStatistics& f, const A* means, const A* inverses,
                                       Values& x, const Place& p, const Shape& s) {
#pragma unroll
  for (int k = 0; k < VEC; ++k) {
    f.pivot[k] = p.there ? means[p.pixel + k] : A(0);
    f.inverse[k] = p.there ? inverses[p.pixel + k] : A(0);
  }
  find_rest(f, x, p, s);
}

// gamma, beta, means, inverses may be absent.
extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    forward(const T* x, const GAMMA* __restrict__ gamma, const BETA* __restrict__ beta, T* y,
            A* means, A* inverses, const Shape s) {
  Place p(s, blockIdx.x);
  Part part(x, p);
  PixelStatistics f;
  find_statistics(f, part, p, s);
  p.forget();
  part.forget_widened();
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (!p.has(c)) continue;
    const A scale = gamma ? (A)widen(gamma[p.channel(c)]) : A(1);
    const A shift = beta ? (A)widen(beta[p.channel(c)]) : A(0);
    A t[VEC];
#pragma unroll
    for (int k = 0; k < VEC; ++k) t[k] = f.distance(part(c, k), k) * f.inverse[k] * scale + shift;
    store(y + p.at(c), narrow_all<T>(t));
  }
  if (!p.there || threadIdx.x >= LANES) return;
#pragma unroll
  for (int k = 0; k < VEC; ++k) {
    if (means) means[p.pixel + k] = f.mean(k);
    if (inverses) inverses[p.pixel + k] = f.inverse[k];
  }
}

// A block takes tiles gridDim.x apart and leaves a row of sums. GIVEN: means and inverses are
// there. gamma, dx, channel_sums may be absent.
extern "C" __global__ void __launch_bounds__(THREADS)
    backward(const T* dy, const T* x, const GAMMA* __restrict__ gamma, const A* means,
             const A* inverses, T* dx, Pair* channel_sums, const Shape s) {
  Pair sums[CHUNKS] = {};
  const A share = 1 / (A)s.channels;
#if COPIES
  Kept kept_up(0), kept_part(1);
  const auto fetch = [&](int c, const Place& place) {
    kept_up.fetch(c, dy, place);
    kept_part.fetch(c, x, place);
    copy_commit();
  };
  Place next(s, blockIdx.x);
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) fetch(c, next);
#endif
  for (i64 tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
#if COPIES
    const Place p = next;
    next = Place(s, tile + gridDim.x);
    if (tile + gridDim.x >= s.tiles) next.there = false;
#if TAKES
    Part up, part;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      copy_wait<CHUNKS - 1>();
      up.v[c] = kept_up.v[c * THREADS], part.v[c] = kept_part.v[c * THREADS];
      fetch(c, next);
    }
#else
    copy_wait<0>();
    const Kept &up = kept_up, &part = kept_part;
#endif
#else
    const Place p(s, tile);
    Part up(dy, p), part(x, p);
#endif
    PixelStatistics f;
#if GIVEN
    take_statistics(f, means, inverses, part, p, s);
#else
    find_statistics(f, part, p, s);
#endif
    A scale[CHUNKS], total[2 * VEC] = {};
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (!p.has(c)) continue;
      scale[c] = gamma ? (A)widen(gamma[p.channel(c)]) : A(1);
      Pair mine{0, 0};
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        const A d = up(c, k), along = d * (f.distance(part(c, k), k) * f.inverse[k]);
        mine = AddPair()(mine, Pair{d, along});
        total[k] += d * scale[c], total[VEC + k] += along * scale[c];
      }
      sums[c] = AddPair()(sums[c], mine);
    }
    if (dx) {
      join_rows(total);
#pragma unroll
      for (int k = 0; k < 2 * VEC; ++k) total[k] *= share;
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (dx && p.has(c)) {
        A t[VEC];
#pragma unroll
        for (int k = 0; k < VEC; ++k) {
          const A normal = f.distance(part(c, k), k) * f.inverse[k];
          t[k] = f.inverse[k] * (up(c, k) * scale[c] - total[k] - normal * total[VEC + k]);
        }
        store(dx + p.at(c), narrow_all<T>(t));
      }
#if COPIES && !TAKES
      fetch(c, next);
#endif
    }
  }
  if (!channel_sums) return;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    const Pair sum = join_warp<LANES>(sums[c], AddPair());
    const u32 channel = threadIdx.x / LANES + c * kRows;
    if (threadIdx.x % LANES == 0 && channel < s.channels)
      channel_sums[(i64)blockIdx.x * s.channels + channel] = sum;
  }
}
