//variant: SIZE=16 RANK=1 NARROW=1
//variant: SIZE=2 RANK=4 NARROW=0
//variant: SIZE=4 RANK=3 NARROW=1 DYNAMIC=1
//variant: SIZE=4 RANK=2 TILED=1 READ=4 WRITE=4
//variant: SIZE=2 RANK=4 TILED=1 READ=8 WRITE=1
//variant: SIZE=1 RANK=3 TILED=1 READ=1 WRITE=8
//variant: SIZE=8 RANK=2 TILED=1 READ=2 WRITE=2
//variant: SIZE=16 RANK=2 TILED=1 READ=1 WRITE=1
// SPDX-License-Identifier: Apache-2.0
// Copies of blocks whose elements lie strided, as units of SIZE bytes: straight, with a start that
// the data tells (DYNAMIC), or through tiles where source and target run along different axes
// (TILED).
#include "common.cuh"
#include "units.cuh"

typedef UnitOf<SIZE>::type Unit;

typedef CopyBlock Block;

#ifndef TILED
typedef CopyStart Start;
// Byte offset of the block, -1 when it would leave the whole.
__device__ inline i64 begin_of(const Start& s) {
  i64 at = 0;
  for (int i = 0; i < s.rank; ++i) {
    i64 v = s.wide ? static_cast<const i64*>(s.words)[i] : static_cast<const i32*>(s.words)[i];
    if (s.clamp) v = v < 0 ? 0 : v > s.most[i] ? s.most[i] : v;
    if (v < 0 || v > s.most[i]) {
      report(s.sink, kIndexOutOfRange, (u64)i);
      return -1;
    }
    at += v * s.strides[i];
  }
  return at;
}

constexpr int kEach = 4;  // units of a thread

__device__ inline void copy_units(const Unit* from, Unit* to, const Block& b) {
  const i64 first = (i64)blockIdx.x * (256 * kEach) + threadIdx.x;
  Unit value[kEach];
  i64 target[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const i64 g = first + k * 256;
    target[k] = -1;
    if (g >= b.count) continue;
    i64 source = 0, place = 0;
#if NARROW
    u32 rest = (u32)g;
#pragma unroll
    for (int i = RANK - 1; i >= 0; --i) {
      const u32 q = i > 0 ? b.divisors[i].quotient(rest) : 0;
      const u32 c = i > 0 ? rest - q * (u32)b.dims[i] : rest;
      source += c * b.from[i], place += c * b.to[i];
      rest = q;
    }
#else
    i64 rest = g;
#pragma unroll
    for (int i = RANK - 1; i >= 0; --i) {
      const i64 q = i > 0 ? rest / b.dims[i] : 0, c = rest - q * b.dims[i];
      source += c * b.from[i], place += c * b.to[i];
      rest = q;
    }
#endif
    value[k] = from[source];
    target[k] = place;
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    if (first + k * 256 < b.count) to[target[k]] = value[k];
}

extern "C" __global__ void __launch_bounds__(256)
    copy_block(const Unit* from, Unit* to, const Block b) {
  begin_early();
  copy_units(from, to, b);
}
#ifdef DYNAMIC
extern "C" __global__ void __launch_bounds__(256)
    copy_moved(const Unit* from, Unit* to, const Block b, const Start s) {
  begin_early();
  __shared__ i64 offset;
  if (threadIdx.x == 0) offset = begin_of(s);
  __syncthreads();
  if (offset < 0) return;
  const i64 units = offset / SIZE;
  copy_units(from + (s.moves_target ? 0 : units), to + (s.moves_target ? units : 0), b);
}
// For a block of nothing.
extern "C" __global__ void check_start(const Start s) { begin_of(s); }
#endif

#else
// The last axis is where the target runs, the one before it where the source does.
constexpr int kTile = SIZE >= 8 ? 32 : 64;
constexpr int kPitch = kTile + (SIZE >= 4 ? 1 : 4 / SIZE);
constexpr int kThreads = 256;

typedef CopyTiles Tiles;

extern "C" __global__ void __launch_bounds__(256)
    copy_tiles(const Unit* from, Unit* to, const Block b, const Tiles t) {
  begin_early();
  __shared__ Unit tile[kTile * kPitch];
  const u32 line = t.columns.quotient(blockIdx.x);
  u32 rest = t.rows.quotient(line);
  const i64 q0 = (i64)(blockIdx.x - line * t.columns.value) * kTile;
  const i64 p0 = (i64)(line - rest * t.rows.value) * kTile;
#pragma unroll
  for (int i = RANK - 3; i >= 0; --i) {
    const u32 outer = i > 0 ? b.divisors[i].quotient(rest) : 0;
    const u32 c = rest - outer * (u32)b.dims[i];
    from += c * b.from[i], to += c * b.to[i];
    rest = outer;
  }
  // What is left of the block.
  const i64 across = b.dims[RANK - 1] - q0, along = b.dims[RANK - 2] - p0;
  constexpr int kReads = kTile / READ, kWrites = kTile / WRITE;
  constexpr int kReadStep = kThreads / kReads, kWriteStep = kThreads / kWrites;
  {
    const i64 step = b.from[RANK - 1];
    const int first = threadIdx.x / kReads, p = threadIdx.x % kReads * READ;
    from += (q0 + first) * step + (p0 + p);
#pragma unroll
    for (int q = 0; q < kTile; q += kReadStep) {
      if (q + first >= across || p >= along) continue;
      const Vec<Unit, READ> v = load<Unit, READ>(from + q * step);
#pragma unroll
      for (int j = 0; j < READ; ++j) tile[(q + first) * kPitch + p + j] = v.v[j];
    }
  }
  __syncthreads();
  const i64 step = b.to[RANK - 2];
  const int first = threadIdx.x / kWrites, q = threadIdx.x % kWrites * WRITE;
  to += (p0 + first) * step + (q0 + q);
#pragma unroll
  for (int p = 0; p < kTile; p += kWriteStep) {
    if (q >= across || p + first >= along) continue;
    Vec<Unit, WRITE> v;
#pragma unroll
    for (int j = 0; j < WRITE; ++j) v.v[j] = tile[(q + j) * kPitch + p + first];
    store_whole(to + p * step, v);
  }
}
#endif
