// SPDX-License-Identifier: Apache-2.0
// The ops of the shape family whose files are apart; their rows are in shape.cpp.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cuda {

sdk::Kernel make_pad(const sdk::op::pad& n, const sdk::Node& node);

}  // namespace tenon::cuda
