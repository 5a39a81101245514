// SPDX-License-Identifier: Apache-2.0
// Converts --device, --memory, --pin, --bucket, --exec, --compile and --no-fallback to the options of
// an executable.
#pragma once

#include "cli/command.hpp"

namespace tenon::cli {

Option exec_option();     // for commands that run or inspect something
Option compile_option();  // for commands that run something
Option fallback_option();
Option memory_option();
Option pin_option();
Option bucket_option();

// Compiling ahead of time shows progress on a terminal, and ends with TENON_CANCELLED on Ctrl-C.
ExecutableOptions executable_options(const Args& args);

}  // namespace tenon::cli
