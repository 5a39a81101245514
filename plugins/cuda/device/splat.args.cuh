// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in splat_*.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
struct SplatProject {
  const void *means = nullptr, *quats = nullptr, *scales = nullptr, *views = nullptr,
             *intrinsics = nullptr;
  i32* radii = nullptr;
  void *means2d = nullptr, *depths = nullptr, *conics = nullptr;
  i64 points = 0, pairs = 0, width = 0, height = 0;  // pairs: of an image and a Gaussian
  f64 eps2d = 0, nearest = 0, farthest = 0, clip = 0;
};

struct SplatColors {
  const void *means = nullptr, *views = nullptr, *coeffs = nullptr;
  void* y = nullptr;
  i64 images = 0, points = 0;
  i64 values = 0;  // of a Gaussian in coeffs, used or not
};

struct SplatBin {
  const i32* radii = nullptr;
  const void *means2d = nullptr, *depths = nullptr;
  i64* keys = nullptr;
  i32* ids = nullptr;
  i64* count = nullptr;
  i64* starts = nullptr;  // entries of each block of pairs; then those of earlier blocks
  i64 points = 0, pairs = 0, entries = 0, rows = 0, columns = 0;
  i32 size = 0;
};

// A stable sort by radix. An entry has its digits in the high 32 bits and its place in the low ones.
struct SplatSort {
  const i64* keys = nullptr;
  const i32* ids = nullptr;
  const u64* from = nullptr;
  u64* to = nullptr;
  u32* counts = nullptr;  // [256][parts]
  u32* totals = nullptr;  // [256]
  u32* used = nullptr;    // entries up to the last one that is used: only these are sorted
  i64 end = 0;            // used are keys from 0 to end << 32, or ids from 0 to end
  u32 entries = 0, parts = 0, shift = 0;
};

// Tiles of size x size pixels. `prepared` has a Pair of splat.cuh for each image and Gaussian.
struct SplatScene {
  const void *means2d = nullptr, *conics = nullptr, *colors = nullptr, *opacities = nullptr,
             *background = nullptr;
  const i32 *offsets = nullptr, *ids = nullptr;
  void* prepared = nullptr;
  i32* used = nullptr;  // entries up to the last one that is used
  i64 images = 0, points = 0, width = 0, height = 0, rows = 0, columns = 0;
  i32 entries = 0, size = 0;
};

struct SplatImage {
  void *image = nullptr, *alpha = nullptr;
  i32* last = nullptr;
};

struct SplatGradients {
  const void *dimage = nullptr, *dalpha = nullptr;
  const i32* last = nullptr;
  void* sums = nullptr;          // [entries][6 + channels]: of the pixels of a tile
  void* behind = nullptr;        // [tiles][channels]: of the background
  const u64* by_pair = nullptr;  // entries, sorted by the pair plus 1
  const u32* sorted = nullptr;   // how many
  u32* begins = nullptr;         // of each pair in by_pair; then ends, likewise
  void *dmeans2d = nullptr, *dconics = nullptr, *dcolors = nullptr;
};
TENON_ARGUMENTS_END
