// SPDX-License-Identifier: Apache-2.0
// What a training takes of memory and disk, estimated before its first step, and what there is.
#pragma once

#include <cstdint>
#include <string>

#include "cli/lm/model.hpp"
#include "cli/lm/step.hpp"

namespace tenon::lm {

// Bytes of a save: weights, the optimizer's state, the records of all steps.
uint64_t save_bytes(const Config& config, const TrainingState& state);

// Before anything is made: weights and state are made in the host's memory first, wherever the
// training runs. Throws out_of_memory with a suggestion.
void check_weights_fit(const Runtime& runtime, const Config& config);

// What the whole training takes on its device, and what the device has; 0: not known.
struct MemoryNeed {
  std::string device, name;
  uint64_t weights = 0, state = 0, intermediates = 0;
  uint64_t room = 0;
  bool on_host = false;
  uint64_t total() const { return weights + state + intermediates; }
};
// The device that takes most, of the graphs as they were planned.
MemoryNeed memory_need(const Runtime& runtime, const Stepper& stepper, const HeldOut& held_out);
// Throws out_of_memory with a suggestion where the intermediates will not fit beside what the
// process has already.
void check_memory(const MemoryNeed& need, const TrainingState& state, bool checkpoint);

// Bytes that a save may take in a folder: free on its disk; 0: not known.
uint64_t disk_room(const std::string& folder);
// Throws where a save will not fit.
void check_disk(const std::string& folder, const Config& config, const TrainingState& state);

}  // namespace tenon::lm
