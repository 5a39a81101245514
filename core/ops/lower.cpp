// SPDX-License-Identifier: Apache-2.0
// Decomposes one node by its record, and checks the types of the results.
#include "ops/lower.hpp"

namespace tenon::core {

bool lower_into(Builder& b, const NodeInfo& node, std::vector<Value>& results) {
  results.assign(std::max(node.outputs.size(), output_count(*node.op)), {});
  if (!node.op->lower) return false;
  const std::vector<Type> types = infer_types(b.graph, node, results.size());
  Lower lower(b, node, results);
  if (!node.op->lower(lower, b.graph, node)) return false;
  results.resize(node.outputs.size());
  for (size_t k = 0; k < results.size(); ++k) {
    if (!node.outputs[k]) continue;
    const std::string_view name = node.op->schema->output_name(k);
    check(bool(results[k]), node.op->name(), ": its decomposition leaves out output ", name);
    check(b.type(results[k]) == types[k], node.op->name(), ": its decomposition gives output ",
          name, " as ", b.type(results[k]).text(), ", expected ", types[k].text());
  }
  return true;
}

}  // namespace tenon::core
