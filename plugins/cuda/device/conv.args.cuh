// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of convolutions.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// Of the forward convolution: window o of `out` has its taps at o·stride - before + k·dilation.
struct ConvAxis {
  i32 in = 1, out = 1, kernel = 1, stride = 1, before = 0, dilation = 1;
  i32 common = 1;   // the greatest common divisor of stride and dilation
  i32 inverse = 0;  // of dilation / common, modulo stride / common
};
struct ConvShape {
  ConvAxis axes[3] = {};  // fewer spatial axes are led by axes of one pixel
  i64 batch = 0;
  i32 groups = 1;
  i32 c = 0, m = 0;  // of a group: channels that are summed over, channels of the result
};
// What follows the sums: y = act(sums + bias + residual).
struct ConvEnds {
  const void *bias = nullptr, *residual = nullptr;
  void *y = nullptr, *pre_act = nullptr;
};
template <class Ends>
struct ConvSumsOf {
  ConvShape shape{};
  const void *x = nullptr, *w = nullptr;
  Ends ends{};
  void* parts = nullptr;  // sums of each split
  i64 count = 0;          // elements of the result
  u32 tiles_m = 1, tiles_n = 1, splits = 1, phases = 1;
  u32 split_terms = 0;  // of a split
  i32 pieces = 0;       // of 8 channels of a group that are summed over
  u32 steps_at = 0;     // in shared memory: where the taps are listed
  u32 ends_at = 0;      // likewise the channels of 8-bit integers
};
using ConvSums = ConvSumsOf<ConvEnds>;
// Of conv_shifts.cu, for 2d windows.
//
// A grid of positions covers the windows of all images: position (n, r, s) is window (r, s) of image
// n. Each line of the grid has a few positions more than windows, and each image a few lines more.
// They stand for padding. So a tap of all windows is the same shift of positions.
//
// Position (n, r, s) of part (i, j) holds pixel (r·step + i + row0, s·step + j + column0), or zeros
// outside of the image.
struct ConvGrid {
  i32 rows = 0, columns = 0, step = 1;  // of an image of x
  i32 row0 = 0, column0 = 0;
  u32 batch = 0, channels = 0, padded = 0;  // channels of all groups; elements of a position
  Divisor by_image{}, by_line{};            // of positions
  u32 positions = 0;                        // of a part
  u32 pixel_tiles = 0, channel_tiles = 0;
  Divisor by_row{};  // of pixels
};
// From the filters of a node to [group][m][tap][padded] or [group][tap][c][m].
struct ConvFilters {
  i64 count = 0;  // of the result
  u32 m = 0, c = 0, taps = 0, padded = 0;
  u32 step_m = 0, step_c = 0, step_group = 0;  // in the node's filters; a tap is one element
};
// What is done in one launch: up to two grids, and filters in order.
struct ConvGridImages {
  const void* x = nullptr;
  void* y = nullptr;
  ConvGrid grid{};
};
struct ConvFill {
  ConvGridImages images[2] = {};
  const void* w = nullptr;
  void* ordered = nullptr;
  ConvFilters filters{};
};
struct ConvShiftTap {
  i32 shift;   // in positions
  i32 kernel;  // which of the kernel's taps
};
struct ConvShiftPlane {
  u32 part = 0, first_tap = 0, taps = 0;
};
// Pixels of the result that have the same taps.
struct ConvShiftPhase {
  i32 rows = 0, columns = 0;  // windows of an image
  i32 row = 0, column = 0;    // the pixel of window (0, 0)
  u32 first_plane = 0, planes = 0;
  Divisor by_image{}, by_row{};  // of windows
};
constexpr int kMostShiftTaps = 64, kMostShiftPlanes = 16;
struct ConvShifts {
  TensorMap x{}, w{};  // positions [part][position][padded], filters [group·m][tap][padded]
  ConvEnds ends{};
  i64 plane = 0;                            // elements of a channel of y
  i32 out_columns = 0, spread = 1;          // of y; pixels from window to window
  i32 batch = 0, groups = 1, c = 0, m = 0;  // c, m: as in ConvShape
  i32 c_padded = 0;                         // elements of a group in a position
  Divisor by_image{}, by_line{};            // of positions
  u32 positions = 0;                        // of a part
  u32 rows = 0, boxes = 1;                  // of a copy in shared memory; copies of a stage
  u32 advance = 0;                          // positions from warpgroup to warpgroup
  u32 tiles = 0, tiles_m = 1, tiles_n = 1, phases = 1;
  ConvShiftPhase phase[kMostShiftPlanes] = {};
  ConvShiftPlane planes[kMostShiftPlanes] = {};
  ConvShiftTap taps[kMostShiftTaps] = {};
};
// Of conv_shifts_weight.cu. The parts of a set of taps follow each other in `parts_of`; a tap's part
// counts from the set's first.
struct ConvShiftWeightTap {
  i32 shift, kernel;
  u32 part;
};
struct ConvShiftSet {
  u32 first_tap = 0, taps = 0, first_part = 0, parts = 0;
};
constexpr int kMostShiftSets = 8;
struct ConvShiftWeights {
  TensorMap x{}, x_begin{}, dy{};  // positions [part][position][padded], [position][padded]
  void* sums = nullptr;            // [split][group·m][columns]
  i32 groups = 1, c = 0, m = 0;    // c, m: of a group
  i32 padded = 0, columns = 0;     // channels of a tap in sums; padded · taps
  u32 tiles_m = 1, tiles_c = 1, sets = 1;
  u32 steps = 0, split_steps = 0;  // of 64 positions: of all, of a split
  u32 slots = 1, ahead = 0;        // of a ring; steps by which x is brought before dy
  u32 rings = 1;                   // the most parts of a set
  ConvShiftSet set[kMostShiftSets] = {};
  u32 parts_of[kMostShiftPlanes * 2] = {};
  ConvShiftWeightTap taps[kMostShiftTaps] = {};
};
struct ConvWeightSums {
  ConvShape shape{};
  const void *dy = nullptr, *x = nullptr;
  void* parts = nullptr;  // [split][group][m][columns]
  u32 tiles_m = 1, tiles_n = 1, splits = 1;
  u32 split_terms = 0;                 // windows of a split
  u32 columns = 0;                     // of a row of parts
  u32 corners_at = 0;                  // in shared memory: where windows are listed
  i32 m_pieces = 0, c_pieces = 0;      // of 8 channels of a group
  Divisor windows{}, rows{}, lines{};  // of an image, of out[1]·out[2], of out[2]
  Divisor by_taps{}, by_line{},
      by_tap{};  // of kernel positions, of kernel[1]·kernel[2], of kernel[2]
};
// One thread or block for an output each.
template <class Ends>
struct ConvPlanesOf {
  ConvShape shape{};
  const void *x = nullptr, *w = nullptr;
  Ends ends{};
  i64 items = 0;              // threads that have work
  Divisor rows{}, columns{};  // of items in a plane
};
using ConvPlanes = ConvPlanesOf<ConvEnds>;
struct ConvTapSums {
  ConvShape shape{};
  const void *dy = nullptr, *x = nullptr;
  void* parts = nullptr;  // [piece][row][taps]
  u32 pieces = 1;
  i64 piece = 0;  // images of a piece
};
// From [n][groups·c][pixels] to [n][pixels][groups][padded], zeros behind the c channels.
struct ConvLayout {
  u32 pixels = 0, groups = 1, c = 0, padded = 0;
  u32 pixel_tiles = 1, channel_tiles = 1;
};
struct ConvFinish {
  i64 count = 0, plane = 1;  // elements of the result and of a channel
  u32 channels = 1, splits = 1;
};
// parts [split][row][tap][padded], to dw [row][c][tap]. A block makes a row of so many channels and
// taps; so many threads share the splits of an element.
struct ConvFinishWeights {
  i64 split = 0;  // elements of a split
  u32 splits = 1, c = 1, taps = 1;
  u32 row = 0, padded = 0;  // elements of parts: of a row, of a tap
  u32 tile_c = 1, slices = 1;
  u32 tiles_c = 1, tiles_taps = 1;
  Divisor by_tap{}, by_tile{};  // of vectors: those of a tap, of a tile
  Divisor tile_taps{};
};
constexpr int kMostFinishItems = 2048;  // elements of a tile, by slices
// im2col and col2im: c is the number of channels of x.
struct ConvColumns {
  ConvShape shape{};
  i64 count = 0;  // elements of the result
  Divisor taps{}, by_line{}, by_tap{};
  i64 windows = 1, pixels = 1;
};
TENON_ARGUMENTS_END
