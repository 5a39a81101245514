// SPDX-License-Identifier: Apache-2.0
#include "cli/command.hpp"

#include <cstdio>
#include <filesystem>

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

}  // namespace tenon::cli
