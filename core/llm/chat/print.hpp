// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str() and repr(), and JSON as json.dumps() writes it.
#pragma once

#include <string>
#include <string_view>

#include "llm/chat/machine.hpp"

namespace tenon::llm::jinja {

std::string real_text(double d);  // the shortest text with the same value
std::string to_text(Machine& m, const Value& v);
std::string to_repr(Machine& m, const Value& v);
std::string escape(std::string_view text);  // & < > ' " for HTML

struct JsonStyle {
  bool ascii = false, sort_keys = false, lines = false;
  std::string indent;  // of one level, if `lines`
  std::string item_separator = ", ", key_separator = ": ";
};
std::string to_json(Machine& m, const Value& v, const JsonStyle& style);

}  // namespace tenon::llm::jinja
