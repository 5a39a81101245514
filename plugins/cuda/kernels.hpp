// SPDX-License-Identifier: Apache-2.0
// The table op -> kernel: the rows of each op family that has a file in kernels/. CMake lists them in families.inl; a
// family without a file is not native, and the planner decomposes its ops.
#pragma once

#include <span>

#include "tenon/kernel.hpp"

namespace tenon::cuda {

#define TENON_FAMILY(family) std::span<const sdk::Row> family##_rows();
#include "families.inl"

inline constexpr sdk::FamilyRows kFamilies[] = {
#define TENON_FAMILY(family) family##_rows,
#include "families.inl"
};

}  // namespace tenon::cuda
