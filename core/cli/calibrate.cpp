// SPDX-License-Identifier: Apache-2.0
// tenon calibrate: measures the rates of devices and stores them for placement and bench.
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress.hpp"

namespace tenon::cli {
namespace {

using nlohmann::json;

// The devices that --device names. "auto" omits those that cannot be opened.
std::vector<std::string> wanted_devices(const Runtime& runtime, const Args& args) {
  if (args.has("--device") && device_of(args) != "auto") return list_of(device_of(args));
  std::vector<std::string> ids;
  for (const DeviceEntry& d : runtime.devices())
    if (d.reason.empty()) ids.push_back(d.id);
  if (ids.empty()) throw Error(TENON_NOT_FOUND, "there is no device to calibrate");
  return ids;
}

void print(const json& known) {
  const json& r = known["rates"];
  const auto at = [&](const char* name) { return r[name].get<double>(); };
  std::printf("%s: copy %.1f GB/s, run %.2f us, step %.2f us",
              known["device"].get<std::string>().c_str(), at("copy_bytes_per_second") * 1e-9,
              at("run_seconds") * 1e6, at("step_seconds") * 1e6);
  if (at("fork_seconds") > 0) std::printf(", fork %.2f us", at("fork_seconds") * 1e6);
  std::printf("\n  host to device %.1f GB/s, back %.1f GB/s, a few bytes %.2f us\n  products",
              at("to_device_bytes_per_second") * 1e-9, at("from_device_bytes_per_second") * 1e-9,
              at("transfer_seconds") * 1e6);
  for (const auto& [dtype, rate] : r["product_flops_per_second"].items())
    std::printf(" %s %.0f", dtype.c_str(), rate.get<double>() * 1e-9);
  std::printf(" GFLOP/s\n  kept in %s\n", known["file"].get<std::string>().c_str());
}

int calibrate(const Args& args) {
  const Runtime& runtime = open_runtime(args);
  const double seconds = args.number("--seconds", 0.2, 0.001, 60);
  const InterruptFlag interrupted;
  json all = json::array();
  for (const std::string& id : wanted_devices(runtime, args)) {
    std::optional<Progress> progress;
    const auto show = [&](std::string_view what, uint32_t done, uint32_t total) {
      if (!progress) progress.emplace(0, total);
      progress->show(done, id + ": " + std::string(what));
      return !interrupted.raised();
    };
    try {
      all.push_back(json::parse(runtime.calibrate(id, seconds, show)));
    } catch (const Error& e) {
      if (e.code() != TENON_CANCELLED || !interrupted.raised()) throw;
      progress.reset();
      std::cerr << "tenon: interrupted; of " << id << " nothing was kept\n";
      return kInterrupted;
    }
    progress.reset();
    if (!args.has("--json")) print(all.back());
  }
  if (args.has("--json"))
    std::cout << all.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
  return 0;
}

}  // namespace

Command calibrate_command() {
  return {
      .name = "calibrate",
      .summary = "measure the rates of devices, for placement and bench",
      .usage = "[options]",
      .options = {{.name = "--seconds", .value = "X", .help = "time per rate", .otherwise = "0.2"},
                  {.name = "--json", .help = "print JSON"}},
      .examples = "tenon calibrate\ntenon calibrate --device cuda:0 --json\n",
      .run = calibrate};
}

}  // namespace tenon::cli
