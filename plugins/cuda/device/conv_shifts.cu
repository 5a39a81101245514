// SPDX-License-Identifier: Apache-2.0
// A 2d convolution or its transpose of halves on sm_90, from a grid of positions (conv.args.cuh). A
// block keeps 64 channels of the positions of a tile in shared memory. Each tap reads them from
// another row on, so pixels come once for all taps. Two warpgroups multiply; they lie DOWN by
// 2 / DOWN over a tile of 64 filters and COLUMNS positions each. One thread has the copy engine bring
// positions and filters. A block makes one tile after the other.
// With WEAVE, a warpgroup makes the sums of so many phases, whose pixels lie by turns in a line of y.
// Defines: TYPE, COLUMNS, DOWN, WEAVE, CHANNELS (of a stage that are multiplied), X_STAGES, W_STAGES,
// YW (elements of the result that are stored at once), EDGES (1: tiles may begin within so many); BIAS
// (its dtype), RESIDUAL, PRE_ACT, ACT(x), or none of them.
//variant: TYPE=bf16 COLUMNS=256 DOWN=2 WEAVE=1 CHANNELS=64 X_STAGES=2 W_STAGES=4 YW=2 EDGES=0
//variant: TYPE=bf16 COLUMNS=128 DOWN=2 WEAVE=1 CHANNELS=64 X_STAGES=2 W_STAGES=4 YW=1 EDGES=0 BIAS=f32 RESIDUAL=1 PRE_ACT=1 ACT(x)=unary_silu(x,1.f,0.f)
//variant: TYPE=f16 COLUMNS=240 DOWN=1 WEAVE=1 CHANNELS=64 X_STAGES=2 W_STAGES=3 YW=2 EDGES=1 BIAS=f16
//variant: TYPE=f16 COLUMNS=96 DOWN=1 WEAVE=1 CHANNELS=16 X_STAGES=2 W_STAGES=3 YW=1 EDGES=0
//variant: TYPE=bf16 COLUMNS=128 DOWN=2 WEAVE=2 CHANNELS=64 X_STAGES=2 W_STAGES=4 YW=2 EDGES=0
//variant: TYPE=f16 COLUMNS=96 DOWN=1 WEAVE=2 CHANNELS=64 X_STAGES=2 W_STAGES=4 YW=1 EDGES=1 BIAS=f16
//entry: conv_shifts = sums(ConvShifts)
#include "bulk.cuh"
#include "conv.args.cuh"
#include "math.cuh"
#include "wgmma.cuh"

typedef TYPE T;
typedef acc_t<T> S;
constexpr int kGroups = 2, kThreads = (kGroups + 1) * 128;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int kFilters = DOWN * 64;  // of a block
constexpr u32 kFilterBytes = kFilters * 128;
constexpr int kWidth = COLUMNS * WEAVE;  // of a row of results, which are those of a warp:
constexpr int kPitch = kWidth + 8;       // 8 rows
constexpr u32 kResultBytes = 8 * kPitch * 2;
// Registers of a thread.
constexpr int kBringing = 24, kMultiplying = 240;

// A slot of a pipeline with SLOTS of them, and the parity of its barriers' phase.
template <u32 SLOTS>
struct Slot {
  u32 at = 0, phase = 0;
  __device__ __forceinline__ void next() {
    if (++at == SLOTS) at = 0, phase ^= 1;
  }
};

// Addresses in shared memory.
struct Layout {
  u32 x_bytes, x, w, results, x_full, x_empty, w_full, w_empty;
  __device__ __forceinline__ Layout(u32 base, const ConvShifts& p)
      : x_bytes(p.rows * p.boxes * 128),
        x(base),
        w(x + X_STAGES * x_bytes),
        results(w + W_STAGES * kFilterBytes),
        x_full(results + kGroups * 4 * kResultBytes),
        x_empty(x_full + X_STAGES * 8),
        w_full(x_empty + X_STAGES * 8),
        w_empty(w_full + W_STAGES * 8) {}
};

struct Tile {
  u32 group, phase, position;  // phase: the first of WEAVE
  i32 filter;
  __device__ __forceinline__ Tile(const ConvShifts& p, u32 index) {
    filter = (i32)(index % p.tiles_m * kFilters), index /= p.tiles_m;
    phase = index % p.phases * WEAVE, index /= p.phases;
    position = index % p.tiles_n * (kGroups / DOWN * p.advance);
    group = index / p.tiles_n;
  }
};

// The planes of a tile. With WEAVE the phases have at most one, the same.
__device__ __forceinline__ u32 planes_of(const ConvShifts& p, const Tile& tile) {
  u32 planes = 0;
#pragma unroll
  for (int j = 0; j < WEAVE; ++j) planes = max(planes, p.phase[tile.phase + j].planes);
  return planes;
}
__device__ __forceinline__ u32 part_of(const ConvShifts& p, const Tile& tile, u32 plane) {
  return WEAVE > 1 ? 0 : p.planes[p.phase[tile.phase].first_plane + plane].part;
}
// The taps of a plane of phase j.
struct Taps {
  u32 first = 0, count = 0;
  __device__ __forceinline__ Taps(const ConvShifts& p, const Tile& tile, int j, u32 plane) {
    const ConvShiftPhase& phase = p.phase[tile.phase + j];
    if (WEAVE > 1 && plane >= phase.planes) return;
    const ConvShiftPlane& own = p.planes[phase.first_plane + plane];
    first = own.first_tap, count = own.taps;
  }
};

__device__ __forceinline__ void bring(const ConvShifts& p, const Layout& at) {
  Slot<X_STAGES> x;
  Slot<W_STAGES> w;
  for (u32 index = blockIdx.x; index < p.tiles; index += gridDim.x) {
    const Tile tile(p, index);
    for (u32 k = 0, planes = planes_of(p, tile); k < planes; ++k) {
      const i32 part = (i32)part_of(p, tile, k);
      for (i32 c = 0; c < p.c; c += 64) {
        barrier_wait(at.x_empty + x.at * 8, x.phase ^ 1);
        barrier_expect(at.x_full + x.at * 8, at.x_bytes);
        for (u32 box = 0; box < p.boxes; ++box)
          copy_tile(at.x + x.at * at.x_bytes + box * p.rows * 128, &p.x,
                    {c, (i32)tile.group, (i32)(tile.position + box * p.rows), part},
                    at.x_full + x.at * 8);
        x.next();
        for (int j = 0; j < WEAVE; ++j) {
          const Taps taps(p, tile, j, k);
          for (u32 t = 0; t < taps.count; ++t) {
            barrier_wait(at.w_empty + w.at * 8, w.phase ^ 1);
            barrier_expect(at.w_full + w.at * 8, kFilterBytes);
            copy_tile(at.w + w.at * kFilterBytes, &p.w,
                      {c, p.taps[taps.first + t].kernel, (i32)tile.group * p.m + tile.filter, 0},
                      at.w_full + w.at * 8);
            w.next();
          }
        }
      }
    }
  }
}

// Windows at positions before this one. Here and below woven phases are one, whose windows and
// positions are those of all.
__device__ __forceinline__ u32 windows_before(const ConvShifts& p, const ConvShiftPhase& phase,
                                              u32 position) {
  const u32 n = p.by_image.quotient(position), rest = position - n * p.by_image.value;
  const u32 r = p.by_line.quotient(rest), s = rest - r * p.by_line.value;
  const u32 rows = (u32)phase.rows, columns = (u32)phase.columns;
  const u32 image = rows * columns;
  if (n >= (u32)p.batch) return (u32)p.batch * image;
  return n * image + (r < rows ? r * columns + min(s, columns) : image);
}
// Where a window is: its image, its pixel in a channel of y, and its position.
struct Target {
  u32 image, position;
  i64 pixel;
};
// Of window o of all images.
__device__ __forceinline__ Target target_of(const ConvShifts& p, const ConvShiftPhase& phase,
                                            u32 o) {
  const u32 n = phase.by_image.quotient(o), rest = o - n * phase.by_image.value;
  const u32 r = phase.by_row.quotient(rest), s = rest - r * phase.by_row.value;
  return {n, n * p.by_image.value + r * p.by_line.value + s,
          (i64)(phase.row + (i32)r * p.spread) * p.out_columns + phase.column +
              (i32)s * (WEAVE > 1 ? 1 : p.spread)};
}

// W halves, one or two, from any of a row on.
template <int W>
__device__ __forceinline__ Vec<T, W> load_across(const T* row, u32 from) {
  if constexpr (W == 1) {
    return load<T, 1>(row + from);
  } else {
    static_assert(W == 2, "");
    const u32* const words = (const u32*)row + from / 2;
    union {
      u32 word;
      Vec<T, 2> pair;
    };
    word = __funnelshift_r(words[0], words[1], from % 2 * 16);
    return pair;
  }
}

// The windows of a tile as a warp stores them: a lane takes every 32nd vector of YW.
struct Windows {
  static constexpr int kVectors = (kWidth / YW + 31) / 32;
  static constexpr u32 kNowhere = ~0u;
  u32 from[kVectors];  // their columns
  i64 to[kVectors];    // in channel 0 of y
  u32 first, end;      // of all images
  u32 position;        // of column 0
  i64 image;           // elements of an image of y

  __device__ __forceinline__ Windows(const ConvShifts& p, const ConvShiftPhase& phase, u32 position)
      : first(windows_before(p, phase, position)),
        end(windows_before(p, phase, position + p.advance * WEAVE)),
        position(position),
        image((i64)p.groups * p.m * p.plane) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const u32 v = (first + YW - 1) / YW + i * 32 + threadIdx.x % 32;
      const Target t = target_of(p, phase, v * YW);
      from[i] = v < end / YW ? t.position - position : kNowhere;
      to[i] = t.image * image + t.pixel;
    }
  }
};

// 8 rows of results of a warp in shared memory, and of channels of y, of which `count` exist.
struct Results {
  const ConvShifts& p;
  const ConvShiftPhase& phase;
  const Windows& windows;
  T* rows;

  __device__ __forceinline__ void load_rows(const T* x, i32 count) const {
    for (u32 o = windows.first + threadIdx.x % 32; o < windows.end; o += 32) {
      const Target t = target_of(p, phase, o);
      const T* from = x + t.image * windows.image + t.pixel;
#pragma unroll
      for (int row = 0; row < 8; ++row, from += p.plane)
        if (row < count) rows[row * kPitch + (t.position - windows.position)] = *from;
    }
  }
  __device__ __forceinline__ void store_rows(T* y, i32 count) const {
#pragma unroll
    for (int i = 0; i < Windows::kVectors; ++i) {
      if (windows.from[i] == Windows::kNowhere) continue;
      T* to = y + windows.to[i];
      Vec<T, YW> values[8];
#pragma unroll
      for (int row = 0; row < 8; ++row)
        values[row] = load_across<YW>(rows + row * kPitch, windows.from[i]);
#pragma unroll
      for (int row = 0; row < 8; ++row, to += p.plane)
        if (row < count) store(to, values[row]);
    }
#if EDGES
    // What is left before the first whole vector and behind the last.
    const u32 v0 = (windows.first + YW - 1) / YW, v1 = windows.end / YW;
    const u32 head = v1 < v0 ? windows.end - windows.first : v0 * YW - windows.first,
              tail = v1 < v0 ? 0 : windows.end - v1 * YW;
    for (u32 item = threadIdx.x % 32; item < 8 * (head + tail); item += 32) {
      const u32 row = item % 8, k = item / 8;
      if ((i32)row >= count) continue;
      const Target t = target_of(p, phase, k < head ? windows.first + k : v1 * YW + k - head);
      y[t.image * windows.image + row * p.plane + t.pixel] =
          rows[row * kPitch + (t.position - windows.position)];
    }
#endif
  }
};

// y of the sums of a warpgroup: through shared memory, 8 rows of each warp at a time.
__device__ __forceinline__ void finish_tile(const ConvShifts& p, const Layout& at, u8* smem,
                                            const Tile& tile, int group,
                                            const f32 (&d)[WEAVE][COLUMNS / 2]) {
  const ConvShiftPhase& phase = p.phase[tile.phase];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const u32 position = tile.position + (DOWN == 1 ? group * p.advance : 0);
  const i32 filter = tile.filter + (DOWN == 2 ? group * 64 : 0) + (i32)warp * 16;
  T* const rows = (T*)(smem + (at.results - at.x) + (group * 4 + warp) * kResultBytes);
  const Windows windows(p, phase, position * WEAVE);
  const Results results{p, phase, windows, rows};
  u32* const own = (u32*)(rows + lane / 4 * kPitch) + lane % 4 * WEAVE;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i32 row0 = filter + half * 8;
    const i64 channel = (i64)tile.group * p.m + row0;
#ifdef BIAS
    f32 bias = 0;
    if (row0 + (i32)lane / 4 < p.m) bias = widen(((const BIAS*)p.ends.bias)[channel + lane / 4]);
#endif
    // z: what goes into the activation.
    const auto make = [&]([[maybe_unused]] bool z) {
#ifdef RESIDUAL
      results.load_rows((const T*)p.ends.residual + channel * p.plane, p.m - row0);
      __syncwarp();
#endif
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
        // Neighbours: of one phase, or of both at one position.
        const int i = j / WEAVE * 4 + half * 2 + (WEAVE > 1 ? j % WEAVE : 0);
        f32 y[2] = {d[0][i], WEAVE > 1 ? d[WEAVE - 1][i] : d[0][i + 1]};
        u32* const to = own + j / WEAVE * 4 * WEAVE + j % WEAVE;
#ifdef BIAS
        y[0] += bias, y[1] += bias;
#endif
#ifdef RESIDUAL
        const Vec<T, 2> residual = load<T, 2>((const T*)to);
        y[0] += widen_at(residual, 0), y[1] += widen_at(residual, 1);
#endif
#ifdef ACT
        if (!z) y[0] = ACT(y[0]), y[1] = ACT(y[1]);
#endif
        *to = narrow_pair(y[0], y[1], T{});
      }
      __syncwarp();
    };
    const auto put = [&](void* y) {
      results.store_rows((T*)y + channel * p.plane, p.m - row0);
      __syncwarp();
    };
#ifdef PRE_ACT
    make(true);
    put(p.ends.pre_act);
    if (!p.ends.y) continue;
#endif
    make(false);
    put(p.ends.y);
  }
}

__device__ __forceinline__ void multiply(const ConvShifts& p, const Layout& at, u8* smem,
                                         int group) {
  f32 d[WEAVE][COLUMNS / 2];
  const bool arrives = threadIdx.x % 32 == 0;
  Slot<X_STAGES> x;
  Slot<W_STAGES> w;
  const u32 own_column = DOWN == 1 ? group * p.advance : 0;
  const int own_row = DOWN == 2 ? group * 64 : 0;
  for (u32 index = blockIdx.x; index < p.tiles; index += gridDim.x) {
    const Tile tile(p, index);
    bool add[WEAVE] = {};
    // What the products under way read: it is free when they have ended.
    u32 read_w = 0, read_x = 0;
    for (u32 k = 0, planes = planes_of(p, tile); k < planes; ++k)
      for (i32 c = 0; c < p.c; c += 64) {
        barrier_wait(at.x_full + x.at * 8, x.phase);
        bool begins = true;
#pragma unroll
        for (int j = 0; j < WEAVE; ++j) {
          const Taps taps(p, tile, j, k);
          for (u32 t = 0; t < taps.count; ++t) {
            barrier_wait(at.w_full + w.at * 8, w.phase);
            const u64 left = tile_name<kFilters>(at.w + w.at * kFilterBytes, own_row, 0),
                      right = rows_name(at.x + x.at * at.x_bytes,
                                        p.taps[taps.first + t].shift + own_column);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < CHANNELS / 16; ++i)
              wgmma(d[j], left + i * 2, right + i * 2, add[j] || i > 0, T{});
            wgmma_commit();
            wgmma_wait<1>();
            if (read_w != 0 && arrives) {
              barrier_arrive(read_w);
              if (begins && read_x != 0) barrier_arrive(read_x);
            }
            add[j] = true, begins = false;
            read_w = at.w_empty + w.at * 8;
            w.next();
          }
        }
        read_x = at.x_empty + x.at * 8;
        x.next();
      }
    wgmma_wait<0>();
    if (read_w != 0 && arrives) barrier_arrive(read_w), barrier_arrive(read_x);
#pragma unroll
    for (int j = 0; j < WEAVE; ++j) {
      settle(d[j]);
      if (!add[j])
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; ++i) d[j][i] = 0;
    }
    finish_tile(p, at, smem, tile, group, d);
  }
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    sums(const __grid_constant__ ConvShifts p) {
  begin_early();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) u8 smem[];
  const Layout at(shared_address(smem), p);
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < X_STAGES * 8; i += 8)
      barrier_init(at.x_full + i, 1), barrier_init(at.x_empty + i, kGroups * 4);
    for (u32 i = 0; i < W_STAGES * 8; i += 8)
      barrier_init(at.w_full + i, 1), barrier_init(at.w_empty + i, kGroups * 4);
    barriers_made();
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kBringing));
    if (threadIdx.x == kGroups * 128) bring(p, at);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kMultiplying));
    multiply(p, at, smem, group);
  }
#endif
}
