// SPDX-License-Identifier: Apache-2.0
// Vector steps of the epilogue. The activations belong to the elementwise family.
#include "epilogue.hpp"

#include "tenon/blob.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/epilogue.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Calls f with x as a pointer to its type.
template <class T, class F>
void with_operand(const void* x, tenon_dtype dtype, F&& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == TENON_DTYPE_F16) return f(static_cast<const F16*>(x));
    if (dtype == TENON_DTYPE_BF16) return f(static_cast<const Bf16*>(x));
  } else if (dtype == TENON_DTYPE_F32) {
    return f(static_cast<const float*>(x));
  }
  f(static_cast<const T*>(x));
}

template <class T>
void add_scaled(T* sums, double alpha, const void* x, tenon_dtype dtype, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto factor = hn::Set(d, static_cast<T>(alpha));
  if (x == nullptr) {
    if (alpha != 1)
      map(
          d, n, [&](auto, auto s) HWY_ATTR { return hn::Mul(factor, s); }, sums, sums);
    return;
  }
  with_operand<T>(x, dtype, [&](const auto* operand) {
    if constexpr (std::is_same_v<decltype(operand), const float*> && std::is_same_v<T, double>) {
      for (int64_t i = 0; i < n; ++i) sums[i] = alpha * sums[i] + operand[i];
    } else {
      map(
          d, n, [&](auto, auto s, auto b) HWY_ATTR { return hn::MulAdd(factor, s, b); }, sums, sums,
          operand);
    }
  });
}

void AddScaled(tenon_dtype sum, void* sums, double alpha, const void* x, tenon_dtype dtype,
               int64_t n) {
  if (sum == TENON_DTYPE_F64) {
    add_scaled(static_cast<double*>(sums), alpha, x, dtype, n);
  } else {
    add_scaled(static_cast<float*>(sums), alpha, x, dtype, n);
  }
}

void Store(const void* sums, void* y, tenon_dtype dtype, int64_t n) {
  const hn::ScalableTag<float> d;
  const float* x = static_cast<const float*>(sums);
  const auto same = [](auto, auto v) { return v; };
  if (dtype == TENON_DTYPE_F16) map(d, n, same, static_cast<F16*>(y), x);
  if (dtype == TENON_DTYPE_BF16) map(d, n, same, static_cast<Bf16*>(y), x);
}

void Finish(const float* sums, float bias, const float* residual, bool relu, float* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto b = hn::Set(d, bias), zero = hn::Zero(d);
  const auto last = [&](auto v)
                        HWY_ATTR { return relu ? hn::IfThenElse(hn::Le(v, zero), zero, v) : v; };
  if (residual == nullptr)
    return map(
        d, n, [&](auto, auto s) HWY_ATTR { return last(hn::Add(s, b)); }, y, sums);
  map(
      d, n, [&](auto, auto s, auto r) HWY_ATTR { return last(hn::Add(hn::Add(s, b), r)); }, y, sums,
      residual);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(AddScaled);
HWY_EXPORT(Store);
HWY_EXPORT(Finish);

void epilogue_scale(tenon_dtype sum, void* sums, double alpha, const void* bias,
                    tenon_dtype bias_dtype, int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(sum, sums, alpha, bias, bias_dtype, n);
}
void epilogue_add(tenon_dtype sum, void* sums, const void* x, tenon_dtype dtype, int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(sum, sums, 1.0, x, dtype, n);
}
void epilogue_store(tenon_dtype sum, const void* sums, void* y, tenon_dtype dtype, int64_t n) {
  if (dtype == sum) {
    if (y != sums) std::memcpy(y, sums, tenon_dense_bytes(sum, n));
    return;
  }
  HWY_DYNAMIC_DISPATCH(Store)(sums, y, dtype, n);
}

void epilogue_finish(const float* sums, float bias, const float* residual, bool relu, float* y,
                     int64_t n) {
  HWY_DYNAMIC_DISPATCH(Finish)(sums, bias, residual, relu, y, n);
}

}  // namespace tenon::cpu
#endif
