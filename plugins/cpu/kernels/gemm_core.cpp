// SPDX-License-Identifier: Apache-2.0
// Tile products of operands that are not packed, compiled for each instruction set.
#include "gemm_core.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_core.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "gemm-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <class T, class A>
struct Tiles {
  A a;
  const T* b;
  int64_t b_panel, b_step, steps;
  T* c;
  int64_t ldc;
  const T* scale;
  TileMode mode;
};

template <class D, class T>
HWY_INLINE void put(D d, TileMode mode, hn::Vec<D> sum, T* c, const T* scale) {
  if (mode == TileMode::add) sum = hn::Add(hn::LoadU(d, c), sum);
  if (mode == TileMode::scale_add) sum = multiply_add(hn::LoadU(d, c), hn::LoadU(d, scale), sum);
  hn::StoreU(sum, d, c);
}

// The tile of kRows x kVectors at column j; `cols` columns exist.
template <int kRows, int kVectors, class T, class A>
HWY_INLINE void tile(const Tiles<T, A>& t, int64_t j, const T* b, int64_t cols) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kWidth = kVectors * hn::MaxLanes(d);
  alignas(64) T sums[kRows][kWidth], scales[kWidth];
  T* c = t.c + j;
  const T* scale = t.scale + j;
  int64_t ldc = t.ldc;
  const bool whole = cols == kVectors * lanes;
  if (whole) {
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) hwy::Prefetch(c + r * ldc + v * lanes);
  } else {
    std::fill_n(sums[0], kRows * kWidth, T{});
    std::fill_n(scales, kWidth, T{});
    if (t.mode == TileMode::scale_add) std::copy_n(scale, cols, scales);
    if (t.mode != TileMode::set)
      for (int r = 0; r < kRows; ++r) std::copy_n(c + r * ldc, cols, sums[r]);
    c = sums[0], ldc = kWidth, scale = scales;
  }
  tile_product<kRows, kVectors>(d, t.steps, t.a, b, t.b_step, [&](int r, int v, auto sum) HWY_ATTR {
    put(d, t.mode, sum, c + r * ldc + v * lanes, scale + v * lanes);
  });
  if (!whole)
    for (int r = 0; r < kRows; ++r) std::copy_n(sums[r], cols, t.c + r * t.ldc + j);
}

template <int kRows, class T, class A>
void row_of_tiles(const Tiles<T, A>& t, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t panel = kTileVectors * lanes;
  const T* b = t.b;
  for (int64_t j = 0; j < n; j += panel, b += t.b_panel) {
    const int64_t cols = std::min(panel, n - j);
    if constexpr (std::is_same_v<T, float>) {
      if (cols <= lanes) {
        tile<kRows, 1>(t, j, b, cols);
        continue;
      }
      if (cols <= 2 * lanes) {
        tile<kRows, 2>(t, j, b, cols);
        continue;
      }
      // Four contiguous vectors: two and two are faster than three and one.
      if (n - j == 4 * lanes && t.b_panel == panel) {
        tile<kRows, 2>(t, j, b, 2 * lanes);
        tile<kRows, 2>(t, j + 2 * lanes, b + 2 * lanes, 2 * lanes);
        return;
      }
    }
    tile<kRows, 3>(t, j, b, cols);
  }
}

template <class T, class A>
void rows_of_tiles(Tiles<T, A> t, int64_t m, int64_t n, int64_t a_row) {
  static_assert(kTileVectors == 3);
  const auto next = [&](int rows) { t.a.base += rows * a_row, t.c += rows * t.ldc, m -= rows; };
  for (; m >= kTileRows; next(kTileRows)) row_of_tiles<kTileRows>(t, n);
  if constexpr (std::is_same_v<T, float> && kTileRows > 4)
    if (m >= 4) row_of_tiles<4>(t, n), next(4);
  for (; m > 0; next(1)) row_of_tiles<1>(t, n);
}

template <class T>
void tile_products_of(const TileProduct& p) {
  const T* a = static_cast<const T*>(p.a);
  const auto run = [&](auto rows) {
    rows_of_tiles(Tiles<T, decltype(rows)>{rows, static_cast<const T*>(p.b), p.b_panel, p.b_step,
                                           p.steps, static_cast<T*>(p.c), p.ldc,
                                           static_cast<const T*>(p.scale), p.mode},
                  p.m, p.n, p.a_row);
  };
  if constexpr (!std::is_same_v<T, int32_t>)
    if (p.a_row != 1) return run(StepsTogether<T>{a, p.a_row});
  run(RowsTogether<T>{a, p.a_step});
}

void TileProducts(const TileProduct& p) {
  switch (p.sum) {
    case TENON_DTYPE_F32:
      return tile_products_of<float>(p);
    case TENON_DTYPE_F64:
      return tile_products_of<double>(p);
    case TENON_DTYPE_I32:
      return tile_products_of<int32_t>(p);
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(TileProducts);

void tile_products(const TileProduct& product) { HWY_DYNAMIC_DISPATCH(TileProducts)(product); }

}  // namespace tenon::cpu
#endif
