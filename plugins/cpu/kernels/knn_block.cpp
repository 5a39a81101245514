// SPDX-License-Identifier: Apache-2.0
// The nearest candidates of a block of points, compiled for each instruction set. Differences are
// squared: a product of matrices would cancel for close points far from the origin.
#include "knn.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "order_key.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/knn_block.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
constexpr int64_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);
// Vectors of candidates in registers, for each of kKnnRows rows.
constexpr int64_t kVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
constexpr int64_t kTerms = 256;  // of a sum, before it is added to another

// One term of the distances of a row.
template <bool inner, class V>
HWY_INLINE V term(V x, V y, V sum) {
  if constexpr (inner) return hn::MulAdd(x, y, sum);
  const V difference = hn::Sub(x, y);
  return hn::MulAdd(difference, difference, sum);
}

// Sums over some coordinates for kKnnRows rows and kVectors vectors of candidates.
template <bool inner>
HWY_INLINE void add_terms(const float* x, int64_t row, const float* y, int64_t count, bool first,
                          float* sums) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<Floats> s[kKnnRows][kVectors];
#pragma GCC unroll 4
  for (auto& of_row : s)
#pragma GCC unroll 4
    for (auto& v : of_row) v = hn::Zero(d);
  for (int64_t c = 0; c < count; ++c) {
    hn::Vec<Floats> right[kVectors];
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, y + c * kKnnPanel + v * lanes);
#pragma GCC unroll 4
    for (int64_t r = 0; r < kKnnRows; ++r) {
      const auto left = hn::Set(d, x[r * row + c]);
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) s[r][v] = term<inner>(left, right[v], s[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < kKnnRows; ++r)
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) {
      float* const to = sums + r * kKnnPanel + v * lanes;
      hn::StoreU(first ? s[r][v] : hn::Add(s[r][v], hn::LoadU(d, to)), d, to);
    }
}

// Distances of kKnnRows rows from the candidates of a panel, without roots: [kKnnRows, kKnnPanel].
template <bool inner>
void distances(const Knn& n, const float* x, const float* panel, float* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  for (int64_t c = 0; c < n.coords; c += kTerms)
    for (int64_t j = 0; j < kKnnPanel; j += kVectors * lanes)
      add_terms<inner>(x + c, n.coords, panel + c * kKnnPanel + j, std::min(kTerms, n.coords - c),
                       c == 0, to + j);
}

// From sums to distances: cosine and inner.
void finish(const Knn& n, bool zero, const uint8_t* zeros, int64_t count, float* d) {
  if (n.metric == KnnMetric::inner)
    for (int64_t j = 0; j < kKnnPanel; ++j) d[j] = -d[j];
  if (n.metric != KnnMetric::cosine) return;
  for (int64_t j = 0; j < kKnnPanel; ++j) d[j] *= 0.5f;
  for (int64_t j = 0; j < count; ++j)
    if (zero || zeros[j]) d[j] = 1;
}

HWY_INLINE KnnKey key_of(float distance, int64_t index) {
  const auto order = static_cast<uint32_t>(order_key(distance)) ^ 0x80000000u;
  return KnnKey{order} << 32 | static_cast<uint32_t>(index);
}
HWY_INLINE float distance_of(KnnKey key) {
  const auto order = static_cast<int32_t>(static_cast<uint32_t>(key >> 32) ^ 0x80000000u);
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  if (order == kMost) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(order < 0 ? order ^ kMost : order);
}

// The list of one row: keys[count], of which the k smallest matter. Once it has k, only distances
// below the limit, the largest of the k, can enter: later candidates have higher indices. NaN as
// the limit lets all numbers in.
struct List {
  const Knn& n;
  KnnKey* keys;
  int64_t& count;
  float& limit;
  int64_t self;  // not a candidate

  void put(float distance, int64_t j) {
    if (j != self) keys[count++] = key_of(distance, j);
  }
  void sift() {
    std::nth_element(keys, keys + n.k - 1, keys + count);
    count = n.k;
    limit = distance_of(keys[n.k - 1]);
  }

  // Candidates [begin, begin + size).
  void scan(const float* distance, int64_t begin, int64_t size) {
    if (count < n.k) {
      for (int64_t j = 0; j < size; ++j) put(distance[j], begin + j);
      if (count >= n.k) sift();
      return;
    }
    const Floats d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto most = hn::Set(d, limit);
    for (int64_t j = 0; j < kKnnPanel; j += lanes) {
      const auto v = hn::LoadU(d, distance + j);
      const auto near = std::isnan(limit) ? hn::Eq(v, v) : hn::Lt(v, most);
      if (hn::AllFalse(d, near)) continue;
      uint8_t bytes[(kMaxLanes + 7) / 8 + 8] = {};
      hn::StoreMaskBits(d, near, bytes);
      for (int64_t i = 0; i < lanes; ++i)
        if (bytes[i / 8] >> (i % 8) & 1) put(distance[j + i], begin + j + i);
    }
    if (count + kKnnPanel > n.room()) sift();
  }
  void write(int32_t* index, float* distance) {
    sift();
    std::sort(keys, keys + n.k);
    for (int64_t j = 0; j < n.k; ++j) {
      index[j] = static_cast<int32_t>(static_cast<uint32_t>(keys[j]));
      const float d = distance_of(keys[j]);
      distance[j] = n.root ? std::sqrt(d) : d;
    }
  }
};

void Block(const Knn& n, const KnnBlock& b, int32_t* index, float* distance) {
  const auto list = [&](int64_t r) {
    return List{n, b.keys + r * n.room(), b.counts[r], b.limits[r],
                n.excluded ? b.first + r : int64_t{-1}};
  };
  std::fill_n(b.counts, b.rows, 0);
  alignas(64) float d[kKnnRows * kKnnPanel];
  for (int64_t p = 0; p < n.panels(); ++p) {
    const int64_t begin = p * kKnnPanel, size = std::min(kKnnPanel, n.candidates - begin);
    const float* const panel = b.y + p * n.panel_floats();
    for (int64_t r = 0; r < b.rows; r += kKnnRows) {
      const float* const x = b.x + r * n.coords;
      if (n.metric == KnnMetric::inner)
        distances<true>(n, x, panel, d);
      else
        distances<false>(n, x, panel, d);
      for (int64_t i = 0; i < std::min(kKnnRows, b.rows - r); ++i) {
        float* const own = d + i * kKnnPanel;
        finish(n, b.zero[r + i], b.zeros + begin, size, own);
        const int64_t self = b.first + r + i - begin;
        if (n.own && n.metric == KnnMetric::cosine && b.zero[r + i] && self >= 0 && self < size)
          own[self] = 0;
        list(r + i).scan(own, begin, size);
      }
    }
  }
  for (int64_t r = 0; r < b.rows; ++r) list(r).write(index + r * n.k, distance + r * n.k);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Block);

void knn_block(const Knn& n, const KnnBlock& block, int32_t* index, float* distance) {
  HWY_DYNAMIC_DISPATCH(Block)(n, block, index, distance);
}

}  // namespace tenon::cpu
#endif
