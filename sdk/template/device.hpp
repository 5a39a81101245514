// SPDX-License-Identifier: Apache-2.0
// The one device: host memory, the caller's thread.
#pragma once

#include <tenon/plugin.hpp>

namespace tenon::sample {

std::unique_ptr<sdk::Device> open_device(const sdk::Runtime& runtime, uint32_t index,
                                         uint32_t threads);

}  // namespace tenon::sample
