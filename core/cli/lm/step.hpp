// SPDX-License-Identifier: Apache-2.0
// One training step, whole or in parts whose gradients are added up, and the held-out loss.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/lm/checkpoint.hpp"
#include "cli/lm/data.hpp"
#include "cli/lm/model.hpp"

namespace tenon::lm {

struct StepOptions {
  ExecutableOptions executable{};
  bool checkpoint = false;  // TrainOptions::checkpoint
  std::string resumed;      // folder whose state the store has; empty: all state begins new
};

class Stepper {
 public:
  // Compiles, and makes the state that the store lacks. Resumed: what the folder must have and has
  // not is refused by name.
  Stepper(const Runtime& runtime, Store& store, const Config& config, const TrainingState& state,
          const StepOptions& options);

  // The loss of the step after state.done_steps; absent when stop() became true between two parts,
  // and then nothing changed.
  std::optional<double> run(const TextData& data, const TrainingState& state, double lr,
                            const std::function<bool()>& stop);
  // Between two steps: save() with the store as a saved model has it, without the sums of
  // gradients, which are zero then.
  void without_sums(const std::function<void()>& save);
  // Of its graphs: see Executable::report.
  std::vector<std::string> reports() const;

 private:
  struct Part {
    Part(const Runtime& runtime, const Store& store, Graph graph, const StepOptions& o);
    Graph graph;
    Executable executable;
    Context context;
  };
  float run_part(const TextData& data, const TrainingState& state, int64_t part);

  Store& store_;
  const int64_t context_;
  std::unique_ptr<Part> loss_, apply_;  // apply only with accumulation
};

class HeldOut {
 public:
  HeldOut(const Runtime& runtime, const Store& store, const TextData& data, const Config& config,
          const TrainingState& state, const StepOptions& o);
  double loss();
  std::string report() const { return executable_->report(); }

 private:
  const TextData& data_;
  int64_t context_, batch_ = 1, batches_ = 1;
  std::optional<Executable> executable_;
  std::optional<Context> run_;
};

}  // namespace tenon::lm
