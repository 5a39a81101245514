// SPDX-License-Identifier: Apache-2.0
// grid_sample: positions, taps, and sums over taps, in vectors of points.
#include "resample_grid.hpp"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/resample_grid_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
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

// The taps of a block of points.
template <GridMode mode, int kAxes, class A>
struct Block {
  using Index = hwy::MakeSigned<A>;
  static constexpr int kEach = kAxisTaps<mode>;
  static constexpr int kTaps = kAxes == 2 ? kEach * kEach : kEach * kEach * kEach;
  static constexpr int64_t kPoints = kGridPoints;
  alignas(64) Index index[kTaps][kPoints];
  alignas(64) A weight[kTaps][kPoints];
};
template <GridMode mode, int kAxes, class A>
struct Slopes {
  alignas(64) A of[kAxes][Block<mode, kAxes, A>::kTaps][kGridPoints];
};

// Points behind the last one of the block repeat it.
template <GridMode mode, int kAxes, class A>
HWY_INLINE void make_block(const GridPlan& p, const A* grid, int64_t count,
                           Block<mode, kAxes, A>& block, Slopes<mode, kAxes, A>* slopes) {
  const hn::ScalableTag<A> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kEach = kAxisTaps<mode>;
  alignas(64) A coordinates[3][kGridPoints];
  const int64_t padded = std::min(kGridPoints, (count + lanes - 1) / lanes * lanes);
  for (int64_t k = 0; k < padded; ++k)
    for (int axis = 0; axis < kAxes; ++axis)
      coordinates[axis][k] = grid[std::min(k, count - 1) * kAxes + axis];
  const Position<A> axes[3] = {Position<A>(p, 0), Position<A>(p, 1), Position<A>(p, 2)};
  const auto row = hn::Set(d, static_cast<A>(p.size[0]));
  const auto slice = hn::Set(d, static_cast<A>(p.size[1]));
  for (int64_t k = 0; k < padded; k += lanes) {
    const auto x = axis_taps<mode>(d, p, axes[0], hn::LoadU(d, coordinates[0] + k));
    const auto y = axis_taps<mode>(d, p, axes[1], hn::LoadU(d, coordinates[1] + k));
    auto z = x;
    if constexpr (kAxes == 3) z = axis_taps<mode>(d, p, axes[2], hn::LoadU(d, coordinates[2] + k));
    int tap = 0;
    for (int c = 0; c < (kAxes == 3 ? kEach : 1); ++c)
      for (int b = 0; b < kEach; ++b)
        for (int a = 0; a < kEach; ++a, ++tap) {
          auto line = y.at[b];
          auto outer = y.weight[b];
          if constexpr (kAxes == 3) {
            line = hn::MulAdd(z.at[c], slice, line);
            outer = hn::Mul(outer, z.weight[c]);
          }
          // Rows fit the mantissa, pixels may not.
          if constexpr (sizeof(A) == 4) {
            const auto start =
                hn::Mul(hn::ConvertTo(di, line), hn::Set(di, static_cast<int32_t>(p.size[0])));
            hn::StoreU(hn::Add(start, hn::ConvertTo(di, x.at[a])), di, block.index[tap] + k);
          } else {
            hn::StoreU(hn::ConvertTo(di, hn::MulAdd(line, row, x.at[a])), di, block.index[tap] + k);
          }
          hn::StoreU(hn::Mul(outer, x.weight[a]), d, block.weight[tap] + k);
          if (slopes == nullptr) continue;
          hn::StoreU(hn::Mul(outer, x.slope[a]), d, slopes->of[0][tap] + k);
          auto rise = hn::Mul(x.weight[a], y.slope[b]);
          if constexpr (kAxes == 3) {
            rise = hn::Mul(rise, z.weight[c]);
            hn::StoreU(hn::Mul(hn::Mul(x.weight[a], y.weight[b]), z.slope[c]), d,
                       slopes->of[2][tap] + k);
          }
          hn::StoreU(rise, d, slopes->of[1][tap] + k);
        }
  }
}

template <GridMode mode, int kAxes, class A>
void forward(const GridPlan& p, const A* x, const A* grid, A* y, int64_t begin, int64_t end) {
  const hn::ScalableTag<A> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  using B = Block<mode, kAxes, A>;
  B block;
  const int64_t blocks = grid_blocks(p);
  for (int64_t at = begin; at < end; ++at) {
    const int64_t image = at / blocks, first = at % blocks * kGridPoints;
    const int64_t count = std::min(kGridPoints, p.points - first);
    make_block<mode, kAxes, A>(p, grid + (image * p.points + first) * kAxes, count, block, nullptr);
    for (int64_t c = 0; c < p.channels; ++c) {
      const A* plane = x + (image * p.channels + c) * p.pixels;
      A* to = y + (image * p.channels + c) * p.points + first;
      for (int64_t k = 0; k < count; k += lanes) {
        auto sum = hn::Zero(d);
        for (int t = 0; t < B::kTaps; ++t) {
          const auto w = hn::Load(d, block.weight[t] + k);
          const auto v = hn::GatherIndex(d, plane, hn::Load(di, block.index[t] + k));
          // A pixel of weight 0 is not read.
          sum = hn::IfThenElse(hn::Ne(w, hn::Zero(d)), hn::MulAdd(w, v, sum), sum);
        }
        if (k + lanes <= count)
          hn::StoreU(sum, d, to + k);
        else
          store_n(d, sum, to + k, static_cast<size_t>(count - k));
      }
    }
  }
}

template <GridMode mode, int kAxes, class A>
void backward_points(const GridPlan& p, const A* dy, const A* x, const A* grid, A* dgrid,
                     int64_t begin, int64_t end) {
  const hn::ScalableTag<A> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  using B = Block<mode, kAxes, A>;
  B block;
  Slopes<mode, kAxes, A> slopes;
  alignas(64) A products[B::kTaps][kGridPoints];
  alignas(64) A result[kAxes][kGridPoints];
  const int64_t blocks = grid_blocks(p);
  for (int64_t at = begin; at < end; ++at) {
    const int64_t image = at / blocks, first = at % blocks * kGridPoints;
    const int64_t count = std::min(kGridPoints, p.points - first);
    const int64_t point = image * p.points + first;
    make_block<mode, kAxes, A>(p, grid + point * kAxes, count, block, &slopes);
    for (int64_t k = 0; k < count; k += lanes) {
      const auto rest = static_cast<size_t>(std::min(lanes, count - k));
      for (int t = 0; t < B::kTaps; ++t) {
        const auto index = hn::Load(di, block.index[t] + k);
        auto sum = hn::Zero(d);
        for (int64_t c = 0; c < p.channels; ++c) {
          const int64_t plane = image * p.channels + c;
          const A* change = dy + plane * p.points + first + k;
          const auto g =
              static_cast<int64_t>(rest) == lanes ? hn::LoadU(d, change) : load_n(d, change, rest);
          sum = hn::MulAdd(g, hn::GatherIndex(d, x + plane * p.pixels, index), sum);
        }
        hn::Store(sum, d, products[t] + k);
      }
      for (int axis = 0; axis < kAxes; ++axis) {
        auto sum = hn::Zero(d);
        for (int t = 0; t < B::kTaps; ++t) {
          const auto slope = hn::Load(d, slopes.of[axis][t] + k);
          const auto v = hn::Load(d, products[t] + k);
          sum = hn::IfThenElse(hn::Ne(slope, hn::Zero(d)), hn::MulAdd(slope, v, sum), sum);
        }
        hn::Store(sum, d, result[axis] + k);
      }
    }
    for (int64_t k = 0; k < count; ++k)
      for (int axis = 0; axis < kAxes; ++axis) dgrid[(point + k) * kAxes + axis] = result[axis][k];
  }
}

// Pixels get their terms in the order of points, whatever the channels of a call.
template <GridMode mode, int kAxes, class A>
void backward_image(const GridPlan& p, const A* dy, const A* grid, A* dx, int64_t image,
                    int64_t begin, int64_t end) {
  using B = Block<mode, kAxes, A>;
  B block;
  dx += image * p.channels * p.pixels;
  std::fill(dx + begin * p.pixels, dx + end * p.pixels, A{0});
  for (int64_t first = 0; first < p.points; first += kGridPoints) {
    const int64_t count = std::min(kGridPoints, p.points - first);
    make_block<mode, kAxes, A>(p, grid + (image * p.points + first) * kAxes, count, block, nullptr);
    for (int64_t c = begin; c < end; ++c) {
      const A* change = dy + (image * p.channels + c) * p.points + first;
      A* plane = dx + c * p.pixels;
      for (int64_t k = 0; k < count; ++k)
        for (int t = 0; t < B::kTaps; ++t)
          if (const A w = block.weight[t][k]; w != 0) plane[block.index[t][k]] += w * change[k];
    }
  }
}

// Calls f.operator()<mode, axes, A>().
template <class A, class F>
void with_axes(const GridPlan& p, F&& f) {
  const auto with_mode = [&]<int kAxes>() {
    if (p.mode == GridMode::nearest) return f.template operator()<GridMode::nearest, kAxes, A>();
    if (p.mode == GridMode::linear) return f.template operator()<GridMode::linear, kAxes, A>();
    f.template operator()<GridMode::cubic, kAxes, A>();
  };
  if (p.axes == 2) return with_mode.template operator()<2>();
  with_mode.template operator()<3>();
}
template <class F>
void with_form(const GridPlan& p, F&& f) {
  if (p.wide) return with_axes<double>(p, f);
  with_axes<float>(p, f);
}

void forward_target(const GridPlan& p, const void* x, const void* grid, void* y, int64_t begin,
                    int64_t end) {
  with_form(p, [&]<GridMode mode, int kAxes, class A>() {
    forward<mode, kAxes, A>(p, static_cast<const A*>(x), static_cast<const A*>(grid),
                            static_cast<A*>(y), begin, end);
  });
}
void backward_points_target(const GridPlan& p, const void* dy, const void* x, const void* grid,
                            void* dgrid, int64_t begin, int64_t end) {
  with_form(p, [&]<GridMode mode, int kAxes, class A>() {
    backward_points<mode, kAxes, A>(p, static_cast<const A*>(dy), static_cast<const A*>(x),
                                    static_cast<const A*>(grid), static_cast<A*>(dgrid), begin,
                                    end);
  });
}
void backward_image_target(const GridPlan& p, const void* dy, const void* grid, void* dx,
                           int64_t image, int64_t begin, int64_t end) {
  with_form(p, [&]<GridMode mode, int kAxes, class A>() {
    backward_image<mode, kAxes, A>(p, static_cast<const A*>(dy), static_cast<const A*>(grid),
                                   static_cast<A*>(dx), image, begin, end);
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(forward_target);
HWY_EXPORT(backward_points_target);
HWY_EXPORT(backward_image_target);

void grid_forward(const GridPlan& p, const void* x, const void* grid, void* y, int64_t begin,
                  int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_target)(p, x, grid, y, begin, end);
}
void grid_backward_points(const GridPlan& p, const void* dy, const void* x, const void* grid,
                          void* dgrid, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_points_target)(p, dy, x, grid, dgrid, begin, end);
}
void grid_backward_image(const GridPlan& p, const void* dy, const void* grid, void* dx,
                         int64_t image, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_image_target)(p, dy, grid, dx, image, begin, end);
}

}  // namespace tenon::cpu
#endif
