// SPDX-License-Identifier: Apache-2.0
// tenon lm train: a byte-level language model from text files.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <numbers>
#include <optional>

#include "cli/interrupt.hpp"
#include "cli/lm/lines.hpp"
#include "cli/lm/output.hpp"
#include "cli/lm/room.hpp"
#include "cli/lm/setup.hpp"
#include "cli/lm/step.hpp"
#include "cli/modes.hpp"
#include "cli/progress.hpp"

namespace tenon::cli {
namespace {

using namespace tenon::lm;

double learning_rate(const TrainingState& s, int64_t step) {
  if (step < s.warmup) return s.lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const double at = static_cast<double>(step - s.warmup) /
                    static_cast<double>(std::max<int64_t>(s.total_steps - s.warmup, 1));
  return s.lr * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * at)));
}

long long ll(int64_t v) { return v; }

// One run: from the state it starts with to the last save.
class Run {
 public:
  Run(const Args& args, const Runtime& runtime, Store& store, Training& training)
      : t_(training),
        s_(training.state),
        save_every_(args.integer("--save-every", 0, 0, 1 << 30)),
        options_{.executable = executable_options(args),
                 .checkpoint = args.has("--checkpoint"),
                 .resumed = args.text("--resume")},
        runtime_(runtime),
        store_(store),
        stepper_(runtime, store, t_.config, s_, with_fusion(args)),
        held_out_(runtime, store, *t_.data, t_.config, s_, options_),
        progress_(s_.done_steps, t_.stop_after) {
    const int64_t asked = args.integer("--eval-every", 0, 0, 1 << 30);
    eval_every_ = asked > 0 ? asked : std::max<int64_t>(s_.total_steps / 10, 1);
    const std::vector<MemoryNeed> needs = memory_needs(runtime, stepper_, held_out_, t_.config, s_);
    describe(needs);
    if (!args.has("--no-room-check"))
      for (const MemoryNeed& need : needs) check_memory(need, s_, options_.checkpoint);
  }

  // Returns the exit status.
  int go(const Args& args, TraceFile& trace) {
    const InterruptFlag interrupt;
    report();
    restart_clock();
    while (s_.done_steps < t_.stop_after && !interrupt.raised() && step(interrupt)) {
    }
    if (s_.held_out.back().first != s_.done_steps) report();
    progress_.clear();
    save();
    trace.save();
    lines_.print("saved %s at step %lld", t_.out.c_str(), ll(s_.done_steps));
    const bool interrupted = interrupt.raised() && s_.done_steps < t_.stop_after;
    if (s_.done_steps < s_.total_steps)
      lines_.print("%scontinue with: %s", interrupted ? "interrupted; " : "",
                   resume_command(t_, args).c_str());
    else if (!options_.resumed.empty() && first_step_ == s_.total_steps)
      lines_.print("the training is finished; --steps N extends it");
    lines_.check();
    return interrupted ? static_cast<int>(kInterrupted) : 0;
  }

 private:
  const StepOptions& with_fusion(const Args& args) {
    options_.executable.fuse = !args.has("--no-fuse");
    return options_;
  }

  void describe(const std::vector<MemoryNeed>& needs) {
    for (const MemoryNeed& need : needs)
      lines_.print("device   %s, %s", need.device.c_str(), need.name.c_str());
    lines_.print("model    %.0f parameters in %s, %s", parameter_count(t_.config),
                 t_.config.dtype == f32 ? "f32" : "bf16", t_.config.arch_name());
    lines_.print("text     %zu file%s, %lld bytes to learn from, %lld held out",
                 t_.data->files().size(), t_.data->files().size() == 1 ? "" : "s",
                 ll(t_.data->train_size()), ll(t_.data->held_out_size()));
    const auto more = [](const char* what, uint64_t size) {
      return size ? std::string(", ") + what + " " + size_text(size) : std::string();
    };
    for (const MemoryNeed& need : needs)
      lines_.print(
          "memory   %s%s%s: weights %s, optimizer %s, intermediates %s%s%s",
          needs.size() > 1 ? (need.device + " ").c_str() : "", size_text(need.total()).c_str(),
          need.room ? (" of " + size_text(need.room)).c_str() : "", size_text(need.weights).c_str(),
          size_text(need.state).c_str(), size_text(need.intermediates).c_str(),
          more("derived weights", need.derived).c_str(),
          more("sums of gradients during a save", need.sums).c_str());
    lines_.print("disk     %s for each save, %s free", size_text(save_bytes(t_.config, s_)).c_str(),
                 size_text(disk_room(t_.out)).c_str());
  }

  double measure() {
    const double loss = held_out_.loss();
    if (s_.held_out.empty() || s_.held_out.back().first != s_.done_steps)
      s_.held_out.emplace_back(s_.done_steps, loss);
    return loss;
  }

  int64_t tokens_per_step() const { return s_.batch * s_.accumulate * t_.config.context; }
  double tokens_per_second() const {
    return static_cast<double>(steps_since_ * tokens_per_step()) / (progress_.seconds() - mark_);
  }
  void restart_clock() {
    mark_ = progress_.seconds();
    steps_since_ = 0;
  }

  void report() {
    const double rate = tokens_per_second();
    const double loss = measure();
    progress_.clear();
    char training[64] = "", speed[64] = "";
    if (!s_.losses.empty())
      std::snprintf(training, sizeof training, "  loss %.4f", s_.losses.back().second);
    if (steps_since_ > 0) std::snprintf(speed, sizeof speed, "  %.0f tokens/s", rate);
    lines_.print("step %lld/%lld%s  held-out %.4f%s", ll(s_.done_steps), ll(s_.total_steps),
                 training, loss, speed);
  }

  // False: it was interrupted between its parts, and nothing changed.
  bool step(const InterruptFlag& interrupt) {
    const std::optional<double> loss = stepper_.run(*t_.data, s_, learning_rate(s_, s_.done_steps),
                                                    [&] { return interrupt.raised(); });
    if (!loss) return false;
    s_.losses.emplace_back(s_.done_steps, *loss);
    ++s_.done_steps;
    ++steps_since_;
    if (!std::isfinite(*loss)) not_finite("the loss");
    char remarks[96];
    std::snprintf(remarks, sizeof remarks, "loss %.4f  %.0f tokens/s", *loss, tokens_per_second());
    progress_.show(s_.done_steps, remarks);
    const bool more = s_.done_steps < t_.stop_after;
    if (more && s_.done_steps % eval_every_ == 0) {
      report();
      restart_clock();
    }
    if (more && save_every_ > 0 && s_.done_steps % save_every_ == 0) {
      const double before = progress_.seconds();
      save_meanwhile(progress_, s_.done_steps, [this] { save(); });
      mark_ += progress_.seconds() - before;  // the rate told is that of steps
    }
    return true;
  }

  [[noreturn]] void not_finite(const std::string& what) const {
    throw Error(TENON_NUMERIC_ERROR,
                "step " + std::to_string(s_.done_steps) + ": " + what + " is not finite; " + kept_);
  }

  void save() {
    if (s_.held_out.back().first != s_.done_steps) measure();
    s_.choices = runtime_.choices();
    if (!std::isfinite(s_.held_out.back().second)) not_finite("the held-out loss");
    stepper_.without_sums([&] { save_checkpoint(t_.out, t_.config, s_, store_); });
    kept_ = "the last save is of step " + std::to_string(s_.done_steps);
  }

  Training& t_;
  TrainingState& s_;
  const int64_t first_step_ = s_.done_steps;
  int64_t save_every_, eval_every_ = 1;
  StepOptions options_;
  const Runtime& runtime_;
  Store& store_;
  Stepper stepper_;
  HeldOut held_out_;
  Progress progress_;
  Lines lines_;
  double mark_ = 0;  // seconds, when the clock of the rate started
  int64_t steps_since_ = 0;
  std::string kept_ = "nothing was saved";  // of this run
};

int train(const Args& given) {
  ignore_closed_pipes();
  const Args args = with_stored_options(given);
  for (const char* name : {"--save-every", "--eval-every"}) args.integer(name, 0, 0, 1 << 30);
  static_cast<void>(executable_options(args));  // wrong usage is told before anything is made
  const Runtime& runtime = open_runtime(args);
  TraceFile trace(runtime, args);
  Store store(runtime);
  Training training;
  start_training(args, runtime, store, training);
  return Run(args, runtime, store, training).go(args, trace);
}

}  // namespace

Command lm_train_command() {
  return {.name = "lm train",
          .summary = "train a byte-level language model from text",
          .usage = "--text FILE... --out DIR [options] | --resume DIR [options]",
          .options = train_options(),
          .examples =
              "tenon lm train --text /usr/share/common-licenses/* --out model --steps 300\n"
              "tenon lm train --text book.txt --out small --dim 128 --layers 4 --heads 4 "
              "--kv-heads 2 --ffn 344 --context 128\n"
              "tenon lm train --text book.txt --out large --dim 1024 --layers 12 --heads 16 "
              "--batch 2 --accumulate 8 --checkpoint --dtype bf16\n"
              "tenon lm train --text book.txt --out recurrent --arch mamba --dim 256 --layers 4\n"
              "tenon lm train --resume model\n"
              "tenon lm train --resume model --steps 600\n",
          .run = train};
}

}  // namespace tenon::cli
