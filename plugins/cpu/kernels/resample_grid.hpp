// SPDX-License-Identifier: Apache-2.0
// Vector code of grid_sample (resample_grid_vector.cpp), over f32 or f64 tensors: halves are widened
// before. Works on blocks of points: their taps are computed once for all channels.
#pragma once

#include <cstdint>

namespace tenon::cpu {

enum class GridMode : uint8_t { nearest, linear, cubic };
enum class GridPadding : uint8_t { zeros, border, reflection };

struct GridPlan {
  GridMode mode = GridMode::linear;
  GridPadding padding = GridPadding::zeros;
  bool align_corners = false;
  bool wide = false;  // f64
  int axes = 2;
  int64_t images = 0, channels = 0, points = 0;
  int64_t size[3] = {1, 1, 1};  // of x, the last axis first
  int64_t pixels = 1;
};

inline constexpr int64_t kGridPoints = 64;  // per block
inline int64_t grid_blocks(const GridPlan& p) { return (p.points + kGridPoints - 1) / kGridPoints; }

// Blocks [begin, end) of all images.
void grid_forward(const GridPlan& p, const void* x, const void* grid, void* y, int64_t begin,
                  int64_t end);
// dgrid of blocks [begin, end) of all images.
void grid_backward_points(const GridPlan& p, const void* dy, const void* x, const void* grid,
                          void* dgrid, int64_t begin, int64_t end);
// dx of channels [begin, end) of one image. dx is overwritten.
void grid_backward_image(const GridPlan& p, const void* dy, const void* grid, void* dx,
                         int64_t image, int64_t begin, int64_t end);

}  // namespace tenon::cpu
