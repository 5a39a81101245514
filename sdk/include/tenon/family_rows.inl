// SPDX-License-Identifier: Apache-2.0
// Declares <family>_rows() for each family in families.inl, and their list, kFamilies (PluginSpec::families). Include this
// inside the plugin's namespace, after kernel.hpp. tenon_kernel_sources() writes families.inl: the op families that have
// a file in kernels/. The planner decomposes the ops of all other families.

#define TENON_FAMILY(family) std::span<const ::tenon::sdk::Row> family##_rows();
#include "families.inl"

inline constexpr ::tenon::sdk::FamilyRows kFamilies[] = {
#define TENON_FAMILY(family) family##_rows,
#include "families.inl"
};
