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
        // Not a scale of any size: sums would be of subnormal floats.
        if (t == TENON_DTYPE_F8E4M3_128) blocks[at + 3] = (blocks[at + 3] & 0x80) | 0x3c;
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
  for (int t = TENON_DTYPE_BLOCKS; t < TENON_DTYPE_BLOCKS_END; ++t) {
    const auto dtype = static_cast<tenon_dtype>(t);
    if (!sdk::is_decodable(dtype)) continue;
    ++formats;
    const int64_t elements = tenon_dtype_block(dtype).elements;
    for (const bool as_bytes : {false, true}) {
      if (as_bytes && !has_integer_levels(dtype)) continue;
      CAPTURE(sdk::dtype_name(dtype));
      CAPTURE(as_bytes);
      check(dtype, 45, elements, as_bytes, random);
      check(dtype, 33, elements == 256 ? 768 : 11 * elements, as_bytes, random);
    }
  }
  CHECK(formats == 21);
}

// Sums of products in 16 bits would overflow first here.
TEST_CASE("blocks: all levels at one end, in w and in x") {
  std::mt19937 random(9);
  for (int t = TENON_DTYPE_BLOCKS; t < TENON_DTYPE_BLOCKS_END; ++t) {
    const auto dtype = static_cast<tenon_dtype>(t);
    if (!sdk::is_decodable(dtype) || !has_integer_levels(dtype)) continue;
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

// Two blocks have all codes: subnormals, zeros of both signs, NaN.
TEST_CASE("f8e4m3_128: all codes with scales of all kinds have the bits of decode_block()") {
  const float infinity = std::numeric_limits<float>::infinity();
  int64_t wrong = 0, nans = 0;
  for (const float scale :
       {1.0f, -2.5f, 0.0f, -0.0f, 3e-39f, 0x1p-130f, 0x1p119f, 0x1p120f, -0x1p127f, 0x1.8p121f,
        infinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<unsigned char> blocks(2 * 132);
    for (int b = 0; b < 2; ++b) {
      std::memcpy(&blocks[132 * b], &scale, sizeof scale);
      for (int i = 0; i < 128; ++i)
        blocks[132 * b + 4 + i] = static_cast<unsigned char>(128 * b + i);
    }
    std::vector<float> got(256), expected(256);
    decode_blocks(TENON_DTYPE_F8E4M3_128, blocks.data(), 256, got.data());
    for (int b = 0; b < 2; ++b)
      sdk::decode_block(TENON_DTYPE_F8E4M3_128, &blocks[132 * b], &expected[128 * b]);
    for (int i = 0; i < 256; ++i) {
      nans += std::isnan(expected[i]);
      wrong += std::isnan(expected[i]) ? !std::isnan(got[i]) : !same_bits(&got[i], &expected[i], 1);
    }
    // Without NaN, a block has the short way.
    for (int b = 0; b < 2; ++b) blocks[132 * b + 4 + 127] = 0x38;
    decode_blocks(TENON_DTYPE_F8E4M3_128, blocks.data(), 256, got.data());
    for (int i = 0; i < 256; ++i)
      if (i % 128 != 127 && !std::isnan(expected[i])) wrong += !same_bits(&got[i], &expected[i], 1);
  }
  CHECK(wrong == 0);
  CHECK(nans > 2 * 12);
}

TEST_CASE("f8e4m3_128: a NaN and a large scale reach the sums of their rows alone") {
  std::mt19937 random(11);
  Weights w(TENON_DTYPE_F8E4M3_128, 7, 5 * 128, random);
  const auto block = [&](int64_t row, int64_t b) { return &w.blocks[(row * 5 + b) * 132]; };
  block(2, 3)[4 + 77] = 0xff;
  const float large = 0x1p122f;
  std::memcpy(block(4, 1), &large, sizeof large);
  for (int i = 0; i < 128; ++i) block(4, 1)[4 + i] = 0x81;  // -2^-9
  std::vector<float> x(12 * w.k);
  for (float& v : x) v = static_cast<float>(static_cast<int>(random() % 257) - 128) / 64;
  const Rows products{w, x, false};
  const std::vector<float> many = products(first(12));
  int64_t wrong = 0;
  for (int64_t i = 0; i < 12; ++i) {
    for (const std::vector<int64_t>& order : {std::vector{i}, std::vector{i, (i + 1) % 12}})
      for (int64_t j = 0; j < w.n; ++j) {
        const float alone = products(order)[j], among = many[i * w.n + j];
        wrong += j == 2 ? !(std::isnan(alone) && std::isnan(among)) : !same_bits(&alone, &among, 1);
      }
    double sum = 0;  // of the block that outweighs all others
    for (int k = 128; k < 256; ++k) sum += static_cast<double>(x[i * w.k + k]) * -0x1p113;
    wrong += !(std::fabs(many[i * w.n + 4] - sum) <= 1e-4 * 0x1p113);
  }
  CHECK(wrong == 0);
}

}  // namespace tenon::cpu
