// SPDX-License-Identifier: Apache-2.0
// The unary functions and their slopes in double: for f64, and for other float dtypes where a kind
// has no vector form.
#include <cmath>
#include <limits>

#include "elementwise.hpp"

namespace tenon::cpu {
namespace {

constexpr double kInvSqrt2 = 0x1.6a09e667f3bcdp-1, kInvSqrt2Rest = -0x1.bdd3413b26456p-55;
constexpr double kFourOverPi = 1.2732395447351628;
constexpr double kInvSqrt2Pi = 0.39894228040143268;
constexpr double kLn2 = 0.6931471805599453;
constexpr double kTwoOverSqrtPi = 1.1283791670955126;
constexpr long double kGeluScale = 1.595769121605730711759784L;  // 2 sqrt(2/pi)

// 1/(1 + e^-x) without overflow.
double sigmoid(double x) {
  if (x < 0) {
    const double e = std::exp(x);
    return e / (1 + e);
  }
  return 1 / (1 + std::exp(-x));
}
// The same for an argument with more digits than a double, because rounding it would cost up to |u|
// ulp.
double sigmoid_of(long double u) {
  const double near = static_cast<double>(u);
  const double rest = std::isfinite(near) ? static_cast<double>(u - near) : 0;
  return sigmoid(near) * (1 + rest * sigmoid(-near));
}
double clamp01(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
// erfc(-x/sqrt 2)/2. Corrects the rounding of the argument z: the relative slope of erfc is close
// to z + sqrt(z^2 + 4/pi).
double normal_cdf(double x) {
  const double bounded = x > 9 ? 9 : x < -40 ? -40 : x;  // beyond, the result is 1 or 0
  const double z = -bounded * kInvSqrt2;
  const double rest = std::fma(-bounded, kInvSqrt2, -z) - bounded * kInvSqrt2Rest;
  return std::erfc(z) * (1 - rest * (z + std::sqrt(z * z + kFourOverPi))) / 2;
}
// e^(-scale x^2), corrected for the rounding of x^2.
double bell(double x, double scale) {
  const double bounded = x > 60 ? 60 : x < -60 ? -60 : x;  // beyond, the result is 0
  const double square = bounded * bounded, rest = std::fma(bounded, bounded, -square);
  return std::exp(-scale * square) * (1 - scale * rest);
}
long double gelu_tanh_argument(double given) {
  const long double x = given;
  return kGeluScale * (x + 0.044715 * x * x * x);
}
// e (e + 2): tanh(softplus x) = w / (w + 2).
double mish_weight(double e) { return e * (e + 2); }

double slope_at_output(const Activation& f, double y) {
  switch (f.kind) {
    case UnaryKind::sigmoid:
      return y * (1 - y);
    case UnaryKind::tanh:
      return (1 - y) * (1 + y);
    case UnaryKind::exp:
      return y;
    case UnaryKind::exp2:
      return y * kLn2;
    case UnaryKind::sqrt:
      return 0.5 / y;
    case UnaryKind::rsqrt:
      return -0.5 * y * y * y;
    case UnaryKind::reciprocal:
      return -y * y;
    default:
      return y > 0 ? 1 : 0;  // relu
  }
}

// alpha x + beta, rounded twice: the rounding decides what is an end, on all devices alike. The
// detour over double keeps compilers from contracting product and sum to one rounding.
float hard_sigmoid_slope(const Activation& f, double x) {
  const auto a = static_cast<float>(f.alpha), b = static_cast<float>(f.beta);
  const auto product = static_cast<float>(a * x);
  const auto z = static_cast<float>(static_cast<double>(product) + b);
  return z > 0 && z < 1 ? a : 0;
}

}  // namespace

double unary_value(const Activation& f, double x) {
  const double a = f.alpha, b = f.beta;
  switch (f.kind) {
    case UnaryKind::neg:
      return -x;
    case UnaryKind::abs:
      return std::fabs(x);
    case UnaryKind::sign:
      return sign(x);
    case UnaryKind::exp:
      return std::exp(x);
    case UnaryKind::expm1:
      return std::expm1(x);
    case UnaryKind::log:
      return std::log(x);
    case UnaryKind::log1p:
      return std::log1p(x);
    case UnaryKind::sqrt:
      return std::sqrt(x);
    case UnaryKind::rsqrt:
      return 1 / std::sqrt(x);
    case UnaryKind::floor:
      return std::floor(x);
    case UnaryKind::ceil:
      return std::ceil(x);
    case UnaryKind::trunc:
      return std::trunc(x);
    case UnaryKind::round:
      return std::nearbyint(x);
    case UnaryKind::sin:
      return std::sin(x);
    case UnaryKind::cos:
      return std::cos(x);
    case UnaryKind::tan:
      return std::tan(x);
    case UnaryKind::atan:
      return std::atan(x);
    case UnaryKind::asin:
      return std::asin(x);
    case UnaryKind::acos:
      return std::acos(x);
    case UnaryKind::sinh:
      return std::sinh(x);
    case UnaryKind::cosh:
      return std::cosh(x);
    case UnaryKind::tanh:
      return std::tanh(x);
    case UnaryKind::erf:
      return std::erf(x);
    case UnaryKind::erfc:
      return std::erfc(x);
    case UnaryKind::is_nan:
      return std::isnan(x);
    case UnaryKind::is_inf:
      return std::isinf(x);
    case UnaryKind::reciprocal:
      return 1 / x;
    case UnaryKind::square:
      return x * x;
    case UnaryKind::relu:
      return x <= 0 ? 0 : x;
    case UnaryKind::leaky_relu:
      return x < 0 ? a * x : x;
    case UnaryKind::elu:
      return x < 0 ? a * std::expm1(x) : x;
    case UnaryKind::selu:
      return b * (x < 0 ? a * std::expm1(x) : x);
    case UnaryKind::sigmoid:
      return sigmoid(x);
    case UnaryKind::hard_sigmoid:
      return clamp01(a * x + b);
    case UnaryKind::softplus:
      return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x)));
    case UnaryKind::softsign:
      return x / (1 + std::fabs(x));
    case UnaryKind::silu:
      return x * sigmoid_of(static_cast<long double>(a) * x);
    case UnaryKind::hard_swish:
      return x * clamp01(x / 6 + 0.5);
    case UnaryKind::mish: {
      const double w = mish_weight(std::exp(x > 60 ? 60 : x));
      return x * (w / (w + 2));
    }
    case UnaryKind::gelu:
      return x * normal_cdf(x);
    case UnaryKind::gelu_tanh:
      return x * sigmoid_of(gelu_tanh_argument(x));
    case UnaryKind::exp2:
      return std::exp2(x);
    case UnaryKind::log2:
      return std::log2(x);
    case UnaryKind::asinh:
      return std::asinh(x);
    case UnaryKind::acosh:
      return std::acosh(x);
    case UnaryKind::atanh:
      return std::atanh(x);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double unary_slope(const Activation& f, double x) {
  if (f.from_output) return slope_at_output(f, x);
  const double a = f.alpha, b = f.beta;
  switch (f.kind) {
    case UnaryKind::neg:
      return -1;
    case UnaryKind::abs:
      return sign(x);
    case UnaryKind::sign:
      return 0;
    case UnaryKind::exp:
    case UnaryKind::expm1:
      return std::exp(x);
    case UnaryKind::log:
      return 1 / x;
    case UnaryKind::log1p:
      return 1 / (1 + x);
    case UnaryKind::sqrt:
      return 0.5 / std::sqrt(x);
    case UnaryKind::rsqrt: {
      const double y = 1 / std::sqrt(x);
      return -0.5 * y * y * y;
    }
    case UnaryKind::floor:
    case UnaryKind::ceil:
    case UnaryKind::trunc:
    case UnaryKind::round:
      return f.ste ? 1 : 0;
    case UnaryKind::sin:
      return std::cos(x);
    case UnaryKind::cos:
      return -std::sin(x);
    case UnaryKind::tan: {
      const double y = std::tan(x);
      return 1 + y * y;
    }
    case UnaryKind::atan: {  // x^2 must not overflow
      const double r = 1 / x;
      return x > 1 || x < -1 ? r * r / (1 + r * r) : 1 / (1 + x * x);
    }
    case UnaryKind::asin:
      return 1 / std::sqrt((1 - x) * (1 + x));
    case UnaryKind::acos:
      return -1 / std::sqrt((1 - x) * (1 + x));
    case UnaryKind::sinh:
      return std::cosh(x);
    case UnaryKind::cosh:
      return std::sinh(x);
    case UnaryKind::tanh:
      return 4 * sigmoid(2 * x) * sigmoid(-2 * x);
    case UnaryKind::erf:
      return kTwoOverSqrtPi * bell(x, 1);
    case UnaryKind::erfc:
      return -kTwoOverSqrtPi * bell(x, 1);
    case UnaryKind::is_nan:
    case UnaryKind::is_inf:
      return 0;
    case UnaryKind::reciprocal: {
      const double y = 1 / x;
      return -y * y;
    }
    case UnaryKind::square:
      return 2 * x;
    case UnaryKind::relu:
      return x > 0 ? 1 : 0;
    case UnaryKind::leaky_relu:
      return x < 0 ? a : 1;
    case UnaryKind::elu:
      return x < 0 ? a * std::exp(x) : 1;
    case UnaryKind::selu:
      return b * (x < 0 ? a * std::exp(x) : 1);
    case UnaryKind::sigmoid:
      return sigmoid(x) * sigmoid(-x);
    case UnaryKind::hard_sigmoid:
      return a * x + b > 0 && a * x + b < 1 ? a : 0;
    case UnaryKind::softplus:
      return sigmoid(x);
    case UnaryKind::softsign: {
      const double r = 1 / (1 + std::fabs(x));
      return r * r;
    }
    case UnaryKind::silu: {
      const long double u = static_cast<long double>(a) * x;
      return sigmoid_of(u) * (1 + a * x * sigmoid_of(-u));
    }
    case UnaryKind::hard_swish:
      return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5;
    case UnaryKind::mish: {
      const double e = std::exp(x > 60 ? 60 : x), w = mish_weight(e);
      return w / (w + 2) + x * (x > 60 ? 0 : 4 * (e / (w + 2)) * ((e + 1) / (w + 2)));
    }
    case UnaryKind::gelu:
      return normal_cdf(x) + x * kInvSqrt2Pi * bell(x, 0.5);
    case UnaryKind::gelu_tanh: {
      const long double u = gelu_tanh_argument(x);
      const double limited = x > 1e6 ? 1e6 : x < -1e6 ? -1e6 : x;
      const double inner = static_cast<double>(kGeluScale) * (1 + 0.134145 * limited * limited);
      const double value = sigmoid_of(u);
      return value + x * sigmoid_of(-u) * value * inner;
    }
    case UnaryKind::exp2:
      return std::exp2(x) * kLn2;
    case UnaryKind::log2:
      return 1 / (x * kLn2);
    case UnaryKind::asinh:  // x^2 must not overflow
      return 1 / std::hypot(x, 1);
    case UnaryKind::acosh:
      return 1 / (std::sqrt(x - 1) * std::sqrt(x + 1));
    case UnaryKind::atanh:
      return 1 / (1 - x) / (1 + x);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void unary_tile(const Activation& f, const double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = unary_value(f, x[i]);
}
void unary_tile(const Activation& f, const float* x, float* y, int64_t n) {
  if (unary_vector(f, x, y, n) || unary_wide(f, x, y, n)) return;
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(unary_value(f, x[i]));
}
void slope_tile(const Activation& f, const double* x, const double* dy, double* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * unary_slope(f, x[i]);
}
void slope_tile(const Activation& f, const float* x, const float* dy, float* dx, int64_t n) {
  if (slope_vector(f, x, dy, dx, n) || slope_wide(f, x, dy, dx, n)) return;
  if (f.kind == UnaryKind::hard_sigmoid) {
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * hard_sigmoid_slope(f, x[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) dx[i] = static_cast<float>(dy[i] * unary_slope(f, x[i]));
}

}  // namespace tenon::cpu
