// SPDX-License-Identifier: Apache-2.0
// Writes a graph as an ONNX model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core::onnx {

// The outputs of these names, and what they need. Updates are left out. Fails for an unknown name.
core::Graph part_of(const core::Graph& graph, const std::vector<std::string>& outputs);

// Gives the content of a weight or state.
using ContentOf = std::function<Bytes(Space, const std::string&, const Type&)>;

// Writes the model to a file. If its weights take 2 GiB or more, or `beside` is true, they go to the
// file PATH.data. Existing files are replaced once both are written. The graph has no requests for
// gradients and no vmap. Symbols become dims with names. Fails (unsupported) with a list of all nodes
// that have no form in ONNX, each with the reason, before a file is touched.
void export_model(const core::Graph& graph, const std::string& path, bool beside,
                  const ContentOf& content);

}  // namespace tenon::core::onnx
