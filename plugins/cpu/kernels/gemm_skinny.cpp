// SPDX-License-Identifier: Apache-2.0
// Products of few rows, compiled for each instruction set.
#include "gemm_core.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_skinny.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "gemm-inl.h"
#include "simd-inl.h"
#include "transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// `steps` more terms of kRows sums, in up to one vector of contiguous columns of `many`.
template <int kRows, int kSteps, class D, class From, class T, class Load>
HWY_INLINE void add_terms(D d, int64_t steps, const T* few, int64_t few_stride, const From* many,
                          int64_t k_stride, hn::Vec<D>* sum, Load&& load_row) {
  const auto step = [&](int64_t t) HWY_ATTR {
    const auto row = load_row(many + t * k_stride);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      sum[r] = multiply_add(hn::Set(d, few[r * few_stride + t]), row, sum[r]);
  };
  if (steps == kSteps) {
#pragma GCC unroll 8
    for (int64_t t = 0; t < kSteps; ++t) step(t);
  } else {
    for (int64_t t = 0; t < steps; ++t) step(t);
  }
}

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
    hn::Vec<decltype(d)> sum[kRows];
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r] = hn::LoadU(d, sums + r * sums_stride + j);
      add_terms<kRows, kSteps>(d, steps, few + s, few_stride, from + j, k_stride, sum,
                               [&](const From* row) HWY_ATTR { return load(d, row); });
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r], d, sums + r * sums_stride + j);
    }
    if (j == n) continue;
    const auto rest = static_cast<size_t>(n - j);
    for (int r = 0; r < kRows; ++r) sum[r] = load_n(d, sums + r * sums_stride + j, rest);
    add_terms<kRows, kSteps>(d, steps, few + s, few_stride, from + j, k_stride, sum,
                             [&](const From* row) HWY_ATTR { return load_n(d, row, rest); });
    for (int r = 0; r < kRows; ++r) store_n(d, sum[r], sums + r * sums_stride + j, rest);
  }
}

// Contiguous columns.
template <int kRows, class From, class T>
void columns_product(const SkinnyProduct& p, const T* few, T* out) {
  constexpr int64_t kColumns = 1024;  // the sums stay in the first-level cache
  alignas(64) T sums[kRows * kColumns];
  const From* const many = static_cast<const From*>(p.many);
  for (int64_t j = 0; j < p.n; j += kColumns) {
    const int64_t cols = std::min(kColumns, p.n - j);
    for (int64_t s = 0; s < p.k; s += p.part) {
      const bool in_place = s == 0 && p.out_col == 1;
      add_steps<kRows>(cols, std::min(p.part, p.k - s), few + s, p.k, many + s * p.k_stride + j,
                       p.k_stride, in_place ? out + j : sums, in_place ? p.out_row : kColumns);
      if (in_place) continue;
      for (int r = 0; r < kRows; ++r)
        for (int64_t i = 0; i < cols; ++i) {
          T& to = out[r * p.out_row + (j + i) * p.out_col];
          to = s == 0 ? sums[r * kColumns + i] : to + sums[r * kColumns + i];
        }
    }
  }
}

// Contiguous steps, in order: a vector holds a step of some columns.
template <int kRows, class From>
void steps_in_order(const SkinnyProduct& p, const float* few, float* out) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const From* many = static_cast<const From*>(p.many);
  for (int64_t j = 0; j < p.n; j += kLanes, many += kLanes * p.n_stride) {
    const int64_t cols = std::min(kLanes, p.n - j);
    V total[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) total[r] = hn::Zero(d);
    for (int64_t begin = 0; begin < p.k; begin += p.part) {
      const int64_t end = std::min(p.k, begin + p.part);
      V sum[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
      for (int64_t s = begin; s < end; s += kLanes) {
        const int64_t steps = std::min(kLanes, end - s);
        V row[kLanes], column[kLanes];
        if (cols == kLanes && steps == kLanes) {
#pragma GCC unroll 16
          for (int64_t i = 0; i < kLanes; ++i) row[i] = load(d, many + i * p.n_stride + s);
        } else {
          for (int64_t i = 0; i < kLanes; ++i)
            row[i] = i >= cols        ? hn::Zero(d)
                     : steps < kLanes ? load_n(d, many + i * p.n_stride + s, steps)
                                      : load(d, many + i * p.n_stride + s);
        }
        transpose(d, row, [&](int i, V v) HWY_ATTR { column[i] = v; });
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i) {
          if (i >= steps) break;
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r)
            sum[r] = multiply_add(hn::Set(d, few[r * p.k + s + i]), column[i], sum[r]);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) total[r] = begin == 0 ? sum[r] : hn::Add(total[r], sum[r]);
    }
    for (int r = 0; r < kRows; ++r) {
      float* const to = out + r * p.out_row + j * p.out_col;
      if (p.out_col == 1 && cols == kLanes) {
        hn::StoreU(total[r], d, to);
        continue;
      }
      alignas(64) float sums[kLanes];
      hn::Store(total[r], d, sums);
      for (int64_t i = 0; i < cols; ++i) to[i * p.out_col] = sums[i];
    }
  }
}

// total[c] (first: =, else +=) the lanes of sum[c], one after the other.
template <int kCols, class V>
HWY_INLINE void add_lanes(const V* sum, bool first, float* total) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  if constexpr (kCols == 4) {
    const hn::Full128<float> d4;
    alignas(64) float lines[4][kLanes];
    V turned[4];
    transpose_in_blocks(sum, turned);
    for (int k = 0; k < 4; ++k) hn::Store(turned[k], d, lines[k]);
    auto all = hn::Load(d4, lines[0]);
    if (!first) all = hn::Add(hn::LoadU(d4, total), all);
#pragma GCC unroll 16
    for (int64_t lane = 1; lane < kLanes; ++lane)
      all = hn::Add(all, hn::Load(d4, lines[lane % 4] + lane / 4 * 4));
    hn::StoreU(all, d4, total);
  } else {
    for (int c = 0; c < kCols; ++c) {
      alignas(64) float lanes[kLanes];
      hn::Store(sum[c], d, lanes);
      float all = first ? lanes[0] : total[c] + lanes[0];
      for (int64_t lane = 1; lane < kLanes; ++lane) all += lanes[lane];
      total[c] = all;
    }
  }
}

// kRows x kCols dot products along contiguous steps, by lanes. next: elements to the columns that
// follow, whose lines are fetched: columns are too short for the processor to notice in time.
template <int kRows, int kCols, class From>
HWY_INLINE void dots(const SkinnyProduct& p, const float* few, const From* many, int64_t next,
                     float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float total[kRows][kCols] = {};
  for (int64_t begin = 0; begin < p.k; begin += p.part) {
    const int64_t end = std::min(p.k, begin + p.part);
    hn::Vec<decltype(d)> sum[kRows][kCols];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) sum[r][c] = hn::Zero(d);
    int64_t s = begin;
    for (; s + lanes <= end; s += lanes) {
      hn::Vec<decltype(d)> factor[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) factor[r] = hn::LoadU(d, few + r * p.k + s);
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) {
        const From* const at = many + c * p.n_stride + s;
        hwy::Prefetch(at + next);
        const auto run = load(d, at);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r][c] = multiply_add(factor[r], run, sum[r][c]);
      }
    }
    if (s < end)
      for (int c = 0; c < kCols; ++c) {
        const auto run = load_n(d, many + c * p.n_stride + s, end - s);
        for (int r = 0; r < kRows; ++r)
          sum[r][c] = multiply_add(load_n(d, few + r * p.k + s, end - s), run, sum[r][c]);
      }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) add_lanes<kCols>(sum[r], begin == 0, total[r]);
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kCols; ++c) out[r * p.out_row + c * p.out_col] = total[r][c];
}
template <int kRows, class From>
void steps_by_lanes(const SkinnyProduct& p, const float* few, float* out) {
  const From* const many = static_cast<const From*>(p.many);
  int64_t j = 0;
  for (; j + 4 <= p.n; j += 4)
    dots<kRows, 4>(p, few, many + j * p.n_stride, j + 8 <= p.n ? 4 * p.n_stride : 0,
                   out + j * p.out_col);
  for (; j < p.n; ++j) dots<kRows, 1>(p, few, many + j * p.n_stride, 0, out + j * p.out_col);
}

// Contiguous steps of f64, kCols columns, by lanes.
template <int kCols>
HWY_INLINE void wide_dots(const SkinnyProduct& p, const double* few, const double* many,
                          double* out) {
  const hn::ScalableTag<double> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kCols];
#pragma GCC unroll 4
  for (int c = 0; c < kCols; ++c) sum[c] = hn::Zero(d);
  int64_t s = 0;
  for (; s + lanes <= p.k; s += lanes)
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c)
      sum[c] = multiply_add(hn::LoadU(d, few + s), hn::LoadU(d, many + c * p.n_stride + s), sum[c]);
  for (int c = 0; c < kCols; ++c) {
    if (s < p.k)
      sum[c] = multiply_add(load_n(d, few + s, p.k - s),
                            load_n(d, many + c * p.n_stride + s, p.k - s), sum[c]);
    out[c * p.out_col] = hn::GetLane(hn::SumOfLanes(d, sum[c]));
  }
}
inline void wide_dots(const SkinnyProduct& p, const double* few, double* out) {
  const double* const many = static_cast<const double*>(p.many);
  int64_t j = 0;
  for (; j + 4 <= p.n; j += 4) wide_dots<4>(p, few, many + j * p.n_stride, out + j * p.out_col);
  for (; j < p.n; ++j) wide_dots<1>(p, few, many + j * p.n_stride, out + j * p.out_col);
}

template <int kRows, class From, class T>
void skinny_rows(const SkinnyProduct& p, const T* few, T* out) {
  if (p.k_stride != 1) return columns_product<kRows, From>(p, few, out);
  if constexpr (std::is_same_v<T, float>) {
    p.by_lanes ? steps_by_lanes<kRows, From>(p, few, out)
               : steps_in_order<kRows, From>(p, few, out);
  } else {
    wide_dots(p, few, out);
  }
}

void Skinny(const SkinnyProduct& p) {
  const auto as = [&](auto type) {
    using From = decltype(type);
    using T = typename SumOf<From>::type;
    const T* few = static_cast<const T*>(p.few);
    T* out = static_cast<T*>(p.out);
    for (int64_t left = p.m; left > 0;) {
      const int rows = std::is_same_v<From, double> ? 1 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      if constexpr (!std::is_same_v<From, double>) {
        if (rows == 4) skinny_rows<4, From>(p, few, out);
        if (rows == 2) skinny_rows<2, From>(p, few, out);
      }
      if (rows == 1) skinny_rows<1, From>(p, few, out);
      left -= rows, few += rows * p.k, out += rows * p.out_row;
    }
  };
  with_storage(p.from, as);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Skinny);

void gemm_skinny(const SkinnyProduct& product) { HWY_DYNAMIC_DISPATCH(Skinny)(product); }

}  // namespace tenon::cpu
#endif
