// SPDX-License-Identifier: Apache-2.0
// The positions and taps of grid_sample, in vectors of points. Per target, as simd-inl.h.
#if defined(TENON_CPU_RESAMPLE_GRID_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_RESAMPLE_GRID_INL_H_
#undef TENON_CPU_RESAMPLE_GRID_INL_H_
#else
#define TENON_CPU_RESAMPLE_GRID_INL_H_
#endif

#include <algorithm>

#include "resample_grid.hpp"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <class A>
struct Position {
  explicit Position(const GridPlan& p, int axis)
      : size(static_cast<A>(p.size[axis])),
        last(size - 1),
        half((p.align_corners ? last : size) / 2),
        low(p.align_corners ? A{0} : A(-0.5)),
        span(p.align_corners ? last : size) {}
  A size, last, half, low, span;
};

// A position, and its derivative by the coordinate.
template <class V>
struct Placed {
  V at, slope;
};

// Repeats the axis mirrored at its ends. NaN and infinities become the lower end.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Placed<V> reflected(D d, const Position<hn::TFromD<D>>& axis, Placed<V> p) {
  using A = hn::TFromD<D>;
  const auto zero = hn::Zero(d);
  if (axis.span == 0) return {zero, zero};
  const auto low = hn::Set(d, axis.low), span = hn::Set(d, axis.span);
  const auto from_low = hn::Sub(p.at, low), far = hn::Abs(from_low);
  auto flips = hn::Floor(hn::Div(far, span));
  auto rest = hn::NegMulAdd(flips, span, far);
  // The quotient may be rounded up to the next whole number.
  const auto over = hn::Lt(rest, zero);
  rest = hn::IfThenElse(over, hn::Add(rest, span), rest);
  flips = hn::IfThenElse(over, hn::Sub(flips, hn::Set(d, A{1})), flips);
  const auto half = hn::Mul(flips, hn::Set(d, A(0.5)));
  const auto even = hn::Eq(half, hn::Floor(half));
  const auto inside =
      hn::IfThenElse(even, hn::Add(rest, low), hn::Sub(hn::Set(d, axis.span + axis.low), rest));
  const auto falls =
      hn::Xor(hn::VecFromMask(d, hn::Lt(from_low, zero)), hn::VecFromMask(d, hn::Not(even)));
  return {hn::IfThenElse(hn::Ge(inside, low), inside, low),
          hn::IfThenElse(hn::MaskFromVec(falls), hn::Neg(p.slope), p.slope)};
}

// NaN becomes the lower end.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Placed<V> clipped(D d, hn::TFromD<D> low, hn::TFromD<D> high, Placed<V> p) {
  const auto lower = hn::Set(d, low), upper = hn::Set(d, high);
  const auto above = hn::Gt(p.at, lower), below = hn::Lt(p.at, upper);
  return {hn::IfThenElse(above, hn::IfThenElse(below, p.at, upper), lower),
          hn::IfThenElseZero(hn::And(above, below), p.slope)};
}

template <class V, int kTaps>
struct AxisTaps {
  V at[kTaps], weight[kTaps], slope[kTaps];  // outside: pixel 0, weight and slope 0
};

// The cubic filter with a = -0.75, and its derivative.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V near_cubic(D d, V r) {
  using A = hn::TFromD<D>;
  const auto inner = hn::MulSub(hn::Set(d, A(1.25)), r, hn::Set(d, A(2.25)));
  return hn::MulAdd(hn::Mul(r, r), inner, hn::Set(d, A(1)));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V far_cubic(D d, V r) {
  using A = hn::TFromD<D>;
  const auto inner = hn::MulAdd(hn::Set(d, A(-0.75)), r, hn::Set(d, A(3.75)));
  return hn::MulAdd(hn::MulSub(inner, r, hn::Set(d, A(6))), r, hn::Set(d, A(3)));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V near_slope(D d, V r) {
  using A = hn::TFromD<D>;
  return hn::Mul(r, hn::MulSub(hn::Set(d, A(3.75)), r, hn::Set(d, A(4.5))));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V far_slope(D d, V r) {
  using A = hn::TFromD<D>;
  const auto inner = hn::MulAdd(hn::Set(d, A(-2.25)), r, hn::Set(d, A(7.5)));
  return hn::MulSub(inner, r, hn::Set(d, A(6)));
}

template <GridMode mode>
constexpr int kAxisTaps = mode == GridMode::nearest  ? 1
                          : mode == GridMode::linear ? 2
                                                     : 4;

template <GridMode mode, class D, class V = hn::Vec<D>>
HWY_INLINE AxisTaps<V, kAxisTaps<mode>> axis_taps(D d, const GridPlan& plan,
                                                  const Position<hn::TFromD<D>>& axis, V g) {
  using A = hn::TFromD<D>;
  constexpr int kTaps = kAxisTaps<mode>;
  constexpr bool kCubic = mode == GridMode::cubic;
  const auto zero = hn::Zero(d), one = hn::Set(d, A(1)), last = hn::Set(d, axis.last);
  Placed<V> p{zero, hn::Set(d, axis.half)};
  p.at = plan.align_corners ? hn::Mul(hn::Add(g, one), hn::Set(d, axis.half))
                            : hn::Mul(hn::Sub(hn::Mul(hn::Add(g, one), hn::Set(d, axis.size)), one),
                                      hn::Set(d, A(0.5)));
  if (plan.padding == GridPadding::reflection) p = reflected(d, axis, p);
  if (plan.padding != GridPadding::zeros && !kCubic) p = clipped(d, A(0), axis.last, p);
  // Beyond these positions, a cubic filter reads nothing but the edge.
  if (plan.padding == GridPadding::border && kCubic) p = clipped(d, A(-2), axis.last + A(2), p);
  AxisTaps<V, kTaps> out;
  const auto first = mode == GridMode::nearest ? hn::Round(p.at) : hn::Floor(p.at);
  const auto r = hn::Sub(p.at, first), s = hn::Sub(one, r);
  if constexpr (mode == GridMode::nearest) {
    out.weight[0] = one, out.slope[0] = zero;
  } else if constexpr (!kCubic) {
    out.weight[0] = s, out.weight[1] = r;
    out.slope[0] = hn::Neg(p.slope), out.slope[1] = p.slope;
  } else {
    const auto r1 = hn::Add(r, one), s1 = hn::Add(s, one);
    out.weight[0] = far_cubic(d, r1), out.weight[1] = near_cubic(d, r);
    out.weight[2] = near_cubic(d, s), out.weight[3] = far_cubic(d, s1);
    out.slope[0] = hn::Mul(far_slope(d, r1), p.slope);
    out.slope[1] = hn::Mul(near_slope(d, r), p.slope);
    out.slope[2] = hn::Neg(hn::Mul(near_slope(d, s), p.slope));
    out.slope[3] = hn::Neg(hn::Mul(far_slope(d, s1), p.slope));
  }
  for (int k = 0; k < kTaps; ++k) {
    auto at = hn::Add(first, hn::Set(d, static_cast<A>(k - (kCubic ? 1 : 0))));
    if (kCubic && plan.padding == GridPadding::reflection) at = reflected(d, axis, {at, at}).at;
    if (kCubic && plan.padding != GridPadding::zeros) at = clipped(d, A(0), axis.last, {at, at}).at;
    const auto inside = hn::And(hn::Ge(at, zero), hn::Le(at, last));
    out.at[k] = hn::IfThenElseZero(inside, at);
    out.weight[k] = hn::IfThenElseZero(inside, out.weight[k]);
    out.slope[k] = hn::IfThenElseZero(inside, out.slope[k]);
  }
  return out;
}

// The taps of a block of points: rows of kEach pixels in a row of x. Reading a row as a whole, without
// a gather, is what makes this fast, so taps that were moved by padding get places in the row.
template <GridMode mode, int kAxes, class A>
struct Block {
  static constexpr int kEach = kAxisTaps<mode>;
  static constexpr int kRows = kAxes == 2 ? kEach : kEach * kEach;
  alignas(64) hwy::MakeSigned<A> start[kRows][kGridPoints];
  alignas(64) A weight[kRows][kEach][kGridPoints];
};
template <GridMode mode, int kAxes, class A>
struct Slopes {
  using B = Block<mode, kAxes, A>;
  alignas(64) A of[kAxes][B::kRows][B::kEach][kGridPoints];
};

// Moves the taps along x to kEach pixels from `start` on.
template <GridMode mode, class D, class V = hn::Vec<D>>
HWY_INLINE AxisTaps<V, kAxisTaps<mode>> into_row(D d, const AxisTaps<V, kAxisTaps<mode>>& taps,
                                                 V start) {
  using A = hn::TFromD<D>;
  constexpr int kEach = kAxisTaps<mode>;
  if constexpr (kEach == 1) return taps;
  AxisTaps<V, kEach> out;
  for (int k = 0; k < kEach; ++k) {
    const auto pixel = hn::Add(start, hn::Set(d, static_cast<A>(k)));
    auto weight = hn::Zero(d), slope = hn::Zero(d);
    for (int t = 0; t < kEach; ++t) {
      const auto here = hn::Eq(taps.at[t], pixel);
      weight = hn::Add(weight, hn::IfThenElseZero(here, taps.weight[t]));
      slope = hn::Add(slope, hn::IfThenElseZero(here, taps.slope[t]));
    }
    out.at[k] = pixel, out.weight[k] = weight, out.slope[k] = slope;
  }
  return out;
}

// Points behind the last one of the block repeat it.
template <GridMode mode, int kAxes, class A>
HWY_INLINE void make_block(const GridPlan& p, const A* grid, int64_t count,
                           Block<mode, kAxes, A>& block, Slopes<mode, kAxes, A>* slopes) {
  const hn::ScalableTag<A> d;
  const hn::RebindToSigned<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kEach = kAxisTaps<mode>;
  alignas(64) A coordinates[3][kGridPoints];
  const int64_t padded = std::min(kGridPoints, (count + lanes - 1) / lanes * lanes);
  for (int64_t k = 0; k < padded; ++k)
    for (int axis = 0; axis < kAxes; ++axis)
      coordinates[axis][k] = grid[std::min(k, count - 1) * kAxes + axis];
  const Position<A> axes[3] = {Position<A>(p, 0), Position<A>(p, 1), Position<A>(p, 2)};
  const auto slice = hn::Set(d, static_cast<A>(p.size[1]));
  const auto row = hn::Set(d, static_cast<A>(p.size[0]));
  const auto last_start = hn::Set(d, static_cast<A>(std::max<int64_t>(p.size[0] - kEach, 0)));
  for (int64_t k = 0; k < padded; k += lanes) {
    auto x = axis_taps<mode>(d, p, axes[0], hn::LoadU(d, coordinates[0] + k));
    const auto y = axis_taps<mode>(d, p, axes[1], hn::LoadU(d, coordinates[1] + k));
    auto z = x;
    if constexpr (kAxes == 3) z = axis_taps<mode>(d, p, axes[2], hn::LoadU(d, coordinates[2] + k));
    V start = x.at[0];
    if constexpr (kEach > 1) {
      // Taps outside are at pixel 0; they have no weight, and count for no start.
      start = last_start;
      for (int t = 0; t < kEach; ++t) {
        const auto counts =
            hn::Or(hn::Ne(x.weight[t], hn::Zero(d)), hn::Ne(x.slope[t], hn::Zero(d)));
        start = hn::IfThenElse(counts, hn::Min(start, x.at[t]), start);
      }
      x = into_row<mode>(d, x, start);
    }
    int at = 0;
    for (int c = 0; c < (kAxes == 3 ? kEach : 1); ++c)
      for (int b = 0; b < kEach; ++b, ++at) {
        V line = y.at[b], outer = y.weight[b], rise = y.slope[b], deepen = outer;
        if constexpr (kAxes == 3) {
          line = hn::MulAdd(z.at[c], slice, line);
          deepen = hn::Mul(outer, z.slope[c]);
          rise = hn::Mul(rise, z.weight[c]);
          outer = hn::Mul(outer, z.weight[c]);
        }
        // Rows fit the mantissa, pixels may not.
        if constexpr (sizeof(A) == 4) {
          const auto first =
              hn::Mul(hn::ConvertTo(di, line), hn::Set(di, static_cast<int32_t>(p.size[0])));
          hn::StoreU(hn::Add(first, hn::ConvertTo(di, start)), di, block.start[at] + k);
        } else {
          hn::StoreU(hn::ConvertTo(di, hn::MulAdd(line, row, start)), di, block.start[at] + k);
        }
        for (int a = 0; a < kEach; ++a) {
          hn::StoreU(hn::Mul(outer, x.weight[a]), d, block.weight[at][a] + k);
          if (slopes == nullptr) continue;
          hn::StoreU(hn::Mul(outer, x.slope[a]), d, slopes->of[0][at][a] + k);
          hn::StoreU(hn::Mul(rise, x.weight[a]), d, slopes->of[1][at][a] + k);
          if constexpr (kAxes == 3)
            hn::StoreU(hn::Mul(deepen, x.weight[a]), d, slopes->of[2][at][a] + k);
        }
      }
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
