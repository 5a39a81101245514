// SPDX-License-Identifier: Apache-2.0
// All plugins of one context: finds files, checks them, loads them, and reports on each. Nothing of
// a file runs before its manifest, read as plain bytes, was accepted.
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

// How far a candidate came. Where it stopped, unless loaded.
enum class LoadStage {
  found,        // the path: absolute, there, not seen before
  permissions,  // a regular file that others cannot write
  manifest,     // ELF, with a manifest that fits this host
  dlopen,
  symbol,
  negotiate,  // the entry, the ABI version, the table
  create,
  enumerate,
  loaded,
};
const char* stage_name(LoadStage stage);

struct LoadCandidate {
  std::string path;  // canonical where there is one; "static" for a linked-in entry
  LoadStage stage = LoadStage::found;
  Code code = Code::ok;                 // why it stopped
  std::string text;                     // likewise, for people; the loader's own words are kept
  bool named = false;                   // the app named this file, or entry
  std::string plugin, version, vendor;  // as far as they are known
  std::string note;                     // what the plugin remarked: why there is no device
  std::vector<DeviceInfo> devices;
};

struct LoadReport {
  std::vector<LoadCandidate> candidates;
};

// A plugin that is linked into the program: loaded by every Host made after this call.
void register_static(tenon_backend_entry_fn entry);

struct HostOptions {
  std::vector<std::string> plugin_dirs;         // absolute; searched after the built-in one
  std::vector<std::string> plugin_files;        // absolute; a failure of one throws
  std::vector<tenon_backend_entry_fn> entries;  // linked in; a failure of one throws
  bool use_environment = true;                  // TENON_PLUGIN_PATH, of unprivileged processes only
  bool use_builtin_dir = true;                  // tenon/plugins beside libtenon
  uint32_t threads = 0;                         // 0 = all that this process may use
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
  // "cpu:0"; "cpu" is the first of the kind that opens; "auto" the first of all that opens, devices
  // that do not compute on host threads before those that do. One Device per id, shared.
  std::shared_ptr<Device> open(std::string_view id);
  uint32_t threads() const { return threads_; }
  // Of a device by its id; throws not_found.
  RatesKey rates_key(std::string_view id) const;
  KnownRates rates(std::string_view id) const;
  // What devices chose by timing, by the plugin's name: those of the devices that are open; and
  // those that devices are to take, also when they are opened later.
  using Choices = std::map<std::string, std::vector<std::string>>;
  Choices choices();
  void take_choices(Choices choices);
  Faults& faults() { return *faults_; }  // of all devices that are opened here
  // Called when a device reports that it is short of memory, before the call is made once more.
  // Set it before the first device is opened.
  void when_short(std::function<void(const Device&)> free_idle) {
    free_idle_ = std::move(free_idle);
  }

 private:
  struct Known {
    std::shared_ptr<Plugin> plugin;
    uint32_t index;  // among the plugin's devices
    DeviceInfo info;
    std::weak_ptr<Device> opened;
  };
  std::shared_ptr<Device> open_known(Known& known);
  const Known& known(std::string_view id) const;

  uint32_t threads_;
  const std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::function<void(const Device&)> free_idle_;
  LoadReport report_;
  std::vector<std::shared_ptr<Plugin>> plugins_;  // those without devices too
  Choices to_take_;
  std::mutex mutex_;  // guards Known::opened and to_take_
  std::vector<Known> known_;
};

}  // namespace tenon::core
