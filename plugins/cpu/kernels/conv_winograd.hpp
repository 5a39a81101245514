// SPDX-License-Identifier: Apache-2.0
// Windows of 3x3 pixels by the algorithm F(2x2, 3x3) of Winograd: a tile of 2x2 windows takes 16
// products per channel instead of 36. With d the 4x4 pixels that the tile reads and g the filter,
//
//   y = Aᵀ((G g Gᵀ) ⊙ (Bᵀ d B))A
//   Bᵀ = 1  0 -1  0    G =  1    0    0     Aᵀ = 1  1  1  0
//        0  1  1  0         1/2  1/2  1/2        0  1 -1 -1
//        0 -1  1  0         1/2 -1/2  1/2
//        0  1  0 -1         0    0    1
//
// (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.) The sum over channels
// of each of the 16 products is a matrix product over all tiles.
//
// Sums have rounding errors relative to the largest pixel of a tile, not of a window. Pixels that
// are infinite, NaN or beyond kMostPixel would spoil windows that do not read them: bands with such
// pixels are computed directly.
#pragma once

#include "conv.hpp"

namespace tenon::cpu {

class ConvWinograd {
 public:
  // For f32, filters that no run changes, and enough of channels and tiles.
  static bool takes(const TapConv& conv, tenon_dtype dtype);
  explicit ConvWinograd(TapConv conv);

  const ConvWinograd& weights() const { return *this; }  // packs them itself
  std::string layout() const;
  uint64_t bytes() const;
  void pack(const void* w, void* packed) const;
  uint64_t scratch() const { return slots_ * slot_; }
  void run(const sdk::Call& call, const void* x, const void* packed, const ConvEnds& ends) const;

 private:
  struct Band {
    int64_t first = 0, rows = 0;  // of tiles
  };
  Band band(int64_t k) const;
  bool transform(const float* image, const Band& band, float* v, float* rows) const;
  void sum_tiles(const float* packed, const float* v, int64_t panel, int64_t channels,
                 int64_t tiles, float* products) const;
  void sum_directly(const float* packed, const float* image, int64_t panel, int64_t channel,
                    const Band& band, float* sums) const;
  int64_t part(int64_t panel, int64_t product) const;  // of the packed filters, in elements

  TapConv conv_;
  int64_t panel_ = 1, panels_ = 1;  // channels of y
  int64_t tile_rows_ = 1, tile_columns_ = 1;
  int64_t band_rows_ = 1, bands_ = 1;
  int64_t row_panels_ = 1, row_blocks_ = 1;  // of a piece of work
  int64_t pitch_ = 1;                        // of channels in transformed pixels and products
  int64_t sums_pitch_ = 1;
  std::vector<int64_t> offsets_;
  int slots_ = 1;
  uint64_t slot_ = 0, pixels_ = 0, products_ = 0, sums_ = 0;
};

// ---- kernels of conv_winograd_simd.cpp

inline constexpr int kWinogradProducts = 16;

// One channel: to[k * product_pitch + row * tile_columns + column] = element k of Bᵀ d B of the tile.
// The pixels of a row of tiles begin at column `left` of x and row `top`, both may be negative; the
// next tile begins two pixels later. Up to a vector of elements behind a row of tiles is written.
// rows: space for winograd_rows() floats. Returns false if a pixel is not below kMostPixel.
struct WinogradPixels {
  const float* x;
  int64_t height, width, top, left;
  int64_t tile_rows, tile_columns;
  float* to;
  int64_t product_pitch;
  float* rows;
};
inline constexpr float kMostPixel = 1e30f;
int64_t winograd_rows(int64_t tile_rows, int64_t tile_columns);
bool winograd_pixels(const WinogradPixels& p);

// One channel: y[row * width + column] = Aᵀ s A, for `rows` rows. Up to two vectors behind the last
// row are written.
struct WinogradSums {
  const float* products;
  int64_t product_pitch, tile_columns;
  float* y;
  int64_t rows, width;
};
void winograd_sums(const WinogradSums& p);

}  // namespace tenon::cpu
