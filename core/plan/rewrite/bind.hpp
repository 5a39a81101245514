// SPDX-License-Identifier: Apache-2.0
// First pass: gives the symbols of a graph numbers, so that every type is known from here on.
#pragma once

#include <map>

#include "ir/rewrite.hpp"

namespace tenon::core {

// Fails by name for a symbol that is missing, unknown or negative, and where shapes do not fit. A
// graph without symbols passes through. `map`, when given, gets old value -> new value.
Graph bind(const Graph& graph, const std::map<std::string, int64_t>& symbols,
           ValueMap* map = nullptr);

}  // namespace tenon::core
