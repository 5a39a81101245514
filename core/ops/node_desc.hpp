// SPDX-License-Identifier: Apache-2.0
// Nodes and types of the C interface (op.h), to and from the graph.
#pragma once

#include "ir/dtypes.hpp"
#include "ir/graph.hpp"
#include "tenon/op.h"

struct tenon_graph {
  tenon::core::Graph graph;
  tenon::core::DTypes dtypes{};  // of the graph
};

namespace tenon::core {

// Makes a shape from the caller's rank and dims. Negative dims are symbols of a graph, or an error.
Shape shape_from(uint32_t rank, const int64_t* dims);
tenon_tensor_type to_c(const Type& type);
// Throws unless the type is numeric and its dtype known.
Type numeric_type(const tenon_tensor_type* type, std::string_view what);

// Adds the node that the caller describes. out_values gets one value per output, TENON_NONE for
// outputs left out. `requests`: what to do instead of adding a request such as grad, for the message.
NodeId add_node(Graph& graph, const tenon_node_desc* node, tenon_value* out_values,
                std::string_view requests);

}  // namespace tenon::core
