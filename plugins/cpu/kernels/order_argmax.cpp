// SPDX-License-Identifier: Apache-2.0
// argmax and argmin: finds the extreme of each chunk first, and its index only in the chunk that
// contains it.
#include <algorithm>

#include "../parallel.hpp"
#include "axis.hpp"
#include "order.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/order_argmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "order_key-inl.h"

#ifndef TENON_CPU_ORDER_ARGMAX_ONCE
#define TENON_CPU_ORDER_ARGMAX_ONCE
namespace tenon::cpu {

// One row along the axis, or `columns` adjacent rows whose elements are `inner` apart.
struct ArgRows {
  const void* x;
  int64_t* y;
  int64_t length;
  int64_t inner;
  int64_t columns;
  bool last;  // the last of equal elements wins
};
struct ArgKernels {
  void (*row)(const ArgRows&);
  void (*columns)(const ArgRows&);
  void (*short_rows)(const ArgRows&);  // `columns` consecutive rows of at most kShortRow elements
};
// Rows that fill few vectors are turned into columns, so many at a time, if they are not few.
inline constexpr int64_t kShortRow = 32, kTurnedRows = 64, kFewRows = 32;

}  // namespace tenon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Loads the keys at p, n < Lanes of them; other lanes get the smallest key.
template <class T, Direction direction, class D>
HWY_INLINE hn::Vec<D> order_keys_n(D d, const T* p, int64_t n) {
  using Int = OrderInt<T>;
  alignas(64) T lanes[hn::MaxLanes(d)] = {};
  HWY_ALIGN Int keys[hn::MaxLanes(d)];
  std::copy_n(p, n, lanes);
  hn::Store(order_keys<T, direction>(d, lanes), d, keys);
  std::fill(keys + n, keys + hn::MaxLanes(d), std::numeric_limits<Int>::min());
  return hn::Load(d, keys);
}

template <class D>
HWY_INLINE hn::TFromD<D> greatest_lane(D d, hn::Vec<D> v) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  return *std::max_element(lanes, lanes + hn::Lanes(d));
}

template <class T, Direction direction>
OrderInt<T> greatest(const T* x, int64_t n) {
  const hn::ScalableTag<OrderInt<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto least = hn::Set(d, std::numeric_limits<OrderInt<T>>::min());
  hn::Vec<decltype(d)> best[4] = {least, least, least, least};
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes)
    for (int k = 0; k < 4; ++k)
      best[k] = hn::Max(best[k], order_keys<T, direction>(d, x + i + k * lanes));
  for (; i + lanes <= n; i += lanes) best[0] = hn::Max(best[0], order_keys<T, direction>(d, x + i));
  if (i < n) best[1] = hn::Max(best[1], order_keys_n<T, direction>(d, x + i, n - i));
  return greatest_lane(d, hn::Max(hn::Max(best[0], best[1]), hn::Max(best[2], best[3])));
}

// The first or last index of the key in x[0, n), which contains it.
template <class T, Direction direction>
int64_t place_of(const T* x, int64_t n, OrderInt<T> key, bool last) {
  const hn::ScalableTag<OrderInt<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto wanted = hn::Set(d, key);
  const auto found = [&](int64_t i, int64_t count) HWY_ATTR -> int64_t {
    const auto keys = count == lanes ? order_keys<T, direction>(d, x + i)
                                     : order_keys_n<T, direction>(d, x + i, count);
    const auto mask = hn::Eq(keys, wanted);
    if (hn::AllFalse(d, mask)) return -1;
    HWY_ALIGN OrderInt<T> stored[hn::MaxLanes(d)];
    hn::Store(keys, d, stored);
    for (int64_t k = 0; k < count; ++k)
      if (const int64_t at = last ? count - 1 - k : k; stored[at] == key) return i + at;
    return -1;  // found in a lane beyond the end
  };
  const int64_t blocks = (n + lanes - 1) / lanes;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t i = (last ? blocks - 1 - b : b) * lanes;
    if (const int64_t at = found(i, std::min(lanes, n - i)); at >= 0) return at;
  }
  return 0;
}

// True if the last of equal elements wins. Of several NaN, the first one always wins.
template <class T>
bool takes_last(const ArgRows& r, OrderInt<T> key) {
  constexpr OrderInt<T> kNan = std::numeric_limits<OrderInt<T>>::max();
  return r.last && !(Ordered<T>::kFloat && key == kNan);
}

template <class T, Direction direction>
void arg_row(const ArgRows& r) {
  constexpr int64_t kChunk = 4096;
  const T* x = static_cast<const T*>(r.x);
  OrderInt<T> best = greatest<T, direction>(x, std::min(kChunk, r.length));
  int64_t chunk = 0;
  for (int64_t i = kChunk; i < r.length; i += kChunk) {
    const auto key = greatest<T, direction>(x + i, std::min(kChunk, r.length - i));
    if (takes_last<T>(r, key) ? key >= best : key > best) best = key, chunk = i;
  }
  *r.y = chunk + place_of<T, direction>(x + chunk, std::min(kChunk, r.length - chunk), best,
                                        takes_last<T>(r, best));
}

// Lanes count rows in integers of the key's size, so the axis is processed in ranges that such
// integers can count.
template <class T, Direction direction>
void arg_columns(const ArgRows& r) {
  using Int = OrderInt<T>;
  const hn::ScalableTag<Int> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kStretch = std::min<int64_t>(std::numeric_limits<Int>::max(), 1 << 20);
  [[maybe_unused]] const auto nan = hn::Set(d, std::numeric_limits<Int>::max());
  HWY_ALIGN Int keys[hn::MaxLanes(d)];
  HWY_ALIGN Int places[hn::MaxLanes(d)];
  const T* x = static_cast<const T*>(r.x);
  for (int64_t c = 0; c < r.columns; c += lanes) {
    const int64_t n = std::min(lanes, r.columns - c);
    const auto at = [&](int64_t i) HWY_ATTR {
      const T* p = x + i * r.inner + c;
      return n == lanes ? order_keys<T, direction>(d, p) : order_keys_n<T, direction>(d, p, n);
    };
    Int extreme[hn::MaxLanes(d)];
    for (int64_t begin = 0; begin < r.length; begin += kStretch) {
      const int64_t end = std::min(r.length, begin + kStretch);
      auto best = at(begin), place = hn::Zero(d);
      for (int64_t i = begin + 1; i < end; ++i) {
        const auto key = at(i);
        const auto greater = hn::Gt(key, best);
        auto better = r.last ? hn::Or(greater, hn::Eq(key, best)) : greater;
        if constexpr (Ordered<T>::kFloat) better = hn::And(better, hn::Ne(best, nan));
        best = hn::IfThenElse(better, key, best);
        place = hn::IfThenElse(better, hn::Set(d, static_cast<Int>(i - begin)), place);
      }
      hn::Store(best, d, keys);
      hn::Store(place, d, places);
      for (int64_t k = 0; k < n; ++k) {
        if (begin > 0 && (takes_last<T>(r, keys[k]) ? keys[k] < extreme[k] : keys[k] <= extreme[k]))
          continue;
        extreme[k] = keys[k];
        r.y[c + k] = begin + places[k];
      }
    }
  }
}

template <class T, Direction direction>
void arg_short_rows(const ArgRows& r) {
  HWY_ALIGN T turned[kShortRow * kTurnedRows];
  const T* x = static_cast<const T*>(r.x);
  for (int64_t first = 0; first < r.columns; first += kTurnedRows) {
    const int64_t rows = std::min(kTurnedRows, r.columns - first);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < r.length; ++k) turned[k * rows + i] = x[(first + i) * r.length + k];
    arg_columns<T, direction>({turned, r.y + first, r.length, rows, rows, r.last});
  }
}

ArgKernels arg_kernels_for(tenon_dtype dtype, bool greatest) {
  return with_ordered("x", dtype, [&](auto t) -> ArgKernels {
    using T = decltype(t);
    if (greatest)
      return {arg_row<T, Direction::up>, arg_columns<T, Direction::up>,
              arg_short_rows<T, Direction::up>};
    return {arg_row<T, Direction::search_down>, arg_columns<T, Direction::search_down>,
            arg_short_rows<T, Direction::search_down>};
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {
HWY_EXPORT(arg_kernels_for);
namespace {

sdk::Kernel make_arg(const sdk::Type& x, int64_t axis, bool last, bool greatest) {
  const AxisView view = along_axis(x, axis);
  const ArgKernels kernels = HWY_DYNAMIC_DISPATCH(arg_kernels_for)(x.dtype, greatest);
  const int64_t bytes = element_bytes("x", x.dtype);
  if (view.inner == 1 && view.length <= kShortRow && view.outer >= kFewRows)
    return {.run = [view, kernels, bytes, last](const sdk::Call& c) {
      parallel_for(view.outer, grain_for(view.length * bytes), [&](int64_t begin, int64_t end) {
        kernels.short_rows({c.in<char>(0) + begin * view.length * bytes, c.out<int64_t>(0) + begin,
                            view.length, 1, end - begin, last});
      });
    }};
  return {.run = [view, kernels, bytes, last](const sdk::Call& c) {
    for_columns(view, 64 / bytes, view.length * bytes,
                [&](int64_t outer, int64_t begin, int64_t end) {
                  const int64_t first = outer * view.length * view.inner + begin;
                  const ArgRows rows{c.in<char>(0) + first * bytes,
                                     c.out<int64_t>(0) + outer * view.inner + begin,
                                     view.length,
                                     view.inner,
                                     end - begin,
                                     last};
                  (view.inner == 1 ? kernels.row : kernels.columns)(rows);
                });
  }};
}

}  // namespace

sdk::Kernel make_argmax(const sdk::op::argmax& n, const sdk::Node&) {
  return make_arg(n.x.type(), n.axis, n.select_last, true);
}
sdk::Kernel make_argmin(const sdk::op::argmin& n, const sdk::Node&) {
  return make_arg(n.x.type(), n.axis, n.select_last, false);
}

}  // namespace tenon::cpu
#endif
