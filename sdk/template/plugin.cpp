// SPDX-License-Identifier: Apache-2.0
// Name, version, device: what the host is told. The kernels are in kernels/, the memory in
// device.cpp.
#include <unistd.h>
#include <tenon/plugin.hpp>

#include "device.hpp"
#include "kernels.hpp"

namespace tenon::sample {

static std::vector<sdk::DeviceSpec> devices(const tenon_host*) {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {{.kind = "template", .name = "scalar loops in double", .memory_size = pages * page}};
}

static constexpr sdk::PluginSpec kSpec{
    .name = "template",
    .version = "0.1.0",
    .vendor = "tenon",
    .rows = kRows,
    .devices = devices,
    .open = open_device,
};

}  // namespace tenon::sample

TENON_PLUGIN(tenon::sample::kSpec, "template", TENON_ISA_BASELINE)
