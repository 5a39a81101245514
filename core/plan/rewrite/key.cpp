// SPDX-License-Identifier: Apache-2.0
// Makes the byte strings that identify nodes.
#include "plan/rewrite/key.hpp"

namespace tenon::core {
namespace {

enum class Dims : bool { count, are_left_out };

void append_type(std::string& key, const Type& type, Dims dims = Dims::count) {
  append_key(key, type.dtype);
  append_key(key, type.shape.rank());
  if (dims == Dims::count)
    for (Dim d : type.shape) append_key(key, d);
}

// Large contents by size and hash: a key must not be as large as a weight. That two of them differ
// and hash alike is taken as impossible.
void append_content(std::string& key, const Bytes& data) {
  constexpr size_t kWhole = 4096;
  const std::string_view bytes(reinterpret_cast<const char*>(data.data()), data.size());
  append_key(key, bytes.size());
  if (bytes.size() <= kWhole)
    key += bytes;
  else
    append_key(key, std::hash<std::string_view>()(bytes));
}

// A body by what it does, not by where it lies.
void append_graph(std::string& key, const Graph& g, Dims dims = Dims::count) {
  append_key(key, g.value_count());
  for (uint32_t v = 0; v < g.value_count(); ++v) {
    const ValueInfo& info = g[Value{v}];
    append_key(key, info.space);
    append_type(key, info.type, dims);
    if (info.data) append_content(key, *info.data);
  }
  append_key(key, g.node_count());
  for (NodeId n = 0; n < g.node_count(); ++n) {
    append_key(key, g[n].op);
    append_key(key, g[n].attrs.size());
    for (const Attr& a : g[n].attrs) append_key(key, a);
    append_key(key, g[n].operands.size());
    for (Value v : g[n].operands) append_key(key, v.id);
    for (const uint32_t size : g[n].lists) append_key(key, size);
    append_key(key, g[n].outputs.size());
    for (Value v : g[n].outputs) append_key(key, v.id);
  }
  append_key(key, g.outputs().size());
  for (const Output& o : g.outputs()) append_key(key, o.value.id);
}

}  // namespace

void append_key(std::string& key, const Attr& attr) {
  append_key(key, attr.name.size());
  key += attr.name;
  append_key(key, attr.value.index());
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, FunctionAttr>) {
          append_graph(key, *v);
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

void append_key(std::string& key, const Type& type) { append_type(key, type); }

std::string body_form(const Graph& body) {
  std::string key;
  append_graph(key, body, Dims::are_left_out);
  return key;
}

}  // namespace tenon::core
