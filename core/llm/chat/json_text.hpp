// SPDX-License-Identifier: Apache-2.0
// JSON from others, such as bodies of requests: the order of keys stays, and the depth is bounded, because the JSON library
// copies and prints values by recursion.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tenon::llm {

// Throws TENON_CORRUPT, with `where` in front, for text that is no JSON or has more than 200 nested levels.
nlohmann::ordered_json parse_json(std::string_view text, const std::string& where);

}  // namespace tenon::llm
