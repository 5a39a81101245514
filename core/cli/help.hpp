// SPDX-License-Identifier: Apache-2.0
// Help texts, wrapped to a width.
#pragma once

#include <string>
#include <string_view>

#include "cli/command.hpp"

namespace tenon::cli {

// Help for all commands whose names begin with `group`.
std::string overview(size_t columns, std::string_view group = "");
std::string help_of(const Command& command, size_t columns);
// The hint after wrong usage of a command.
std::string usage_of(const Command& command);

}  // namespace tenon::cli
