// SPDX-License-Identifier: Apache-2.0
// Tile products of operands that are not packed, and skinny products. Compiled for each instruction
// set.
#include "gemm_core.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_core.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "gemm-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// ---- tiles

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

// ---- skinny

// kRows sums for contiguous columns of `many`. Takes eight steps at a time, so that a sum is loaded
// and stored once per eight products. `sums` is [kRows][n].
template <int kRows, class From, class T>
void add_steps(int64_t n, int64_t k, const T* few, int64_t few_stride, const From* many,
               int64_t k_stride, T* sums, int64_t sums_stride) {
  constexpr int64_t kSteps = 8;
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int r = 0; r < kRows; ++r) std::fill_n(sums + r * sums_stride, n, T{});
  for (int64_t s = 0; s < k; s += kSteps) {
    const int64_t steps = std::min(kSteps, k - s);
    const From* from = many + s * k_stride;
    int64_t j = 0;
    if (steps == kSteps) {
      for (; j + lanes <= n; j += lanes) {
        hn::Vec<decltype(d)> sum[kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r] = hn::LoadU(d, sums + r * sums_stride + j);
#pragma GCC unroll 8
        for (int64_t t = 0; t < kSteps; ++t) {
          const auto row = load(d, from + t * k_stride + j);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r)
            sum[r] = multiply_add(hn::Set(d, few[r * few_stride + s + t]), row, sum[r]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r], d, sums + r * sums_stride + j);
      }
    }
    for (; j < n; ++j)
      for (int r = 0; r < kRows; ++r) {
        T sum = sums[r * sums_stride + j];
        for (int64_t t = 0; t < steps; ++t)
          sum = add_product(sum, few[r * few_stride + s + t],
                            widened<From, T>(from[t * k_stride + j]));
        sums[r * sums_stride + j] = sum;
      }
  }
}

// kRows x kCols dot products along contiguous k.
template <int kRows, int kCols, class From, class T>
void dots(int64_t k, const T* few, int64_t few_stride, const From* many, int64_t n_stride, T* out,
          int64_t out_row, int64_t out_col) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kCols][kRows];
#pragma GCC unroll 4
  for (int c = 0; c < kCols; ++c)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[c][r] = hn::Zero(d);
  int64_t s = 0;
  for (; s + lanes <= k; s += lanes) {
    hn::Vec<decltype(d)> factor[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) factor[r] = hn::LoadU(d, few + r * few_stride + s);
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      const auto run = load(d, many + c * n_stride + s);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[c][r] = multiply_add(factor[r], run, sum[c][r]);
    }
  }
  if (s < k)
    for (int c = 0; c < kCols; ++c) {
      const auto run = load_n(d, many + c * n_stride + s, k - s);
      for (int r = 0; r < kRows; ++r)
        sum[c][r] = multiply_add(load_n(d, few + r * few_stride + s, k - s), run, sum[c][r]);
    }
  for (int c = 0; c < kCols; ++c)
    for (int r = 0; r < kRows; ++r)
      out[r * out_row + c * out_col] = hn::GetLane(hn::SumOfLanes(d, sum[c][r]));
}

template <int kRows, class From, class T>
void skinny_rows(int64_t n, int64_t k, const T* few, const From* many, int64_t k_stride,
                 int64_t n_stride, T* out, int64_t out_row, int64_t out_col) {
  if (k_stride == 1) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4)
      dots<kRows, 4>(k, few, k, many + j * n_stride, n_stride, out + j * out_col, out_row, out_col);
    for (; j < n; ++j)
      dots<kRows, 1>(k, few, k, many + j * n_stride, n_stride, out + j * out_col, out_row, out_col);
    return;
  }
  constexpr int64_t kColumns = 1024;  // the sums stay in the first-level cache
  alignas(64) T sums[kRows * kColumns];
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t cols = std::min(kColumns, n - j);
    if (out_col == 1) {
      add_steps<kRows>(cols, k, few, k, many + j, k_stride, out + j, out_row);
      continue;
    }
    add_steps<kRows>(cols, k, few, k, many + j, k_stride, sums, kColumns);
    for (int r = 0; r < kRows; ++r)
      for (int64_t i = 0; i < cols; ++i)
        out[r * out_row + (j + i) * out_col] = sums[r * kColumns + i];
  }
}

void Skinny(tenon_dtype from, int64_t m, int64_t n, int64_t k, const void* few, const void* many,
            int64_t k_stride, int64_t n_stride, void* out, int64_t out_row, int64_t out_col) {
  const auto as = [&](auto type) {
    using From = decltype(type);
    using T = typename SumOf<From>::type;
    const T* f = static_cast<const T*>(few);
    const From* x = static_cast<const From*>(many);
    T* y = static_cast<T*>(out);
    for (int64_t left = m; left > 0;) {
      const int rows = std::is_same_v<From, double> ? 1 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      if constexpr (!std::is_same_v<From, double>) {
        if (rows == 4) skinny_rows<4>(n, k, f, x, k_stride, n_stride, y, out_row, out_col);
        if (rows == 2) skinny_rows<2>(n, k, f, x, k_stride, n_stride, y, out_row, out_col);
      }
      if (rows == 1) skinny_rows<1>(n, k, f, x, k_stride, n_stride, y, out_row, out_col);
      left -= rows, f += rows * k, y += rows * out_row;
    }
  };
  with_storage(from, as);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(TileProducts);
HWY_EXPORT(Skinny);

void tile_products(const TileProduct& product) { HWY_DYNAMIC_DISPATCH(TileProducts)(product); }
void gemm_skinny(tenon_dtype from, int64_t m, int64_t n, int64_t k, const void* few,
                 const void* many, int64_t k_stride, int64_t n_stride, void* out, int64_t out_row,
                 int64_t out_col) {
  HWY_DYNAMIC_DISPATCH(Skinny)(from, m, n, k, few, many, k_stride, n_stride, out, out_row, out_col);
}

}  // namespace tenon::cpu
#endif
