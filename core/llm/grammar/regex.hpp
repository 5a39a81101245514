// SPDX-License-Identifier: Apache-2.0
// Regular expressions as grammars. Those of ECMA 262 without what needs memory (back references) or looks around.
//
// Supported: characters, `.`, classes with ranges and ^, \d \w \s and their inverses, escapes of characters, \xHH, \uHHHH,
// \u{H...}, groups, |, and the quantifiers * + ? {m} {m,} {m,n} (also lazy: the texts are the same). `^` and `$` stand only at
// the ends of the whole expression or of its alternatives.
#pragma once

#include <string_view>

#include "llm/grammar/expression.hpp"

namespace tenon::llm {

// The texts that match as a whole. Throws TENON_INVALID_ARGUMENT.
Part regex(std::string_view pattern);

// The contents of JSON strings that have a match somewhere, unless `^` and `$` say where.
Part regex_in_json_string(std::string_view pattern);

// One character of the set inside of a JSON string, escaped where JSON needs it.
Part json_char(const CharSet& set);

}  // namespace tenon::llm
