// SPDX-License-Identifier: Apache-2.0
// Vectors of order keys (order_key.hpp). Per target: include after foreach_target.h, inside no
// namespace.
#if defined(TENON_CPU_ORDER_KEY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_ORDER_KEY_INL_H_
#undef TENON_CPU_ORDER_KEY_INL_H_
#else
#define TENON_CPU_ORDER_KEY_INL_H_
#endif

#include <hwy/highway.h>

#include "order_key.hpp"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The order of keys. NaN is the result of both searches (up, search_down), and the largest in both
// sort orders.
enum class Direction { up, down, search_down };

template <class T, Direction direction, class D = hn::ScalableTag<OrderInt<T>>>
HWY_INLINE hn::Vec<D> order_keys(D d, const T* p) {
  using O = Ordered<T>;
  using Int = typename O::Int;
  constexpr Int kMax = std::numeric_limits<Int>::max();
  auto key = hn::LoadU(d, reinterpret_cast<const Int*>(p));
  if constexpr (O::kUnsigned) key = hn::Xor(key, hn::Set(d, std::numeric_limits<Int>::min()));
  if constexpr (O::kFloat) {
    const auto largest = hn::Set(d, kMax);
    const auto nan = hn::Gt(hn::And(key, largest), hn::Set(d, O::kInfinity));
    key = hn::Xor(key, hn::And(hn::BroadcastSignBit(key), largest));
    key = hn::IfThenElse(hn::Eq(key, hn::Set(d, Int{-1})), hn::Zero(d), key);
    if constexpr (direction == Direction::search_down)
      return hn::IfThenElse(nan, largest, hn::Not(key));
    key = hn::IfThenElse(nan, largest, key);
  }
  return direction == Direction::up ? key : hn::Not(key);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
