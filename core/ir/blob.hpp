// SPDX-License-Identifier: Apache-2.0
// A graph, or a region of one, as the flat bytes of tenon/blob.h. Shapes are numbers by now,
// requests are expanded.
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

// The bytes, and what their indices in function 0 mean.
struct RegionBlob {
  Blob blob;
  std::vector<Value> values;  // blob value -> value of the graph
  std::vector<NodeId> nodes;  // blob node -> node of the graph
};

// Constants of at most this many bytes carry their content in the blob.
inline constexpr uint64_t kBlobConstantLimit = 64;

// The whole graph: its inputs, weights, states and the constants that are read; what leaves as
// output or update. An update with its own target only says that the target is updated.
RegionBlob write_blob(const Graph& graph);

// These nodes alone, in this order. inputs: every value that they read and none of them makes; one
// that another node makes becomes an input there, the other spaces are kept. outputs: the values
// that leave the region.
RegionBlob write_region(const Graph& graph, std::span<const NodeId> nodes,
                        std::span<const Value> inputs, std::span<const Value> outputs);

}  // namespace tenon::core
