// SPDX-License-Identifier: Apache-2.0
// Estimates what a training takes, and reads how much memory and disk are free.
#include "cli/lm/room.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/terminal.hpp"

namespace tenon::lm {
namespace {

using cli::size_text;

// A line "NAME:   12345 kB" of a file of /proc, in bytes.
uint64_t proc_bytes(const char* file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const size_t digits = line.find_first_of("0123456789");
    uint64_t kib = 0;
    if (digits == std::string::npos) return 0;
    std::from_chars(line.data() + digits, line.data() + line.size(), kib);
    return kib << 10;
  }
  return 0;
}

// What the process may still take, by the system's own estimate.
uint64_t free_host_memory() {
  return proc_bytes("/proc/meminfo", "MemAvailable:") + proc_bytes("/proc/meminfo", "SwapFree:");
}
uint64_t own_memory() { return proc_bytes("/proc/self/status", "VmRSS:"); }

// Of the host: the smaller of its memory and its control group's limit, as the cpu device tells.
uint64_t host_memory(const Runtime& runtime) {
  uint64_t size = 0;
  for (const DeviceEntry& d : runtime.devices())
    if (d.host_addressable && d.memory_size > 0)
      size = size ? std::min(size, d.memory_size) : d.memory_size;
  return size;
}

// bytes beyond a double's whole numbers do not matter
uint64_t to_bytes(double bytes) {
  return bytes < 0x1p63 ? static_cast<uint64_t>(bytes) : uint64_t{1} << 63;
}

// The moments m and v in f32; with half-precision weights also their f32 masters.
double weight_bytes(const Config& c) { return parameter_count(c) * (c.dtype == f32 ? 4 : 2); }
double state_bytes(const Config& c) { return parameter_count(c) * (c.dtype == f32 ? 8 : 12); }

}  // namespace

uint64_t save_bytes(const Config& config, const TrainingState& state) {
  constexpr double kSmallFiles = 64 << 10, kPerStep = 64;  // training.json and loss.svg
  return to_bytes(weight_bytes(config) + state_bytes(config) + kSmallFiles +
                  kPerStep * static_cast<double>(state.total_steps));
}

void check_weights_fit(const Runtime& runtime, const Config& config) {
  const uint64_t needed = to_bytes(weight_bytes(config) + state_bytes(config));
  const uint64_t size = host_memory(runtime), free = free_host_memory();
  const uint64_t room = size && free ? std::min(size, free) : std::max(size, free);
  if (room == 0 || needed <= room) return;
  throw Error(TENON_OUT_OF_MEMORY,
              "weights and optimizer: do not fit the host's memory; expected at least " +
                  size_text(needed) + ", got " + size_text(room) +
                  " free; hint: a smaller --dim, --layers or --ffn" +
                  (config.dtype == f32 ? "" : ", or --dtype f32, which needs no masters"));
}

MemoryNeed memory_need(const Runtime& runtime, const Stepper& stepper, const HeldOut& held_out) {
  // Weights and state are shared by the graphs; each has intermediates of its own.
  std::map<std::string, MemoryNeed> needs;
  std::vector<std::string> reports = stepper.reports();
  reports.push_back(held_out.report());
  for (const std::string& text : reports) {
    const auto report = nlohmann::json::parse(text);
    for (const auto& m : report["memory"]) {
      MemoryNeed& n = needs[m["device"].get<std::string>()];
      n.weights = std::max(n.weights, m["weights"].get<uint64_t>());
      n.state = std::max(n.state, m["state"].get<uint64_t>());
      n.intermediates += m["peak"].get<uint64_t>();
    }
  }
  MemoryNeed most;
  for (auto& [device, n] : needs)
    if (n.device = device; most.device.empty() || n.total() > most.total()) most = n;
  for (const DeviceEntry& d : runtime.devices())
    if (d.id == most.device) {
      most.name = d.name;
      most.room = d.memory_size;
      most.on_host = d.host_addressable;
    }
  return most;
}

void check_memory(const MemoryNeed& need, const TrainingState& state, bool checkpoint) {
  uint64_t needed = need.total(), room = need.room;
  std::string free;
  if (need.on_host) {
    // Weights and state are there already, beside the program and the texts.
    const uint64_t own = own_memory(), left = free_host_memory();
    needed = std::max(needed, own + need.intermediates);
    if (left > 0 && (room == 0 || own + left < room)) {
      room = own + left;
      free = " free";
    }
  }
  if (room == 0 || needed <= room) return;
  std::string hint;
  const auto add = [&](const std::string& text) { hint += (hint.empty() ? "" : ", ") + text; };
  if (need.weights + need.state < room) {
    if (state.batch > 1)
      add("--batch " + std::to_string(state.batch / 2) + " --accumulate " +
          std::to_string(state.accumulate * 2));
    if (!checkpoint) add("--checkpoint");
  }
  add("a smaller --dim, --layers or --context");
  throw Error(TENON_OUT_OF_MEMORY,
              need.device + ": the training does not fit its memory; expected at least " +
                  size_text(needed) + " (weights " + size_text(need.weights) + ", optimizer " +
                  size_text(need.state) + ", intermediates " + size_text(need.intermediates) +
                  "), got " + size_text(room) + free + "; hint: " + hint +
                  "; --no-room-check starts all the same");
}

uint64_t disk_room(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return 0;
  return uint64_t{info.f_bavail} * info.f_frsize;
}

void check_disk(const std::string& folder, const Config& config, const TrainingState& state) {
  const uint64_t needed = save_bytes(config, state);
  struct statvfs info {};
  const bool known = ::statvfs(folder.c_str(), &info) == 0 && info.f_blocks > 0;
  if (const uint64_t room = disk_room(folder); known && needed > room)
    throw Error(TENON_IO_ERROR, folder + ": the disk is too full for a save; expected at least " +
                                    size_text(needed) + " free, got " + size_text(room) +
                                    "; hint: free some or name another folder with --out; "
                                    "--no-room-check starts all the same");
  rlimit limit{};
  const auto largest = to_bytes(std::max(weight_bytes(config), state_bytes(config)));
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      largest > limit.rlim_cur)
    throw Error(TENON_IO_ERROR,
                folder +
                    "/optimizer.safetensors: would be larger than this process may write; "
                    "expected at least " +
                    size_text(largest) + ", got " + size_text(limit.rlim_cur) +
                    " (ulimit -f); hint: raise the limit; --no-room-check starts all the same");
}

}  // namespace tenon::lm
