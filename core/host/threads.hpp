// SPDX-License-Identifier: Apache-2.0
// How many threads this process may use at once: the smaller of its affinity mask and the quota of
// its control group.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace tenon::core {

// At least 1; asked of the system once.
uint32_t available_threads();

// The quota in processors, rounded up; UINT32_MAX without one. root: where control groups are
// mounted; groups: the text of /proc/self/cgroup. Knows both versions.
uint32_t control_group_threads(const std::filesystem::path& root, std::string_view groups);

}  // namespace tenon::core
