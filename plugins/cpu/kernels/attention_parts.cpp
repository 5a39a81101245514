// SPDX-License-Identifier: Apache-2.0
// Sums of attention over some of the keys: few rows of them, and further keys; and the numbers of
// keys in blocks. Compiled for each instruction set.
#include <limits>

#include "attention_core.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_parts.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "attention-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// The update of tile_products with scale_add, for a few rows of sums.
template <class T>
void add_rows(const AttentionSums& to, int64_t lanes, int64_t v_dim, const T* rows,
              const T* correction) {
  const hn::CappedTag<T, 1> d;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const auto factor = hn::LoadU(d, correction + lane);
    T* at = static_cast<T*>(to.o) + lane;
    for (int64_t i = 0; i < v_dim; ++i, at += to.width)
      hn::StoreU(hn::MulAdd(hn::LoadU(d, at), factor, hn::LoadU(d, rows + lane * v_dim + i)), d,
                 at);
  }
}

template <class T>
void merge(const AttentionSums& to, const AttentionSums& from, int64_t lanes, int64_t v_dim) {
  const hn::ScalableTag<T> d;
  const auto never = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (int64_t lane = 0; lane < lanes; lane += static_cast<int64_t>(hn::Lanes(d))) {
    const auto of = [lane](void* x) { return static_cast<T*>(x) + lane; };
    const auto old = hn::LoadU(d, of(to.m)), other = hn::LoadU(d, of(from.m));
    const auto top = hn::Max(old, other);
    const auto shift = hn::IfThenElse(hn::Eq(top, never), hn::Zero(d), top);
    const auto factor = weight(d, hn::Sub(old, shift)),
               other_factor = weight(d, hn::Sub(other, shift));
    const auto add = [&](T* x, const T* y) HWY_ATTR {
      const auto mine = hn::LoadU(d, x), theirs = hn::Mul(hn::LoadU(d, y), other_factor);
      // What has no keys may hold NaN: of values that are not finite.
      const auto both =
          hn::IfThenElse(hn::Eq(old, never), theirs, hn::MulAdd(mine, factor, theirs));
      hn::StoreU(hn::IfThenElse(hn::Eq(other, never), mine, both), d, x);
    };
    hn::StoreU(top, d, of(to.m));
    add(of(to.l), of(from.l));
    for (int64_t i = 0; i < v_dim; ++i) add(of(to.o) + i * to.width, of(from.o) + i * from.width);
  }
}

// A product of a scale with 11 bits and a level with 8 is exact.
void Decode(const char* from, int64_t step, int64_t rows, int64_t cols, float* to) {
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> one;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> d8;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const tenon_block format = tenon_dtype_block(TENON_DTYPE_Q8_0);
  const int64_t elements = format.elements, bytes = format.bytes;
  for (int64_t r = 0; r < rows; ++r, from += step) {
    const char* block = from;
    for (int64_t c = 0; c < cols; c += elements, block += bytes, to += elements) {
      const auto scale = hn::Set(d, hn::GetLane(load(one, reinterpret_cast<const F16*>(block))));
      const auto* level = reinterpret_cast<const int8_t*>(block + 2);
#pragma GCC unroll 8
      for (int64_t i = 0; i < elements; i += kLanes) {
        const auto number = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, level + i)));
        hn::StoreU(hn::Mul(number, scale), d, to + i);
      }
    }
  }
}

void AddRows(const AttentionSums& to, int64_t lanes, int64_t v_dim, const void* rows,
             const void* correction) {
  with_sum(to.sum, [&](auto type) {
    using T = decltype(type);
    add_rows(to, lanes, v_dim, static_cast<const T*>(rows), static_cast<const T*>(correction));
  });
}
void Merge(const AttentionSums& to, const AttentionSums& from, int64_t lanes, int64_t v_dim) {
  with_sum(to.sum, [&](auto type) { merge<decltype(type)>(to, from, lanes, v_dim); });
}
}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Decode);
HWY_EXPORT(AddRows);
HWY_EXPORT(Merge);

void attention_decode(const char* from, int64_t step, int64_t rows, int64_t cols, float* to) {
  HWY_DYNAMIC_DISPATCH(Decode)(from, step, rows, cols, to);
}
void attention_add_rows(const AttentionSums& to, int64_t lanes, int64_t v_dim, const void* rows,
                        const void* correction) {
  HWY_DYNAMIC_DISPATCH(AddRows)(to, lanes, v_dim, rows, correction);
}
void attention_merge(const AttentionSums& to, const AttentionSums& from, int64_t lanes,
                     int64_t v_dim) {
  HWY_DYNAMIC_DISPATCH(Merge)(to, from, lanes, v_dim);
}
}  // namespace tenon::cpu
#endif
