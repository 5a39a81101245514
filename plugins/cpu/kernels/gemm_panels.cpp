// SPDX-License-Identifier: Apache-2.0
// Products of packed panels, compiled for each instruction set. Panels come from the second-level
// cache. Parts of k so short that a panel of b fits the first level are not faster: on a Xeon with
// AMX, 256 and 512 steps took 0.96 to 1.10 of the time of 1024.
#include "gemm_core.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_panels.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "gemm-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Rows per panel of a and vectors per panel of b. The sums, a row of b and a factor fill the
// registers.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kPanelRows = 14;
#elif HWY_TARGET <= HWY_AVX2
inline constexpr int kPanelRows = 6;
#else
inline constexpr int kPanelRows = 4;
#endif
inline constexpr int kPanelVectors = 2;

template <class T>
struct Place {
  const T* a;
  const T* b;
  const T* next;  // of b: a quarter of a step's elements is prefetched per step
  T* c;
  int64_t ldc;
  const T* fetched;  // destination of c to prefetch, or nullptr, and its row stride
  int64_t fetched_stride;
  int64_t steps;
  int rows;  // that exist
  bool add;
};

// Computes kRows of the kPanelRows rows of a panel.
template <int kRows, int kVectors, class T>
void panel_tile(const Place<T>& p) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T *a = p.a, *b = p.b;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const int64_t step = kPanelVectors * lanes;
  // Prefetches one line of c per step, down the rows; three lines per row, because rows are not
  // aligned. Then prefetches the next panel of b.
  int64_t done = 0;
  for (int phase = p.fetched ? 0 : kVectors + 1; phase <= kVectors + 1; ++phase) {
    const bool of_c = phase <= kVectors;
    const T* fetched = !of_c              ? p.next
                       : phase < kVectors ? p.fetched + phase * lanes
                                          : p.fetched + (kVectors * lanes - 1);
    const int64_t stride = of_c ? p.fetched_stride : step / 4;
    const int64_t steps = of_c ? std::min<int64_t>(p.rows, p.steps - done) : p.steps - done;
    done += steps;
    for (int64_t k = 0; k < steps; ++k, a += kPanelRows, b += step, fetched += stride) {
      V row[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * lanes);
      hwy::Prefetch(fetched);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const V factor = hn::Set(d, a[r]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[r][v] = multiply_add(factor, row[v], sum[r][v]);
      }
    }
  }
  T* c = p.c;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r, c += p.ldc) {
    if (r >= p.rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      T* const at = c + v * lanes;
      hn::StoreU(p.add ? hn::Add(hn::LoadU(d, at), sum[r][v]) : sum[r][v], d, at);
    }
  }
}

// Selects the smallest tile that holds the rows.
template <int kVectors, class T>
void panel_tile(const Place<T>& p) {
  if (p.rows <= 4) return panel_tile<4, kVectors>(p);
  if constexpr (kPanelRows > 8)
    if (p.rows <= 8) return panel_tile<8, kVectors>(p);
  if constexpr (kPanelRows > 4) panel_tile<kPanelRows, kVectors>(p);
}

// A tile of which `cols` columns exist. Passed by reference: a copy of recent stores would stall
// until they are complete.
template <class T>
void tile_at(const Place<T>& p, int64_t cols) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (cols == 2 * lanes) return panel_tile<2>(p);
  if (cols == lanes) return panel_tile<1>(p);
  constexpr int64_t kWidth = kPanelVectors * hn::MaxLanes(d);
  alignas(64) T sums[kPanelRows * kWidth];
  const Place<T> apart{.a = p.a,
                       .b = p.b,
                       .next = p.next,
                       .c = sums,
                       .ldc = kWidth,
                       .fetched = p.fetched ? p.c : nullptr,
                       .fetched_stride = p.ldc,
                       .steps = p.steps,
                       .rows = p.rows,
                       .add = false};
  cols > lanes ? panel_tile<2>(apart) : panel_tile<1>(apart);
  for (int r = 0; r < p.rows; ++r)
    for (int64_t j = 0; j < cols; j += lanes) {
      T* const at = p.c + r * p.ldc + j;
      const size_t n = static_cast<size_t>(std::min(lanes, cols - j));
      auto sum = hn::Load(d, sums + r * kWidth + j);
      if (p.add) sum = hn::Add(load_n(d, at, n), sum);
      store_n(d, sum, at, n);
    }
}

// The tile of each lane's steps, one after the other.
template <class T>
void by_lanes(Place<T> p, int64_t cols, const LaneOrder& order) {
  const int64_t width = kPanelVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  for (int64_t lane = 0; lane < order.lanes; ++lane) {
    p.steps = order.begin(lane + 1) - order.begin(lane);
    tile_at(p, cols);
    p.a += kPanelRows * p.steps, p.b += width * p.steps, p.next += width / 4 * p.steps;
    p.fetched = nullptr, p.add = true;
  }
}

template <class T>
void panel_products_of(const PanelProduct& p) {
  const int64_t width = kPanelVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const T* b = static_cast<const T*>(p.b);
  for (int64_t j = 0; j < p.n; j += width, b += width * p.steps) {
    // The first four tiles prefetch the next panel of b.
    const T* const after = j + width < p.n ? b + width * p.steps : b;
    const T* a = static_cast<const T*>(p.a);
    T* c = static_cast<T*>(p.c) + j;
    int64_t tile = 0;
    for (int64_t i = 0; i < p.m; i += kPanelRows, ++tile) {
      Place<T> place{.a = a,
                     .b = b,
                     .next = tile < 4 ? after + tile * p.steps * width / 4 : b,
                     .c = c,
                     .ldc = p.ldc,
                     .fetched = c,
                     .fetched_stride = p.ldc,
                     .steps = p.steps,
                     .rows = static_cast<int>(std::min<int64_t>(kPanelRows, p.m - i)),
                     .add = p.add};
      const int64_t cols = std::min(width, p.n - j);
      if (p.lanes == 1) {
        tile_at(place, cols);
      } else {
        by_lanes(place, cols, {p.steps, p.lanes});
      }
      a += kPanelRows * p.steps, c += kPanelRows * p.ldc;
    }
  }
}

void PanelProducts(const PanelProduct& p) {
  switch (p.sum) {
    case TENON_DTYPE_F32:
      return panel_products_of<float>(p);
    case TENON_DTYPE_F64:
      return panel_products_of<double>(p);
    case TENON_DTYPE_I32:
      return panel_products_of<int32_t>(p);
  }
}

GemmPanels Panels(tenon_dtype sum) {
  const int64_t bytes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<uint8_t>()));
  return {kPanelRows, kPanelVectors * bytes / (sum == TENON_DTYPE_F64 ? 8 : 4), bytes / 4};
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(PanelProducts);
HWY_EXPORT(Panels);

GemmPanels gemm_panels(tenon_dtype sum) { return HWY_DYNAMIC_DISPATCH(Panels)(sum); }
void panel_products(const PanelProduct& product) { HWY_DYNAMIC_DISPATCH(PanelProducts)(product); }

}  // namespace tenon::cpu
#endif
