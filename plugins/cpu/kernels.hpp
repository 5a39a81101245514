// SPDX-License-Identifier: Apache-2.0
// The table op -> kernel: kFamilies, the rows of each op family that has a file in kernels/.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cpu {
#include "tenon/family_rows.inl"
}  // namespace tenon::cpu
