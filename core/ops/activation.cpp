// SPDX-License-Identifier: Apache-2.0
// Formulas of specification 1.3. Each propagates NaN, does not overflow if the result is finite,
// and can be differentiated again: branches that `where` drops have finite derivatives.
#include "ops/activation.hpp"

#include <cmath>
#include <limits>
#include <numbers>

namespace tenon::core {
namespace {

constexpr double kInvSqrt2 = std::numbers::sqrt2 / 2;
constexpr double kInvSqrt2Pi = std::numbers::inv_sqrtpi * kInvSqrt2;
constexpr double kSqrt2OverPi = 2 * kInvSqrt2Pi;
constexpr double kGeluCubic = 0.044715;

Value one(Builder& b, Value like) { return b.scalar(b.dtype(like), 1); }
Value zero(Builder& b, Value like) { return b.scalar(b.dtype(like), 0); }
Value squared(Builder& b, Value x) { return b.times(x, x); }
Value inverse(Builder& b, Value x) { return b.over(one(b, x), x); }
Value magnitude(Builder& b, Value x) { return b.unary("abs", x); }
Value logistic(Builder& b, Value x) { return b.unary("sigmoid", x); }
Value one_minus(Builder& b, Value x) { return b.minus(one(b, x), x); }

// x < 0 ? below : otherwise
Value split(Builder& b, Value x, Value below, Value otherwise) {
  return b.where(b.compare("lt", x, 0), below, otherwise);
}
// [x > 0]
Value step(Builder& b, Value x) {
  return b.where(b.compare("gt", x, 0), b.unary("sign", x), zero(b, x));
}
// clamp(x, 0, 1)
Value clamp01(Builder& b, Value x) { return b.min(b.max(x, zero(b, x)), one(b, x)); }

// e^-|x|, the part of the sigmoid that cannot overflow.
Value decay(Builder& b, Value x) { return b.exp(b.neg(magnitude(b, x))); }

// A number as a sum of two. In f64, `high` has no more digits than an f32, so products of high
// parts are exact. |x| must be below 1e38.
struct Parts {
  Value high, low;
};
Parts parts_of(Builder& b, Value x) {
  const Value high = b.cast(b.cast(x, kF32), kF64);
  return {high, b.minus(x, high)};
}
// The rounding error of `rounded`, the product of x and c = c_high + c_low.
Value product_rest(Builder& b, const Parts& x, double c_high, double c_low, Value rounded) {
  const Value first = b.minus(b.times(x.high, c_high), rounded);
  const Value mixed = b.plus(b.times(x.low, c_high), b.times(x.high, c_low));
  return b.plus(b.plus(first, mixed), b.times(x.low, c_low));
}
// The rounding error of a square.
Value square_rest(Builder& b, const Parts& x, Value rounded) {
  const Value first = b.minus(squared(b, x.high), rounded);
  return b.plus(b.plus(first, b.times(b.times(x.high, x.low), 2)), squared(b, x.low));
}

// The normal distribution function, accurate in its negative tail. There, the rounding error d of
// the argument z causes a relative error of 2·z·d. In f64, which serves as the reference for
// kernels, it is corrected.
Value normal_cdf(Builder& b, Value x) {
  if (b.dtype(x) != kF64) return b.times(b.unary("erfc", b.times(x, -kInvSqrt2)), 0.5);
  // Outside of the bounds, the result is 0 or 1.
  const Value bounded = b.max(b.min(x, b.scalar(kF64, 9)), b.scalar(kF64, -40));
  const Value z = b.times(bounded, -kInvSqrt2);
  const Value rest =
      product_rest(b, parts_of(b, bounded), -0x1.6a09e6p-1, -0x1.9fcef32422cbfp-27, z);
  // 2/√π·e^-z² / erfc(z), the relative slope, is close to z + √(z² + 4/π).
  const Value root = b.unary("sqrt", b.plus(squared(b, z), 4 / std::numbers::pi));
  const Value kept = b.minus(one(b, x), b.times(rest, b.plus(z, root)));
  return b.times(b.times(b.unary("erfc", z), kept), 0.5);
}

// e^(-scale·x²), where scale is a power of two. In f64, the rounding of x² is corrected.
Value bell(Builder& b, Value x, double scale) {
  if (b.dtype(x) != kF64) return b.exp(b.times(squared(b, x), -scale));
  // beyond, the result is 0
  const Value bounded = b.max(b.min(x, b.scalar(kF64, 40)), b.scalar(kF64, -40));
  const Value square = squared(b, bounded);
  const Value rest = b.times(square_rest(b, parts_of(b, bounded), square), scale);
  return b.times(b.exp(b.times(square, -scale)), b.minus(one(b, x), rest));
}

// 2u of gelu_tanh: 2√(2/π)·x·(1 + 0.044715x²)
Value gelu_tanh_argument(Builder& b, Value x) {
  const Value cubic = b.plus(b.times(squared(b, x), kGeluCubic), 1);
  return b.times(b.times(x, cubic), 2 * kSqrt2OverPi);
}

Value gelu_tanh_slope(Builder& b, Value x) {
  const Value v = gelu_tanh_argument(b, x);
  const Value s = logistic(b, v);
  // σ(-2u) is 0 long before 1e6; without the bound, it would be multiplied by infinity.
  const Value bounded = b.min(magnitude(b, x), b.scalar(b.dtype(x), 1e6));
  const Value inner =
      b.times(b.plus(b.times(squared(b, bounded), 3 * kGeluCubic), 1), 2 * kSqrt2OverPi);
  const Value tail = b.times(b.times(s, logistic(b, b.neg(v))), inner);
  return b.plus(s, b.times(x, tail));
}

Value mish_slope(Builder& b, Value x) {
  const Value t = b.unary("tanh", b.unary("softplus", x));
  return b.plus(t, b.times(b.times(x, logistic(b, x)), one_minus(b, squared(b, t))));
}

// 4·e^(-2|x|) / (1 + e^(-2|x|))²: 1 - tanh² without cancellation.
Value tanh_slope(Builder& b, Value x) {
  const Value e = decay(b, b.times(x, 2));
  return b.over(b.times(e, 4), squared(b, b.plus(e, 1)));
}

// 1/(1 + x²) as r²/(r² + q²) with r = 1/max(|x|, 1) and q = min(|x|, 1), which do not overflow.
Value atan_slope(Builder& b, Value x) {
  const Value a = magnitude(b, x);
  const Value r2 = squared(b, inverse(b, b.max(a, one(b, x))));
  return b.over(r2, b.plus(r2, squared(b, b.min(a, one(b, x)))));
}

// 1/√(1 + x²), likewise.
Value asinh_slope(Builder& b, Value x) {
  const Value a = magnitude(b, x);
  const Value r = inverse(b, b.max(a, one(b, x)));
  const Value q = b.min(a, one(b, x));
  return b.times(r, b.unary("rsqrt", b.plus(squared(b, r), squared(b, q))));
}

// 1/√(x² - 1). The product of roots does not overflow.
Value acosh_slope(Builder& b, Value x) {
  return b.times(b.unary("rsqrt", b.minus(x, 1)), b.unary("rsqrt", b.plus(x, 1)));
}

// 1/(1 - x²), likewise.
Value atanh_slope(Builder& b, Value x) {
  return b.times(inverse(b, one_minus(b, x)), inverse(b, b.plus(x, 1)));
}

// Above this, x² may overflow, and asinh and acosh are ln 2x.
double no_square_above(DType t) { return t == kF64 ? 1e150 : 1e15; }
Value log_of_double(Builder& b, Value x) {
  return b.plus(b.log(b.max(x, one(b, x))), std::numbers::ln2);
}

// By log1p, so that results near 0 are accurate: √(1 + x²) - 1 = x²/(√(1 + x²) + 1).
Value area_sinh(Builder& b, Value x) {
  const Value a = magnitude(b, x), most = b.scalar(b.dtype(x), no_square_above(b.dtype(x)));
  const Value s = b.min(a, most), square = squared(b, s);
  const Value root = b.unary("sqrt", b.plus(square, 1));
  const Value small = b.unary("log1p", b.plus(s, b.over(square, b.plus(root, 1))));
  const Value y = b.where(b.compare("gt", a, most), log_of_double(b, a), small);
  return b.where(b.compare("eq", x, 0), x, split(b, x, b.neg(y), y));
}

Value area_cosh(Builder& b, Value x) {
  const Value most = b.scalar(b.dtype(x), no_square_above(b.dtype(x)));
  const Value s = b.min(b.max(x, one(b, x)), most), less = b.minus(s, 1);
  const Value small = b.unary("log1p", b.plus(less, b.unary("sqrt", b.times(less, b.plus(s, 1)))));
  const Value y = b.where(b.compare("gt", x, most), log_of_double(b, x), small);
  const Value none = b.scalar(b.dtype(x), std::numeric_limits<double>::quiet_NaN());
  return b.where(b.compare("lt", x, 1), none, y);
}

Value area_tanh(Builder& b, Value x) {
  const Value a = magnitude(b, x);
  const Value y = b.times(b.unary("log1p", b.over(b.times(a, 2), one_minus(b, a))), 0.5);
  return b.where(b.compare("eq", x, 0), x, split(b, x, b.neg(y), y));
}

// Exact for powers of two, which the quotient of logarithms may miss.
Value binary_log(Builder& b, Value x) {
  const Value y = b.times(b.log(x), std::numbers::log2e);
  const Value whole = b.unary("round", y);
  const Value power = b.binary("pow", b.scalar(b.dtype(x), 2), whole);
  return b.where(b.compare("eq", power, x), whole, y);
}

// 1/√(1 - x²)
Value asin_slope(Builder& b, Value x) {
  return b.unary("rsqrt", b.times(one_minus(b, x), b.plus(x, 1)));
}

Value hard_swish_slope(Builder& b, Value x) {
  const Value inner = b.plus(b.over(x, 3), 0.5);
  return b.where(b.compare("le", x, -3), zero(b, x),
                 b.where(b.compare("ge", x, 3), one(b, x), inner));
}

Value hard_sigmoid_slope(Builder& b, const Activation& act, Value x) {
  const Value z = b.plus(b.times(x, act.alpha), act.beta);
  const Value inside = b.logical("and", b.compare("gt", z, 0), b.compare("lt", z, 1));
  return b.where(inside, b.times(b.unary("sign", z), act.alpha), zero(b, x));
}

// αe^x for x < 0. The exponent is bounded, so that the dropped branch stays finite.
Value elu_slope(Builder& b, Value x, double below, double above) {
  const Value e = b.exp(b.min(x, zero(b, x)));
  return split(b, x, b.times(e, below), b.scalar(b.dtype(x), above));
}

Value silu_slope(Builder& b, double alpha, Value x) {
  const Value v = alpha == 1 ? x : b.times(x, alpha);
  const Value tail = b.plus(b.times(v, logistic(b, b.neg(v))), 1);
  return b.times(logistic(b, v), tail);
}

Value gelu_slope(Builder& b, Value x) {
  const Value density = b.times(bell(b, x, 0.5), kInvSqrt2Pi);
  return b.plus(normal_cdf(b, x), b.times(x, density));
}

Value erf_slope(Builder& b, Value x, double sign) {
  return b.times(bell(b, x, 1), sign * 2 * std::numbers::inv_sqrtpi);
}

// -y³/2
Value rsqrt_slope(Builder& b, Value y) { return b.times(b.times(b.times(y, -0.5), y), y); }

Value primitive_slope(Builder& b, UnaryKind kind, Value x) {
  using enum UnaryKind;
  switch (kind) {
    case neg:
      return b.scalar(b.dtype(x), -1);
    case abs:
      return b.unary("sign", x);
    case exp:
    case expm1:
      return b.exp(x);
    case log:
      return inverse(b, x);
    case log1p:
      return inverse(b, b.plus(x, 1));
    case sqrt:
      return b.times(b.unary("rsqrt", x), 0.5);
    case rsqrt:
      return rsqrt_slope(b, b.unary("rsqrt", x));
    case sin:
      return b.unary("cos", x);
    case cos:
      return b.neg(b.unary("sin", x));
    case tan:
      return b.plus(squared(b, b.unary("tan", x)), 1);
    case atan:
      return atan_slope(b, x);
    case asin:
      return asin_slope(b, x);
    case acos:
      return b.neg(asin_slope(b, x));
    case sinh:
      return b.unary("cosh", x);
    case cosh:
      return b.unary("sinh", x);
    case tanh:
      return tanh_slope(b, x);
    case erf:
      return erf_slope(b, x, 1);
    case erfc:
      return erf_slope(b, x, -1);
    default:
      return b.scalar(b.dtype(x), 0);  // sign and the rounding kinds
  }
}

}  // namespace

Activation activation(std::string_view kind, double alpha, double beta) {
  const UnaryInfo* info = find_unary(kind);
  check(info != nullptr, "activation '", kind, "' is unknown");
  return {*info, unary_alpha(*info, alpha), unary_beta(*info, beta)};
}

const UnaryInfo& want_activation(const Infer& i, std::string_view attr, std::string_view kind,
                                 double alpha, double beta, std::string_view prefix) {
  const UnaryInfo* info = find_unary(kind);
  check(info != nullptr, "attribute ", attr, ": '", kind, "' is unknown");
  const auto parameter = [&](std::string_view name, double given, double otherwise) {
    if (is_unset(given)) return;
    if (otherwise == 0)
      i.fail(Code::invalid_argument, "attribute ", prefix, name, ": kind ", kind,
             " has no such parameter");
    if (!std::isfinite(given))
      i.fail(Code::invalid_argument, "attribute ", prefix, name,
             ": expected a finite number, given ", given);
  };
  parameter("alpha", alpha, info->alpha);
  parameter("beta", beta, info->beta);
  return *info;
}

bool is_flat(UnaryKind kind) { return kind == UnaryKind::sign || is_rounding(kind); }

void want_act(const Infer& i, std::string_view act, double alpha, double beta) {
  if (act == "none") {
    if (!is_unset(alpha) || !is_unset(beta))
      i.fail(Code::invalid_argument, "attribute act_alpha or act_beta: given without an act");
    return;
  }
  const UnaryInfo& info = want_activation(i, "act", act, alpha, beta, "act_");
  if (info.kind == UnaryKind::is_nan || info.kind == UnaryKind::is_inf)
    i.fail(Code::invalid_argument, "attribute act: ", act, " gives bool");
}

bool is_rounding(UnaryKind kind) {
  using enum UnaryKind;
  return kind == floor || kind == ceil || kind == trunc || kind == round;
}

Value activate(Builder& b, const Activation& act, Value x) {
  using enum UnaryKind;
  switch (act.info.kind) {
    case reciprocal:
      return inverse(b, x);
    case square:
      return squared(b, x);
    case relu:
      return b.max(x, zero(b, x));
    case leaky_relu:
      return split(b, x, b.times(x, act.alpha), x);
    case elu:
      return split(b, x, b.times(b.unary("expm1", x), act.alpha), x);
    case selu:
      return split(b, x, b.times(b.unary("expm1", x), act.alpha * act.beta), b.times(x, act.beta));
    case sigmoid: {
      const Value e = decay(b, x);
      return b.over(split(b, x, e, one(b, x)), b.plus(e, 1));
    }
    case hard_sigmoid:
      return clamp01(b, b.plus(b.times(x, act.alpha), act.beta));
    case softplus:
      return b.plus(b.max(x, zero(b, x)), b.unary("log1p", decay(b, x)));
    case softsign:
      return b.over(x, b.plus(magnitude(b, x), 1));
    case silu:
      return b.times(x, logistic(b, act.alpha == 1 ? x : b.times(x, act.alpha)));
    case hard_swish:
      return b.times(x, clamp01(b, b.plus(b.over(x, 6), 0.5)));
    case mish:
      return b.times(x, b.unary("tanh", b.unary("softplus", x)));
    case gelu:
      return b.times(x, normal_cdf(b, x));
    case gelu_tanh:
      return b.times(x, logistic(b, gelu_tanh_argument(b, x)));
    case exp2:
      return b.binary("pow", b.scalar(b.dtype(x), 2), x);
    case log2:
      return binary_log(b, x);
    case asinh:
      return area_sinh(b, x);
    case acosh:
      return area_cosh(b, x);
    case atanh:
      return area_tanh(b, x);
    default:
      fail(Code::internal, "unary: kind ", act.info.name, " is primitive");
  }
}

Value activation_slope(Builder& b, const Activation& act, bool ste, Value x) {
  using enum UnaryKind;
  if (act.info.primitive) return ste ? one(b, x) : primitive_slope(b, act.info.kind, x);
  switch (act.info.kind) {
    case reciprocal:
      return b.neg(squared(b, inverse(b, x)));
    case square:
      return b.times(x, 2);
    case relu:
      return step(b, x);
    case leaky_relu:
      return split(b, x, b.times(b.unary("sign", x), -act.alpha), one(b, x));
    case elu:
      return elu_slope(b, x, act.alpha, 1);
    case selu:
      return elu_slope(b, x, act.alpha * act.beta, act.beta);
    case sigmoid:
      return b.times(logistic(b, x), logistic(b, b.neg(x)));
    case hard_sigmoid:
      return hard_sigmoid_slope(b, act, x);
    case softplus:
      return logistic(b, x);
    case softsign:
      return squared(b, inverse(b, b.plus(magnitude(b, x), 1)));
    case silu:
      return silu_slope(b, act.alpha, x);
    case hard_swish:
      return hard_swish_slope(b, x);
    case mish:
      return mish_slope(b, x);
    case gelu:
      return gelu_slope(b, x);
    case gelu_tanh:
      return gelu_tanh_slope(b, x);
    case exp2:
      return b.times(b.unary("exp2", x), std::numbers::ln2);
    case log2:
      return b.over(b.scalar(b.dtype(x), std::numbers::log2e), x);
    case asinh:
      return asinh_slope(b, x);
    case acosh:
      return acosh_slope(b, x);
    case atanh:
      return atanh_slope(b, x);
    default:
      fail(Code::internal, "activation_backward: no derivative of ", act.info.name);
  }
}

Value activation_slope_from_output(Builder& b, const Activation& act, Value y) {
  using enum UnaryKind;
  switch (act.info.kind) {
    case exp:
      return y;
    case exp2:
      return b.times(y, std::numbers::ln2);
    case sqrt:
      return b.over(b.scalar(b.dtype(y), 0.5), y);
    case rsqrt:
      return rsqrt_slope(b, y);
    case tanh:
      return one_minus(b, squared(b, y));
    case reciprocal:
      return b.neg(squared(b, y));
    case relu:
      return step(b, y);
    case sigmoid:
      return b.times(y, one_minus(b, y));
    default:
      fail(Code::internal, "activation_backward: ", act.info.name, " has no form from its output");
  }
}

}  // namespace tenon::core
