// SPDX-License-Identifier: Apache-2.0
// A fine-tuning on the disk: the folder of an adapter, with what it takes to go on.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/args.hpp"
#include "llm/tune/tuner.hpp"

namespace tenon::cli {

// tuning.json: the options of a fine-tuning, and its progress.
struct Tuning {
  std::string model;
  std::vector<std::string> options{};  // as words of a command line
  int64_t total_steps = 0, done_steps = 0;
  uint64_t checksum = 0;                              // of the examples
  std::string choices = "{}";                         // Runtime::choices at the last save
  std::vector<std::pair<int64_t, double>> losses{};   // step, loss per token that it learned
  std::vector<std::pair<int64_t, double>> checked{};  // step, loss of --validation
};

// Errors name the file.
Tuning load_tuning(const std::string& folder);
// Writes all files at once (lm/save.hpp).
void save_tuning(const std::string& folder, const Tuning& tuning, const llm::Tuner& tuner);
// Adapter and optimizer of the same step as `tuning`.
void load_tuned(const std::string& folder, const Tuning& tuning, llm::Tuner& tuner);

const std::vector<Option>& tune_options();
// The factor of the learning rate for a step.
double schedule_factor(const std::string& schedule, int64_t step, int64_t warmup, int64_t total);

}  // namespace tenon::cli
