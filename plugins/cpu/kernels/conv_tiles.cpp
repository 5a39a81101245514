// SPDX-License-Identifier: Apache-2.0
// Register tiles of convolutions: packed weights times columns that are read from padded copies, a
// row of columns per step at an offset of its own.
#include "conv.hpp"
#include "gemm_core.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv_tiles.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "gemm-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Of kRows rows of a panel, `rows` exist. Columns beyond the last one may be read and written.
template <int kRows, int kVectors, class T>
void offset_tile(const TapTiles& p, const T* a, int64_t panel, const T* b, T* c, int64_t rows) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const int64_t* const offsets = p.offsets;
  for (int64_t k = 0; k < p.steps; ++k, a += panel) {
    const T* const at = b + offsets[k];
    V row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, at + v * lanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d, a[r]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = multiply_add(factor, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r, c += p.ldc) {
    if (r >= rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      T* const at = c + v * lanes;
      hn::StoreU(p.add ? hn::Add(hn::LoadU(d, at), sum[r][v]) : sum[r][v], d, at);
    }
  }
}

template <int kVectors, class T>
void offset_tiles(const TapTiles& p, int64_t panel, int64_t column) {
  const T* a = static_cast<const T*>(p.a);
  const T* const b = static_cast<const T*>(p.b) + column;
  T* c = static_cast<T*>(p.c) + column;
  for (int64_t i = 0; i < p.m; i += panel, a += panel * p.steps, c += panel * p.ldc) {
    const int64_t rows = std::min(panel, p.m - i);
    // The panels of gemm_panels.cpp: 14, 6 or 4 rows.
    if (rows <= 4) offset_tile<4, kVectors>(p, a, panel, b, c, rows);
#if HWY_TARGET <= HWY_AVX3
    else if (rows <= 8)
      offset_tile<8, kVectors>(p, a, panel, b, c, rows);
    else
      offset_tile<14, kVectors>(p, a, panel, b, c, rows);
#else
    else
      offset_tile<6, kVectors>(p, a, panel, b, c, rows);
#endif
  }
}

template <class T>
void tiles_of(const TapTiles& p) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const int64_t panel = gemm_panels(p.sum).rows;
  int64_t j = 0;
  for (; j + lanes < p.n; j += 2 * lanes) offset_tiles<2, T>(p, panel, j);
  if (j < p.n) offset_tiles<1, T>(p, panel, j);
}

void Tiles(const TapTiles& p) {
  p.sum == TENON_DTYPE_F64 ? tiles_of<double>(p) : tiles_of<float>(p);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Tiles);

void tap_tiles(const TapTiles& tiles) { HWY_DYNAMIC_DISPATCH(Tiles)(tiles); }

}  // namespace tenon::cpu
#endif
