// SPDX-License-Identifier: Apache-2.0
// Lines of cross entropy: the statistics of an item, and the gradient of its logits.
#include <array>
#include <cmath>

#include "nontemporal.hpp"
#include "softmax.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_loss_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// If the maximum is infinite, it is the lse.
HWY_INLINE LineStatistics statistics(double max, double sum, double spread) {
  return {max, std::isinf(max) ? 0 : std::log(sum), spread};
}

template <class T>
LineStatistics row_statistics(const T* x, const Acc<T>* weight, int64_t n, bool spread) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  A maximum = row_max(d, x, n);
  const auto max = hn::Set(d, maximum);
  std::array<double, 2> total{};
  if (spread) {
    total = sums<2>(d, n, [&](auto at) HWY_ATTR {
      const auto v = hn::Sub(load(d, x, at), max);
      const auto below = hn::Neg(v);
      return std::array{exponential<true>(d, v),
                        weight ? hn::Mul(below, load(d, weight, at)) : below};
    });
  } else {
    total[0] = sums<1>(d, n, [&](auto at) HWY_ATTR {
      prefetch(x + n, at);
      return std::array{exponential<true>(d, hn::Sub(load(d, x, at), max))};
    })[0];
  }
  if (std::isnan(total[0]))  // a NaN, or the maximum is infinite
    maximum = max_of(d, n, [&](auto at) HWY_ATTR { return load(d, x, at); });
  return statistics(maximum, total[0], total[1]);
}

template <class T>
void column_statistics(const Lines& l, const T* x, const Acc<T>* weight, bool spread,
                       LineStatistics* out) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  HWY_ALIGN A max[kMaxLines];
  double sum[kMaxLines], spreads[kMaxLines] = {};
  sum_columns(l, x, max, sum);
  if (spread)
    add_columns<A>(l, spreads, [&](int64_t k, auto at) HWY_ATTR {
      const auto below = hn::Sub(load(d, max, at), load(d, x + k * l.inner, at));
      return weight ? hn::Mul(below, hn::Set(d, weight[k])) : below;
    });
  for (int64_t c = 0; c < l.count; ++c) out[c] = statistics(max[c], sum[c], spreads[c]);
}

void statistics_target(tenon_dtype dtype, const Lines& l, const void* logits, const void* weight,
                       bool spread, LineStatistics* out) {
  with_storage(dtype, [&]<class T>(T) {
    const T* x = static_cast<const T*>(logits) + l.start(0);
    const Acc<T>* w = static_cast<const Acc<T>*>(weight);
    if (l.inner != 1) return column_statistics(l, x, w, spread, out);
    for (int64_t i = 0; i < l.count; ++i)
      out[i] = row_statistics(x + i * l.length, w, l.length, spread);
  });
}

template <class T, bool flat>
void slope_part(const T* x, const Acc<T>* weight, int64_t n, const LineSlope& slope, T* dx) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const auto shift = hn::Set(d, static_cast<A>(slope.shift)),
             scale = hn::Set(d, static_cast<A>(slope.scale)),
             level = hn::Set(d, static_cast<A>(slope.flat));
  each(d, 0, n, [&](auto at) HWY_ATTR {
    auto v = hn::Mul(exponential(d, hn::Sub(load(d, x, at), shift)), scale);
    if constexpr (flat) v = hn::Sub(v, weight ? hn::Mul(level, load(d, weight, at)) : level);
    store(d, v, dx, at);
  });
}

template <class T, bool flat>
void slope_row(const T* x, const Acc<T>* weight, int64_t n, const LineSlope& slope,
               bool nontemporal, T* dx) {
  nontemporal_parts(nontemporal, n, dx, [&](int64_t i, int64_t count, T* to) {
    slope_part<T, flat>(x + i, weight ? weight + i : nullptr, count, slope, to);
  });
}

template <class T>
void slope_columns(const Lines& l, const T* x, const Acc<T>* weight, const LineSlope* slopes,
                   T* dx) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  HWY_ALIGN A shift[kMaxLines], scale[kMaxLines], flat[kMaxLines], keep[kMaxLines];
  for (int64_t c = 0; c < l.count; ++c) {
    if (slopes[c].zero) {
      shift[c] = scale[c] = flat[c] = keep[c] = 0;
      continue;
    }
    shift[c] = static_cast<A>(slopes[c].shift);
    scale[c] = static_cast<A>(slopes[c].scale);
    flat[c] = static_cast<A>(slopes[c].flat);
    keep[c] = 1;
  }
  for (int64_t k = 0; k < l.length; ++k) {
    const auto w = hn::Set(d, weight ? weight[k] : A{1});
    each(d, 0, l.count, [&](auto at) HWY_ATTR {
      const auto e = exponential(d, hn::Sub(load(d, x + k * l.inner, at), load(d, shift, at)));
      const auto v = hn::NegMulAdd(load(d, flat, at), w, hn::Mul(e, load(d, scale, at)));
      const auto nonzero = hn::Gt(load(d, keep, at), hn::Zero(d));
      store(d, hn::IfThenElseZero(nonzero, v), dx + k * l.inner, at);
    });
  }
}

void slopes_target(tenon_dtype dtype, const Lines& l, const void* logits, const void* weight,
                   const LineSlope* slopes, bool nontemporal, void* dx) {
  with_storage(dtype, [&]<class T>(T) {
    const T* x = static_cast<const T*>(logits) + l.start(0);
    const Acc<T>* w = static_cast<const Acc<T>*>(weight);
    T* to = static_cast<T*>(dx) + l.start(0);
    if (l.inner != 1) return slope_columns(l, x, w, slopes, to);
    for (int64_t i = 0; i < l.count; ++i, x += l.length, to += l.length) {
      if (slopes[i].zero) {
        std::fill_n(to, l.length, T{});
      } else if (slopes[i].flat != 0) {
        slope_row<T, true>(x, w, l.length, slopes[i], nontemporal, to);
      } else {
        slope_row<T, false>(x, w, l.length, slopes[i], nontemporal, to);
      }
    }
    if (nontemporal) nontemporal_fence();
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(statistics_target);
HWY_EXPORT(slopes_target);

void loss_statistics(tenon_dtype dtype, const Lines& lines, const void* logits, const void* weight,
                     bool spread, LineStatistics* out) {
  HWY_DYNAMIC_DISPATCH(statistics_target)(dtype, lines, logits, weight, spread, out);
}
void loss_slopes(tenon_dtype dtype, const Lines& lines, const void* logits, const void* weight,
                 const LineSlope* slopes, bool nontemporal, void* dx) {
  HWY_DYNAMIC_DISPATCH(slopes_target)(dtype, lines, logits, weight, slopes, nontemporal, dx);
}

}  // namespace tenon::cpu
#endif
