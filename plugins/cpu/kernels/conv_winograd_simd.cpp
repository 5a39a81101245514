// SPDX-License-Identifier: Apache-2.0
// The transforms of conv_winograd.hpp, in vectors of tiles that lie side by side.
#include <algorithm>
#include <cstring>

#include "conv_winograd.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv_winograd_simd.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

int64_t lanes() { return static_cast<int64_t>(hn::Lanes(D())); }
int64_t whole(int64_t tile_columns) { return (tile_columns + lanes() - 1) / lanes() * lanes(); }

// A row of pixels with zeros around, and for each row of pixels the four rows of d B.
int64_t Rows(int64_t tile_rows, int64_t tile_columns) {
  return 2 * whole(tile_columns) + 2 + 2 * lanes() + (2 * tile_rows + 2) * 4 * whole(tile_columns);
}

bool Pixels(const WinogradPixels& p) {
  const D d;
  const int64_t columns = whole(p.tile_columns), count = 2 * columns + 2;
  float* const pixels = p.rows;
  float* const across = pixels + count + 2 * lanes();
  std::fill_n(pixels, count, 0.f);
  const int64_t begin = std::clamp<int64_t>(-p.left, 0, count);
  const int64_t end = std::clamp<int64_t>(p.width - p.left, begin, 2 * p.tile_columns + 2);
  const V most = hn::Set(d, kMostPixel);
  auto fine = hn::FirstN(d, static_cast<size_t>(lanes()));
  for (int64_t r = 0; r < 2 * p.tile_rows + 2; ++r) {
    float* const to = across + r * 4 * columns;
    const int64_t row = p.top + r;
    if (row < 0 || row >= p.height) {
      std::fill_n(to, 4 * columns, 0.f);
      continue;
    }
    std::memcpy(pixels + begin, p.x + row * p.width + p.left + begin,
                static_cast<size_t>(end - begin) * sizeof(float));
    for (int64_t j = 0; j < columns; j += lanes()) {
      V d0, d1, d2, d3;
      hn::LoadInterleaved2(d, pixels + 2 * j, d0, d1);
      hn::LoadInterleaved2(d, pixels + 2 * j + 2, d2, d3);
      fine = hn::And(fine, hn::And(hn::Lt(hn::Abs(d0), most), hn::Lt(hn::Abs(d1), most)));
      fine = hn::And(fine, hn::And(hn::Lt(hn::Abs(d2), most), hn::Lt(hn::Abs(d3), most)));
      hn::StoreU(hn::Sub(d0, d2), d, to + j);
      hn::StoreU(hn::Add(d1, d2), d, to + columns + j);
      hn::StoreU(hn::Sub(d2, d1), d, to + 2 * columns + j);
      hn::StoreU(hn::Sub(d1, d3), d, to + 3 * columns + j);
    }
  }
  for (int64_t r = 0; r < p.tile_rows; ++r)
    for (int64_t k = 0; k < 4; ++k)
      for (int64_t j = 0; j < columns; j += lanes()) {
        const float* const from = across + (2 * r * 4 + k) * columns + j;
        const V d0 = hn::LoadU(d, from), d1 = hn::LoadU(d, from + 4 * columns),
                d2 = hn::LoadU(d, from + 8 * columns), d3 = hn::LoadU(d, from + 12 * columns);
        float* const to = p.to + k * p.product_pitch + r * p.tile_columns + j;
        hn::StoreU(hn::Sub(d0, d2), d, to);
        hn::StoreU(hn::Add(d1, d2), d, to + 4 * p.product_pitch);
        hn::StoreU(hn::Sub(d2, d1), d, to + 8 * p.product_pitch);
        hn::StoreU(hn::Sub(d1, d3), d, to + 12 * p.product_pitch);
      }
  return hn::AllTrue(d, fine);
}

void Sums(const WinogradSums& p) {
  const D d;
  // Row by row: a row's last vectors reach into the next one.
  for (int64_t row = 0; row < p.rows; ++row) {
    const float* const from = p.products + row / 2 * p.tile_columns;
    float* const y = p.y + row * p.width;
    for (int64_t j = 0; j < p.tile_columns; j += lanes()) {
      V t[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const float* const at = from + k * p.product_pitch + j;
        const V s1 = hn::LoadU(d, at + 4 * p.product_pitch),
                s2 = hn::LoadU(d, at + 8 * p.product_pitch);
        t[k] = row % 2 == 0 ? hn::Add(hn::Add(hn::LoadU(d, at), s1), s2)
                            : hn::Sub(hn::Sub(s1, s2), hn::LoadU(d, at + 12 * p.product_pitch));
      }
      hn::StoreInterleaved2(hn::Add(hn::Add(t[0], t[1]), t[2]), hn::Sub(hn::Sub(t[1], t[2]), t[3]),
                            d, y + 2 * j);
    }
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Rows);
HWY_EXPORT(Pixels);
HWY_EXPORT(Sums);

int64_t winograd_rows(int64_t tile_rows, int64_t tile_columns) {
  return HWY_DYNAMIC_DISPATCH(Rows)(tile_rows, tile_columns);
}
bool winograd_pixels(const WinogradPixels& p) { return HWY_DYNAMIC_DISPATCH(Pixels)(p); }
void winograd_sums(const WinogradSums& p) { HWY_DYNAMIC_DISPATCH(Sums)(p); }

}  // namespace tenon::cpu
#endif
