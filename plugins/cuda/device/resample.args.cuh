// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in resample.cu and resample_grid.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// The taps of an output of an axis: `count` pixels from `first` on. A table has one range for each
// output, then `taps` weights for each output.
struct TapRange {
  i32 first, count;
};

// An axis of resize: of x, of y. mode: nearest, linear, cubic. coordinates, nearest: in the order of
// sdk/OPS.md.
struct TapsShape {
  i32 in = 1, out = 1, taps = 1, back_taps = 1;
  i32 mode = 0, coordinates = 0, nearest = 0;
  i32 exact = 1, exclude = 0, smooth = 0;
  f64 scale = 1, start = 0, end = 1, cubic_a = 0;
};

// Planes of pixels: depth, height, width.
struct ImagesShape {
  i64 planes = 0;
  i64 in_pixels = 0, out_pixels = 0;
  i32 in_h = 1, in_w = 1;
  i32 taps[3] = {1, 1, 1};
  i32 rows[3] = {1, 1, 1};  // of the tables
  Divisor pixels, h, w;     // of y
};

// x as [outer, in, inner], y as [outer, out, inner].
struct LineShape {
  i64 items = 0;
  i64 in = 1, out = 1, inner = 1;
  i32 taps = 1;
};

struct GridShape {
  i64 images = 0, points = 0, channels = 0, groups = 0, pixels = 0;
  i32 size[3] = {1, 1, 1};  // of x, the last axis first
};
TENON_ARGUMENTS_END
