// SPDX-License-Identifier: Apache-2.0
// The table that the host passes to every plugin. One per process, because its functions have no
// user data.
#pragma once

#include <string>

#include "tenon/backend.h"

namespace tenon::core {

// Lives as long as the process.
const tenon_host* host_table();

// Returns, and clears, the text that the entry called on this thread passed to refuse().
std::string take_refusal();

}  // namespace tenon::core
