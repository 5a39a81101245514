// SPDX-License-Identifier: Apache-2.0
// Vectors of elements taken from one of two tiles. Compilers do not vectorize this loop, in which
// bytes choose among wider elements.
#include "elementwise.hpp"
#include "loops.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise_select.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The lanes whose byte is not 0.
template <class D>
HWY_INLINE hn::Mask<D> chosen(D d, const uint8_t* choose) {
  const hn::Rebind<uint8_t, D> bytes;
  const auto wide = [&] {
    if constexpr (sizeof(hn::TFromD<D>) == 1) {
      return hn::LoadU(bytes, choose);
    } else if constexpr (sizeof(hn::TFromD<D>) == 8) {
      return hn::PromoteTo(d, hn::PromoteTo(hn::Rebind<uint32_t, D>(), hn::LoadU(bytes, choose)));
    } else {
      return hn::PromoteTo(d, hn::LoadU(bytes, choose));
    }
  };
  return hn::Ne(wide(), hn::Zero(d));
}

void select_target(int64_t size, const uint8_t* choose, const void* yes, const void* no, void* y,
                   int64_t n) {
  with_size(size, [&]<class T>(T) HWY_ATTR {
    const hn::ScalableTag<T> d;
    const T *u = static_cast<const T*>(yes), *v = static_cast<const T*>(no);
    T* out = static_cast<T*>(y);
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::IfThenElse(chosen(d, choose + i), hn::LoadU(d, u + i), hn::LoadU(d, v + i)), d,
                 out + i);
    for (; i < n; ++i) out[i] = choose[i] ? u[i] : v[i];
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(select_target);

void select_elements(int64_t size, const uint8_t* choose, const void* yes, const void* no, void* y,
                     int64_t n) {
  HWY_DYNAMIC_DISPATCH(select_target)(size, choose, yes, no, y, n);
}

}  // namespace tenon::cpu
#endif
