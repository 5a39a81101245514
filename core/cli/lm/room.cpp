// SPDX-License-Identifier: Apache-2.0
// Estimates how much memory and disk a training or a generation needs, and reads how much is free.
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

// Memory of this process that is not the contents of files.
uint64_t own_memory() { return proc_bytes("/proc/self/status", "RssAnon:"); }

// Memory beside the tensors, measured on small models and rounded up: 28 MiB for compiled graphs and
// libraries, 8 MiB more for the working memory of threads during the first step. With 16 MiB for the
// latter, one of many trainings on a busy machine was killed.
constexpr uint64_t kCompiledBytes = 32 << 20, kThreadBytes = 28 << 20;

// Rounding does not matter here.
uint64_t to_bytes(double bytes) {
  return bytes < 0x1p63 ? static_cast<uint64_t>(bytes) : uint64_t{1} << 63;
}

double weight_size(const Config& c) { return c.dtype == f32 ? 4 : 2; }
double weight_bytes(const Config& c) { return parameter_count(c) * weight_size(c); }
// The moments m and v in f32; with half-precision weights also their f32 masters.
double state_bytes(const Config& c) { return parameter_count(c) * (c.dtype == f32 ? 8 : 12); }
// The sums of gradients of --accumulate are f32.
double sum_bytes(const Config& c) { return parameter_count(c) * 4; }
// What generation keeps of one sequence: the keys and values of all positions, or the state of the
// recurrent layers, which is f32 but for the inputs of convolutions.
double cache_bytes(const Config& c) {
  if (c.recurrent())
    return static_cast<double>(c.layers) *
           (4.0 * static_cast<double>(c.recurrent_state()) +
            weight_size(c) * static_cast<double>((c.conv_width - 1) * c.conv_channels()));
  return 2.0 * static_cast<double>(c.layers) * static_cast<double>(c.kv_heads) *
         (static_cast<double>(c.dim) / static_cast<double>(c.heads)) *
         static_cast<double>(c.context) * weight_size(c);
}

}  // namespace

uint64_t save_bytes(const Config& config, const TrainingState& state) {
  constexpr double kSmallFiles = 64 << 10, kPerStep = 64;  // training.json and loss.svg
  return to_bytes(weight_bytes(config) + state_bytes(config) + kSmallFiles +
                  kPerStep * static_cast<double>(state.total_steps));
}

void check_weights_fit(const Config& config, bool sums) {
  const uint64_t needed =
      to_bytes(weight_bytes(config) + state_bytes(config) + (sums ? sum_bytes(config) : 0)) +
      kCompiledBytes + kThreadBytes;
  const uint64_t room = available_memory();
  if (room == 0 || needed <= room) return;
  throw Error(TENON_OUT_OF_MEMORY,
              "weights and optimizer: do not fit the host's memory; expected at least " +
                  size_text(needed) + ", got " + size_text(room) +
                  " free; hint: a smaller --dim, --layers or " +
                  (config.arch == Arch::mamba ? "--expand" : "--ffn") +
                  (config.dtype == f32 ? "" : ", or --dtype f32, which needs no masters") +
                  (sums ? ", or no --accumulate, which keeps sums of gradients" : "") +
                  "; --no-room-check starts all the same");
}

void check_generation_fits(const std::string& folder, const Config& config) {
  const uint64_t weights = to_bytes(weight_bytes(config)), cache = to_bytes(cache_bytes(config));
  const uint64_t needed = weights + cache + kCompiledBytes + kThreadBytes;
  const uint64_t room = available_memory();
  if (room == 0 || needed <= room) return;
  throw Error(TENON_OUT_OF_MEMORY,
              folder + ": the model does not fit the host's memory; expected at least " +
                  size_text(needed) + " (weights " + size_text(weights) + ", " +
                  (config.recurrent()
                       ? "state"
                       : "keys and values of " + std::to_string(config.context) + " positions") +
                  " " + size_text(cache) + "), got " + size_text(room) + " free; " +
                  (weights < room && !config.recurrent()
                       ? "hint: a smaller max_position_embeddings in config.json; "
                       : "") +
                  "--no-room-check starts all the same");
}

void check_intermediates_fit(const Runtime& runtime, const std::string& what,
                             const std::string& report) {
  const auto parsed = nlohmann::json::parse(report);
  for (const auto& m : parsed["memory"]) {
    const uint64_t peak = m["peak"].get<uint64_t>(), derived = m["derived_weights"].get<uint64_t>();
    const uint64_t needed = peak + derived, room = available_memory();
    const auto device = m["device"].get<std::string>();
    if (room == 0 || needed <= room) continue;
    for (const DeviceEntry& d : runtime.devices())
      if (d.id == device && d.host_addressable)
        throw Error(TENON_OUT_OF_MEMORY,
                    device + ": " + what + " does not fit its memory; expected at least " +
                        size_text(needed) + " (intermediates " + size_text(peak) +
                        ", derived weights " + size_text(derived) + "), got " + size_text(room) +
                        " free; --no-room-check starts all the same");
  }
}

std::vector<MemoryNeed> memory_needs(const Runtime& runtime, const Stepper& stepper,
                                     const HeldOut& held_out, const Config& config,
                                     const TrainingState& state) {
  // The graphs share weights and state. They run one after another, so they share the memory of
  // intermediates too.
  std::map<std::string, MemoryNeed> needs;
  std::vector<std::string> reports = stepper.reports();
  reports.push_back(held_out.report());
  for (const std::string& text : reports) {
    const auto report = nlohmann::json::parse(text);
    for (const auto& m : report["memory"]) {
      MemoryNeed& n = needs[m["device"].get<std::string>()];
      n.weights = std::max(n.weights, m["weights"].get<uint64_t>());
      n.state = std::max(n.state, m["state"].get<uint64_t>());
      n.derived += m["derived_weights"].get<uint64_t>();
      n.intermediates = std::max(n.intermediates, m["peak"].get<uint64_t>());
    }
  }
  std::vector<MemoryNeed> used;
  for (const DeviceEntry& d : runtime.devices()) {
    const auto found = needs.find(d.id);
    if (found == needs.end() || found->second.total() == 0) continue;
    MemoryNeed& n = used.emplace_back(found->second);
    n.device = d.id, n.name = d.name;
    n.room = d.memory_size;
    n.on_host = d.host_addressable;
    if (d.host_addressable && state.accumulate > 1 && n.state > 0)
      n.sums = to_bytes(sum_bytes(config));
  }
  return used;
}

void check_memory(const MemoryNeed& need, const TrainingState& state, bool checkpoint) {
  uint64_t needed = need.total(), room = need.room;
  std::string free;
  if (need.on_host) {
    // Weights and state are in memory already, beside the compiled graphs and the texts.
    const uint64_t own = own_memory(), left = available_memory();
    needed = std::max(needed, own + need.intermediates + need.derived + need.sums + kThreadBytes);
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
  add("more devices in --device");
  add("a smaller --dim, --layers or --context");
  throw Error(TENON_OUT_OF_MEMORY,
              need.device + ": the training does not fit its memory; expected at least " +
                  size_text(needed) + " (weights " + size_text(need.weights) + ", optimizer " +
                  size_text(need.state) + ", intermediates " + size_text(need.intermediates) +
                  (need.derived ? ", derived weights " + size_text(need.derived) : "") +
                  (need.sums ? ", sums of gradients during a save " + size_text(need.sums) : "") +
                  "), got " + size_text(room) + free + "; hint: " + hint +
                  "; --no-room-check starts all the same");
}

uint64_t disk_room(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return 0;
  return uint64_t{info.f_bavail} * info.f_frsize;
}

void check_disk(const std::string& folder, const Config& config, const TrainingState& state,
                uint64_t saves) {
  const uint64_t needed = save_bytes(config, state) * saves;
  struct statvfs info {};
  const bool known = ::statvfs(folder.c_str(), &info) == 0 && info.f_blocks > 0;
  if (const uint64_t room = disk_room(folder); known && needed > room)
    throw Error(TENON_IO_ERROR, folder + ": the disk is too full for " +
                                    (saves > 1 ? "two saves, the last and the next" : "a save") +
                                    "; expected at least " + size_text(needed) + " free, got " +
                                    size_text(room) +
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
