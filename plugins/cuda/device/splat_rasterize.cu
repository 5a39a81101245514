//variant: TYPE=f32 CHANNELS=3
//variant: TYPE=f32 CHANNELS=32
//variant: TYPE=f64 CHANNELS=1
//variant: TYPE=f64 CHANNELS=32
// SPDX-License-Identifier: Apache-2.0
// splat_rasterize: a block for each 16 x 16 pixels of a tile, a thread for each pixel. The entries of
// the tile come through shared memory; a warp takes those that may reach its pixels.
//entry: splat_clear = clear(SplatScene)
//entry: splat_check = check(SplatScene, ErrorSink)
//entry: splat_prepare = prepare(SplatScene)
//entry: splat_blend = blend(SplatScene, SplatImage)
#include "splat.cuh"

constexpr int kChecked = 16;  // entries of a thread
constexpr int kBatch = batch_in(40960);

extern "C" __global__ void __launch_bounds__(32) clear(const SplatScene s) {
  if (threadIdx.x == 0) *s.used = 0;
}

// Positions of offsets are reported behind those of all ids.
extern "C" __global__ void __launch_bounds__(256) check(const SplatScene s, const ErrorSink sink) {
  const i64 first = (i64)blockIdx.x * (256 * kChecked) + threadIdx.x;
  const i64 pairs = s.images * s.points, tiles = s.images * s.rows * s.columns;
  i32 used = 0;
#pragma unroll 4
  for (int k = 0; k < kChecked; ++k) {
    const i64 at = first + k * 256;
    if (at < s.entries) {
      const i32 id = s.ids[at];
      if (id < -1 || id >= pairs) report(sink, kIndexOutOfRange, (u64)at);
      if (id >= 0) used = (i32)at + 1;
    }
    if (at < tiles) {
      const i32 offset = s.offsets[at], before = at > 0 ? s.offsets[at - 1] : 0;
      if (offset < before || offset > s.entries)
        report(sink, kIndexOutOfRange, (u64)at + ((u64)1 << 32));
    }
  }
  used = join_lanes<256>(used, Most());
  if (threadIdx.x == 0 && used > *s.used) atomicMax(s.used, used);
}

extern "C" __global__ void __launch_bounds__(256) prepare(const SplatScene s) {
  const i64 pair = (i64)blockIdx.x * 256 + threadIdx.x;
  if (pair < s.images * s.points) static_cast<Pair*>(s.prepared)[pair] = pair_of(s, pair);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    blend(const SplatScene s, const SplatImage to) {
  __shared__ BatchOf<kBatch> batch;
  const i32 along = areas_along(s);
  const Area a = area_of(s, blockIdx.x / (along * along), blockIdx.x % (along * along));
  if (a.columns <= 0 || a.rows <= 0) return;  // beyond the image
  const Range list = range_of(s, a.tile);
  const Pixel pixel = pixel_of(s, a);
  const T x = (T)pixel.x, y = (T)pixel.y;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bool open = pixel.real;
  T light = 1, color[CHANNELS] = {};
  i32 last = -1;
  for (u32 base = list.begin; base < list.end; base += kBatch) {
    if (!__syncthreads_or(open)) break;
    for (int k = threadIdx.x; k < kBatch; k += kThreads) stage(s, a, base + k, list.end, batch, k);
    __syncthreads();
    for (int first = 0; first < kBatch && __any_sync(~0u, open); first += 32) {
      u32 reached = __ballot_sync(~0u, batch.warps[first + lane] >> warp & 1);
      while (reached != 0) {
        const int k = first + __ffs(reached) - 1;
        reached &= reached - 1;
        const Seen seen = see(batch.entry[k], x, y);
        if (!open || !seen.passes) continue;
        const T alpha = min(seen.raw, kMostAlpha), left = light * (1 - alpha);
        if (left <= kLeastLight) {
          open = false;
          continue;
        }
        const T weight = alpha * light;
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) color[c] = fma(weight, batch.color[k][c], color[c]);
        light = left;
        last = (i32)base + k;
      }
    }
  }
  if (!pixel.real) return;
  static_cast<T*>(to.alpha)[pixel.at] = 1 - light;
  to.last[pixel.at] = last;
  const T* const behind = static_cast<const T*>(s.background);
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c)
    static_cast<T*>(to.image)[pixel.at * CHANNELS + c] =
        behind ? color[c] + light * behind[a.image * CHANNELS + c] : color[c];
}
