// SPDX-License-Identifier: Apache-2.0
// Reads --device, --memory, --pin, --bucket, --exec, --compile and --no-fallback.
#include "cli/modes.hpp"

#include <charconv>
#include <memory>
#include <optional>

#include "cli/interrupt.hpp"
#include "cli/progress.hpp"

namespace tenon::cli {
namespace {

void set_exec(ExecutableOptions& options, const std::string& text) {
  const auto wrong = [&] {
    return UsageError("--exec " + text +
                      ": expected stream, graph, eager, multi-stream or multi-stream:N");
  };
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  if (name == "multi-stream") {
    options.exec_mode = TENON_EXEC_MULTI_STREAM;
    if (colon == std::string::npos) return;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, options.lanes);
    if (error != std::errc() || stop != end || options.lanes < 1 || options.lanes > TENON_MAX_LANES)
      throw UsageError("--exec " + text + ": expected 1 to " + std::to_string(TENON_MAX_LANES) +
                       " lanes");
    return;
  }
  if (colon != std::string::npos) throw wrong();
  if (name == "stream")
    options.exec_mode = TENON_EXEC_STREAM;
  else if (name == "graph")
    options.exec_mode = TENON_EXEC_GRAPH;
  else if (name == "eager")
    options.exec_mode = TENON_EXEC_EAGER;
  else
    throw wrong();
}

// "1.5GiB", "600000".
uint64_t bytes_from(const std::string& option, const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && number >= 0 && number <= 0x1p50)
    for (const auto& [unit, factor] : kUnits)
      if (const double bytes = number * factor;
          std::string_view(stop, end) == unit && bytes < 0x1p60 && (bytes >= 1 || bytes == 0))
        return static_cast<uint64_t>(bytes);
  throw UsageError(option + " " + text + ": expected a size such as 512MiB or 1.5GiB");
}

void set_limits(ExecutableOptions& options, const std::string& text) {
  for (const std::string& size : list_of(text))
    options.memory_limits.push_back(bytes_from("--memory", size));
}

// The device comes last: names may have a '='.
void add_pin(ExecutableOptions& options, const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw UsageError("--pin " + text + ": expected PATTERN=DEVICE");
  options.pins.emplace_back(text.substr(0, at), text.substr(at + 1));
}

void add_bucket(ExecutableOptions& options, const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw UsageError("--bucket " + text + ": expected SYMBOL=SIZES");
  options.buckets.emplace_back(text.substr(0, at), text.substr(at + 1));
}

// Catches signals from the first part to the last.
class Compiling {
 public:
  bool show(uint32_t done, uint32_t total) {
    if (!line_) {
      interrupt_.emplace();
      line_.emplace(0, total);
    }
    line_->show(done, "parts compiled");
    const bool go_on = !interrupt_->raised();
    if (!go_on || done == total) {
      line_.reset();
      interrupt_.reset();
    }
    return go_on;
  }

 private:
  std::optional<InterruptFlag> interrupt_;
  std::optional<Progress> line_;
};

}  // namespace

Option exec_option() {
  return {.name = "--exec",
          .value = "MODE",
          .help =
              "how steps run: stream (one by one), graph (captured, replayed), eager (one by one, "
              "waiting for each), multi-stream[:N] (up to N steps overlap, default 4)",
          .otherwise = "graph for programs that run often"};
}

Option compile_option() {
  return {.name = "--compile",
          .value = "MODE",
          .help = "generate code at first use (jit) or all of it before the first run (aot)",
          .otherwise = "jit",
          .choices = {"jit", "aot"}};
}

Option fallback_option() {
  return {.name = "--no-fallback",
          .help = "refuse instead of falling back to a cpu that --device does not name"};
}

Option memory_option() {
  return {.name = "--memory",
          .value = "SIZE,...",
          .help =
              "most memory per device: one size for all, or one for each of --device "
              "(6GiB,4GiB); 0: no limit",
          .otherwise = "0"};
}

Option pin_option() {
  return {.name = "--pin",
          .value = "PATTERN=ID",
          .help =
              "run the nodes with matching names on this device of --device, as in "
              "'model.layers.1?.*=cuda:1'; repeatable, the first match counts",
          .repeats = true};
}

Option bucket_option() {
  return {.name = "--bucket",
          .value = "SYMBOL=SIZES",
          .help =
              "round the number of a symbol up, so that many sizes share a plan: to powers of two "
              "(N=pow2, N=pow2:16..1024) or to one of a list (N=64,128,512); repeatable",
          .repeats = true};
}

ExecutableOptions executable_options(const Args& args) {
  ExecutableOptions options{.device = device_of(args)};
  if (args.has("--exec")) set_exec(options, args.text("--exec"));
  options.allow_fallback = !args.has("--no-fallback");
  if (args.has("--memory")) set_limits(options, args.text("--memory"));
  for (const std::string& pin : args.list("--pin")) add_pin(options, pin);
  for (const std::string& bucket : args.list("--bucket")) add_bucket(options, bucket);
  options.aot = args.text("--compile") == "aot";
  if (options.aot)
    options.progress = [state = std::make_shared<Compiling>()](uint32_t done, uint32_t total) {
      return state->show(done, total);
    };
  return options;
}

}  // namespace tenon::cli
