// SPDX-License-Identifier: Apache-2.0
// Values of graphs, and types that name symbols.
#pragma once

#include "common.hpp"

namespace tenon::python {

// Keeps its graph.
struct PyValue {
  nb::object graph{};
  Value value{};
};

// A DType, or its name.
tenon_dtype dtype_from(nb::handle object);
// Dims are numbers, or names of symbols.
TensorType type_from(Graph& graph, nb::handle dtype, nb::handle shape);
nb::tuple shape_object(const Graph& graph, const TensorType& type);

}  // namespace tenon::python
