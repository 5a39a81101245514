// SPDX-License-Identifier: Apache-2.0
// Estimates, before a training or a generation starts, whether memory and disk are large enough.
#pragma once

#include <cstdint>
#include <string>

#include "cli/lm/model.hpp"
#include "cli/lm/step.hpp"

namespace tenon::lm {

// Bytes of a save: weights, the optimizer's state, the records of all steps.
uint64_t save_bytes(const Config& config, const TrainingState& state);

// Called before weights and state are created, which happens in the host's memory on every device.
// sums: the training keeps sums of gradients (--accumulate). Throws out_of_memory with a hint.
void check_weights_fit(const Config& config, bool sums);

// Called before the weights of `folder` are loaded: weights, and keys and values of all positions.
// Throws out_of_memory with a hint.
void check_generation_fits(const std::string& folder, const Config& config);
// Called before a context is created. report: Executable::report. Throws out_of_memory if the
// device uses the host's memory and intermediates and derived weights do not fit.
void check_intermediates_fit(const Runtime& runtime, const std::string& what,
                             const std::string& report);

// Memory that a training needs on a device, and the device's memory; 0: unknown.
struct MemoryNeed {
  std::string device, name;
  uint64_t weights = 0, state = 0, intermediates = 0;
  uint64_t derived = 0;  // weights in a layout of the plugin, one copy for each graph
  uint64_t sums = 0;     // a second copy of the sums of gradients, during a save
  uint64_t room = 0;
  bool on_host = false;
  uint64_t total() const { return weights + state + intermediates + derived + sums; }
};
// Of each device that the planned graphs use.
std::vector<MemoryNeed> memory_needs(const Runtime& runtime, const Stepper& stepper,
                                     const HeldOut& held_out, const Config& config,
                                     const TrainingState& state);
// Throws out_of_memory with a hint if the intermediates do not fit beside what the process has
// already.
void check_memory(const MemoryNeed& need, const TrainingState& state, bool checkpoint);

// Free bytes on the disk of the folder; 0: unknown.
uint64_t disk_room(const std::string& folder);
// saves: the number of saves that the disk must hold in addition to its present contents. Throws if
// they do not fit.
void check_disk(const std::string& folder, const Config& config, const TrainingState& state,
                uint64_t saves);

}  // namespace tenon::lm
