// SPDX-License-Identifier: Apache-2.0
// cumsum. Along the last axis, each vector of prefixes adds a carry in double, so no f32 chain is
// longer than a vector. Along another axis, many columns are scanned side by side. May run in
// place, because each element is read before it is written.
#include <algorithm>
#include <type_traits>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "nontemporal.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/scan.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd-inl.h"

#ifndef TENON_CPU_SCAN_ONCE
#define TENON_CPU_SCAN_ONCE
namespace tenon::cpu {

// One row, or `columns` adjacent columns whose elements are `inner` apart.
struct ScanRows {
  const void* x;
  void* y;
  int64_t length;
  int64_t inner;
  int64_t columns;
  bool exclusive;
  bool reverse;
};
struct ScanKernels {
  void (*row)(const ScanRows&);
  void (*columns)(const ScanRows&);
};

}  // namespace tenon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

constexpr int64_t kColumns = 256;  // their carries stay in the first-level cache

// Carries are doubles for floats; for integers they wrap in the unsigned type.
template <class T>
using Carry = std::conditional_t<std::is_integral_v<T>, T, double>;

template <class T>
HWY_INLINE Carry<T> value_of(T x) {
  if constexpr (std::is_same_v<T, double> || std::is_integral_v<T>)
    return x;
  else
    return to_float(x);
}
template <class T>
HWY_INLINE void put(Carry<T> sum, T* y) {
  if constexpr (std::is_same_v<T, double> || std::is_integral_v<T>)
    *y = sum;
  else
    from_float(static_cast<float>(sum), y);
}

// Elements [begin, end) in scan order, one by one.
template <class T>
HWY_INLINE Carry<T> scan_some(const ScanRows& r, int64_t begin, int64_t end, Carry<T> carry) {
  const T* x = static_cast<const T*>(r.x);
  T* y = static_cast<T*>(r.y);
  for (int64_t k = begin; k < end; ++k) {
    const int64_t i = r.reverse ? r.length - 1 - k : k;
    const Carry<T> before = carry;
    carry = static_cast<Carry<T>>(carry + value_of(x[i]));
    put<T>(r.exclusive ? before : carry, y + i);
  }
  return carry;
}

template <class T>
void scan_row_scalar(const ScanRows& r) {
  scan_some<T>(r, 0, r.length, Carry<T>{});
}

// Inclusive prefix sums within the vector.
template <class D>
HWY_INLINE hn::Vec<D> prefixes(D d, hn::Vec<D> v) {
  v = hn::Add(v, hn::ShiftLeftLanes<1>(d, v));
  if constexpr (hn::MaxLanes(D()) > 2) v = hn::Add(v, hn::ShiftLeftLanes<2>(d, v));
  return v;
}

// 16 bytes of the accumulation type at a time: not every target can shift lanes across 16-byte
// blocks.
template <class T, bool reverse>
void scan_row_vector(const ScanRows& r) {
  using A = Acc<T>;
  constexpr int64_t kLanes = 16 / sizeof(A);
  const hn::FixedTag<A, kLanes> d;
  const T* x = static_cast<const T*>(r.x);
  T* y = static_cast<T*>(r.y);
  double carry = 0;
  int64_t k = 0;
  for (; k + kLanes <= r.length; k += kLanes) {
    const int64_t i = reverse ? r.length - kLanes - k : k;
    auto v = load(d, x + i);
    if constexpr (reverse) v = hn::Reverse(d, v);
    const auto sums = prefixes(d, v);
    auto out = hn::Add(hn::Set(d, static_cast<A>(carry)),
                       r.exclusive ? hn::ShiftLeftLanes<1>(d, sums) : sums);
    if constexpr (reverse) out = hn::Reverse(d, out);
    store(d, out, y + i);
    carry += hn::ExtractLane(sums, kLanes - 1);
  }
  scan_some<T>(r, k, r.length, carry);
}

template <class T>
void scan_row(const ScanRows& r) {
  if constexpr (std::is_integral_v<T>)
    scan_row_scalar<T>(r);
  else if (r.reverse)
    scan_row_vector<T, true>(r);
  else
    scan_row_vector<T, false>(r);
}

// One row of columns. Sums of floats continue in double.
template <class T>
HWY_INLINE void scan_step(const T* x, T* y, Carry<T>* carry, int64_t n, bool exclusive) {
  if constexpr (std::is_integral_v<T>) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t c = 0; c < n; c += lanes) {
      const size_t left = static_cast<size_t>(std::min(lanes, n - c));
      const auto before = hn::Load(d, carry + c);
      const auto after = hn::Add(before, load_n(d, x + c, left));
      hn::Store(after, d, carry + c);
      store_n(d, exclusive ? before : after, y + c, left);
    }
  } else {
    const hn::ScalableTag<double> d;
    const hn::Rebind<Acc<T>, decltype(d)> da;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto step = [&](int64_t c, auto get, auto put) HWY_ATTR {
      const auto before = hn::Load(d, carry + c);
      const auto v = get(c);
      hn::Vec<decltype(d)> wide;
      if constexpr (std::is_same_v<T, double>)
        wide = v;
      else
        wide = hn::PromoteTo(d, v);
      const auto after = hn::Add(before, wide);
      hn::Store(after, d, carry + c);
      const auto out = exclusive ? before : after;
      if constexpr (std::is_same_v<T, double>)
        put(c, out);
      else
        put(c, hn::DemoteTo(da, out));
    };
    int64_t c = 0;
    for (; c + lanes <= n; c += lanes)
      step(
          c, [&](int64_t i) HWY_ATTR { return load(da, x + i); },
          [&](int64_t i, auto v) HWY_ATTR { store(da, v, y + i); });
    if (c < n)
      step(
          c, [&](int64_t i) HWY_ATTR { return load_n(da, x + i, n - i); },
          [&](int64_t i, auto v) HWY_ATTR { store_n(da, v, y + i, n - i); });
  }
}

template <class T>
void scan_columns(const ScanRows& r) {
  HWY_ALIGN Carry<T> carry[kColumns];
  for (int64_t c = 0; c < r.columns; c += kColumns) {
    std::fill_n(carry, kColumns, Carry<T>{});
    for (int64_t k = 0; k < r.length; ++k) {
      const int64_t at = (r.reverse ? r.length - 1 - k : k) * r.inner + c;
      scan_step(static_cast<const T*>(r.x) + at, static_cast<T*>(r.y) + at, carry,
                std::min(kColumns, r.columns - c), r.exclusive);
    }
  }
}

template <class T>
ScanKernels kernels_of() {
  return {scan_row<T>, scan_columns<T>};
}

ScanKernels scan_kernels_for(tenon_dtype dtype) {
  return with_number("x", dtype, []<class T>(T) { return kernels_of<T>(); });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {
HWY_EXPORT(scan_kernels_for);
namespace {

sdk::Kernel make_cumsum(const sdk::op::cumsum& n, const sdk::Node&) {
  const sdk::Type& x = n.x.type();
  const AxisView view = along_axis(x, n.axis);
  const ScanKernels kernels = HWY_DYNAMIC_DISPATCH(scan_kernels_for)(x.dtype);
  const int64_t bytes = element_bytes("x", x.dtype);
  const auto run = [=, exclusive = n.exclusive, reverse = n.reverse](const sdk::Call& c) {
    if (view.inner == 1) {
      const int64_t row = view.length * bytes;
      const bool nontemporal = bypasses_cache(c.outputs[0], view.outer * row, {c.inputs[0]});
      parallel_for(view.outer, grain_for(2 * row), [&](int64_t begin, int64_t end) {
        NontemporalRow<char> place(nontemporal, row);
        for (int64_t at = begin * row; at < end * row; at += row) {
          char* const y = c.out<char>(0) + at;
          kernels.row({c.in<char>(0) + at, place.at(y), view.length, 1, 1, exclusive, reverse});
          place.done(y);
        }
      });
      return;
    }
    for_columns(
        view, 64 / bytes, 2 * view.length * bytes, [&](int64_t outer, int64_t begin, int64_t end) {
          const int64_t at = (outer * view.length * view.inner + begin) * bytes;
          const ScanRows rows{c.in<char>(0) + at, c.out<char>(0) + at, view.length, view.inner,
                              end - begin,        exclusive,           reverse};
          kernels.columns(rows);
        });
  };
  return {.run = run, .in_place = {{0, 0}}};
}

// Columns of products; floats are carried in double, integers wrap.
template <class T>
void product_columns(const ScanRows& r) {
  using Carried = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  constexpr int64_t kBlock = 64;
  Carried carry[kBlock];
  for (int64_t c = 0; c < r.columns; c += kBlock) {
    const int64_t columns = std::min(kBlock, r.columns - c);
    std::fill_n(carry, columns, Carried{1});
    for (int64_t k = 0; k < r.length; ++k) {
      const int64_t at = (r.reverse ? r.length - 1 - k : k) * r.inner + c;
      const T* const x = static_cast<const T*>(r.x) + at;
      T* const y = static_cast<T*>(r.y) + at;
      for (int64_t i = 0; i < columns; ++i) {
        const Carried before = carry[i];
        if constexpr (std::is_integral_v<T>) {
          carry[i] *= static_cast<Carried>(x[i]);
          y[i] = static_cast<T>(r.exclusive ? before : carry[i]);
        } else if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, Bf16>) {
          carry[i] *= to_float(x[i]);
          from_float(static_cast<float>(r.exclusive ? before : carry[i]), y + i);
        } else {
          carry[i] *= x[i];
          y[i] = static_cast<T>(r.exclusive ? before : carry[i]);
        }
      }
    }
  }
}

sdk::Kernel make_cumprod(const sdk::op::cumprod& n, const sdk::Node&) {
  const sdk::Type& x = n.x.type();
  const AxisView view = along_axis(x, n.axis);
  const int64_t bytes = element_bytes("x", x.dtype);
  const auto columns = with_number(
      "x", x.dtype, []<class T>(T) -> void (*)(const ScanRows&) { return product_columns<T>; });
  const auto run = [=, exclusive = n.exclusive, reverse = n.reverse](const sdk::Call& c) {
    for_columns(view, 64 / bytes, 2 * view.length * bytes,
                [&](int64_t outer, int64_t begin, int64_t end) {
                  const int64_t at = (outer * view.length * view.inner + begin) * bytes;
                  columns({c.in<char>(0) + at, c.out<char>(0) + at, view.length, view.inner,
                           end - begin, exclusive, reverse});
                });
  };
  return {.run = run, .in_place = {{0, 0}}};
}

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::cumsum, make_cumsum>(),
                              sdk::row<sdk::op::cumprod, make_cumprod>()};

}  // namespace

std::span<const sdk::Row> scan_rows() { return kRows; }

}  // namespace tenon::cpu
#endif
