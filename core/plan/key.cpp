// SPDX-License-Identifier: Apache-2.0
#include "plan/key.hpp"

namespace tenon::core {

void append_key(std::string& key, const Attr& attr) {
  append_key(key, attr.name.size());
  key += attr.name;
  append_key(key, attr.value.index());
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, FunctionAttr>) {
          append_key(key, v.get());
        } else if constexpr (std::is_same_v<T, DTypeAttr>) {
          append_key(key, v.dtype);
        } else if constexpr (std::is_arithmetic_v<T>) {
          append_key(key, v);
        } else {
          append_key(key, v.size());
          key.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof *v.data());
        }
      },
      attr.value);
}

std::string form_key(const Graph& graph, const NodeInfo& node) {
  std::string key;
  append_key(key, node.op);
  append_key(key, node.attrs.size());
  for (const Attr& a : node.attrs) append_key(key, a);
  append_key(key, node.operands.size());
  for (Value v : node.operands) {
    append_key(key, v ? graph.type(v).dtype : DType{TENON_DTYPE_NONE});
    if (!v) continue;
    append_key(key, graph.type(v).shape.rank());
    for (Dim d : graph.type(v).shape) append_key(key, d);
  }
  for (Value v : node.outputs) key += v ? '1' : '0';
  return key;
}

}  // namespace tenon::core
