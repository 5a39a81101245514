// SPDX-License-Identifier: Apache-2.0
// Makes a graph legal for the devices at hand: each node is native on the device of its marks, else
// decomposed there, else it falls back to the first other device that takes it, else it is refused.
// Says so for every node, with the reason.
//
// Costs. A device may say what a node costs; where rates were measured, the others are estimated. A
// claim gives way to what costs less: the node's decomposition, or another device. What is
// decomposed falls back too when that costs less, and of several other devices the cheapest takes
// it. Pinned nodes leave their device only when it refuses them.
#pragma once

#include <span>
#include <string>

#include "host/rates.hpp"
#include "plan/report.hpp"
#include "plan/rewrite/claims.hpp"

namespace tenon::core {

struct LegalizeOptions {
  uint32_t devices = 1;
  std::span<const std::string> names{};  // (optional) ids of the devices, for messages
  bool decompose_all = false;            // write every op in primitives
  // Of all devices, or none. Without them nothing goes to another device because it costs less
  // there, and of several the first that takes a node gets it.
  std::span<const Rates> rates{};
};

// Throws unsupported, naming each refused node with every device's reason.
LegalGraph legalize(const Graph& from, const LegalizeOptions& options, const Query& query);

}  // namespace tenon::core
