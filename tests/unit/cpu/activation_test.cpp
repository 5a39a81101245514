// SPDX-License-Identifier: Apache-2.0
// The vector forms of gelu and silu against the same functions in double, over their whole range:
// small and large arguments, both sides of every border between pieces. The functions in vectors of
// f64 against those of the C library.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "isa.hpp"
#include "kernels/elementwise.hpp"

using tenon::UnaryKind;
using tenon::cpu::Activation;
using tenon::cpu::pow_wide;
using tenon::cpu::slope_tile;
using tenon::cpu::slope_vector;
using tenon::cpu::slope_wide;
using tenon::cpu::swiglu_slopes_vector;
using tenon::cpu::swiglu_vector;
using tenon::cpu::unary_slope;
using tenon::cpu::unary_value;
using tenon::cpu::unary_vector;
using tenon::cpu::unary_wide;

namespace {

[[maybe_unused]] const bool capped = (tenon::cpu::cap_isa(), true);  // by TENON_CPU_ISA

constexpr float kInf = std::numeric_limits<float>::infinity();

// Dense around 0 and up to 120, and the powers of two below.
std::vector<float> arguments() {
  std::vector<float> x = {0, -0.f};
  for (int e = -149; e < 0; ++e)
    for (const float sign : {-1.f, 1.f}) x.push_back(sign * std::ldexp(1.f, e));
  for (int i = -120 * 512; i <= 120 * 512; ++i) x.push_back(static_cast<float>(i) / 511);
  for (int i = -40 * 64; i <= 40 * 64; ++i) x.push_back(static_cast<float>(i) * 11 / 128);
  return x;
}
double ulp(double y) { return std::ldexp(1, std::max(y == 0 ? -149 : std::ilogb(y) - 23, -149)); }
Activation of(UnaryKind kind) { return {.kind = kind, .alpha = 1, .beta = 0}; }

struct Worst {
  double error = 0;
  float at = 0;
  void add(float x, double e) {
    if (!(e <= error)) error = e, at = x;
  }
};

}  // namespace

TEST_SUITE("cpu/activation") {
  TEST_CASE("gelu, silu: within 8 ulp of the real function") {
    const std::vector<float> x = arguments();
    std::vector<float> y(x.size());
    for (const UnaryKind kind : {UnaryKind::gelu, UnaryKind::silu}) {
      REQUIRE(unary_vector(of(kind), x.data(), y.data(), static_cast<int64_t>(x.size())));
      Worst worst;
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = unary_value(of(kind), x[i]);
        worst.add(x[i], std::fabs(y[i] - want) / ulp(want));
      }
      CAPTURE(worst.at);
      CHECK(worst.error <= 8);
    }
  }

  TEST_CASE("gelu, silu: NaN stays, infinity stays, one large lane spoils no other") {
    for (const UnaryKind kind : {UnaryKind::gelu, UnaryKind::silu}) {
      const std::vector<float> x = {NAN, kInf, 3e38f, -3e38f, 1, -1, 0, 2};
      std::vector<float> y(x.size());
      REQUIRE(unary_vector(of(kind), x.data(), y.data(), 8));
      CHECK(std::isnan(y[0]));
      CHECK(y[1] == kInf);
      CHECK(y[2] == 3e38f);
      CHECK(y[3] == 0);
      std::vector<float> alone(4);
      REQUIRE(unary_vector(of(kind), x.data() + 4, alone.data(), 4));
      CHECK(alone == std::vector<float>(y.begin() + 4, y.end()));
      for (size_t i = 4; i < 8; ++i)
        CHECK(y[i] == doctest::Approx(unary_value(of(kind), x[i])).epsilon(1e-6));
    }
  }

  TEST_CASE("hard_sigmoid: an argument that rounds to an end has no slope, as when decomposed") {
    const std::vector<float> x = {0x1.3ffffep1f, 0x1.3ffffcp1f, 2.5f, 2, -2.5f, NAN}, dy(6, 1.f);
    std::vector<float> dx(6);
    slope_tile({.kind = UnaryKind::hard_sigmoid, .alpha = 0.2, .beta = 0.5}, x.data(), dy.data(),
               dx.data(), 6);
    CHECK(dx == std::vector<float>{0, 0.2f, 0, 0.2f, 0, 0});
  }

  TEST_CASE("silu's slope, and swiglu in one pass: as in double") {
    const std::vector<float> x = arguments();
    const auto n = static_cast<int64_t>(x.size());
    const Activation silu = of(UnaryKind::silu);
    std::vector<float> up(x.size()), dy(x.size()), slope(x.size(), 1), y(x.size()), dgate(x.size()),
        dup(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      up[i] = static_cast<float>(i % 7) - 3.25f;
      dy[i] = 1.5f - static_cast<float>(i % 5);
    }
    REQUIRE(slope_vector(silu, x.data(), std::vector<float>(x.size(), 1).data(), slope.data(), n));
    REQUIRE(swiglu_vector(silu, x.data(), up.data(), y.data(), n));
    REQUIRE(
        swiglu_slopes_vector(silu, x.data(), up.data(), dy.data(), dgate.data(), dup.data(), n));
    Worst slopes, forward, gate, other;
    for (size_t i = 0; i < x.size(); ++i) {
      const double act = unary_value(silu, x[i]), real = unary_slope(silu, x[i]);
      // The slope's two terms cancel near -1.28, so its error is one of their size.
      const double sigma = 1 / (1 + std::exp(-static_cast<double>(x[i])));
      const double size = sigma + std::fabs(x[i]) * sigma * (1 - sigma);
      const double product = static_cast<double>(dy[i]) * up[i];
      slopes.add(x[i], std::fabs(slope[i] - real) / ulp(size));
      forward.add(x[i], std::fabs(y[i] - act * up[i]) / ulp(act * up[i]));
      gate.add(x[i], std::fabs(dgate[i] - product * real) / ulp(product * size));
      other.add(x[i], std::fabs(dup[i] - act * dy[i]) / ulp(act * dy[i]));
    }
    for (const Worst& w : {slopes, forward, gate, other}) {
      CAPTURE(w.at);
      CHECK(w.error <= 10);
    }
  }

  TEST_CASE("functions in vectors of f64: the float next to the exact value, in all ranges") {
    // Numbers of all exponents and both signs, infinities, NaN; dense where functions end.
    std::vector<float> x;
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 12289)
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    x.insert(x.end(), 64, -0.f);
    for (const float at : {-1.f, 0.f, 1.f, 39000.f, -39000.f, 89.4f, 700.f})
      for (float v = at, w = at, k = 0; k < 200; ++k) {
        x.push_back(v), x.push_back(w);
        v = std::nextafter(v, kInf), w = std::nextafter(w, -kInf);
      }
    const auto count = static_cast<int64_t>(x.size());
    std::vector<float> y(x.size());
    const std::vector<float> dy(x.size(), 3.f);
    for (const UnaryKind kind :
         {UnaryKind::sin, UnaryKind::cos, UnaryKind::tan, UnaryKind::asin, UnaryKind::acos,
          UnaryKind::atan, UnaryKind::sinh, UnaryKind::cosh, UnaryKind::asinh, UnaryKind::acosh,
          UnaryKind::atanh, UnaryKind::log1p})
      for (const bool slope : {false, true}) {
        const bool taken = slope ? slope_wide(of(kind), x.data(), dy.data(), y.data(), count)
                                 : unary_wide(of(kind), x.data(), y.data(), count);
        if (slope && !taken) continue;
        REQUIRE(taken);
        CAPTURE(static_cast<int>(kind));
        for (size_t i = 0; i < x.size(); ++i) {
          const double exact =
              slope ? 3 * unary_slope(of(kind), x[i]) : unary_value(of(kind), x[i]);
          const auto want = static_cast<float>(exact);
          const bool same = std::isnan(want)
                                ? std::isnan(y[i])
                                : y[i] == want && std::signbit(y[i]) == std::signbit(want);
          // Where two floats are as near, either.
          if (!same && !(std::fabs(y[i] - exact) <= 0.501 * ulp(exact)))
            FAIL("slope " << slope << " at " << x[i] << ": expected " << want << ", got " << y[i]);
        }
      }
  }

  TEST_CASE("pow in vectors of f64: signs, whole exponents, zeros, infinities") {
    std::vector<float> a, b;
    const float some[] = {0,        -0.f,  1,      -1,   2,     -2,    0.5f,   -0.5f,   3,
                          -3,       2.5f,  -2.5f,  7,    -7,    1e-3f, -40,    100,     8388607,
                          16777218, 3e38f, -3e38f, kInf, -kInf, NAN,   1e-45f, -1e-40f, 0.1f};
    for (const float u : some)
      for (const float v : some) a.push_back(u), b.push_back(v);
    for (float u = 0.01f; u < 50; u *= 1.003f)
      for (float v = -9; v < 9; v += 0.37f) a.push_back(u), b.push_back(v);
    std::vector<float> y(a.size());
    pow_wide(a.data(), b.data(), y.data(), static_cast<int64_t>(a.size()));
    for (size_t i = 0; i < a.size(); ++i) {
      const double exact = std::pow(static_cast<double>(a[i]), static_cast<double>(b[i]));
      const auto want = static_cast<float>(exact);
      const bool same = std::isnan(want) ? std::isnan(y[i])
                                         : y[i] == want && std::signbit(y[i]) == std::signbit(want);
      if (!same && !(std::fabs(y[i] - exact) <= 0.501 * ulp(exact)))
        FAIL(a[i] << " to the " << b[i] << ": expected " << want << ", got " << y[i]);
    }
  }
}
