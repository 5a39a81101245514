// SPDX-License-Identifier: Apache-2.0
// Describes and opens the device. Each open device has its own arena, and so its own number of
// threads.
#include "device.hpp"

#include <sys/sysinfo.h>

#include <fstream>
#include <new>
#include <string>

#include "memory.hpp"
#include "parallel.hpp"

namespace tenon::cpu {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos && line.starts_with("model name")) return line.substr(colon + 2);
  }
  return "processor of unknown model";
}

uint64_t memory_size() {
  struct sysinfo info;
  return sysinfo(&info) == 0 ? uint64_t{info.totalram} * info.mem_unit : 0;
}

class CpuDevice final : public sdk::Device {
 public:
  explicit CpuDevice(int threads) : arena_(threads) {}

  void* allocate(uint64_t bytes, uint64_t alignment) override {
    return allocate_memory(bytes, alignment);
  }
  void deallocate(void* memory, uint64_t) noexcept override { free_memory(memory); }
  void run(void (*body)(void*), void* arg) override {
    arena_.execute([&] { body(arg); });
  }

 private:
  Arena arena_;
};

}  // namespace

std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "cpu",
           .name = processor_name(),
           .reason = "",
           .memory_size = memory_size(),
           .import_alignment = 1}};
}

std::unique_ptr<sdk::Device> open(const sdk::Runtime& runtime, uint32_t, uint32_t threads) {
  const int wanted = static_cast<int>(threads), made = make_threads(wanted);
  if (made < wanted) {
    constexpr uint32_t kWarning = 2;
    const std::string text = "cpu: expected " + std::to_string(wanted) + " threads, got " +
                             std::to_string(made) +
                             "\nhint: raise the limit of processes (ulimit -u, pids cgroup)";
    runtime.host->log(kWarning, {text.data(), text.size()});
  }
  return std::make_unique<CpuDevice>(made);
}

}  // namespace tenon::cpu
