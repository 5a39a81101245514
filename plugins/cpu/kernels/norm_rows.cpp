// SPDX-License-Identifier: Apache-2.0
// Rows of layer_norm and rms_norm, forward and backward. All passes but the first read the row from
// the cache. Variances are centred; means have more bits than the accumulation type.
#include <array>
#include <cmath>

#include "nontemporal.hpp"
#include "norm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <class A>
const A* row_of(const void* base, int64_t row, int64_t n) {
  return base ? static_cast<const A*>(base) + row * n : nullptr;
}
template <class A>
A* row_of(void* base, int64_t row, int64_t n) {
  return base ? static_cast<A*>(base) + row * n : nullptr;
}

// The mean (0 with rms) and 1/sqrt(variance + eps) of value(at) over a row.
struct Statistics {
  double mean, inv;
};
template <class D, class F>
HWY_INLINE Statistics statistics(D d, bool rms, int64_t n, double eps, F&& value) {
  if (n == 0) return {NAN, NAN};
  const double mean = rms ? 0 : mean_of(d, n, value);
  const Split<D> middle(d, mean);
  const double squares = sums<1>(d, n, [&](auto at) HWY_ATTR {
    const auto v = rms ? value(at) : middle.taken_from(value(at));
    return std::array{hn::Mul(v, v)};
  })[0];
  return {mean, 1 / std::sqrt(squares / n + eps)};
}

template <class T, bool kResidual>
void forward_rows(const NormForward& a, int64_t first, int64_t end) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const A* bias = static_cast<const A*>(a.bias);
  const A* gamma = static_cast<const A*>(a.gamma);
  const A* beta = static_cast<const A*>(a.beta);
  NontemporalRow<T> result(a.nontemporal, a.n);
  for (int64_t row = first; row < end; ++row) {
    const T* x = row_of<T>(a.x, row, a.n);
    const T* residual = row_of<T>(a.residual, row, a.n);
    T* y = result.at(row_of<T>(a.y, row, a.n));
    T* sum = row_of<T>(a.sum, row, a.n);
    const auto value = [&](auto at) HWY_ATTR {
      auto v = load(d, x, at);
      if constexpr (kResidual) {
        v = hn::Add(v, load(d, residual, at));
        if (bias) v = hn::Add(v, load(d, bias, at));
      }
      return v;
    };
    const Statistics s = statistics(d, a.rms, a.n, a.eps, value);
    const Split<decltype(d)> middle(d, s.mean);
    const auto inv = hn::Set(d, static_cast<A>(s.inv));
    each(d, 0, a.n, [&](auto at) HWY_ATTR {
      auto v = value(at);
      prefetch(x + a.n, at);
      if (kResidual) prefetch(residual + a.n, at);
      if (kResidual && sum) store(d, v, sum, at);
      v = hn::Mul(a.rms ? v : middle.taken_from(v), inv);
      if (gamma) v = hn::Mul(v, load(d, gamma, at));
      if (beta) v = hn::Add(v, load(d, beta, at));
      store(d, v, y, at);
    });
    result.done(row_of<T>(a.y, row, a.n));
    if (a.mean) static_cast<A*>(a.mean)[row] = static_cast<A>(s.mean);
    if (a.inv) static_cast<A*>(a.inv)[row] = static_cast<A>(s.inv);
  }
}

void forward_target(const NormForward& a, int64_t first, int64_t end) {
  with_storage(a.dtype, [&]<class T>(T) {
    if (a.residual) {
      forward_rows<T, true>(a, first, end);
    } else {
      forward_rows<T, false>(a, first, end);
    }
  });
}

template <class T>
void backward_rows(const NormBackward& a, int64_t first, int64_t end, void* dgamma_sum,
                   void* dbeta_sum) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const A* gamma = static_cast<const A*>(a.gamma);
  A* dgamma = static_cast<A*>(dgamma_sum);
  A* dbeta = static_cast<A*>(dbeta_sum);
  NontemporalRow<T> result(a.nontemporal, a.n);
  for (int64_t row = first; row < end; ++row) {
    const T* x = row_of<T>(a.x, row, a.n);
    const T* dy = row_of<T>(a.dy, row, a.n);
    const T* dsum = row_of<T>(a.dsum, row, a.n);
    T* dx = a.dx ? result.at(row_of<T>(a.dx, row, a.n)) : nullptr;
    Statistics s{};
    if (a.inv && (a.rms || a.mean)) {
      s = {a.rms ? 0 : static_cast<double>(static_cast<const A*>(a.mean)[row]),
           static_cast<double>(static_cast<const A*>(a.inv)[row])};
    } else {
      s = statistics(d, a.rms, a.n, a.eps, [&](auto at) HWY_ATTR { return load(d, x, at); });
    }
    const Split<decltype(d)> middle(d, s.mean);
    const auto inv = hn::Set(d, static_cast<A>(s.inv));
    const auto normalized = [&](auto at) HWY_ATTR {
      const auto v = load(d, x, at);
      return hn::Mul(a.rms ? v : middle.taken_from(v), inv);
    };
    const auto upstream = [&](auto up, auto at)
                              HWY_ATTR { return gamma ? hn::Mul(up, load(d, gamma, at)) : up; };
    auto mean_g = hn::Zero(d), mean_gx = hn::Zero(d);
    if (dx) {
      const auto total = sums<2>(d, a.n, [&](auto at) HWY_ATTR {
        const auto g = upstream(load(d, dy, at), at);
        return std::array{g, hn::Mul(g, normalized(at))};
      });
      if (!a.rms) mean_g = hn::Set(d, static_cast<A>(total[0] / a.n));
      mean_gx = hn::Set(d, static_cast<A>(total[1] / a.n));
    }
    each(d, 0, a.n, [&](auto at) HWY_ATTR {
      const auto up = load(d, dy, at), xn = normalized(at);
      prefetch(dy + a.n, at);
      prefetch(x + a.n, at);
      if (dgamma) store(d, hn::MulAdd(up, xn, load(d, dgamma, at)), dgamma, at);
      if (dbeta) store(d, hn::Add(up, load(d, dbeta, at)), dbeta, at);
      if (!dx) return;
      auto v = hn::Mul(inv, hn::NegMulAdd(xn, mean_gx, hn::Sub(upstream(up, at), mean_g)));
      if (dsum) v = hn::Add(v, load(d, dsum, at));
      store(d, v, dx, at);
    });
    if (dx) result.done(row_of<T>(a.dx, row, a.n));
  }
}

void backward_target(const NormBackward& a, int64_t first, int64_t end, void* dgamma, void* dbeta) {
  with_storage(a.dtype, [&]<class T>(T) { backward_rows<T>(a, first, end, dgamma, dbeta); });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(forward_target);
HWY_EXPORT(backward_target);

void norm_forward(const NormForward& a, int64_t first_row, int64_t end_row) {
  HWY_DYNAMIC_DISPATCH(forward_target)(a, first_row, end_row);
}
void norm_backward(const NormBackward& a, int64_t first_row, int64_t end_row, void* dgamma,
                   void* dbeta) {
  HWY_DYNAMIC_DISPATCH(backward_target)(a, first_row, end_row, dgamma, dbeta);
}

}  // namespace tenon::cpu
#endif
