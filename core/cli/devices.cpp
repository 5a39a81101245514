// SPDX-License-Identifier: Apache-2.0
// tenon devices: lists devices, and all plugins that were found, with the reason if one was not
// loaded.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/terminal.hpp"

namespace tenon::cli {
namespace {

using Trials = std::map<std::string, std::string>;  // by device: why its trial failed, else empty

nlohmann::json rates_of(const Runtime& runtime, const DeviceEntry& device) {
  return nlohmann::json::parse(runtime.rates(device.id));
}

void print_json(const Runtime& runtime, const Trials& trials) {
  nlohmann::json j;
  j["devices"] = nlohmann::json::array();
  for (const DeviceEntry& d : runtime.devices())
    j["devices"].push_back({{"id", d.id},
                            {"kind", d.kind},
                            {"name", d.name},
                            {"plugin", d.plugin},
                            {"reason", d.reason},
                            {"memory_size", d.memory_size},
                            {"max_allocation", d.max_allocation},
                            {"host_addressable", d.host_addressable},
                            {"class", d.class_name()},
                            {"trial", trials.at(d.id)},
                            {"rates", rates_of(runtime, d)}});
  j["plugins"] = nlohmann::json::array();
  for (const PluginEntry& p : runtime.plugins())
    j["plugins"].push_back({{"path", p.path},
                            {"loaded", p.code == TENON_OK},
                            {"stage", p.stage},
                            {"code", code_name(p.code)},
                            {"text", p.text},
                            {"name", p.name},
                            {"version", p.version},
                            {"devices", p.device_count}});
  std::cout << j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

// Plans a small graph on the device, which makes the plugin try its libraries. Returns why a node
// was refused.
std::string trial_of(const Runtime& runtime, const DeviceEntry& device) {
  if (!device.reason.empty()) return {};
  try {
    const Graph graph = Graph::parse(
        "graph { input x: f32[2,2] p = matmul(x, x) y = unary(p) {kind=\"neg\"} output \"y\" = y }",
        "trial");
    const Store store(runtime);
    const Executable executable(runtime, graph, store,
                                {.device = device.id, .allow_fallback = false});
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

int devices(const Args& args) {
  // A plugin describes itself once per runtime, so a second runtime is made after the trial.
  const Runtime& first = open_runtime(args);
  Trials trials;
  for (const DeviceEntry& d : first.devices()) trials[d.id] = trial_of(first, d);
  const Runtime& runtime = open_runtime(args);
  if (args.has("--json")) {
    print_json(runtime, trials);
    return 0;
  }
  std::cout << "devices:\n";
  for (const DeviceEntry& d : runtime.devices()) {
    std::cout << "  " << d.id << "  " << d.name << ", "
              << (d.memory_size ? size_text(d.memory_size) : "memory of unknown size")
              << ", plugin " << d.plugin;
    if (!d.reason.empty()) std::cout << "; cannot be used: " << d.reason;
    std::cout << "\n";
    if (!d.reason.empty()) continue;
    if (!trials.at(d.id).empty())
      std::cout << "    a trial of two ops failed: " << trials.at(d.id) << "\n";
    const nlohmann::json rates = rates_of(runtime, d);
    std::cout << "    rates: "
              << (rates["measured"].get<bool>() ? "measured, " + rates["file"].get<std::string>()
                                                : "defaults, " + rates["remark"].get<std::string>())
              << "\n";
  }
  if (runtime.devices().empty()) std::cout << "  none\n";
  std::cout << "plugins:\n";
  for (const PluginEntry& p : runtime.plugins()) {
    std::cout << "  " << p.path << "\n    ";
    if (p.code == TENON_OK) {
      std::cout << "loaded: " << p.name << " " << p.version << ", " << p.device_count << " device"
                << (p.device_count == 1 ? "" : "s");
      if (!p.text.empty()) std::cout << " (" << p.text << ")";
    } else {
      std::cout << "not loaded (" << p.stage << "): " << p.text;
    }
    std::cout << "\n";
  }
  if (runtime.plugins().empty()) std::cout << "  none found\n";
  return 0;
}

}  // namespace

Command devices_command() {
  return {.name = "devices",
          .summary = "list devices and plugins, also those that failed to load",
          .usage = "[--json]",
          .options = {{.name = "--json", .help = "print JSON"}},
          .examples = "tenon devices\ntenon devices --plugin-dir ./build/plugins --json\n",
          .opens_device = false,
          .run = devices};
}

}  // namespace tenon::cli
