// SPDX-License-Identifier: Apache-2.0
// Vector kernels of conv_planes.cpp: a few filters times shifted rows, in registers.
#include "conv.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv_planes_simd.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Vectors of sums per filter: of four filters they, a vector of each column of windows and a factor
// fill the registers.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kMostVectors = 6;
#else
inline constexpr int kMostVectors = 3;
#endif

// kVectors vectors of windows, of kFilters filters. The last one starts at window `last`, not behind
// the end of the one before it. n > 0: the first n lanes of one vector.
template <int kFilters, int kVectors, class T>
HWY_INLINE void block_sums(const PlaneSums& p, const T* x, const T* w, T* sums, int64_t last,
                           size_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto start = [&](int v) HWY_ATTR { return v + 1 < kVectors ? v * lanes : last; };
  V sum[kFilters][kVectors];
#pragma GCC unroll 4
  for (int f = 0; f < kFilters; ++f)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[f][v] = hn::Zero(d);
  for (int64_t k = 0; k < p.terms; ++k) {
    const T* const at = x + p.offsets[k];
    V row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      row[v] = n > 0 ? load_n(d, at, n) : hn::LoadU(d, at + start(v));
#pragma GCC unroll 4
    for (int f = 0; f < kFilters; ++f) {
      const V factor = hn::Set(d, w[f * p.terms + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[f][v] = hn::MulAdd(factor, row[v], sum[f][v]);
    }
  }
#pragma GCC unroll 4
  for (int f = 0; f < kFilters; ++f)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      T* const to = sums + f * p.filter_pitch + start(v);
      n > 0 ? store_n(d, sum[f][v], to, n) : hn::StoreU(sum[f][v], d, to);
    }
}

// The windows of a row in blocks of kVectors vectors, then a smaller block.
template <int kFilters, int kVectors, class T>
HWY_INLINE void row_sums(const PlaneSums& p, const T* x, const T* w, T* sums, int64_t count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t j = 0;
  for (; j + kVectors * lanes <= count; j += kVectors * lanes)
    block_sums<kFilters, kVectors>(p, x + j, w, sums + j, (kVectors - 1) * lanes, 0);
  const int64_t left = count - j;
  if (left == 0) return;
  if constexpr (kVectors > 1) {
    if (left > (kVectors - 1) * lanes)
      return block_sums<kFilters, kVectors>(p, x + j, w, sums + j, left - lanes, 0);
    row_sums<kFilters, kVectors - 1>(p, x + j, w, sums + j, left);
  } else {
    block_sums<kFilters, 1>(p, x + j, w, sums + j, 0, static_cast<size_t>(left));
  }
}

template <int kFilters, int kVectors, class T>
void filters_sums(const PlaneSums& p, const T* w, T* sums) {
  const T* x = static_cast<const T*>(p.x);
  for (int64_t row = 0; row < p.rows; ++row, x += p.x_pitch, sums += p.row_pitch)
    row_sums<kFilters, kVectors>(p, x, w, sums, p.count);
}

template <class T>
void sums_of(const PlaneSums& p) {
  const T* const w = static_cast<const T*>(p.w);
  T* const sums = static_cast<T*>(p.sums);
  int64_t f = 0;
  for (; f + 4 <= p.filters; f += 4)
    filters_sums<4, kMostVectors>(p, w + f * p.terms, sums + f * p.filter_pitch);
  for (; f + 2 <= p.filters; f += 2)
    filters_sums<2, kMostVectors>(p, w + f * p.terms, sums + f * p.filter_pitch);
  for (; f < p.filters; ++f)
    filters_sums<1, kMostVectors>(p, w + f * p.terms, sums + f * p.filter_pitch);
}

void Sums(const PlaneSums& p) { p.sum == TENON_DTYPE_F64 ? sums_of<double>(p) : sums_of<float>(p); }

// kTerms dots, over all rows.
template <int kTerms, class T>
HWY_INLINE void terms_dots(const PlaneDots& p, const int64_t* offsets, T* dots) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kTerms];
#pragma GCC unroll 8
  for (int k = 0; k < kTerms; ++k) sum[k] = hn::Zero(d);
  const T *x = static_cast<const T*>(p.x), *y = static_cast<const T*>(p.y);
  for (int64_t row = 0; row < p.rows; ++row, x += p.x_pitch, y += p.y_pitch) {
    int64_t j = 0;
    for (; j + lanes <= p.count; j += lanes) {
      const V factor = hn::LoadU(d, y + j);
#pragma GCC unroll 8
      for (int k = 0; k < kTerms; ++k)
        sum[k] = hn::MulAdd(factor, hn::LoadU(d, x + offsets[k] + j), sum[k]);
    }
    if (j < p.count) {
      const size_t n = static_cast<size_t>(p.count - j);
      const V factor = load_n(d, y + j, n);
#pragma GCC unroll 8
      for (int k = 0; k < kTerms; ++k)
        sum[k] = hn::MulAdd(factor, load_n(d, x + offsets[k] + j, n), sum[k]);
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < kTerms; ++k) dots[k] += hn::GetLane(hn::SumOfLanes(d, sum[k]));
}

template <class T>
void dots_of(const PlaneDots& p) {
  T* const dots = static_cast<T*>(p.dots);
  int64_t k = 0;
  for (; k + 8 <= p.terms; k += 8) terms_dots<8>(p, p.offsets + k, dots + k);
  for (; k + 4 <= p.terms; k += 4) terms_dots<4>(p, p.offsets + k, dots + k);
  for (; k < p.terms; ++k) terms_dots<1>(p, p.offsets + k, dots + k);
}

void Dots(const PlaneDots& p) { p.sum == TENON_DTYPE_F64 ? dots_of<double>(p) : dots_of<float>(p); }

template <class T>
void every_second(const T* x, T* to, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  // The last element of the second vector is read, too: it lies before the next even one.
  for (; j + lanes < count; j += lanes)
    hn::StoreU(hn::ConcatEven(d, hn::LoadU(d, x + 2 * j + lanes), hn::LoadU(d, x + 2 * j)), d,
               to + j);
  if (const int64_t left = count - j; left > 0) {
    const int64_t n = 2 * left - 1;
    const auto low = load_n(d, x + 2 * j, static_cast<size_t>(std::min(n, lanes)));
    const auto high =
        n > lanes ? load_n(d, x + 2 * j + lanes, static_cast<size_t>(n - lanes)) : hn::Zero(d);
    store_n(d, hn::ConcatEven(d, high, low), to + j, static_cast<size_t>(left));
  }
}

void EverySecondFloat(const float* x, float* to, int64_t count) { every_second(x, to, count); }
void EverySecondDouble(const double* x, double* to, int64_t count) { every_second(x, to, count); }

template <class T>
void add_to(T* sums, T value, int64_t count) {
  const hn::ScalableTag<T> d;
  const auto more = hn::Set(d, value);
  map(
      d, count, [&](auto, auto s) HWY_ATTR { return hn::Add(s, more); }, sums, sums);
}

void AddValue(tenon_dtype sum, void* sums, double value, int64_t count) {
  if (sum == TENON_DTYPE_F64) {
    add_to(static_cast<double*>(sums), value, count);
  } else {
    add_to(static_cast<float*>(sums), static_cast<float>(value), count);
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Sums);
HWY_EXPORT(Dots);
HWY_EXPORT(EverySecondFloat);
HWY_EXPORT(EverySecondDouble);
HWY_EXPORT(AddValue);

void plane_sums(const PlaneSums& p) { HWY_DYNAMIC_DISPATCH(Sums)(p); }
void plane_dots(const PlaneDots& p) { HWY_DYNAMIC_DISPATCH(Dots)(p); }
void copy_every_second(const float* x, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(EverySecondFloat)(x, to, count);
}
void copy_every_second(const double* x, double* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(EverySecondDouble)(x, to, count);
}
void add_value(tenon_dtype sum, void* sums, double value, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddValue)(sum, sums, value, count);
}

}  // namespace tenon::cpu
#endif
