// SPDX-License-Identifier: Apache-2.0
// Finds plugin files and takes each through the stages of LoadStage. Each candidate is reported.
// Images are never unmapped.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host/host.hpp"
#include "host/plugin.hpp"
#include "host/plugin_path.hpp"
#include "tenon/manifest.h"

namespace tenon::core {

class Loader {
 public:
  // A loaded plugin, and the index of its candidate in the report.
  struct Loaded {
    std::shared_ptr<Plugin> plugin;
    size_t candidate;
    bool builtin;  // from the built-in directory
  };

  // threads: how many the plugins may use for this runtime.
  explicit Loader(uint32_t threads) : threads_(threads) {}

  // Throws if something that the app named fails. Other failures are only reported.
  void load_entry(tenon_backend_entry_fn entry, bool named);
  void load_named_file(const std::string& path);
  void search_builtin_directory();
  void search_directory(const std::string& path, bool builtin = false);
  void search_environment();

  LoadReport take_report() { return std::move(report_); }
  std::vector<Loaded> take_loaded() { return std::move(loaded_); }

 private:
  template <class Body>
  void attempt(LoadCandidate candidate, bool builtin, Body body);
  void load_file(const std::string& path, bool named, bool builtin);
  std::shared_ptr<Plugin> start(tenon_backend_entry_fn entry, LoadCandidate& candidate,
                                const tenon_manifest* manifest);

  const uint32_t threads_;
  LoadReport report_;
  std::vector<Loaded> loaded_;
  std::map<FileId, size_t> seen_;  // file -> candidate
};

// tenon/plugins next to the library that contains this code; empty if that is unknown.
std::string builtin_plugin_directory();

}  // namespace tenon::core
