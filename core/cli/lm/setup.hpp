// SPDX-License-Identifier: Apache-2.0
// From the options of lm train, or a folder to go on from, to a training that is ready to start.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/lm/checkpoint.hpp"
#include "cli/lm/data.hpp"
#include "cli/lm/lock.hpp"
#include "cli/lm/model.hpp"

namespace tenon::lm {

// Everything of one training run but its graphs.
struct Training {
  Config config;
  TrainingState state;
  std::string out;
  std::optional<FolderLock> lock;  // of out
  std::optional<TextData> data;
  int64_t stop_after = 0;
};

const std::vector<cli::Option>& train_options();

// args, with the run options that the folder of --resume stores where args has none of its own.
cli::Args with_stored_options(const cli::Args& args);

// Fills in the training, reads or makes weights and state. The folder is locked and found fit to be
// written.
void start_training(const cli::Args& args, const Runtime& runtime, Store& store,
                    Training& training);

// What goes on with the training, as typed into a shell.
std::string resume_command(const Training& training, const cli::Args& args);

}  // namespace tenon::lm
