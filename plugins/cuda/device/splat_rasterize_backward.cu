//variant: TYPE=f32 CHANNELS=3
//variant: TYPE=f32 CHANNELS=32
//variant: TYPE=f64 CHANNELS=1
//variant: TYPE=f64 CHANNELS=32
// SPDX-License-Identifier: Apache-2.0
// splat_rasterize_backward: a block for each tile. A first pass finds the light behind all entries; a
// second one walks back and divides each entry's share out again. Each entry of a tile has a place for
// its sums over the pixels; the sums of a Gaussian are added up in the order of its entries.
//entry: splat_differentiate = differentiate(SplatScene, SplatGradients)
//entry: splat_clear_segments = clear_segments(SplatScene, SplatGradients)
//entry: splat_find_segments = find_segments(SplatScene, SplatGradients)
//entry: splat_add_segments = add_segments(SplatScene, SplatGradients, void*)
//entry: splat_add_images = add_images(SplatScene, In, Out)
//entry: splat_add_tiles = add_tiles(SplatScene, In, Out)
#include "splat.cuh"

// Sums of an entry: h, h u, h dy, h dx², h dx dy, h dy², colors, where h is -d(loss)/d(power).
constexpr int kOwn = 6, kSums = kOwn + CHANNELS;
constexpr int kBatch = batch_in(20992);
// A pixel has two numbers of an entry, h and the weight of its color. A warp collects those of kSlots
// entries; then kParts lanes have an entry, each with the kSlots pixels of a part of the warp's area.
constexpr int kSlots = sizeof(T) == 4 ? 8 : 4, kParts = 32 / kSlots;
static_assert(kWarpWidth % kSlots == 0, "a part is in a row of pixels");
// With few channels the gradient of the image is in shared memory.
constexpr bool kKept = CHANNELS <= 4;

struct Collected {
  alignas(16) T h[kSlots][36], weight[kSlots][36];  // 36: parts of entries in different banks
  alignas(16) T upstream[kKept ? CHANNELS : 1][kKept ? 32 : 1];
};
constexpr int kRoundBytes = kSums * kWarps * (int)sizeof(T);
constexpr int kMost =
    48 * 1024 - (int)sizeof(BatchOf<kBatch>) - kWarps * (int)sizeof(Collected) - 128;
// Entries whose sums of all warps are in shared memory together.
constexpr int kRound = kRoundBytes * 64 <= kMost   ? 64
                       : kRoundBytes * 32 <= kMost ? 32
                       : kRoundBytes * 16 <= kMost ? 16
                       : kRoundBytes * 8 <= kMost  ? 8
                                                   : 4;
static_assert(kRoundBytes * kRound <= kMost && kBatch % kRound == 0, "");

struct Memory {
  BatchOf<kBatch> batch;
  Collected collected[kWarps];
  T sums[kRound][kWarps][kSums];
  u64 wrote[kWarps];  // a bit for each entry
};

__device__ inline f32 reciprocal(f32 x) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline f64 reciprocal(f64 x) { return 1 / x; }

// The sums over the parts of an entry of N numbers of each lane, in a fixed order. In each step a lane
// gives away half of its numbers. It ends with those from `first` on, `count` of them.
struct Share {
  int first, count;
};
__device__ inline Share share_of(int lane) {
  Share s = {0, kSums};
  for (int size = kSums, o = kParts / 2; o > 0; size = (size + 1) / 2, o /= 2) {
    const int half = (size + 1) / 2;
    if (lane & o)
      s.first += half, s.count = max(s.count - half, 0);
    else
      s.count = min(s.count, half);
  }
  return s;
}
template <int N, int O>
__device__ inline void sum_parts(T (&v)[kSums], int lane) {
  constexpr int half = (N + 1) / 2;
  const bool upper = (lane & O) != 0;
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const T other = i + half < N ? v[i + half < N ? i + half : 0] : (T)0;
    const T kept = upper ? other : v[i], given = upper ? v[i] : other;
    v[i] = kept + __shfl_xor_sync(~0u, given, O);
  }
  if constexpr (O > 1) sum_parts<half, O / 2>(v, lane);
}
constexpr int shared_among(int n, int lanes) {
  return lanes > 1 ? shared_among((n + 1) / 2, lanes / 2) : n;
}
constexpr int kShare = shared_among(kSums, kParts);  // numbers that a lane ends with

// The gradient of the image in the pixels of a lane's part.
struct Part {
  T x, y;  // of the middle of the part, in the area
  const T* upstream;
  int real;  // pixels in the image
};

__device__ inline Part part_of(const SplatScene& s, const Area& a, const SplatGradients& g) {
  const i32 warp = threadIdx.x / 32, at = threadIdx.x % kParts * kSlots;
  const i32 x = warp % 2 * kWarpWidth + at % kWarpWidth,
            y = warp / 2 * kWarpHeight + at / kWarpWidth;
  Part p;
  p.x = (T)(x + (kSlots - 1) / 2.0), p.y = (T)y;
  p.real = y < a.rows ? min(a.columns - x, kSlots) : 0;
  p.upstream = static_cast<const T*>(g.dimage) +
               ((a.image * s.height + a.y + y) * s.width + a.x + x) * CHANNELS;
  return p;
}

// The sums of the entries that a warp collected. k: the lane's entry, from `round` on; -1: none.
__device__ inline void add_up(Memory& memory, const Part& part, const Share& share, int round,
                              int k) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int slot = lane / kParts, at = lane % kParts * kSlots;
  const Collected& own = memory.collected[warp];
  __syncwarp();
  T v[kSums];
#pragma unroll
  for (int n = 0; n < kSums; ++n) v[n] = 0;
  if (k >= 0) {
    T h[kSlots], weight[kSlots];
#pragma unroll
    for (int i = 0; i < kSlots; ++i)
      h[i] = own.h[slot][at + i], weight[i] = own.weight[slot][at + i];
    T sum = 0, by_x = 0, by_square = 0;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const T x = (T)(i - (kSlots - 1) / 2.0);
      sum += h[i];
      by_x = fma(x, h[i], by_x);
      by_square = fma(x * x, h[i], by_square);
    }
    const Staged& e = memory.batch.entry[round + k];
    // In the middle of the part. A pixel's dx is dx - x, and its u is u - x.
    const T dy = e.dy - part.y, u = fma(-e.ratio, part.y, e.u - part.x), dx = fma(-e.ratio, dy, u);
    const T along = fma(dx, sum, -by_x);  // h dx
    v[0] = sum, v[1] = fma(u, sum, -by_x), v[2] = dy * sum;
    v[3] = fma(dx, along, fma(-dx, by_x, by_square));
    v[4] = dy * along, v[5] = dy * v[2];
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
      T color = 0;
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        T upstream;
        if constexpr (kKept)
          upstream = own.upstream[c][at + i];
        else
          upstream = i < part.real ? part.upstream[i * CHANNELS + c] : (T)0;
        // A gradient that is not finite concerns only the entries of its pixel.
        if (weight[i] != 0) color = fma(weight[i], upstream, color);
      }
      v[kOwn + c] = color;
    }
  }
  sum_parts<kSums, kParts / 2>(v, lane);
  if (k >= 0) {
#pragma unroll
    for (int n = 0; n < kShare; ++n)
      if (n < share.count) memory.sums[k][warp][share.first + n] = v[n];
  }
  __syncwarp();
}

extern "C" __global__ void __launch_bounds__(kThreads, sizeof(T) == 8 ? 1
                                                       : kKept        ? 4
                                                                      : 2)
    differentiate(const SplatScene s, const SplatGradients g) {
  __shared__ Memory memory;
  BatchOf<kBatch>& batch = memory.batch;
  Collected& own = memory.collected[threadIdx.x / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Share share = share_of(lane);
  const i32 parts = areas_along(s) * areas_along(s);
  const i64 tile = blockIdx.x;
  const Range list = range_of(s, tile);
  T* const sums = static_cast<T*>(g.sums);
  T behind[CHANNELS] = {};
  for (i32 part = 0; part < parts; ++part) {
    const Area a = area_of(s, tile, part);
    if (part > 0 && (a.columns <= 0 || a.rows <= 0)) continue;  // beyond the image
    const Pixel pixel = pixel_of(s, a);
    const T x = (T)pixel.x, y = (T)pixel.y;
    i32 last = pixel.real ? min(g.last[pixel.at], (i32)list.end - 1) : -1;
    if (last < (i32)list.begin) last = -1;
    const i32 most = join_lanes<kThreads>(last, Most());
    const i32 warp_most = choose_warp<32>(last, Most());

    // What passes all entries.
    T light = 1;
    for (u32 base = list.begin; (i64)base <= most; base += kBatch) {
      __syncthreads();
      for (int k = threadIdx.x; k < kBatch; k += kThreads)
        stage(s, a, base + k, (u32)most + 1, batch, k);
      __syncthreads();
      for (int first = 0; first < kBatch && (i64)base + first <= warp_most; first += 32) {
        u32 reached = __ballot_sync(~0u, batch.warps[first + lane] >> warp & 1);
        while (reached != 0) {
          const int k = first + __ffs(reached) - 1;
          reached &= reached - 1;
          const Seen seen = see(batch.entry[k], x, y);
          if (seen.passes && (i64)base + k <= last) light *= 1 - min(seen.raw, kMostAlpha);
        }
      }
    }

    // rest: what more light behind the entry would change.
    T upstream[CHANNELS], rest = 0;
    if (pixel.real && g.dalpha) rest = static_cast<const T*>(g.dalpha)[pixel.at];
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
      upstream[c] = pixel.real ? static_cast<const T*>(g.dimage)[pixel.at * CHANNELS + c] : (T)0;
      if constexpr (kKept) own.upstream[c][lane] = upstream[c];
      if (s.background) {
        rest -= static_cast<const T*>(s.background)[a.image * CHANNELS + c] * upstream[c];
        if (g.behind) behind[c] += pixel.real ? light * upstream[c] : (T)0;
      }
    }
    rest *= light;
    const Part pixels = part_of(s, a, g);

    const u32 there = most < 0 ? 0 : (u32)most + 1 - list.begin;
    for (i64 batches = ((i64)there + kBatch - 1) / kBatch - 1; batches >= 0; --batches) {
      const u32 base = list.begin + (u32)batches * kBatch;
      __syncthreads();
      for (int k = threadIdx.x; k < kBatch; k += kThreads)
        stage(s, a, base + k, (u32)most + 1, batch, k);
      for (int round = kBatch - kRound; round >= 0; round -= kRound) {
        if ((i64)base + round > most) continue;
        __syncthreads();  // the batch is there, and the sums before were read
        u64 wrote = 0;
        int count = 0, collected = -1;  // the entry of the lane's slot
        for (int first = (kRound - 1) / 32 * 32; first >= 0; first -= 32) {
          const bool mine = first + lane < kRound &&
                            (i64)base + round + first + lane <= warp_most &&
                            (batch.warps[min(round + first + lane, kBatch - 1)] >> warp & 1);
          u32 reached = __ballot_sync(~0u, mine);
          while (reached != 0) {
            const int bit = 31 - __clz((int)reached), k = first + bit;
            reached ^= 1u << bit;
            const Staged& e = batch.entry[round + k];
            const Seen seen = see(e, x, y);
            const bool passes = seen.passes && (i64)base + round + k <= last;
            if (!__any_sync(~0u, passes)) continue;
            wrote |= (u64)1 << k;
            T h = 0, weight = 0;
            if (passes) {
              const T alpha = min(seen.raw, kMostAlpha), through = reciprocal(1 - alpha);
              const T before = light * through;
              weight = alpha * before;
              T match = 0;
#pragma unroll
              for (int c = 0; c < CHANNELS; ++c)
                match = fma(batch.color[round + k][c], upstream[c], match);
              const T dalpha = fma(before, match, rest * through);
              light = before;
              rest = fma(-weight, match, rest);
              // A saturated alpha does not move.
              if (seen.raw <= kMostAlpha) h = seen.raw * dalpha;
            }
            own.h[count][lane] = h, own.weight[count][lane] = weight;
            if (lane / kParts == count) collected = k;
            if (++count < kSlots) continue;
            add_up(memory, pixels, share, round, collected);
            count = 0, collected = -1;
          }
        }
        if (count > 0) add_up(memory, pixels, share, round, collected);
        if (lane == 0) memory.wrote[warp] = wrote;
        __syncthreads();
        for (int i = threadIdx.x; i < kRound * kSums; i += kThreads) {
          const int k = i / kSums, n = i % kSums;
          const i64 place = (i64)base + round + k;
          if (place > most) continue;
          T sum = 0;
          for (int w = 0; w < kWarps; ++w)
            if (memory.wrote[w] >> k & 1) sum += memory.sums[k][w][n];
          T* const to = sums + place * kSums + n;
          *to = part > 0 ? *to + sum : sum;
        }
      }
    }
    // Entries that no pixel of the first area sees.
    if (part == 0) {
      const i64 first = ((i64)list.begin + there) * kSums, end = (i64)list.end * kSums;
      for (i64 i = first + threadIdx.x; i < end; i += kThreads) sums[i] = 0;
    }
    __syncthreads();  // the next area adds to these sums
  }
  if (!g.behind) return;
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) {
    const T all = join_lanes<kThreads>(behind[c], Add());
    if (threadIdx.x == 0) static_cast<T*>(g.behind)[tile * CHANNELS + c] = all;
  }
}

extern "C" __global__ void __launch_bounds__(256)
    clear_segments(const SplatScene s, const SplatGradients g) {
  const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
  if (at < 2 * s.images * s.points) g.begins[at] = 0;
}

// Where the entries of each pair begin and end. Those before all tiles come to no sum.
extern "C" __global__ void __launch_bounds__(256)
    find_segments(const SplatScene s, const SplatGradients g) {
  const i64 at = (i64)blockIdx.x * 256 + threadIdx.x, all = *g.sorted;
  if (at >= all) return;
  const i64 pairs = s.images * s.points, number = (i64)(g.by_pair[at] >> 32);
  if (number == 0) return;
  if (at == 0 || (i64)(g.by_pair[at - 1] >> 32) != number) g.begins[number - 1] = (u32)at;
  if (at + 1 == all || (i64)(g.by_pair[at + 1] >> 32) != number)
    g.begins[pairs + number - 1] = (u32)at + 1;
}

constexpr int kLanes = kSums <= 16 ? 16 : 32, kEach = (kSums + kLanes - 1) / kLanes;

// Some lanes for each pair, a sum for each.
extern "C" __global__ void __launch_bounds__(256)
    add_segments(const SplatScene s, const SplatGradients g, void* opacities) {
  constexpr int ahead = 4;
  const i64 pairs = s.images * s.points,
            pair = (i64)blockIdx.x * (256 / kLanes) + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const bool real = pair < pairs;
  const u32 begin = real ? g.begins[pair] : 0, end = real ? g.begins[pairs + pair] : 0;
  const u32 least = s.images * s.rows * s.columns > 0 ? (u32)max(s.offsets[0], 0) : 0;
  T sum[kEach] = {};
  for (u32 i = begin; i < end; i += ahead) {
    T v[ahead][kEach];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const u32 place = i + k < end ? (u32)g.by_pair[i + k] : 0;
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        const int at = n * kLanes + lane;
        v[k][n] = i + k < end && place >= least && at < kSums
                      ? static_cast<const T*>(g.sums)[(i64)place * kSums + at]
                      : (T)0;
      }
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k)
#pragma unroll
      for (int n = 0; n < kEach; ++n) sum[n] += v[k][n];
  }
  T own[kOwn];
#pragma unroll
  for (int n = 0; n < kOwn; ++n) own[n] = __shfl_sync(~0u, sum[0], n, kLanes);
  if (!real) return;
  if (g.dcolors) {
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int at = n * kLanes + lane - kOwn;
      if (at >= 0 && at < CHANNELS) static_cast<T*>(g.dcolors)[pair * CHANNELS + at] = sum[n];
    }
  }
  if (lane > 0) return;
  constexpr T ln2 = (T)0.6931471805599453;
  const Pair p = static_cast<const Pair*>(s.prepared)[pair];
  if (g.dmeans2d) {
    // A conic that is not finite times a sum of 0 is NaN.
    const bool none = own[1] == 0 && own[2] == 0;
    const T slant = static_cast<const T*>(s.conics)[3 * pair + 1];
    const T dx = 2 * p.square * ln2 * own[1] + p.mixed * ln2 * own[2];
    const T dy = slant * own[1] + 2 * p.rest * ln2 * own[2];
    static_cast<T*>(g.dmeans2d)[2 * pair] = none ? (T)0 : -dx;
    static_cast<T*>(g.dmeans2d)[2 * pair + 1] = none ? (T)0 : -dy;
  }
  if (g.dconics) {
    T* const to = static_cast<T*>(g.dconics) + 3 * pair;
    to[0] = own[3] * (T)-0.5, to[1] = -own[4], to[2] = own[5] * (T)-0.5;
  }
  if (opacities) static_cast<T*>(opacities)[pair] = own[0] == 0 ? (T)0 : own[0] / p.opacity;
}

// Gradients of opacities, over all images.
extern "C" __global__ void __launch_bounds__(256)
    add_images(const SplatScene s, const void* from, void* to) {
  const i64 point = (i64)blockIdx.x * 256 + threadIdx.x;
  if (point >= s.points) return;
  T sum = 0;
  for (i64 image = 0; image < s.images; ++image)
    sum += static_cast<const T*>(from)[image * s.points + point];
  static_cast<T*>(to)[point] = sum;
}

// A block for each channel of the background of an image.
extern "C" __global__ void __launch_bounds__(256)
    add_tiles(const SplatScene s, const void* from, void* to) {
  const i64 image = blockIdx.x / CHANNELS, each = s.rows * s.columns;
  const T* const own =
      static_cast<const T*>(from) + image * each * CHANNELS + blockIdx.x % CHANNELS;
  T sum = 0;
  for (i64 tile = threadIdx.x; tile < each; tile += 256) sum += own[tile * CHANNELS];
  sum = join_lanes<256>(sum, Add());
  if (threadIdx.x == 0) static_cast<T*>(to)[blockIdx.x] = sum;
}
