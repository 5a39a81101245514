// SPDX-License-Identifier: Apache-2.0
// The memory that a plan needs on each device.
#pragma once

#include <cstdint>
#include <string>

namespace tenon::core {

struct Plan;

// Bytes. Weights and state may be shared with other executables of the same store; intermediates
// are lent by a pool that all executables share.
struct MemoryNeed {
  uint64_t weights = 0, state = 0;
  uint64_t derived = 0;  // weights in a layout of the plugin
  uint64_t intermediates = 0;
  uint64_t constants = 0, inputs = 0, outputs = 0;

  uint64_t total() const {
    return weights + state + derived + intermediates + constants + inputs + outputs;
  }
  std::string text() const;  // "12 bytes (weights 4, intermediates 8)"
};

MemoryNeed memory_need(const Plan& plan, uint32_t device);

}  // namespace tenon::core
