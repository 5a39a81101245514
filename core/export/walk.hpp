// SPDX-License-Identifier: Apache-2.0
// Writes nodes of tenon into an ONNX graph.
#pragma once

#include "export/call.hpp"

namespace tenon::core::onnx {

class Walk {
 public:
  Emitter& emitter;
  // By its rule, else by its decomposition. Throws NoForm with the reason; nodes that it wrote until
  // then stay.
  void write_node(View& view, NodeId node);
  // All nodes that these values need.
  void write_needed(View& view, std::span<const Value> results);
};

}  // namespace tenon::core::onnx
