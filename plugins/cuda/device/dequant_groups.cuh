//variant: GROUPS=0
//variant: GROUPS=1 FACTOR=f32
//variant: GROUPS=2 IDS=i64
// SPDX-License-Identifier: Apache-2.0
// Tiles of rows of x that meet the same matrix of w, and where the results of a row go.
// Defines: GROUPS: 0: one matrix for all rows; 1: tiles that row_groups.cu made; 2: each row is a tile,
// whose expert IDS (a dtype) names. FACTOR: dtype of the factors of grouped products, if there are any.
#pragma once
#include "common.cuh"
#include "dequant.args.cuh"

struct TileOfX {
  i64 first = 0;      // of its rows
  int count = 0;      // none: there is nothing to do
  const i32* order = nullptr;  // of all rows; null: they are in order
  i64 expert = 0;
  bool own = true;    // rows of no expert give zeros
#if GROUPS && defined(FACTOR)
  const void* factors = nullptr;
#endif

  // Row i of x, and of y.
  __device__ i64 row(int i) const { return order ? (i64)order[first + i] : first + i; }
  // What is stored of a sum of row i.
  __device__ f32 result(f32 sum, [[maybe_unused]] int i) const {
#if GROUPS
    if (!own) return 0;
#ifdef FACTOR
    return sum * widen(static_cast<const FACTOR*>(factors)[row(i)]);
#endif
#endif
    return sum;
  }
  // The matrix, whose rows have `row_bytes`.
  __device__ const u8* matrix(const BlockProduct& p, i64 row_bytes) const {
    return p.w + expert * p.n * row_bytes;
  }
};
// The end of w.
__device__ inline const u8* end_of_w(const BlockProduct& p, i64 row_bytes) {
  return p.w + (GROUPS ? p.groups.experts : 1) * p.n * row_bytes;
}

// Tile `tile`, of up to kMost rows of m. Threads with `tell` report an id that names no expert.
template <int kMost>
__device__ inline TileOfX tile_of_x(const GroupsOfRows& g, i64 m, u32 tile,
                                    [[maybe_unused]] bool tell = false) {
  TileOfX t;
#if GROUPS == 0
  t.first = (i64)tile * kMost;
  t.count = (int)min(m - t.first, (i64)kMost);
#elif GROUPS == 1
  const RowTile from = g.tiles[tile];
  t.first = from.first, t.count = from.count, t.order = g.order;
  t.own = from.group < g.experts;
  t.expert = t.own ? from.group : 0;
#else
  const i64 id = static_cast<const IDS*>(g.ids)[tile];
  t.first = tile, t.count = 1;
  t.own = 0 <= id && id < g.experts;
  t.expert = t.own ? id : 0;
  if (tell && !t.own && id != -1) report(g.sink, kIndexOutOfRange, tile);
#endif
#if GROUPS && defined(FACTOR)
  t.factors = g.factors;
#endif
  return t;
}
