// SPDX-License-Identifier: Apache-2.0
// The limits that the control groups of this process set, in versions 1 and 2, and the memory that
// they and the machine leave.
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
// The memory in bytes that the groups may still take: the limit less the usage, where cached file
// contents do not count as used. UINT64_MAX without a limit.
uint64_t control_group_memory_left(const std::filesystem::path& root, std::string_view groups);

// The limits of this process; read once.
uint32_t control_group_threads();
uint64_t control_group_memory();
// What this process may still take of the host's memory: the kernel's estimate of available memory
// and free swap, or what its control groups leave if that is less. In bytes; 0 if unknown.
uint64_t available_memory();

}  // namespace tenon::core
