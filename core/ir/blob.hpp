// SPDX-License-Identifier: Apache-2.0
// Converts a graph, or a region of it, to the format of tenon/blob.h. Shapes must be numeric and
// requests expanded.
#pragma once

#include <span>

#include "ir/graph.hpp"

namespace tenon::core {

class Blob {
 public:
  Blob() = default;
  explicit Blob(std::vector<uint64_t> words) : words_(std::move(words)) {}
  const void* data() const { return words_.data(); }  // 8-aligned
  size_t size() const { return words_.size() * 8; }

 private:
  std::vector<uint64_t> words_;
};

// A blob, and what its indices in function 0 refer to.
struct RegionBlob {
  Blob blob;
  std::vector<Value> values;  // blob value -> value of the graph
  std::vector<NodeId> nodes;  // blob node -> node of the graph
};

// Constants up to this size are stored in the blob.
inline constexpr uint64_t kBlobConstantLimit = 64;

// Writes the whole graph: inputs, weights, states, constants that are read, outputs and updates. An
// update of a value with itself only marks it as updated. hints: TENON_HINT_*.
RegionBlob write_blob(const Graph& graph, uint32_t hints = 0);

// Writes these nodes, in this order. inputs: values that the nodes read and do not compute; a value
// of another node becomes an input, other spaces are kept. outputs: values that leave the region.
RegionBlob write_region(const Graph& graph, std::span<const NodeId> nodes,
                        std::span<const Value> inputs, std::span<const Value> outputs,
                        uint32_t hints = 0);

}  // namespace tenon::core
