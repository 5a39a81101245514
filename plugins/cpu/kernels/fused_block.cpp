// SPDX-License-Identifier: Apache-2.0
// Common steps of fused bodies on float, one function each. The function is selected when the body
// is compiled.
#include "fused_block.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_block.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Vector functors, constructed before the loop.
struct Add {
  HWY_INLINE V operator()(V a, V b) const { return hn::Add(a, b); }
};
struct Sub {
  HWY_INLINE V operator()(V a, V b) const { return hn::Sub(a, b); }
};
struct Mul {
  HWY_INLINE V operator()(V a, V b) const { return hn::Mul(a, b); }
};
struct Div {
  HWY_INLINE V operator()(V a, V b) const { return hn::Div(a, b); }
};
struct Max {
  HWY_INLINE V operator()(V a, V b) const { return max_nan(D(), a, b); }
};
struct Min {
  HWY_INLINE V operator()(V a, V b) const { return min_nan(D(), a, b); }
};
struct Neg {
  HWY_INLINE V operator()(V x) const { return hn::Neg(x); }
};
struct Abs {
  HWY_INLINE V operator()(V x) const { return hn::Abs(x); }
};
struct Square {
  HWY_INLINE V operator()(V x) const { return hn::Mul(x, x); }
};
struct Relu {
  HWY_INLINE V operator()(V x) const {
    return hn::IfThenElse(hn::Le(x, hn::Zero(D())), hn::Zero(D()), x);
  }
};
struct Exp {
  HWY_INLINE V operator()(V x) const { return vexp(D(), x); }
};
struct Tanh {
  HWY_INLINE V operator()(V x) const { return vtanh(D(), x); }
};
struct Logistic {
  HWY_INLINE V operator()(V x) const { return vsigmoid(D(), x).value(); }
};

template <class F>
void tiles(const float* a, const float* b, float, float* y, int64_t n) {
  map(
      D(), n, [](D, V u, V v) HWY_ATTR { return F()(u, v); }, y, a, b);
}
template <class F>
void right(const float* a, const float*, float scalar, float* y, int64_t n) {
  const V v = hn::Set(D(), scalar);
  map(
      D(), n, [v](D, V u) HWY_ATTR { return F()(u, v); }, y, a);
}
template <class F>
void left(const float*, const float* b, float scalar, float* y, int64_t n) {
  const V u = hn::Set(D(), scalar);
  map(
      D(), n, [u](D, V v) HWY_ATTR { return F()(u, v); }, y, b);
}
template <class F>
void one(const float* x, const float*, float, float* y, int64_t n) {
  const F f;
  map(
      D(), n, [&f](D, V v) HWY_ATTR { return f(v); }, y, x);
}

template <class F>
BlockRun of_form(BlockForm form) {
  return form == BlockForm::tiles ? tiles<F> : form == BlockForm::right ? right<F> : left<F>;
}
BlockRun binary_target(BinaryKind kind, BlockForm form) {
  switch (kind) {
    case BinaryKind::add:
      return of_form<Add>(form);
    case BinaryKind::sub:
      return of_form<Sub>(form);
    case BinaryKind::mul:
      return of_form<Mul>(form);
    case BinaryKind::div:
      return of_form<Div>(form);
    case BinaryKind::max:
      return of_form<Max>(form);
    case BinaryKind::min:
      return of_form<Min>(form);
    default:
      return nullptr;
  }
}
BlockRun unary_target(const Activation& f) {
  switch (f.kind) {
    case UnaryKind::neg:
      return one<Neg>;
    case UnaryKind::abs:
      return one<Abs>;
    case UnaryKind::square:
      return one<Square>;
    case UnaryKind::relu:
      return one<Relu>;
    case UnaryKind::exp:
      return one<Exp>;
    case UnaryKind::tanh:
      return one<Tanh>;
    case UnaryKind::sigmoid:
      return one<Logistic>;
    case UnaryKind::silu:
      return f.alpha == 1.0 ? one<Silu> : nullptr;
    case UnaryKind::gelu:
      return one<Gelu>;
    default:
      return nullptr;
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(binary_target);
HWY_EXPORT(unary_target);

BlockRun block_binary(BinaryKind kind, BlockForm form) {
  return HWY_DYNAMIC_DISPATCH(binary_target)(kind, form);
}
BlockRun block_unary(const Activation& f) { return HWY_DYNAMIC_DISPATCH(unary_target)(f); }

}  // namespace tenon::cpu
#endif
