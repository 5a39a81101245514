// SPDX-License-Identifier: Apache-2.0
// Runs of elements between floats and integers: quantize and dequantize. Per target, as simd-inl.h.
#if defined(TENON_CPU_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_QUANTIZE_INL_H_
#undef TENON_CPU_QUANTIZE_INL_H_
#else
#define TENON_CPU_QUANTIZE_INL_H_
#endif

#include <cmath>

#include "bytes-inl.h"
#include "quantize.hpp"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// ---- integers beside the vectors of a float tag D, through i32

template <class D, class Q>
HWY_INLINE void store_levels(D, hn::Vec<D> v, Q* to) {
  const hn::Rebind<int32_t, D> di;
  const hn::Rebind<Q, D> dq;
  // The levels are whole numbers, so that conversion rounds nothing.
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    hn::StoreU(hn::DemoteTo(dq, hn::ConvertTo(di, v)), dq, to);
  } else {
    hn::StoreU(hn::DemoteTo(dq, hn::DemoteTo(di, v)), dq, to);
  }
}
template <class D, class Q>
HWY_INLINE auto load_levels(D, const Q* from) {
  const hn::Rebind<int32_t, D> di;
  const hn::Rebind<Q, D> dq;
  if constexpr (std::is_same_v<Q, int32_t>) {
    return hn::LoadU(di, from);
  } else {
    return hn::PromoteTo(di, hn::LoadU(dq, from));
  }
}

// An entry for each element, or one for all: then lane 0 of the table counts.
template <bool many, class D>
HWY_INLINE hn::Vec<D> entries(D d, const hn::TFromD<D>* table, int64_t i) {
  if constexpr (many) return hn::LoadU(d, table + i);
  return hn::Set(d, *table);
}

// Calls step(i, x + i, y + i) for whole vectors; for the rest with copies of what is left.
template <bool many, class A, class X, class Y, class Zero, class Step>
HWY_INLINE void each_vector(size_t lanes, int64_t n, const X* x, Y* y, const A* scale,
                            const Zero* zero, Step&& step) {
  constexpr size_t kMost = hn::MaxLanes(hn::ScalableTag<A>());
  const auto step_lanes = static_cast<int64_t>(lanes);
  int64_t i = 0;
  for (; i + step_lanes <= n; i += step_lanes) step(x + i, y + i, scale, zero, i);
  if (i == n) return;
  const auto rest = static_cast<size_t>(n - i);
  X from[kMost] = {};
  Y to[kMost];
  std::memcpy(from, x + i, rest * sizeof(X));
  if constexpr (many) {
    A scales[kMost] = {};
    Zero zeros[kMost] = {};
    std::memcpy(scales, scale + i, rest * sizeof(A));
    std::memcpy(zeros, zero + i, rest * sizeof(Zero));
    step(from, to, scales, zeros, 0);
  } else {
    step(from, to, scale, zero, 0);
  }
  std::memcpy(y + i, to, rest * sizeof(Y));
}

template <bool many, class T, class Q>
HWY_INLINE void quantize_run(const QuantizeLoop& loop, const T* x, Q* q, int64_t n,
                             const Acc<T>* scale, const Acc<T>* zero) {
  using A = Acc<T>;
  const hn::ScalableTag<A> d;
  const auto low = hn::Set(d, static_cast<A>(loop.low));
  const auto high = hn::Set(d, static_cast<A>(loop.high));
  each_vector<many>(hn::Lanes(d), n, x, q, scale, zero,
                    [&](const T* from, Q* to, const A* s, const A* z, int64_t i) HWY_ATTR {
                      const auto exact = hn::Div(load(d, from), entries<many>(d, s, i));
                      const auto level =
                          hn::Add(hn::IfThenZeroElse(hn::IsNaN(exact), hn::Round(exact)),
                                  entries<many>(d, z, i));
                      store_levels(d, hn::Min(hn::Max(level, low), high), to);
                    });
}

// To bytes, by one scale. Products with 1/scale round as the quotients do, but near halves: four
// vectors with such a product divide. x(i): the vector at element i. Returns how many elements were
// written.
template <class X, class Q>
HWY_INLINE int64_t quantize_bytes(int lowest, int highest, const X& x, Q* q, int64_t n, float scale,
                                  float zero) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::RebindToUnsigned<decltype(d)> du;
  using V = hn::Vec<decltype(d)>;
  using VI = hn::Vec<decltype(di)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float inverse = 1 / scale;
  if (!std::isnormal(scale) || !std::isnormal(inverse)) return 0;
  const auto by = hn::Set(d, inverse), divisor = hn::Set(d, scale);
  const auto least = hn::Set(d, static_cast<float>(lowest) - zero);
  const auto most = hn::Set(d, static_cast<float>(highest) - zero);
  // Adding 1.5 2^10 to a number below 2^9 keeps 13 bits behind the point. Products are three roundings
  // away from quotients, less than one of the last bits, and round up half a bit.
  constexpr int kBits = 13;
  constexpr int32_t kFixedBits = 0x44C00000, kHalf = 1 << (kBits - 1), kNear = 2;
  const auto fixed = hn::Set(d, 1536.f);
  const auto whole_zero = static_cast<int32_t>(zero);
  const auto half_up = hn::Set(di, kHalf + (whole_zero << kBits) - kFixedBits);
  const auto fraction = hn::Set(di, (1 << kBits) - 1), first_near = hn::Set(di, kHalf - kNear);
  const auto nears = hn::Set(du, uint32_t{2 * kNear});
  const auto bias = hn::Set(di, whole_zero - kRoundingBits);
  const auto within = [&](V exact) HWY_ATTR {
    return hn::Min(hn::Max(hn::IfThenZeroElse(hn::IsNaN(exact), exact), least), most);
  };
  const auto product = [&](V number) HWY_ATTR {
    return hn::BitCast(di, hn::Add(within(hn::Mul(number, by)), fixed));
  };
  const auto from_half = [&](VI bits) HWY_ATTR {
    return hn::BitCast(du, hn::Sub(hn::And(bits, fraction), first_near));
  };
  const auto level = [&](VI bits)
                         HWY_ATTR { return hn::ShiftRight<kBits>(hn::Add(bits, half_up)); };
  const auto divided = [&](V number) HWY_ATTR {
    const auto whole = hn::Add(within(hn::Div(number, divisor)), hn::Set(d, kRoundingFloat));
    return hn::Add(hn::BitCast(di, whole), bias);
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const V number[4] = {x(i), x(i + lanes), x(i + 2 * lanes), x(i + 3 * lanes)};
    const VI a = product(number[0]), b = product(number[1]), c = product(number[2]),
             e = product(number[3]);
    const auto nearest =
        hn::Min(hn::Min(from_half(a), from_half(b)), hn::Min(from_half(c), from_half(e)));
    if (HWY_LIKELY(hn::AllTrue(du, hn::Gt(nearest, nears))))
      store_bytes(di, level(a), level(b), level(c), level(e), q + i);
    else
      store_bytes(di, divided(number[0]), divided(number[1]), divided(number[2]),
                  divided(number[3]), q + i);
  }
  return i;
}

template <bool many, class T, class Q, class A>
HWY_INLINE void dequantize_run(const Q* q, T* y, int64_t n, const A* scale, const int32_t* zero) {
  const hn::ScalableTag<A> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  each_vector<many>(hn::Lanes(d), n, q, y, scale, zero,
                    [&](const Q* from, T* to, const A* s, const int32_t* z, int64_t i) HWY_ATTR {
                      const auto level = hn::Sub(load_levels(d, from), entries<many>(di, z, i));
                      hn::Vec<hn::ScalableTag<A>> v;
                      if constexpr (sizeof(A) == 4) {
                        v = hn::ConvertTo(d, level);
                      } else {
                        v = hn::PromoteTo(d, level);
                      }
                      store(d, hn::Mul(v, entries<many>(d, s, i)), to);
                    });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
