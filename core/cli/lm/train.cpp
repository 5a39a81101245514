// SPDX-License-Identifier: Apache-2.0
// tenon lm train: a byte-level language model from text files.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <numbers>
#include <optional>

#include "cli/command.hpp"
#include "cli/lm/checkpoint.hpp"
#include "cli/lm/data.hpp"
#include "cli/lm/interrupt.hpp"
#include "cli/lm/model.hpp"
#include "cli/lm/progress.hpp"
#include "cli/lm/random.hpp"

namespace tenon::cli {
namespace {

using namespace tenon::lm;

constexpr int64_t kHeldOutBatches = 8;  // at most so many batches measure the held-out loss

const std::vector<Option>& train_options() {
  static const std::vector<Option> options = {
      {"--text", "FILE...", "texts to learn from; the last tenth of each is held out", false, true},
      {"--out", "DIR", "folder of the model (default with --resume: that folder)"},
      {"--resume", "DIR", "go on with the training saved in DIR, to its stored number of steps"},
      {"--config", "FILE", "sizes of the model from a config.json (LlamaForCausalLM)"},
      {"--dim", "N", "width (default 256)"},
      {"--layers", "N", "layers (default 6)"},
      {"--heads", "N", "attention heads (default 8)"},
      {"--kv-heads", "N", "heads of keys and values (default 4)"},
      {"--ffn", "N", "width of the feed-forward part (default 688)"},
      {"--context", "N", "bytes that the model sees at once (default 256)"},
      {"--tied", "", "the head is the embedding"},
      {"--steps", "N", "total number of steps, and the schedule's horizon (default 300)"},
      {"--stop-after", "N", "stop when N steps are done; --resume goes on"},
      {"--batch", "N", "sequences per step (default 8)"},
      {"--lr", "X", "highest learning rate (default 1e-3)"},
      {"--warmup", "N", "steps until it is reached (default 20); then a cosine down to a tenth"},
      {"--seed", "N", "of the initial weights and of the data's order (default 0)"},
      {"--eval-every", "N",
       "steps between measurements of the held-out loss (default: a tenth of the steps)"},
      trace_option(),
  };
  return options;
}

double learning_rate(const TrainingState& s, int64_t step) {
  if (step < s.warmup) return s.lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const double at = static_cast<double>(step - s.warmup) /
                    static_cast<double>(std::max<int64_t>(s.total_steps - s.warmup, 1));
  return s.lr * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * at)));
}

Config config_from(const Args& args) {
  const std::vector<std::string_view> sizes = {"--dim",      "--layers", "--heads",
                                               "--kv-heads", "--ffn",    "--context"};
  if (args.has("--config")) {
    for (const auto name : sizes)
      if (args.has(name))
        throw UsageError("--config already says what " + std::string(name) + " says");
    return read_config(args.text("--config"));
  }
  Config c;
  const auto size = [&](std::string_view name, int64_t otherwise) {
    return args.integer(name, otherwise, 1, 1 << 20);
  };
  c.dim = size("--dim", c.dim);
  c.layers = size("--layers", c.layers);
  c.heads = size("--heads", c.heads);
  c.kv_heads = size("--kv-heads", std::min(c.kv_heads, c.heads));
  c.ffn = size("--ffn", c.ffn);
  c.context = size("--context", c.context);
  c.tied = args.has("--tied");
  try {
    c.check();
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
  return c;
}

void set_initial_weights(Store& store, const Config& config, uint64_t seed) {
  uint64_t tensor = 0;
  for (const WeightSpec& w : weight_specs(config)) {
    std::vector<float> values(static_cast<size_t>(TensorType(f32, w.dims).elements()), 1.0f);
    const uint64_t key = mix(seed, tensor++);
    if (w.init == WeightSpec::Init::normal)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(w.scale * normal(key, i));
    store.set(TENON_SPACE_WEIGHT, w.name, w.dims, values);
  }
}

// Everything of one training run but its loop.
struct Training {
  Config config;
  TrainingState state;
  std::string out;
  int64_t stop_after = 0;
};

void name_differences(const Args& args, const Config& c, const TrainingState& s) {
  const auto differs = [&](std::string_view name, auto given, auto stored) {
    if (args.has(name) && given != stored)
      std::cerr << "tenon: " << name << " " << args.text(name) << " differs from the stored "
                << stored << ", which is kept\n";
  };
  const auto size = [&](std::string_view name, int64_t stored) {
    differs(name, args.integer(name, 0, 0, INT64_MAX), stored);
  };
  size("--dim", c.dim);
  size("--layers", c.layers);
  size("--heads", c.heads);
  size("--kv-heads", c.kv_heads);
  size("--ffn", c.ffn);
  size("--context", c.context);
  size("--steps", s.total_steps);
  size("--batch", s.batch);
  size("--warmup", s.warmup);
  size("--seed", static_cast<int64_t>(s.seed));
  differs("--lr", args.number("--lr", 0, 0, 1e30), s.lr);
  if (args.has("--tied") && !c.tied)
    std::cerr << "tenon: --tied differs from the stored model, which is kept\n";
}

Training start(const Args& args, Store& store, std::optional<TextData>& data) {
  Training t;
  if (args.has("--resume")) {
    const std::string from = args.text("--resume");
    t.config = load_model(from, store);
    t.state = load_training(from, store);
    if (args.has("--config")) {
      const Config given = read_config(args.text("--config"));
      if (given.dim != t.config.dim || given.layers != t.config.layers ||
          given.ffn != t.config.ffn || given.context != t.config.context ||
          given.heads != t.config.heads || given.kv_heads != t.config.kv_heads)
        std::cerr << "tenon: --config differs from the stored model, which is kept\n";
    }
    name_differences(args, t.config, t.state);
    data.emplace(args.has("--text") ? args.list("--text") : t.state.files);
    if (data->checksum() != t.state.data_checksum)
      throw Error(TENON_INVALID_ARGUMENT,
                  from + ": the texts are not those that the training began with");
    t.out = args.text("--out", from);
  } else {
    if (!args.has("--text")) throw UsageError("--text is missing: what to learn from");
    if (!args.has("--out")) throw UsageError("--out is missing: where the model goes");
    t.config = config_from(args);
    t.state.total_steps = args.integer("--steps", 300, 1, 1 << 30);
    t.state.batch = args.integer("--batch", 8, 1, 1 << 20);
    t.state.warmup = args.integer("--warmup", 20, 0, 1 << 30);
    t.state.lr = args.number("--lr", 1e-3, 0, 1e3);
    t.state.seed = static_cast<uint64_t>(args.integer("--seed", 0, 0, INT64_MAX));
    data.emplace(args.list("--text"));
    t.state.files = data->files();
    t.state.data_checksum = data->checksum();
    check_storable(t.state);
    t.out = args.text("--out");
    set_initial_weights(store, t.config, t.state.seed);
  }
  if (data->train_size() <= t.config.context || data->held_out_windows(t.config.context) == 0)
    throw Error(TENON_INVALID_ARGUMENT,
                "the texts are too short: " + std::to_string(data->train_size()) +
                    " bytes to learn from and " + std::to_string(data->held_out_size()) +
                    " held out, each must exceed --context " + std::to_string(t.config.context));
  t.stop_after =
      std::min(args.integer("--stop-after", t.state.total_steps, 0, 1 << 30), t.state.total_steps);
  return t;
}

// A folder that cannot be written is told before the work, not after.
void try_out(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(TENON_IO_ERROR, folder + ": create: " + error.message());
  if (::access(folder.c_str(), W_OK) != 0)
    throw Error(TENON_IO_ERROR, folder + ": cannot be written");
}

// A resumed training needs all of its state; none is made up.
void check_state(const std::string& folder, const Graph& graph, const Store& store) {
  const std::vector<std::string> have = store.names(TENON_SPACE_STATE);
  for (const auto& s : graph.named(TENON_SPACE_STATE)) {
    if (!std::binary_search(have.begin(), have.end(), s.name))
      throw Error(TENON_NOT_FOUND,
                  folder + "/optimizer.safetensors: state '" + s.name + "' is missing");
    if (store.type(TENON_SPACE_STATE, s.name) != graph.type(s.value))
      throw Error(TENON_SHAPE_MISMATCH,
                  folder + "/optimizer.safetensors: state '" + s.name + "' does not fit the model");
  }
}

class HeldOut {
 public:
  HeldOut(const Runtime& runtime, const Store& store, const TextData& data, const Config& config,
          int64_t batch, const std::string& device)
      : data_(data), context_(config.context) {
    const int64_t windows = data.held_out_windows(context_);
    batch_ = std::min(batch, windows);
    batches_ = std::min(windows / batch_, kHeldOutBatches);
    executable_.emplace(runtime, eval_graph(config, batch_), store,
                        ExecutableOptions{.device = device});
    run_.emplace(*executable_);
  }
  double loss() {
    double sum = 0;
    for (int64_t b = 0; b < batches_; ++b) {
      run_->set("tokens", {batch_, context_ + 1}, data_.held_out(b * batch_, batch_, context_));
      run_->run();
      sum += run_->get_scalar<float>("loss");
    }
    return sum / static_cast<double>(batches_);
  }

 private:
  const TextData& data_;
  int64_t context_, batch_ = 1, batches_ = 1;
  std::optional<Executable> executable_;
  std::optional<Context> run_;
};

int train(const Args& args) {
  const Runtime runtime = make_runtime(args);
  TraceFile trace(runtime, args);
  Store store(runtime);
  std::optional<TextData> data;
  Training t = start(args, store, data);
  TrainingState& s = t.state;
  try_out(t.out);

  const std::string device = device_of(args);
  const Graph graph = train_graph(t.config, {.batch = s.batch});
  if (args.has("--resume"))
    check_state(args.text("--resume"), graph, store);
  else
    store.add_missing(graph);
  const Executable executable(runtime, graph, store, {.device = device});
  Context run(executable);
  HeldOut held_out(runtime, store, *data, t.config, s.batch, device);

  const int64_t tokens = s.batch * t.config.context;
  const int64_t eval_every =
      args.integer("--eval-every", std::max<int64_t>(s.total_steps / 10, 1), 1, 1 << 30);
  std::printf("%zu files, %lld bytes to learn from, %lld held out\n", data->files().size(),
              static_cast<long long>(data->train_size()),
              static_cast<long long>(data->held_out_size()));
  const auto measure = [&] {
    const double loss = held_out.loss();
    if (s.held_out.empty() || s.held_out.back().first != s.done_steps)
      s.held_out.emplace_back(s.done_steps, loss);
    return loss;
  };

  const InterruptFlag interrupt;
  Progress progress(s.done_steps, t.stop_after);
  const auto report = [&](double seconds, int64_t steps) {
    const double loss = measure();
    progress.clear();
    std::printf("step %lld/%lld", static_cast<long long>(s.done_steps),
                static_cast<long long>(s.total_steps));
    if (!s.losses.empty()) std::printf("  loss %.4f", s.losses.back().second);
    std::printf("  held-out %.4f", loss);
    if (steps > 0) std::printf("  %.0f tokens/s", static_cast<double>(steps * tokens) / seconds);
    std::printf("\n");
    std::fflush(stdout);
  };
  report(0, 0);
  double mark = progress.seconds();
  int64_t steps_since = 0;
  while (s.done_steps < t.stop_after && !interrupt.raised()) {
    run.set("tokens", {s.batch, t.config.context + 1},
            data->batch(s.seed, s.done_steps, s.batch, t.config.context));
    run.set("lr", static_cast<float>(learning_rate(s, s.done_steps)));
    run.run();
    const double loss = run.get_scalar<float>("loss");
    s.losses.emplace_back(s.done_steps, loss);
    ++s.done_steps;
    ++steps_since;
    if (!std::isfinite(loss))
      throw Error(TENON_NUMERIC_ERROR, "step " + std::to_string(s.done_steps) +
                                           ": the loss is not finite; nothing was saved");
    char remarks[96];
    std::snprintf(remarks, sizeof remarks, "loss %.4f  %.0f tokens/s", loss,
                  static_cast<double>(steps_since * tokens) / (progress.seconds() - mark));
    progress.show(s.done_steps, remarks);
    if (s.done_steps % eval_every == 0 && s.done_steps < t.stop_after) {
      report(progress.seconds() - mark, steps_since);
      mark = progress.seconds();
      steps_since = 0;
    }
  }
  if (s.held_out.back().first != s.done_steps) report(progress.seconds() - mark, steps_since);
  progress.clear();
  if (!std::isfinite(s.held_out.back().second))
    throw Error(TENON_NUMERIC_ERROR, "step " + std::to_string(s.done_steps) +
                                         ": the held-out loss is not finite; nothing was saved");
  save_checkpoint(t.out, t.config, s, store);
  trace.save();
  std::printf("saved %s at step %lld\n", t.out.c_str(), static_cast<long long>(s.done_steps));
  if (interrupt.raised()) {
    std::printf("interrupted; go on with: tenon lm train --resume %s\n", t.out.c_str());
    return kInterrupted;
  }
  return 0;
}

}  // namespace

Command lm_train_command() {
  return {.name = "lm train",
          .summary = "train a byte-level language model from text",
          .usage = "--text FILE... --out DIR [options]",
          .options = train_options(),
          .examples =
              "  tenon lm train --text /usr/share/common-licenses/* --out model --steps 300\n"
              "  tenon lm train --text book.txt --out small --dim 128 --layers 4 --heads 4 "
              "--kv-heads 2 --ffn 344 --context 128\n"
              "  tenon lm train --resume model\n",
          .run = train};
}

}  // namespace tenon::cli
