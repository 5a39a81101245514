// SPDX-License-Identifier: Apache-2.0
// Models written as structs, for the tests of their translation.
#pragma once

#include <doctest/doctest.h>

#include <concepts>
#include <cstring>

#include "import/onnx/import.hpp"
#include "import/onnx/tensor.hpp"
#include "import/onnx/write.hpp"
#include "ops/record.hpp"

namespace tenon::core::onnx {

template <class T>
Tensor constant(std::string name, int32_t element, std::vector<int64_t> dims, std::vector<T> data) {
  std::string bytes(data.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), data.data(), bytes.size());
  Tensor t{.name = std::move(name), .element = element, .dtype = element_dtype(element)};
  t.dims = std::move(dims);
  auto source = std::make_shared<Tensor::Source>();
  source->raw_size = bytes.size();
  source->input = std::make_shared<const Input>(std::move(bytes), "");
  t.source = std::move(source);
  return t;
}
inline Tensor floats(std::string name, std::vector<int64_t> dims, std::vector<float> data) {
  return constant<float>(std::move(name), 1, std::move(dims), std::move(data));
}
inline Tensor ints(std::string name, std::vector<int64_t> data) {
  const auto size = static_cast<int64_t>(data.size());
  return constant<int64_t>(std::move(name), 7, {size}, std::move(data));
}
inline Tensor scalar(std::string name, int64_t value) {
  return constant<int64_t>(std::move(name), 7, {}, {value});
}

template <std::integral T>
Attribute attr(std::string name, T value) {
  return {.name = std::move(name), .kind = Attribute::i64, .i = value};
}
inline Attribute attr(std::string name, const char* value) {
  return {.name = std::move(name), .kind = Attribute::string, .s = value};
}
inline Attribute attr(std::string name, std::vector<int64_t> value) {
  Attribute a{.name = std::move(name), .kind = Attribute::ints};
  a.is = std::move(value);
  return a;
}
inline Attribute attr(std::string name, Graph value) {
  Attribute a{.name = std::move(name), .kind = Attribute::graph};
  a.g = std::make_shared<const Graph>(std::move(value));
  return a;
}

inline Node node(std::string op, std::vector<std::string> inputs, std::vector<std::string> outputs,
                 std::vector<Attribute> attributes = {}) {
  Node n;
  n.op = std::move(op);
  n.inputs = std::move(inputs);
  n.outputs = std::move(outputs);
  n.attributes = std::move(attributes);
  return n;
}

// dims: numbers as text, or symbols; "" is a dim without a name.
inline ValueInfo value(std::string name, int32_t element, std::vector<std::string> dims) {
  ValueInfo v{.name = std::move(name),
              .kind = ValueInfo::Kind::tensor,
              .element = element,
              .dtype = element_dtype(element)};
  v.dims.emplace();
  for (const std::string& d : dims) {
    const bool number = !d.empty() && d[0] >= '0' && d[0] <= '9';
    v.dims->push_back({.size = number ? std::stoll(d) : -1, .symbol = number ? "" : d});
  }
  return v;
}

inline Model model(std::vector<ValueInfo> inputs, std::vector<Node> nodes,
                   std::vector<std::string> outputs, std::vector<Tensor> initializers = {},
                   int64_t opset = 21) {
  Model m;
  m.ir_version = 10;
  m.opsets[""] = opset;
  m.graph.name = "test";
  m.graph.inputs = std::move(inputs);
  m.graph.nodes = std::move(nodes);
  m.graph.initializers = std::move(initializers);
  for (std::string& o : outputs) m.graph.outputs.push_back({.name = std::move(o)});
  return m;
}
inline Graph subgraph(std::vector<ValueInfo> inputs, std::vector<Node> nodes,
                      std::vector<std::string> outputs) {
  return model(std::move(inputs), std::move(nodes), std::move(outputs)).graph;
}

// The message of a refusal.
inline std::string refusal(const Model& m, const ImportOptions& options = {}) {
  try {
    import_model(m, options);
  } catch (const Error& e) {
    return e.what();
  }
  FAIL_CHECK("the model was translated");
  return {};
}
inline bool has(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}
// How many nodes of an op the graph has, without those of functions.
inline int count_of(const core::Graph& g, std::string_view op) {
  int n = 0;
  for (NodeId k = 0; k < g.node_count(); ++k) n += g[k].op->name() == op;
  return n;
}

}  // namespace tenon::core::onnx
