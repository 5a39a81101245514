// SPDX-License-Identifier: Apache-2.0
// The choices that a plugin's devices make by timing (tenon/choices.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/device.hpp"

namespace tenon::core {

// Of a device, sorted; none where its plugin tells none.
std::vector<std::string> choices_of(const Device& device);
// Does nothing where its plugin takes none.
void take_choice(const Device& device, std::string_view choice);

}  // namespace tenon::core
