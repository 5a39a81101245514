// SPDX-License-Identifier: Apache-2.0
// Convolutions of floats against plain sums in f64: each way of computing them, forward and
// transposed, whatever follows the sums, and pixels that are not finite.
#include "kernels/conv.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "isa.hpp"
#include "kernels/conv_depthwise.hpp"
#include "kernels/conv_winograd.hpp"

namespace tenon::cpu {
namespace {

[[maybe_unused]] const bool capped = (cap_isa(), true);  // by TENON_CPU_ISA

ConvGeometry::Axis axis(int64_t in, int64_t kernel, int64_t stride, int64_t before, int64_t after,
                        int64_t dilation) {
  const int64_t out = (in + before + after - dilation * (kernel - 1) - 1) / stride + 1;
  return {in, out, kernel, stride, before, dilation};
}
constexpr ConvGeometry::Axis kOne{};

struct Data {
  std::vector<float> x, w, bias, residual;
};

Data random_data(const TapConv& t, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const auto draw = [&](int64_t count) {
    std::vector<float> v(static_cast<size_t>(count));
    for (float& f : v) f = normal(random);
    return v;
  };
  const int64_t rows = t.groups * t.m;
  const int64_t taps = t.w_tap.empty() ? 1 : 1 + *std::max_element(t.w_tap.begin(), t.w_tap.end());
  const int64_t w = t.groups * std::max(t.w_group, t.m * t.w_m) + t.c * t.w_c + taps;
  return {draw(t.batch * t.groups * t.c * t.pixels()), draw(w), draw(rows),
          draw(t.batch * rows * t.y_plane)};
}

// y of the definition, and for each element the sum of the sizes of its terms.
struct Expected {
  std::vector<double> y, size;
};

Expected expected_of(const TapConv& t, const Data& d, bool bias, bool residual, bool relu) {
  const auto& [a0, a1, a2] = t.axes;
  const size_t count = static_cast<size_t>(t.batch * t.groups * t.m * t.y_plane);
  Expected e{std::vector<double>(count, std::numeric_limits<double>::quiet_NaN()),
             std::vector<double>(count)};
  for (int64_t plane = 0; plane < t.batch * t.groups * t.m; ++plane) {
    const int64_t which = plane / t.m, m = plane % t.m, group = which % t.groups;
    for (int64_t o0 = 0; o0 < a0.out; ++o0)
      for (int64_t o1 = 0; o1 < a1.out; ++o1)
        for (int64_t o2 = 0; o2 < a2.out; ++o2) {
          double sum = 0, size = 0;
          for (int64_t c = 0; c < t.c; ++c) {
            size_t tap = 0;
            for (const int64_t t0 : a0.taps)
              for (const int64_t t1 : a1.taps)
                for (const int64_t t2 : a2.taps) {
                  const int64_t i0 = o0 * a0.step + t0, i1 = o1 * a1.step + t1,
                                i2 = o2 * a2.step + t2;
                  const double w = d.w[group * t.w_group + m * t.w_m + c * t.w_c + t.w_tap[tap++]];
                  if (i0 < 0 || i1 < 0 || i2 < 0 || i0 >= a0.in || i1 >= a1.in || i2 >= a2.in)
                    continue;
                  const double x =
                      d.x[(which * t.c + c) * t.pixels() + (i0 * a1.in + i1) * a2.in + i2];
                  sum += w * x, size += std::fabs(w * x);
                }
          }
          const size_t at = static_cast<size_t>(plane * t.y_plane + t.y_origin + o0 * t.y_pitch[0] +
                                                o1 * t.y_pitch[1] + o2 * t.y_pitch[2]);
          if (bias) sum += d.bias[group * t.m + m];
          if (residual) sum += d.residual[at];
          e.y[at] = relu && sum <= 0 ? 0 : sum, e.size[at] = size + 1;
        }
  }
  return e;
}

enum class Way { tiles, product, planes, winograd, depthwise };

void check(Way way, const TapConv& t, const Data& d, int follows, double limit = 1e-6) {
  const bool bias = follows & 1, residual = follows & 2, relu = follows & 4;
  const bool packed = (follows & 8) || way == Way::winograd;
  const Expected expected = expected_of(t, d, bias, residual, relu);
  std::vector<float> y(expected.y.size() + 1, 77.f);
  ConvEnds ends;
  if (bias) ends.bias = 2, ends.bias_dtype = TENON_DTYPE_F32;
  if (residual) ends.residual = 3;
  if (relu) ends.act = Activation{.kind = UnaryKind::relu};
  std::vector<char> weights, scratch;
  const auto run = [&](const auto& conv) {
    // Aligned as a device aligns it.
    scratch.assign(conv.scratch() + 64, char{0x5A});
    const auto place = [](std::vector<char>& v) {
      return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64;
    };
    const void* w = d.w.data();
    if constexpr (requires { conv.weights(); }) {
      weights.assign(conv.weights().bytes() + 64, char{0x5A});
      if (packed) conv.weights().pack(w, place(weights)), w = place(weights);
    }
    void* inputs[] = {const_cast<float*>(d.x.data()), const_cast<void*>(w),
                      const_cast<float*>(d.bias.data()), const_cast<float*>(d.residual.data())};
    void* outputs[] = {y.data()};
    const sdk::Call call{.inputs = inputs, .outputs = outputs, .scratch = place(scratch)};
    conv.run(call, d.x.data(), w, ends);
  };
  if (way == Way::tiles) run(ConvTiles(t, TENON_DTYPE_F32, packed));
  if (way == Way::product) run(ConvProduct(t, TENON_DTYPE_F32, packed));
  if (way == Way::planes) run(ConvPlanes(t, TENON_DTYPE_F32));
  if (way == Way::winograd) run(ConvWinograd(t));
  if (way == Way::depthwise) run(ConvDepthwise(t));
  REQUIRE(y.back() == 77.f);
  for (size_t i = 0; i < expected.y.size(); ++i) {
    const double want = expected.y[i], got = y[i];
    if (std::isnan(want) && (t.dense() ? std::isnan(got) : std::isnan(got) || got == 77)) continue;
    if (std::isinf(want) && got == want) continue;
    if (!(std::fabs(got - want) <= limit * expected.size[i]))
      FAIL("way " << static_cast<int>(way) << ", followed by " << follows << ", element " << i
                  << ": expected " << want << ", got " << got);
  }
}

void check_all(const ConvGeometry& g, std::initializer_list<Way> ways) {
  std::mt19937 random(5);
  std::vector<TapConv> convs = g.transposed();
  convs.push_back(g.reached());
  for (const TapConv& t : convs) {
    const Data data = random_data(t, random);
    for (const Way way : ways) {
      if (way == Way::product && !t.pointwise()) continue;
      if (way == Way::depthwise && !ConvDepthwise::takes(t, TENON_DTYPE_F32, {})) continue;
      if (way == Way::winograd && !ConvWinograd::takes(t, TENON_DTYPE_F32)) continue;
      for (const int follows : {0, 7, 8, 13})
        // A residual lies beside dense results alone.
        check(way, t, data, t.dense() && way != Way::depthwise ? follows : follows & ~2);
    }
  }
}

}  // namespace

TEST_SUITE("cpu/conv") {
  TEST_CASE("single pixels: planes that fill no tile, channels that fill no panel") {
    check_all({2, 7, 17, 1, {kOne, axis(5, 1, 1, 0, 0, 1), axis(9, 1, 1, 0, 0, 1)}},
              {Way::tiles, Way::product, Way::planes});
    // Rows of one window, with a stride.
    check_all({1, 200, 33, 1, {kOne, axis(10, 1, 1, 0, 0, 1), axis(1, 1, 2, 0, 0, 1)}},
              {Way::tiles, Way::product});
    check_all({1, 33, 200, 1, {kOne, axis(10, 1, 1, 0, 0, 1), axis(1, 1, 2, 0, 0, 1)}},
              {Way::tiles, Way::product});
    check_all({1, 200, 33, 2, {kOne, axis(7, 1, 1, 0, 0, 1), axis(7, 1, 1, 0, 0, 1)}},
              {Way::tiles, Way::product});
    check_all({1, 900, 40, 1, {kOne, kOne, axis(3, 1, 1, 0, 0, 1)}}, {Way::tiles, Way::product});
  }

  TEST_CASE("rows of 1 to 40 windows fill tiles of all sizes") {
    for (int64_t width = 1; width <= 40; width += 1 + width / 16) {
      check_all({1, 5, 35, 1, {kOne, axis(3, 3, 1, 1, 1, 1), axis(width, 3, 1, 1, 1, 1)}},
                {Way::tiles});
      check_all({1, 5, 9, 1, {kOne, kOne, axis(width, 1, 1, 0, 0, 1)}}, {Way::tiles});
    }
  }

  TEST_CASE("windows: strides, dilation, padding, three axes, groups") {
    const auto ways = {Way::tiles, Way::planes};
    check_all({1, 3, 16, 1, {kOne, axis(9, 3, 1, 1, 2, 1), axis(11, 3, 1, 2, 0, 1)}}, ways);
    check_all({1, 6, 10, 1, {kOne, axis(12, 3, 2, 1, 1, 1), axis(13, 3, 2, 1, 1, 1)}}, ways);
    check_all({1, 5, 10, 1, {kOne, axis(13, 3, 3, 1, 0, 2), axis(19, 2, 1, 0, 3, 3)}}, ways);
    check_all(
        {1, 4, 9, 1, {axis(4, 2, 1, 1, 0, 1), axis(5, 3, 2, 1, 1, 1), axis(6, 2, 1, 0, 1, 1)}},
        ways);
    check_all({2, 12, 20, 2, {kOne, axis(6, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1)}}, ways);
    check_all({1, 8, 70, 1, {kOne, kOne, axis(3000, 5, 1, 2, 2, 1)}}, ways);
  }

  TEST_CASE("images of one column: rows are long, and far taps are left out") {
    const auto ways = {Way::tiles, Way::product, Way::planes, Way::depthwise};
    const ConvGeometry one{1, 12, 20, 1, {kOne, axis(37, 5, 1, 4, 4, 2), kOne}};
    check_all(one, ways);
    CHECK(one.reached().axes[2].out == 37);
    CHECK(one.transposed()[0].axes[2].out == 37);
    check_all({2, 5, 3, 1, {axis(4, 2, 1, 0, 0, 1), kOne, axis(9, 3, 2, 1, 1, 1)}}, ways);
    check_all({1, 4, 6, 1, {axis(8, 3, 2, 1, 1, 1), kOne, kOne}}, ways);
    // Windows of several columns, of which one lies in the image; strides whose phases have one pixel.
    const ConvGeometry wide{1, 20, 20, 20, {kOne, axis(40, 3, 1, 1, 1, 1), axis(1, 3, 1, 1, 1, 1)}};
    check_all(wide, ways);
    CHECK(wide.reached().axes[2].taps.size() == 3);
    check_all({1, 3, 9, 1, {kOne, axis(11, 2, 2, 0, 1, 1), axis(2, 2, 2, 0, 0, 1)}}, ways);
    check_all({1, 16, 16, 1, {kOne, axis(30, 5, 1, 64, 64, 32), kOne}}, ways);
    check_all({1, 30, 20, 2, {kOne, axis(30, 1, 1, 0, 0, 1), kOne}}, ways);
  }

  TEST_CASE("depthwise: channels that fill no vector, strides, dilation, tiny planes, bands") {
    const auto ways = {Way::depthwise, Way::planes, Way::tiles};
    for (const int64_t c : {2, 8, 15, 16, 17, 40})
      for (const auto& [height, width] : {std::pair{1, 1}, {2, 3}, {7, 7}, {14, 15}, {30, 33}})
        for (const int64_t kernel : {1, 3, 5})
          check_all({2,
                     c,
                     c,
                     c,
                     {kOne, axis(height, kernel, 1, kernel / 2, kernel / 2, 1),
                      axis(width, kernel, 1, kernel / 2, kernel - 1, 1)}},
                    ways);
    check_all({1, 20, 20, 20, {kOne, axis(15, 3, 2, 1, 1, 1), axis(14, 5, 2, 2, 2, 1)}}, ways);
    check_all({1, 20, 20, 20, {kOne, axis(9, 3, 1, 2, 2, 2), axis(20, 3, 3, 0, 4, 3)}}, ways);
    check_all({1, 20, 20, 20, {kOne, kOne, axis(39, 9, 1, 8, 0, 1)}}, ways);
    // Taps that lie outside of the image for all windows, and windows that read nothing.
    check_all({1, 20, 20, 20, {kOne, axis(3, 9, 1, 4, 4, 1), axis(2, 3, 1, 9, 9, 1)}}, ways);
    CHECK(ConvDepthwise::takes(
        ConvGeometry{1, 64, 64, 64, {kOne, axis(7, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1)}}
            .reached(),
        TENON_DTYPE_F32, {}));
  }

  TEST_CASE("sums of several parts: more steps than a pass takes") {
    check_all({1, 100, 40, 1, {kOne, axis(9, 3, 1, 1, 1, 1), axis(15, 3, 1, 1, 1, 1)}},
              {Way::tiles});
  }

  TEST_CASE("Winograd: odd and even planes, padding on each side, both orders of taps") {
    for (const auto& [height, width] : {std::pair{16, 16}, {13, 15}, {7, 31}, {40, 9}, {56, 57}})
      for (int pads = 0; pads < 16; pads += 5) {
        const ConvGeometry g{2,
                             18,
                             37,
                             1,
                             {kOne, axis(height, 3, 1, pads & 1, pads & 3, 1),
                              axis(width, 3, 1, pads >> 2, pads & 1, 1)}};
        if (!ConvWinograd::takes(g.reached(), TENON_DTYPE_F32)) continue;
        check_all(g, {Way::winograd});
      }
    const ConvGeometry one{1, 16, 16, 1, {kOne, axis(16, 3, 1, 1, 1, 1), axis(16, 3, 1, 1, 1, 1)}};
    CHECK(ConvWinograd::takes(one.reached(), TENON_DTYPE_F32));
    CHECK(ConvWinograd::takes(one.transposed()[0], TENON_DTYPE_F32));
    CHECK(!ConvWinograd::takes(one.reached(), TENON_DTYPE_BF16));
    const ConvGeometry wide{1, 16, 16, 1, {kOne, axis(16, 3, 1, 1, 1, 1), axis(16, 3, 1, 2, 2, 2)}};
    CHECK(!ConvWinograd::takes(wide.reached(), TENON_DTYPE_F32));
    const ConvGeometry strided{
        1, 16, 16, 1, {kOne, axis(32, 3, 2, 1, 1, 1), axis(16, 3, 1, 1, 1, 1)}};
    CHECK(!ConvWinograd::takes(strided.reached(), TENON_DTYPE_F32));
    // A row of tiles of a long plane would not fit a work area.
    const ConvGeometry longs{
        1, 16, 16, 1, {kOne, axis(4, 3, 1, 1, 1, 1), axis(200000, 3, 1, 1, 1, 1)}};
    CHECK(!ConvWinograd::takes(longs.reached(), TENON_DTYPE_F32));
  }

  TEST_CASE("Winograd: pixels that are not finite, or huge, stay in their windows") {
    const ConvGeometry g{1, 20, 33, 1, {kOne, axis(18, 3, 1, 1, 1, 1), axis(22, 3, 1, 1, 1, 1)}};
    const TapConv t = g.reached();
    REQUIRE(ConvWinograd::takes(t, TENON_DTYPE_F32));
    std::mt19937 random(6);
    for (const float pixel :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity(), 2e30f, -3e37f}) {
      Data data = random_data(t, random);
      for (int k = 0; k < 3; ++k) data.x[random() % data.x.size()] = pixel;
      // The filters are restored with errors relative to their largest weight.
      for (const int follows : {0, 7}) check(Way::winograd, t, data, follows, 1e-4);
    }
  }
}

}  // namespace tenon::cpu
