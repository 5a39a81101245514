// SPDX-License-Identifier: Apache-2.0
// grid_sample: sums over taps, in vectors of points.
#include "resample_grid.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/resample_grid_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "resample_grid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Reads one row of taps for a block of points. `each`: how many pixels the rows of x have, at most
// kEach.
template <int kEach, class A>
HWY_INLINE void read_rows(const A* plane, const hwy::MakeSigned<A>* start, int64_t count,
                          int64_t each, A* to) {
  if (each == kEach) {
    for (int64_t k = 0; k < count; ++k)
      std::memcpy(to + k * kEach, plane + start[k], kEach * sizeof(A));
    return;
  }
  for (int64_t k = 0; k < count; ++k)
    for (int64_t a = 0; a < kEach; ++a) to[k * kEach + a] = a < each ? plane[start[k] + a] : A{0};
}

// The pixels of a row of taps, of a vector of points.
template <int kEach, class D, class V = hn::Vec<D>>
HWY_INLINE void split_rows(D d, const hn::TFromD<D>* from, V (&out)[kEach]) {
  if constexpr (kEach == 1) out[0] = hn::LoadU(d, from);
  if constexpr (kEach == 2) hn::LoadInterleaved2(d, from, out[0], out[1]);
  if constexpr (kEach == 4) hn::LoadInterleaved4(d, from, out[0], out[1], out[2], out[3]);
}

template <GridMode mode, int kAxes, class A>
void forward(const GridPlan& p, const A* x, const A* grid, A* y, int64_t begin, int64_t end) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  using B = Block<mode, kAxes, A>;
  B block;
  alignas(64) A pixels[kGridPoints * B::kEach];
  alignas(64) A sums[kGridPoints];
  const int64_t blocks = grid_blocks(p), each = std::min<int64_t>(B::kEach, p.size[0]);
  for (int64_t at = begin; at < end; ++at) {
    const int64_t image = at / blocks, first = at % blocks * kGridPoints;
    const int64_t count = std::min(kGridPoints, p.points - first);
    const int64_t padded = std::min(kGridPoints, (count + lanes - 1) / lanes * lanes);
    make_block<mode, kAxes, A>(p, grid + (image * p.points + first) * kAxes, count, block, nullptr);
    for (int64_t c = 0; c < p.channels; ++c) {
      const A* plane = x + (image * p.channels + c) * p.pixels;
      A* to = y + (image * p.channels + c) * p.points + first;
      for (int row = 0; row < B::kRows; ++row) {
        read_rows<B::kEach>(plane, block.start[row], padded, each, pixels);
        for (int64_t k = 0; k < padded; k += lanes) {
          hn::Vec<decltype(d)> v[B::kEach];
          split_rows<B::kEach>(d, pixels + k * B::kEach, v);
          auto sum = row == 0 ? hn::Zero(d) : hn::Load(d, sums + k);
          for (int a = 0; a < B::kEach; ++a) {
            // A pixel of weight 0 is not read.
            const auto w = hn::Load(d, block.weight[row][a] + k);
            sum = hn::MulAdd(w, hn::IfThenElseZero(hn::Ne(w, hn::Zero(d)), v[a]), sum);
          }
          hn::Store(sum, d, sums + k);
        }
      }
      std::memcpy(to, sums, static_cast<size_t>(count) * sizeof(A));
    }
  }
}

template <GridMode mode, int kAxes, class A>
void backward_points(const GridPlan& p, const A* dy, const A* x, const A* grid, A* dgrid,
                     int64_t begin, int64_t end) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  using B = Block<mode, kAxes, A>;
  B block;
  Slopes<mode, kAxes, A> slopes;
  alignas(64) A pixels[kGridPoints * B::kEach];
  alignas(64) A change[kGridPoints] = {};
  alignas(64) A products[B::kRows][B::kEach][kGridPoints];  // of pixels and changes, over channels
  alignas(64) A result[kAxes][kGridPoints];
  const int64_t blocks = grid_blocks(p), each = std::min<int64_t>(B::kEach, p.size[0]);
  for (int64_t at = begin; at < end; ++at) {
    const int64_t image = at / blocks, first = at % blocks * kGridPoints;
    const int64_t count = std::min(kGridPoints, p.points - first);
    const int64_t padded = std::min(kGridPoints, (count + lanes - 1) / lanes * lanes);
    const int64_t point = image * p.points + first;
    make_block<mode, kAxes, A>(p, grid + point * kAxes, count, block, &slopes);
    std::memset(products, 0, sizeof products);
    for (int64_t c = 0; c < p.channels; ++c) {
      const int64_t plane = image * p.channels + c;
      std::memcpy(change, dy + plane * p.points + first, static_cast<size_t>(count) * sizeof(A));
      for (int row = 0; row < B::kRows; ++row) {
        read_rows<B::kEach>(x + plane * p.pixels, block.start[row], padded, each, pixels);
        for (int64_t k = 0; k < padded; k += lanes) {
          hn::Vec<decltype(d)> v[B::kEach];
          split_rows<B::kEach>(d, pixels + k * B::kEach, v);
          const auto g = hn::Load(d, change + k);
          for (int a = 0; a < B::kEach; ++a) {
            A* product = products[row][a] + k;
            hn::Store(hn::MulAdd(g, v[a], hn::Load(d, product)), d, product);
          }
        }
      }
    }
    for (int axis = 0; axis < kAxes; ++axis)
      for (int64_t k = 0; k < padded; k += lanes) {
        auto sum = hn::Zero(d);
        for (int row = 0; row < B::kRows; ++row)
          for (int a = 0; a < B::kEach; ++a) {
            const auto slope = hn::Load(d, slopes.of[axis][row][a] + k);
            const auto v = hn::Load(d, products[row][a] + k);
            sum = hn::MulAdd(slope, hn::IfThenElseZero(hn::Ne(slope, hn::Zero(d)), v), sum);
          }
        hn::Store(sum, d, result[axis] + k);
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
        for (int row = 0; row < B::kRows; ++row)
          for (int a = 0; a < B::kEach; ++a)
            if (const A w = block.weight[row][a][k]; w != 0)
              plane[block.start[row][k] + a] += w * change[k];
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
