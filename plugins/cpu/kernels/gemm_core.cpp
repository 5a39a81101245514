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
    return static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(x) * static_cast<uint32_t>(y));
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
void pack_along_steps(const From* data, int64_t width_stride, int64_t width, int64_t steps, int64_t panel, To* to) {
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

template <class From>
void pack(const From* data, int64_t width_stride, int64_t step_stride, int64_t width, int64_t steps, int64_t panel,
          void* packed) {
  using To = typename SumOf<From>::type;
  To* to = static_cast<To*>(packed);
  for (int64_t w = 0; w < width; w += panel, to += panel * steps) {
    const int64_t n = std::min(panel, width - w);
    const From* from = data + w * width_stride;
    if (n < panel) std::fill_n(to, panel * steps, To{});
    if (width_stride == 1) {
      for (int64_t s = 0; s < steps; ++s) widen_run(from + s * step_stride, n, to + s * panel);
    } else if (step_stride == 1) {
      pack_along_steps(from, width_stride, n, steps, panel, to);
    } else {
      for (int64_t s = 0; s < steps; ++s)
        for (int64_t i = 0; i < n; ++i)
          to[s * panel + i] = widened<From, To>(from[i * width_stride + s * step_stride]);
    }
  }
}

void Pack(tenon_dtype from, const void* data, int64_t width_stride, int64_t step_stride, int64_t width, int64_t steps,
          int64_t panel, void* packed) {
  const auto as = [&](auto type) {
    using From = decltype(type);
    pack(static_cast<const From*>(data), width_stride, step_stride, width, steps, panel, packed);
  };
  switch (from) {
    case TENON_DTYPE_F32: return as(float{});
    case TENON_DTYPE_F64: return as(double{});
    case TENON_DTYPE_F16: return as(F16{});
    case TENON_DTYPE_BF16: return as(Bf16{});
    case TENON_DTYPE_I8: return as(int8_t{});
    case TENON_DTYPE_U8: return as(uint8_t{});
  }
}

// ---- panels

// A tile of kRows x kVectors at c, of which `cols` columns exist.
template <int kRows, int kVectors, class T>
HWY_INLINE void tile(int64_t steps, const T* a, const T* b, T* c, int64_t ldc, int64_t cols, bool add) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t panel = kTileVectors * lanes;
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) hwy::Prefetch(c + r * ldc + v * lanes);
  if (cols == kVectors * lanes) {
    if (add) {
      tile_product<kRows, kVectors>(d, steps, PackedRows<T>{a}, b, panel, [&](int r, int v, auto sum) HWY_ATTR {
        T* const at = c + r * ldc + v * lanes;
        hn::StoreU(hn::Add(hn::LoadU(d, at), sum), d, at);
      });
    } else {
      tile_product<kRows, kVectors>(d, steps, PackedRows<T>{a}, b, panel, [&](int r, int v, auto sum) HWY_ATTR {
        hn::StoreU(sum, d, c + r * ldc + v * lanes);
      });
    }
    return;
  }
  alignas(64) T sums[kRows][kVectors * hn::MaxLanes(d)];
  tile_product<kRows, kVectors>(d, steps, PackedRows<T>{a}, b, panel,
                                [&](int r, int v, auto sum) HWY_ATTR { hn::Store(sum, d, sums[r] + v * lanes); });
  for (int r = 0; r < kRows; ++r)
    for (int64_t j = 0; j < cols; ++j) c[r * ldc + j] = add ? add_product(sums[r][j], c[r * ldc + j], T{1}) : sums[r][j];
}

template <int kRows, class T>
void row_of_tiles(int64_t n, int64_t steps, const T* a, const T* b, T* c, int64_t ldc, bool add) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t panel = kTileVectors * lanes;
  for (int64_t j = 0; j < n; j += panel, b += panel * steps) {
    const int64_t cols = std::min(panel, n - j);
    if (cols <= lanes) {
      tile<kRows, 1>(steps, a, b, c + j, ldc, cols, add);
    } else if (cols <= 2 * lanes) {
      tile<kRows, 2>(steps, a, b, c + j, ldc, cols, add);
    } else {
      tile<kRows, 3>(steps, a, b, c + j, ldc, cols, add);
    }
  }
}

template <class T>
void panels_product(int64_t m, int64_t n, int64_t steps, const T* a, const T* b, T* c, int64_t ldc, bool add) {
  static_assert(kTileVectors == 3 && (kTileRows == 4 || kTileRows == 8));
  for (int64_t i = 0; i < m; i += kTileRows, a += kTileRows * steps) {
    const int64_t rows = std::min<int64_t>(kTileRows, m - i);
    if (rows == kTileRows) {
      row_of_tiles<kTileRows>(n, steps, a, b, c + i * ldc, ldc, add);
      continue;
    }
    int64_t r = 0;
    if (rows & 4) row_of_tiles<4>(n, steps, a, b, c + i * ldc, ldc, add), r = 4;
    if (rows & 2) row_of_tiles<2>(n, steps, a + r, b, c + (i + r) * ldc, ldc, add), r += 2;
    if (rows & 1) row_of_tiles<1>(n, steps, a + r, b, c + (i + r) * ldc, ldc, add);
  }
}

void PanelsProduct(tenon_dtype sum, int64_t m, int64_t n, int64_t steps, const void* a, const void* b, void* c,
                   int64_t ldc, bool add) {
  const auto as = [&](auto type) {
    using T = decltype(type);
    panels_product(m, n, steps, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(c), ldc, add);
  };
  switch (sum) {
    case TENON_DTYPE_F32: return as(float{});
    case TENON_DTYPE_F64: return as(double{});
    case TENON_DTYPE_I32: return as(int32_t{});
  }
}

// ---- skinny

template <class D, class From>
HWY_INLINE hn::Vec<D> load_wide(D d, const From* p) {
  if constexpr (sizeof(From) == 1) {
    const hn::Rebind<From, D> narrow;
    return hn::PromoteTo(d, hn::LoadU(narrow, p));
  } else {
    return load(d, p);
  }
}
template <class D, class From>
HWY_INLINE hn::Vec<D> load_wide_n(D d, const From* p, int64_t n) {
  alignas(64) From lanes[hn::MaxLanes(d)] = {};
  std::memcpy(lanes, p, n * sizeof(From));
  return load_wide(d, lanes);
}

// kRows sums for the columns of many that lie side by side: eight steps at a time, so that a sum is loaded and stored
// once per eight products; `sums` is [kRows][n].
template <int kRows, class From, class T>
void add_steps(int64_t n, int64_t k, const T* few, int64_t few_stride, const From* many, int64_t k_stride, T* sums,
               int64_t sums_stride) {
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
          const auto row = load_wide(d, from + t * k_stride + j);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) sum[r] = multiply_add(hn::Set(d, few[r * few_stride + s + t]), row, sum[r]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r], d, sums + r * sums_stride + j);
      }
    }
    for (; j < n; ++j)
      for (int r = 0; r < kRows; ++r) {
        T sum = sums[r * sums_stride + j];
        for (int64_t t = 0; t < steps; ++t)
          sum = add_product(sum, few[r * few_stride + s + t], widened<From, T>(from[t * k_stride + j]));
        sums[r * sums_stride + j] = sum;
      }
  }
}

// kRows x kCols dot products of runs along k.
template <int kRows, int kCols, class From, class T>
void dots(int64_t k, const T* few, int64_t few_stride, const From* many, int64_t n_stride, T* out, int64_t out_row,
          int64_t out_col) {
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
      const auto run = load_wide(d, many + c * n_stride + s);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[c][r] = multiply_add(factor[r], run, sum[c][r]);
    }
  }
  if (s < k)
    for (int c = 0; c < kCols; ++c) {
      const auto run = load_wide_n(d, many + c * n_stride + s, k - s);
      for (int r = 0; r < kRows; ++r)
        sum[c][r] = multiply_add(load_wide_n(d, few + r * few_stride + s, k - s), run, sum[c][r]);
    }
  for (int c = 0; c < kCols; ++c)
    for (int r = 0; r < kRows; ++r) out[r * out_row + c * out_col] = hn::GetLane(hn::SumOfLanes(d, sum[c][r]));
}

template <int kRows, class From, class T>
void skinny_rows(int64_t n, int64_t k, const T* few, const From* many, int64_t k_stride, int64_t n_stride, T* out,
                 int64_t out_row, int64_t out_col) {
  if (k_stride == 1) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4)
      dots<kRows, 4>(k, few, k, many + j * n_stride, n_stride, out + j * out_col, out_row, out_col);
    for (; j < n; ++j) dots<kRows, 1>(k, few, k, many + j * n_stride, n_stride, out + j * out_col, out_row, out_col);
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
      for (int64_t i = 0; i < cols; ++i) out[r * out_row + (j + i) * out_col] = sums[r * kColumns + i];
  }
}

void Skinny(tenon_dtype from, int64_t m, int64_t n, int64_t k, const void* few, const void* many, int64_t k_stride,
            int64_t n_stride, void* out, int64_t out_row, int64_t out_col) {
  const auto as = [&](auto type) {
    using From = decltype(type);
    using T = typename SumOf<From>::type;
    const T* f = static_cast<const T*>(few);
    const From* x = static_cast<const From*>(many);
    T* y = static_cast<T*>(out);
    for (int64_t left = m; left > 0;) {
      const int rows = left >= 4 ? 4 : left >= 2 ? 2 : 1;
      if (rows == 4) skinny_rows<4>(n, k, f, x, k_stride, n_stride, y, out_row, out_col);
      if (rows == 2) skinny_rows<2>(n, k, f, x, k_stride, n_stride, y, out_row, out_col);
      if (rows == 1) skinny_rows<1>(n, k, f, x, k_stride, n_stride, y, out_row, out_col);
      left -= rows, f += rows * k, y += rows * out_row;
    }
  };
  switch (from) {
    case TENON_DTYPE_F32: return as(float{});
    case TENON_DTYPE_F64: return as(double{});
    case TENON_DTYPE_F16: return as(F16{});
    case TENON_DTYPE_BF16: return as(Bf16{});
    case TENON_DTYPE_I8: return as(int8_t{});
    case TENON_DTYPE_U8: return as(uint8_t{});
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
HWY_EXPORT(PanelsProduct);
HWY_EXPORT(Skinny);
HWY_EXPORT(Panels);

GemmPanels gemm_panels(tenon_dtype sum) { return HWY_DYNAMIC_DISPATCH(Panels)(sum); }
void gemm_pack(tenon_dtype from, const void* data, int64_t width_stride, int64_t step_stride, int64_t width,
               int64_t steps, int64_t panel, void* packed) {
  HWY_DYNAMIC_DISPATCH(Pack)(from, data, width_stride, step_stride, width, steps, panel, packed);
}
void gemm_panels_product(tenon_dtype sum, int64_t m, int64_t n, int64_t steps, const void* a, const void* b, void* c,
                         int64_t ldc, bool add) {
  HWY_DYNAMIC_DISPATCH(PanelsProduct)(sum, m, n, steps, a, b, c, ldc, add);
}
void gemm_skinny(tenon_dtype from, int64_t m, int64_t n, int64_t k, const void* few, const void* many,
                 int64_t k_stride, int64_t n_stride, void* out, int64_t out_row, int64_t out_col) {
  HWY_DYNAMIC_DISPATCH(Skinny)(from, m, n, k, few, many, k_stride, n_stride, out, out_row, out_col);
}

}  // namespace tenon::cpu
#endif
