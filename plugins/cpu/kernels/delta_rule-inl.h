// SPDX-License-Identifier: Apache-2.0
// What both directions of gated_delta_rule share: a tile of a head's state, kColumns wide, and the
// step of a token. Per target, as simd-inl.h.
#if defined(TENON_CPU_DELTA_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_DELTA_RULE_INL_H_
#undef TENON_CPU_DELTA_RULE_INL_H_
#else
#define TENON_CPU_DELTA_RULE_INL_H_
#endif

#include <algorithm>

#include "delta_rule.hpp"
#include "math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kColumns = 2 * kLanes;

// A row of a tile.
struct Row {
  V low, high;
};
HWY_INLINE Row zero_row() { return {hn::Zero(D()), hn::Zero(D())}; }
HWY_INLINE Row row(const float* tile, int64_t k) {
  return {hn::LoadU(D(), tile + k * kColumns), hn::LoadU(D(), tile + k * kColumns + kLanes)};
}
HWY_INLINE void put(Row r, float* tile, int64_t k) {
  hn::StoreU(r.low, D(), tile + k * kColumns);
  hn::StoreU(r.high, D(), tile + k * kColumns + kLanes);
}
HWY_INLINE Row times(Row a, V x) { return {hn::Mul(a.low, x), hn::Mul(a.high, x)}; }
HWY_INLINE Row times(Row a, Row b) { return {hn::Mul(a.low, b.low), hn::Mul(a.high, b.high)}; }
HWY_INLINE Row minus(Row a, Row b) { return {hn::Sub(a.low, b.low), hn::Sub(a.high, b.high)}; }
HWY_INLINE Row plus(Row a, Row b) { return {hn::Add(a.low, b.low), hn::Add(a.high, b.high)}; }
// a·x + b
HWY_INLINE Row multiply_add(Row a, V x, Row b) {
  return {hn::MulAdd(a.low, x, b.low), hn::MulAdd(a.high, x, b.high)};
}
HWY_INLINE Row multiply_add(Row a, Row x, Row b) {
  return {hn::MulAdd(a.low, x.low, b.low), hn::MulAdd(a.high, x.high, b.high)};
}
// b - a·x
HWY_INLINE Row subtract(Row a, V x, Row b) {
  return {hn::NegMulAdd(a.low, x, b.low), hn::NegMulAdd(a.high, x, b.high)};
}
HWY_INLINE V constant(float x) { return hn::Set(D(), x); }

// `count` elements, at most kColumns; the others are 0.
template <class T>
HWY_INLINE Row load_row(const T* p, int64_t count) {
  const D d;
  if (count >= kColumns) return {load(d, p), load(d, p + kLanes)};
  if (count >= kLanes) return {load(d, p), load_n(d, p + kLanes, count - kLanes)};
  return {load_n(d, p, static_cast<size_t>(count)), hn::Zero(d)};
}
template <class T>
HWY_INLINE void store_row(Row r, T* p, int64_t count) {
  const D d;
  if (count < kLanes) return store_n(d, r.low, p, static_cast<size_t>(count));
  store(d, r.low, p);
  if (count >= kColumns)
    store(d, r.high, p + kLanes);
  else
    store_n(d, r.high, p + kLanes, static_cast<size_t>(count - kLanes));
}

// Some columns of a head's state.
class Tile {
 public:
  Tile(const DeltaHead& head, int64_t first)
      : head_(head), first_(first), count_(std::min(kColumns, head.values - first)) {}

  void read(const float* state, float* tile) const {
    for (int64_t k = 0; k < head_.keys; ++k)
      put(state ? load_row(state + k * head_.values + first_, count_) : zero_row(), tile, k);
  }
  void write(const float* tile, float* state) const {
    if (!state) return;
    for (int64_t k = 0; k < head_.keys; ++k)
      store_row(row(tile, k), state + k * head_.values + first_, count_);
  }
  // A token's part of a tensor like v.
  template <class T>
  Row values(const void* x, int64_t t) const {
    return load_row(static_cast<const T*>(x) + t * head_.value_step + first_, count_);
  }
  template <class T>
  void write_values(Row r, void* x, int64_t t) const {
    store_row(r, static_cast<T*>(x) + t * head_.value_step + first_, count_);
  }

 private:
  const DeltaHead& head_;
  const int64_t first_, count_;
};

// The factors e^g of the rows of the state.
HWY_INLINE void read_decay(const DeltaHead& h, int64_t t, float* decay) {
  const D d;
  const float* const g = h.g + t * h.g_step;
  if (h.by_key)
    return map(
        d, h.keys, [](D tag, V x) HWY_ATTR { return vexp(tag, x); }, decay, g);
  const float factor = hn::GetLane(vexp(d, hn::Set(d, *g)));
  std::fill_n(decay, h.keys, factor);
}

// v - (e^g·S)ᵀk, four sums at a time so that they do not wait for each other.
HWY_INLINE Row missing(const float* tile, const float* decay, const float* k, int64_t keys,
                       Row values) {
  Row even = zero_row(), odd = zero_row();
  int64_t i = 0;
  for (; i + 2 <= keys; i += 2) {
    even = multiply_add(times(row(tile, i), constant(decay[i])), constant(k[i]), even);
    odd = multiply_add(times(row(tile, i + 1), constant(decay[i + 1])), constant(k[i + 1]), odd);
  }
  if (i < keys) even = multiply_add(times(row(tile, i), constant(decay[i])), constant(k[i]), even);
  return minus(values, plus(even, odd));
}

// The state after a token: e^g·S + k·e.
HWY_INLINE Row next_row(Row before, float decay, float k, Row e) {
  return multiply_add(e, constant(k), times(before, constant(decay)));
}

// One token of a forward run, through a tile of the state.
template <class T>
void token(const DeltaHead& h, const Tile& columns, int64_t t, float* tile, float* decay, void* o) {
  const float *const q = h.q + t * h.key_step, *const k = h.k + t * h.key_step;
  read_decay(h, t, decay);
  const float beta = to_float(static_cast<const T*>(h.beta)[t * h.beta_step]);
  const Row rest = missing(tile, decay, k, h.keys, columns.values<T>(h.v, t));
  const Row e = times(rest, constant(beta));
  Row even = zero_row(), odd = zero_row();
  int64_t i = 0;
  for (; i + 2 <= h.keys; i += 2) {
    const Row low = next_row(row(tile, i), decay[i], k[i], e);
    const Row high = next_row(row(tile, i + 1), decay[i + 1], k[i + 1], e);
    put(low, tile, i), put(high, tile, i + 1);
    even = multiply_add(low, constant(q[i]), even);
    odd = multiply_add(high, constant(q[i + 1]), odd);
  }
  if (i < h.keys) {
    const Row last = next_row(row(tile, i), decay[i], k[i], e);
    put(last, tile, i);
    even = multiply_add(last, constant(q[i]), even);
  }
  columns.write_values<T>(times(plus(even, odd), constant(h.scale)), o, t);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
