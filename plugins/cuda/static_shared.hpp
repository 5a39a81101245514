// SPDX-License-Identifier: Apache-2.0
// Static shared memory of kernels that also take dynamic shared memory. The driver limits their
// sum.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon::cuda {

// An upper bound in bytes for kernel `entry` of device/<file>, compiled with defines "NAME=VALUE".
// 0 for kernels that are launched without dynamic shared memory. unit.cuda.texts compares the bound
// with machine code.
uint32_t static_shared(std::string_view file, std::string_view entry,
                       std::span<const std::string> defines);

}  // namespace tenon::cuda
