// SPDX-License-Identifier: Apache-2.0
// Products against sums in double, over shapes around the panels, every layout of the operands and
// every float dtype; and what the tile unit must leave to the register tiles.
#include "kernels/gemm.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "isa.hpp"
#include "tenon/blob.h"

namespace tenon::cpu {
namespace {

[[maybe_unused]] const bool capped = (cap_isa(), true);  // by TENON_CPU_ISA

constexpr float kInf = std::numeric_limits<float>::infinity();

// A matrix in memory, and what it holds.
struct Matrix {
  int64_t rows, cols;
  tenon_dtype dtype;
  int64_t row_stride, col_stride;
  std::vector<double> values;  // row by row
  std::vector<std::byte> bytes;

  Matrix(int64_t m, int64_t n, tenon_dtype t, bool turned, int64_t spacing = 1)
      : rows(m),
        cols(n),
        dtype(t),
        row_stride(turned ? spacing : n * spacing),
        col_stride(turned ? m * spacing : spacing),
        values(m * n),
        bytes(m * n * spacing * tenon_dtype_bits(t) / 8) {}

  void fill(std::mt19937& random, double scale) {
    std::normal_distribution<double> normal(0, scale);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) set(i, j, normal(random));
  }
  // Rounded to the dtype: bf16 by cutting, f16 by a small fixed point, both exact in double.
  void set(int64_t i, int64_t j, double x) {
    const int64_t at = i * row_stride + j * col_stride;
    switch (dtype) {
      case TENON_DTYPE_F32: {
        const float v = static_cast<float>(x);
        std::memcpy(bytes.data() + at * 4, &v, 4);
        values[i * cols + j] = v;
        return;
      }
      case TENON_DTYPE_BF16: {
        const uint32_t cut = std::bit_cast<uint32_t>(static_cast<float>(x)) & 0xFFFF0000;
        const uint16_t v = static_cast<uint16_t>(cut >> 16);
        std::memcpy(bytes.data() + at * 2, &v, 2);
        values[i * cols + j] = std::bit_cast<float>(cut);
        return;
      }
      case TENON_DTYPE_F16: {  // 1.mmmmmmmmmm in [1, 2), signed
        const uint32_t fraction = static_cast<uint32_t>(std::abs(x) * 1e6) & 0x3FF;
        const uint16_t v = static_cast<uint16_t>((x < 0 ? 0x8000 : 0) | 0x3C00 | fraction);
        std::memcpy(bytes.data() + at * 2, &v, 2);
        values[i * cols + j] = (x < 0 ? -1 : 1) * (1 + fraction / 1024.0);
        return;
      }
    }
    FAIL("no such dtype here");
  }
  GemmOperand operand() const { return {dtype, row_stride, col_stride}; }
};

std::vector<float> multiply(const Matrix& a, const Matrix& b, bool direct, bool serial,
                            F32Precision precision = F32Precision::ieee) {
  const Gemm gemm(a.rows, b.cols, a.cols, a.operand(), b.operand(), direct, 2, precision);
  std::vector<std::byte> scratch(serial ? gemm.serial_scratch() : gemm.scratch());
  std::vector<float> c(a.rows * b.cols, -7.0f);
  const auto sink = [&](const GemmBlock& block) {
    if (direct) return;
    for (int64_t i = 0; i < block.rows; ++i)
      for (int64_t j = 0; j < block.cols; ++j)
        c[(block.i0 + i) * b.cols + block.j0 + j] =
            static_cast<const float*>(block.sums)[i * block.ld + j];
  };
  gemm.run(a.bytes.data(), b.bytes.data(), c.data(), scratch.data(), sink, serial);
  return c;
}

// The largest |error| over the sum of the products' magnitudes.
double worst_error(const Matrix& a, const Matrix& b, const std::vector<float>& c) {
  double worst = 0;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.cols; ++j) {
      double sum = 0, size = 1e-300;
      for (int64_t k = 0; k < a.cols; ++k) {
        const double x = a.values[i * a.cols + k] * b.values[k * b.cols + j];
        sum += x, size += std::abs(x);
      }
      worst = std::max(worst, std::abs(c[i * b.cols + j] - sum) / size);
    }
  return worst;
}

struct Shape {
  int64_t m, n, k;
};
constexpr Shape kShapes[] = {{1, 7, 5},     {5, 16, 32},     {16, 16, 32},  {17, 31, 33},
                             {32, 32, 64},  {33, 65, 100},   {48, 40, 70},  {200, 50, 530},
                             {64, 700, 40}, {300, 70, 1100}, {70, 300, 700}};

TEST_CASE("products are right for every shape, layout and dtype") {
  std::mt19937 random(1);
  for (const auto [m, n, k] : kShapes)
    for (const tenon_dtype t : {TENON_DTYPE_F32, TENON_DTYPE_F16, TENON_DTYPE_BF16})
      for (int layout = 0; layout < 6; ++layout) {
        Matrix a(m, k, t, layout & 1, layout < 4 ? 1 : 2);
        Matrix b(k, n, t, layout >> 1 & 1, layout < 4 ? 1 : 3);
        a.fill(random, 1), b.fill(random, 0.05);
        const bool direct = layout % 3 != 0, serial = layout % 2 == 0;
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        CAPTURE(t);
        CAPTURE(layout);
        // A sum of k rounded additions, each to 2^-24 of what is there.
        CHECK(worst_error(a, b, multiply(a, b, direct, serial)) < 3e-7);
      }
}

TEST_CASE("scale matters not, up to the ends of the range") {
  std::mt19937 random(2);
  for (const double scale : {1e-36, 1e-33, 1e-20, 1e18, 1e37}) {
    Matrix a(64, 96, TENON_DTYPE_F32, false), b(96, 64, TENON_DTYPE_F32, false);
    a.fill(random, scale), b.fill(random, scale < 1 ? 0.5 : 1e-3);
    CAPTURE(scale);
    CHECK(worst_error(a, b, multiply(a, b, true, true)) < 3e-7);
  }
}

TEST_CASE("tf32 keeps at least eleven bits") {
  std::mt19937 random(3);
  Matrix a(64, 512, TENON_DTYPE_F32, false), b(512, 64, TENON_DTYPE_F32, true);
  a.fill(random, 1), b.fill(random, 1);
  CHECK(worst_error(a, b, multiply(a, b, true, false, F32Precision::tf32)) < 5e-4);
}

TEST_CASE("infinities, NaN and the largest numbers come out as from multiply-adds") {
  std::mt19937 random(4);
  for (const tenon_dtype t : {TENON_DTYPE_F32, TENON_DTYPE_BF16}) {
    for (const bool many_rows : {false, true}) {
      CAPTURE(t);
      const int64_t m = many_rows ? 200 : 40, n = many_rows ? 40 : 200, k = 64;
      Matrix a(m, k, t, false), b(k, n, t, false);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t s = 0; s < k; ++s) a.set(i, s, 1);
      for (int64_t s = 0; s < k; ++s)
        for (int64_t j = 0; j < n; ++j) b.set(s, j, 1);
      a.set(3, 5, kInf), a.set(7, 6, std::nan("")), a.set(9, 0, 3.4e38);
      b.set(5, 11, 0), b.set(2, 13, -kInf);
      const std::vector<float> c = multiply(a, b, true, true);
      CHECK(c[0] == 64);
      CHECK(c[3 * n] == kInf);
      CHECK(std::isnan(c[3 * n + 11]));  // inf * 0
      CHECK(std::isnan(c[3 * n + 13]));  // inf - inf
      CHECK(std::isnan(c[7 * n + 1]));
      CHECK(c[9 * n + 2] == static_cast<float>(a.values[9 * k]));
      CHECK(c[13] == -kInf);
      CHECK(c[(m - 1) * n + n - 1] == 64);
    }
  }
}

TEST_CASE("b packed before the run gives the same bits") {
  std::mt19937 random(6);
  for (const tenon_dtype t : {TENON_DTYPE_F32, TENON_DTYPE_BF16})
    for (const auto [m, n, k] : {Shape{20, 300, 600}, Shape{100, 40, 70}}) {
      Matrix a(m, k, t, false), b(k, n, t, true);
      a.fill(random, 1), b.fill(random, 1);
      Gemm gemm(m, n, k, a.operand(), b.operand(), true, 2);
      CAPTURE(t);
      CAPTURE(m);
      // In register tiles where the rows are few; on the unit not what is in parts, which are
      // judged in every run.
      const bool registers = amx_number(t, false) == AmxNumber::none;
      CHECK(gemm.wants_packed_b() == (registers ? m <= 64 : t == TENON_DTYPE_BF16));
      if (!gemm.wants_packed_b()) continue;
      std::vector<std::byte> packed(gemm.packed_bytes());
      gemm.pack_b(b.bytes.data(), packed.data());
      gemm.take_packed_b();
      std::vector<std::byte> scratch(gemm.scratch());
      std::vector<float> c(m * n);
      gemm.run(
          a.bytes.data(), packed.data(), c.data(), scratch.data(), [](const GemmBlock&) {}, false);
      const std::vector<float> usual = multiply(a, b, true, false);
      CHECK(std::memcmp(c.data(), usual.data(), c.size() * sizeof(float)) == 0);
    }
}

// The product of the first m rows of a, with row_bits; packed: b is packed before the run, if it may.
std::vector<float> first_rows(const Matrix& a, const Matrix& b, int64_t m, bool direct,
                              bool packed) {
  Gemm gemm(m, b.cols, a.cols, a.operand(), b.operand(), direct, 2, F32Precision::ieee, 0, true);
  std::vector<std::byte> panels;
  if (packed && gemm.wants_packed_b()) {
    panels.resize(gemm.packed_bytes());
    gemm.pack_b(b.bytes.data(), panels.data());
    gemm.take_packed_b();
  }
  std::vector<std::byte> scratch(gemm.scratch());
  std::vector<float> c(m * b.cols, -7.0f);
  const auto sink = [&](const GemmBlock& block) {
    if (direct) return;
    for (int64_t i = 0; i < block.rows; ++i)
      std::copy_n(static_cast<const float*>(block.sums) + i * block.ld, block.cols,
                  c.data() + (block.i0 + i) * b.cols + block.j0);
  };
  gemm.run(a.bytes.data(), panels.empty() ? b.bytes.data() : panels.data(), c.data(),
           scratch.data(), sink, false);
  return c;
}

TEST_CASE("row_bits: a row has the same bits, whatever the number of rows is") {
  std::mt19937 random(7);
  constexpr int64_t kRows = 700;  // both operands are packed as the shared one
  for (const tenon_dtype t : {TENON_DTYPE_F32, TENON_DTYPE_F16, TENON_DTYPE_BF16})
    for (const int64_t k : {1, 40, 255, 256, 530, 1100, 2063})
      for (const int64_t n : {1, 3, 7, 47, 130})
        for (const bool turned : {false, true}) {
          Matrix a(kRows, k, TENON_DTYPE_F32, false), b(k, n, t, turned);
          a.fill(random, 1), b.fill(random, 1);
          CAPTURE(t);
          CAPTURE(k);
          CAPTURE(n);
          CAPTURE(turned);
          const std::vector<float> all = first_rows(a, b, kRows, true, false);
          CHECK(worst_error(a, b, all) < 6e-7);  // sums of hundreds of terms
          for (const int64_t m : {1, 2, 3, 4, 5, 8, 14, 33, 64, 130})
            for (const bool direct : {false, true})
              for (const bool packed : {false, true}) {
                CAPTURE(m);
                const std::vector<float> some = first_rows(a, b, m, direct, packed);
                CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
              }
        }
}

TEST_CASE("row_bits: long products pack a group of steps at a time, with the bits of few rows") {
  if (amx_number(TENON_DTYPE_F32, false) != AmxNumber::none) return;  // it packs whole
  std::mt19937 random(8);
  constexpr int64_t kRows = 80, kColumns = 35, kLong = 500'001;  // beyond the limit on any unit
  Matrix a(kRows, kLong, TENON_DTYPE_F32, false), b(kLong, kColumns, TENON_DTYPE_F32, true);
  a.fill(random, 1), b.fill(random, 1);
  const Gemm whole(kRows, kColumns, kLong, a.operand(), b.operand(), true, 2, F32Precision::ieee, 0,
                   true);
  CHECK(whole.scratch() <= 16 << 20);
  const std::vector<float> all = first_rows(a, b, kRows, true, false);
  CHECK(worst_error(a, b, all) < 6e-7);
  for (const int64_t m : {int64_t{1}, int64_t{4}, int64_t{5}, int64_t{14}, kRows})
    for (const bool direct : {false, true}) {
      CAPTURE(m);
      const std::vector<float> some = first_rows(a, b, m, direct, false);
      CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
    }
}

TEST_CASE("scratch of long products is bounded, also if rows must keep their bits") {
  if (amx_number(TENON_DTYPE_F32, false) != AmxNumber::none) return;  // it packs whole
  for (const bool row_bits : {false, true})
    for (const bool direct : {false, true})
      for (const auto [m, n, k] : {Shape{1024, 1024, 40'000}, Shape{300, 2000, 100'000},
                                   Shape{2000, 300, 100'000}, Shape{64, 64, 10'000'000}}) {
        const GemmOperand a{TENON_DTYPE_F32, k, 1}, b{TENON_DTYPE_F32, 1, k};
        const Gemm gemm(m, n, k, a, b, direct, 16, F32Precision::ieee, 0, row_bits);
        CAPTURE(row_bits);
        CAPTURE(m);
        CAPTURE(k);
        CHECK(gemm.scratch() <= 128 << 20);
      }
}

TEST_CASE("the same bits however the work is spread") {
  std::mt19937 random(5);
  Matrix a(300, 200, TENON_DTYPE_F32, false), b(200, 90, TENON_DTYPE_F32, false);
  a.fill(random, 1), b.fill(random, 1);
  a.set(100, 3, kInf);  // one panel is computed otherwise
  const auto check = [](const Matrix& x, const Matrix& y) {
    const std::vector<float> alone = multiply(x, y, true, true);
    Arena arena(2);
    std::vector<float> spread;
    arena.execute([&] { spread = multiply(x, y, true, false); });
    CHECK(std::memcmp(alone.data(), spread.data(), alone.size() * sizeof(float)) == 0);
  };
  check(a, b);
  // Both across the steps, in several groups of them; more rows than columns, and fewer.
  Matrix dy(330, 1500, TENON_DTYPE_F32, true), x(1500, 130, TENON_DTYPE_F32, false);
  dy.fill(random, 1), x.fill(random, 1);
  check(dy, x);
  Matrix few(130, 1500, TENON_DTYPE_F32, true), many(1500, 330, TENON_DTYPE_F32, false);
  few.fill(random, 1), many.fill(random, 1);
  check(few, many);
}

}  // namespace
}  // namespace tenon::cpu
