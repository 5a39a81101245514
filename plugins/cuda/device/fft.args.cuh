// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in fft.cu, fft_columns.cu and fft_frames.cu, and the shared memory of a transform.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
// Rows of x and y are in_row and out_row elements apart.
struct FftRows {
  i64 rows, in_row, out_row;
  i32 there;  // elements of a row of x; the points behind them are 0
  f32 factor;
};
// Transforms along axis 1 of [outer, points, columns]; STEP of fft_columns.cu says which of them are in what order.
struct FftColumns {
  i64 columns;
  i64 in_outer, out_outer;  // elements from one of outer to the next
  u32 groups;               // of columns, for each of outer
  i32 there;                // points of x; those behind them are 0
  f32 factor;
  f32 points, inverse;  // of both steps, and 1 over it
};
// Frames of signals [batch, samples].
struct FftFrames {
  i64 samples, frames;
  i64 border;  // in front of the signal
  i64 hop;
  u32 groups;         // of frames, for each signal
  i32 first, window;  // the samples of a frame that the window covers
  f32 factor;
  i32 filters;  // of the mel scale; the rest is theirs
  f32 floor, lowest, log_factor, range;
};
// A filter of the mel scale: weights of neighbouring bins.
struct MelFilter {
  i32 bin, count, weights;
};
struct MelRange {
  i64 row;     // logarithms of a group that has one maximum, which are neighbours
  i64 maxima;  // of a group
  u32 blocks;  // for each group
  f32 range;
};

// Numbers in shared memory are padded against bank conflicts: after each 2^shift points one place is unused.
constexpr int fft_shift(int columns) { return columns == 1 ? 5 : 4; }
// Words of the real or the imaginary parts of `columns` transforms whose points alternate.
constexpr int fft_part(int points, int columns) {
  return (points + (points >> fft_shift(columns))) * columns;
}
// Words of such transforms. Neighbours in a warp begin at different banks.
constexpr int fft_area(int points, int columns, int parts, int lanes) {
  return parts * fft_part(points, columns) +
         (lanes % 32 + 32 - parts * fft_part(points, columns) % 32) % 32;
}
TENON_ARGUMENTS_END
