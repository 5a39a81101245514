// SPDX-License-Identifier: Apache-2.0
// Loads the plugins of a runtime, and lists their devices.
#include "host/host.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/log.hpp"
#include "host/choices.hpp"
#include "host/control_group.hpp"
#include "host/host_table.hpp"
#include "host/loader.hpp"
#include "host/plugin.hpp"
#include "host/threads.hpp"

namespace tenon::core {
namespace {

// A device that cannot use a choice makes its own.
void offer_choices(const Device& device, const std::vector<std::string>& choices) {
  for (const std::string& choice : choices) {
    try {
      take_choice(device, choice);
    } catch (const std::exception& e) {
      log(LogLevel::warning, cat("a choice is not taken: ", e.what()));
    }
  }
}

struct StaticEntries {
  std::mutex mutex;
  std::vector<tenon_backend_entry_fn> entries;
};
StaticEntries& static_entries() {
  static StaticEntries& the = *new StaticEntries;  // registered from constructors of other files
  return the;
}
std::vector<tenon_backend_entry_fn> registered_entries() {
  StaticEntries& all = static_entries();
  const std::lock_guard lock(all.mutex);
  return all.entries;
}

}  // namespace

void register_static(tenon_backend_entry_fn entry) {
  StaticEntries& all = static_entries();
  const std::lock_guard lock(all.mutex);
  if (std::ranges::find(all.entries, entry) == all.entries.end()) all.entries.push_back(entry);
}

const char* stage_name(LoadStage stage) {
  switch (stage) {
    case LoadStage::found:
      return "found";
    case LoadStage::permissions:
      return "permissions";
    case LoadStage::manifest:
      return "manifest";
    case LoadStage::dlopen:
      return "dlopen";
    case LoadStage::symbol:
      return "symbol";
    case LoadStage::negotiate:
      return "negotiate";
    case LoadStage::create:
      return "create";
    case LoadStage::enumerate:
      return "enumerate";
    case LoadStage::ops:
      return "ops";
    case LoadStage::loaded:
      return "loaded";
  }
  return "unknown";
}

Host::Host(Options options) : threads_(options.threads ? options.threads : available_threads()) {
  Loader loader(threads_);
  // Plugins that the app names come first, so they win over plugins of the same name in a folder.
  for (tenon_backend_entry_fn entry : options.entries) loader.load_entry(entry, true);
  for (const std::string& file : options.plugin_files) loader.load_named_file(file);
  for (tenon_backend_entry_fn entry : registered_entries()) loader.load_entry(entry, false);
  if (options.use_builtin_dir) loader.search_builtin_directory();
  for (const std::string& directory : options.plugin_dirs) loader.search_directory(directory);
  if (options.use_environment) loader.search_environment();
  report_ = loader.take_report();

  std::vector<Loader::Loaded> loaded = loader.take_loaded();
  // Built-in plugins are numbered first, so that naming another plugin of the same kind does not
  // change "cpu:0".
  std::ranges::stable_partition(loaded, [](const Loader::Loaded& l) { return l.builtin; });
  std::map<std::string, uint32_t> counts;
  for (const Loader::Loaded& l : loaded) {
    uint32_t position = 0;
    for (DeviceInfo info : l.plugin->devices()) {
      info.index = counts[info.kind]++;
      info.id = cat(info.kind, ":", info.index);
      // A device with host threads uses host memory, limited by that of the process.
      if (const uint64_t most = control_group_memory();
          info.host_threads && info.memory_size > most)
        info.memory_size = info.max_allocation = most;
      report_.candidates[l.candidate].devices.push_back(info);
      known_.push_back({l.plugin, position++, std::move(info), {}});
    }
    plugins_.push_back(l.plugin);
  }
}

Host::~Host() = default;  // each plugin shuts down with its last object

std::vector<DeviceInfo> Host::devices() const {
  std::vector<DeviceInfo> all;
  for (const Known& k : known_) all.push_back(k.info);
  return all;
}

std::shared_ptr<Device> Host::open_known(Known& known) {
  const std::lock_guard lock(mutex_);
  if (std::shared_ptr<Device> device = known.opened.lock()) return device;
  auto device = std::make_shared<Device>(known.plugin, known.index, known.info, threads_, faults_,
                                         free_idle_);
  if (const auto found = to_take_.find(known.plugin->name()); found != to_take_.end())
    offer_choices(*device, found->second);
  known.opened = device;
  return device;
}

Host::Choices Host::choices() {
  std::vector<std::shared_ptr<Device>> open;
  {
    const std::lock_guard lock(mutex_);
    for (const Known& k : known_)
      if (auto device = k.opened.lock()) open.push_back(std::move(device));
  }
  Choices all;
  for (const auto& device : open)
    for (std::string& choice : choices_of(*device))
      all[device->plugin().name()].push_back(std::move(choice));
  for (auto& [plugin, list] : all) {  // so that devices of one kind choose alike
    std::ranges::sort(list);
    list.erase(std::ranges::unique(list).begin(), list.end());
  }
  return all;
}

void Host::take_choices(Choices choices) {
  const std::lock_guard lock(mutex_);
  to_take_ = std::move(choices);
  for (const Known& k : known_)
    if (const auto device = k.opened.lock()) offer_choices(*device, to_take_[k.plugin->name()]);
}

namespace {

// The place of a device where nobody names one, see TENON_DEVICE_CLASS_*.
int rank(const DeviceInfo& d) {
  switch (d.device_class) {
    case TENON_DEVICE_CLASS_DISCRETE:
      return 0;
    case TENON_DEVICE_CLASS_ACCELERATOR:
      return 1;
    case TENON_DEVICE_CLASS_INTEGRATED:
      return 2;
    case TENON_DEVICE_CLASS_CPU:
      return d.host_threads ? 4 : 5;
    default:
      return d.host_threads ? 4 : 3;
  }
}

}  // namespace

const Host::Known& Host::known(std::string_view id) const {
  for (const Known& k : known_)
    if (k.info.id == id) return k;
  fail(Code::not_found, "there is no device '", id, "'");
}

RatesKey Host::rates_key(std::string_view id) const {
  const Known& k = known(id);
  return {.device = k.info.id,
          .name = k.info.name,
          .plugin = k.plugin->name(),
          .plugin_version = k.plugin->version(),
          .note = k.plugin->note(),
          .threads = k.info.host_threads ? threads_ : 0};
}

KnownRates Host::rates(std::string_view id) const {
  return load_rates(rates_key(id), known(id).info);
}

std::shared_ptr<Device> Host::open(std::string_view id) {
  std::vector<Known*> wanted;
  for (Known& k : known_) {
    if (id == "auto" || id == k.info.kind || id == k.info.id) wanted.push_back(&k);
  }
  if (id == "auto")
    std::ranges::stable_sort(wanted, {}, [](const Known* k) { return rank(k->info); });
  std::string failures;
  for (Known* k : wanted) {
    try {
      return open_known(*k);
    } catch (const Error& e) {
      if (wanted.size() == 1) throw;
      log(LogLevel::info, e.what());
      failures += cat(failures.empty() ? "" : "; ", k->info.id, ": ", e.what());
    }
  }
  if (!failures.empty()) fail(Code::unsupported, "no device '", id, "' opens: ", failures);
  std::string present;
  for (const Known& k : known_) present += (present.empty() ? "" : ", ") + k.info.id;
  // A plugin that is named like the kind, and has no device, has given a reason.
  std::string why;
  for (const auto& p : plugins_)
    if (p->name() == id.substr(0, id.find(':')) && !p->note().empty())
      why += cat(" (plugin ", p->name(), ": ", p->note(), ")");
  fail(Code::not_found, "there is no device '", id, "'; there ",
       present.empty() ? "is none at all, see the load report" : "are: ", present, why);
}

}  // namespace tenon::core
