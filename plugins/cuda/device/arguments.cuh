// SPDX-License-Identifier: Apache-2.0
// What kernels take: the structs of their arguments, seen by both sides. Device texts include this
// file; the host compiles it in namespace tenon::cuda::args (kernels/entries.def says which entry
// takes what). Names are long: texts define short ones, such as T and W, before they include this.
//
// A family may keep its structs in <family>.args.cuh, between TENON_ARGUMENTS and
// TENON_ARGUMENTS_END.
#pragma once
#ifdef __CUDACC__
#include "types.cuh"
#define TENON_ARGUMENTS
#define TENON_ARGUMENTS_END
#else
#include <bit>
#include <cstdint>

#define TENON_ARGUMENTS namespace tenon::cuda::args {
#define TENON_ARGUMENTS_END }

namespace tenon::cuda::args {

using i32 = int32_t;
using i64 = int64_t;
using u8 = uint8_t;
using u32 = uint32_t;
using u64 = uint64_t;
using f32 = float;
using f64 = double;
#endif

constexpr int kMostAxes = 8;

// ---- all families

// The error word of a run.
struct DeviceWord {
  u64 first = ~(u64)0;  // the smallest report
  u64* told = nullptr;  // the same in host memory, at the address that the device knows
};
// Where a kernel reports bad data.
struct ErrorSink {
  DeviceWord* word;
  u64 step;
};

// Division of numbers below 2^31 by one of 1 to 2^31 - 1.
struct Divisor {
  u32 value = 1, multiplier = 0, shift = 0;
#ifdef __CUDACC__
  __device__ u32 quotient(u32 n) const { return (__umulhi(n, multiplier) + n) >> shift; }
#else
  Divisor() = default;
  explicit Divisor(u32 d) : value(d) {
    shift = d <= 1 ? 0 : static_cast<u32>(std::bit_width(d - 1));
    multiplier = static_cast<u32>(((u64{1} << 32) * ((u64{1} << shift) - d)) / d + 1);
  }
#endif
};

// A tensor as the copy engine of sm_90 and on knows it.
struct alignas(64) TensorMap {
  u64 words[16];
};

// ---- elementwise, reduce

struct Gated {
  i64 groups = 0;  // vectors of W elements of the result
  i64 row = 0;     // vectors in a row
  i64 stride = 0;  // elements from row to row of gate, up and their gradients
};

// A cast to blocks of 32 elements along the last axis.
struct CastBlocks {
  i64 count = 0;  // blocks
  i64 step = 1;   // elements of the operand from number to number
  Divisor divisors[kMostAxes] = {};  // of the axes, the last one in blocks
  i64 strides[kMostAxes] = {};
};

struct ReduceStage {
  i64 outer = 1, n = 1, inner = 1, pieces = 1, piece = 1, count = 1;
};

// ---- matmul

struct Product {
  const void *a, *b, *bias, *residual;
  void *y, *pre_act;
  i64 m, n, k, lda, ldb;
  f64 alpha;
  u32 tiles_m, tiles_n;
  i64 batch_rank;
  i64 batch_dims[6], a_steps[6], b_steps[6];
};

// Products of one a with several of b, each stored row by row (its rows are y's columns).
struct JoinedSet {
  const void *b, *bias;
  void* y;
  i64 n, ldb;
  u32 first_block;
};
template <int kSets>
struct JoinedProducts {
  const void *a, *residual;
  void* pre_act;
  i64 m, k, lda;
  f32 alpha;
  JoinedSet sets[kSets];
};
template <int kSets>
struct JoinedMaps {
  TensorMap a, b[kSets];
};

// ---- grouped_matmul; the host says void for the dtypes

// Rows order[first] to order[first + count] of a group; those of no expert are last.
struct RowTile {
  i32 group, first, count, unused;
};
struct RowGroups {
  const void* list;  // ids or offsets
  i32 wide;          // of i64, else i32
  i32 rows, experts;
  i32 parts, part_rows;  // a warp's rows, a multiple of 32
  i32 tile, most_tiles;
  u32* counts;  // [group][part]: rows, then where the next one goes
  i32 *starts, *tile_starts, *order;
  RowTile* tiles;
  ErrorSink sink;
};
template <class Element, class Sum>
struct GroupedProductOf {
  const Element *a, *w;
  const void* p;
  const Element* x;
  Element* y;
  Sum* dots;  // [row][dot_width]
  const RowTile* tiles;
  const i32* order;
  i64 n, k;  // columns of y, terms
  i32 experts;
  u32 tiles_m, tiles_n;
};
template <class Element, class Result>
struct WeightProductOf {
  const Element *a, *b;
  const void* p;
  Result* y;  // [piece][expert][m][n]
  const i32 *starts, *order;
  i64 m, n;
  i32 experts;
  u32 tiles_m, tiles_n, pieces;
};

// ---- softmax

struct SoftmaxShape {
  i64 lines, inner;
  u32 n, slice;
};
struct LongSoftmaxShape {
  i64 lines;
  u32 n;
};
struct LossShape {
  i64 lines, inner, ignore;
  f64 smoothing;
  u32 n, slice;
};

// ---- order

struct ArgShape {
  i64 lines, inner;
  u32 n;
};
// k of the n elements of a line are wanted, in order. parts: pieces of a line, of `part` elements.
struct OrderLines {
  i64 lines, inner;
  u32 n, k, parts, part;
};
// Keys of a line that are there already, and whose places.
struct Entries {
  void* keys;
  u32* places;
};

// ---- random

struct RandomSource {
  const u64* rng = nullptr;
  const void* x = nullptr;  // dropout's
  f64 p = 0;
  i64 count = 0;
};
struct Sample {
  i64 rows;
  u32 columns, top_k;  // 0: off
  f64 top_p;
  f32 temperature, min_p;
  i32 fraction;
};

// ---- norm, channel_norm

struct NormShape {
  i64 rows;
  f64 eps;
  u32 n;
};
struct GroupNormShape {
  i64 groups = 0;  // of all images
  f64 eps = 0;
  u32 groups_in_image = 1, channels = 1;  // channels of a group
  u32 pixels = 1, unit = 1, splits = 1;   // of a channel; of a unit; units of a channel
  u32 pieces = 1, units = 1;              // of a group; of a piece
  u32 team = 32, teams = 1;               // threads of a piece; pieces of a block
  Divisor by_splits{}, by_pieces{}, by_team{};
};
struct PixelNormShape {
  i64 tiles = 0;
  f64 eps = 0;
  u32 channels = 0, pixels = 0, image_tiles = 1;  // pixels and tiles of an image
};

// ---- rope, attention

template <class Angle>
struct RopeOf {
  i64 groups = 0;      // vectors of W elements of half a head, or pairs, then the rest of it
  i64 batch_rows = 0;  // steps * heads
  i64 dim = 0, half = 0, steps = 0, heads = 0, heads_first = 0, offset = 0, table_rows = 0;
  i32 pair_groups = 0, row_groups = 0;  // of a head: that turn, of all
  Angle sign = 1;
  ErrorSink sink{};
};

constexpr int kSplitStep = 64;  // a split of the keys has a multiple of this many
struct AttentionStrides {
  i64 batch, head, step;
};
struct Attention {
  const void *q, *k, *v, *mask, *kv_len, *past_len;
  void *o, *lse, *parts;
  const void *dout, *lse_in;
  void *delta, *dq, *dk, *dv;
  AttentionStrides q_strides, k_strides, v_strides, o_strides;
  i64 mask_strides[4];
  i64 offset, left, right;
  f64 scale, softcap;
  i32 batch, k_heads, group, q_len, k_len, dim, v_dim, causal, splits, split_keys;
  // Keys in blocks: the block of `by_block` keys that holds key j of a batch entry is number
  // j / by_block of the entry's `blocks` numbers. Strides are those of the pool.
  const void* block_table;
  ErrorSink sink;
  Divisor by_block;
  i32 blocks, pool, block_lines;  // pool: blocks in it; block_lines: steps from block to block
};
// Of attention_bulk.cu.
struct AttentionWork {
  TensorMap q, k, v;
  i32 rows;           // query rows of a block: whole groups
  i32 heads_at_once;  // key heads whose blocks run together: their keys and values stay in L2
  i32 first, last;    // a step may attend to keys from step + first to step + last
};

// ---- index

struct IndexAxis {
  const void* indices = nullptr;
  i64 length = 0, count = 0;
  i32 wide = 0;  // i64, else i32
  ErrorSink sink{};
};
struct GatherShape {
  IndexAxis axis{};
  i64 total = 0, row = 0;  // units: of the result, of a row
  Divisor rows{}, counts{};
};
struct GatherElements {
  IndexAxis axis{};
  i64 step = 0;  // along the axis, in the data
  i64 dims[kMostAxes] = {},
      strides[kMostAxes] = {};  // of the indices; in the data, 0 along the axis
};
// Of scatter_elements_add: the place of an update is that of an element of y.
struct ScatterElements {
  i64 step = 0;
  i64 dims[kMostAxes] = {}, strides[kMostAxes] = {};
};
struct Scatter {
  IndexAxis axis{};
  i64 outer = 1, rows = 0, inner = 1;  // inner: elements of a row; rows: of y for each outer
  i64 padding = -1;                    // no row when < 0
  i32 position_bits = 0, shift = 0;
  i64 count = 0;  // updates for each outer
  ScatterElements elements{};
};
struct LongSegments {
  u32* number;
#ifdef __CUDACC__
  uint2* bounds;

  __device__ void add(u32 first, u32 end) const {
    bounds[atomicAdd(number, 1u)] = make_uint2(first, end);
  }
#else
  void* bounds;
#endif
};

// ---- shape

// A block whose elements lie strided on either side, in units.
struct CopyBlock {
  i64 count = 0;
  i64 dims[kMostAxes] = {};
  Divisor divisors[kMostAxes] = {};
  i64 from[kMostAxes] = {}, to[kMostAxes] = {};
};
// What the data tells about where the block begins in the larger side.
struct CopyStart {
  const void* words = nullptr;
  i64 most[kMostAxes] = {}, strides[kMostAxes] = {};  // strides in bytes
  i32 rank = 0, wide = 0, clamp = 0, moves_target = 0;
  ErrorSink sink{};
};
// How many tiles lie along the last axis, and along the one before it.
struct CopyTiles {
  Divisor columns{}, rows{};
};
struct Pad {
  i64 count = 0;  // units of the result
  i64 out[kMostAxes] = {}, in[kMostAxes] = {}, before[kMostAxes] = {}, strides[kMostAxes] = {};
  Divisor divisors[kMostAxes] = {};
  alignas(16) u8 value[16] = {};
};
template <class Number>
struct IotaOf {
  i64 count, length, inner;
  Number start, step;  // f64 of floats, i64 of integers
};

// ---- pool

struct PoolLine {  // an axis: window o has its taps at o·stride - before + k·dilation
  i32 kernel = 1, stride = 1, before = 0, after = 0, dilation = 1, size = 0, count = 0;
};
struct PoolShape {
  PoolLine h{}, w{};
  i64 items = 0;              // of the grid
  Divisor rows{}, columns{};  // of items in a plane
  i32 divisor = 0;            // 0: the window's own
  i32 include_pad = 0;
};

// ---- optimizer; the host says void for the dtypes

// A number in the data.
struct Scalar {
  const void* at = nullptr;
  i32 type = 0;  // 0 absent, 1 f32, 2 f64, 3 i32, 4 i64, 5 bool
#ifdef __CUDACC__
  __device__ f64 read(f64 otherwise) const {
    switch (type) {
      case 1:
        return *static_cast<const f32*>(at);
      case 2:
        return *static_cast<const f64*>(at);
      case 3:
        return *static_cast<const i32*>(at);
      case 4:
        return (f64) * static_cast<const i64*>(at);
      case 5:
        return *static_cast<const u8*>(at);
      default:
        return otherwise;
    }
  }
#endif
};
template <class Weight, class Gradient, class Moment>
struct UpdateOf {
  i64 count = 0;
  const Weight* w = nullptr;
  const Gradient* g = nullptr;
  const Moment* moment[2] = {};
  Weight* w_out = nullptr;
  Moment* moment_out[2] = {};
  Scalar lr{}, scale{}, step{}, apply{};
  f64 decay = 0, keep[2] = {}, take[2] = {}, eps = 0, look_ahead = 0;
  i32 nesterov = 0;
};

#ifndef __CUDACC__
}  // namespace tenon::cuda::args
#endif
