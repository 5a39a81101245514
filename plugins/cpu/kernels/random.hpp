// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the random family.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cpu {

sdk::Kernel make_sample(const sdk::op::sample& n, const sdk::Node& node);

}  // namespace tenon::cpu
