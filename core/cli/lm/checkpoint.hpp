// SPDX-License-Identifier: Apache-2.0
// The model folder: model.safetensors, config.json, tokenizer.json (Hugging Face's names and
// layout), and what training needs to go on: optimizer.safetensors, training.json, loss.svg.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/lm/model.hpp"

namespace tenon::lm {

// How a training run was asked for, and how far it is.
struct TrainingState {
  int64_t total_steps = 0;  // also the schedule's horizon
  int64_t done_steps = 0;
  int64_t batch = 0;       // sequences of a run of the graph
  int64_t accumulate = 1;  // such runs to a step
  int64_t warmup = 0;
  double lr = 0;
  uint64_t seed = 0;
  std::vector<std::string> files;
  uint64_t data_checksum = 0;
  std::vector<std::string> options{};                // of the run, as words of a command line
  std::string choices = "{}";                        // of Runtime::choices, at the last save
  std::vector<std::pair<int64_t, double>> losses;    // step, training loss
  std::vector<std::pair<int64_t, double>> held_out;  // step, held-out loss
};

// What is wrong with a folder is told with the file's name. Weights that the model lacks or does
// not use are refused.
Config load_model(const std::string& folder, Store& store);
TrainingState load_training(const std::string& folder, Store& store);
// TrainingState::options alone.
std::vector<std::string> load_options(const std::string& folder);

// Throws where training.json could not hold a state: JSON knows file names in UTF-8 only.
void check_storable(const TrainingState& state);
// All files at once (save.hpp): whatever is cut off when, the folder is of one step as the
// functions above read it, the old one or the new.
void save_checkpoint(const std::string& folder, const Config& config, const TrainingState& state,
                     const Store& store);

}  // namespace tenon::lm
