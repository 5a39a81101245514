//variant: POINTS=200 RADICES=10,10,2 LANES=20 COLUMNS=1 THREADS=320 PARTS=2 EVEN=1 REFLECTS=1 WINDOW=1 MEL=0 TWO_SIDED=0 PAIRS=1 OUT8=1 AFFINE=0 VEC=4
//variant: POINTS=9 RADICES=9 LANES=1 COLUMNS=1 THREADS=16 PARTS=2 EVEN=0 REFLECTS=0 WINDOW=0 MEL=0 TWO_SIDED=1 PAIRS=0 OUT8=0 AFFINE=0 VEC=1
//variant: POINTS=512 RADICES=8,8,8 LANES=32 COLUMNS=1 THREADS=512 PARTS=2 EVEN=1 REFLECTS=0 WINDOW=1 MEL=1 TWO_SIDED=0 PAIRS=0 OUT8=1 AFFINE=0 VEC=1
//variant: POINTS=8 RADICES=8 LANES=1 COLUMNS=1 THREADS=16 PARTS=2 EVEN=1 REFLECTS=1 WINDOW=1 MEL=2 TWO_SIDED=0 PAIRS=1 OUT8=1 AFFINE=1 VEC=4
//variant: POINTS=225 RADICES=15,15 LANES=15 COLUMNS=1 THREADS=240 PARTS=2 EVEN=0 REFLECTS=1 WINDOW=1 MEL=3 TWO_SIDED=0 PAIRS=0 OUT8=1 AFFINE=1 VEC=1
// SPDX-License-Identifier: Apache-2.0
// Transforms of frames that are read from the signal. A block has THREADS / LANES neighbouring frames. EVEN: a frame
// has 2 POINTS samples, else POINTS. PAIRS: frames begin on 8 bytes, and the window covers them. MEL 0: the result is
// bins [batch, bins, frames]. Else it is the logarithms of powers on the mel scale, [batch, filters, frames]: 1: without
// a range, 2: in the range below the maximum of their frame, 3: without it yet; the maximum of each block goes to
// `maxima`, and `range` does the rest.
//entry: fft_frames = frames(In, In, Out, In, In, In, f32*, FftFrames)
//entry: mel_range = range(Out, const f32*, MelRange)
#include "fft.cuh"

extern __shared__ __align__(16) unsigned char memory[];

constexpr int kFrames = THREADS / LANES;
constexpr int kSize = EVEN ? 2 * POINTS : POINTS;
// The same bins of neighbouring frames are in different banks.
constexpr int kArea = fft_area(POINTS, 1, 2, 32 / kFrames);

__device__ __forceinline__ c64 pair_at(const f32* x) {
  const Vec<f32, 2> v = load<f32, 2>(x);
  return {v.v[0], v.v[1]};
}
// The larger one; NaN if there is one.
__device__ __forceinline__ f32 larger(f32 most, f32 v) { return v > most || v != v ? v : most; }
__device__ __forceinline__ f32 ranged(f32 y, f32 least) {
  y = larger(y, least);
  return AFFINE ? (y + 4.f) * 0.25f : y;
}
constexpr f32 kLeast = -3.402823466e38f;

// The frame that begins at sample `start`.
struct Frame {
  const f32 *signal, *window;
  i64 start;
  bool live, inside;

  __device__ __forceinline__ f32 sample(int j, const FftFrames& g) const {
    if (j < g.first || j >= g.first + g.window) return 0.f;
    i64 at = start + j;
    if (!inside && (at < 0 || at >= g.samples)) {
      if (!REFLECTS) return 0.f;
      at = at < 0 ? -at : 2 * (g.samples - 1) - at;
    }
    return WINDOW ? signal[at] * window[j - g.first] : signal[at];
  }
  // Operand i of the transform.
  __device__ __forceinline__ c64 operand(int i, const FftFrames& g) const {
    if (!live) return {0, 0};
    if constexpr (!EVEN) return {sample(i, g), 0};
    if constexpr (PAIRS) {
      if (inside) {
        const c64 v = pair_at(signal + start + 2 * i);
        if constexpr (!WINDOW) return v;
        const c64 w = pair_at(window + 2 * i);
        return {v.re * w.re, v.im * w.im};
      }
    }
    return {sample(2 * i, g), sample(2 * i + 1, g)};
  }
};

// f(k, bin k) for the bins of a frame whose transform is in `area`, from k = from on in steps.
template <class F>
__device__ __forceinline__ void each_bin(const f32* area, const c64* roots, int from, int step,
                                         F f) {
  const Lane lane{0, 0};
  if constexpr (EVEN) {
    for (int k = from; k <= POINTS / 2; k += step) {
      const TwoBins two = split_bins(kept(area, lane, k), kept(area, lane, k == 0 ? 0 : POINTS - k),
                                     entry_of(roots, kSplitRoots + k));
      f(k, two.low);
      f(POINTS - k, two.high);
    }
  } else {
    for (int k = from; k <= POINTS / 2; k += step) f(k, kept(area, lane, k));
  }
}
// Powers take the places of the transform. The last one of an even frame has none there: that of an imaginary part.
__device__ __forceinline__ int power_place(int k) {
  return EVEN && k == POINTS ? kPart : Lane{0, 0}.place(k);
}

extern "C" __global__ void __launch_bounds__(THREADS, kBlocks)
    frames(const void* x, const void* window, void* y, const void* table, const void* bank,
           const void* weights, f32* maxima, const FftFrames g) {
  const int own = threadIdx.x / LANES;
  const Lane lane{(int)threadIdx.x % LANES, 0};
  const u32 group = blockIdx.x % g.groups;
  const i64 batch = blockIdx.x / g.groups, first = (i64)group * kFrames;
  f32* const areas = reinterpret_cast<f32*>(memory);
  const c64* const roots = static_cast<const c64*>(table);

  Frame frame;
  frame.signal = static_cast<const f32*>(x) + batch * g.samples;
  frame.window = static_cast<const f32*>(window);
  frame.start = (first + own) * g.hop - g.border;
  frame.live = first + own < g.frames;
  frame.inside = frame.start >= 0 && frame.start + kSize <= g.samples;
  f32* const area = areas + own * kArea;
  transform_kept(roots, area, lane, [&](int i) { return frame.operand(i, g); });

  // From here on neighbouring threads have neighbouring frames.
  const int column = threadIdx.x % kFrames, row = threadIdx.x / kFrames;
  const bool live = first + column < g.frames;
  if constexpr (MEL == 0) {
    __syncthreads();
    if (!live) return;
    constexpr int kBins = TWO_SIDED ? kSize : kSize / 2 + 1;
    c64* const to = static_cast<c64*>(y) + batch * kBins * g.frames + first + column;
    const auto put = [&](int k, c64 v) {
      c64* const at = to + k * g.frames;
      if constexpr (OUT8)
        store<f32, 2>(&at->re, {{v.re, v.im}});
      else
        *at = v;
    };
    each_bin(areas + column * kArea, roots, row, LANES, [&](int k, c64 v) {
      const c64 bin = scaled(v, g.factor);
      put(k, bin);
      if (TWO_SIDED && k > 0 && 2 * k < kSize) put(kSize - k, conjugate(bin));
    });
  } else {
    // A thread reads the numbers k and POINTS - k, and alone writes there.
    each_bin(area, roots, lane.index, LANES,
             [&](int k, c64 v) { area[power_place(k)] = v.re * v.re + v.im * v.im; });
    __syncthreads();
    __shared__ f32 most[THREADS];
    const MelFilter* const filters = static_cast<const MelFilter*>(bank);
    const f32* const powers = areas + column * kArea;
    f32* const to = static_cast<f32*>(y) + batch * g.filters * g.frames + first + column;
    f32 own_most = kLeast;
    if (live)
      for (int m = row; m < g.filters; m += LANES) {
        const MelFilter filter = filters[m];
        const f32* const w = static_cast<const f32*>(weights) + filter.weights;
        f32 sum = 0;
        for (int k = 0; k < filter.count; ++k)
          sum = fmaf(w[k], powers[power_place(filter.bin + k)], sum);
        const f32 log = sum <= g.floor ? g.lowest : logf(sum) * g.log_factor;
        own_most = larger(own_most, log);
        to[m * g.frames] = MEL == 1 ? ranged(log, log) : log;
      }
    if constexpr (MEL == 1) return;
    most[threadIdx.x] = own_most;
    __syncthreads();
    if (threadIdx.x < kFrames)
      for (int k = 1; k < LANES; ++k)
        most[threadIdx.x] = larger(most[threadIdx.x], most[k * kFrames + threadIdx.x]);
    __syncthreads();
    if constexpr (MEL == 2) {
      if (live)
        for (int m = row; m < g.filters; m += LANES)
          to[m * g.frames] = ranged(to[m * g.frames], most[column] - g.range);
    } else if (threadIdx.x == 0) {
      f32 all = most[0];
      for (int k = 1; k < kFrames; ++k) all = larger(all, most[k]);
      maxima[blockIdx.x] = all;
    }
  }
}

// In place.
extern "C" __global__ void __launch_bounds__(256)
    range(void* y, const f32* maxima, const MelRange g) {
  __shared__ f32 most[256];
  const i64 group = blockIdx.x / g.blocks;
  f32 own = kLeast;
  for (i64 k = threadIdx.x; k < g.maxima; k += 256) own = larger(own, maxima[group * g.maxima + k]);
  most[threadIdx.x] = own;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) most[threadIdx.x] = larger(most[threadIdx.x], most[threadIdx.x + half]);
    __syncthreads();
  }
  const f32 least = most[0] - g.range;
  f32* const row = static_cast<f32*>(y) + group * g.row;
  for (i64 i = ((i64)(blockIdx.x % g.blocks) * 256 + threadIdx.x) * VEC; i < g.row;
       i += (i64)g.blocks * 256 * VEC) {
    Vec<f32, VEC> v = load<f32, VEC>(row + i);
    for (int k = 0; k < VEC; ++k) v.v[k] = ranged(v.v[k], least);
    store(row + i, v);
  }
}
