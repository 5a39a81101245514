// SPDX-License-Identifier: Apache-2.0
// Products with weights of blocks against sums in f64, and their bits for one row and for many.
#include "kernels/dequant.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "isa.hpp"
#include "tenon/dtype.hpp"

namespace tenon::cpu {
namespace {

[[maybe_unused]] const bool capped = (cap_isa(), true);  // by TENON_CPU_ISA

// Rows of random blocks whose elements are below 1000, and the elements.
struct Weights {
  tenon_dtype dtype;
  int64_t n, k;
  std::vector<unsigned char> blocks;
  std::vector<double> elements;

  Weights(tenon_dtype t, int64_t rows, int64_t depth, std::mt19937& random)
      : dtype(t),
        n(rows),
        k(depth),
        blocks(tenon_dense_bytes(t, rows * depth)),
        elements(rows * depth) {
    const tenon_block block = tenon_dtype_block(t);
    double* to = elements.data();
    for (size_t at = 0; at < blocks.size(); at += block.bytes, to += block.elements) {
      do {
        for (int i = 0; i < block.bytes; ++i) blocks[at + i] = static_cast<unsigned char>(random());
        sdk::decode_block(t, &blocks[at], to);
      } while (!(largest(to) < 1000));
    }
  }
  // Infinity if an element of a block is not finite.
  double largest(const double* block) const {
    double most = 0;
    for (int i = 0; i < tenon_dtype_block(dtype).elements; ++i) {
      if (!std::isfinite(block[i])) return std::numeric_limits<double>::infinity();
      most = std::max(most, std::fabs(block[i]));
    }
    return most;
  }
  // Makes `byte` of each byte that leaves elements near the magnitude that they have: of codes, not
  // of the scales that matter.
  void fill(unsigned char byte) {
    const tenon_block block = tenon_dtype_block(dtype);
    double* to = elements.data();
    for (size_t at = 0; at < blocks.size(); at += block.bytes, to += block.elements)
      for (int i = 0; i < block.bytes; ++i) {
        const double before = largest(to);
        const unsigned char old = std::exchange(blocks[at + i], byte);
        sdk::decode_block(dtype, &blocks[at], to);
        if (largest(to) < 1000 && largest(to) >= before / 4) continue;
        blocks[at + i] = old;
        sdk::decode_block(dtype, &blocks[at], to);
      }
  }
};

// The products of some rows of x, together.
struct Rows {
  const Weights& w;
  const std::vector<float>& x;
  bool as_bytes;
  bool arranges = true;  // for products of few rows, if the format has kernels for them

  std::vector<float> operator()(const std::vector<int64_t>& order) const {
    const auto all = static_cast<int64_t>(x.size()) / w.k, m = static_cast<int64_t>(order.size());
    const int64_t depth = padded_depth(w.k), group = scale_group(w.dtype);
    std::vector<int8_t> level(all * depth), arranged;
    std::vector<float> scale(all * depth / group), sum(scale.size());
    std::vector<int32_t> shift(scale.size());
    BlockProduct p{w.dtype, w.blocks.data(), w.n, w.k, nullptr, {}, order.data(), m};
    if (as_bytes) {
      p.bytes = {level.data(), scale.data(), sum.data(),         shift.data(),
                 depth,        group,        level_lift(w.dtype)};
      if (arranges && arranges_rows(w.dtype)) {
        arranged.resize(all * arranged_depth(w.k));
        p.bytes.arranged = arranged.data();
      }
      for (int64_t i = 0; i < all; ++i) {
        to_bytes(&x[i * w.k], w.k, i, p.bytes);
        if (p.bytes.arranged) arrange_row(w.dtype, i, p.bytes);
      }
    } else {
      p.x = x.data();
    }
    const std::unique_ptr<void, decltype(&std::free)> area(
        std::aligned_alloc(64, (block_area(m) + 63) / 64 * 64), std::free);
    std::vector<float> y(m * w.n, std::numeric_limits<float>::infinity());
    const int64_t wide = block_columns(p);
    for (int64_t j = 0; j < w.n; j += wide)
      block_panel(p, j, std::min(wide, w.n - j), area.get(),
                  [&](int64_t i, int64_t rows, int64_t at, int64_t cols, const float* sums) {
                    for (int64_t r = 0; r < rows; ++r)
                      std::copy_n(sums + r * kBlockPanel, cols, &y[(i + r) * w.n + at]);
                  });
    return y;
  }
};

std::vector<int64_t> first(int64_t count) {
  std::vector<int64_t> order(count);
  for (int64_t i = 0; i < count; ++i) order[i] = i;
  return order;
}

bool same_bits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, n * sizeof *a) == 0;
}

void check(tenon_dtype t, int64_t n, int64_t k, bool as_bytes, std::mt19937& random) {
  constexpr int64_t kRows = 135;
  const Weights w(t, n, k, random);
  std::vector<float> x(kRows * k);
  std::uniform_real_distribution<float> uniform(-2, 2);
  for (float& v : x) v = uniform(random);
  x[3 * k + k / 2] = std::numeric_limits<float>::quiet_NaN();
  const Rows products{w, x, as_bytes};
  const std::vector<float> many = products(first(kRows));
  // A byte of x is off by half of a 127th of the largest of 32, and not all in one direction.
  const double tolerance = as_bytes ? 0.01 : 1e-5;
  int64_t wrong = 0;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double term = static_cast<double>(x[i * k + l]) * w.elements[j * k + l];
        sum += term, magnitude += std::fabs(term);
      }
      const double y = many[i * n + j];
      wrong += i == 3 ? !std::isnan(y) : !(std::fabs(y - sum) <= tolerance * magnitude);
    }
  CHECK(wrong == 0);
  // Alone, in pairs, and in tiles of other sizes.
  const Rows unpacked{w, x, as_bytes, false};
  int64_t others = 0;
  for (int64_t i = 0; i < kRows; i += 7) {
    others += !same_bits(products({i}).data(), &many[i * n], n);
    others += !same_bits(unpacked({i}).data(), &many[i * n], n);
  }
  for (const int64_t count : {2, 3, 4, 5, 11, 130})
    others +=
        !same_bits(products(first(count)).data(), many.data(), std::min<int64_t>(3, count) * n);
  std::vector<int64_t> backward = first(9);
  std::reverse(backward.begin(), backward.end());
  const std::vector<float> turned = products(backward);
  for (int64_t i = 4; i < 9; ++i) others += !same_bits(&turned[(8 - i) * n], &many[i * n], n);
  CHECK(others == 0);
}

}  // namespace

TEST_CASE("blocks: products are near those of f64, and a row's bits are those it has alone") {
  std::mt19937 random(7);
  int formats = 0;
  for (int t = TENON_DTYPE_BLOCKS; t < TENON_DTYPE_BLOCKS + 64; ++t) {
    const auto dtype = static_cast<tenon_dtype>(t);
    if (!sdk::is_decodable(dtype)) continue;
    ++formats;
    const int64_t elements = tenon_dtype_block(dtype).elements;
    for (const bool as_bytes : {false, true}) {
      CAPTURE(sdk::dtype_name(dtype));
      CAPTURE(as_bytes);
      check(dtype, 45, elements, as_bytes, random);
      check(dtype, 33, elements == 256 ? 768 : 11 * elements, as_bytes, random);
    }
  }
  CHECK(formats == 20);
}

// Sums of products in 16 bits would overflow first here.
TEST_CASE("blocks: all levels at one end, in w and in x") {
  std::mt19937 random(9);
  for (int t = TENON_DTYPE_BLOCKS; t < TENON_DTYPE_BLOCKS + 64; ++t) {
    const auto dtype = static_cast<tenon_dtype>(t);
    if (!sdk::is_decodable(dtype)) continue;
    CAPTURE(sdk::dtype_name(dtype));
    for (const int byte : {0x00, 0x80, 0xff}) {
      CAPTURE(byte);
      Weights w(dtype, 5, 256, random);
      w.fill(static_cast<unsigned char>(byte));
      std::vector<float> x(4 * w.k, 1);
      std::fill_n(x.begin() + w.k, w.k, -1.0f);
      const Rows products{w, x, true}, unpacked{w, x, true, false};
      const std::vector<float> many = products(first(4));
      int64_t wrong = 0;
      for (int64_t i = 0; i < 2; ++i) {
        const std::vector<float> alone = products({i}), plain = unpacked({i});
        for (int64_t j = 0; j < w.n; ++j) {
          double sum = 0, magnitude = 0;
          for (int64_t l = 0; l < w.k; ++l) {
            sum += x[i * w.k + l] * w.elements[j * w.k + l];
            magnitude += std::fabs(w.elements[j * w.k + l]);
          }
          // 1 is 127 of 127ths: a byte loses nothing.
          wrong += !(std::fabs(alone[j] - sum) <= 1e-5 * magnitude);
        }
        wrong += !same_bits(alone.data(), &many[i * w.n], w.n);
        wrong += !same_bits(alone.data(), plain.data(), w.n);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("blocks: long rows") {
  std::mt19937 random(8);
  for (const tenon_dtype dtype : {TENON_DTYPE_Q4_K, TENON_DTYPE_Q6_K, TENON_DTYPE_Q8_0})
    check(dtype, 5, 8192 + 768, true, random);
}

}  // namespace tenon::cpu
