// SPDX-License-Identifier: Apache-2.0
// Functions of floats, and their slopes, that Highway's library computes in vectors of f64: rounded
// to float they are as exact as those of elementwise_scalar.cpp, which computes what is out of range.
#include <algorithm>
#include <cmath>

#include "elementwise.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise_wide.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;
using M = hn::Mask<D>;
using Narrow = hn::Rebind<float, D>;

HWY_INLINE V constant(double x) { return hn::Set(D(), x); }
HWY_INLINE V load_wide(const float* x) { return hn::PromoteTo(D(), hn::LoadU(Narrow(), x)); }
HWY_INLINE void store_narrow(V v, float* y) { hn::StoreU(hn::DemoteTo(Narrow(), v), Narrow(), y); }
// False for NaN.
HWY_INLINE M within(V x, double limit) { return hn::Le(hn::Abs(x), constant(limit)); }

// A function, and the arguments that it takes.
template <class F, class Covers>
struct Ranged {
  F f;
  Covers covers;
};
template <class F, class Covers>
Ranged(F, Covers) -> Ranged<F, Covers>;

// Beyond, Highway's reduction of angles is not exact enough.
constexpr double kMostAngle = 39000;
// e^x in f64 neither overflows nor is subnormal.
constexpr double kMostExponent = 700;

struct Angles {
  HWY_INLINE M operator()(V x) const { return within(x, kMostAngle); }
};
struct Exponents {
  HWY_INLINE M operator()(V x) const { return within(x, kMostExponent); }
};
struct Finite {
  HWY_INLINE M operator()(V x) const { return hn::IsFinite(x); }
};
struct Anywhere {
  HWY_INLINE M operator()(V) const { return hn::Eq(hn::Zero(D()), hn::Zero(D())); }
};

// y where x lies in the domain of a function, else NaN.
HWY_INLINE V in_domain(M inside, V y) { return hn::IfThenElse(inside, y, hn::NaN(D())); }
HWY_INLINE V cosh(V x) {
  const V e = hn::Exp(D(), hn::Abs(x)), half = constant(0.5);
  return hn::MulAdd(e, half, hn::Div(half, e));
}
HWY_INLINE V one_minus_square(V x) {
  return hn::Mul(hn::Sub(constant(1), x), hn::Add(constant(1), x));
}
HWY_INLINE V one_plus_square(V x) { return hn::MulAdd(x, x, constant(1)); }
// Highway loses the sign of -0.
HWY_INLINE V sin(V x) { return hn::IfThenElse(hn::Eq(x, hn::Zero(D())), x, hn::Sin(D(), x)); }
HWY_INLINE V tan(V x) { return hn::Div(sin(x), hn::Cos(D(), x)); }

// Calls g with the function of a kind; false if it is none of these.
template <class G>
HWY_INLINE bool with_function(UnaryKind kind, G g) {
  switch (kind) {
    case UnaryKind::sin:
      return g(Ranged{[](V x) HWY_ATTR { return sin(x); }, Angles()});
    case UnaryKind::cos:
      return g(Ranged{[](V x) HWY_ATTR { return hn::Cos(D(), x); }, Angles()});
    case UnaryKind::tan:
      return g(Ranged{[](V x) HWY_ATTR { return tan(x); }, Angles()});
    case UnaryKind::asin:
      return g(Ranged{[](V x) HWY_ATTR { return in_domain(within(x, 1), hn::Asin(D(), x)); },
                      Anywhere()});
    case UnaryKind::acos:
      return g(Ranged{[](V x) HWY_ATTR { return in_domain(within(x, 1), hn::Acos(D(), x)); },
                      Anywhere()});
    case UnaryKind::atan:
      return g(Ranged{[](V x) HWY_ATTR { return hn::Atan(D(), x); }, Finite()});
    case UnaryKind::sinh:
      return g(Ranged{[](V x) HWY_ATTR { return hn::Sinh(D(), x); }, Exponents()});
    case UnaryKind::cosh:
      return g(Ranged{[](V x) HWY_ATTR { return cosh(x); }, Exponents()});
    case UnaryKind::asinh:
      return g(Ranged{[](V x) HWY_ATTR { return hn::Asinh(D(), x); }, Finite()});
    case UnaryKind::acosh:
      return g(Ranged{[](V x)
                          HWY_ATTR { return in_domain(hn::Ge(x, constant(1)), hn::Acosh(D(), x)); },
                      Finite()});
    case UnaryKind::atanh:
      return g(Ranged{[](V x) HWY_ATTR { return in_domain(within(x, 1), hn::Atanh(D(), x)); },
                      [](V x) HWY_ATTR { return hn::Ne(hn::Abs(x), constant(1)); }});
    case UnaryKind::log1p:
      return g(
          Ranged{[](V x) HWY_ATTR { return in_domain(hn::Gt(x, constant(-1)), hn::Log1p(D(), x)); },
                 [](V x) HWY_ATTR { return hn::And(hn::Ne(x, constant(-1)), hn::IsFinite(x)); }});
    default:
      return false;
  }
}

// The same of slopes, as functions of the forward's input.
template <class G>
HWY_INLINE bool with_slope(UnaryKind kind, G g) {
  switch (kind) {
    case UnaryKind::sin:
      return g(Ranged{[](V x) HWY_ATTR { return hn::Cos(D(), x); }, Angles()});
    case UnaryKind::cos:
      return g(Ranged{[](V x) HWY_ATTR { return hn::Neg(sin(x)); }, Angles()});
    case UnaryKind::tan:
      return g(Ranged{[](V x) HWY_ATTR { return one_plus_square(tan(x)); }, Angles()});
    case UnaryKind::asin:
      return g(Ranged{[](V x)
                          HWY_ATTR { return hn::Div(constant(1), hn::Sqrt(one_minus_square(x))); },
                      Finite()});
    case UnaryKind::acos:
      return g(Ranged{[](V x)
                          HWY_ATTR { return hn::Div(constant(-1), hn::Sqrt(one_minus_square(x))); },
                      Finite()});
    case UnaryKind::atan:
      return g(
          Ranged{[](V x) HWY_ATTR { return hn::Div(constant(1), one_plus_square(x)); }, Finite()});
    case UnaryKind::sinh:
      return g(Ranged{[](V x) HWY_ATTR { return cosh(x); }, Exponents()});
    case UnaryKind::cosh:
      return g(Ranged{[](V x) HWY_ATTR { return hn::Sinh(D(), x); }, Exponents()});
    case UnaryKind::asinh:
      return g(Ranged{[](V x)
                          HWY_ATTR { return hn::Div(constant(1), hn::Sqrt(one_plus_square(x))); },
                      Finite()});
    case UnaryKind::atanh:
      return g(
          Ranged{[](V x) HWY_ATTR { return hn::Div(constant(1), one_minus_square(x)); }, Finite()});
    case UnaryKind::log1p:
      return g(Ranged{[](V x) HWY_ATTR { return hn::Div(constant(1), hn::Add(constant(1), x)); },
                      Finite()});
    case UnaryKind::reciprocal:
      return g(Ranged{[](V x) HWY_ATTR {
                        const V y = hn::Div(constant(1), x);
                        return hn::Neg(hn::Mul(y, y));
                      },
                      Finite()});
    default:
      return false;
  }
}

// y[i] = vector(i), a V, where covered(i) holds for its lane, else scalar(i). May run in place.
template <class Covered, class Vector, class Scalar>
HWY_INLINE void run_wide(int64_t n, float* y, Covered covered, Vector vector, Scalar scalar) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const M good = covered(i);
    const V v = vector(i);
    if (HWY_LIKELY(hn::AllTrue(d, good))) {
      store_narrow(v, y + i);
      continue;
    }
    HWY_ALIGN double is_good[hn::MaxLanes(D())];
    HWY_ALIGN float mixed[hn::MaxLanes(D())];
    hn::Store(hn::IfThenElseZero(good, constant(1)), d, is_good);
    store_narrow(v, mixed);
    for (int64_t k = 0; k < lanes; ++k)
      if (is_good[k] == 0) mixed[k] = scalar(i + k);
    std::copy_n(mixed, lanes, y + i);
  }
  for (; i < n; ++i) y[i] = scalar(i);
}

bool unary_wide_target(const Activation& f, const float* x, float* y, int64_t n) {
  return with_function(f.kind, [&](const auto& function) HWY_ATTR {
    run_wide(
        n, y, [&](int64_t i) HWY_ATTR { return function.covers(load_wide(x + i)); },
        [&](int64_t i) HWY_ATTR { return function.f(load_wide(x + i)); },
        [&](int64_t i) { return static_cast<float>(unary_value(f, x[i])); });
    return true;
  });
}

bool slope_wide_target(const Activation& f, const float* x, const float* dy, float* dx, int64_t n) {
  return with_slope(f.kind, [&](const auto& slope) HWY_ATTR {
    run_wide(
        n, dx, [&](int64_t i) HWY_ATTR { return slope.covers(load_wide(x + i)); },
        [&](int64_t i) HWY_ATTR { return hn::Mul(load_wide(dy + i), slope.f(load_wide(x + i))); },
        [&](int64_t i) { return static_cast<float>(dy[i] * unary_slope(f, x[i])); });
    return true;
  });
}

// |a|^b as e^(b log |a|), whose exponent is exact to 1e-13.
HWY_INLINE V power(V a, V b) {
  const D d;
  const V exponent = hn::Mul(b, hn::Log(d, hn::Abs(a)));
  // Beyond, the result is 0 or infinite in float.
  const V limited = hn::Max(hn::Min(exponent, constant(500)), constant(-500));
  const V size = hn::Exp(d, limited), half = hn::Mul(b, constant(0.5));
  // Of a negative a only whole powers are real; odd ones keep its sign.
  const M negative = hn::Lt(a, hn::Zero(d)), whole = hn::Eq(hn::Round(b), b);
  const M odd = hn::AndNot(hn::Eq(hn::Round(half), half), whole);
  const V y = hn::IfThenElse(hn::And(negative, odd), hn::Neg(size), size);
  return in_domain(hn::Or(hn::Not(negative), whole), y);
}

void pow_wide_target(const float* a, const float* b, float* y, int64_t n) {
  run_wide(
      n, y,
      [&](int64_t i) HWY_ATTR {
        const V u = load_wide(a + i);
        const M finite = hn::And(hn::IsFinite(u), hn::IsFinite(load_wide(b + i)));
        return hn::And(finite, hn::Ne(u, hn::Zero(D())));
      },
      [&](int64_t i) HWY_ATTR { return power(load_wide(a + i), load_wide(b + i)); },
      [&](int64_t i) { return std::pow(a[i], b[i]); });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(unary_wide_target);
HWY_EXPORT(slope_wide_target);
HWY_EXPORT(pow_wide_target);

bool unary_wide(const Activation& f, const float* x, float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(unary_wide_target)(f, x, y, n);
}
bool slope_wide(const Activation& f, const float* x, const float* dy, float* dx, int64_t n) {
  return !f.from_output && HWY_DYNAMIC_DISPATCH(slope_wide_target)(f, x, dy, dx, n);
}
void pow_wide(const float* a, const float* b, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(pow_wide_target)(a, b, y, n);
}

}  // namespace tenon::cpu
#endif
