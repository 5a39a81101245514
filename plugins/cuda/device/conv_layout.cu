// SPDX-License-Identifier: Apache-2.0
// What goes before and behind products of convolutions: channels_last puts the channels of a pixel
// side by side, filters orders the weights, finish adds up the sums of all splits with what follows
// them, finish_weights does so for the gradient of the weights.
// Defines: XW (pixels that channels_last reads at once), BY_M (filters: [group][tap][c][m], else
// [group][m][tap][padded]), ACROSS (or none: the order of filters of bytes), YW (elements that finish
// and finish_weights move at once), and those of conv_ends.cuh or quantized_ends.cuh.
//variant: TYPE=bf16 XW=8 BY_M=0 YW=8 BIAS=f32 RESIDUAL=1 PRE_ACT=1 ACT(x)=unary_silu(x,1.f,0.f)
//variant: TYPE=f16 XW=1 BY_M=0 YW=1
//variant: TYPE=f32 XW=1 BY_M=1 YW=4
//variant: TYPE=f64 XW=1 BY_M=1 YW=1
//variant: TYPE=u8 XW=16 BY_M=0 YW=1 ACROSS=1
//variant: TYPE=u8 FILTER=i8 RESULT=u8 XW=1 BY_M=0 YW=8
//variant: TYPE=i8 FILTER=u8 RESULT=i32 XW=1 BY_M=0 YW=4
//entry: conv_channels_last = channels_last(In, Out, ConvLayout)
//entry: conv_filters = filters(In, Out, ConvFilters)
//entry: conv_finish = finish_sums(In, ConvEnds, ConvFinish)
//entry: qconv_finish = finish_sums(In, QuantizedEnds, ConvFinish)
//entry: conv_finish_weights = finish_weights(In, Out, ConvFinishWeights)
#include "common.cuh"
#ifdef FILTER
#include "quantized_ends.cuh"
#else
#include "conv_ends.cuh"
#endif
#include "conv_filters.cuh"
#include "units.cuh"

typedef UnitOf<sizeof(T)>::type Unit;

constexpr int kPixels = 64, kChannels = 64;
extern "C" __global__ void __launch_bounds__(256)
    channels_last(const Unit* __restrict__ x, Unit* __restrict__ y, const ConvLayout s) {
  constexpr int kPitch = kChannels + 2, kPieces = 8;  // of 8 channels
  __shared__ __align__(16) Unit tile[kPixels * kPitch];
  u32 at = blockIdx.x;
  const u32 channel0 = at % s.channel_tiles * kChannels;
  at /= s.channel_tiles;
  const u32 pixel0 = at % s.pixel_tiles * kPixels;
  const i64 image = at / s.pixel_tiles;
  const u32 channels = s.groups * s.padded;
  x += image * s.groups * s.c * s.pixels;
#pragma unroll 4
  for (int e = threadIdx.x; e < kChannels * kPixels / XW; e += 256) {
    const u32 c = e / (kPixels / XW), pixel = e % (kPixels / XW) * XW;
    const u32 group = (channel0 + c) / s.padded, own = channel0 + c - group * s.padded;
    Vec<Unit, XW> v = {};
    if (channel0 + c < channels && own < s.c && pixel0 + pixel < s.pixels)
      v = load<Unit, XW>(x + (i64)(group * s.c + own) * s.pixels + pixel0 + pixel);
#pragma unroll
    for (int k = 0; k < XW; ++k) tile[(pixel + k) * kPitch + c] = v.v[k];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < kPixels * kPieces; e += 256) {
    const u32 pixel = e / kPieces, c = e % kPieces * 8;
    if (pixel0 + pixel >= s.pixels || channel0 + c >= channels) continue;
    Vec<Unit, 8> v;
#pragma unroll
    for (int k = 0; k < 8; k += 2) {
      const Vec<Unit, 2> two = load<Unit, 2>(tile + pixel * kPitch + c + k);
      v.v[k] = two.v[0], v.v[k + 1] = two.v[1];
    }
    store(y + (image * s.pixels + pixel0 + pixel) * channels + channel0 + c, v);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    filters(const Unit* __restrict__ w, Unit* __restrict__ y, const ConvFilters s) {
#ifdef ACROSS
  order_filters<BY_M, true>(w, y, s, (i64)blockIdx.x * 256 + threadIdx.x);
#else
  order_filters<BY_M>(w, y, s, (i64)blockIdx.x * 256 + threadIdx.x);
#endif
}

extern "C" __global__ void __launch_bounds__(256)
    finish_sums(const S* __restrict__ parts, const Ends ends, const ConvFinish s) {
  const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * YW;
  if (at >= s.count) return;
  S sums[YW] = {};
  for (u32 k = 0; k < s.splits; ++k) {
    const Vec<S, YW> v = load<S, YW>(parts + k * s.count + at);
#pragma unroll
    for (int e = 0; e < YW; ++e) sums[e] += v.v[e];
  }
  finish<YW>(ends, sums, at, (u32)(at / s.plane % s.channels));
}

extern "C" __global__ void __launch_bounds__(256)
    finish_weights(const S* parts, T* dw, const ConvFinishWeights s) {
  begin_early();
  constexpr int kAtOnce = 8;
  __shared__ __align__(16) S sums[kMostFinishItems];
  u32 at = blockIdx.x;
  const u32 c0 = at % s.tiles_c * s.tile_c;
  at /= s.tiles_c;
  const u32 tap0 = at % s.tiles_taps * s.tile_taps.value, row = at / s.tiles_taps;
  const u32 channels = min(s.tile_c, s.c - c0), taps = min(s.tile_taps.value, s.taps - tap0);
  parts += (i64)row * s.row + (i64)tap0 * s.padded + c0;
  for (u32 i = threadIdx.x; i < s.by_tile.value * s.slices; i += 256) {
    const u32 slice = s.by_tile.quotient(i), own = i - slice * s.by_tile.value,
              tap = s.by_tap.quotient(own), c = (own - tap * s.by_tap.value) * YW;
    if (tap >= taps || c >= channels) continue;
    const S* const from = parts + tap * s.padded + c;
    S sum[YW] = {};
    for (u32 k0 = slice; k0 < s.splits; k0 += s.slices * kAtOnce) {
      Vec<S, YW> v[kAtOnce] = {};
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (k0 + k * s.slices < s.splits) v[k] = load<S, YW>(from + (k0 + k * s.slices) * s.split);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
        for (int e = 0; e < YW; ++e) sum[e] += v[k].v[e];
    }
#pragma unroll
    for (int e = 0; e < YW; ++e) sums[i * YW + e] = sum[e];
  }
  __syncthreads();
  dw += ((i64)row * s.c + c0) * s.taps + tap0;
  for (u32 e = threadIdx.x; e < s.tile_c * s.tile_taps.value; e += 256) {
    const u32 c = s.tile_taps.quotient(e), tap = e - c * s.tile_taps.value;
    if (tap >= taps || c >= channels) continue;
    const S* const own = sums + tap * s.tile_c + c;
    S sum = own[0];
    for (u32 k = 1; k < s.slices; ++k) sum += own[k * s.by_tile.value * YW];
    dw[c * s.taps + tap] = narrow<T>(sum);
  }
}
