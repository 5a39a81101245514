// SPDX-License-Identifier: Apache-2.0
// The kinds of `unary`, `activation_backward` and all `act` attributes, with the defaults of their
// parameters. Formulas and derivatives: sdk/OPS.md. Primitive kinds have no decomposition;
// the others are composed of them.
#pragma once

#include <span>
#include <string_view>

#include "ops.hpp"

namespace tenon {

enum class UnaryKind : uint8_t {
  // primitive
  neg,
  abs,
  sign,
  exp,
  expm1,
  log,
  log1p,
  sqrt,
  rsqrt,
  floor,
  ceil,
  trunc,
  round,
  sin,
  cos,
  tan,
  atan,
  asin,
  acos,
  sinh,
  cosh,
  tanh,
  erf,
  erfc,
  is_nan,
  is_inf,
  // composite
  reciprocal,
  square,
  relu,
  leaky_relu,
  elu,
  selu,
  sigmoid,
  hard_sigmoid,
  softplus,
  softsign,
  silu,
  hard_swish,
  mish,
  gelu,
  gelu_tanh,
  exp2,
  log2,
  asinh,
  acosh,
  atanh,
};

struct UnaryInfo {
  std::string_view name;
  UnaryKind kind;
  bool primitive;
  bool integer;      // accepts integer dtypes (is_nan, is_inf and floor..round do not)
  bool from_output;  // activation_backward can start from y
  double alpha = 0;  // defaults of the parameters; 0 if there is none
  double beta = 0;
};

inline constexpr UnaryInfo kUnaryKinds[] = {
    {"neg", UnaryKind::neg, true, true, false},
    {"abs", UnaryKind::abs, true, true, false},
    {"sign", UnaryKind::sign, true, true, false},
    {"exp", UnaryKind::exp, true, false, true},
    {"expm1", UnaryKind::expm1, true, false, false},
    {"log", UnaryKind::log, true, false, false},
    {"log1p", UnaryKind::log1p, true, false, false},
    {"sqrt", UnaryKind::sqrt, true, false, true},
    {"rsqrt", UnaryKind::rsqrt, true, false, true},
    {"floor", UnaryKind::floor, true, false, false},
    {"ceil", UnaryKind::ceil, true, false, false},
    {"trunc", UnaryKind::trunc, true, false, false},
    {"round", UnaryKind::round, true, false, false},
    {"sin", UnaryKind::sin, true, false, false},
    {"cos", UnaryKind::cos, true, false, false},
    {"tan", UnaryKind::tan, true, false, false},
    {"atan", UnaryKind::atan, true, false, false},
    {"asin", UnaryKind::asin, true, false, false},
    {"acos", UnaryKind::acos, true, false, false},
    {"sinh", UnaryKind::sinh, true, false, false},
    {"cosh", UnaryKind::cosh, true, false, false},
    {"tanh", UnaryKind::tanh, true, false, true},
    {"erf", UnaryKind::erf, true, false, false},
    {"erfc", UnaryKind::erfc, true, false, false},
    {"is_nan", UnaryKind::is_nan, true, false, false},
    {"is_inf", UnaryKind::is_inf, true, false, false},
    {"reciprocal", UnaryKind::reciprocal, false, false, true},
    {"square", UnaryKind::square, false, true, false},
    {"relu", UnaryKind::relu, false, true, true},
    {"leaky_relu", UnaryKind::leaky_relu, false, false, false, 0.01},
    {"elu", UnaryKind::elu, false, false, false, 1.0},
    {"selu", UnaryKind::selu, false, false, false, 1.6732632423543772, 1.0507009873554805},
    {"sigmoid", UnaryKind::sigmoid, false, false, true},
    {"hard_sigmoid", UnaryKind::hard_sigmoid, false, false, false, 0.2, 0.5},
    {"softplus", UnaryKind::softplus, false, false, false},
    {"softsign", UnaryKind::softsign, false, false, false},
    {"silu", UnaryKind::silu, false, false, false, 1.0},
    {"hard_swish", UnaryKind::hard_swish, false, false, false},
    {"mish", UnaryKind::mish, false, false, false},
    {"gelu", UnaryKind::gelu, false, false, false},
    {"gelu_tanh", UnaryKind::gelu_tanh, false, false, false},
    {"exp2", UnaryKind::exp2, false, false, true},
    {"log2", UnaryKind::log2, false, false, false},
    {"asinh", UnaryKind::asinh, false, false, false},
    {"acosh", UnaryKind::acosh, false, false, false},
    {"atanh", UnaryKind::atanh, false, false, false},
};

// Returns the entry of a kind, or nullptr.
constexpr const UnaryInfo* find_unary(std::string_view name) {
  for (const UnaryInfo& u : kUnaryKinds)
    if (u.name == name) return &u;
  return nullptr;
}
inline double unary_alpha(const UnaryInfo& u, double given) {
  return is_unset(given) ? u.alpha : given;
}
inline double unary_beta(const UnaryInfo& u, double given) {
  return is_unset(given) ? u.beta : given;
}

}  // namespace tenon
