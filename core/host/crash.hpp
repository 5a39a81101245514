// SPDX-License-Identifier: Apache-2.0
// Signal handlers that report which plugin call crashed.
#pragma once

namespace tenon::core {

// Installs handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT, once. Each writes a line to
// standard error that names the active plugin call, restores the former handlers and raises the
// signal again. Throws if the system refuses.
void report_crashes();

}  // namespace tenon::core
