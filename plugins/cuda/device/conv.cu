// SPDX-License-Identifier: Apache-2.0
// Convolutions and their transposes as products that are never written out: rows are the channels of
// the result, columns the windows of all images, terms the taps and channels. A block makes a tile
// of one group, of one phase, of one part of the terms.
// MMA: on tensor cores, from filters [group][m][tap][8 channels a piece] and from pixels with their
// channels side by side, or, with POINT, from x as it is: windows of one pixel, XW windows at a time.
// Else in FMAs, from filters [group][tap][c][m] and x as it is.
// Defines: TYPE, BACK, MMA, WARPGROUPS, POINT, XW, TILE_M (rows of a tile), MASK (bits for
// the taps of a window, 0: coordinates are compared), WHOLE (FMAs: channels are a multiple of
// kFmaDepth), SPLIT (sums go to parts), YW (elements of the result that are moved at once), and those
// of conv_ends.cuh. Of 8-bit integers those of quantized_ends.cuh, and OUTSIDE (taps outside of x have
// its zero point, else 0), COLUMNS (w has zero points: windows are summed).
//variant: TYPE=bf16 BACK=0 MMA=1 WARPGROUPS=1 POINT=0 XW=8 TILE_M=128 MASK=32 WHOLE=0 SPLIT=0 YW=8 BIAS=f32 RESIDUAL=1 PRE_ACT=1 ACT(x)=unary_silu(x,1.f,0.f)
//variant: TYPE=bf16 BACK=0 MMA=1 WARPGROUPS=1 POINT=1 XW=8 TILE_M=128 MASK=0 WHOLE=0 SPLIT=0 YW=8
//variant: TYPE=f16 BACK=1 MMA=1 WARPGROUPS=0 POINT=0 XW=8 TILE_M=64 MASK=32 WHOLE=0 SPLIT=1 YW=1
//variant: TYPE=f16 BACK=0 MMA=1 WARPGROUPS=0 POINT=1 XW=4 TILE_M=128 MASK=0 WHOLE=0 SPLIT=0 YW=4 BIAS=f16
//variant: TYPE=f16 BACK=0 MMA=1 WARPGROUPS=1 POINT=1 XW=4 TILE_M=64 MASK=0 WHOLE=0 SPLIT=1 YW=4
//variant: TYPE=f32 BACK=0 MMA=0 WARPGROUPS=0 POINT=0 XW=1 TILE_M=128 MASK=0 WHOLE=1 SPLIT=0 YW=4 BIAS=f32 RESIDUAL=1
//variant: TYPE=f32 BACK=1 MMA=0 WARPGROUPS=0 POINT=0 XW=1 TILE_M=64 MASK=0 WHOLE=0 SPLIT=1 YW=1
//variant: TYPE=f64 BACK=1 MMA=0 WARPGROUPS=0 POINT=0 XW=1 TILE_M=64 MASK=0 WHOLE=0 SPLIT=0 YW=1 PRE_ACT=1 ACT(x)=unary_relu(x,0.,0.)
//variant: TYPE=bf16 BACK=0 MMA=0 WARPGROUPS=0 POINT=0 XW=1 TILE_M=64 MASK=0 WHOLE=1 SPLIT=0 YW=4
//variant: TYPE=f16 BACK=1 MMA=1 WARPGROUPS=0 POINT=0 XW=8 TILE_M=128 MASK=64 WHOLE=0 SPLIT=0 YW=1
//variant: TYPE=f16 BACK=1 MMA=1 WARPGROUPS=1 POINT=0 XW=8 TILE_M=64 MASK=0 WHOLE=0 SPLIT=1 YW=1
//variant: TYPE=u8 FILTER=i8 RESULT=u8 BACK=0 MMA=1 WARPGROUPS=1 POINT=0 XW=8 TILE_M=128 MASK=32 WHOLE=0 SPLIT=0 YW=8 OUTSIDE=1 COLUMNS=0
//variant: TYPE=i8 FILTER=u8 RESULT=i32 BACK=0 MMA=1 WARPGROUPS=0 POINT=0 XW=8 TILE_M=64 MASK=0 WHOLE=0 SPLIT=0 YW=4 OUTSIDE=1 COLUMNS=1
//variant: TYPE=i8 FILTER=i8 RESULT=i8 BACK=0 MMA=1 WARPGROUPS=0 POINT=0 XW=8 TILE_M=128 MASK=64 WHOLE=0 SPLIT=1 YW=1 OUTSIDE=0 COLUMNS=1
//variant: TYPE=u8 FILTER=u8 RESULT=u8 BACK=0 MMA=1 WARPGROUPS=1 POINT=0 XW=8 TILE_M=64 MASK=0 WHOLE=0 SPLIT=1 YW=8 OUTSIDE=0 COLUMNS=0
//variant: TYPE=i8 FILTER=i8 RESULT=i8 BACK=0 MMA=1 WARPGROUPS=0 POINT=1 XW=16 TILE_M=64 MASK=0 WHOLE=0 SPLIT=0 YW=8 OUTSIDE=0 COLUMNS=0
//variant: TYPE=u8 FILTER=i8 RESULT=i8 BACK=0 MMA=1 WARPGROUPS=0 POINT=1 XW=4 TILE_M=128 MASK=0 WHOLE=0 SPLIT=1 YW=4 OUTSIDE=0 COLUMNS=1
//entry: conv_sums = sums(ConvSums)
//entry: qconv_sums = sums(ConvSumsOf<QuantizedEnds>)
#include "conv.cuh"
#ifdef FILTER
#include "quantized_ends.cuh"
#else
#include "conv_ends.cuh"
#endif
#include "conv_tile.cuh"

typedef ConvSumsOf<Ends> Sums;

struct Block {
  u32 group, split, column, total;  // total: windows of all images
  i32 row;
  ConvLine lines[3];
};
__device__ inline Block block_of(const Sums& p, u32 columns) {
  Block b;
  u32 at = blockIdx.x;
  b.row = (i32)(at % p.tiles_m * TILE_M), at /= p.tiles_m;
  // Phases read the same pixels of x, and write to the same lines of y: they go together.
  lines_of<BACK>(p.shape, at % p.phases, b.lines), at /= p.phases;
  b.column = at % p.tiles_n * columns, at /= p.tiles_n;
  b.split = at % p.splits;
  b.group = at / p.splits;
  b.total = (u32)p.shape.batch * windows_of(b.lines);
  return b;
}
// The element of y of the group's first channel, for the window in a column.
__device__ inline i64 result_of(const Sums& p, const Block& b, u32 column) {
  const ConvWindow w = window_of(b.lines, column);
  return ((i64)w.image * p.shape.groups + b.group) * p.shape.m * plane_of(b.lines) +
         target_of(b.lines, w);
}
template <int W>
__device__ __forceinline__ void put(const Sums& p, const Block& b, const S (&sums)[W], i64 at,
                                    i32 row) {
#if SPLIT
  Vec<S, W> v;
#pragma unroll
  for (int k = 0; k < W; ++k) v.v[k] = sums[k];
  store((S*)p.parts + b.split * p.count + at, v);
#else
  finish<W>(p.ends, sums, at, b.group * (u32)p.shape.m + (u32)row);
#endif
}

#if !MMA
#if !POINT
extern "C" __global__ void __launch_bounds__(kTileThreads, sizeof(S) == 4 ? 2 : 1)
    sums(const Sums p) {
  constexpr int kTile = TILE_M;
  const Block b = block_of(p, kTile);
  if (b.column >= b.total) return;
  const ConvShape& s = p.shape;
  const i64 pixels = pixels_of(b.lines);
  const i32 kernel = s.axes[0].kernel * s.axes[1].kernel * s.axes[2].kernel;
  const u32 depth = (u32)taps_of(b.lines) * (u32)s.c;
  const u32 begin = min(b.split * p.split_terms, depth), end = min(begin + p.split_terms, depth);
  // A thread brings terms of one column.
  const u32 column = b.column + threadIdx.x % kTile;
  const bool real = column < b.total;
  const ConvWindow w = window_of(b.lines, real ? column : 0);
  const T* const x = (const T*)p.x + ((i64)w.image * s.groups + b.group) * s.c * pixels;
  const T* const filters = (const T*)p.w + (i64)b.group * kernel * s.c * s.m;
  i32 at[3];
#pragma unroll
  for (int a = 0; a < 3; ++a) at[a] = w.o[a] * b.lines[a].step + b.lines[a].first;
  const ConvTerms terms(b.lines, (u32)s.c);
  // Where tap t is in x, for the thread's column; false: outside.
  const auto find = [&](const ConvTap& tap, i64& from) {
    bool inside = real;
    from = 0;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      const i32 i = at[a] + tap.t[a] * b.lines[a].delta;
      inside &= (u32)i < (u32)b.lines[a].in;
      from = from * b.lines[a].in + i;
    }
    return inside;
  };
#if WHOLE
  // All terms of a step are of one tap.
  const T *step_x = nullptr, *step_w = nullptr;
  const i32 row = b.row + (i32)(threadIdx.x % kTile);
  int taken_a = 0, taken_b = 0;
  const auto before = [&](i64 k0) {
    const u32 term = begin + (u32)k0;
    const u32 t = terms.each.quotient(term), c = term - t * (u32)s.c + threadIdx.x / kTile;
    const ConvTap tap = terms.tap(t);
    i64 from;
    step_x = find(tap, from) ? x + from + c * pixels : nullptr;
    step_w = filters + ((i64)tap.in_kernel(b.lines, s) * s.c + c) * s.m + row;
    taken_a = taken_b = 0;
  };
  // Elements are asked for in the order of the thread's terms.
  constexpr int kEach = kTileThreads / kTile;
  const auto get_a = [&](int, i64) {
    const int d = taken_a++ * kEach;
    return row < s.m ? (S)widen(step_w[(i64)d * s.m]) : S(0);
  };
  const auto get_b = [&](int, i64) {
    const int d = taken_b++ * kEach;
    return step_x ? (S)widen(step_x[d * pixels]) : S(0);
  };
#else
  const NothingBefore before;
  const auto get_a = [&](int i, i64 k) {
    const u32 term = begin + (u32)k;
    const i32 row = b.row + i;
    if (term >= end || row >= s.m) return S(0);
    const u32 t = terms.each.quotient(term), c = term - t * (u32)s.c;
    const i32 tap = terms.tap(t).in_kernel(b.lines, s);
    return (S)widen(filters[((i64)tap * s.c + c) * s.m + row]);
  };
  const auto get_b = [&](int, i64 k) {
    const u32 term = begin + (u32)k;
    if (term >= end) return S(0);
    const u32 t = terms.each.quotient(term), c = term - t * (u32)s.c;
    i64 from;
    return find(terms.tap(t), from) ? (S)widen(x[c * pixels + from]) : S(0);
  };
#endif
  S acc[kTile / 16][kTile / 16] = {};
  fma_tile<S, kTile, false, false>(get_a, get_b, end - begin, acc, before);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const i64 plane = plane_of(b.lines);
#pragma unroll
  for (int j = 0; j < kTile / 16; j += YW) {
    const u32 to = b.column + tile_at(j, tx);
    if (to >= b.total) continue;
    const i64 result = result_of(p, b, to);
#pragma unroll
    for (int i = 0; i < kTile / 16; ++i) {
      const i32 row = b.row + tile_at(i, ty);
      if (row >= s.m) continue;
      S v[YW];
#pragma unroll
      for (int k = 0; k < YW; ++k) v[k] = acc[i][j + k];
      put<YW>(p, b, v, result + row * plane, row);
    }
  }
}
#endif
#elif __CUDA_ARCH__ >= 800
#if !POINT
#if MASK == 64
typedef u64 Mask;
#else
typedef u32 Mask;
#endif
// A tap of the block: where it is in x and in the filters, in pieces, from that of tap (0, 0, 0).
struct Step {
  u32 x, w;
#if !MASK
  i32 d[3];
#endif
};
// By 256 - kColumns threads.
__device__ inline void fill_steps(const Sums& p, const Block& b, Step* steps, u32 thread) {
  const i32 taps = taps_of(b.lines);
  for (i32 t = (i32)thread; t < taps; t += 256 - kColumns) {
    const ConvTap tap = tap_of(b.lines, (u32)t);
    Step step{0, (u32)tap.in_kernel(b.lines, p.shape) * (u32)p.pieces};
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      const i32 d = tap.t[a] * b.lines[a].delta;
      step.x = step.x * (u32)b.lines[a].in + (u32)d;
#if !MASK
      step.d[a] = d;
#endif
    }
    step.x *= (u32)(p.shape.groups * p.pieces);
    steps[t] = step;
  }
}
#if MASK
// Which taps of a window are inside: those of `before`, each followed by all taps of this axis.
__device__ __forceinline__ Mask follow(Mask before, const ConvLine& line, i32 first) {
  Mask own = 0, all = 0;
  for (i32 t = 0; t < line.taps; ++t)
    own |= (Mask)((u32)(first + t * line.delta) < (u32)line.in) << t;
  for (i32 at = 0; before != 0; before >>= 1, at += line.taps)
    if (before & 1) all |= own << at;
  return all;
}
#endif
// A window: its pixel of tap (0, 0, 0) in pieces, and which taps are inside.
struct Window {
  u32 base;
#if MASK
  Mask is_inside;
#else
  i32 at[3];
#endif
};
__device__ inline Window window_at(const Sums& p, const Block& b, u32 column) {
  const bool real = column < b.total;
  const ConvWindow w = window_of(b.lines, real ? column : 0);
  Window window;
  u32 from = w.image;
  [[maybe_unused]] Mask mask = real;
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    const ConvLine& line = b.lines[a];
    const i32 first = w.o[a] * line.step + line.first;
    from = from * (u32)line.in + (u32)first;
#if MASK
    mask = follow(mask, line, first);
#else
    window.at[a] = real ? first : -(1 << 30);  // no tap is inside
#endif
  }
  window.base = (from * (u32)p.shape.groups + b.group) * (u32)p.pieces;
#if MASK
  window.is_inside = mask;
#endif
  return window;
}
// What a thread brings of x: a piece of 8 channels of every 32nd window.
struct Pixels {
  static constexpr int kLoads = kColumns / 32;
  Window window[kLoads];
#if OUTSIDE
  u32 zero;
  i32 channels;  // of a group
#endif
#if !MASK
  i32 in[3];
#endif

  // Lists the windows in memory that the stages will use, and the taps in `steps`.
  __device__ Pixels(const Sums& p, const Block& b, void* memory, Step* steps) {
    Window* const list = (Window*)memory;
    if (threadIdx.x < kColumns)
      list[threadIdx.x] = window_at(p, b, b.column + threadIdx.x);
    else
      fill_steps(p, b, steps, threadIdx.x - kColumns);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) window[i] = list[threadIdx.x / 8 + i * 32];
    __syncthreads();
#if !MASK
#pragma unroll
    for (int a = 0; a < 3; ++a) in[a] = b.lines[a].in;
#endif
#if OUTSIDE
    zero = x_zero_of(p.ends), channels = p.shape.c;
#endif
  }
  __device__ __forceinline__ void bring(const T* x, u32 stage, u32 tap, const Step& step, u32 piece,
                                        bool real) const {
    const u32 to = stage + piece_by_k(threadIdx.x / 8, threadIdx.x % 8 * 8);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#if MASK
      const bool inside = real && (window[i].is_inside >> tap & 1);
#else
      bool inside = real;
#pragma unroll
      for (int a = 0; a < 3; ++a) inside &= (u32)(window[i].at[a] + step.d[a]) < (u32)in[a];
#endif
#if OUTSIDE
      if (real && !inside) {
        store_padding(to + i * 32 * 128, zero, channels - (i32)piece * 16);
        continue;
      }
#endif
      // Nothing is read where the tap is outside.
      copy_async(to + i * 32 * 128, x + (i64)(u32)(window[i].base + step.x + piece) * 8, inside);
    }
  }
};
#endif
// The same of x as it is: a piece of 16 bytes of windows of every kDown-th channel.
struct Channels {
  static constexpr int kWide = 16 / sizeof(X), kAcross = kColumns / kWide, kDown = 256 / kAcross;
  static constexpr int kLoads = kDepth * 2 / sizeof(X) / kDown, kParts = kWide / XW;
  const X *x, *from[kParts];
  bool real[kParts];

  __device__ Channels(const Sums& p, const Block& b) : x((const X*)p.x) {
    const ConvShape& s = p.shape;
    const i64 pixels = pixels_of(b.lines);
#pragma unroll
    for (int k = 0; k < kParts; ++k) {
      const u32 column = b.column + threadIdx.x % kAcross * kWide + k * XW;
      real[k] = column < b.total;
      const u32 image = real[k] ? column / (u32)pixels : 0;
      from[k] = x + (((i64)image * s.groups + b.group) * s.c + threadIdx.x / kAcross) * pixels +
                (column - image * (u32)pixels);
    }
  }
  __device__ __forceinline__ void bring(const Sums& p, const Block& b, u32 stage, u32 term) {
    const i64 pixels = pixels_of(b.lines);
    const int row = threadIdx.x / kAcross, piece = threadIdx.x % kAcross * 8;
    const u32 to = stage + (sizeof(X) == 1 ? piece_by_k(row, piece) : piece_across(row, piece));
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const u32 c = term + row + i * kDown;
#pragma unroll
      for (int k = 0; k < kParts; ++k) {
        const bool inside = real[k] && c < (u32)p.shape.c;
        const X* const at = inside ? from[k] + (i64)(term + i * kDown) * pixels : x;
        copy_part_async<XW * sizeof(X)>(to + i * kDown * 128 + k * XW * sizeof(X), at, inside);
      }
    }
  }
};

#if defined(FILTER) && (COLUMNS || POINT)
typedef ByteSums<TILE_M, POINT, COLUMNS> Tile;
#else
typedef TileSums<TILE_M, S> Tile;
#endif
extern "C" __global__ void __launch_bounds__(256, Tile::kBlocks) sums(const Sums p) {
  extern __shared__ __align__(1024) u8 smem[];
  const Block b = block_of(p, kColumns);
  if (b.column >= b.total) return;
  const ConvShape& s = p.shape;
#ifdef FILTER
  ChannelEnds* const channels = (ChannelEnds*)(smem + p.ends_at);  // read behind barriers
  if (threadIdx.x < TILE_M && b.row + (i32)threadIdx.x < s.m)
    channels[threadIdx.x] = ChannelEnds(p.ends, b.group * (u32)s.m + (u32)b.row + threadIdx.x);
#endif
  const u32 pieces = (u32)taps_of(b.lines) * (u32)p.pieces;
  const u32 begin = min(b.split * p.split_terms / 8, pieces),
            end = min(begin + p.split_terms / 8, pieces);
  const int steps = (int)((end - begin + kDepth / 8 - 1) / (kDepth / 8));
  const u32 own = begin + threadIdx.x % 8;  // the thread's piece of the first step
  const i32 kernel = s.axes[0].kernel * s.axes[1].kernel * s.axes[2].kernel;
  // Filters: every 32nd row.
  constexpr int kLoads = TILE_M / 32;
  const T* const w = (const T*)p.w;
  const u32 row = threadIdx.x / 8, row_pieces = (u32)kernel * (u32)p.pieces;
  const u32 filter = (b.group * (u32)s.m + (u32)b.row + row) * row_pieces;
  const u32 left_place = piece_by_k(row, threadIdx.x % 8 * 8);
#if POINT
  Channels source(p, b);
#else
  const T* const x = (const T*)p.x;
  Step* const taps = (Step*)(smem + p.steps_at);
  const Pixels source(p, b, smem, taps);
  const Divisor by_pieces = divisor_of((u32)p.pieces);
#endif
  Tile sums;
  sum_stages<TILE_M, true, !POINT, T>(
      sums, shared_address(smem), steps, [&](int step, u32 left, u32 right) {
        const u32 piece = own + (u32)step * (kDepth / 8);
        const bool real = piece < end;
#if POINT
        const u32 at = piece;
#else
        const u32 tap = real ? by_pieces.quotient(piece) : 0, c = piece - tap * (u32)p.pieces;
        const Step there = taps[tap];
        const u32 at = there.w + c;
#endif
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
          copy_async(left + left_place + i * 32 * 128,
                     w + (i64)(u32)(filter + i * 32 * row_pieces + at) * 8,
                     real && b.row + (i32)row + i * 32 < s.m);
#if POINT
        source.bring(p, b, right, (begin + (u32)step * (kDepth / 8)) * source.kWide);
#else
        source.bring(x, right, tap, there, c, real);
#endif
      });
  // Through shared memory, so that neighbouring windows are stored together.
  constexpr int kPitch = kColumns + 8;
  S* const tile = (S*)smem;
  __syncthreads();
  sums.each([&](int i, int j, S first, S second) {
    store(tile + i * kPitch + j, Vec<S, 2>{{first, second}});
  });
#if COLUMNS
  S* const columns = tile + TILE_M * kPitch;
  sums.each_column([&](int j, S first, S second) {
    store(columns + j, Vec<S, 2>{{first, second}});
  });
#endif
  __syncthreads();
  constexpr int kAcross = kColumns / YW, kDown = 256 / kAcross;
  const u32 j = threadIdx.x % kAcross * YW;
  if (b.column + j >= b.total) return;
  const i64 result = result_of(p, b, b.column + j), plane = plane_of(b.lines);
#if defined(FILTER) && !SPLIT
  const ResultEnds ends(p.ends);
#endif
  for (int i = threadIdx.x / kAcross; i < TILE_M; i += kDown) {
    if (b.row + i >= s.m) break;
    S v[YW];
    const Vec<S, YW> t = load<S, YW>(tile + i * kPitch + j);
#pragma unroll
    for (int k = 0; k < YW; ++k) v[k] = t.v[k];
#if COLUMNS
#pragma unroll
    for (int k = 0; k < YW; ++k) v[k] -= channels[i].w_zero * columns[j + k];
#endif
#if defined(FILTER) && !SPLIT
    finish<YW>(p.ends, ends, channels[i], v, result + (b.row + i) * plane);
#else
    put<YW>(p, b, v, result + (b.row + i) * plane, b.row + i);
#endif
  }
}
#endif
