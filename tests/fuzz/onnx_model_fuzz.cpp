// SPDX-License-Identifier: Apache-2.0
// Any bytes as an ONNX model: refused with an Error, or a model whose tensors read or say why not.
// Also as a tensor in a file of its own. Reading from a file and from memory agree.
#include <string>

#include "base/error.hpp"
#include "import/onnx/model.hpp"
#include "memory_file.hpp"

using namespace tenon::core;
using namespace tenon::fuzz;

namespace {

void walk(const onnx::Graph& graph);

void walk(const onnx::Tensor& t) {
  must(t.source != nullptr, "a tensor has no source");
  for (const int64_t d : t.dims) must(d >= 0, "a dim is negative");
  try {
    const Bytes content = t.content();
    must(content.size() == tenon_dense_bytes(t.dtype, t.elements()), "a content has another size");
    read(content.data(), content.size());
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
  }
}

void walk(const onnx::Attribute& a) {
  must(!a.name.empty(), "an attribute without a name");
  must(a.kind != onnx::Attribute::tensor || a.t || !a.refers_to.empty(), "a tensor is missing");
  must(a.kind != onnx::Attribute::graph || a.g || !a.refers_to.empty(), "a graph is missing");
  if (a.t) walk(*a.t);
  if (a.g) walk(*a.g);
  if (a.sparse_t) {
    walk(a.sparse_t->values);
    walk(a.sparse_t->indices);
  }
  for (const onnx::Tensor& t : a.tensors) walk(t);
}

void walk(const std::vector<onnx::Node>& nodes) {
  for (const onnx::Node& n : nodes)
    for (const onnx::Attribute& a : n.attributes) walk(a);
}

void walk(const onnx::Graph& graph) {
  walk(graph.nodes);
  for (const onnx::Tensor& t : graph.initializers) walk(t);
  for (const auto& [name, t] : graph.sparse_initializers) walk(t.values);
  for (const onnx::ValueInfo& v : graph.inputs)
    if (v.dims)
      for (const auto& d : *v.dims) must(d.size >= -1, "a dim of an input is negative");
}

// The number of nodes, or SIZE_MAX where it is refused.
template <class Read>
size_t nodes_of(const Read& read_it) {
  try {
    const onnx::Model m = read_it();
    walk(m.graph);
    for (const onnx::Function& f : m.functions) {
      walk(f.nodes);
      for (const onnx::Attribute& a : f.attribute_defaults) walk(a);
    }
    return m.graph.nodes.size();
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
    return SIZE_MAX;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile file;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  file.write(bytes);
  const size_t nodes = nodes_of([&] { return onnx::read_model(file.path()); });
  must(nodes == nodes_of([&] { return onnx::read_model(bytes, ""); }),
       "a model in memory is not the one in the file");
  try {
    walk(onnx::read_tensor(file.path()));
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
  }
  return 0;
}
