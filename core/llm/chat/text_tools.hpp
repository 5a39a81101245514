// SPDX-License-Identifier: Apache-2.0
// What methods of str and filters of texts share. Results borrow from their arguments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "llm/chat/machine.hpp"

namespace tenon::llm::jinja {

enum class Sides : uint8_t { left = 1, right = 2, both = 3 };
std::string stripped(std::string_view text, Sides sides);  // of white space
std::string stripped(std::string_view text, Sides sides, std::string_view chars);
std::string replaced(Machine& m, std::string_view text, std::string_view old, std::string_view with,
                     int64_t most);  // most < 0: all
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t most, bool from_end);
std::vector<std::string_view> split_at_space(std::string_view text, int64_t most, bool from_end);
std::vector<std::string_view> lines_of(std::string_view text, bool keep_ends);
// Fills a text up to a width, as str.ljust ('<'), rjust ('>') and center ('^') do.
std::string justified(Machine& m, std::string_view text, int64_t width, std::string_view fill,
                      char align);
bool is_cased(std::string_view text, bool upper);  // str.isupper, str.islower

}  // namespace tenon::llm::jinja
