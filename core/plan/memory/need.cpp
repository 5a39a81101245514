// SPDX-License-Identifier: Apache-2.0
// Adds up the buffers that a plan asks for.
#include "plan/memory/need.hpp"

#include <algorithm>

#include "plan/control.hpp"
#include "plan/plan.hpp"

namespace tenon::core {
namespace {

bool contains(const std::vector<uint32_t>& devices, uint32_t device) {
  return std::ranges::find(devices, device) != devices.end();
}

uint64_t constants_of(const Plan& plan, uint32_t device) {
  uint64_t bytes = 0;
  for (const PlannedConstant& c : plan.constants)
    if (contains(c.devices, device)) bytes += c.data->size();
  for (const PlannedRegion& region : plan.regions)
    if (region.control.plan && region.device == device)
      for (const PlannedFunction& f : region.control.plan->functions)
        bytes += constants_of(*f.plan, 0);
  return bytes;
}

}  // namespace

MemoryNeed memory_need(const Plan& plan, uint32_t device) {
  MemoryNeed need;
  for (const PlannedEntry& e : plan.entries)
    if (contains(e.devices, device) || (e.updated && e.update_device == device))
      (e.space == Space::weight ? need.weights : need.state) += type_bytes(e.type);
  for (const PlannedDerived& w : plan.derived)
    if (w.device == device) need.derived += w.size;
  for (const uint64_t chunk : plan.arenas[device].chunks) need.intermediates += chunk;
  need.constants = constants_of(plan, device);
  for (const PlannedInput& in : plan.inputs)
    if (contains(in.devices, device)) need.inputs += type_bytes(in.type);
  for (const OutputSlot& out : plan.output_slots)
    if (out.device == device) need.outputs += type_bytes(out.type);
  return need;
}

std::string MemoryNeed::text() const {
  std::string parts;
  const auto add = [&](const char* what, uint64_t bytes) {
    if (bytes) parts += cat(parts.empty() ? "" : ", ", what, " ", bytes);
  };
  add("weights", weights), add("state", state), add("derived weights", derived);
  add("intermediates", intermediates), add("constants", constants);
  add("inputs", inputs), add("outputs", outputs);
  return cat(total(), " bytes", parts.empty() ? "" : cat(" (", parts, ")"));
}

}  // namespace tenon::core
