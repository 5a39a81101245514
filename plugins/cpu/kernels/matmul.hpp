// SPDX-License-Identifier: Apache-2.0
// What the files of the matmul family owe each other.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cpu {

sdk::Kernel make_lora_matmul(const sdk::op::lora_matmul& n, const sdk::Node& node);

}  // namespace tenon::cpu
