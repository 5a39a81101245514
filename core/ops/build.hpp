// SPDX-License-Identifier: Apache-2.0
// Helpers to write graphs in ops, for records and passes: conversion of op structs to nodes and
// back, and short names for frequent ops.
#pragma once

#include <initializer_list>
#include <span>

#include "ir/graph.hpp"

namespace tenon::core {

const OpRecord& record_of(std::string_view name);  // domain tenon; must exist

// Converts an op struct to operands, attributes and wanted outputs.
struct Encoder {
  Operands operands;
  Attrs attrs;
  std::vector<bool> outputs;
  template <class T>
  void attr(const char* name, const T& field, const T& otherwise) {
    if constexpr (std::is_same_v<T, double>) {
      if (field == otherwise || (is_unset(field) && is_unset(otherwise))) return;
    } else {
      if (field == otherwise) return;
    }
    if constexpr (std::is_same_v<T, tenon_dtype>)
      attrs.push_back({name, DTypeAttr{field}});
    else
      attrs.push_back({name, field});
  }
  void operand(const char*, Value v) { operands.values.push_back(v); }
  void optional(const char*, Value v) { operands.values.push_back(v); }
  void list(const char*, const std::vector<Value>& vs) {
    operands.values.insert(operands.values.end(), vs.begin(), vs.end());
    operands.lists.push_back(static_cast<uint32_t>(vs.size()));
  }
  void output(const char*, bool want = true) { outputs.push_back(want); }
  void output_list(const char*, size_t count) { outputs.insert(outputs.end(), count, true); }
};

// Converts a node to an op struct.
struct NodeDecoder {
  const NodeInfo& node;
  size_t input = 0, out = 0, next_list = 0;
  template <class T>
  void attr(const char* name, T& field, const T& otherwise) {
    const AttrValue* v = node.attr(name);
    if constexpr (std::is_same_v<T, tenon_dtype>)
      field = v ? std::get<DTypeAttr>(*v).dtype : otherwise;
    else
      field = v ? std::get<T>(*v) : otherwise;
  }
  Value next() {
    const size_t k = input++;
    return k < node.operands.size() ? node.operands[k] : Value{};
  }
  void operand(const char*, Value& v) { v = next(); }
  void optional(const char*, Value& v) { v = next(); }
  void list(const char*, std::vector<Value>& vs) {
    const uint32_t size = next_list < node.lists.size() ? node.lists[next_list] : 0;
    ++next_list;
    for (uint32_t k = 0; k < size; ++k) vs.push_back(next());
  }
  void output(const char*) { ++out; }
  void output(const char*, bool& want) {
    want = out < node.outputs.size() && node.outputs[out];
    ++out;
  }
  void output_list(const char*, size_t& count) { count = node.outputs.size() - out; }
};
template <class Op>
Op decode(const NodeInfo& node) {
  Op op;
  visit(op, NodeDecoder{node});
  return op;
}

template <class Op>
NodeId Graph::add(const Op& op, std::string_view provenance) {
  Encoder e;
  visit(op, e);
  if constexpr (requires { op.wrt; }) e.outputs.assign(op.wrt.size(), true);
  return add_node(record_of(Op::kName), std::move(e.operands), std::move(e.attrs), e.outputs,
                  provenance);
}

// The outputs of a new node. Converts to the first one.
struct Results {
  std::vector<Value> outputs;
  operator Value() const { return outputs[0]; }  // NOLINT: implicit on purpose
  Value operator[](size_t k) const { return outputs[k]; }
};

using Ints = std::vector<int64_t>;

// Appends to a graph. Types must be numeric (after bind). Functions take shapes and types by value,
// because references from type() and shape() are invalidated when a value is added.
class Builder {
 public:
  explicit Builder(Graph& graph, std::string_view provenance = {})
      : graph(graph), provenance(provenance) {}
  Graph& graph;
  std::string provenance;
  Marks marks;  // for new nodes

  template <class Op>
  Results add(const Op& op) {
    const NodeId n = graph.add(op, provenance);
    graph.set_marks(n, marks);
    return {graph[n].outputs};
  }
  // By value: the graph's own types move when a node is added.
  Type type(Value v) const { return graph.type(v); }
  Shape shape(Value v) const { return graph.type(v).shape; }
  DType dtype(Value v) const { return graph.type(v).dtype; }

  // Constants. Scalars have rank 0 and broadcast; `full` has a shape (an expanded scalar).
  Value scalar(DType dtype, double value);
  Value scalar_int(DType dtype, int64_t value);
  Value ints(DType dtype, std::span<const int64_t> values);  // rank 1
  Value full(Type type, double value);
  Value zeros(Type type) { return full(type, 0); }

  // Elementwise ops. The forms with a double take a scalar of a's dtype.
  Value binary(std::string_view kind, Value a, Value b);
  Value binary(std::string_view kind, Value a, double b) {
    return binary(kind, a, scalar(dtype(a), b));
  }
  Value plus(Value a, Value b) { return binary("add", a, b); }
  Value plus(Value a, double b) { return binary("add", a, b); }
  Value minus(Value a, Value b) { return binary("sub", a, b); }
  Value minus(Value a, double b) { return binary("sub", a, b); }
  Value times(Value a, Value b) { return binary("mul", a, b); }
  Value times(Value a, double b) { return binary("mul", a, b); }
  Value over(Value a, Value b) { return binary("div", a, b); }
  Value over(Value a, double b) { return binary("div", a, b); }
  Value max(Value a, Value b) { return binary("max", a, b); }
  Value min(Value a, Value b) { return binary("min", a, b); }
  Value unary(std::string_view kind, Value x);
  Value neg(Value x) { return unary("neg", x); }
  Value exp(Value x) { return unary("exp", x); }
  Value log(Value x) { return unary("log", x); }
  Value compare(std::string_view kind, Value a, Value b);
  Value compare(std::string_view kind, Value a, double b) {
    return compare(kind, a, scalar(dtype(a), b));
  }
  Value logical(std::string_view kind, Value a, Value b = {});
  Value where(Value cond, Value a, Value b);
  Value copy(Value x);
  Value cast(Value x, DType to);  // returns x if the dtype is the same
  Value widen(Value x) { return cast(x, acc_dtype(dtype(x))); }  // to the accumulation dtype

  // Shape ops. Each returns x if nothing changes.
  Value reshape(Value x, Shape shape);
  Value transpose(Value x, Ints perm);
  Value swap_last(Value x);  // matrix transpose of the last two axes
  Value expand(Value x, Shape shape);
  Value unsqueeze(Value x, int axis);
  Value narrow(Value x, int axis, int64_t start, int64_t len, int64_t step = 1);
  Value concat(std::vector<Value> xs, int axis);

  // Reductions.
  Value reduce(std::string_view kind, Value x, Ints axes, bool keepdims);
  Value sum(Value x, Ints axes, bool keepdims = true) {
    return reduce("sum", x, std::move(axes), keepdims);
  }
  Value mean(Value x, Ints axes, bool keepdims = true) {
    return reduce("mean", x, std::move(axes), keepdims);
  }
  // e^x / Σe^x over the axes. e^(x - logsumexp(x)) would be inaccurate: a large logsumexp has lost
  // the digits of the sum's logarithm. If the row contains +inf, other elements get 0 and +inf gets
  // NaN.
  Value shares(Value x, const Ints& axes);
  // Reduces the gradient of a broadcast operand to its shape, in the accumulation dtype.
  Value sum_to(Value x, Shape shape);

  // Complex numbers as pairs of their parts, and back.
  Value as_real(Value x);
  Value as_complex(Value x);
  Value conj(Value x);
  Value part(Value x, int64_t which);                  // 0: the real one, 1: the imaginary one
  Value pair(DType t, double real, double imaginary);  // a constant [2]

  Value matmul(Value a, Value b, bool trans_a = false, bool trans_b = false, double alpha = 1.0,
               DType out_dtype = TENON_DTYPE_NONE);
  Value iota(Shape shape, int axis, DType dtype, double start = 0, double step = 1);
};

}  // namespace tenon::core
