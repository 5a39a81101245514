// SPDX-License-Identifier: Apache-2.0
// Shared by softmax and cross entropy: the maximum and the sum of exponentials, of rows and of
// adjacent columns. Per target, as simd-inl.h.
#if defined(TENON_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_SOFTMAX_INL_H_
#undef TENON_CPU_SOFTMAX_INL_H_
#else
#define TENON_CPU_SOFTMAX_INL_H_
#endif

#include <cmath>

#include "math-inl.h"
#include "rows-inl.h"
#include "softmax.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// e^x. `weight` requires x <= 0 and may flush results below the smallest normal number to zero.
template <bool weight = false, class D>
HWY_INLINE hn::Vec<D> exponential(D d, hn::Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    if constexpr (weight) return vexp_weight(d, x);
    // Most vectors contain neither subnormal results nor arguments that vexp_weight does not
    // accept.
    const auto usual = hn::And(hn::Ge(x, hn::Set(d, -87.f)), hn::Le(x, hn::Set(d, 1.f)));
    const auto weights = vexp_weight(d, x);
    if (HWY_LIKELY(hn::AllTrue(d, usual))) return weights;
    // per lane, so that a lane does not depend on its neighbours
    return hn::IfThenElse(usual, weights, vexp(d, x));
  } else {
    alignas(64) double lanes[hn::MaxLanes(d)];
    hn::Store(x, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = std::exp(lanes[i]);
    return hn::Load(d, lanes);
  }
}

// The maximum of a row. Undefined if the row contains NaN: then the sum of e^(x - max) is NaN,
// which is easy to detect.
template <class D, class T>
HWY_INLINE hn::TFromD<D> row_max(D d, const T* x, int64_t n) {
  using A = hn::TFromD<D>;
  const auto v = fold<1>(
      d, 0, n, hn::Set(d, -static_cast<A>(__builtin_inf())),
      [&](auto at) HWY_ATTR { return std::array{load(d, x, at)}; },
      [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); })[0];
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

// Sums of term(k, at) over k in [0, length), for each column of a range.
template <class A, class F>
HWY_INLINE void add_columns(const Lines& l, double* total, F&& term) {
  constexpr int64_t kBlock = 32;  // terms per sum in the accumulation type
  const hn::ScalableTag<A> d;
  HWY_ALIGN A part[kMaxLines];
  std::fill_n(total, l.count, 0.0);
  for (int64_t begin = 0; begin < l.length; begin += kBlock) {
    std::fill_n(part, l.count, A{0});
    for (int64_t k = begin; k < std::min(l.length, begin + kBlock); ++k)
      each(d, 0, l.count,
           [&](auto at) HWY_ATTR { store(d, hn::Add(load(d, part, at), term(k, at)), part, at); });
    for (int64_t c = 0; c < l.count; ++c) total[c] += part[c];
  }
}

// Maxima of columns (NaN if an element is NaN), and sums of e^(x - max).
template <class T>
HWY_INLINE void sum_columns(const Lines& l, const T* x, Acc<T>* max, double* sum) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  std::fill_n(max, l.count, -static_cast<A>(__builtin_inf()));
  for (int64_t k = 0; k < l.length; ++k)
    each(d, 0, l.count, [&](auto at) HWY_ATTR {
      store(d, max_nan(d, load(d, max, at), load(d, x + k * l.inner, at)), max, at);
    });
  add_columns<A>(l, sum, [&](int64_t k, auto at) HWY_ATTR {
    return exponential<true>(d, hn::Sub(load(d, x + k * l.inner, at), load(d, max, at)));
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
