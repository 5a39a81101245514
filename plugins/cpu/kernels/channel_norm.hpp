// SPDX-License-Identifier: Apache-2.0
// Norms of images: the arguments of the vector code. "acc" is the accumulation type.
#pragma once

#include <cstdint>

#include "tenon/kernel.hpp"

namespace tenon::cpu {

// ---- group_norm: a plane is one channel of one image, n contiguous elements

struct PlaneMoments {
  double mean, squares;  // squared distances from the mean
};
PlaneMoments plane_moments(tenon_dtype dtype, const void* x, int64_t n);

struct PlaneScale {
  double mean, inv, gamma, beta;
};
// y = (x - mean)·inv·gamma + beta. With `nontemporal`, the caller fences.
void plane_normalize(tenon_dtype dtype, const void* x, void* y, int64_t n, const PlaneScale& s,
                     bool nontemporal);

struct PlaneSums {
  double dy, dy_x;  // sums of dy, and of dy times the normalized x
};
PlaneSums plane_sums(tenon_dtype dtype, const void* dy, const void* x, int64_t n, double mean,
                     double inv);

// dx = inv·(gamma·dy - mean_g - x̂·mean_gx); s.beta is not used
void plane_gradient(tenon_dtype dtype, const void* dy, const void* x, void* dx, int64_t n,
                    const PlaneScale& s, double mean_g, double mean_gx, bool nontemporal);

// ---- layer_norm2d: pixels of one image, whose channels are `pixels` elements apart. A tile of
// pixels is first copied to contiguous memory, because channels at this stride would map to few
// cache sets.

struct PixelNorm {
  tenon_dtype dtype{};
  int64_t channels = 0, pixels = 0;
  double eps = 0;
  int64_t tile = 0;  // pixels
};

// Pointers refer to one image. They are null for absent operands and outputs.
struct PixelForward {
  const void* x;
  const void* gamma;  // acc
  const void* beta;   // acc
  void* y;
  void* mean;  // acc
  void* inv;   // acc
  void* tile;  // PixelNorm::tile numbers (acc) per channel
};
// Pixels [begin, end), at most one tile.
void pixel_forward(const PixelNorm& p, const PixelForward& a, int64_t begin, int64_t end);

// Bytes per channel in the sums of parameter gradients: one vector.
inline constexpr int64_t kPixelSumBytes = 64;
struct PixelBackward {
  const void* dy;
  const void* x;
  const void* gamma;  // acc
  const void* mean;   // acc
  const void* inv;    // acc
  void* dx;
  void* dgamma;  // kPixelSumBytes per channel, accumulated
  void* dbeta;
  void* tile;  // twice the size of the forward op's
};
void pixel_backward(const PixelNorm& p, const PixelBackward& a, int64_t begin, int64_t end);
// Adds up the lanes of one channel's sums.
double pixel_sum(tenon_dtype dtype, const void* sums, int64_t channel);

sdk::Kernel make_layer_norm2d(const sdk::op::layer_norm2d& n, const sdk::Node& node);
sdk::Kernel make_layer_norm2d_backward(const sdk::op::layer_norm2d_backward& n,
                                       const sdk::Node& node);

}  // namespace tenon::cpu
