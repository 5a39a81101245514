// SPDX-License-Identifier: Apache-2.0
// One op as text, with types where its operands stand, as a graph.
#pragma once

#include <string>

#include "tenon/tenon.hpp"

namespace tenon::cli {

// Graph::parse, with a suggestion where there is no op of a name.
Graph parse_graph(const std::string& text, const std::string& file);

// "(v, i) = topk(f32[8,1024]) {k=5}": a node of the text form with types where its operands stand
// ("_": absent), inputs in0, in1 ...; without results in front, the first output alone. Errors give
// places in this text, by the option it came with.
Graph graph_of_op(const std::string& text);

}  // namespace tenon::cli
