// SPDX-License-Identifier: Apache-2.0
// The limits that the control groups of this process set, in versions 1 and 2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace tenon::core {

// The CPU quota in processors, rounded up; UINT32_MAX without a quota. root: where control groups
// are mounted. groups: the text of /proc/self/cgroup.
uint32_t control_group_threads(const std::filesystem::path& root, std::string_view groups);
// The memory limit in bytes; UINT64_MAX without a limit.
uint64_t control_group_memory(const std::filesystem::path& root, std::string_view groups);

// The same for this process; read once.
uint32_t control_group_threads();
uint64_t control_group_memory();

}  // namespace tenon::core
