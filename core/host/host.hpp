// SPDX-License-Identifier: Apache-2.0
// All plugins of a runtime: finds, checks and loads files, and reports on each. No code of a file
// runs before its manifest was accepted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "host/device.hpp"
#include "host/rates.hpp"

namespace tenon::core {

// The stages of loading. A candidate that was not loaded stopped at its stage.
enum class LoadStage {
  found,        // the path is absolute, exists, and was not seen before
  permissions,  // a regular file that only this user and root can change
  manifest,     // an ELF file with a manifest that fits this host
  dlopen,
  symbol,
  negotiate,  // the entry, the ABI version, the table
  create,
  enumerate,
  ops,
  loaded,
};
const char* stage_name(LoadStage stage);

struct LoadCandidate {
  std::string path;  // canonical if possible; "static" for a linked-in entry
  LoadStage stage = LoadStage::found;
  Code code = Code::ok;                 // of the failure
  std::string text;                     // the message of the failure
  bool named = false;                   // the app named this file or entry
  std::string plugin, version, vendor;  // empty if unknown
  std::string note;                     // the plugin's remark, for example why it has no device
  std::vector<DeviceInfo> devices;
};

struct LoadReport {
  std::vector<LoadCandidate> candidates;
};

// Registers a plugin that is linked into the program. Every Host created afterwards loads it.
void register_static(tenon_backend_entry_fn entry);

struct HostOptions {
  std::vector<std::string> plugin_dirs;         // absolute; searched after the built-in folder
  std::vector<std::string> plugin_files;        // absolute; a failure throws
  std::vector<tenon_backend_entry_fn> entries;  // linked in; a failure throws
  bool use_environment = true;                  // TENON_PLUGIN_PATH, except in privileged processes
  bool use_builtin_dir = true;                  // tenon/plugins next to libtenon
  uint32_t threads = 0;                         // 0 = as many as this process may use
};

class Host {
 public:
  using Options = HostOptions;

  explicit Host(Options options = {});
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const LoadReport& report() const { return report_; }
  std::vector<DeviceInfo> devices() const;
  // Opens "cpu:0"; "cpu" opens the first usable device of the kind; "auto" opens the first usable
  // device, by its class. Devices are shared per id.
  std::shared_ptr<Device> open(std::string_view id);
  uint32_t threads() const { return threads_; }
  // Key of the rates of a device. Throws not_found.
  RatesKey rates_key(std::string_view id) const;
  KnownRates rates(std::string_view id) const;
  // Choices by plugin: those that open devices made, and those offered to devices that are open or
  // opened later.
  using Choices = std::map<std::string, std::vector<std::string>>;
  Choices choices();
  void take_choices(Choices choices);
  Faults& faults() { return *faults_; }  // of all devices opened here
  // Called when a device reports that it is short of memory, before the call is made once more.
  // Set it before the first device is opened.
  void when_short(std::function<void(const Device&)> free_idle) {
    free_idle_ = std::move(free_idle);
  }

 private:
  struct Known {
    std::shared_ptr<Plugin> plugin;
    uint32_t index;  // among the devices of the plugin
    DeviceInfo info;
    std::weak_ptr<Device> opened;
  };
  std::shared_ptr<Device> open_known(Known& known);
  const Known& known(std::string_view id) const;

  uint32_t threads_;
  const std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::function<void(const Device&)> free_idle_;
  LoadReport report_;
  std::vector<std::shared_ptr<Plugin>> plugins_;  // including those without devices
  Choices to_take_;
  std::mutex mutex_;  // guards Known::opened and to_take_
  std::vector<Known> known_;
};

}  // namespace tenon::core
