// SPDX-License-Identifier: Apache-2.0
// The table op -> kernel: the rows of each op family that has a file in kernels/. CMake lists these
// families in families.inl. A family without a file is not native: the planner decomposes its ops.
#pragma once

#include <span>

#include "tenon/kernel.hpp"

namespace tenon::cpu {

#define TENON_FAMILY(family) std::span<const sdk::Row> family##_rows();
#include "families.inl"

inline constexpr sdk::FamilyRows kFamilies[] = {
#define TENON_FAMILY(family) family##_rows,
#include "families.inl"
};

}  // namespace tenon::cpu
