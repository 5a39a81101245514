// SPDX-License-Identifier: Apache-2.0
// C functions for the graph.
#include "api/door.hpp"
#include "api/optimizer.hpp"
#include "grad/checkpoint.hpp"
#include "ir/text.hpp"
#include "ops/jvp.hpp"
#include "ops/record.hpp"
#include "plan/rewrite/bind.hpp"
#include "plan/rewrite/buckets.hpp"
#include "plan/rewrite/unfuse.hpp"

using namespace tenon::core;

namespace {

Value value_in(const Graph& graph, tenon_value v, std::string_view what) {
  if (v >= graph.value_count()) fail(Code::invalid_argument, what, ": no value of this graph");
  return {v};
}

Type type_from(tenon_dtype dtype, uint32_t rank, const int64_t* dims) {
  return {dtype, shape_from(rank, dims)};
}

const std::vector<Value>& values_of(const Graph& graph, uint32_t space) {
  static const std::vector<Value> none;
  switch (space) {
    case TENON_SPACE_INPUT:
      return graph.inputs();
    case TENON_SPACE_WEIGHT:
      return graph.weights();
    case TENON_SPACE_STATE:
      return graph.states();
    default:
      return none;
  }
}

}  // namespace

tenon_status* tenon_graph_create(tenon_str name, tenon_graph** out_graph) {
  return door("tenon_graph_create", [&] {
    auto graph = std::make_unique<tenon_graph>();
    graph->graph.name = view(name);
    need(out_graph, "out_graph");
    *out_graph = graph.release();
  });
}

void tenon_graph_destroy(tenon_graph* graph) { delete graph; }

tenon_status* tenon_graph_parse(tenon_str text, tenon_str file_name, tenon_graph** out_graph) {
  return door("tenon_graph_parse", [&] {
    auto graph = std::make_unique<tenon_graph>();
    graph->graph = parse(view(text), view(file_name));
    need(out_graph, "out_graph");
    *out_graph = graph.release();
  });
}

tenon_status* tenon_graph_print(const tenon_graph* graph, tenon_text** out_text) {
  return door("tenon_graph_print", [&] {
    need(out_text, "out_text");
    *out_text = new tenon_text{print(need(graph, "graph").graph)};
  });
}

tenon_status* tenon_graph_symbol(tenon_graph* graph, tenon_str name, int64_t* out_dim) {
  return door("tenon_graph_symbol", [&] {
    need(out_dim, "out_dim");
    *out_dim = need(graph, "graph").graph.symbol(view(name));
  });
}

tenon_status* tenon_graph_symbol_name(const tenon_graph* graph, int64_t dim, tenon_str* out_name) {
  return door("tenon_graph_symbol_name", [&] {
    const Graph& g = need(graph, "graph").graph;
    if (dim >= 0 || static_cast<uint64_t>(~dim) >= g.symbols().size())
      fail(Code::not_found, "dim ", dim, ": expected a symbol of the graph, which has ",
           g.symbols().size());
    need(out_name, "out_name");
    *out_name = c_str(g.symbol_name(dim));
  });
}

tenon_status* tenon_graph_input(tenon_graph* graph, tenon_str name, tenon_dtype dtype,
                                uint32_t rank, const int64_t* dims, tenon_value* out_value) {
  return door("tenon_graph_input", [&] {
    need(out_value, "out_value");
    *out_value = need(graph, "graph").graph.input(view(name), type_from(dtype, rank, dims)).id;
  });
}

tenon_status* tenon_graph_weight(tenon_graph* graph, tenon_str name, tenon_dtype dtype,
                                 uint32_t rank, const int64_t* dims, uint32_t trainable,
                                 tenon_value* out_value) {
  return door("tenon_graph_weight", [&] {
    need(out_value, "out_value");
    *out_value = need(graph, "graph")
                     .graph.weight(view(name), type_from(dtype, rank, dims), trainable != 0)
                     .id;
  });
}

tenon_status* tenon_graph_state(tenon_graph* graph, tenon_str name, tenon_dtype dtype,
                                uint32_t rank, const int64_t* dims, tenon_value* out_value) {
  return door("tenon_graph_state", [&] {
    need(out_value, "out_value");
    *out_value = need(graph, "graph").graph.state(view(name), type_from(dtype, rank, dims)).id;
  });
}

tenon_status* tenon_graph_constant(tenon_graph* graph, tenon_dtype dtype, uint32_t rank,
                                   const int64_t* dims, const void* data, uint64_t size,
                                   tenon_value* out_value) {
  return door("tenon_graph_constant", [&] {
    if (size && !data) fail(Code::invalid_argument, "constant: data is NULL");
    const Type type = type_from(dtype, rank, dims);
    if (!tenon_dtype_known(dtype)) fail(Code::dtype_mismatch, "constant: the dtype is unknown");
    if (!type.shape.numeric()) fail(Code::shape_mismatch, "constant: a dim is negative");
    want_whole_blocks(type, "constant");
    if (const uint64_t expected = type_bytes(type); size != expected)
      fail(Code::invalid_argument, "constant: ", type.text(), " has ", expected, " bytes, got ",
           size);
    const auto* bytes = static_cast<const std::byte*>(data);
    need(out_value, "out_value");
    *out_value =
        need(graph, "graph").graph.constant(type, std::make_shared<Bytes>(bytes, bytes + size)).id;
  });
}

tenon_status* tenon_graph_add_node(tenon_graph* graph, const tenon_node_desc* node,
                                   tenon_value* out_values) {
  return door("tenon_graph_add_node", [&] {
    add_node(need(graph, "graph").graph, node, out_values, "use tenon_graph_gradients");
  });
}

tenon_status* tenon_graph_gradients(tenon_graph* graph, tenon_value loss, const tenon_value* wrt,
                                    uint32_t count, tenon_value* out_gradients) {
  return door("tenon_graph_gradients", [&] {
    Graph& g = need(graph, "graph").graph;
    if (count) need(wrt, "wrt"), need(out_gradients, "out_gradients");
    op::grad request{.loss = value_in(g, loss, "loss")};
    for (uint32_t i = 0; i < count; ++i) request.wrt.push_back(value_in(g, wrt[i], "wrt"));
    const NodeId n = g.add(request, "gradients");
    for (uint32_t i = 0; i < count; ++i) out_gradients[i] = g[n].outputs[i].id;
  });
}

tenon_status* tenon_graph_jvp(tenon_graph* graph, const tenon_value* outputs, uint32_t output_count,
                              const tenon_value* inputs, const tenon_value* tangents,
                              uint32_t input_count, tenon_value* out_tangents) {
  return door("tenon_graph_jvp", [&] {
    tenon_graph& g = need(graph, "graph");
    if (output_count) need(outputs, "outputs"), need(out_tangents, "out_tangents");
    if (input_count) need(inputs, "inputs"), need(tangents, "tangents");
    std::vector<Value> ys, xs, ts;
    for (uint32_t i = 0; i < output_count; ++i)
      ys.push_back(value_in(g.graph, outputs[i], "outputs"));
    for (uint32_t i = 0; i < input_count; ++i) {
      xs.push_back(value_in(g.graph, inputs[i], "inputs"));
      ts.push_back(value_in(g.graph, tangents[i], "tangents"));
    }
    const std::vector<Value> made = jvp(g.graph, g.dtypes, ys, xs, ts);
    for (uint32_t i = 0; i < output_count; ++i) out_tangents[i] = made[i].id;
  });
}

tenon_status* tenon_graph_checkpoint(tenon_graph* graph, const tenon_value* from,
                                     uint32_t from_count, const tenon_value* to,
                                     uint32_t to_count) {
  return door("tenon_graph_checkpoint", [&] {
    Graph& g = need(graph, "graph").graph;
    if (from_count) need(from, "from");
    if (to_count) need(to, "to");
    std::vector<Value> first, last;
    for (uint32_t i = 0; i < from_count; ++i) first.push_back(value_in(g, from[i], "from"));
    for (uint32_t i = 0; i < to_count; ++i) last.push_back(value_in(g, to[i], "to"));
    checkpoint(g, nodes_between(g, first, last));
  });
}

tenon_status* tenon_graph_output(tenon_graph* graph, tenon_str name, tenon_value value) {
  return door("tenon_graph_output", [&] {
    Graph& g = need(graph, "graph").graph;
    g.output(view(name), value_in(g, value, "output"));
  });
}

tenon_status* tenon_graph_update(tenon_graph* graph, tenon_value target, tenon_value value) {
  return door("tenon_graph_update", [&] {
    Graph& g = need(graph, "graph").graph;
    g.update(value_in(g, target, "update"), value_in(g, value, "update"));
  });
}

tenon_status* tenon_graph_type(const tenon_graph* graph, tenon_value value,
                               tenon_tensor_type* out_type) {
  return door("tenon_graph_type", [&] {
    const Graph& g = need(graph, "graph").graph;
    need(out_type, "out_type");
    give(*out_type, to_c(g.type(value_in(g, value, "type"))), "out_type");
  });
}

tenon_status* tenon_graph_dtype(tenon_graph* graph, tenon_value value, tenon_dtype* out_dtype) {
  return door("tenon_graph_dtype", [&] {
    tenon_graph& g = need(graph, "graph");
    need(out_dtype, "out_dtype");
    const DType dtype = g.dtypes.of(g.graph, value_in(g.graph, value, "dtype"));
    if (dtype == TENON_DTYPE_NONE)
      fail(
          Code::unsupported, "dtype: value ", value,
          " depends on symbols, and a node before it refuses the numbers that were tried for them");
    *out_dtype = dtype;
  });
}

uint32_t tenon_graph_count(const tenon_graph* graph, uint32_t space) {
  return graph ? static_cast<uint32_t>(values_of(graph->graph, space).size()) : 0;
}

tenon_status* tenon_graph_name(const tenon_graph* graph, uint32_t space, uint32_t index,
                               tenon_str* out_name, tenon_value* out_value,
                               uint32_t* out_trainable) {
  return door("tenon_graph_name", [&] {
    const Graph& g = need(graph, "graph").graph;
    const auto& values = values_of(g, space);
    if (index >= values.size())
      fail(Code::not_found, "name ", index, ": there are ", values.size());
    const Value v = values[index];
    need(out_name, "out_name");
    *out_name = c_str(g[v].name);
    if (out_value) *out_value = v.id;
    if (out_trainable) *out_trainable = g[v].trainable;
  });
}

uint32_t tenon_graph_output_count(const tenon_graph* graph) {
  return graph ? static_cast<uint32_t>(graph->graph.outputs().size()) : 0;
}

tenon_status* tenon_graph_output_name(const tenon_graph* graph, uint32_t index, tenon_str* out_name,
                                      tenon_value* out_value) {
  return door("tenon_graph_output_name", [&] {
    const auto& outputs = need(graph, "graph").graph.outputs();
    if (index >= outputs.size())
      fail(Code::not_found, "output ", index, ": there are ", outputs.size());
    need(out_name, "out_name");
    *out_name = c_str(outputs[index].name);
    if (out_value) *out_value = outputs[index].value.id;
  });
}

tenon_status* tenon_graph_decompose(const tenon_graph* graph, const tenon_str* symbols,
                                    const int64_t* numbers, uint32_t count,
                                    tenon_graph** out_graph) {
  return door("tenon_graph_decompose", [&] {
    const Graph& g = need(graph, "graph").graph;
    const SymbolNumbers binding = numbers_of(symbols, numbers, count);
    auto out = std::make_unique<tenon_graph>();
    out->graph = unfused(has_extents(g) ? pad_to_buckets(g, binding, {}).graph : bind(g, binding));
    need(out_graph, "out_graph");
    *out_graph = out.release();
  });
}

tenon_status* tenon_graph_minimize(tenon_graph* graph, tenon_value loss,
                                   const tenon_optimizer* optimizer, tenon_value* out_norm) {
  return door("tenon_graph_minimize", [&] {
    Graph& g = need(graph, "graph").graph;
    need(optimizer, "optimizer");
    const Value norm = minimize(g, value_in(g, loss, "loss"), taken(optimizer, "tenon_optimizer"));
    if (out_norm) *out_norm = norm.id;
  });
}

tenon_status* tenon_graph_accumulate(tenon_graph* graph, tenon_value loss) {
  return door("tenon_graph_accumulate", [&] {
    Graph& g = need(graph, "graph").graph;
    accumulate(g, value_in(g, loss, "loss"));
  });
}

tenon_status* tenon_graph_apply(tenon_graph* graph, const tenon_optimizer* optimizer,
                                tenon_value* out_norm) {
  return door("tenon_graph_apply", [&] {
    Graph& g = need(graph, "graph").graph;
    need(optimizer, "optimizer");
    const Value norm = apply(g, taken(optimizer, "tenon_optimizer"));
    if (out_norm) *out_norm = norm.id;
  });
}
