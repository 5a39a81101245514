// SPDX-License-Identifier: Apache-2.0
// Compiles and runs a training step, and measures the held-out loss.
#include "cli/lm/step.hpp"

#include <algorithm>

namespace tenon::lm {
namespace {

constexpr int64_t kHeldOutSteps = 8;  // at most so many batches of a step measure the held-out loss

std::vector<std::string> state_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& s : graph.named(TENON_SPACE_STATE)) names.push_back(s.name);
  std::sort(names.begin(), names.end());
  return names;
}

// A resumed training needs all of its state but the sums; none is made up.
void check_state(const std::string& folder, const Graph& graph, const Store& store,
                 const std::vector<std::string>& sums) {
  const std::vector<std::string> have = store.names(TENON_SPACE_STATE);
  for (const auto& s : graph.named(TENON_SPACE_STATE)) {
    if (std::binary_search(sums.begin(), sums.end(), s.name)) continue;
    if (!std::binary_search(have.begin(), have.end(), s.name))
      throw Error(TENON_NOT_FOUND,
                  folder + "/optimizer.safetensors: state '" + s.name + "' is missing");
    if (store.type(TENON_SPACE_STATE, s.name) != graph.type(s.value))
      throw Error(TENON_SHAPE_MISMATCH,
                  folder + "/optimizer.safetensors: state '" + s.name + "' does not fit the model");
  }
}

}  // namespace

Stepper::Part::Part(const Runtime& runtime, const Store& store, Graph g, const StepOptions& o)
    : graph(std::move(g)), executable(runtime, graph, store, o.executable), context(executable) {}

Stepper::Stepper(const Runtime& runtime, Store& store, const Config& config,
                 const TrainingState& state, const StepOptions& o)
    : store_(store), context_(config.context) {
  const TrainOptions options{.batch = state.batch, .checkpoint = o.checkpoint};
  const bool parts = state.accumulate > 1;
  Graph loss = parts ? accumulate_graph(config, options) : train_graph(config, options);
  std::optional<Graph> apply;
  if (parts) apply.emplace(apply_graph(config, options));
  if (!o.resumed.empty())
    check_state(o.resumed, parts ? *apply : loss, store,
                parts ? state_names(loss) : std::vector<std::string>{});
  store.add_missing(loss);
  if (parts) store.add_missing(*apply);
  loss_ = std::make_unique<Part>(runtime, store, std::move(loss), o);
  if (parts) apply_ = std::make_unique<Part>(runtime, store, std::move(*apply), o);
}

float Stepper::run_part(const TextData& data, const TrainingState& s, int64_t part) {
  // The parts of a step are the rows of the one batch that they stand for.
  loss_->context.set("tokens", {s.batch, context_ + 1},
                     data.batch(s.seed, s.done_steps * s.accumulate + part, s.batch, context_));
  loss_->context.run();
  return loss_->context.get_scalar<float>("loss");
}

std::optional<double> Stepper::run(const TextData& data, const TrainingState& s, double lr,
                                   const std::function<bool()>& stop) {
  Context& step = apply_ ? apply_->context : loss_->context;
  step.set("lr", static_cast<float>(lr));
  double sum = 0;
  for (int64_t part = 0; part < s.accumulate; ++part) {
    if (part > 0 && stop()) return {};
    sum += run_part(data, s, part);
  }
  if (apply_) step.run();
  return sum / static_cast<double>(s.accumulate);
}

void Stepper::without_sums(const std::function<void()>& save) {
  if (apply_)
    for (const std::string& name : state_names(loss_->graph))
      store_.remove(TENON_SPACE_STATE, name);
  try {
    save();
  } catch (...) {
    store_.add_missing(loss_->graph);
    throw;
  }
  store_.add_missing(loss_->graph);
}

std::vector<std::string> Stepper::reports() const {
  std::vector<std::string> out = {loss_->executable.report()};
  if (apply_) out.push_back(apply_->executable.report());
  return out;
}

HeldOut::HeldOut(const Runtime& runtime, const Store& store, const TextData& data,
                 const Config& config, const TrainingState& state, const StepOptions& o)
    : data_(data), context_(config.context) {
  const int64_t windows = data.held_out_windows(context_);
  batch_ = std::min(state.batch, windows);
  batches_ = std::min(windows / batch_, kHeldOutSteps * state.accumulate);
  executable_.emplace(runtime, eval_graph(config, batch_), store, o.executable);
  run_.emplace(*executable_);
}

double HeldOut::loss() {
  double sum = 0;
  for (int64_t b = 0; b < batches_; ++b) {
    run_->set("tokens", {batch_, context_ + 1}, data_.held_out(b * batch_, batch_, context_));
    run_->run();
    sum += run_->get_scalar<float>("loss");
  }
  return sum / static_cast<double>(batches_);
}

}  // namespace tenon::lm
