// SPDX-License-Identifier: Apache-2.0
// Casts to and from the 8-bit floats, bit for bit. On the cpu: the template, and so the kit, has
// none of them.
#include <array>
#include <cmath>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

struct F8 {
  tenon_dtype dtype;
  int fraction_bits, bias;
  uint8_t largest, nan;  // the codes of the largest number and of the least NaN
};
const std::array<F8, 2> kF8 = {
    {{TENON_DTYPE_F8E4M3, 3, 7, 0x7E, 0x7F}, {TENON_DTYPE_F8E5M2, 2, 15, 0x7B, 0x7D}}};

// y = casts of x, one after the other, in the dtype of the last.
template <class To, class From>
std::vector<To> cast(const ExecutableOptions& way, tenon_dtype from, const std::vector<From>& x,
                     std::initializer_list<tenon_dtype> casts, bool saturate = true) {
  const TensorType type(from, {static_cast<int64_t>(x.size())});
  Graph g("cast");
  Value y = g.input("x", type);
  for (const tenon_dtype to : casts) y = g.add(op::cast{.to = to, .saturate = saturate, .x = y});
  g.output("y", y);
  Store store(runtime());
  const Executable executable(runtime(), g, store, way);
  Context context(executable);
  context.set("x", type, x.data(), x.size() * sizeof(From));
  context.run();
  std::vector<To> out(x.size());
  context.get("y", out.data(), out.size() * sizeof(To));
  return out;
}

std::vector<ExecutableOptions> ways() {
  return {{.device = "cpu:0"}, {.device = "cpu:0", .fuse = false}};
}

}  // namespace

TEST_SUITE("exec/f8") {
  TEST_CASE(
      "cast: known numbers give their bytes, what is too large the largest or what lies beyond") {
    constexpr float kInf = INFINITY;
    struct Known {
      float x;
      std::array<uint8_t, 2> bytes, strict;  // e4m3 and e5m2; without saturation
    };
    const auto same = [](float x, uint8_t a, uint8_t b) { return Known{x, {a, b}, {a, b}}; };
    const std::vector<Known> all = {
        same(0, 0, 0),
        same(-0.0f, 0x80, 0x80),
        same(1, 0x38, 0x3C),
        same(-1, 0xB8, 0xBC),
        same(448, 0x7E, 0x5F),
        same(449, 0x7E, 0x5F),
        same(464, 0x7E, 0x5F),  // a tie of 448 and 480 in e4m3
        {465, {0x7E, 0x5F}, {0x7F, 0x5F}},
        {480, {0x7E, 0x60}, {0x7F, 0x60}},
        {57344, {0x7E, 0x7B}, {0x7F, 0x7B}},
        {61439, {0x7E, 0x7B}, {0x7F, 0x7B}},
        {61440, {0x7E, 0x7B}, {0x7F, 0x7C}},
        {1e9f, {0x7E, 0x7B}, {0x7F, 0x7C}},
        {-1e9f, {0xFE, 0xFB}, {0xFF, 0xFC}},
        {kInf, {0x7E, 0x7B}, {0x7F, 0x7C}},
        {-kInf, {0xFE, 0xFB}, {0xFF, 0xFC}},
        // ties, and hairs beyond them
        same(1.0625f, 0x38, 0x3C),
        same(std::nextafter(1.0625f, 2.0f), 0x39, 0x3C),
        same(1.125f, 0x39, 0x3C),
        same(std::nextafter(1.125f, 2.0f), 0x39, 0x3D),
        same(1.1875f, 0x3A, 0x3D),
        same(1.375f, 0x3B, 0x3E),
        same(-1.9375f, 0xC0, 0xC0),
        // subnormals: e4m3 counts 2^-9, e5m2 2^-16
        same(0x1p-6f, 0x08, 0x24),
        same(0x1.Ep-7f, 0x08, 0x24),
        same(0x1.Cp-7f, 0x07, 0x23),
        same(0x1.8p-9f, 0x02, 0x1A),
        same(0x1.4p-8f, 0x02, 0x1D),
        same(0x1p-9f, 0x01, 0x18),
        same(0x1p-10f, 0x00, 0x14),
        same(std::nextafter(0x1p-10f, 1.0f), 0x01, 0x14),
        same(0x1p-14f, 0x00, 0x04),
        same(0x1.8p-15f, 0x00, 0x03),
        same(-0x1.8p-16f, 0x80, 0x82),
        same(0x1.4p-15f, 0x00, 0x02),
        same(0x1p-17f, 0x00, 0x00),
        same(std::nextafter(0x1p-17f, 1.0f), 0x00, 0x01),
        same(-1e-30f, 0x80, 0x80),
        same(1e-45f, 0x00, 0x00),
    };
    std::vector<float> x;
    for (const Known& k : all) x.push_back(k.x);
    x.push_back(NAN);
    const std::vector<double> wide(x.begin(), x.end());
    const std::vector<double> hair = {0x1.10000000000010p0, 0x1.0FFFFFFFFFFFFp0,
                                      0x1.20000000000010p0, 0x1.1FFFFFFFFFFFFp0};
    for (const ExecutableOptions& way : ways())
      for (size_t k = 0; k < kF8.size(); ++k)
        for (const bool saturate : {true, false}) {
          CAPTURE(k);
          CAPTURE(saturate);
          const auto bytes = cast<uint8_t>(way, f32, x, {kF8[k].dtype}, saturate);
          CHECK(cast<uint8_t>(way, f64, wide, {kF8[k].dtype}, saturate) == bytes);
          CHECK((bytes.back() & 0x7F) >= kF8[k].nan);
          for (size_t i = 0; i < all.size(); ++i) {
            CAPTURE(all[i].x);
            CHECK(int{bytes[i]} == int{(saturate ? all[i].bytes : all[i].strict)[k]});
          }
          // Rounded once, not by way of f32.
          const auto once = cast<uint8_t>(way, f64, hair, {kF8[k].dtype}, saturate);
          CHECK(once == (k == 0 ? std::vector<uint8_t>{0x39, 0x38, 0x39, 0x39}
                                : std::vector<uint8_t>{0x3C, 0x3C, 0x3D, 0x3C}));
        }
  }

  TEST_CASE("cast: every code is its number, and comes back from f32, f64 and f16") {
    std::vector<uint8_t> codes(256);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
    for (const ExecutableOptions& way : ways())
      for (const F8& f : kF8) {
        CAPTURE(f.fraction_bits);
        const auto numbers = cast<float>(way, f.dtype, codes, {f32});
        for (const uint8_t c : codes) {
          CAPTURE(int{c});
          const int magnitude = c & 0x7F, exponent = magnitude >> f.fraction_bits;
          const int fraction = magnitude & ((1 << f.fraction_bits) - 1);
          const float number = numbers[c];
          if (magnitude >= f.nan) {
            CHECK(std::isnan(number));
            continue;
          }
          float expected =
              exponent == 0 ? std::ldexp(static_cast<float>(fraction), 1 - f.bias - f.fraction_bits)
                            : std::ldexp(static_cast<float>(fraction + (1 << f.fraction_bits)),
                                         exponent - f.bias - f.fraction_bits);
          if (magnitude > f.largest) expected = INFINITY;
          CHECK(number == (c & 0x80 ? -expected : expected));
          CHECK(std::signbit(number) == (c >= 0x80));
        }
        for (const tenon_dtype by : {f32, f64, f16}) {
          CAPTURE(by);
          const auto back = cast<uint8_t>(way, f.dtype, codes, {by, f.dtype}, false);
          for (const uint8_t c : codes) {
            CAPTURE(int{c});
            if ((c & 0x7F) >= f.nan)
              CHECK((back[c] & 0x7F) >= f.nan);
            else
              CHECK(int{back[c]} == int{c});
          }
        }
      }
  }
}
