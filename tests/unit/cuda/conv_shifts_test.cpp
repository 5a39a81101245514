// SPDX-License-Identifier: Apache-2.0
// The grid of positions of conv_shifts.cu: each tap of each window finds its pixel, or padding, at
// its shift. Expected pixels come from the definition of a convolution.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/conv.hpp"

using namespace tenon;
using namespace tenon::cuda;

namespace {

struct Windows {
  int64_t n;
  std::array<int64_t, 2> in, kernel, stride, before, after, dilation;

  int64_t out(size_t a) const {
    return (in[a] + before[a] + after[a] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1;
  }
};

ConvProblem problem_of(const Windows& w, bool transposed) {
  const std::vector<int64_t> x{w.n, 4, w.in[0], w.in[1]}, y{w.n, 4, w.out(0), w.out(1)},
      pads{w.before[0], w.before[1], w.after[0], w.after[1]};
  return {
      .geometry = conv_geometry(TENON_DTYPE_BF16, x, y, {w.kernel, w.stride, pads, w.dilation}, 1),
      .transposed = transposed};
}

// (image, pixel of the result, kernel tap) -> the source pixel, of those inside.
using Pairs = std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t>;

Pairs expected(const Windows& w, bool transposed) {
  Pairs pairs;
  for (int64_t n = 0; n < w.n; ++n)
    for (int64_t oy = 0; oy < w.out(0); ++oy)
      for (int64_t ox = 0; ox < w.out(1); ++ox)
        for (int64_t ky = 0; ky < w.kernel[0]; ++ky)
          for (int64_t kx = 0; kx < w.kernel[1]; ++kx) {
            const int64_t iy = oy * w.stride[0] - w.before[0] + ky * w.dilation[0],
                          ix = ox * w.stride[1] - w.before[1] + kx * w.dilation[1];
            if (iy < 0 || iy >= w.in[0] || ix < 0 || ix >= w.in[1]) continue;
            const int64_t pixel = iy * w.in[1] + ix, window = oy * w.out(1) + ox,
                          tap = ky * w.kernel[1] + kx;
            pairs[{n, transposed ? pixel : window, tap}] = transposed ? window : pixel;
          }
  return pairs;
}

// What the kernel reads, with pixels at the positions where conv_grid.cu puts them.
Pairs found(const ConvShiftPlan& plan) {
  Pairs pairs;
  const args::ConvGrid& g = plan.grid;
  const args::ConvShifts& s = plan.shifts;
  const int64_t pitch = g.by_line.value, image = g.by_image.value;
  for (uint32_t f = 0; f < s.phases; ++f) {
    const args::ConvShiftPhase& phase = s.phase[f];
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t r = 0; r < phase.rows; ++r)
        for (int64_t c = 0; c < phase.columns; ++c)
          for (uint32_t k = phase.first_plane; k < phase.first_plane + phase.planes; ++k) {
            const args::ConvShiftPlane& plane = s.planes[k];
            for (uint32_t t = plane.first_tap; t < plane.first_tap + plane.taps; ++t) {
              REQUIRE(s.taps[t].shift >= 0);
              REQUIRE(n * image + r * pitch + c < s.positions);
              const int64_t position = n * image + r * pitch + c + s.taps[t].shift;
              const int64_t own = position / image, rest = position % image;
              const int64_t y = rest / pitch * g.step + plane.part / g.step + g.row0,
                            x = rest % pitch * g.step + plane.part % g.step + g.column0;
              if (own >= s.batch || y < 0 || y >= g.rows || x < 0 || x >= g.columns) continue;
              CHECK(own == n);
              const int64_t pixel =
                  (phase.row + r * s.spread) * s.out_columns + phase.column + c * s.spread;
              const bool is_new =
                  pairs.insert({{n, pixel, s.taps[t].kernel}, y * g.columns + x}).second;
              CHECK(is_new);
            }
          }
  }
  return pairs;
}

}  // namespace

TEST_SUITE("cuda/conv_shifts") {
  TEST_CASE("grid: each tap of each window finds its pixel or padding") {
    for (const Windows& w : {
             Windows{2, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
             {3, {7, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
             {2, {8, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
             {2, {6, 9}, {3, 2}, {1, 1}, {0, 2}, {2, 0}, {1, 1}},
             {2, {9, 8}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}},
             {2, {11, 10}, {7, 7}, {2, 2}, {3, 3}, {3, 3}, {1, 1}},
             {2, {8, 8}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
             {2, {9, 9}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
             {2, {10, 9}, {3, 3}, {3, 3}, {1, 2}, {1, 0}, {2, 2}},
             {2, {3, 4}, {3, 3}, {1, 1}, {4, 5}, {3, 4}, {1, 1}},
             {1, {12, 11}, {2, 3}, {4, 4}, {1, 0}, {1, 1}, {1, 2}},
         })
      for (const bool transposed : {false, true}) {
        CAPTURE(w.in[0]);
        CAPTURE(w.kernel[0]);
        CAPTURE(w.stride[0]);
        CAPTURE(transposed);
        const auto plan = conv_shift_plan(problem_of(w, transposed));
        REQUIRE(plan);
        CHECK(found(*plan) == expected(w, transposed));
      }
  }

  TEST_CASE("grid: rows share the padding between them") {
    const auto pitches = [](const Windows& w, bool transposed) {
      const auto plan = conv_shift_plan(problem_of(w, transposed));
      REQUIRE(plan);
      return std::pair(plan->grid.by_line.value,
                       plan->grid.by_image.value / plan->grid.by_line.value);
    };
    const Windows plain{2, {56, 28}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
    CHECK(pitches(plain, false) == std::pair(29u, 57u));
    CHECK(pitches(plain, true) == std::pair(29u, 57u));
    const Windows by_twos{2, {56, 28}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}};
    CHECK(pitches(by_twos, false) == std::pair(15u, 29u));
  }

  TEST_CASE("grid: windows that the kernel does not take") {
    const auto taken = [](const Windows& w) {
      return conv_shift_plan(problem_of(w, false)).has_value();
    };
    Windows w{2, {40, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
    CHECK(taken(w));
    w.kernel = {9, 9};  // taps
    CHECK(!taken(w));
    w.kernel = {3, 3}, w.stride = {1, 2};
    CHECK(!taken(w));
    w.stride = {5, 5};
    CHECK(!taken(w));
    w.stride = {1, 1}, w.dilation = {200, 1}, w.before = {200, 1}, w.after = {200, 1};
    CHECK(!taken(w));
  }
}
