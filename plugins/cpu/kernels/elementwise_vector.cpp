// SPDX-License-Identifier: Apache-2.0
// Vector forms of the unary kinds, of their slopes, and of binary arithmetic, on tiles of float.
#include <cmath>

#include "elementwise.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise_vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE V constant(float x) { return hn::Set(D(), x); }

// alpha x, including the part of the f64 parameter that does not fit a float.
HWY_INLINE Pair<V> scaled(const Activation& f, V x) {
  const float alpha = static_cast<float>(f.alpha);
  const auto p = product(D(), x, constant(alpha));
  const auto lo = hn::MulAdd(x, constant(static_cast<float>(f.alpha - alpha)), p.lo);
  return {p.hi, hn::IfThenElse(hn::Lt(hn::Abs(p.hi), constant(128.f)), lo, hn::Zero(D()))};
}
// For mish: with w = e (e + 2), tanh(softplus x) = w / (w + 2). Above 30 it is 1.
struct Mish {
  Exponential<D> exponential;
  V e, r;  // e^x, 1 / (w + 2)
};
HWY_INLINE Mish mish_parts(V x) {
  const auto exponential =
      vexp_parts(D(), hn::IfThenElse(hn::Gt(x, constant(30.f)), constant(30.f), x), hn::Zero(D()));
  const auto e = exponential.value(), two = constant(2.f);
  return {exponential, e, hn::Div(constant(1.f), hn::MulAdd(e, hn::Add(e, two), two))};
}
// 2^x, exact for whole x: 2^n·e^(f·ln 2) with n the nearest integer, in two factors since 2^n may be
// subnormal.
HWY_INLINE V exp2(V x) {
  const hn::RebindToSigned<D> di;
  const V bounded = clamp(D(), x, -152.f, 130.f), n = hn::Round(bounded);
  const V e = vexp(D(), hn::Mul(hn::Sub(bounded, n), constant(0.693147181f)));
  const auto power = [&](auto k) HWY_ATTR {
    return hn::BitCast(D(), hn::ShiftLeft<23>(hn::Add(k, hn::Set(di, 127))));
  };
  const auto whole = hn::ConvertTo(di, n), half = hn::ShiftRight<1>(whole);
  const V y = hn::Mul(hn::Mul(e, power(half)), power(hn::Sub(whole, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}
// log2, exact for powers of two.
HWY_INLINE V log2(V x) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x), exponent = hn::ShiftRight<23>(bits);
  const V y = hn::Mul(vlog(D(), x), constant(1.44269504f));
  const auto power =
      hn::And(hn::Eq(hn::And(bits, hn::Set(di, 0x7FFFFF)), hn::Zero(di)),
              hn::And(hn::Gt(exponent, hn::Zero(di)), hn::Lt(exponent, hn::Set(di, 255))));
  return hn::IfThenElse(hn::RebindMask(D(), power),
                        hn::ConvertTo(D(), hn::Sub(exponent, hn::Set(di, 127))), y);
}
HWY_INLINE V sign(V x) {
  const auto one = hn::CopySign(constant(1.f), x);
  return hn::IfThenElse(hn::Eq(hn::Abs(x), hn::Abs(x)),
                        hn::IfThenElse(hn::Eq(x, hn::Zero(D())), hn::Zero(D()), one), x);
}

bool unary_vector_target(const Activation& f, const float* x, float* y, int64_t n) {
  const D d;
  const V one = constant(1.f), zero = hn::Zero(d);
  const V alpha = constant(static_cast<float>(f.alpha)),
          beta = constant(static_cast<float>(f.beta));
  const auto run = [&](auto g) HWY_ATTR {
    map(
        d, n, [&](D, V v) HWY_ATTR { return g(v); }, y, x);
  };
  switch (f.kind) {
    case UnaryKind::neg:
      run([](V v) HWY_ATTR { return hn::Neg(v); });
      return true;
    case UnaryKind::abs:
      run([](V v) HWY_ATTR { return hn::Abs(v); });
      return true;
    case UnaryKind::sign:
      run([](V v) HWY_ATTR { return sign(v); });
      return true;
    case UnaryKind::exp:
      run([](V v) HWY_ATTR { return vexp(D(), v); });
      return true;
    case UnaryKind::expm1:
      run([](V v) HWY_ATTR { return vexpm1(D(), v); });
      return true;
    case UnaryKind::log:
      run([](V v) HWY_ATTR { return vlog(D(), v); });
      return true;
    case UnaryKind::sqrt:
      run([](V v) HWY_ATTR { return hn::Sqrt(v); });
      return true;
    case UnaryKind::rsqrt:
      run([&](V v) HWY_ATTR { return hn::Div(one, hn::Sqrt(v)); });
      return true;
    case UnaryKind::floor:
      run([](V v) HWY_ATTR { return hn::Floor(v); });
      return true;
    case UnaryKind::ceil:
      run([](V v) HWY_ATTR { return hn::Ceil(v); });
      return true;
    case UnaryKind::trunc:
      run([](V v) HWY_ATTR { return hn::Trunc(v); });
      return true;
    case UnaryKind::round:
      run([](V v) HWY_ATTR { return hn::Round(v); });
      return true;
    case UnaryKind::tanh:
      run([](V v) HWY_ATTR { return vtanh(D(), v); });
      return true;
    case UnaryKind::erf:
      run([](V v) HWY_ATTR { return verf(D(), v); });
      return true;
    case UnaryKind::reciprocal:
      run([&](V v) HWY_ATTR { return hn::Div(one, v); });
      return true;
    case UnaryKind::square:
      run([](V v) HWY_ATTR { return hn::Mul(v, v); });
      return true;
    case UnaryKind::relu:
      run([&](V v) HWY_ATTR { return hn::IfThenElse(hn::Le(v, zero), zero, v); });
      return true;
    case UnaryKind::leaky_relu:
      run([&](V v) HWY_ATTR { return hn::IfThenElse(hn::Lt(v, zero), hn::Mul(alpha, v), v); });
      return true;
    case UnaryKind::elu:
      run([&](V v) HWY_ATTR {
        return hn::IfThenElse(hn::Lt(v, zero), hn::Mul(alpha, vexpm1(D(), v)), v);
      });
      return true;
    case UnaryKind::selu:
      run([&](V v) HWY_ATTR {
        return hn::Mul(beta, hn::IfThenElse(hn::Lt(v, zero), hn::Mul(alpha, vexpm1(D(), v)), v));
      });
      return true;
    case UnaryKind::sigmoid:
      run([](V v) HWY_ATTR { return vsigmoid(D(), v).value(); });
      return true;
    case UnaryKind::hard_sigmoid:
      run([&](V v) HWY_ATTR { return clamp(D(), hn::MulAdd(alpha, v, beta), 0.f, 1.f); });
      return true;
    case UnaryKind::hard_swish:
      // x + 3 is exact where the result is small.
      run([](V v) HWY_ATTR {
        const auto gate = clamp(D(), hn::Add(v, constant(3.f)), 0.f, 6.f);
        return hn::Mul(v, hn::Mul(gate, constant(1.f / 6)));
      });
      return true;
    case UnaryKind::softplus:
      run([](V v) HWY_ATTR { return vsoftplus(D(), v); });
      return true;
    case UnaryKind::softsign:
      run([&](V v) HWY_ATTR { return hn::Div(v, hn::Add(one, hn::Abs(v))); });
      return true;
    case UnaryKind::silu:
      if (f.alpha == 1.0) {
        run(Silu());
      } else {
        run([&](V v) HWY_ATTR { return vsigmoid(D(), scaled(f, v)).times(v); });
      }
      return true;
    case UnaryKind::mish:
      run([](V v) HWY_ATTR {
        const auto m = mish_parts(v);
        return m.exponential.times(hn::Mul(hn::Mul(hn::Add(m.e, constant(2.f)), m.r), v));
      });
      return true;
    case UnaryKind::gelu:
      run(Gelu());
      return true;
    case UnaryKind::gelu_tanh:
      run([](V v) HWY_ATTR { return vsigmoid(D(), gelu_tanh_argument(D(), v)).times(v); });
      return true;
    case UnaryKind::exp2:
      run([](V v) HWY_ATTR { return exp2(v); });
      return true;
    case UnaryKind::log2:
      run([](V v) HWY_ATTR { return log2(v); });
      return true;
    default:
      return false;
  }
}

// Slopes as functions of the forward's output.
bool output_slope_target(const Activation& f, const float* y, const float* dy, float* dx,
                         int64_t n) {
  const D d;
  const V one = constant(1.f);
  const auto run = [&](auto g) HWY_ATTR {
    map(
        d, n, [&](D, V v, V up) HWY_ATTR { return hn::Mul(up, g(v)); }, dx, y, dy);
  };
  switch (f.kind) {
    case UnaryKind::sigmoid:
      run([&](V v) HWY_ATTR { return hn::Mul(v, hn::Sub(one, v)); });
      return true;
    case UnaryKind::tanh:
      run([&](V v) HWY_ATTR { return hn::Mul(hn::Sub(one, v), hn::Add(one, v)); });
      return true;
    case UnaryKind::exp:
      run([](V v) HWY_ATTR { return v; });
      return true;
    case UnaryKind::exp2:
      run([](V v) HWY_ATTR { return hn::Mul(v, constant(0.693147181f)); });
      return true;
    case UnaryKind::sqrt:
      run([](V v) HWY_ATTR { return hn::Div(constant(0.5f), v); });
      return true;
    case UnaryKind::relu:
      run([&](V v) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(v, hn::Zero(D())), one); });
      return true;
    default:
      return false;
  }
}

// Slopes as functions of the forward's input.
bool slope_vector_target(const Activation& f, const float* x, const float* dy, float* dx,
                         int64_t n) {
  if (f.from_output) return output_slope_target(f, x, dy, dx, n);
  const D d;
  const V one = constant(1.f), zero = hn::Zero(d), inv_sqrt_2pi = constant(0.398942280f);
  const V alpha = constant(static_cast<float>(f.alpha)),
          beta = constant(static_cast<float>(f.beta));
  const auto run = [&](auto g) HWY_ATTR {
    map(
        d, n, [&](D, V v, V up) HWY_ATTR { return hn::Mul(up, g(v)); }, dx, x, dy);
  };
  switch (f.kind) {
    case UnaryKind::neg:
      run([](V) HWY_ATTR { return constant(-1.f); });
      return true;
    case UnaryKind::abs:
      run([](V v) HWY_ATTR { return sign(v); });
      return true;
    case UnaryKind::exp:
    case UnaryKind::expm1:
      run([](V v) HWY_ATTR { return vexp(D(), v); });
      return true;
    case UnaryKind::log:
      run([&](V v) HWY_ATTR { return hn::Div(one, v); });
      return true;
    case UnaryKind::sqrt:
      run([](V v) HWY_ATTR { return hn::Div(constant(0.5f), hn::Sqrt(v)); });
      return true;
    case UnaryKind::square:
      run([](V v) HWY_ATTR { return hn::Add(v, v); });
      return true;
    case UnaryKind::relu:
      run([&](V v) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(v, zero), one); });
      return true;
    case UnaryKind::leaky_relu:
      run([&](V v) HWY_ATTR { return hn::IfThenElse(hn::Lt(v, zero), alpha, one); });
      return true;
    case UnaryKind::elu:
      run([&](V v) HWY_ATTR {
        return hn::IfThenElse(hn::Lt(v, zero), hn::Mul(alpha, vexp(D(), v)), one);
      });
      return true;
    case UnaryKind::selu:
      run([&](V v) HWY_ATTR {
        return hn::Mul(beta, hn::IfThenElse(hn::Lt(v, zero), hn::Mul(alpha, vexp(D(), v)), one));
      });
      return true;
    case UnaryKind::sigmoid:
      run([&](V v) HWY_ATTR {
        const auto s = vsigmoid(D(), v);
        return s.t.times(hn::Mul(s.r, s.r));
      });
      return true;
    case UnaryKind::tanh:
      run([&](V v) HWY_ATTR {
        const auto s = vsigmoid(D(), hn::Add(v, v));
        return s.t.times(hn::Mul(constant(4.f), hn::Mul(s.r, s.r)));
      });
      return true;
    case UnaryKind::hard_sigmoid:
      run([&](V v) HWY_ATTR {
        const auto z = hn::Add(hn::Mul(alpha, v), beta);
        return hn::IfThenElseZero(hn::And(hn::Gt(z, zero), hn::Lt(z, one)), alpha);
      });
      return true;
    case UnaryKind::hard_swish:
      run([&](V v) HWY_ATTR {
        const auto inner = hn::Mul(hn::Add(v, constant(1.5f)), constant(1.f / 3));
        const auto above = hn::IfThenElse(hn::Ge(v, constant(3.f)), one, inner);
        return hn::IfThenZeroElse(hn::Le(v, constant(-3.f)), above);
      });
      return true;
    case UnaryKind::softplus:
      run([](V v) HWY_ATTR { return vsigmoid(D(), v).value(); });
      return true;
    case UnaryKind::softsign:
      run([&](V v) HWY_ATTR {
        const auto r = hn::Div(one, hn::Add(one, hn::Abs(v)));
        return hn::Mul(r, r);
      });
      return true;
    case UnaryKind::silu:
      if (f.alpha == 1.0) {
        run([silu = Silu()](V v) HWY_ATTR { return silu.gate(v).slope; });
      } else {
        run([&](V v) HWY_ATTR {
          const auto u = scaled(f, v);
          const auto s = vsigmoid(D(), u);
          return s.times(hn::MulAdd(u.hi, s.complement(), one));
        });
      }
      return true;
    case UnaryKind::mish:
      run([&](V v) HWY_ATTR {
        // t + x s (1 - t^2) with t = w r, s = e/(1 + e), 1 - t^2 = 4 (1 + e)^2 r^2
        const auto m = mish_parts(v);
        const auto bell = hn::IfThenZeroElse(hn::Gt(v, constant(30.f)),
                                             hn::Mul(constant(4.f), hn::MulAdd(m.e, m.r, m.r)));
        const auto flat = hn::Mul(hn::Add(m.e, constant(2.f)), m.r);
        return m.exponential.times(hn::MulAdd(v, hn::Mul(bell, m.r), flat));
      });
      return true;
    case UnaryKind::gelu:
      run([&](V v) HWY_ATTR {
        const auto normal = vnormal(D(), v);
        const auto slope = hn::Mul(v, inv_sqrt_2pi);
        const auto below = hn::Lt(v, zero);
        const auto part = normal.density.times(
            hn::IfThenElse(below, hn::Add(slope, normal.ratio), hn::Sub(slope, normal.ratio)));
        return hn::IfThenElse(below, part, hn::Add(one, part));
      });
      return true;
    case UnaryKind::gelu_tanh:
      run([&](V v) HWY_ATTR {
        const auto s = vsigmoid(D(), gelu_tanh_argument(D(), v));
        const auto limited = clamp(D(), v, -1e6f, 1e6f);
        const auto inner = hn::MulAdd(hn::Mul(limited, limited), constant(0.134145f), one);
        const auto bend =
            hn::Mul(hn::Mul(limited, s.complement()), hn::Mul(inner, constant(1.59576912f)));
        const auto one_or_nan = hn::Add(one, hn::Sub(v, v));  // infinite x has no slope
        return s.times(hn::Add(bend, one_or_nan));
      });
      return true;
    case UnaryKind::erf:
      run([&](V v) HWY_ATTR {
        return hn::Mul(constant(1.12837917f),
                       vexp_square(D(), clamp(D(), hn::Abs(v), 0.f, 12.f), 1.f).value());
      });
      return true;
    case UnaryKind::erfc:
      run([&](V v) HWY_ATTR {
        return hn::Mul(constant(-1.12837917f),
                       vexp_square(D(), clamp(D(), hn::Abs(v), 0.f, 12.f), 1.f).value());
      });
      return true;
    default:
      return false;
  }
}

bool swiglu_vector_target(const Activation& f, const float* gate, const float* up, float* y,
                          int64_t n) {
  if (f.kind != UnaryKind::silu || f.alpha != 1.0) return false;
  map(
      D(), n, [silu = Silu()](D, V g, V u) HWY_ATTR { return hn::Mul(silu(g), u); }, y, gate, up);
  return true;
}

bool swiglu_slopes_target(const Activation& f, const float* gate, const float* up, const float* dy,
                          float* dgate, float* dup, int64_t n) {
  if (f.kind != UnaryKind::silu || f.alpha != 1.0) return false;
  const D d;
  const Silu silu;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto act = silu.gate(load(d, gate + i));
    const auto v = load(d, dy + i);
    store(d, hn::Mul(hn::Mul(v, load(d, up + i)), act.slope), dgate + i);
    store(d, hn::Mul(act.value, v), dup + i);
  }
  if (i == n) return true;
  const auto rest = static_cast<size_t>(n - i);
  const auto act = silu.gate(load_n(d, gate + i, rest));
  const auto v = load_n(d, dy + i, rest);
  store_n(d, hn::Mul(hn::Mul(v, load_n(d, up + i, rest)), act.slope), dgate + i, rest);
  store_n(d, hn::Mul(act.value, v), dup + i, rest);
  return true;
}

bool binary_vector_target(BinaryKind kind, const float* a, const float* b, float* y, int64_t n) {
  const D d;
  switch (kind) {
    case BinaryKind::add:
      map(
          d, n, [](D, V u, V v) HWY_ATTR { return hn::Add(u, v); }, y, a, b);
      return true;
    case BinaryKind::sub:
      map(
          d, n, [](D, V u, V v) HWY_ATTR { return hn::Sub(u, v); }, y, a, b);
      return true;
    case BinaryKind::mul:
      map(
          d, n, [](D, V u, V v) HWY_ATTR { return hn::Mul(u, v); }, y, a, b);
      return true;
    case BinaryKind::div:
      map(
          d, n, [](D, V u, V v) HWY_ATTR { return hn::Div(u, v); }, y, a, b);
      return true;
    case BinaryKind::max:
      map(
          d, n, [](D, V u, V v) HWY_ATTR { return max_nan(D(), u, v); }, y, a, b);
      return true;
    case BinaryKind::min:
      map(
          d, n, [](D, V u, V v) HWY_ATTR { return min_nan(D(), u, v); }, y, a, b);
      return true;
    default:
      return false;
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(unary_vector_target);
HWY_EXPORT(slope_vector_target);
HWY_EXPORT(swiglu_vector_target);
HWY_EXPORT(swiglu_slopes_target);
HWY_EXPORT(binary_vector_target);

bool unary_vector(const Activation& f, const float* x, float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(unary_vector_target)(f, x, y, n);
}
bool slope_vector(const Activation& f, const float* x, const float* dy, float* dx, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(slope_vector_target)(f, x, dy, dx, n);
}
bool swiglu_vector(const Activation& f, const float* gate, const float* up, float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(swiglu_vector_target)(f, gate, up, y, n);
}
bool swiglu_slopes_vector(const Activation& f, const float* gate, const float* up, const float* dy,
                          float* dgate, float* dup, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(swiglu_slopes_target)(f, gate, up, dy, dgate, dup, n);
}
bool binary_vector(BinaryKind kind, const float* a, const float* b, float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(binary_vector_target)(kind, a, b, y, n);
}

}  // namespace tenon::cpu
#endif
