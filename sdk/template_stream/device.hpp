// SPDX-License-Identifier: Apache-2.0
// The devices: their memory, streams and events, in terms of the driver.
#pragma once

#include <tenon/build_cache.hpp>
#include <tenon/stream_plugin.hpp>

#include "simulator/driver.hpp"

namespace tenon::sample_stream {

std::unique_ptr<sdk::Device> open_device(const sdk::Runtime& runtime, uint32_t index,
                                         uint32_t threads);

// For makers: true if code for the device of the node may use atomics.
bool has_atomics(const sdk::Node& node);

// Code that Entry::build() compiles.
using CodeCache = sdk::BuildCache<simulator::CodePtr>;
// For makers: the cache of the device of the node. Kernels with equal code share it.
CodeCache& codes_of(const sdk::Node& node);

// An argument of a launch, from one of a kernel.
inline simulator::Part part_of(const sdk::Place& place) { return {place.handle, place.offset}; }

// For Kernel::bind: what launches code with its arguments, and what copies. device: Node::device().
sdk::Launcher launcher(sdk::Device* device, const simulator::CodePtr& code,
                       simulator::Arguments arguments);
sdk::Launcher copier(sdk::Device* device, simulator::Part target, simulator::Part source,
                     uint64_t bytes);

}  // namespace tenon::sample_stream
