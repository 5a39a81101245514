// SPDX-License-Identifier: Apache-2.0
// Reads and writes the folder of a fine-tuning; the options of llm tune.
#include "cli/llm/tuning.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cli/input.hpp"
#include "cli/lm/chart.hpp"
#include "cli/lm/json_file.hpp"
#include "cli/lm/save.hpp"
#include "cli/modes.hpp"

namespace tenon::cli {
namespace {

using lm::field, lm::Json, lm::Points, lm::Strings;

constexpr const char *kAdapter = "adapter_model.safetensors", *kState = "optimizer.safetensors",
                     *kTuning = "tuning.json";

}  // namespace

Tuning load_tuning(const std::string& folder) {
  return lm::read_saved(folder, kTuning, [](const std::string& file) {
    const Json j = lm::parse_object(read_file(file), file);
    Tuning t;
    t.model = field<std::string>(j, file, "model");
    t.options = field<Strings>(j, file, "options");
    t.total_steps = field<int64_t>(j, file, "total_steps");
    t.done_steps = field<int64_t>(j, file, "done_steps");
    t.checksum = field<uint64_t>(j, file, "checksum");
    t.losses = field<Points>(j, file, "losses");
    t.checked = field<Points>(j, file, "checked");
    if (t.done_steps < 0 || t.done_steps > t.total_steps || t.total_steps > 1 << 30)
      throw Error(TENON_CORRUPT, file + ": 'done_steps' is " + std::to_string(t.done_steps) +
                                     ", expected 0 to 'total_steps' " +
                                     std::to_string(t.total_steps));
    const auto choices = j.find("choices");
    if (choices == j.end() || !choices->is_object() ||
        !std::ranges::all_of(*choices, [](const Json& c) { return lm::holds<Strings>(c); }))
      throw Error(TENON_CORRUPT, file + ": 'choices' has the wrong form");
    t.choices = choices->dump();
    return t;
  });
}

void save_tuning(const std::string& folder, const Tuning& t, const llm::Tuner& tuner) {
  lm::Save save(folder);
  tuner.save((save.path() / kAdapter).string(), (save.path() / kState).string(), t.done_steps);
  save.write("adapter_config.json", llm::adapter_config_text(tuner.stored_adapter()));
  lm::TrainingState chart;
  chart.total_steps = t.total_steps, chart.done_steps = t.done_steps;
  chart.losses = t.losses, chart.held_out = t.checked;
  save.write("loss.svg", lm::loss_chart(chart));
  const Json json = {
      {"model", t.model},           {"options", t.options},   {"total_steps", t.total_steps},
      {"done_steps", t.done_steps}, {"checksum", t.checksum}, {"choices", Json::parse(t.choices)},
      {"losses", t.losses},         {"checked", t.checked}};
  save.write(kTuning, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  save.commit();
}

void load_tuned(const std::string& folder, const Tuning& t, llm::Tuner& tuner) {
  const auto file = [&](const char* name) {
    return lm::read_saved(folder, name, [&](const std::string& path) {
      const std::string step = Json::parse(safetensors_metadata(path)).value("step", "?");
      if (step != std::to_string(t.done_steps))
        throw Error(TENON_CORRUPT, path + ": is of step " + step + ", tuning.json says " +
                                       std::to_string(t.done_steps));
      return path;
    });
  };
  tuner.load(file(kAdapter), file(kState));
}

double schedule_factor(const std::string& schedule, int64_t step, int64_t warmup, int64_t total) {
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double at = static_cast<double>(step - warmup) /
                    static_cast<double>(std::max<int64_t>(total - warmup, 1));
  if (schedule == "constant") return 1;
  if (schedule == "linear") return 1 - at;
  return 0.5 * (1 + std::cos(std::numbers::pi * at));
}

const std::vector<Option>& tune_options() {
  static const std::vector<Option> options = {
      {.name = "--lora", .help = "learn an adapter of low rank (LoRA): the one method there is"},
      {.name = "--data",
       .value = "FILE",
       .help =
           "what to learn: a text; or .jsonl with a \"text\", \"prompt\" and \"completion\", or "
           "\"messages\" on each line, of which completions and answers are learned",
       .completes = Completes::file},
      {.name = "--validation",
       .value = "FILE",
       .help = "a file like --data, of which the loss is measured",
       .completes = Completes::file},
      {.name = "--output",
       .value = "DIR",
       .help = "folder for the adapter, in the layout of PEFT",
       .completes = Completes::folder},
      {.name = "--force", .help = "replace the adapter in --output"},
      {.name = "--resume",
       .value = "DIR",
       .help = "continue the training in DIR, with its stored model, data and options",
       .completes = Completes::folder},
      {.name = "--rank", .value = "N", .help = "rank of the changes", .otherwise = "16"},
      {.name = "--alpha",
       .value = "X",
       .help = "the changes are multiplied by alpha / rank",
       .otherwise = "twice the rank"},
      {.name = "--rslora", .help = "multiply by alpha / sqrt(rank) instead"},
      {.name = "--dropout", .value = "P", .help = "dropout in front of a change", .otherwise = "0"},
      {.name = "--targets",
       .value = "NAME,...",
       .help = "products to change, such as q_proj,v_proj",
       .otherwise = "all of attention and MLP"},
      {.name = "--learning-rate", .value = "X", .help = "peak learning rate", .otherwise = "2e-4"},
      {.name = "--schedule",
       .value = "S",
       .help = "learning rate after the warmup; cosine and linear fall to 0",
       .otherwise = "cosine",
       .choices = {"cosine", "linear", "constant"}},
      {.name = "--warmup",
       .value = "N",
       .help = "steps of a rising learning rate",
       .otherwise = "0"},
      {.name = "--steps", .value = "N", .help = "number of steps", .otherwise = "by --epochs"},
      {.name = "--epochs", .value = "X", .help = "passes over the examples", .otherwise = "1"},
      {.name = "--stop-after", .value = "N", .help = "stop after step N; --resume continues"},
      {.name = "--batch", .value = "N", .help = "sequences per run", .otherwise = "1"},
      {.name = "--accumulate", .value = "N", .help = "runs per step", .otherwise = "1"},
      {.name = "--length",
       .value = "N",
       .help = "most tokens of a sequence; longer texts are divided, other examples cut",
       .otherwise = "512, or the model's own limit"},
      {.name = "--weight-decay", .value = "X", .help = "of AdamW", .otherwise = "0"},
      {.name = "--clip",
       .value = "X",
       .help = "largest norm of the gradients; 0: any",
       .otherwise = "1"},
      {.name = "--seed",
       .value = "N",
       .help = "seed of first values, order of examples, and dropout",
       .otherwise = "0"},
      {.name = "--save-every", .value = "N", .help = "also save after every N steps"},
      {.name = "--eval-every",
       .value = "N",
       .help = "steps between losses of --validation",
       .otherwise = "a tenth of the steps"},
      {.name = "--log-every",
       .value = "N",
       .help = "steps between lines of the loss",
       .otherwise = "a hundredth of the steps"},
      {.name = "--checkpoint",
       .help = "compute layers and logits again in the backward pass: less memory, more time"},
      {.name = "--compute",
       .value = "DTYPE",
       .help = "dtype of activations; the adapter is f32",
       .otherwise = "f32 on the cpu and for models in f16, elsewhere that of the weights",
       .choices = {"f32", "bf16"}},
      memory_option(),
      pin_option(),
      exec_option(),
      compile_option(),
      trace_option(),
  };
  return options;
}

}  // namespace tenon::cli
