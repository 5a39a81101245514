// SPDX-License-Identifier: Apache-2.0
// Calls of the model's functions: their nodes are translated in place.
#include "import/onnx/scope.hpp"

namespace tenon::core::onnx {

void call_function(Call& call, const Function& function) {
  Translation& all = call.scope.all;
  if (all.depth >= kMostDepth)
    call.refuse("functions call each other more than ", kMostDepth, " deep");
  Scope inner(all, call.b);
  inner.opsets = function.opsets.empty() ? call.scope.opsets : function.opsets;
  inner.where = cat(call.scope.where, name_of(call.node), "/");
  // Attributes of the node, then defaults. Those of the node may themselves refer to a caller's.
  std::map<std::string, const Attribute*, std::less<>> arguments;
  for (const Attribute& a : function.attribute_defaults) arguments[a.name] = &a;
  for (const Attribute& a : call.node.attributes)
    if (const Attribute* found = call.attr(a.name)) arguments[a.name] = found;
  inner.arguments = &arguments;
  for (size_t k = 0; k < function.inputs.size(); ++k)
    if (call.has(k)) inner.set(function.inputs[k], call.item(k));
  // Inputs that the call leaves out are left out inside, too.
  std::vector<Node> nodes = function.nodes;
  for (Node& n : nodes)
    for (std::string& name : n.inputs)
      for (size_t k = 0; k < function.inputs.size(); ++k)
        if (name == function.inputs[k] && !call.has(k)) name.clear();
  ++all.depth;
  inner.run(nodes);
  --all.depth;
  for (size_t k = 0; k < function.outputs.size() && k < call.node.outputs.size(); ++k) {
    if (!call.wants(k)) continue;
    const Item* item = inner.find(function.outputs[k]);
    if (!item)
      call.wrong("function ", function.name, " does not give its output '", function.outputs[k],
                 "'");
    call.out_item(k, *item);
  }
}

}  // namespace tenon::core::onnx
