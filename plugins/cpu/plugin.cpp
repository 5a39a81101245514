// SPDX-License-Identifier: Apache-2.0
// The description of the plugin and its exported symbol. Worker threads live from create to
// shutdown.
#include <utility>

#include "device.hpp"
#include "isa.hpp"
#include "kernels.hpp"
#include "parallel.hpp"

namespace tenon::cpu {
namespace {

// Shared by all hosts in the process; the last host to shut down ends the threads. Changed only in
// [load] calls.
// a plain pointer, because the plugin has no static objects with destructors
Workers* workers = nullptr;
uint32_t users = 0;

std::vector<sdk::DeviceSpec> enumerate(const tenon_host* host) {
  cap_isa();
  if (workers == nullptr) workers = new Workers;
  ++users;
  return devices(host);
}

void shutdown() {
  if (users != 0 && --users == 0) delete std::exchange(workers, nullptr);
}

constexpr sdk::PluginSpec kSpec{.name = "cpu",
                                .version = TENON_CPU_VERSION,
                                .vendor = "tenon",
                                .families = kFamilies,
                                .devices = enumerate,
                                .note = isa_remark,
                                .open = open,
                                .shutdown = shutdown};

}  // namespace
}  // namespace tenon::cpu

TENON_PLUGIN(tenon::cpu::kSpec, "cpu", TENON_ISA_X86_64_V2)
