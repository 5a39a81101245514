// SPDX-License-Identifier: Apache-2.0
// What the files of the random family owe each other.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cuda {

sdk::Kernel make_sample(const sdk::op::sample& n, const sdk::Node& node);

}  // namespace tenon::cuda
