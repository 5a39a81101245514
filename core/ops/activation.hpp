// SPDX-License-Identifier: Apache-2.0
// The composite kinds of `unary` written in primitives, and the derivative of every kind: what
// unary, activation_backward, linear and swiglu share.
#pragma once

#include <string_view>

#include "ops/record.hpp"
#include "tenon/unary.hpp"

namespace tenon::core {

// A kind with its parameters, defaults filled in.
struct Activation {
  const UnaryInfo& info;
  double alpha;
  double beta;
};

// The activation that a node names; for after its shape rule has passed.
Activation activation(std::string_view kind, double alpha = TENON_UNSET, double beta = TENON_UNSET);

// Shape rules: the kind exists, has the parameters given, and they are finite. `prefix` is that of
// the attributes' names ("act_" in linear).
const UnaryInfo& want_activation(const Infer& i, std::string_view attr, std::string_view kind,
                                 double alpha, double beta, std::string_view prefix = "");

bool is_rounding(UnaryKind kind);  // floor ceil trunc round
bool is_flat(UnaryKind kind);      // these and sign: the slope is zero

// x is in the accumulation type; so are the results.
Value activate(Builder& b, const Activation& act, Value x);  // composite kinds
Value activation_slope(Builder& b, const Activation& act, bool ste, Value x);
Value activation_slope_from_output(Builder& b, const Activation& act, Value y);

}  // namespace tenon::core
