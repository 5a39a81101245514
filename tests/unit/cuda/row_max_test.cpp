// SPDX-License-Identifier: Apache-2.0
// The running maximum of attention (device/row_max.cuh), compiled for the host: a row taken through
// hundreds of tiles as the kernels take it, beside the same row in f64.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "texts.hpp"

namespace {

using f32 = float;
f32 infinity(f32) { return std::numeric_limits<f32>::infinity(); }
f32 exp2_of(f32 x) { return std::exp2(x); }
f32 __fmaf_rn(f32 a, f32 b, f32 c) { return std::fma(a, b, c); }
f32 __fmul_rn(f32 a, f32 b) { return a * b; }

#define __device__
#define __forceinline__ inline
#include "../../../plugins/cuda/device/row_max.cuh"

constexpr int kKeys = 64;
constexpr f32 kLog2E = 1.4426950408889634f;
using Row = std::vector<f32>;

// What a kernel has at the end: the shares of the first tile's keys in the result, and lse.
struct Found {
  std::vector<double> shares;
  double lse;
};

// As attention_quads.cuh does it. SCALED: x are products, else scores.
template <bool SCALED>
Found by_tiles(const Row& x, f32 scale) {
  const f32 factor = (SCALED ? scale : 1.f) * kLog2E;
  f32 row_max = -infinity(0.f), sum = 0;
  std::vector<f32> o(kKeys);
  for (size_t key = 0; key < x.size(); key += kKeys) {
    f32 now = row_max;
    for (size_t i = 0; i < kKeys; ++i) now = std::fmax(now, x[key + i]);
    const RowMax next = follow_max<SCALED>(row_max, now, factor);
    row_max = next.row_max;
    f32 part = 0;
    for (size_t i = 0; i < kKeys; ++i) {
      const f32 weight = weight_of<SCALED>(x[key + i], next.base, factor);
      part += weight;
      if (key == 0)
        o[i] = weight;
      else if (i == 0 && next.rescale != 1)
        for (f32& e : o) e *= next.rescale;
    }
    sum = sum * next.rescale + part;
  }
  Found found{{}, sum == 0 ? -infinity(0.f) : (SCALED ? row_max * scale : row_max) + std::log(sum)};
  for (const f32 e : o) found.shares.push_back(sum == 0 ? 0 : e / sum);
  return found;
}

template <bool SCALED>
Found in_f64(const Row& x, f32 scale) {
  const auto score = [&](f32 v) { return double{v} * (SCALED ? double{scale} : 1); };
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const f32 v : x) most = std::max(most, score(v));
  const double base = std::isinf(most) ? 0 : most;
  for (const f32 v : x) sum += std::exp(score(v) - base);
  Found found{{}, sum == 0 ? -infinity(0.f) : base + std::log(sum)};
  for (size_t i = 0; i < kKeys; ++i)
    found.shares.push_back(sum == 0 ? 0 : std::exp(score(x[i]) - base) / sum);
  return found;
}

// The largest error of a share of the first keys, relative to the largest share that f32 can tell
// from nothing.
double drift(const Found& a, const Found& b) {
  double most = 0, largest = 1e-20;
  for (size_t i = 0; i < a.shares.size(); ++i) {
    most = std::max(most, std::abs(a.shares[i] - b.shares[i]));
    largest = std::max(largest, b.shares[i]);
  }
  return most / largest;
}

// A score in f32 is known to half a unit in its last place, and so is a base.
double bound(const Row& x, f32 scale) {
  double largest = 1;
  for (const f32 v : x) largest = std::max(largest, std::abs(double{v} * scale));
  return 4 * largest * 0x1p-24 + 2e-5;  // and what sums over 64 thousand keys lose
}

template <bool SCALED>
void check(const Row& x, f32 scale) {
  CAPTURE(SCALED);
  CAPTURE(scale);
  CAPTURE(x[0]);
  const Found found = by_tiles<SCALED>(x, scale), right = in_f64<SCALED>(x, scale);
  CHECK(drift(found, right) <= bound(x, SCALED ? scale : 1));
  CHECK(std::abs(found.lse - right.lse) <= bound(x, SCALED ? scale : 1));
}

// The first tile has a key with the largest score; those behind are so much lower that 1024 tiles
// of them do not drown it.
Row early_key(f32 largest, size_t tiles) {
  Row x(tiles * kKeys, largest - 30 * std::max(1.f, std::abs(largest) / 1000));
  x[0] = largest;
  return x;
}

}  // namespace

TEST_SUITE("cuda/row_max") {
  TEST_CASE("maximum that stays: sums are kept as they are, whatever the base was rounded to") {
    for (const f32 scale : {1.f, 0.125f, 0.08838835f, 0.3f})
      for (const f32 most : {0.1f, 1.f, 9.7f, 101.3f, 1003.7f, -1003.7f, 1e6f, 3e38f, -3e38f}) {
        for (const f32 now : {most, std::nextafter(most, -infinity(0.f)), most - 1}) {
          CHECK(follow_max<true>(most, std::max(most, now), scale * kLog2E).rescale == 1);
          CHECK(follow_max<false>(most, std::max(most, now), kLog2E).rescale == 1);
        }
        // A maximum that grows by less than 8 in the exponent is not followed.
        const f32 more = most + 2 / scale;
        const RowMax next = follow_max<true>(most, more, scale * kLog2E);
        if (std::abs(most) < 1e5) {
          CHECK(next.row_max == most);
          CHECK(next.rescale == 1);
        }
      }
  }

  TEST_CASE("maximum that grows: the old base less the new one, both as they were used") {
    std::mt19937 random(7);
    std::uniform_real_distribution<f32> number(-1000, 1000);
    for (int i = 0; i < 10000; ++i) {
      const f32 factor = std::abs(number(random)) / 1000 * kLog2E, most = number(random),
                now = most + 8.5f / factor;
      const f32 before = follow_max<true>(-infinity(0.f), most, factor).base;
      const RowMax next = follow_max<true>(most, now, factor);
      REQUIRE(next.row_max == now);
      CHECK(next.rescale == std::exp2(before - next.base));
    }
  }

  TEST_CASE("rows without a key, infinite scores") {
    const f32 inf = infinity(0.f);
    for (const f32 factor : {0.1f, 1.f, kLog2E}) {
      const RowMax none = follow_max<true>(-inf, -inf, factor),
                   first = follow_max<true>(-inf, 5, factor),
                   last = follow_max<true>(5, inf, factor);
      CHECK(none.base == 0);
      CHECK(weight_of<true>(-inf, none.base, factor) == 0);
      CHECK(first.rescale == 0);
      CHECK(last.rescale == 0);
      CHECK(follow_max<false>(-inf, -inf, factor).base == 0);
      CHECK(follow_max<false>(-inf, -3e38f, factor).rescale == 0);
      // A mask far below zero: log2(e) times it would be -infinity.
      CHECK(weight_of<false>(-3e38f, follow_max<false>(-inf, -3e38f, kLog2E).base, kLog2E) == 1);
    }
  }

  TEST_CASE("1024 tiles: the shares of early keys and lse do not drift") {
    for (const size_t tiles : {1, 2, 128, 1024})
      for (const f32 largest : {0.f, 0.7f, 10.1f, 33.3f, 101.7f, 333.3f, -101.7f, 1001.3f})
        for (const f32 scale : {1.f, 0.125f, 0.08838835f}) {
          Row x = early_key(largest, tiles);
          check<false>(x, 1);
          for (f32& v : x) v /= scale;
          check<true>(x, scale);
        }
  }

  TEST_CASE("maxima that rise by steps of every size, rows of noise") {
    std::mt19937 random(11);
    std::normal_distribution<f32> noise;
    for (const f32 step : {0.01f, 1.f, 5.4f, 5.6f, 9.f, 40.f})
      for (const f32 spread : {0.f, 1.f, 20.f}) {
        Row x(512 * kKeys);
        for (size_t i = 0; i < x.size(); ++i)
          x[i] = std::min(step * static_cast<f32>(i / kKeys), 60.f) + spread * noise(random);
        check<false>(x, 1);
        check<true>(x, 0.7f);
      }
  }

  TEST_CASE("texts: all kernels on tensor cores use it") {
    const auto has = [](const char* name, const char* what) {
      CAPTURE(name);
      CAPTURE(what);
      CHECK(tenon::cuda::text_of(name).find(what) != std::string_view::npos);
    };
    has("attention_quads.cuh", "follow_max<");
    has("attention_quads.cuh", "weight_of<");
    for (const char* name : {"attention.cu", "attention_decode.cu", "attention_bulk.cu"})
      has(name, "softmax_step<");
    for (const char* name : {"attention_split.cu", "attention_split_wgmma.cu"})
      has(name, "follow_scores<");
  }
}
