// SPDX-License-Identifier: Apache-2.0
// JSON schemas as grammars. Every text of the grammar is valid; some valid texts are not in it, see README.md.
#pragma once

#include <nlohmann/json.hpp>

#include "llm/grammar/expression.hpp"

namespace tenon::llm {

// The rules of a Grammar. Throws TENON_INVALID_ARGUMENT for wrong schemas and TENON_UNSUPPORTED, with the path, for
// keywords that are not supported.
std::vector<Part> json_schema(const nlohmann::ordered_json& schema);

}  // namespace tenon::llm
