// SPDX-License-Identifier: Apache-2.0
// Vectors of the accumulation type, loaded from and stored to any float dtype, as a whole or
// partially at the end of a row. Per target: include after foreach_target.h, outside of namespaces.
// Functions are in tenon::cpu::HWY_NAMESPACE.
#if defined(TENON_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_SIMD_INL_H_
#undef TENON_CPU_SIMD_INL_H_
#else
#define TENON_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "convert.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The accumulation type: float, or double for double.
template <class T>
struct AccOf {
  using type = float;
};
template <>
struct AccOf<double> {
  using type = double;
};
template <class T>
using Acc = typename AccOf<T>::type;

// ---- whole vectors of a float or double tag D
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Bf16* p) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::RebindToUnsigned<D> du32;
  const auto bits = hn::PromoteTo(du32, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const F16* p) {
#if HWY_TARGET <= HWY_AVX2  // F16C
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::LoadU(df16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  alignas(64) float wide[hn::MaxLanes(d)];
  for (size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = to_float(p[i]);
  return hn::Load(d, wide);
#endif
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, Bf16* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto chosen = hn::IfThenElse(
      hn::MaskFromVec(hn::BitCast(du, hn::VecFromMask(d, hn::IsNaN(v)))), quiet, rounded);
  const auto high = hn::BitCast(di, hn::ShiftRight<16>(chosen));
  hn::StoreU(hn::DemoteTo(du16, high), du16, reinterpret_cast<uint16_t*>(p));
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, F16* p) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> df16;
  hn::StoreU(hn::DemoteTo(df16, v), df16, reinterpret_cast<hwy::float16_t*>(p));
#else
  alignas(64) float wide[hn::MaxLanes(d)];
  hn::Store(v, d, wide);
  for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = to_f16(wide[i]);
#endif
}

// ---- the first n lanes, n < Lanes(d); loads set the others to zero, stores do not touch them
template <class D, class T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* p, size_t n) {
#if HWY_TARGET <= HWY_AVX2  // masked loads that do not fault
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) return hn::MaskedLoad(hn::FirstN(d, n), d, p);
#endif
  alignas(64) T lanes[hn::MaxLanes(d)] = {};
  std::memcpy(lanes, p, n * sizeof(T));
  return load(d, lanes);
}
// Sets the others to `fill`.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* p, size_t n, hn::TFromD<D> fill) {
  return hn::IfThenElse(hn::FirstN(d, n), load_n(d, p, n), hn::Set(d, fill));
}
template <class D, class T>
HWY_INLINE void store_n(D d, hn::Vec<D> v, T* p, size_t n) {
#if HWY_TARGET <= HWY_AVX2
  if constexpr (std::is_same_v<T, hn::TFromD<D>>)
    return hn::BlendedStore(v, hn::FirstN(d, n), d, p);
#endif
  alignas(64) T lanes[hn::MaxLanes(d)];
  store(d, v, lanes);
  std::memcpy(p, lanes, n * sizeof(T));
}

// y[i] = f(d, x0[i], x1[i]...) for i in [0, n). The remainder uses the same code. May run in place.
template <class D, class Y, class F, class... X>
HWY_INLINE void map(D d, int64_t n, F&& f, Y* y, const X*... x) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d, f(d, load(d, x + i)...), y + i);
  if (i < n) store_n(d, f(d, load_n(d, x + i, n - i)...), y + i, n - i);
}

// ---- maximum and minimum that propagate NaN

// a if that is greater (less), else b: also of NaN and of zeros. On x86 this is what one instruction
// does.
template <class D>
HWY_INLINE hn::Vec<D> greater_of(D, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_ARCH_X86
  return hn::Max(a, b);
#else
  return hn::IfThenElse(hn::Gt(a, b), a, b);
#endif
}
template <class D>
HWY_INLINE hn::Vec<D> less_of(D, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_ARCH_X86
  return hn::Min(a, b);
#else
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
}
template <class D>
HWY_INLINE hn::Vec<D> max_nan(D d, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::IfThenElse(hn::IsNaN(a), a, greater_of(d, a, b));
}
template <class D>
HWY_INLINE hn::Vec<D> min_nan(D d, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::IfThenElse(hn::IsNaN(a), a, less_of(d, a, b));
}

// Calls f(T{}) with the storage type of a float dtype, which was checked before.
template <class F>
HWY_INLINE void with_storage(tenon_dtype t, F&& f) {
  switch (t) {
    case TENON_DTYPE_F32:
      return f(float{});
    case TENON_DTYPE_F16:
      return f(F16{});
    case TENON_DTYPE_BF16:
      return f(Bf16{});
    default:
      return f(double{});
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
