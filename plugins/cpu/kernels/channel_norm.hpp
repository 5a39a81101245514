// SPDX-License-Identifier: Apache-2.0
// The norms of images: what a run hands to the vector code. "acc" is the accumulation type.
#pragma once

#include <cstdint>

#include "tenon/kernel.hpp"

namespace tenon::cpu {

// ---- group_norm: planes, each one channel of one image, n contiguous elements

struct PlaneMoments {
  double mean, squares;  // squares of the distances from the mean
};
PlaneMoments plane_moments(tenon_dtype dtype, const void* x, int64_t n);

struct PlaneScale {
  double mean, inv, gamma, beta;
};
// y = (x - mean)·inv·gamma + beta; `nontemporal`: past the caches, the caller fences
void plane_normalize(tenon_dtype dtype, const void* x, void* y, int64_t n, const PlaneScale& s,
                     bool nontemporal);

struct PlaneSums {
  double dy, dy_x;  // of dy, and of dy times the normalized x
};
PlaneSums plane_sums(tenon_dtype dtype, const void* dy, const void* x, int64_t n, double mean,
                     double inv);

// dx = inv·(gamma·dy - mean_g - x̂·mean_gx); s.beta is not read
void plane_gradient(tenon_dtype dtype, const void* dy, const void* x, void* dx, int64_t n,
                    const PlaneScale& s, double mean_g, double mean_gx, bool nontemporal);

// ---- layer_norm2d: pixels of one image, whose channels lie `pixels` elements apart. A tile of
// them is copied together first: channels that far apart share few places of the cache.

struct PixelNorm {
  tenon_dtype dtype{};
  int64_t channels = 0, pixels = 0;
  double eps = 0;
  int64_t tile = 0;  // pixels
};

// Pointers are those of the image; null where the op's operand or output is absent.
struct PixelForward {
  const void* x;
  const void* gamma;  // acc
  const void* beta;   // acc
  void* y;
  void* mean;  // acc
  void* inv;   // acc
  void* tile;  // PixelNorm::tile numbers (acc) for each channel
};
// Pixels [begin, end), at most a tile.
void pixel_forward(const PixelNorm& p, const PixelForward& a, int64_t begin, int64_t end);

// Bytes of one channel in the sums of parameter gradients: a whole vector.
inline constexpr int64_t kPixelSumBytes = 64;
struct PixelBackward {
  const void* dy;
  const void* x;
  const void* gamma;  // acc
  const void* mean;   // acc
  const void* inv;    // acc
  void* dx;
  void* dgamma;  // kPixelSumBytes for each channel, added to
  void* dbeta;
  void* tile;  // twice that of the forward op
};
void pixel_backward(const PixelNorm& p, const PixelBackward& a, int64_t begin, int64_t end);
// The lanes of one channel's sums.
double pixel_sum(tenon_dtype dtype, const void* sums, int64_t channel);

sdk::Kernel make_layer_norm2d(const sdk::op::layer_norm2d& n, const sdk::Node& node);
sdk::Kernel make_layer_norm2d_backward(const sdk::op::layer_norm2d_backward& n,
                                       const sdk::Node& node);

}  // namespace tenon::cpu
