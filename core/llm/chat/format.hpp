// SPDX-License-Identifier: Apache-2.0
// The two ways of Python to fill values into a text.
#pragma once

#include "llm/chat/machine.hpp"

namespace tenon::llm::jinja {

// `format % values`: a tuple, a dict for %(name)s, or one value.
Value format_percent(Machine& m, const Value& format, const Value& values);
// format.format(...)
Value format_braces(Machine& m, const Value& format, const Args& args);

}  // namespace tenon::llm::jinja
