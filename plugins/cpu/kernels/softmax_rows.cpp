// SPDX-License-Identifier: Apache-2.0
// Lines of softmax, forward and backward. All passes but the first read the row from the cache.
#include <array>
#include <cmath>

#include "nontemporal.hpp"
#include "softmax.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Rows that fill no vector are turned into columns, some at a time, if there are enough of them.
constexpr int64_t kShortRow = 16, kTurnedRows = 64;
bool turns(const Lines& l) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  return l.length <= kShortRow && l.length < 2 * lanes && l.count >= 2 * lanes;
}

// The sum of f(at) over a row. Short rows add in the order of add_columns: how many rows a thread
// gets decides whether they are turned, so both ways must give the same bits.
template <class D, class F>
HWY_INLINE double row_sum(D d, int64_t n, F&& f) {
  if (n > kShortRow) return sums<1>(d, n, [&](auto at) HWY_ATTR { return std::array{f(at)}; })[0];
  HWY_ALIGN hn::TFromD<D> terms[kShortRow];
  each(d, 0, n, [&](auto at) HWY_ATTR { store(d, f(at), terms, at); });
  hn::TFromD<D> sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += terms[k];
  return sum;
}

template <class T>
void forward_row(const T* x, T* y, int64_t n, bool log) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const auto max = hn::Set(d, row_max(d, x, n));
  if (log) {
    const double sum = row_sum(
        d, n, [&](auto at) HWY_ATTR { return exponential<true>(d, hn::Sub(load(d, x, at), max)); });
    const auto log_sum = hn::Set(d, static_cast<A>(std::log(sum)));
    each(d, 0, n, [&](auto at) HWY_ATTR {
      store(d, hn::Sub(hn::Sub(load(d, x, at), max), log_sum), y, at);
    });
    return;
  }
  // Half-precision results cannot store the exponentials between the passes.
  constexpr bool kKeep = std::is_same_v<T, A>;
  const double sum = row_sum(d, n, [&](auto at) HWY_ATTR {
    const auto e = exponential<!kKeep>(d, hn::Sub(load(d, x, at), max));
    prefetch(x + n, at);
    if constexpr (kKeep) store(d, e, y, at);
    return e;
  });
  const auto factor = hn::Set(d, static_cast<A>(1 / sum));
  each(d, 0, n, [&](auto at) HWY_ATTR {
    if constexpr (kKeep) {
      store(d, hn::Mul(load(d, y, at), factor), y, at);
    } else {
      store(d, hn::Mul(exponential(d, hn::Sub(load(d, x, at), max)), factor), y, at);
    }
  });
}

template <class T>
void forward_columns(const Lines& l, const T* x, T* y, bool log) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  HWY_ALIGN A max[kMaxLines];
  HWY_ALIGN A part[kMaxLines];
  double sum[kMaxLines];
  sum_columns(l, x, max, sum);
  for (int64_t c = 0; c < l.count; ++c)
    part[c] = static_cast<A>(log ? std::log(sum[c]) : 1 / sum[c]);
  for (int64_t k = 0; k < l.length; ++k)
    each(d, 0, l.count, [&](auto at) HWY_ATTR {
      const auto v = hn::Sub(load(d, x + k * l.inner, at), load(d, max, at));
      const auto p = load(d, part, at);
      store(d, log ? hn::Sub(v, p) : hn::Mul(exponential(d, v), p), y + k * l.inner, at);
    });
}

// to[j][i] = from[i][j] of `rows` rows of `length` elements.
template <class T>
void turn(const T* from, int64_t rows, int64_t length, T* to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < length; ++j) to[j * rows + i] = from[i * length + j];
}
// Calls columns(lines, first) for kTurnedRows rows at a time; `first` is the element they start at.
template <class Columns>
void in_turned_parts(const Lines& l, Columns columns) {
  for (int64_t i = 0; i < l.count; i += kTurnedRows) {
    const int64_t rows = std::min(kTurnedRows, l.count - i);
    columns(Lines{l.length, rows, 0, rows}, i * l.length);
  }
}

template <class T>
void forward_short(const Lines& l, const T* x, T* y, bool log) {
  HWY_ALIGN T given[kShortRow * kTurnedRows];
  HWY_ALIGN T made[kShortRow * kTurnedRows];
  in_turned_parts(l, [&](const Lines& part, int64_t first) {
    turn(x + first, part.count, l.length, given);
    forward_columns(part, given, made, log);
    turn(made, l.length, part.count, y + first);
  });
}

void forward_target(tenon_dtype dtype, const Lines& l, bool log, bool nontemporal, const void* x,
                    void* y) {
  with_storage(dtype, [&]<class T>(T) {
    const T* from = static_cast<const T*>(x) + l.start(0);
    T* to = static_cast<T*>(y) + l.start(0);
    if (l.inner != 1) return forward_columns(l, from, to, log);
    if (turns(l)) return forward_short(l, from, to, log);
    NontemporalRow<T> row(nontemporal, l.length);
    for (int64_t at = 0; at < l.count * l.length; at += l.length) {
      forward_row(from + at, row.at(to + at), l.length, log);
      row.done(to + at);
    }
  });
}

template <class D>
HWY_INLINE hn::Vec<D> slope(D d, bool log, hn::Vec<D> dy, hn::Vec<D> y, hn::Vec<D> sum) {
  return log ? hn::NegMulAdd(exponential(d, y), sum, dy) : hn::Mul(y, hn::Sub(dy, sum));
}

template <class T>
void backward_row(const T* dy, const T* y, T* dx, int64_t n, bool log) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const double total = row_sum(d, n, [&](auto at) HWY_ATTR {
    const auto up = load(d, dy, at);
    return log ? up : hn::Mul(up, load(d, y, at));
  });
  const auto sum = hn::Set(d, static_cast<A>(total));
  each(d, 0, n, [&](auto at) HWY_ATTR {
    prefetch(dy + n, at);
    prefetch(y + n, at);
    store(d, slope(d, log, load(d, dy, at), load(d, y, at), sum), dx, at);
  });
}

template <class T>
void backward_columns(const Lines& l, const T* dy, const T* y, T* dx, bool log) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  HWY_ALIGN A part[kMaxLines];
  double total[kMaxLines];
  add_columns<A>(l, total, [&](int64_t k, auto at) HWY_ATTR {
    const auto up = load(d, dy + k * l.inner, at);
    return log ? up : hn::Mul(up, load(d, y + k * l.inner, at));
  });
  for (int64_t c = 0; c < l.count; ++c) part[c] = static_cast<A>(total[c]);
  for (int64_t k = 0; k < l.length; ++k)
    each(d, 0, l.count, [&](auto at) HWY_ATTR {
      const auto up = load(d, dy + k * l.inner, at), out = load(d, y + k * l.inner, at);
      store(d, slope(d, log, up, out, load(d, part, at)), dx + k * l.inner, at);
    });
}

template <class T>
void backward_short(const Lines& l, const T* dy, const T* y, T* dx, bool log) {
  HWY_ALIGN T up[kShortRow * kTurnedRows];
  HWY_ALIGN T out[kShortRow * kTurnedRows];
  HWY_ALIGN T made[kShortRow * kTurnedRows];
  in_turned_parts(l, [&](const Lines& part, int64_t first) {
    turn(dy + first, part.count, l.length, up);
    turn(y + first, part.count, l.length, out);
    backward_columns(part, up, out, made, log);
    turn(made, l.length, part.count, dx + first);
  });
}

void backward_target(tenon_dtype dtype, const Lines& l, bool log, bool nontemporal, const void* dy,
                     const void* y, void* dx) {
  with_storage(dtype, [&]<class T>(T) {
    const T* up = static_cast<const T*>(dy) + l.start(0);
    const T* out = static_cast<const T*>(y) + l.start(0);
    T* to = static_cast<T*>(dx) + l.start(0);
    if (l.inner != 1) return backward_columns(l, up, out, to, log);
    if (turns(l)) return backward_short(l, up, out, to, log);
    NontemporalRow<T> row(nontemporal, l.length);
    for (int64_t at = 0; at < l.count * l.length; at += l.length) {
      backward_row(up + at, out + at, row.at(to + at), l.length, log);
      row.done(to + at);
    }
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(forward_target);
HWY_EXPORT(backward_target);

void softmax_forward(tenon_dtype dtype, const Lines& lines, bool log, bool nontemporal,
                     const void* x, void* y) {
  if (lines.length > 0) HWY_DYNAMIC_DISPATCH(forward_target)(dtype, lines, log, nontemporal, x, y);
}
void softmax_backward(tenon_dtype dtype, const Lines& lines, bool log, bool nontemporal,
                      const void* dy, const void* y, void* dx) {
  if (lines.length > 0)
    HWY_DYNAMIC_DISPATCH(backward_target)(dtype, lines, log, nontemporal, dy, y, dx);
}

}  // namespace tenon::cpu
#endif
