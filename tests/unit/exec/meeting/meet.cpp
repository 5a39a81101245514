// SPDX-License-Identifier: Apache-2.0
// The plugin "meet".
#define TENON_ENTRY_SYMBOL meet_entry
#include "meeting.hpp"

namespace tenon::meeting {
namespace {

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::binary, make_without_sub>()};
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  return {{.kind = "meet", .name = "a test", .memory_size = 1 << 30}};
}
std::unique_ptr<sdk::Device> open(const sdk::Runtime&, uint32_t, uint32_t) {
  return std::make_unique<Memory>();
}
constexpr sdk::PluginSpec kSpec{.name = "meet",
                                .version = "1.0",
                                .vendor = "tests",
                                .rows = kRows,
                                .devices = devices,
                                .open = open};

}  // namespace
}  // namespace tenon::meeting

TENON_PLUGIN(tenon::meeting::kSpec, "meet", TENON_ISA_BASELINE)
