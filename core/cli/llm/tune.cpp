// SPDX-License-Identifier: Apache-2.0
// tenon llm tune: fine-tunes a language model of a Hugging Face folder or a GGUF file with an adapter.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>

#include "cli/input.hpp"
#include "cli/interrupt.hpp"
#include "cli/llm/options.hpp"
#include "cli/llm/tuning.hpp"
#include "cli/lm/lines.hpp"
#include "cli/lm/output.hpp"
#include "cli/lm/save.hpp"
#include "cli/modes.hpp"
#include "cli/progress.hpp"
#include "cli/terminal.hpp"
#include "llm/model_text.hpp"

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;

// What may be otherwise when a training goes on. The rest is stored.
constexpr std::string_view kFree[] = {
    "--data",      "--validation", "--output",     "--force",      "--resume",
    "--steps",     "--epochs",     "--stop-after", "--save-every", "--eval-every",
    "--log-every", "--device",     "--memory",     "--pin",        "--exec",
    "--compile",   "--trace",      "--plugin",     "--plugin-dir", "--threads"};
// Of these, what is stored, too.
constexpr std::string_view kKept[] = {"--data",       "--validation", "--epochs",  "--save-every",
                                      "--eval-every", "--log-every",  "--device",  "--memory",
                                      "--pin",        "--exec",       "--compile", "--threads"};

template <class List>
bool is_in(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

llm::TuneOptions tuner_options(const Args& args) {
  llm::TuneOptions o{.device = device_of(args), .executable = executable_options(args)};
  o.adapter.rank = args.integer("--rank", 16, 1, 1 << 16);
  o.adapter.alpha = args.number("--alpha", 2 * static_cast<double>(o.adapter.rank), 0, 1e9);
  o.adapter.rslora = args.has("--rslora");
  o.adapter.dropout = args.number("--dropout", 0, 0, 0.999);
  if (args.has("--targets") && args.text("--targets") != "all-linear")  // PEFT's word
    o.adapter.targets = list_of(args.text("--targets"));
  o.batch = args.integer("--batch", 1, 1, 1 << 20);
  o.accumulate = args.integer("--accumulate", 1, 1, 1 << 20);
  o.length = args.integer("--length", 0, 1, 1 << 24);
  o.weight_decay = args.number("--weight-decay", 0, 0, 1e3);
  o.clip_norm = args.number("--clip", 1, 0, 1e30);
  o.seed = static_cast<uint64_t>(args.integer("--seed", 0, 0, INT64_MAX));
  o.checkpoint = args.has("--checkpoint");
  if (args.has("--compute")) o.compute = args.text("--compute") == "bf16" ? bf16 : f32;
  return o;
}

// A path that means the same for a later command.
std::string absolute(const std::string& path) {
  std::error_code error;
  const fs::path out = fs::absolute(path, error);
  return error ? path : out.lexically_normal().string();
}

// The arguments with those that the folder of --resume stores.
Args with_stored(const Args& args, const Tuning& t) {
  const std::string file = args.text("--resume") + "/tuning.json";
  const auto stored = [&] {
    try {
      return Args(t.options, options_of(llm_tune_command()));
    } catch (const UsageError& e) {
      throw Error(TENON_CORRUPT, file + ": 'options': " + e.what());
    }
  }();
  for (const Option& o : options_of(llm_tune_command()))
    if (!is_in(kFree, o.name) && args.has(o.name) &&
        (!stored.has(o.name) || args.text(o.name) != stored.text(o.name)))
      throw UsageError(std::string(o.name) + ": the training in " + args.text("--resume") +
                       " has " + (stored.has(o.name) ? stored.text(o.name) : "its default") +
                       ", which stays");
  return args.with(stored);
}

struct Place {
  std::string folder;
  std::optional<lm::FolderLock> lock;
};

// A folder to which the adapter cannot be saved is told before the work.
void take_folder(Place& place, const Args& args) {
  lm::take_folder(place.folder, place.lock);
  lm::check_places(place.folder);
  const bool resumes = args.has("--resume");
  std::error_code error;
  if (resumes && fs::equivalent(args.text("--resume"), place.folder, error))
    return lm::finish_save(place.folder);
  const std::vector<std::string> files = lm::model_files_in(place.folder);
  const bool of_model = is_in(files, "model.safetensors") || is_in(files, "config.json");
  if (files.empty() || (args.has("--force") && !of_model)) return;
  throw Error(
      TENON_INVALID_ARGUMENT,
      place.folder + ": expected a new or empty folder, got one with " + files[0] +
          (of_model || resumes ? ""
                               : "\nhint: --resume DIR goes on; --force replaces the adapter"));
}

// One run: from the state that it starts with to the last save.
class Run {
 public:
  Run(const Args& args, const Runtime& runtime, Tuning& tuning)
      : args_(args),
        runtime_(runtime),
        t_(tuning),
        options_(tuner_options(args)),
        text_(llm::ModelText::read(t_.model)),
        tuner_(runtime, t_.model, options_) {
    place_.folder = args.text("--output", args.text("--resume"));
    examples_ = examples(args.text("--data"));
    if (args.has("--validation")) validation_ = examples(args.text("--validation"));
    plan_steps();
    take_folder(place_, args);
  }

  // Returns the exit status.
  int go(TraceFile& trace) {
    describe();
    runtime_.take_choices(t_.choices);
    if (args_.has("--resume"))
      load_tuned(args_.text("--resume"), t_, tuner_);
    else
      tuner_.begin();
    progress_.emplace(t_.done_steps, stop_after_);
    mark_ = progress_->seconds();
    bool going = t_.done_steps > 0 || measure();
    while (going && t_.done_steps < stop_after_ && !interrupt_.raised()) going = step();
    if (going && stop_after_ == t_.total_steps && !measured()) measure();
    progress_->clear();
    save();
    trace.save();
    lines_.print("saved %s at step %lld", place_.folder.c_str(), ll(t_.done_steps));
    const bool interrupted = interrupt_.raised() && t_.done_steps < stop_after_;
    if (t_.done_steps < t_.total_steps)
      lines_.print("%scontinue with: tenon llm tune --resume %s",
                   interrupted ? "interrupted; " : "", shell_word(place_.folder).c_str());
    lines_.check();
    return interrupted ? kInterrupted : 0;
  }

 private:
  static long long ll(int64_t v) { return v; }

  llm::Examples examples(const std::string& file) const {
    llm::Examples out = llm::read_examples(file, text_, tuner_.facts().length,
                                           [this] { return interrupt_.raised(); });
    tuner_.check(out);
    return out;
  }

  void plan_steps() {
    if (args_.has("--resume") && examples_.checksum != t_.checksum)
      throw Error(TENON_INVALID_ARGUMENT,
                  args_.text("--data") + ": has other examples than the first run learned from");
    t_.checksum = examples_.checksum;
    const double epochs = args_.number("--epochs", 1, 1e-9, 1e9);
    const double per_pass = static_cast<double>(examples_.list.size()) /
                            static_cast<double>(options_.batch * options_.accumulate);
    const double planned = std::clamp(std::ceil(epochs * per_pass - 1e-9), 1.0, 0x1p30);
    // A training that goes on ends where it was planned to, unless told otherwise.
    const auto by_epochs = args_.has("--resume") ? t_.total_steps : static_cast<int64_t>(planned);
    t_.total_steps = args_.integer("--steps", by_epochs, 1, 1 << 30);
    if (t_.total_steps < t_.done_steps)
      throw UsageError("--steps " + std::to_string(t_.total_steps) + ": expected at least " +
                       std::to_string(t_.done_steps) + ", the steps that are done");
    stop_after_ =
        std::min(args_.integer("--stop-after", t_.total_steps, 0, 1 << 30), t_.total_steps);
    warmup_ = args_.integer("--warmup", 0, 0, 1 << 30);
    rate_ = args_.number("--learning-rate", 2e-4, 0, 1e3);
    save_every_ = args_.integer("--save-every", 0, 0, 1 << 30);
    const auto part = [&](const char* name, int64_t parts) {
      const int64_t asked = args_.integer(name, 0, 0, 1 << 30);
      return asked > 0 ? asked : std::max<int64_t>(t_.total_steps / parts, 1);
    };
    eval_every_ = part("--eval-every", 10), log_every_ = part("--log-every", 100);
  }

  void describe() {
    const llm::Tuner::Facts f = tuner_.facts();
    lines_.print("model    %s, %lld parameters, weights %s, activations %s", f.architecture.c_str(),
                 ll(f.model_numbers), size_text(f.weight_bytes).c_str(),
                 std::string(sdk::dtype_name(f.compute)).c_str());
    std::string targets;
    for (const std::string& name : tuner_.adapter().targets)
      targets += (targets.empty() ? "" : ",") + name;
    lines_.print("adapter  %lld parameters, rank %lld, on %s", ll(f.adapter_numbers),
                 ll(tuner_.adapter().rank), targets.c_str());
    const auto data = [&](const char* what, const llm::Examples& e) {
      lines_.print("%-8s %zu examples, %lld tokens to learn", what, e.list.size(), ll(e.learned));
      if (e.cut > 0)
        lines_.print("         %lld lost their end to --length %lld", ll(e.cut), ll(f.length));
      if (e.without > 0) lines_.print("         %lld left out: nothing to learn", ll(e.without));
    };
    data("data", examples_);
    if (validation_) data("checked", *validation_);
  }

  bool measured() const { return !t_.checked.empty() && t_.checked.back().first == t_.done_steps; }
  // False if it was interrupted.
  bool measure() {
    if (!validation_) return true;
    const double before = progress_->seconds();
    const auto loss = tuner_.evaluate(*validation_, [this] { return interrupt_.raised(); });
    mark_ += progress_->seconds() - before;  // the rate told is that of steps
    if (!loss) return false;
    t_.checked.emplace_back(t_.done_steps, *loss);
    progress_->clear();
    lines_.print("step %lld/%lld  validation %.4f", ll(t_.done_steps), ll(t_.total_steps), *loss);
    return true;
  }

  // False: it was interrupted between its parts, and nothing changed.
  bool step() {
    const double rate = rate_ * schedule_factor(args_.text("--schedule", "cosine"), t_.done_steps,
                                                warmup_, t_.total_steps);
    const auto result =
        tuner_.step(examples_, t_.done_steps, rate, [this] { return interrupt_.raised(); });
    if (!result) return false;
    t_.losses.emplace_back(t_.done_steps, result->loss);
    ++t_.done_steps;
    tokens_ += result->tokens;
    if (!std::isfinite(result->loss) || !std::isfinite(result->norm))
      throw Error(TENON_NUMERIC_ERROR,
                  "step " + std::to_string(t_.done_steps) + ": the loss is not finite; " + kept_);
    char remarks[160];
    std::snprintf(remarks, sizeof remarks, "loss %.4f  norm %.3g  rate %.3g  %.0f tokens/s",
                  result->loss, result->norm, rate,
                  static_cast<double>(tokens_) / std::max(progress_->seconds() - mark_, 1e-9));
    progress_->show(t_.done_steps, remarks);
    if (t_.done_steps % log_every_ == 0 || t_.done_steps == stop_after_) {
      progress_->clear();
      lines_.print("step %lld/%lld  %s", ll(t_.done_steps), ll(t_.total_steps), remarks);
      mark_ = progress_->seconds(), tokens_ = 0;
    }
    const bool more = t_.done_steps < stop_after_;
    if (more && t_.done_steps % eval_every_ == 0 && !measure()) return false;
    if (more && save_every_ > 0 && t_.done_steps % save_every_ == 0) {
      const double before = progress_->seconds();
      lm::save_meanwhile(*progress_, t_.done_steps, [this] { save(); });
      mark_ += progress_->seconds() - before;
    }
    return true;
  }

  void save() {
    t_.choices = runtime_.choices();
    save_tuning(place_.folder, t_, tuner_);
    kept_ = "the last save is of step " + std::to_string(t_.done_steps);
  }

  const Args& args_;
  const Runtime& runtime_;
  Tuning& t_;
  llm::TuneOptions options_;
  InterruptFlag interrupt_;
  llm::ModelText text_;
  llm::Tuner tuner_;
  llm::Examples examples_;
  std::optional<llm::Examples> validation_;
  Place place_;
  Lines lines_;
  std::optional<Progress> progress_;
  int64_t stop_after_ = 0, warmup_ = 0, save_every_ = 0, eval_every_ = 1, log_every_ = 1;
  int64_t tokens_ = 0;  // since mark_
  double rate_ = 0, mark_ = 0;
  std::string kept_ = "nothing was saved";  // of this run
};

int tune(const Args& given) {
  ignore_closed_pipes();
  Tuning tuning;
  const bool resumes = given.has("--resume");
  if (resumes) {
    given.refuse({"--force"}, "has no effect with --resume");
    tuning = load_tuning(given.text("--resume"));
    if (!given.words().empty()) tuning.model = given.words()[0];
  } else {
    tuning.model = model_of(given);
    if (!given.has("--data")) throw UsageError("--data is missing; expected what to learn");
    if (!given.has("--output")) throw UsageError("--output is missing; expected a folder");
  }
  const Args args = resumes ? with_stored(given, tuning) : given;
  tuning.model = absolute(tuning.model);
  std::vector<std::string_view> kept(std::begin(kKept), std::end(kKept));
  for (const Option& o : tune_options())
    if (!is_in(kFree, o.name)) kept.push_back(o.name);
  tuning.options = args.given(kept);
  for (size_t i = 0; i + 1 < tuning.options.size(); ++i)
    if (tuning.options[i] == "--data" || tuning.options[i] == "--validation")
      tuning.options[i + 1] = absolute(tuning.options[i + 1]);
  const Runtime& runtime = open_runtime(args);
  TraceFile trace(runtime, args);
  return Run(args, runtime, tuning).go(trace);
}

}  // namespace

Command llm_tune_command() {
  return {.name = "llm tune",
          .summary = "fine-tune a language model with an adapter (LoRA)",
          .usage = "MODEL --data FILE --output DIR [options] | --resume DIR [options]",
          .options = tune_options(),
          .examples =
              "tenon llm tune Llama-3.2-1B --data book.txt --output adapter --epochs 2\n"
              "tenon llm tune Llama-3.2-1B-Instruct --data chats.jsonl --validation more.jsonl "
              "--output adapter --batch 2 --accumulate 8 --learning-rate 1e-4 --warmup 20\n"
              "tenon llm tune model.gguf --data chats.jsonl --output adapter --targets "
              "q_proj,v_proj --rank 8 --checkpoint\n"
              "tenon llm tune --resume adapter\n"
              "tenon llm run Llama-3.2-1B-Instruct --lora adapter --prompt 'Hello'\n",
          .words = 1,
          .completes = Completes::file,
          .run = tune};
}

}  // namespace tenon::cli
