// SPDX-License-Identifier: Apache-2.0
// Declares <family>_rows() for each family in families.inl, and lists them in kFamilies (PluginSpec::families).
// tenon_kernel_sources() generates families.inl: the op families that have a file in kernels/. The planner decomposes
// the ops of all other families. Include this inside the plugin's namespace, after kernel.hpp.

#define TENON_FAMILY(family) std::span<const ::tenon::sdk::Row> family##_rows();
#include "families.inl"

inline constexpr ::tenon::sdk::FamilyRows kFamilies[] = {
#define TENON_FAMILY(family) family##_rows,
#include "families.inl"
};
