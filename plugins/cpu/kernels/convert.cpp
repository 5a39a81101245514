// SPDX-License-Identifier: Apache-2.0
// Bulk conversion between float and the half-precision dtypes.
#include "convert.hpp"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

constexpr auto kIdentity = [](auto, auto v) HWY_ATTR { return v; };

void widen_bf16(const void* x, float* y, int64_t n) {
  map(hn::ScalableTag<float>(), n, kIdentity, y, static_cast<const Bf16*>(x));
}
void widen_f16(const void* x, float* y, int64_t n) {
  map(hn::ScalableTag<float>(), n, kIdentity, y, static_cast<const F16*>(x));
}
void narrow_bf16(const float* x, void* y, int64_t n) {
  map(hn::ScalableTag<float>(), n, kIdentity, static_cast<Bf16*>(y), x);
}
void narrow_f16(const float* x, void* y, int64_t n) {
  map(hn::ScalableTag<float>(), n, kIdentity, static_cast<F16*>(y), x);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(narrow_f16);

void widen(tenon_dtype from, const void* x, float* y, int64_t n) {
  if (from == TENON_DTYPE_BF16) return HWY_DYNAMIC_DISPATCH(widen_bf16)(x, y, n);
  if (from == TENON_DTYPE_F16) return HWY_DYNAMIC_DISPATCH(widen_f16)(x, y, n);
  std::memcpy(y, x, n * sizeof(float));
}

void narrow(tenon_dtype to, const float* x, void* y, int64_t n) {
  if (to == TENON_DTYPE_BF16) return HWY_DYNAMIC_DISPATCH(narrow_bf16)(x, y, n);
  if (to == TENON_DTYPE_F16) return HWY_DYNAMIC_DISPATCH(narrow_f16)(x, y, n);
  std::memcpy(y, x, n * sizeof(float));
}

}  // namespace tenon::cpu
#endif
