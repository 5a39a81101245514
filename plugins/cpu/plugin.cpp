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

// Shared by all runtimes of the process; the last one to shut down ends the threads. Changed only in
// [load] calls.
// a plain pointer, because the plugin has no static objects with destructors
Workers* workers = nullptr;
uint32_t users = 0;

// A runtime that uses them.
class User final : public sdk::State {
 public:
  User() {
    if (users == 0) cap_isa();  // not while kernels of another runtime choose theirs
    if (workers == nullptr) workers = new Workers;
    ++users;
  }
  ~User() override {
    if (--users == 0) delete std::exchange(workers, nullptr);
  }
};

std::unique_ptr<sdk::State> create(const sdk::Runtime&) { return std::make_unique<User>(); }
std::string note(const sdk::Runtime&) { return isa_remark(); }

constexpr sdk::PluginSpec kSpec{.name = "cpu",
                                .version = TENON_CPU_VERSION,
                                .vendor = "tenon",
                                .families = kFamilies,
                                .create = create,
                                .devices = devices,
                                .note = note,
                                .open = open};

}  // namespace
}  // namespace tenon::cpu

TENON_PLUGIN(tenon::cpu::kSpec, "cpu", TENON_ISA_X86_64_V2)
