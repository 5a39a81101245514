// SPDX-License-Identifier: Apache-2.0
// The composite kinds of `unary`, written in primitives, and the derivatives of all kinds. Used by
// unary, activation_backward, linear and swiglu.
#pragma once

#include <string_view>

#include "ops/record.hpp"
#include "tenon/unary.hpp"

namespace tenon::core {

// "none", then the names of all kinds, separated by spaces.
inline constexpr auto kActText = [] {
  constexpr size_t kSize = [] {
    size_t size = 4;
    for (const UnaryInfo& u : kUnaryKinds) size += 1 + u.name.size();
    return size;
  }();
  std::array<char, kSize> text{'n', 'o', 'n', 'e'};
  size_t at = 4;
  for (const UnaryInfo& u : kUnaryKinds) {
    text[at++] = ' ';
    for (const char c : u.name) text[at++] = c;
  }
  return text;
}();
inline constexpr std::string_view kActWords(kActText.data(), kActText.size());
inline constexpr std::string_view kUnaryWords = kActWords.substr(5);

// A kind and its parameters, including defaults.
struct Activation {
  const UnaryInfo& info;
  double alpha;
  double beta;
};

// Returns the activation of a node. Call it after the shape rule has passed.
Activation activation(std::string_view kind, double alpha = TENON_UNSET, double beta = TENON_UNSET);

// For shape rules: checks that the kind exists, has the given parameters, and that they are finite.
// `prefix` precedes the names of the attributes ("act_" in linear).
const UnaryInfo& want_activation(const Infer& i, std::string_view attr, std::string_view kind,
                                 double alpha, double beta, std::string_view prefix = "");

// The attributes act, act_alpha and act_beta of a composite: "none", or any kind that gives a float.
void want_act(const Infer& i, std::string_view act, double alpha, double beta);

bool is_rounding(UnaryKind kind);  // floor ceil trunc round
bool is_flat(UnaryKind kind);      // the rounding kinds and sign: the slope is zero

// x and the results have the accumulation dtype.
Value activate(Builder& b, const Activation& act, Value x);  // composite kinds
Value activation_slope(Builder& b, const Activation& act, bool ste, Value x);
Value activation_slope_from_output(Builder& b, const Activation& act, Value y);

}  // namespace tenon::core
