// SPDX-License-Identifier: Apache-2.0
// Operators, as Python computes them. Integers have 64 bits; results outside are an error.
#pragma once

#include <string_view>

#include "llm/chat/machine.hpp"

namespace tenon::llm::jinja {

Value binary(Machine& m, std::string_view op, const Value& a, const Value& b);
Value negate(Machine& m, const Value& v);
Value plus(Machine& m, const Value& v);
bool holds(Machine& m, std::string_view op, const Value& a, const Value& b);  // of a comparison

}  // namespace tenon::llm::jinja
