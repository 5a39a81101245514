// SPDX-License-Identifier: Apache-2.0
// Integer products against plain loops: both signs of both sides, odd sizes, every unit of this
// processor, and the rounding of what follows the sums.
#include "kernels/qgemm.hpp"

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

struct Bytes {
  tenon_dtype dtype;
  std::vector<uint8_t> data;
  Bytes(tenon_dtype t, int64_t count, std::mt19937& random, bool extreme) : dtype(t), data(count) {
    for (uint8_t& x : data) {
      const auto any = static_cast<uint8_t>(random());
      x = !extreme ? any : any % 2 == 0 ? low() : high();
    }
  }
  uint8_t low() const { return dtype == TENON_DTYPE_U8 ? 0 : 0x80; }
  uint8_t high() const { return dtype == TENON_DTYPE_U8 ? 0xFF : 0x7F; }
  int64_t at(int64_t k) const {
    return dtype == TENON_DTYPE_U8 ? int64_t{data[k]} : int64_t{static_cast<int8_t>(data[k])};
  }
};

// What 7.5 of the definition says, one step after the other.
int32_t requantized(int64_t sum, float multiplier, int32_t zero, int32_t low, int32_t high) {
  const float scaled = static_cast<float>(static_cast<int32_t>(sum)) * multiplier;
  const double rounded = std::nearbyint(static_cast<double>(scaled));
  return static_cast<int32_t>(
      std::clamp(rounded + zero, static_cast<double>(low), static_cast<double>(high)));
}

struct Problem {
  int64_t m, n, k;
  tenon_dtype a, b, y;
  bool a_turned, b_turned, packed, extreme, per_column;
};

void check(QUnit unit, const Problem& p, std::mt19937& random) {
  const Bytes a(p.a, p.m * p.k, random, p.extreme), b(p.b, p.k * p.n, random, p.extreme);
  const Bytes a_zero(p.a, 1, random, p.extreme), b_zeros(p.b, p.n, random, p.extreme);
  std::vector<int32_t> bias(p.n);
  std::vector<float> multipliers(p.n);
  const float typical = 0.5f / static_cast<float>(p.k + 1) / 64.0f;
  for (int64_t j = 0; j < p.n; ++j) {
    bias[j] = static_cast<int32_t>(random() % 20001) - 10000;
    multipliers[j] = typical * (1.0f + static_cast<float>(random() % 1000) / 100.0f);
  }
  const bool raw = p.y == TENON_DTYPE_I32;
  const int32_t low = p.y == TENON_DTYPE_U8 ? 0 : -128, high = low + 255;
  const int32_t y_zero = low + static_cast<int32_t>(random() % 256);

  const int64_t a_row = p.a_turned ? 1 : p.k, a_col = p.a_turned ? p.m : 1;
  const int64_t b_row = p.b_turned ? 1 : p.n, b_col = p.b_turned ? p.k : 1;
  const QGemm gemm(unit, p.m, p.n, p.k, {p.a, a_row, a_col}, {p.b, b_row, b_col}, p.packed);
  std::vector<char> packed(gemm.packed_bytes()), own(gemm.piece_scratch());
  if (p.packed) gemm.pack_b(b.data.data(), packed.data());
  std::vector<char> y(p.m * p.n * (raw ? 4 : 1) + 1, 77);
  const QGemm::Run run{.a = a.data.data(),
                       .b = p.packed ? static_cast<const void*>(packed.data()) : b.data.data(),
                       .a_zero = static_cast<int32_t>(a_zero.at(0)),
                       .b_zeros = b_zeros.data.data(),
                       .bias = bias.data(),
                       .multipliers = raw ? nullptr : multipliers.data(),
                       .b_zeros_per_column = p.per_column,
                       .multipliers_per_column = p.per_column,
                       .low = raw ? std::numeric_limits<int32_t>::min() : low,
                       .high = raw ? std::numeric_limits<int32_t>::max() : high,
                       .y_zero = raw ? 0 : y_zero,
                       .y_dtype = p.y,
                       .y = y.data()};
  for (int64_t piece = 0; piece < gemm.pieces(); ++piece) {
    std::fill(own.begin(), own.end(), static_cast<char>(0x5A));  // no piece may rely on zeros
    gemm.run_piece(run, piece, own.data());
  }
  REQUIRE(y.back() == 77);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t q = p.per_column ? j : 0;
      int64_t sum = bias[j];
      for (int64_t s = 0; s < p.k; ++s)
        sum += (a.at(i * a_row + s * a_col) - a_zero.at(0)) *
               (b.at(s * b_row + j * b_col) - b_zeros.at(q));
      const int64_t at = i * p.n + j;
      int64_t got;
      if (raw) {
        got = reinterpret_cast<const int32_t*>(y.data())[at];
      } else {
        got = p.y == TENON_DTYPE_U8 ? int64_t{static_cast<uint8_t>(y[at])}
                                    : int64_t{static_cast<int8_t>(y[at])};
      }
      const int64_t expected = raw ? sum : requantized(sum, multipliers[q], y_zero, low, high);
      if (got != expected)
        FAIL("element " << i << ", " << j << " of " << p.m << "x" << p.n << "x" << p.k << ", unit "
                        << static_cast<int>(unit) << ": expected " << expected << ", got " << got);
    }
}

}  // namespace

TEST_SUITE("cpu/qgemm") {
  TEST_CASE("sums are exact: every unit, both signs of both sides, odd sizes") {
    struct {
      int64_t m, n, k;
    } const sizes[] = {{1, 1, 1},   {1, 37, 5},   {2, 16, 3},   {5, 33, 4},   {7, 31, 66},
                       {14, 32, 8}, {15, 65, 13}, {29, 3, 129}, {3, 70, 200}, {40, 300, 31}};
    for (const QUnit unit : kUnits) {
      if (!q_has(unit)) {
        MESSAGE("this processor lacks unit " << static_cast<int>(unit));
        continue;
      }
      std::mt19937 random(7);
      for (const auto& s : sizes)
        for (const tenon_dtype a : kEight)
          for (const tenon_dtype b : kEight)
            for (const tenon_dtype y : {TENON_DTYPE_I32, TENON_DTYPE_I8, TENON_DTYPE_U8})
              for (int bits = 0; bits < 32; ++bits)
                check(unit,
                      {s.m, s.n, s.k, a, b, y, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0,
                       (bits & 8) != 0, (bits & 16) != 0},
                      random);
    }
  }

  TEST_CASE("many pieces: blocks of rows and columns meet without gaps") {
    for (const QUnit unit : kUnits) {
      if (!q_has(unit)) continue;
      std::mt19937 random(8);
      const Problem p{
          210,   1100,  150, TENON_DTYPE_U8, TENON_DTYPE_I8, TENON_DTYPE_I8, false, false,
          false, false, true};
      CHECK(QGemm(unit, p.m, p.n, p.k, {p.a, p.k, 1}, {p.b, p.n, 1}, false).pieces() > 4);
      check(unit, p, random);
    }
  }

  TEST_CASE("dot products do not saturate: the largest sum that 32 bits hold") {
    for (const QUnit unit : kUnits) {
      if (!q_has(unit)) continue;
      const int64_t k = kQMostSteps;
      const std::vector<uint8_t> a(k, 255), b(k, 255);
      const QGemm gemm(unit, 1, 1, k, {TENON_DTYPE_U8, k, 1}, {TENON_DTYPE_U8, 1, 1}, false);
      std::vector<char> own(gemm.piece_scratch());
      int32_t y = 0;
      gemm.run_piece({.a = a.data(),
                      .b = b.data(),
                      .a_zero = 0,
                      .b_zeros = nullptr,
                      .bias = nullptr,
                      .multipliers = nullptr,
                      .b_zeros_per_column = false,
                      .multipliers_per_column = false,
                      .low = std::numeric_limits<int32_t>::min(),
                      .high = std::numeric_limits<int32_t>::max(),
                      .y_zero = 0,
                      .y_dtype = TENON_DTYPE_I32,
                      .y = &y},
                     0, own.data());
      CHECK(y == 2147450625);  // 33025 * 65025
    }
  }

  TEST_CASE("requantization: halves round to even, large values saturate, NaN gives 0") {
    const std::vector<int32_t> sums = {1, 3, 5, -1, -3, -5, 255, 1 << 30, -(1 << 30),
                                       0, 7, 9, 11, 2,  4,  6,   8};
    const auto row = [&](float multiplier, tenon_dtype y, int32_t low, int32_t high, int32_t zero) {
      std::vector<int8_t> to(sums.size());
      q_row({.sums = sums.data(),
             .floats = false,
             .count = static_cast<int64_t>(sums.size()),
             .add = 0,
             .adds = nullptr,
             .factor = 0,
             .factors = nullptr,
             .scaled = true,
             .multiplier = multiplier,
             .multipliers = nullptr,
             .low = low,
             .high = high,
             .zero = zero,
             .y = y,
             .to = to.data()});
      std::vector<int> wide;
      for (const int8_t x : to)
        wide.push_back(y == TENON_DTYPE_U8 ? static_cast<uint8_t>(x) : int{x});
      return wide;
    };
    CHECK(row(0.5f, TENON_DTYPE_I8, -128, 127, 0) ==
          std::vector<int>{0, 2, 2, 0, -2, -2, 127, 127, -128, 0, 4, 4, 6, 1, 2, 3, 4});
    CHECK(row(0.5f, TENON_DTYPE_U8, 10, 255, 10) ==  // relu
          std::vector<int>{10, 12, 12, 10, 10, 10, 138, 255, 10, 10, 14, 14, 16, 11, 12, 13, 14});
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(row(inf, TENON_DTYPE_I8, -128, 127, 5) == std::vector<int>{127, 127, 127, -128, -128,
                                                                     -128, 127, 127, -128, 0, 127,
                                                                     127, 127, 127, 127, 127, 127});
  }
}

}  // namespace tenon::cpu
