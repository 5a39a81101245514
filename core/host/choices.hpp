// SPDX-License-Identifier: Apache-2.0
// The choices that a device makes by timing (tenon/choices.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/device.hpp"

namespace tenon::core {

// The choices of a device, sorted; empty if its plugin has none.
std::vector<std::string> choices_of(const Device& device);
// Has no effect if the plugin accepts none.
void take_choice(const Device& device, std::string_view choice);

}  // namespace tenon::core
