// SPDX-License-Identifier: Apache-2.0
// Checks the options of lm train, and makes the initial weights or loads the stored ones.
#include "cli/lm/setup.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "cli/input.hpp"
#include "cli/lm/config.hpp"
#include "cli/lm/output.hpp"
#include "cli/lm/room.hpp"
#include "cli/lm/save.hpp"
#include "cli/modes.hpp"
#include "cli/terminal.hpp"
#include "llm/tune/random.hpp"

namespace tenon::lm {
namespace {

using cli::Args;
using cli::Completes;
using cli::Option;
using cli::UsageError;
using llm::mix, llm::normal, llm::uniform;
namespace fs = std::filesystem;

// How a run goes about it, whatever it computes: kept in training.json for the next run.
const std::vector<std::string_view> kKept = {
    "--save-every", "--eval-every", "--checkpoint", "--no-fuse", "--exec",
    "--compile",    "--device",     "--memory",     "--pin",     "--threads"};

// f32 where the option is not given.
tenon_dtype dtype_from(const Args& args) {
  return args.text("--dtype", "f32") == "bf16" ? bf16 : f32;
}

// Options of some architectures only.
struct ArchOption {
  const char* name;
  std::vector<Arch> of;
};
const std::vector<ArchOption>& arch_options() {
  static const std::vector<ArchOption> options = {{"--heads", {Arch::llama, Arch::delta}},
                                                  {"--kv-heads", {Arch::llama}},
                                                  {"--ffn", {Arch::llama, Arch::delta}},
                                                  {"--expand", {Arch::mamba, Arch::delta}},
                                                  {"--state", {Arch::mamba}}};
  return options;
}

void refuse_other_archs(const Args& args, Arch arch) {
  for (const ArchOption& o : arch_options())
    if (std::ranges::find(o.of, arch) == o.of.end())
      args.refuse({o.name}, std::string("is no option of the architecture ") +
                                kArchs[static_cast<size_t>(arch)]);
}

Arch arch_from(const Args& args) {
  const auto* found = std::ranges::find(kArchs, args.text("--arch", kArchs[0]));
  return static_cast<Arch>(found - std::begin(kArchs));
}

Config config_from(const Args& args) {
  if (args.has("--config")) {
    args.refuse({"--arch", "--dim", "--layers", "--heads", "--kv-heads", "--ffn", "--expand",
                 "--state", "--context", "--tied"},
                "cannot be combined with --config, which sets it");
    const std::string file = args.text("--config");
    Config c = parse_config(cli::read_input(file), file);
    if (args.has("--dtype")) c.dtype = dtype_from(args);
    if (c.attention_dropout != 0)
      throw Error(TENON_UNSUPPORTED, file + ": attention_dropout is " +
                                         std::to_string(c.attention_dropout) +
                                         ", expected 0 to train");
    return c;
  }
  Config c{.arch = arch_from(args)};
  refuse_other_archs(args, c.arch);
  c.dtype = dtype_from(args);
  const auto size = [&](std::string_view name, int64_t otherwise) {
    return args.integer(name, otherwise, 1, 1 << 20);
  };
  c.expand = size("--expand", c.arch == Arch::delta ? 1 : c.expand);
  c.state_size = size("--state", c.state_size);
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

// The initial value i of a weight. key: of its random numbers.
float initial_value(const WeightSpec& w, uint64_t key, uint64_t i) {
  switch (w.init) {
    case WeightSpec::Init::zeros:
      return 0;
    case WeightSpec::Init::ones:
      return 1;
    case WeightSpec::Init::normal:
      return static_cast<float>(w.scale * normal(key, i));
    case WeightSpec::Init::counting:
      return static_cast<float>(
          std::log(static_cast<double>(i % static_cast<uint64_t>(w.scale)) + 1));
    case WeightSpec::Init::time_step:
      return static_cast<float>(std::log(std::expm1(std::pow(10.0, -3 + 2 * uniform(key, i)))));
  }
  throw Error(TENON_INTERNAL, w.name + ": unknown initial values");
}

void set_initial_weights(Store& store, const Config& config, uint64_t seed) {
  uint64_t tensor = 0;
  for (const WeightSpec& w : weight_specs(config)) {
    std::vector<float> values(static_cast<size_t>(TensorType(f32, w.dims).elements()));
    const uint64_t key = mix(seed, tensor++);
    for (size_t i = 0; i < values.size(); ++i) values[i] = initial_value(w, key, i);
    if (w.dtype == f32) {
      store.set(TENON_SPACE_WEIGHT, w.name, w.dims, values);
      continue;
    }
    std::vector<uint16_t> rounded(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(), to_bf16);
    store.set(TENON_SPACE_WEIGHT, w.name, {bf16, w.dims}, rounded.data(), rounded.size() * 2);
  }
}

void name_differences(const Args& args, const Config& c, const TrainingState& s) {
  if (args.has("--arch") && arch_from(args) != c.arch)
    throw UsageError("--arch " + args.text("--arch") + ": the stored model is " + c.arch_name());
  refuse_other_archs(args, c.arch);
  const auto differs = [&](std::string_view name, auto given, auto stored) {
    if (args.has(name) && given != stored)
      std::cerr << "tenon: " << name << " " << args.text(name) << " differs from the stored "
                << stored << "; the stored value is used\n";
  };
  const auto size = [&](std::string_view name, int64_t stored) {
    differs(name, args.integer(name, 0, 0, INT64_MAX), stored);
  };
  size("--dim", c.dim);
  size("--layers", c.layers);
  size("--heads", c.heads);
  size("--kv-heads", c.kv_heads);
  size("--ffn", c.ffn);
  size("--expand", c.expand);
  size("--state", c.state_size);
  size("--context", c.context);
  size("--batch", s.batch);
  size("--accumulate", s.accumulate);
  size("--warmup", s.warmup);
  size("--seed", static_cast<int64_t>(s.seed));
  differs("--lr", args.number("--lr", 0, 0, 1e30), s.lr);
  if (args.has("--dtype") && dtype_from(args) != c.dtype)
    std::cerr << "tenon: --dtype " << args.text("--dtype")
              << " differs from the stored model; the stored dtype is used\n";
  if (args.has("--tied") && !c.tied)
    std::cerr << "tenon: --tied differs from the stored model; the stored value is used\n";
  if (!args.has("--config")) return;
  const std::string file = args.text("--config");
  if (config_text(parse_config(cli::read_input(file), file)) != config_text(c))
    std::cerr
        << "tenon: --config differs from the stored model; the stored configuration is used\n";
}

// A new training replaces no files unasked, ours or anyone's.
void check_nothing_is_replaced(const std::string& out, bool force) {
  check_places(out);
  const std::vector<std::string> files = model_files_in(out);
  if (files.empty() || force) return;
  std::string names;
  for (const std::string& f : files) names += (names.empty() ? "" : ", ") + f;
  const bool trained = std::ranges::find(files, "training.json") != files.end() ||
                       std::ranges::find(files, ".saved") != files.end();
  throw Error(
      TENON_INVALID_ARGUMENT,
      out + ": expected a new or empty folder, got one with " + names + "\nhint: " +
          (trained ? "--resume " + cli::shell_word(out) + " continues the training; " : "") +
          "--force replaces these files");
}

void resume(const Args& args, Store& store, Training& t) {
  const std::string from = args.text("--resume");
  t.out = args.text("--out", from);
  std::error_code error;
  const bool in_place = fs::equivalent(from, t.out, error) || t.out == from;
  if (in_place)
    args.refuse({"--force"}, "has no effect with --resume, which replaces the files of its folder");
  // What is gone on from must not change any more. A folder that is missing is not to be made.
  if (fs::is_directory(t.out, error)) take_folder(t.out, t.lock);
  if (t.lock && !in_place) check_nothing_is_replaced(t.out, args.has("--force"));
  read_one_save(from, [&] {
    const bool sums = load_accumulates(from);
    t.config = load_model(from, store, [&](const Config& c) {
      if (!args.has("--no-room-check")) check_weights_fit(c, sums);
    });
    check_state_names(from, t.config);
    t.state = load_training(from, store);
  });
  name_differences(args, t.config, t.state);
  TrainingState& s = t.state;
  if (args.has("--steps")) {
    const int64_t stored = s.total_steps;
    s.total_steps = args.integer("--steps", stored, 1, 1 << 30);
    if (s.total_steps < s.done_steps)
      throw UsageError("--steps " + std::to_string(s.total_steps) + ": expected at least " +
                       std::to_string(s.done_steps) + ", the steps that are done");
    if (s.total_steps != stored)
      std::cerr << "tenon: the training now ends at step " << s.total_steps << " instead of "
                << stored << ", and the learning rate falls until there\n";
  }
  if (!args.has("--text"))
    for (const std::string& file : s.files)
      if (!cli::can_be_read_again(file))
        throw Error(TENON_NOT_FOUND, file +
                                         ": expected a readable file, the text of the training; "
                                         "name it with --text");
  t.data.emplace(args.has("--text") ? args.list("--text") : s.files);
  if (t.data->checksum() != s.data_checksum)
    throw Error(TENON_INVALID_ARGUMENT, from + ": the texts differ from those of the first run");
}

void begin(const Args& args, Training& t) {
  if (!args.has("--text")) throw UsageError("--text is missing; expected the files to learn from");
  if (!args.has("--out")) throw UsageError("--out is missing; expected the folder for the model");
  t.config = config_from(args);
  t.out = args.text("--out");
  TrainingState& s = t.state;
  s.total_steps = args.integer("--steps", 300, 1, 1 << 30);
  s.batch = args.integer("--batch", 8, 1, 1 << 20);
  s.accumulate = args.integer("--accumulate", 1, 1, 1 << 20);
  s.warmup = args.integer("--warmup", 20, 0, 1 << 30);
  s.lr = args.number("--lr", 1e-3, 0, 1e3);
  s.seed = static_cast<uint64_t>(args.integer("--seed", 0, 0, INT64_MAX));
  std::error_code error;
  if (fs::is_directory(t.out, error)) {
    take_folder(t.out, t.lock);
    check_nothing_is_replaced(t.out, args.has("--force"));
  }
  t.data.emplace(args.list("--text"));
  s.files = t.data->files();
  s.data_checksum = t.data->checksum();
  check_storable(s);
  if (!args.has("--no-room-check")) check_weights_fit(t.config, s.accumulate > 1);
}

// The last save stays on the disk while the next one is written. The folder may have the last save
// already.
uint64_t saves_at_once(const Args& args, const Training& t) {
  const int64_t every = args.integer("--save-every", 0, 0, 1 << 30);
  const bool several = every > 0 && every < t.stop_after - t.state.done_steps;
  return several && model_files_in(t.out).empty() ? 2 : 1;
}

}  // namespace

Args with_stored_options(const Args& args) {
  if (!args.has("--resume")) return args;
  const std::string folder = args.text("--resume");
  std::vector<Option> kept = cli::options_of(cli::lm_train_command());
  std::erase_if(kept,
                [](const Option& o) { return std::ranges::find(kKept, o.name) == kKept.end(); });
  try {
    const Args stored(load_options(folder), kept);
    // Limits and pins are of the devices that they were given with.
    return args.with(args.has("--device") ? stored.without({"--memory", "--pin"}) : stored);
  } catch (const UsageError& e) {
    throw Error(TENON_CORRUPT, folder + "/training.json: 'options': " + e.what());
  }
}

void start_training(const Args& args, const Runtime& runtime, Store& store, Training& t) {
  if (args.has("--resume"))
    resume(args, store, t);
  else
    begin(args, t);
  const TextData& data = *t.data;
  if (data.train_size() <= t.config.context || data.held_out_windows(t.config.context) == 0)
    throw Error(TENON_INVALID_ARGUMENT,
                "the texts are too short: " + std::to_string(data.train_size()) +
                    " bytes to learn from and " + std::to_string(data.held_out_size()) +
                    " held out, each must exceed --context " + std::to_string(t.config.context));
  t.stop_after =
      std::min(args.integer("--stop-after", t.state.total_steps, 0, 1 << 30), t.state.total_steps);
  t.state.options = args.given(kKept);
  if (!t.lock) {
    take_folder(t.out, t.lock);
    check_nothing_is_replaced(t.out, args.has("--force"));  // it may have come meanwhile
  }
  finish_save(t.out);
  if (!args.has("--no-room-check")) check_disk(t.out, t.config, t.state, saves_at_once(args, t));
  if (!args.has("--resume")) set_initial_weights(store, t.config, t.state.seed);
  runtime.take_choices(t.state.choices);
}

std::string resume_command(const Training& t, const Args& args) {
  std::vector<std::string> words = {"tenon", "lm", "train", "--resume", t.out};
  for (const std::string& w : t.state.options) words.push_back(w);
  for (const std::string& w : args.given({"--plugin-dir", "--plugin"})) words.push_back(w);
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : " ") + cli::shell_word(w);
  // The path of a pipe means nothing to a later command.
  if (!std::ranges::all_of(t.state.files, cli::can_be_read_again)) text += " --text FILE...";
  return text;
}

}  // namespace tenon::lm
