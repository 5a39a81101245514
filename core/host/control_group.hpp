// SPDX-License-Identifier: Apache-2.0
// What the control groups of this process allow it. Knows both versions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace tenon::core {

// root: where control groups are mounted; groups: the text of /proc/self/cgroup.
// The quota in processors, rounded up; UINT32_MAX without one.
uint32_t control_group_threads(const std::filesystem::path& root, std::string_view groups);
// The limit of memory in bytes; UINT64_MAX without one.
uint64_t control_group_memory(const std::filesystem::path& root, std::string_view groups);

// The same of this process, asked of the system once.
uint32_t control_group_threads();
uint64_t control_group_memory();

}  // namespace tenon::core
