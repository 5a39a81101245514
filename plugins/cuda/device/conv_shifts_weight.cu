// SPDX-License-Identifier: Apache-2.0
// The gradient of the weights of a 2d convolution of halves on sm_90, from grids of positions
// (conv.args.cuh): of x, and of dy, in which positions without a window are zeros. A block makes the
// sums of 64 filters, 64 channels and a set of taps over a part of the positions. Positions of x go
// through a ring in shared memory, so each comes once for all taps of the set: a tap reads them from
// another row on. Three warpgroups have TAPS taps each. One thread has the copy engine bring 64
// positions at a time.
// Defines: TYPE, TAPS.
//variant: TYPE=bf16 TAPS=3
//variant: TYPE=f16 TAPS=2
//entry: conv_shifts_weight = sums(ConvShiftWeights)
#include "bulk.cuh"
#include "conv.args.cuh"
#include "conv_tile.cuh"
#include "wgmma.cuh"

typedef TYPE T;
constexpr int kGroups = 3, kThreads = (kGroups + 1) * 128;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr u32 kStep = 64, kBoxBytes = kStep * 128;
// A ring's first rows come once more behind its end: products read so many from any row on.
constexpr u32 kBeginBytes = 16 * 128;
constexpr int kBringing = 24, kMultiplying = 160;  // registers of a thread

// Addresses in shared memory.
struct Layout {
  u32 ring_bytes, x, dy, full, empty;
  __device__ __forceinline__ Layout(u32 base, const ConvShiftWeights& p)
      : ring_bytes(p.slots * kBoxBytes + kBeginBytes),
        x(base),
        dy(x + p.rings * ring_bytes),
        full(dy + p.slots * kBoxBytes),
        empty(full + p.slots * 8) {}
};
struct Slot {
  u32 at = 0, phase = 0;
  __device__ __forceinline__ void next(u32 slots) {
    if (++at == slots) at = 0, phase ^= 1;
  }
};

struct Block {
  i32 filter, channel, group;
  u32 set, split, first, steps;
  __device__ __forceinline__ Block(const ConvShiftWeights& p) {
    u32 at = blockIdx.x;
    filter = (i32)(at % p.tiles_m) * 64, at /= p.tiles_m;
    channel = (i32)(at % p.tiles_c) * 64, at /= p.tiles_c;
    set = at % p.sets, at /= p.sets;
    group = (i32)(at % (u32)p.groups), split = at / (u32)p.groups;
    first = split * p.split_steps;
    steps = min(p.split_steps, p.steps - first);
  }
};

// A stage has positions of x, and those of dy that are so many steps behind.
__device__ __forceinline__ void bring(const ConvShiftWeights& p, const Layout& at, const Block& b) {
  const ConvShiftSet set = p.set[b.set];
  Slot slot;
  for (u32 stage = 0; stage < b.steps + p.ahead; ++stage) {
    const u32 full = at.full + slot.at * 8;
    const bool begins = slot.at == 0, has_dy = stage >= p.ahead;
    barrier_wait(at.empty + slot.at * 8, slot.phase ^ 1);
    barrier_expect(full,
                   set.parts * (kBoxBytes + (begins ? kBeginBytes : 0)) + (has_dy ? kBoxBytes : 0));
    const i32 position = (i32)((b.first + stage) * kStep);
    for (u32 k = 0; k < set.parts; ++k) {
      const i32 from[4] = {b.channel, b.group, position, (i32)p.parts_of[set.first_part + k]};
      const u32 ring = at.x + k * at.ring_bytes;
      copy_tile(ring + slot.at * kBoxBytes, &p.x, from, full);
      if (begins) copy_tile(ring + p.slots * kBoxBytes, &p.x_begin, from, full);
    }
    if (has_dy)
      copy_tile(at.dy + slot.at * kBoxBytes, &p.dy,
                {b.filter, b.group, position - (i32)(p.ahead * kStep), 0}, full);
    slot.next(p.slots);
  }
}

__device__ __forceinline__ void multiply(const ConvShiftWeights& p, const Layout& at,
                                         const Block& b, int group) {
  const ConvShiftSet set = p.set[b.set];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  f32 d[TAPS][32] = {};
  u32 left[kStep / 16][4];
  u32 ring[TAPS], shift[TAPS];
#pragma unroll
  for (int t = 0; t < TAPS; ++t) {
    // A warpgroup that has fewer taps makes the last one again.
    const ConvShiftWeightTap& tap =
        p.taps[set.first_tap + min((u32)(group * TAPS + t), set.taps - 1)];
    ring[t] = at.x + tap.part * at.ring_bytes, shift[t] = (u32)tap.shift;
  }
  const u32 rows = p.slots * kStep;
  Slot arriving, own;  // of the newest positions that a step reads, and of the oldest
  for (u32 k = 0; k < p.ahead; ++k) {
    barrier_wait(at.full + arriving.at * 8, arriving.phase);
    arriving.next(p.slots);
  }
  // While a warpgroup gets its left operand, the others multiply.
  for (u32 step = 0; step < b.steps; ++step) {
    barrier_wait(at.full + arriving.at * 8, arriving.phase);
#pragma unroll
    for (int k = 0; k < (int)kStep; k += 16)
      left_block<false>(left[k / 16], at.dy + arriving.at * kBoxBytes, warp * 16, k);
    settle(left);
#pragma unroll
    for (int t = 0; t < TAPS; ++t) settle(d[t]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < (int)kStep; k += 16)
#pragma unroll
      for (int t = 0; t < TAPS; ++t) {
        u32 row = own.at * kStep + k + shift[t];
        if (row >= rows) row -= rows;
        wgmma(d[t], left[k / 16], rows_name(ring[t], row), T{});
      }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int t = 0; t < TAPS; ++t) settle(d[t]);
    if (lane == 0) barrier_arrive(at.empty + own.at * 8);
    arriving.next(p.slots), own.next(p.slots);
  }

  const i32 row0 = b.filter + warp * 16 + lane / 4, column0 = b.channel + lane % 4 * 2;
  f32* const sums = (f32*)p.sums + (((i64)b.split * p.groups + b.group) * p.m + row0) * p.columns;
#pragma unroll
  for (int t = 0; t < TAPS; ++t) {
    const u32 tap = group * TAPS + t;
    if (tap >= set.taps) break;
    f32* const to = sums + p.taps[set.first_tap + tap].kernel * p.padded + column0;
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const i32 row = i / 2 % 2 * 8, column = i / 4 * 8;
      if (row0 + row < p.m && column0 + column < p.padded)
        store(to + row * p.columns + column, Vec<f32, 2>{{d[t][i], d[t][i + 1]}});
    }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    sums(const __grid_constant__ ConvShiftWeights p) {
  begin_early();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) u8 smem[];
  const Layout at(shared_address(smem), p);
  const Block block(p);
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < p.slots * 8; i += 8)
      barrier_init(at.full + i, 1), barrier_init(at.empty + i, kGroups * 4);
    barriers_made();
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kBringing));
    if (threadIdx.x == kGroups * 128) bring(p, at, block);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kMultiplying));
    multiply(p, at, block, group);
  }
#endif
}
