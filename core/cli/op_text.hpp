// SPDX-License-Identifier: Apache-2.0
// One op as text, with types in place of operands, as a graph.
#pragma once

#include <string>

#include "tenon/tenon.hpp"

namespace tenon::cli {

// Graph::parse, with a suggestion for unknown ops.
Graph parse_graph(const std::string& text, const std::string& file);

// Parses "(v, i) = topk(f32[8,1024]) {k=5}": a node in text form, with types in place of operands
// ("_": absent). Inputs are named in0, in1 ... Without results, the first output is used. Errors
// give positions in this text and name the option.
Graph graph_of_op(const std::string& text);

}  // namespace tenon::cli
