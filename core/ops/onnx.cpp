// SPDX-License-Identifier: Apache-2.0
// The record of `onnx`: shapes and decomposition come from the translation of its model.
#include "ops/onnx.hpp"

#include "ops/control.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

std::vector<Value> operands_of(const op::onnx& n) {
  std::vector<Value> all = n.xs;
  all.insert(all.end(), n.weights.begin(), n.weights.end());
  return all;
}

void onnx_shape(Infer& i, const op::onnx& n) {
  std::vector<Type> types;
  for (Value v : operands_of(n)) types.push_back(i.type(v));
  std::shared_ptr<const Graph> graph;
  try {
    graph = onnx_graph(n.model, types);
  } catch (const Error& e) {
    i.fail(e.code(), e.what());
  }
  if (i.out_count() > graph->outputs().size())
    i.fail(Code::invalid_argument, "got ", i.out_count(), " outputs, the model gives ",
           graph->outputs().size());
  for (size_t k = 0; k < i.out_count(); ++k) i.out(k, graph->type(graph->outputs()[k].value));
}

bool onnx_lower(Lower& l, const op::onnx& n) {
  const std::vector<Value> operands = operands_of(n);
  std::vector<Type> types;
  for (Value v : operands) types.push_back(l.type(v));
  const std::vector<Value> results = inline_function(l.b, *onnx_graph(n.model, types), operands);
  for (size_t k = 0; k < results.size(); ++k) l.out(k, results[k]);
  return true;
}

constexpr Record<op::onnx> kOnnx{.shape = onnx_shape,
                                 .words = {{"model", "*"}},
                                 .lower = onnx_lower,
                                 .flops = no_products,
                                 .bytes = each_once};

}  // namespace

constinit const OpRecord onnx_def = record<op::onnx, kOnnx>();

}  // namespace tenon::core
