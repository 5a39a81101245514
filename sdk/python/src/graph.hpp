// SPDX-License-Identifier: Apache-2.0
// Values of graphs, and types that name symbols.
#pragma once

#include <functional>

#include "common.hpp"

namespace tenon::python {

// Keeps its graph.
struct PyValue {
  nb::object graph{};
  Value value{};
};

using Self = nb::handle_t<Graph>;

inline Graph& graph_of(nb::handle self) {
  if (!self.is_valid() || !nb::inst_ready(self))
    fail(TENON_INVALID_ARGUMENT, "graph: __init__() was not called");
  return *nb::inst_ptr<Graph>(self);
}
inline PyValue value_of(nb::handle self, Value v) { return {nb::borrow(self), v}; }
// Throws for a value of another graph.
Value id_in(const Graph& graph, const PyValue& v);

// A node to add, in objects of Python.
struct NewNode {
  std::string op;
  nb::handle operands;
  nb::dict attributes;
  std::optional<std::vector<bool>> want;
  std::string domain;
  uint32_t version;
  std::string provenance;
};
// TENON_NONE for an object that is no value.
using IdOf = std::function<tenon_value(nb::handle)>;
using AddNode = std::function<void(const tenon_node_desc&, tenon_value* out)>;
// Describes a node for `add`. Returns the outputs, TENON_NONE for those that are left out.
std::vector<tenon_value> add_node(const NewNode& node, const IdOf& id_of, const AddNode& add);
// Adds a node to a graph. Returns its outputs, None for those that are left out.
nb::list add_graph_node(Self self, const std::string& op, nb::handle operands, nb::dict attributes,
                        std::optional<std::vector<bool>> want, const std::string& domain,
                        uint32_t version, const std::string& provenance);

// A DType, or its name.
tenon_dtype dtype_from(nb::handle object);
// Dims are numbers, or names of symbols.
TensorType type_from(Graph& graph, nb::handle dtype, nb::handle shape);
nb::tuple shape_object(const Graph& graph, const TensorType& type);

}  // namespace tenon::python
