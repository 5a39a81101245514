// SPDX-License-Identifier: Apache-2.0
// The table that the host hands to every plugin. One per process: its functions carry no user data.
#pragma once

#include <cstdint>
#include <string>

#include "tenon/backend.h"

namespace tenon::core {

// Lives as long as the process.
const tenon_host* host_table();

// What the entry called on this thread said through refuse() since the last call of this function.
std::string take_refusal();

// What thread_budget() answers; the last Host that was given a number decides.
void set_thread_budget(uint32_t threads);

}  // namespace tenon::core
