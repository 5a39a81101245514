// SPDX-License-Identifier: Apache-2.0
// Shared by all subcommands: the entry in the table of commands, common options, exit statuses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/args.hpp"
#include "tenon/tenon.hpp"

namespace tenon::cli {

inline constexpr int kFailure = 1;  // something failed
inline constexpr int kWrongUsage = 2;
inline constexpr int kInterrupted = 130;  // Ctrl-C

struct Command {
  std::string_view name;                     // "devices", "lm train"
  std::string_view summary{};                // one line
  std::string_view usage{};                  // the words after the name
  std::vector<Option> options{};             // without the common ones
  std::string_view examples{};               // one per line
  size_t words = 0;                          // arguments that are not options
  std::vector<std::string_view> choices{};   // allowed values of these arguments, unless empty
  Completes completes = Completes::nothing;  // for those arguments
  bool loads_plugins = true;                 // accepts --plugin, --plugin-dir and --threads
  bool opens_device = true;                  // accepts --device
  int (*run)(const Args& args) = nullptr;
};

// All commands, in the order of the overview.
const std::vector<Command>& all_commands();
// The command's own options and its common ones.
std::vector<Option> options_of(const Command& command);

Command devices_command();
Command ops_command();
Command inspect_command();
Command run_command();
Command export_command();
Command bench_command();
Command calibrate_command();
Command cache_command();
Command lm_train_command();
Command lm_generate_command();
Command llm_run_command();
Command llm_serve_command();
Command llm_convert_command();
Command llm_bench_command();
Command llm_embed_command();
Command llm_tune_command();
Command completions_command();

// Loads plugins as the common options say. Throws if a plugin of --plugin fails; prints a warning
// for one in a directory. The runtime lives until close_runtimes.
const Runtime& open_runtime(const Args& args);
// Shuts plugins down. Called after everything printed is written: a plugin may crash or hang here.
void close_runtimes();
std::string device_of(const Args& args);                    // or a list of them
std::vector<std::string> list_of(const std::string& text);  // the parts between commas

// --trace FILE, for commands that run something.
Option trace_option();
// Records runs during its lifetime if --trace is given.
class TraceFile {
 public:
  TraceFile(const Runtime& runtime, const Args& args);  // fails here if the path is not usable
  ~TraceFile();  // saves what was recorded, also if the command failed
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  void save();

 private:
  const Runtime& runtime_;
  std::string path_;  // empty: no trace, or already saved
};

}  // namespace tenon::cli
