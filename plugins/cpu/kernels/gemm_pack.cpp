// SPDX-License-Identifier: Apache-2.0
// Packing operands into panels, compiled for each instruction set.
#include "gemm_core.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_pack.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "gemm-inl.h"
#include "simd-inl.h"
#include "transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// A panel that is being written; `width` of its elements exist. Vectors are stored whole if they
// end inside the panel. The next step overwrites the surplus elements.
template <class To>
struct Panel {
  To* to;
  int64_t panel, width, steps;
  To* end() const { return to + panel * steps; }

  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, int64_t step, int64_t w) const {
    To* const at = to + step * panel + w;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    if (at + lanes <= end()) return hn::StoreU(v, d, at);
    alignas(64) To all[hn::MaxLanes(d)];
    hn::Store(v, d, all);
    std::copy_n(all, end() - at, at);
  }
  // For steps that are not written one after the other: leaves the next step as it is.
  template <class D>
  HWY_INLINE void store_exact(D d, hn::Vec<D> v, int64_t step, int64_t w) const {
    To* const at = to + step * panel + w;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    panel - w >= lanes ? hn::StoreU(v, d, at) : store_n(d, v, at, static_cast<size_t>(panel - w));
  }
};

// Elements are contiguous along the steps: transposes one vector of elements at a time.
template <class From>
void pack_along_steps(const From* data, int64_t width_stride, int64_t lanes,
                      const Panel<float>& p) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  for (int64_t w = 0; w < p.width; w += kLanes)
    for (int64_t s = 0; s < p.steps; s += kLanes) {
      const From* const from = data + w * width_stride + s;
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) hwy::Prefetch(from + (p.panel + i) * width_stride);
      const int64_t rows = std::min(kLanes, p.width - w), steps = std::min(kLanes, p.steps - s);
      V r[kLanes];
      if (steps == kLanes && w + kLanes <= p.width) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i) r[i] = load(d, from + i * width_stride);
      } else if (steps == kLanes) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i)
          r[i] = i < rows ? load(d, from + i * width_stride) : hn::Zero(d);
      } else {
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i)
          r[i] = i < rows ? load_n(d, from + i * width_stride, steps) : hn::Zero(d);
      }
      V columns[kLanes];
      transpose(d, r, [&](int i, V v) HWY_ATTR { columns[i] = v; });
      if (lanes > 1) {
        const LaneOrder order{p.steps, lanes};
        for (int64_t i = 0; i < steps; ++i) p.store_exact(d, columns[i], order.position(s + i), w);
        continue;
      }
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i)
        if (i < steps) p.store(d, columns[i], s + i, w);
    }
}

// Steps that are packed at a time where elements are contiguous along the width.
inline constexpr int64_t kStepsTogether = 8;

// Packs kStepsTogether steps of a panel of kVectors vectors. All vectors can be read and stored
// whole.
template <int kVectors, class From, class To>
HWY_INLINE void pack_steps_of_panel(const From* from, int64_t step_stride, int64_t panel, To* to) {
  const hn::ScalableTag<To> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
#pragma GCC unroll 8
  for (int64_t s = 0; s < kStepsTogether; ++s, from += step_stride, to += panel) {
    // strides too large for the hardware prefetcher
    hwy::Prefetch(from + kStepsTogether * step_stride);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) hn::StoreU(load(d, from + v * lanes), d, to + v * lanes);
  }
}

// Elements are contiguous along the width: packs a few steps of all panels at a time, so that
// memory is read in order, and panels are written in whole cache lines.
template <class From, class To>
void pack_along_width(const From* data, int64_t step_stride, int64_t width, int64_t steps,
                      int64_t panel, int64_t panel_steps, To* to) {
  const hn::ScalableTag<To> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t vectors = (panel + lanes - 1) / lanes;
  for (int64_t first = 0; first < steps; first += kStepsTogether) {
    const int64_t last = std::min(steps, first + kStepsTogether);
    int64_t w = 0;
    // Whole vectors reach beyond a narrow panel, into the step that is written next. So the last
    // step of a narrow panel is left to the code below.
    if (vectors <= 2 && last - first == kStepsTogether && (panel >= lanes || last < steps))
      for (; w + vectors * lanes <= width; w += panel) {
        const From* const from = data + first * step_stride + w;
        To* const at = to + w * panel_steps + first * panel;
        vectors == 1 ? pack_steps_of_panel<1>(from, step_stride, panel, at)
                     : pack_steps_of_panel<2>(from, step_stride, panel, at);
      }
    for (; w < width; w += panel) {
      const Panel<To> p{to + w * panel_steps, panel, std::min(panel, width - w), steps};
      for (int64_t s = first; s < last; ++s)
        for (int64_t i = 0; i < p.width; i += lanes) {
          const From* const from = data + s * step_stride + w + i;
          const int64_t n = std::min(lanes, p.width - i);
          // strides too large for the hardware prefetcher
          hwy::Prefetch(from + kStepsTogether * step_stride);
          // A read beyond the panel gets elements of the next panel, if there is one.
          const bool whole = n == lanes || (w + i + lanes <= width);
          p.store(d, whole ? load(d, from) : load_n(d, from, n), s, i);
        }
    }
  }
}

// Element by element: integers, and all other layouts.
template <class From, class To>
void pack_one_by_one(const From* data, int64_t width_stride, int64_t step_stride,
                     const Panel<To>& p) {
  if (width_stride == 1) {
    for (int64_t s = 0; s < p.steps; ++s)
      for (int64_t w = 0; w < p.width; ++w)
        p.to[s * p.panel + w] = widened<From, To>(data[w + s * step_stride]);
    return;
  }
  for (int64_t w = 0; w < p.width; ++w)
    for (int64_t s = 0; s < p.steps; ++s)
      p.to[s * p.panel + w] = widened<From, To>(data[w * width_stride + s * step_stride]);
}

template <class From>
void pack(const From* data, int64_t width_stride, int64_t step_stride, int64_t width, int64_t steps,
          int64_t panel, int64_t panel_steps, void* packed, int64_t lane_count) {
  using To = typename SumOf<From>::type;
  To* const to = static_cast<To*>(packed);
  if (const int64_t last = width / panel * panel; last < width)
    std::fill_n(to + last * panel_steps, panel * steps, To{});
  // A panel that is narrower than its vectors allows one vector per step. Otherwise the surplus of
  // one step would overwrite elements of the next.
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<To>()));
  const bool vectors = panel > 1 && (panel % lanes == 0 || panel < lanes);
  if constexpr (hwy::IsFloat<To>())
    if (vectors && width_stride == 1)
      return pack_along_width(data, step_stride, width, steps, panel, panel_steps, to);
  for (int64_t w = 0; w < width; w += panel) {
    const Panel<To> p{to + w * panel_steps, panel, std::min(panel, width - w), steps};
    const From* const from = data + w * width_stride;
    if constexpr (std::is_same_v<To, float>) {
      if (vectors && step_stride == 1) {
        pack_along_steps(from, width_stride, lane_count, p);
        continue;
      }
    }
    pack_one_by_one(from, width_stride, step_stride, p);
  }
}

void Pack(tenon_dtype from, const void* data, int64_t width_stride, int64_t step_stride,
          int64_t width, int64_t steps, int64_t panel, int64_t panel_steps, void* packed,
          int64_t lanes) {
  const auto as = [&](auto type) {
    using From = decltype(type);
    pack(static_cast<const From*>(data), width_stride, step_stride, width, steps, panel,
         panel_steps, packed, lanes);
  };
  if (from == TENON_DTYPE_I8) return as(int8_t{});
  if (from == TENON_DTYPE_U8) return as(uint8_t{});
  with_storage(from, as);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Pack);

void gemm_pack(tenon_dtype from, const void* data, int64_t width_stride, int64_t step_stride,
               int64_t width, int64_t steps, int64_t panel, int64_t panel_steps, void* packed,
               int64_t lanes) {
  HWY_DYNAMIC_DISPATCH(Pack)
  (from, data, width_stride, step_stride, width, steps, panel, panel_steps, packed, lanes);
}

}  // namespace tenon::cpu
#endif
