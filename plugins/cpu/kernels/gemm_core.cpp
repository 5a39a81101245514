// SPDX-License-Identifier: Apache-2.0
// Packing, panel products and skinny products, compiled for each instruction set.
#include "gemm_core.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_core.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "gemm-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <class From>
struct SumOf {
  using type = Acc<From>;
};
template <>
struct SumOf<int8_t> {
  using type = int32_t;
};
template <>
struct SumOf<uint8_t> {
  using type = int32_t;
};

template <class From, class To>
HWY_INLINE To widened(From x) {
  if constexpr (std::is_same_v<To, float> && !std::is_same_v<From, float>) {
    return to_float(x);
  } else {
    return static_cast<To>(x);
  }
}

// Integers wrap.
template <class T>
HWY_INLINE T add_product(T sum, T x, T y) {
  if constexpr (std::is_same_v<T, int32_t>) {
    return static_cast<int32_t>(static_cast<uint32_t>(sum) +
                                static_cast<uint32_t>(x) * static_cast<uint32_t>(y));
  } else {
    return sum + x * y;
  }
}

// n consecutive elements.
template <class From, class To>
void widen_run(const From* x, int64_t n, To* y) {
  int64_t i = 0;
  if constexpr (!std::is_same_v<To, int32_t>) {
    const hn::ScalableTag<To> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) hn::StoreU(load(d, x + i), d, y + i);
  }
  for (; i < n; ++i) y[i] = widened<From, To>(x[i]);
}

// Four runs of k side by side: to[s * panel + w] = runs[w][s].
template <class T>
void interleave4(const T* const* runs, int64_t steps, int64_t panel, T* to) {
  int64_t s = 0;
  if constexpr (sizeof(T) == 4) {
    const hn::CappedTag<T, 4> d;
    if (hn::Lanes(d) == 4) {
      for (; s + 4 <= steps; s += 4) {
        const auto r0 = hn::LoadU(d, runs[0] + s), r1 = hn::LoadU(d, runs[1] + s);
        const auto r2 = hn::LoadU(d, runs[2] + s), r3 = hn::LoadU(d, runs[3] + s);
        const auto low01 = hn::InterleaveLower(d, r0, r1), high01 = hn::InterleaveUpper(d, r0, r1);
        const auto low23 = hn::InterleaveLower(d, r2, r3), high23 = hn::InterleaveUpper(d, r2, r3);
        T* const at = to + s * panel;
        hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, at);
        hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, at + panel);
        hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, at + 2 * panel);
        hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, at + 3 * panel);
      }
    }
  }
  for (; s < steps; ++s)
    for (int w = 0; w < 4; ++w) to[s * panel + w] = runs[w][s];
}

// One panel whose elements lie along k: four rows at a time, converted in short runs.
template <class From, class To>
void pack_along_steps(const From* data, int64_t width_stride, int64_t width, int64_t steps,
                      int64_t panel, To* to) {
  constexpr int64_t kRun = 256;
  alignas(64) To buffer[4][kRun];
  for (int64_t w = 0; w < width; w += 4) {
    const int64_t rows = std::min<int64_t>(4, width - w);
    for (int64_t s = 0; s < steps; s += kRun) {
      const int64_t n = std::min(kRun, steps - s);
      const To* runs[4];
      for (int64_t r = 0; r < rows; ++r) {
        const From* from = data + (w + r) * width_stride + s;
        if constexpr (std::is_same_v<From, To>) {
          runs[r] = from;
        } else {
          widen_run(from, n, buffer[r]);
          runs[r] = buffer[r];
        }
      }
      if (rows == 4) {
        interleave4(runs, n, panel, to + s * panel + w);
      } else {
        for (int64_t i = 0; i < n; ++i)
          for (int64_t r = 0; r < rows; ++r) to[(s + i) * panel + w + r] = runs[r][i];
      }
    }
  }
}

// Elements that lie along the width, a few rows at a time: each is read in the order of memory, and
// a panel receives whole cache lines.
template <class From, class To>
void pack_along_width(const From* data, int64_t step_stride, int64_t width, int64_t steps,
                      int64_t panel, To* to) {
  constexpr int64_t kRows = 8;
  const hn::CappedTag<To, kTileRows> d;  // of which panels of more than one are multiples
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t first = 0; first < steps; first += kRows) {
    const int64_t last = std::min(steps, first + kRows);
    for (int64_t w = 0; w < width; w += panel)
      for (int64_t s = first; s < last; ++s) {
        const From* const from = data + s * step_stride + w;
        To* const at = to + w * steps + s * panel;
        if constexpr (hwy::IsFloat<To>()) {
          if (panel >= lanes && w + panel <= width) {
            for (int64_t i = 0; i < panel; i += lanes) hn::StoreU(load(d, from + i), d, at + i);
            continue;
          }
        }
        for (int64_t i = 0; i < std::min(panel, width - w); ++i) at[i] = widened<From, To>(from[i]);
      }
  }
}

template <class From>
void pack(const From* data, int64_t width_stride, int64_t step_stride, int64_t width, int64_t steps,
          int64_t panel, void* packed) {
  using To = typename SumOf<From>::type;
  To* const to = static_cast<To*>(packed);
  if (const int64_t last = width / panel * panel; last < width)
    std::fill_n(to + last * steps, panel * steps, To{});
  if (width_stride == 1) return pack_along_width(data, step_stride, width, steps, panel, to);
  for (int64_t w = 0; w < width; w += panel) {
    const int64_t n = std::min(panel, width - w);
    const From* const from = data + w * width_stride;
    if (step_stride == 1) {
      pack_along_steps(from, width_stride, n, steps, panel, to + w * steps);
    } else {
      for (int64_t s = 0; s < steps; ++s)
        for (int64_t i = 0; i < n; ++i)
          to[w * steps + s * panel + i] =
              widened<From, To>(from[i * width_stride + s * step_stride]);
    }
  }
}

void Pack(tenon_dtype from, const void* data, int64_t width_stride, int64_t step_stride,
          int64_t width, int64_t steps, int64_t panel, void* packed) {
  const auto as = [&](auto type) {
    using From = decltype(type);
    pack(static_cast<const From*>(data), width_stride, step_stride, width, steps, panel, packed);
  };
  switch (from) {
    case TENON_DTYPE_F32:
      return as(float{});
    case TENON_DTYPE_F64:
      return as(double{});
    case TENON_DTYPE_F16:
      return as(F16{});
    case TENON_DTYPE_BF16:
      return as(Bf16{});
    case TENON_DTYPE_I8:
      return as(int8_t{});
    case TENON_DTYPE_U8:
      return as(uint8_t{});
  }
}

// ---- panels

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

// The tile of kRows x kVectors at column j, of which `cols` columns exist.
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
      // Four vectors that lie on in memory: two and two rather than three and one.
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

// kRows sums for the columns of many that lie side by side: eight steps at a time, so that a sum is
// loaded and stored once per eight products; `sums` is [kRows][n].
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

// kRows x kCols dot products of runs along k.
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
  switch (from) {
    case TENON_DTYPE_F32:
      return as(float{});
    case TENON_DTYPE_F64:
      return as(double{});
    case TENON_DTYPE_F16:
      return as(F16{});
    case TENON_DTYPE_BF16:
      return as(Bf16{});
  }
}

GemmPanels Panels(tenon_dtype sum) {
  const int64_t bytes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<uint8_t>()));
  return {kTileRows, kTileVectors * bytes / (sum == TENON_DTYPE_F64 ? 8 : 4)};
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Pack);
HWY_EXPORT(TileProducts);
HWY_EXPORT(Skinny);
HWY_EXPORT(Panels);

GemmPanels gemm_panels(tenon_dtype sum) { return HWY_DYNAMIC_DISPATCH(Panels)(sum); }
void gemm_pack(tenon_dtype from, const void* data, int64_t width_stride, int64_t step_stride,
               int64_t width, int64_t steps, int64_t panel, void* packed) {
  HWY_DYNAMIC_DISPATCH(Pack)(from, data, width_stride, step_stride, width, steps, panel, packed);
}
void tile_products(const TileProduct& product) { HWY_DYNAMIC_DISPATCH(TileProducts)(product); }
void gemm_skinny(tenon_dtype from, int64_t m, int64_t n, int64_t k, const void* few,
                 const void* many, int64_t k_stride, int64_t n_stride, void* out, int64_t out_row,
                 int64_t out_col) {
  HWY_DYNAMIC_DISPATCH(Skinny)(from, m, n, k, few, many, k_stride, n_stride, out, out_row, out_col);
}

}  // namespace tenon::cpu
#endif
