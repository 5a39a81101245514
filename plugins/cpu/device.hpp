// SPDX-License-Identifier: Apache-2.0
// The only device of the plugin: the cores and the memory of this machine.
#pragma once

#include <memory>
#include <vector>

#include "tenon/plugin.hpp"

namespace tenon::cpu {

std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&);
std::unique_ptr<sdk::Device> open(const sdk::Runtime& runtime, uint32_t index, uint32_t threads);

}  // namespace tenon::cpu
