// SPDX-License-Identifier: Apache-2.0
// tenon lm train: a byte-level language model from text files.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <numbers>
#include <optional>

#include "cli/command.hpp"
#include "cli/lm/interrupt.hpp"
#include "cli/lm/lock.hpp"
#include "cli/lm/progress.hpp"
#include "cli/lm/random.hpp"
#include "cli/lm/save.hpp"
#include "cli/lm/step.hpp"
#include "cli/modes.hpp"

namespace tenon::cli {
namespace {

using namespace tenon::lm;

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
      {"--save-every", "N",
       "also save after every N steps; what ends in between goes on from there with --resume"},
      {"--stop-after", "N", "stop when N steps are done; --resume goes on"},
      {"--dtype", "T",
       "of the weights and of what is computed: f32 or bf16, then with f32 masters "
       "(default f32)"},
      {"--batch", "N", "sequences per step (default 8)"},
      {"--accumulate", "N", "a step is N batches whose gradients are added up (default 1)"},
      {"--checkpoint", "", "compute each layer again in the backward pass: less memory, more time"},
      {"--no-fuse", "", "run every node by itself: slower, to compare with"},
      {"--lr", "X", "highest learning rate (default 1e-3)"},
      {"--warmup", "N", "steps until it is reached (default 20); then a cosine down to a tenth"},
      {"--seed", "N", "of the initial weights and of the data's order (default 0)"},
      {"--eval-every", "N",
       "steps between measurements of the held-out loss (default: a tenth of the steps)"},
      exec_option(),
      compile_option(),
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

// f32 where the option is not given.
tenon_dtype dtype_from(const Args& args) {
  const std::string name = args.text("--dtype", "f32");
  if (name == "f32") return f32;
  if (name == "bf16") return bf16;
  throw UsageError("--dtype " + name + ": expected f32 or bf16");
}

Config config_from(const Args& args) {
  const std::vector<std::string_view> sizes = {"--dim",      "--layers", "--heads",
                                               "--kv-heads", "--ffn",    "--context"};
  if (args.has("--config")) {
    for (const auto name : sizes)
      if (args.has(name))
        throw UsageError("--config already says what " + std::string(name) + " says");
    args.refuse({"--tied"}, "--config already says whether the head is the embedding");
    Config c = read_config(args.text("--config"));
    if (args.has("--dtype")) c.dtype = dtype_from(args);
    return c;
  }
  Config c;
  c.dtype = dtype_from(args);
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

// To the nearest, ties to even; finite numbers only.
uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

void set_initial_weights(Store& store, const Config& config, uint64_t seed) {
  uint64_t tensor = 0;
  for (const WeightSpec& w : weight_specs(config)) {
    std::vector<float> values(static_cast<size_t>(TensorType(f32, w.dims).elements()), 1.0f);
    const uint64_t key = mix(seed, tensor++);
    if (w.init == WeightSpec::Init::normal)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(w.scale * normal(key, i));
    if (config.dtype == f32) {
      store.set(TENON_SPACE_WEIGHT, w.name, w.dims, values);
      continue;
    }
    std::vector<uint16_t> rounded(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(), to_bf16);
    store.set(TENON_SPACE_WEIGHT, w.name, {bf16, w.dims}, rounded.data(), rounded.size() * 2);
  }
}

// Everything of one training run but its loop.
struct Training {
  Config config;
  TrainingState state;
  std::string out;
  std::optional<FolderLock> lock;  // of out
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
  size("--accumulate", s.accumulate);
  size("--warmup", s.warmup);
  size("--seed", static_cast<int64_t>(s.seed));
  differs("--lr", args.number("--lr", 0, 0, 1e30), s.lr);
  if (args.has("--dtype") && dtype_from(args) != c.dtype)
    std::cerr << "tenon: --dtype " << args.text("--dtype")
              << " differs from the stored model's, which is kept\n";
  if (args.has("--tied") && !c.tied)
    std::cerr << "tenon: --tied differs from the stored model, which is kept\n";
}

// A folder that cannot be written, or that another training writes to, is told before the work, not
// after.
void take_out(Training& t) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(t.out, error);
  if (error) throw Error(TENON_IO_ERROR, t.out + ": create: " + error.message());
  if (::access(t.out.c_str(), W_OK) != 0)
    throw Error(TENON_IO_ERROR, t.out + ": cannot be written");
  t.lock.emplace(t.out);
}

void start(const Args& args, Store& store, std::optional<TextData>& data, Training& t) {
  if (args.has("--resume")) {
    const std::string from = args.text("--resume");
    t.out = args.text("--out", from);
    // What is gone on from must not change any more. A folder that is missing is not to be made.
    std::error_code error;
    if (std::filesystem::is_directory(t.out, error)) take_out(t);
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
  } else {
    if (!args.has("--text")) throw UsageError("--text is missing: what to learn from");
    if (!args.has("--out")) throw UsageError("--out is missing: where the model goes");
    t.config = config_from(args);
    t.state.total_steps = args.integer("--steps", 300, 1, 1 << 30);
    t.state.batch = args.integer("--batch", 8, 1, 1 << 20);
    t.state.accumulate = args.integer("--accumulate", 1, 1, 1 << 20);
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
  if (!t.lock) take_out(t);
}

int train(const Args& args) {
  // Before anything is made.
  const int64_t save_every = args.integer("--save-every", 0, 1, 1 << 30);
  const int64_t asked_eval = args.integer("--eval-every", 0, 1, 1 << 30);
  const Runtime runtime = make_runtime(args);
  TraceFile trace(runtime, args);
  Store store(runtime);
  std::optional<TextData> data;
  Training t;
  start(args, store, data, t);
  TrainingState& s = t.state;
  runtime.take_choices(s.choices);
  finish_save(t.out);

  StepOptions options{.executable = executable_options(args),
                      .checkpoint = args.has("--checkpoint"),
                      .resumed = args.text("--resume")};
  options.executable.fuse = !args.has("--no-fuse");
  Stepper stepper(runtime, store, t.config, s, options);
  HeldOut held_out(runtime, store, *data, t.config, s, options);

  const int64_t tokens = s.batch * s.accumulate * t.config.context;
  const int64_t eval_every = asked_eval > 0 ? asked_eval : std::max<int64_t>(s.total_steps / 10, 1);
  std::printf("%zu files, %lld bytes to learn from, %lld held out\n", data->files().size(),
              static_cast<long long>(data->train_size()),
              static_cast<long long>(data->held_out_size()));
  std::printf("intermediates of a step: %.1f MiB\n",
              static_cast<double>(stepper.peak()) / (1 << 20));
  const auto measure = [&] {
    const double loss = held_out.loss();
    if (s.held_out.empty() || s.held_out.back().first != s.done_steps)
      s.held_out.emplace_back(s.done_steps, loss);
    return loss;
  };

  std::string kept = "nothing was saved";  // of this run
  const auto save = [&] {
    if (s.held_out.back().first != s.done_steps) measure();
    s.choices = runtime.choices();
    if (!std::isfinite(s.held_out.back().second))
      throw Error(TENON_NUMERIC_ERROR, "step " + std::to_string(s.done_steps) +
                                           ": the held-out loss is not finite; " + kept);
    stepper.without_sums([&] { save_checkpoint(t.out, t.config, s, store); });
    kept = "what was saved is of step " + std::to_string(s.done_steps);
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
    const std::optional<double> result =
        stepper.run(*data, s, learning_rate(s, s.done_steps), [&] { return interrupt.raised(); });
    if (!result) break;
    const double loss = *result;
    s.losses.emplace_back(s.done_steps, loss);
    ++s.done_steps;
    ++steps_since;
    if (!std::isfinite(loss))
      throw Error(TENON_NUMERIC_ERROR,
                  "step " + std::to_string(s.done_steps) + ": the loss is not finite; " + kept);
    char remarks[96];
    std::snprintf(remarks, sizeof remarks, "loss %.4f  %.0f tokens/s", loss,
                  static_cast<double>(steps_since * tokens) / (progress.seconds() - mark));
    progress.show(s.done_steps, remarks);
    if (s.done_steps % eval_every == 0 && s.done_steps < t.stop_after) {
      report(progress.seconds() - mark, steps_since);
      mark = progress.seconds();
      steps_since = 0;
    }
    if (save_every > 0 && s.done_steps % save_every == 0 && s.done_steps < t.stop_after) {
      const double before = progress.seconds();
      save();
      mark += progress.seconds() - before;  // the rate told is that of steps
    }
  }
  if (s.held_out.back().first != s.done_steps) report(progress.seconds() - mark, steps_since);
  progress.clear();
  save();
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
              "  tenon lm train --text book.txt --out large --dim 1024 --layers 12 --heads 16 "
              "--batch 2 "
              "--accumulate 8 --checkpoint --dtype bf16\n"
              "  tenon lm train --resume model\n",
          .run = train};
}

}  // namespace tenon::cli
