// SPDX-License-Identifier: Apache-2.0
// The plugin "cpu".
#define TENON_ENTRY_SYMBOL cpu_entry
#include "meeting.hpp"

namespace tenon::meeting {
namespace {

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::binary, kernel_of>()};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "cpu", .name = "a test", .memory_size = 1 << 30}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Memory>();
}
constexpr sdk::PluginSpec kSpec{.name = "cpu",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open};

}  // namespace
}  // namespace tenon::meeting

TENON_PLUGIN(tenon::meeting::kSpec, "cpu", TENON_ISA_BASELINE)
