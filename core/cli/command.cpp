// SPDX-License-Identifier: Apache-2.0
#include "cli/command.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <utility>

namespace tenon::cli {

const std::vector<Option>& common_options() {
  static const std::vector<Option> options = {
      {"--device", "ID", "device to run on: auto, cpu, cuda:0 ... (default auto)"},
      {"--threads", "N", "computing threads (default: the smaller of affinity and cgroup quota)"},
      {"--plugin-dir", "DIR", "also search DIR for plugins; repeatable", true},
      {"--plugin", "FILE", "load this plugin; repeatable; a failure ends the command", true},
      {"--help", "", "this text"},
  };
  return options;
}

Runtime make_runtime(const Args& args) {
  RuntimeOptions options;
  // The loader takes absolute paths only; a relative one on a command line means the working
  // directory, said explicitly.
  for (const std::string& d : args.list("--plugin-dir"))
    options.plugin_dirs.push_back(std::filesystem::absolute(d));
  for (const std::string& f : args.list("--plugin"))
    options.plugin_files.push_back(std::filesystem::absolute(f));
  options.threads = static_cast<uint32_t>(args.integer("--threads", 0, 1, 4096));
  return Runtime(options);
}

std::string device_of(const Args& args) { return args.text("--device", "auto"); }

Option trace_option() {
  return {"--trace", "FILE",
          "write what ran when to FILE, for ui.perfetto.dev or chrome://tracing (JSON)"};
}

TraceFile::TraceFile(const Runtime& runtime, const Args& args)
    : runtime_(runtime), path_(args.text("--trace")) {
  if (path_.empty()) return;
  std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  if (folder.empty()) folder = ".";
  if (::access(folder.c_str(), W_OK) != 0)
    throw Error(TENON_IO_ERROR, path_ + ": its folder is not there or cannot be written");
  runtime_.start_trace();
}

TraceFile::~TraceFile() {
  try {
    save();
  } catch (const std::exception& e) {
    std::cerr << "tenon: the trace is lost: " << e.what() << "\n";
  }
}

void TraceFile::save() {
  if (const std::string path = std::exchange(path_, {}); !path.empty()) runtime_.save_trace(path);
}

}  // namespace tenon::cli
