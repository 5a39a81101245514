// SPDX-License-Identifier: Apache-2.0
// Integer convolutions against plain loops: both signs of both sides, strides, dilation, padding,
// groups, one to three axes, every unit of this processor.
#include "kernels/qconv.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "isa.hpp"

namespace tenon::cpu {
namespace {

[[maybe_unused]] const bool capped = (cap_isa(), true);  // by TENON_CPU_ISA

constexpr tenon_dtype kEight[] = {TENON_DTYPE_I8, TENON_DTYPE_U8};
constexpr QUnit kUnits[] = {QUnit::madd, QUnit::vnni256, QUnit::vnni512};

int64_t value(tenon_dtype t, uint8_t x) {
  return t == TENON_DTYPE_U8 ? int64_t{x} : int64_t{static_cast<int8_t>(x)};
}

ConvGeometry::Axis axis(int64_t in, int64_t kernel, int64_t stride, int64_t before, int64_t after,
                        int64_t dilation) {
  const int64_t out = (in + before + after - dilation * (kernel - 1) - 1) / stride + 1;
  return {in, out, kernel, stride, before, dilation};
}

struct Choice {
  tenon_dtype x, w, y;
  bool w_zeros, per_channel, packed, extreme;
};

void check(QUnit unit, const ConvGeometry& g, const Choice& by, std::mt19937& random) {
  const TapConv conv = g.forward();
  const auto bytes = [&](int64_t count, tenon_dtype t) {
    std::vector<uint8_t> data(count);
    for (uint8_t& b : data) {
      b = static_cast<uint8_t>(random());
      if (by.extreme)
        b = static_cast<uint8_t>((b % 2 == 0 ? 0 : 255) ^ (t == TENON_DTYPE_I8 ? 128 : 0));
    }
    return data;
  };
  const int64_t channels = g.c / g.groups, filters = g.m / g.groups, taps = g.taps();
  const std::vector<uint8_t> x = bytes(g.n * g.c * g.pixels(), by.x);
  const std::vector<uint8_t> w = bytes(g.m * channels * taps, by.w);
  const uint8_t x_zero = bytes(1, by.x)[0];
  const std::vector<uint8_t> w_zeros = bytes(g.m, by.w);
  std::vector<int32_t> bias(g.m);
  std::vector<float> multipliers(g.m);
  for (int64_t m = 0; m < g.m; ++m) {
    bias[m] = static_cast<int32_t>(random() % 20001) - 10000;
    multipliers[m] = static_cast<float>(1 + random() % 100) / 5e4f;
  }
  const bool raw = by.y == TENON_DTYPE_I32;
  const int32_t low = by.y == TENON_DTYPE_U8 ? 0 : -128, high = low + 255, y_zero = low + 77;

  const QConv kernel(unit, conv, by.x, by.w, by.w_zeros, by.packed);
  const bool packed = by.packed && kernel.wants_packed();
  std::vector<char> weights(kernel.packed_bytes()), scratch(kernel.scratch(), char{0x5A});
  if (packed) kernel.pack(w.data(), weights.data());
  std::vector<char> y(g.n * g.m * g.windows() * (raw ? 4 : 1) + 1, char{77});
  kernel.run({.x = x.data(),
              .w = packed ? static_cast<const void*>(weights.data()) : w.data(),
              .x_zero = static_cast<int32_t>(value(by.x, x_zero)),
              .w_zeros = by.w_zeros ? w_zeros.data() : nullptr,
              .bias = bias.data(),
              .multipliers = raw ? nullptr : multipliers.data(),
              .w_zeros_per_channel = by.per_channel,
              .multipliers_per_channel = by.per_channel,
              .low = raw ? std::numeric_limits<int32_t>::min() : low,
              .high = raw ? std::numeric_limits<int32_t>::max() : high,
              .y_zero = raw ? 0 : y_zero,
              .y_dtype = by.y,
              .y = y.data(),
              .scratch = scratch.data()});
  REQUIRE(y.back() == 77);

  const auto& [a0, a1, a2] = g.axes;
  int64_t at = 0;
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t m = 0; m < g.m; ++m)
      for (int64_t o0 = 0; o0 < a0.out; ++o0)
        for (int64_t o1 = 0; o1 < a1.out; ++o1)
          for (int64_t o2 = 0; o2 < a2.out; ++o2, ++at) {
            const int64_t group = m / filters, q = by.per_channel ? m : 0;
            const int64_t w_zero = by.w_zeros ? value(by.w, w_zeros[q]) : 0;
            int64_t sum = bias[m];
            for (int64_t c = 0; c < channels; ++c)
              for (int64_t t = 0; t < taps; ++t) {
                const int64_t i0 =
                    o0 * a0.stride - a0.before + t / (a1.kernel * a2.kernel) * a0.dilation;
                const int64_t i1 =
                    o1 * a1.stride - a1.before + t / a2.kernel % a1.kernel * a1.dilation;
                const int64_t i2 = o2 * a2.stride - a2.before + t % a2.kernel * a2.dilation;
                if (i0 < 0 || i1 < 0 || i2 < 0 || i0 >= a0.in || i1 >= a1.in || i2 >= a2.in)
                  continue;
                const int64_t pixel = (i0 * a1.in + i1) * a2.in + i2;
                const int64_t plane = n * g.c + group * channels + c;
                sum += (value(by.x, x[plane * g.pixels() + pixel]) - value(by.x, x_zero)) *
                       (value(by.w, w[(m * channels + c) * taps + t]) - w_zero);
              }
            int64_t expected = sum, got;
            if (raw) {
              got = reinterpret_cast<const int32_t*>(y.data())[at];
            } else {
              const float scaled = static_cast<float>(static_cast<int32_t>(sum)) * multipliers[q];
              expected = static_cast<int64_t>(
                  std::clamp(std::nearbyint(static_cast<double>(scaled)) + y_zero,
                             static_cast<double>(low), static_cast<double>(high)));
              got = value(by.y, static_cast<uint8_t>(y[at]));
            }
            if (got != expected)
              FAIL("element " << at << " (channel " << m << ", window " << o0 << " " << o1 << " "
                              << o2 << "), unit " << static_cast<int>(unit) << ": expected "
                              << expected << ", got " << got);
          }
}

void check_all(const ConvGeometry& g) {
  for (const QUnit unit : kUnits) {
    if (!q_has(unit)) continue;
    std::mt19937 random(11);
    for (const tenon_dtype x : kEight)
      for (const tenon_dtype w : kEight)
        for (int bits = 0; bits < 16; ++bits)
          for (const tenon_dtype y : {TENON_DTYPE_I32, TENON_DTYPE_I8, TENON_DTYPE_U8})
            check(unit, g,
                  {x, w, y, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0},
                  random);
  }
}

constexpr ConvGeometry::Axis kOne{};

}  // namespace

TEST_SUITE("cpu/qconv") {
  TEST_CASE("single pixels: channels that fill no quad, more filters than a panel") {
    check_all({2, 7, 17, 1, {kOne, axis(5, 1, 1, 0, 0, 1), axis(9, 1, 1, 0, 0, 1)}});
    check_all({1, 64, 33, 1, {kOne, kOne, axis(70, 1, 1, 0, 0, 1)}});
  }

  TEST_CASE("windows: padding that differs by side counts as the zero point of x") {
    check_all({1, 3, 16, 1, {kOne, axis(9, 3, 1, 1, 2, 1), axis(11, 3, 1, 2, 0, 1)}});
    check_all({1, 9, 15, 1, {kOne, axis(5, 1, 1, 0, 0, 1), axis(40, 7, 1, 3, 3, 1)}});
  }

  TEST_CASE("windows: strides and dilation") {
    check_all({1, 6, 10, 1, {kOne, axis(12, 3, 2, 1, 1, 1), axis(13, 3, 2, 1, 1, 1)}});
    check_all({1, 5, 10, 1, {kOne, axis(13, 3, 3, 1, 0, 2), axis(19, 2, 1, 0, 3, 3)}});
    check_all({1, 8, 12, 1, {kOne, axis(8, 1, 2, 0, 0, 1), axis(8, 1, 2, 0, 0, 1)}});
  }

  TEST_CASE("windows: three axes, and groups") {
    check_all(
        {1, 4, 9, 1, {axis(4, 2, 1, 1, 0, 1), axis(5, 3, 2, 1, 1, 1), axis(6, 2, 1, 0, 1, 1)}});
    check_all({2, 12, 20, 2, {kOne, axis(6, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1)}});
  }

  TEST_CASE("depthwise: one filter per channel, and several") {
    check_all({1, 5, 5, 5, {kOne, axis(10, 3, 1, 1, 1, 1), axis(70, 3, 1, 1, 1, 1)}});
    check_all({2, 3, 9, 3, {kOne, axis(11, 5, 2, 2, 2, 1), axis(12, 5, 2, 2, 2, 1)}});
  }

  TEST_CASE("many pieces: bands and blocks of channels meet without gaps") {
    for (const QUnit unit : kUnits) {
      if (!q_has(unit)) continue;
      std::mt19937 random(12);
      const ConvGeometry g{1, 64, 130, 1, {kOne, axis(40, 3, 1, 1, 1, 1), axis(41, 3, 1, 1, 1, 1)}};
      check(unit, g, {TENON_DTYPE_U8, TENON_DTYPE_I8, TENON_DTYPE_U8, false, true, true, false},
            random);
      check(unit, g, {TENON_DTYPE_I8, TENON_DTYPE_U8, TENON_DTYPE_I32, true, true, false, true},
            random);
    }
  }

  TEST_CASE("depthwise: more taps than a quad has rows, bands, strides and dilation") {
    const ConvGeometry all[] = {
        {1, 2, 2, 2, {kOne, axis(40, 7, 1, 3, 3, 1), axis(90, 7, 1, 3, 3, 1)}},
        {1, 2, 4, 2, {kOne, axis(61, 5, 2, 2, 2, 1), axis(67, 3, 3, 1, 1, 1)}},
        {2, 2, 2, 2, {kOne, axis(23, 5, 1, 4, 4, 2), axis(9, 2, 2, 0, 1, 3)}},
        {1, 3, 3, 3, {kOne, kOne, axis(50, 9, 1, 4, 4, 1)}},
        {1, 1, 20, 1, {kOne, axis(12, 3, 1, 1, 1, 1), axis(700, 3, 2, 1, 1, 1)}},
    };
    for (const QUnit unit : kUnits) {
      if (!q_has(unit)) continue;
      std::mt19937 random(14);
      for (const ConvGeometry& g : all)
        for (const tenon_dtype x : kEight)
          for (const bool packed : {false, true})
            check(unit, g, {x, TENON_DTYPE_I8, TENON_DTYPE_U8, false, true, packed, packed},
                  random);
    }
  }

  TEST_CASE("depthwise sums are exact up to the most terms that a float holds") {
    const ConvGeometry g{1, 1, 1, 1, {kOne, axis(6, 6, 1, 0, 0, 1), axis(43, 43, 1, 0, 0, 1)}};
    REQUIRE(g.taps() == 258);
    CHECK(QConv::takes_planes(g.forward()));
    std::mt19937 random(13);
    const Choice by{TENON_DTYPE_U8, TENON_DTYPE_U8, TENON_DTYPE_I32, true, false, false, true};
    for (int k = 0; k < 50; ++k) check(QUnit::madd, g, by, random);
    const ConvGeometry more{1, 1, 1, 1, {kOne, axis(7, 7, 1, 0, 0, 1), axis(37, 37, 1, 0, 0, 1)}};
    CHECK(!QConv::takes_planes(more.forward()));  // 259
  }
}

}  // namespace tenon::cpu
