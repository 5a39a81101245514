// SPDX-License-Identifier: Apache-2.0
// How a command's graphs are compiled and run: --device, --exec, --compile and --no-fallback become
// the options of an executable.
#pragma once

#include "cli/command.hpp"

namespace tenon::cli {

Option exec_option();     // of the commands that run or inspect something
Option compile_option();  // of those that run something
Option fallback_option();

// What compiles ahead shows a line of progress on a terminal, and ends with TENON_CANCELLED on
// Ctrl-C.
ExecutableOptions executable_options(const Args& args);

}  // namespace tenon::cli
