// SPDX-License-Identifier: Apache-2.0
// Compiling ahead: all that the programs of a plan would do before their first run is done now, by
// several threads.
#pragma once

#include <functional>

#include "plan/plan.hpp"

namespace tenon::core {

// done of total; false: no more of it is wanted. Called in the caller's thread, one call at a time:
// at first, whenever more is done, and now and then meanwhile, so that it may look whether to stop.
using CompileProgress = std::function<bool(uint32_t done, uint32_t total)>;

// Uses up to `threads` threads. Fails with cancelled when progress said so, when those parts are
// over that were under way; else with the failure of the first part that has one.
void prepare_programs(const Plan& plan, uint32_t threads, const CompileProgress& progress);

}  // namespace tenon::core
