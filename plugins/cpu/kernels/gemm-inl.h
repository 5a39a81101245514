// SPDX-License-Identifier: Apache-2.0
// Register tiles of matrix products: c[m x n] = a·b. Elements of a are broadcast; b is read in
// vectors of consecutive columns. Per target: include after foreach_target.h, outside of
// namespaces.
#if defined(TENON_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_GEMM_INL_H_
#undef TENON_CPU_GEMM_INL_H_
#else
#define TENON_CPU_GEMM_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "convert.hpp"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows and vectors of the largest tile for operands that are not packed. The accumulators, one row
// of b and a broadcast element fill the registers.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kTileRows = 8, kTileVectors = 3;
#else
inline constexpr int kTileRows = 4, kTileVectors = 3;
#endif

template <class From>
struct SumOf {
  using type = Acc<From>;
};
template <>
struct SumOf<int8_t> {
  using type = int32_t;
};
template <>
struct SumOf<uint8_t> {
  using type = int32_t;
};

template <class From, class To>
HWY_INLINE To widened(From x) {
  if constexpr (std::is_same_v<To, float> && !std::is_same_v<From, float>) {
    return to_float(x);
  } else {
    return static_cast<To>(x);
  }
}

// Integers wrap.
template <class T>
HWY_INLINE T add_product(T sum, T x, T y) {
  if constexpr (std::is_same_v<T, int32_t>) {
    return static_cast<int32_t>(static_cast<uint32_t>(sum) +
                                static_cast<uint32_t>(x) * static_cast<uint32_t>(y));
  } else {
    return sum + x * y;
  }
}

// x·y + z; integers wrap.
template <class V>
HWY_INLINE V multiply_add(V x, V y, V z) {
  if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
    return hn::MulAdd(x, y, z);
  } else {
    return hn::Add(hn::Mul(x, y), z);
  }
}

// How a tile addresses a's element (row, step). One of the two indices is contiguous.
template <class T>
struct RowsTogether {
  const T* base;
  int64_t step_stride;
  T at(int row, int64_t step) const { return base[step * step_stride + row]; }
};
template <class T>
struct StepsTogether {
  const T* base;
  int64_t row_stride;
  T at(int row, int64_t step) const { return base[row * row_stride + step]; }
};

// Prefetch distance for b, in steps. b is read once per tile, from L2. Without the prefetch, large
// f32 products run at 0.8 of the rate, limited by the loads.
inline constexpr int64_t kPrefetchSteps = 8;

// One tile: passes the results to store(row, vector, sum). Rows of b are b_stride apart.
template <int kRows, int kVectors, class D, class A, class Store>
HWY_INLINE void tile_product(D d, int64_t steps, A a, const hn::TFromD<D>* b, int64_t b_stride,
                             Store&& store) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  for (int64_t k = 0; k < steps; ++k, b += b_stride) {
    V row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hwy::Prefetch(b + kPrefetchSteps * b_stride + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d, a.at(r, k));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = multiply_add(factor, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(r, v, sum[r][v]);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
