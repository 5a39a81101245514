// SPDX-License-Identifier: Apache-2.0
// The table of rules: which function translates a node. A family of rules is a file
// rules_<family>.cpp with a table; a new op is one row and one function there.
#pragma once

#include <span>
#include <string_view>

#include "import/onnx/scope.hpp"

namespace tenon::core::onnx {

struct Rule {
  std::string_view op;
  int64_t since;  // the first opset that it holds for
  void (*translate)(Call&);
  std::string_view domain = "";
  // Holds up to this opset, if it is not 0; later ones have a row of their own or no rule.
  int64_t until = 0;
};

// clang-format off
#define TENON_ONNX_RULES(X) \
  X(elementwise) X(logic) X(activation) X(cast) X(reduce) X(shape) X(pad) X(create) \
  X(gather) X(scatter) X(order) X(matmul) X(einsum) X(norm) X(softmax) X(attention) \
  X(control) X(rnn) X(quantize) X(conv) X(pool) X(loss) X(sequence) X(vision) X(resample) \
  X(signal) X(random)
// clang-format on

#define TENON_ONNX_DECLARE(family) std::span<const Rule> family##_rules();
TENON_ONNX_RULES(TENON_ONNX_DECLARE)
#undef TENON_ONNX_DECLARE

// The rule of an op at this opset, or null.
const Rule* find_rule(std::string_view domain, std::string_view op, int64_t opset);
// All rows, by family.
std::vector<std::span<const Rule>> all_rules();

}  // namespace tenon::core::onnx
