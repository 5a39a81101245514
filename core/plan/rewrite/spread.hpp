// SPDX-License-Identifier: Apache-2.0
// Gives each node the device that it is wanted on, where the app names several: those that it pins,
// then the rest by memory. Legalize finds another device for what the wanted one refuses.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core {

// Nodes whose name matches the pattern go to the device. Pattern: as of fnmatch(3), so that *
// matches any text, also dots and slashes.
struct Pin {
  std::string pattern;
  uint32_t device = 0;  // index among those of the plan
};

// Marks the nodes that pins name; the first pin that matches counts. A node without a name of its
// own that reads neither weights nor state goes with the last node whose result it reads, if that
// one is pinned. Returns the patterns that match no name.
std::vector<std::string> pin_nodes(Graph& graph, std::span<const Pin> pins);

struct SpreadDevice {
  double room = 0;    // bytes, as spread() estimates them; 0 = unknown
  uint32_t tier = 0;  // those of one tier share what is put there; ascending
};

// The device, of those that are spread over, that holds a weight or state already; kNone if none.
using HomeOf = std::function<uint32_t(Space space, std::string_view name)>;

// Marks all nodes that are not pinned. Nodes stay in their order: a device gets a stretch of them.
// The devices of a tier get parts that fit their room; what the tier has no room for goes to the
// next tier. A stretch ends near that point where the fewest bytes cross. Nodes that read a weight
// or state with a home go there, and where most weights have homes, the others follow them. Nodes
// that use gradients go to the weight that they are for. Returns the estimated bytes on each
// device:
//   - weights and state
//   - with gradients, also these and the intermediates that are not recomputed
//   - without weights and state, the intermediates
std::vector<double> spread(Graph& graph, std::span<const SpreadDevice> devices, const HomeOf& home);

}  // namespace tenon::core
