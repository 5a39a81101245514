// SPDX-License-Identifier: Apache-2.0
// layer_norm2d and its backward op: a block of THREADS has a tile of pixels with all their channels
// in its registers. LANES threads side by side have VEC pixels each; the rows of such threads share
// the channels, CHUNKS for each. GAMMA, BETA: dtypes of the parameters.
//variant: TYPE=f32 GAMMA=f32 BETA=f32 OUT=f32 JOIN=256 THREADS=256 FEW=0 LANES=8 CHUNKS=8 VEC=4
//variant: TYPE=bf16 GAMMA=f32 BETA=bf16 OUT=f32 JOIN=32 THREADS=512 FEW=0 LANES=4 CHUNKS=4 VEC=8
//variant: TYPE=f16 GAMMA=f16 BETA=f16 OUT=f16 JOIN=256 THREADS=256 FEW=1 LANES=32 CHUNKS=4 VEC=1
//variant: TYPE=f64 GAMMA=f64 BETA=f32 OUT=f64 JOIN=32 THREADS=512 FEW=0 LANES=1 CHUNKS=16 VEC=1
#include "channel_norm.cuh"

constexpr u32 kRows = THREADS / LANES, kWarps = THREADS / 32;

struct Shape {
  i64 tiles;
  f64 eps;
  u32 channels, pixels, image_tiles;  // pixels and tiles of an image
};

// Where a thread works in a tile.
struct Place {
  i64 start, pixel;  // of its pixels in the first channel; of them among all images' pixels
  u32 channels, pixels;
  bool there;

  __device__ Place(const Shape& s, i64 tile) : channels(s.channels), pixels(s.pixels) {
    const i64 image = tile / s.image_tiles;
    const u32 first = ((u32)(tile - image * s.image_tiles) * LANES + threadIdx.x % LANES) * VEC;
    there = first < s.pixels;
    start = image * s.channels * s.pixels + first;
    pixel = image * s.pixels + first;
  }
  __device__ u32 channel(int c) const { return threadIdx.x / LANES + c * kRows; }
  __device__ bool has(int c) const { return there && channel(c) < channels; }
  __device__ i64 at(int c) const { return start + (i64)channel(c) * pixels; }
};

struct Part {
  Vec<T, VEC> v[CHUNKS];
  __device__ Part(const T* p, const Place& place) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
      if (place.has(c)) v[c] = load<T, VEC>(p + place.at(c));
  }
  __device__ A operator()(int c, int k) const { return widen(v[c].v[k]); }
};

// Sums over the block's rows, for each of N numbers. All threads come here.
template <int N>
__device__ inline void join_rows(A (&v)[N]) {
  __shared__ A parts[kWarps][LANES][N];
  const u32 lane = threadIdx.x % 32, column = threadIdx.x % LANES;
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int o = LANES; o < 32; o *= 2)
      v[k] += each_word(v[k], [=](u32 w) { return __shfl_xor_sync(~0u, w, o); });
  __syncthreads();  // the last call's parts were read
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (lane < LANES) parts[threadIdx.x / 32][lane][k] = v[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; ++k) {
    v[k] = 0;
    for (u32 w = 0; w < kWarps; ++w) v[k] += parts[w][column][k];
  }
}
// The sum of f(chunk, pixel) over the channels.
template <class F>
__device__ inline void channel_sum(A (&sum)[VEC], const Place& p, F&& f) {
#pragma unroll
  for (int k = 0; k < VEC; ++k) {
    sum[k] = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
      if (p.has(c)) sum[k] += f(c, k);
  }
  join_rows(sum);
}

// Distances from a pixel's mean are (x - pivot) - rest: the pivot is the mean, whose rounding the
// rest makes good where channels are FEW and would show it.
struct PixelStatistics {
  A pivot[VEC], rest[VEC] = {}, inverse[VEC];
  __device__ A distance(A x, int k) const { return (x - pivot[k]) - rest[k]; }
  __device__ A mean(int k) const { return pivot[k] + rest[k]; }
};
__device__ inline void find_rest(PixelStatistics& f, const Part& x, const Place& p,
                                 const Shape& s) {
#if FEW
  channel_sum(f.rest, p, [&](int c, int k) { return x(c, k) - f.pivot[k]; });
#pragma unroll
  for (int k = 0; k < VEC; ++k) f.rest[k] /= (A)s.channels;
#endif
}
__device__ inline void find_statistics(PixelStatistics& f, const Part& x, const Place& p,
                                       const Shape& s) {
  channel_sum(f.pivot, p, [&](int c, int k) { return x(c, k); });
#pragma unroll
  for (int k = 0; k < VEC; ++k) f.pivot[k] /= (A)s.channels;
  find_rest(f, x, p, s);
  channel_sum(f.inverse, p, [&](int c, int k) {
    const A d = f.distance(x(c, k), k);
    return d * d;
  });
#pragma unroll
  for (int k = 0; k < VEC; ++k)
    f.inverse[k] = 1 / sqrt(f.inverse[k] / (A)s.channels + (A)s.eps);
}
__device__ inline void take_statistics(PixelStatistics& f, const A* means, const A* inverses,
                                       const Part& x, const Place& p, const Shape& s) {
#pragma unroll
  for (int k = 0; k < VEC; ++k) {
    f.pivot[k] = p.there ? means[p.pixel + k] : A(0);
    f.inverse[k] = p.there ? inverses[p.pixel + k] : A(0);
  }
  find_rest(f, x, p, s);
}

// gamma, beta, means, inverses may be absent.
extern "C" __global__ void __launch_bounds__(THREADS)
    forward(const T* x, const GAMMA* gamma, const BETA* beta, T* y, A* means, A* inverses,
            const Shape s) {
  const Place p(s, blockIdx.x);
  const Part part(x, p);
  PixelStatistics f;
  find_statistics(f, part, p, s);
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (!p.has(c)) continue;
    const A scale = gamma ? (A)widen(gamma[p.channel(c)]) : A(1);
    const A shift = beta ? (A)widen(beta[p.channel(c)]) : A(0);
    Vec<T, VEC> t;
#pragma unroll
    for (int k = 0; k < VEC; ++k)
      t.v[k] = narrow<T>(f.distance(part(c, k), k) * f.inverse[k] * scale + shift);
    store(y + p.at(c), t);
  }
  if (!p.there || threadIdx.x >= LANES) return;
#pragma unroll
  for (int k = 0; k < VEC; ++k) {
    if (means) means[p.pixel + k] = f.mean(k);
    if (inverses) inverses[p.pixel + k] = f.inverse[k];
  }
}

// A block takes tiles gridDim.x apart and leaves a row of sums. gamma, means with inverses, dx,
// channel_sums may be absent.
extern "C" __global__ void __launch_bounds__(THREADS)
    backward(const T* dy, const T* x, const GAMMA* gamma, const A* means, const A* inverses, T* dx,
             Pair* channel_sums, const Shape s) {
  Pair sums[CHUNKS] = {};
  for (i64 tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
    const Place p(s, tile);
    const Part up(dy, p), part(x, p);
    PixelStatistics f;
    if (means)
      take_statistics(f, means, inverses, part, p, s);
    else
      find_statistics(f, part, p, s);
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
    if (!dx) continue;
    join_rows(total);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (!p.has(c)) continue;
      Vec<T, VEC> t;
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        const A normal = f.distance(part(c, k), k) * f.inverse[k];
        const A mean = total[k] / (A)s.channels, slope = total[VEC + k] / (A)s.channels;
        t.v[k] = narrow<T>(f.inverse[k] * (up(c, k) * scale[c] - mean - normal * slope));
      }
      store(dx + p.at(c), t);
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
