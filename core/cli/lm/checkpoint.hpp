// SPDX-License-Identifier: Apache-2.0
// The model folder: model.safetensors, config.json, tokenizer.json (Hugging Face's names and
// layout), and the state for resuming: optimizer.safetensors, training.json, loss.svg.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/lm/model.hpp"

namespace tenon::lm {

// The options of a training, and its progress.
struct TrainingState {
  int64_t total_steps = 0;  // also the schedule's horizon
  int64_t done_steps = 0;
  int64_t batch = 0;       // sequences per run of the graph
  int64_t accumulate = 1;  // runs per step
  int64_t warmup = 0;
  double lr = 0;
  uint64_t seed = 0;
  std::vector<std::string> files;
  uint64_t data_checksum = 0;
  std::vector<std::string> options{};              // options of the run, as words of a command line
  std::string choices = "{}";                      // Runtime::choices at the last save
  std::vector<std::pair<int64_t, double>> losses;  // step, training loss
  std::vector<std::pair<int64_t, double>> held_out;  // step, held-out loss
};

// Errors name the file. Weights that are missing or unused are refused before contents are read;
// then before_contents is called, which may throw.
Config load_model(const std::string& folder, Store& store,
                  const std::function<void(const Config&)>& before_contents = {});
TrainingState load_training(const std::string& folder, Store& store);
// Refuses optimizer.safetensors if it has states that no training of this model has. Reads no
// contents.
void check_state_names(const std::string& folder, const Config& config);
// Whether the training has sums of gradients (TrainingState::accumulate).
bool load_accumulates(const std::string& folder);
// Calls `read`, which loads files of a folder to which another training may be saving; again if a
// save came in between, so that all files are of one step.
void read_one_save(const std::string& folder, const std::function<void()>& read);
// Returns TrainingState::options.
std::vector<std::string> load_options(const std::string& folder);

// Throws if training.json cannot hold the state: JSON requires file names in UTF-8.
void check_storable(const TrainingState& state);
// Writes all files atomically (save.hpp): after an interruption at any time, the functions above
// read one complete step, old or new.
void save_checkpoint(const std::string& folder, const Config& config, const TrainingState& state,
                     const Store& store);

}  // namespace tenon::lm
