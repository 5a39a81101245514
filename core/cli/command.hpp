// SPDX-License-Identifier: Apache-2.0
// What every subcommand shares: its entry in the table of commands, the common options, exit
// statuses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/args.hpp"
#include "tenon/tenon.hpp"

namespace tenon::cli {

inline constexpr int kFailure = 1;  // something did not work
inline constexpr int kWrongUsage = 2;
inline constexpr int kInterrupted = 130;  // Ctrl-C

struct Command {
  std::string_view name;                     // "devices", "lm train"
  std::string_view summary{};                // one line
  std::string_view usage{};                  // what follows the name
  std::vector<Option> options{};             // its own; the common ones are added
  std::string_view examples{};               // a line each
  size_t words = 0;                          // arguments that are no options
  std::vector<std::string_view> choices{};   // of those arguments, unless empty
  Completes completes = Completes::nothing;  // for those arguments
  bool loads_plugins = true;                 // takes --plugin, --plugin-dir and --threads
  bool opens_device = true;                  // takes --device
  int (*run)(const Args& args) = nullptr;
};

// Every command, in the order of the overview.
const std::vector<Command>& all_commands();
// Its own options and the common ones that it takes.
std::vector<Option> options_of(const Command& command);

Command devices_command();
Command ops_command();
Command inspect_command();
Command bench_command();
Command calibrate_command();
Command cache_command();
Command lm_train_command();
Command lm_generate_command();
Command completions_command();

// Loads plugins as the common options say. A file named by --plugin that fails throws; a bad one in
// a directory is told on standard error.
Runtime make_runtime(const Args& args);
std::string device_of(const Args& args);

// --trace FILE, of the commands that run something.
Option trace_option();
// Records what runs do while it lives, when --trace asks for it.
class TraceFile {
 public:
  TraceFile(const Runtime& runtime, const Args& args);  // a path that cannot be is told here
  ~TraceFile();  // of a command that failed: what there is, saved as well as may be
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  void save();

 private:
  const Runtime& runtime_;
  std::string path_;  // empty: no trace, or saved
};

}  // namespace tenon::cli
