// SPDX-License-Identifier: Apache-2.0
// The filters, by what they work on. filters.cpp has the table.
#pragma once

#include "llm/chat/machine.hpp"

namespace tenon::llm::jinja {

struct FilterRow {
  std::string_view name;
  Builtin filter;
};
const std::vector<FilterRow>& text_filters();
const std::vector<FilterRow>& number_filters();
const std::vector<FilterRow>& sequence_filters();
const std::vector<FilterRow>& order_filters();

// The attribute of an item as filters name it: "a.b.0". `attribute` may be an int.
Value attribute_path(Machine& m, Value item, const Value& attribute, const Value& otherwise);

}  // namespace tenon::llm::jinja
