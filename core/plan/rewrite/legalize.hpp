// SPDX-License-Identifier: Apache-2.0
// Makes a graph legal for the devices at hand: each node is native on the device of its marks, else
// decomposed there, else it falls back to the first other device that takes it, else it is refused.
// Says so for every node, with the reason.
//
// Costs. A device may say what a node costs. A claim gives way to the node's decomposition if the
// device says that this costs less. Where rates were measured, the other nodes' costs are estimated,
// and nodes are placed by price (placement.hpp):
//   - a node that is refused or decomposed, or claimed at a cost that its device says, may go to
//     any device that takes it; a claim gives way only to a cost that the other device says too;
//   - a claim of unknown cost holds its node, except between nodes that leave, if the app names one
//     device: it follows them if carrying its values would cost more. Rates are rough, so it gains
//     nothing there by itself;
//   - pinned nodes leave their device only if it refuses them;
//   - if the app names several devices, they hold what reads weights or state, since it was spread for
//     memory; between them, only a node that is cheaper there by itself moves.
#pragma once

#include <span>
#include <string>

#include "host/rates.hpp"
#include "plan/report.hpp"
#include "plan/rewrite/claims.hpp"

namespace tenon::core {

struct LegalizeOptions {
  uint32_t devices = 1;
  uint32_t named = 1;                    // of them, the first: those that the app names
  std::span<const std::string> names{};  // (optional) ids of the devices, for messages
  bool decompose_all = false;            // write every op in primitives
  // Of all devices, or none. Without them nothing goes to another device because it costs less
  // there, and of several the first that takes a node gets it.
  std::span<const Rates> rates{};
};

// Throws unsupported, naming each refused node with every device's reason.
LegalGraph legalize(const Graph& from, const LegalizeOptions& options, const Query& query);

}  // namespace tenon::core
