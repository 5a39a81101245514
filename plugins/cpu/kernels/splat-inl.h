// SPDX-License-Identifier: Apache-2.0
// What both directions of splat_rasterize do with an entry in a tile. Per target, as simd-inl.h.
#if defined(TENON_CPU_SPLAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_SPLAT_INL_H_
#undef TENON_CPU_SPLAT_INL_H_
#else
#define TENON_CPU_SPLAT_INL_H_
#endif

#include <cmath>
#include <limits>

#include "math-inl.h"
#include "splat.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

constexpr double kMostAlpha = 0.999, kLeastAlpha = 1.0 / 255, kLeastLight = 1e-4;

// e^x for x <= 0.
template <class D>
HWY_INLINE hn::Vec<D> decay(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return vexp_weight(d, x);
  } else {
    alignas(64) double lanes[hn::MaxLanes(d)];
    hn::Store(x, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = std::exp(lanes[i]);
    return hn::Load(d, lanes);
  }
}

// An entry in some pixels.
template <class D>
struct SplatLanes {
  using V = hn::Vec<D>;
  V u;                 // see SplatPair
  V power, share;      // along rays: the power, and along/(along² + 2·near·form)
  V raw, alpha;        // opacity · e^-power, and at most 0.999
  hn::Mask<D> passes;  // where it is blended
};

// The pixels that an entry may touch: rows [top, bottom) and vectors from column `left` up to
// `right`.
struct SplatBox {
  int64_t top, bottom, left, right;
  bool empty() const { return top >= bottom || left >= right; }
};

template <class T, bool kRays>
class SplatEntry {
 public:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  SplatEntry(const SplatTile<T>& tile, const SplatPair<T>& pair)
      : pair_(pair), dx_(pair.x - tile.x), dy_(pair.y - tile.y) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
    if (!(pair.reach >= 0)) return;
    const auto range = [](double centre, double half, int64_t size, int64_t* first, int64_t* end) {
      const double low = centre - half, high = centre + half;
      if (!(low < static_cast<double>(size)) || !(high > -1)) return;  // also for NaN
      *first = low > 0 ? static_cast<int64_t>(low) : 0;
      *end = high < static_cast<double>(size) ? static_cast<int64_t>(high) + 1 : size;
    };
    range(dy_, pair.half_y, tile.rows, &box.top, &box.bottom);
    range(dx_, pair.half_x, tile.columns, &box.left, &box.right);
    box.left = box.left / lanes * lanes;
  }

  // The row `y` of the tile: values that its pixels share.
  void to_row(int64_t y) {
    const double dy = dy_ - static_cast<double>(y);
    row_dy = static_cast<T>(dy);
    row_u_ = static_cast<T>(dx_ + pair_.ratio * dy);
    row_dx_ = static_cast<T>(dx_);
    row_slope_ = pair_.mixed * row_dy;
    row_power_ = pair_.rest * row_dy * row_dy;
    if constexpr (kRays) row_along_ = static_cast<T>(1 + pair_.along_x * dx_ + pair_.along_y * dy);
  }
  // False if the entry is blended in none of the pixels from column x on that are `open`.
  HWY_INLINE bool at(int64_t x, hn::Mask<D> open, SplatLanes<D>* to) const {
    const D d;
    const V column = hn::Iota(d, static_cast<T>(x));
    to->u = hn::Sub(hn::Set(d, row_u_), column);
    const V inner = hn::MulAdd(hn::Set(d, pair_.square), to->u, hn::Set(d, row_slope_));
    const V form = hn::MulAdd(to->u, inner, hn::Set(d, row_power_)), zero = hn::Zero(d);
    auto ahead = hn::And(open, hn::Ge(form, zero));
    V power = form;
    if constexpr (kRays) {
      const V along = hn::NegMulAdd(hn::Set(d, pair_.along_x), column, hn::Set(d, row_along_));
      const V twice = hn::Set(d, 2 * pair_.near);
      const V all = hn::MulAdd(twice, form, hn::Mul(along, along));
      power = hn::Div(form, all);
      to->power = power, to->share = hn::Div(along, all);
      ahead = hn::And(ahead, hn::And(hn::Gt(along, zero), hn::Ge(power, zero)));
    }
    const auto near = hn::And(ahead, hn::Le(power, hn::Set(d, pair_.reach)));
    if (hn::AllFalse(d, near)) return false;
    to->raw = hn::Mul(hn::Set(d, pair_.opacity), decay(d, hn::Neg(power)));
    to->passes = hn::And(near, hn::Ge(to->raw, hn::Set(d, static_cast<T>(kLeastAlpha))));
    to->alpha = hn::Min(to->raw, hn::Set(d, static_cast<T>(kMostAlpha)));
    return !hn::AllFalse(d, to->passes);
  }
  HWY_INLINE V dx(int64_t x) const {
    const D d;
    return hn::Sub(hn::Set(d, row_dx_), hn::Iota(d, static_cast<T>(x)));
  }

  SplatBox box{0, 0, 0, 0};
  T row_dy = 0;

 private:
  const SplatPair<T>& pair_;
  const double dx_, dy_;  // from the first pixel
  T row_u_ = 0, row_dx_ = 0, row_slope_ = 0, row_power_ = 0, row_along_ = 0;
};

// The place of the last entry of a pixel, an integer as wide as T.
template <class T>
using SplatPlace = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
