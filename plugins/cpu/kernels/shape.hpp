// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the shape family.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cpu {

sdk::Kernel make_pad(const sdk::op::pad& n, const sdk::Node& node);

}  // namespace tenon::cpu
