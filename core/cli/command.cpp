// SPDX-License-Identifier: Apache-2.0
// The options that every subcommand takes, and how they open a runtime.
#include "cli/command.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <list>
#include <utility>

#include "cli/watch.hpp"

namespace tenon::cli {

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = {
      devices_command(),    ops_command(),       run_command(),       inspect_command(),
      export_command(),     bench_command(),     calibrate_command(), cache_command(),
      llm_run_command(),    llm_serve_command(), llm_embed_command(), llm_convert_command(),
      llm_bench_command(),  llm_tune_command(),  lm_train_command(),  lm_generate_command(),
      completions_command()};
  return commands;
}

std::vector<Option> options_of(const Command& command) {
  std::vector<Option> options = command.options;
  if (command.opens_device)
    options.push_back(
        {.name = "--device",
         .value = "ID,...",
         .help = "device to run on: auto, cpu, cuda:0 ..., or several: cuda:0,cuda:1; 'tenon "
                 "devices' lists them",
         .otherwise = "auto"});
  if (command.loads_plugins) {
    options.push_back({.name = "--threads",
                       .value = "N",
                       .help = "number of compute threads",
                       .otherwise = "CPU affinity or cgroup quota"});
    options.push_back({.name = "--plugin-dir",
                       .value = "DIR",
                       .help = "also search DIR for plugins; repeatable",
                       .completes = Completes::folder,
                       .repeats = true});
    options.push_back({.name = "--plugin",
                       .value = "FILE",
                       .help = "load this plugin or fail; repeatable",
                       .completes = Completes::file,
                       .repeats = true});
  }
  options.push_back({.name = "--help", .help = "print this help"});
  return options;
}

namespace {
// The loader requires absolute paths. Relative ones are resolved against the working directory.
std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (error || path.empty())
    throw Error(TENON_IO_ERROR,
                "'" + path + "': " + (path.empty() ? "the path is empty" : error.message()));
  return whole.string();
}

std::list<Runtime>& open_runtimes() {
  static std::list<Runtime> runtimes;
  return runtimes;
}
}  // namespace

const Runtime& open_runtime(const Args& args) {
  RuntimeOptions options;
  for (const std::string& d : args.list("--plugin-dir")) options.plugin_dirs.push_back(absolute(d));
  for (const std::string& f : args.list("--plugin")) options.plugin_files.push_back(absolute(f));
  options.threads = static_cast<uint32_t>(args.integer("--threads", 0, 0, 4096));
  const HangWatch watch;
  return open_runtimes().emplace_back(options);
}

void close_runtimes() {
  const HangWatch watch;
  while (!open_runtimes().empty()) open_runtimes().pop_back();
}

std::string device_of(const Args& args) { return args.text("--device", "auto"); }

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

Option trace_option() {
  return {.name = "--trace",
          .value = "FILE",
          .help = "write a timeline to FILE (JSON for ui.perfetto.dev)",
          .completes = Completes::file};
}

namespace {
// A mistyped path may name any file: a trace only replaces traces.
bool may_be_replaced(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return true;  // /dev/null, a pipe
  std::string begin(80, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return in.gcount() == 0 || begin.find("\"traceEvents\"") != std::string::npos;
}
}  // namespace

TraceFile::TraceFile(const Runtime& runtime, const Args& args)
    : runtime_(runtime), path_(args.text("--trace")) {
  if (path_.empty()) return;
  std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  if (folder.empty()) folder = ".";
  if (::access(folder.c_str(), W_OK) != 0)
    throw Error(TENON_IO_ERROR, path_ + ": the folder does not exist or is not writable");
  if (!may_be_replaced(path_))
    throw Error(
        TENON_IO_ERROR,
        path_ + ": the file exists and is not a trace; expected a new file, or a trace to replace");
  runtime_.start_trace();
}

TraceFile::~TraceFile() {
  try {
    save();
  } catch (const std::exception& e) {
    std::cerr << "tenon: the trace was not saved: " << e.what() << "\n";
  }
}

void TraceFile::save() {
  if (const std::string path = std::exchange(path_, {}); !path.empty()) runtime_.save_trace(path);
}

}  // namespace tenon::cli
