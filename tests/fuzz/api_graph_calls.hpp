// SPDX-License-Identifier: Apache-2.0
// The API fuzzer's calls of graphs.
#pragma once

#include <array>
#include <cmath>

#include "api_world.hpp"
#include "tenon/tenon.h"

namespace tenon::fuzz {

inline void keep_graph(World& w, Out<tenon_graph*>& out, tenon_status* status) {
  if (out.filled(w.good(status))) w.keep(w.graphs, out.value, tenon_graph_destroy);
}
inline void graph_create(World& w) {
  Out<tenon_graph*> out(w.in);
  keep_graph(w, out, tenon_graph_create(w.name(), out.arg()));
}
inline void graph_destroy(World& w) { tenon_graph_destroy(w.graphs.take(w.in)); }
inline void graph_parse(World& w) {
  Out<tenon_graph*> out(w.in);
  const tenon_str text = w.in.one_in(16) ? w.name() : w.text(w.in.of(kGraphs));
  keep_graph(w, out, tenon_graph_parse(text, w.name(), out.arg()));
}
inline void graph_print(World& w) {
  Out<tenon_text*> out(w.in);
  w.good(tenon_graph_print(w.graphs.any(w.in), out.arg()), out);
}
inline void graph_symbol(World& w) {
  Out<int64_t> out(w.in);
  out.filled(w.good(tenon_graph_symbol(w.graphs.any(w.in), w.name(), out.arg())));
}
inline void graph_symbol_name(World& w) {
  Out<tenon_str> out(w.in);
  if (out.filled(w.good(tenon_graph_symbol_name(w.graphs.any(w.in), w.dim(), out.arg()))))
    read_text(out.value);
}
inline void graph_input(World& w) {
  const auto d = w.dims();
  Out<tenon_value> out(w.in);
  out.filled(w.good(
      tenon_graph_input(w.graphs.any(w.in), w.name(), w.dtype(), d.rank, d.data, out.arg())));
}
inline void graph_weight(World& w) {
  const auto d = w.dims();
  Out<tenon_value> out(w.in);
  out.filled(w.good(tenon_graph_weight(w.graphs.any(w.in), w.name(), w.dtype(), d.rank, d.data,
                                       w.in.below(3), out.arg())));
}
inline void graph_state(World& w) {
  const auto d = w.dims();
  Out<tenon_value> out(w.in);
  out.filled(w.good(
      tenon_graph_state(w.graphs.any(w.in), w.name(), w.dtype(), d.rank, d.data, out.arg())));
}
inline void graph_constant(World& w) {
  const auto d = w.dims();
  Out<tenon_value> out(w.in);
  const void* data = w.in.one_in(16) ? nullptr : w.bytes();
  const uint64_t size = w.in.one_in(16) ? UINT64_MAX : w.size();
  out.filled(w.good(
      tenon_graph_constant(w.graphs.any(w.in), w.dtype(), d.rank, d.data, data, size, out.arg())));
}

struct Attributes {
  tenon_arg args[3];
  int64_t ints[4];
  double floats[4];
};
inline void fill(World& w, Attributes& a) {
  static constexpr std::string_view kNames[] = {"kind", "axes",  "axis",    "k",    "size",
                                                "to",   "eps",   "trans_b", "body", "start",
                                                "len",  "dtype", "sets"};
  static constexpr std::string_view kWords[] = {"add", "relu", "sum", "gelu", "eq", "mul", "max"};
  static constexpr double kFloats[] = {0, 1e-5, -1, 1e300, NAN, INFINITY};
  for (int64_t& i : a.ints) i = w.dim();
  for (double& f : a.floats) f = w.in.of(kFloats);
  for (tenon_arg& arg : a.args) {
    arg = {};
    arg.name = w.in.one_in(16) ? w.name() : w.text(w.in.of(kNames));
    arg.type = w.in.one_in(24) ? w.number() : 1 + w.in.below(8);
    arg.i64 = w.in.one_in(4) ? w.dim() : w.in.below(20);
    arg.f64 = w.in.of(kFloats);
    arg.str = w.in.one_in(16) ? w.name() : w.text(w.in.of(kWords));
    arg.ints = w.in.one_in(24) ? nullptr : a.ints;
    arg.floats = w.in.one_in(24) ? nullptr : a.floats;
    if (arg.type == TENON_ARG_FUNCTION) arg.function = w.graphs.any(w.in);
    arg.count = arg.type == TENON_ARG_INTS && !arg.ints ? w.number() : w.in.below(5);
  }
}
inline void graph_add_node(World& w) {
  static constexpr std::string_view kOps[] = {"binary",  "unary",   "matmul", "reduce",
                                              "reshape", "softmax", "expand", "narrow"};
  tenon_str domain = w.in.one_in(24) ? w.name() : w.text("tenon");
  tenon_str name = w.in.one_in(16) ? w.name() : w.text(w.in.of(kOps));
  if (w.in.one_in(2)) {
    tenon_op_entry e{};
    e.struct_size = sizeof e;
    if (w.good(tenon_op(w.in.below(tenon_op_count()), &e))) name = e.name, domain = e.domain;
  }
  Attributes attributes;
  fill(w, attributes);
  tenon_value operands[4], outputs[4];
  for (tenon_value& v : operands) v = w.in.one_in(8) ? TENON_NONE : w.value();
  uint8_t want[4];
  for (uint8_t& each : want) each = static_cast<uint8_t>(w.in.below(3));
  uint32_t lists[2] = {w.in.below(5), w.in.one_in(8) ? w.number() : w.in.below(3)};
  const bool no_operands = w.in.one_in(24), no_arguments = w.in.one_in(24);
  const bool no_place = w.in.one_in(24);
  tenon_node_desc node{};
  node.struct_size = w.in.one_in(24) ? w.in.below(sizeof node / 8) * 8 : sizeof node;
  node.domain = domain;
  node.op = name;
  node.version = w.in.one_in(16) ? w.number() : w.in.below(2);
  node.operands = no_operands ? nullptr : operands;
  node.operand_count = no_operands ? w.number() : w.in.below(5);
  node.lists = w.in.one_in(4) ? lists : nullptr;
  node.list_count = w.in.below(3);
  node.attributes = no_arguments ? nullptr : attributes.args;
  node.attribute_stride = w.in.one_in(24) ? w.in.below(sizeof(tenon_arg)) : sizeof(tenon_arg);
  node.attribute_count = no_arguments ? w.number() : w.in.below(4);
  node.want = w.in.one_in(4) ? want : nullptr;
  node.output_count = no_place ? w.number() : 1 + w.in.below(3);
  node.provenance = w.name();
  w.good(tenon_graph_add_node(w.graphs.any(w.in), w.in.one_in(24) ? nullptr : &node,
                              no_place ? nullptr : outputs));
}
inline tenon_value loss(World& w) { return w.in.one_in(4) ? w.value() : kPlainLoss; }
inline void graph_gradients(World& w) {
  const tenon_value wrt[] = {w.value(), w.value()};
  tenon_value out[2];
  const bool none = w.in.one_in(16);
  w.good(tenon_graph_gradients(w.graphs.any(w.in), loss(w), none ? nullptr : wrt,
                               none ? w.number() : w.in.below(3), w.in.one_in(24) ? nullptr : out));
}
inline void graph_jvp(World& w) {
  const std::array<tenon_value, 3> ys = {w.value(), w.value(), w.value()};
  const std::array<tenon_value, 3> xs = {w.value(), w.value(), w.value()};
  const std::array<tenon_value, 3> ts = {w.value(), w.value(), w.value()};
  std::array<tenon_value, 3> out;
  w.good(tenon_graph_jvp(w.graphs.any(w.in), w.in.one_in(16) ? nullptr : ys.data(), w.in.below(4),
                         w.in.one_in(16) ? nullptr : xs.data(),
                         w.in.one_in(16) ? nullptr : ts.data(), w.in.below(4),
                         w.in.one_in(16) ? nullptr : out.data()));
}
inline void graph_checkpoint(World& w) {
  const tenon_value from[] = {w.value(), w.value()}, to[] = {w.value(), w.value()};
  const bool none = w.in.one_in(16);
  w.good(tenon_graph_checkpoint(w.graphs.any(w.in), none ? nullptr : from,
                                none ? w.number() : w.in.below(3), to, w.in.below(3)));
}
inline void graph_output(World& w) {
  w.good(tenon_graph_output(w.graphs.any(w.in), w.name(), w.value()));
}
inline void graph_update(World& w) {
  w.good(tenon_graph_update(w.graphs.any(w.in), w.value(), w.value()));
}
inline void graph_type(World& w) {
  Out<tenon_tensor_type> out(w.in);
  out.filled(w.good(tenon_graph_type(w.graphs.any(w.in), w.value(), out.arg())));
}
inline void graph_dtype(World& w) {
  Out<tenon_dtype> out(w.in);
  out.filled(w.good(tenon_graph_dtype(w.graphs.any(w.in), w.value(), out.arg())));
}
inline void graph_count(World& w) { tenon_graph_count(w.graphs.any(w.in), w.space()); }
inline void graph_name(World& w) {
  Out<tenon_str> name(w.in);
  Out<tenon_value> value(w.in, Need::optional);
  Out<uint32_t> trainable(w.in, Need::optional);
  const bool good = w.good(tenon_graph_name(w.graphs.any(w.in), w.space(), w.in.below(4),
                                            name.arg(), value.arg(), trainable.arg()));
  if (name.filled(good)) read_text(name.value);
  value.filled(good), trainable.filled(good);
}
inline void graph_output_count(World& w) { tenon_graph_output_count(w.graphs.any(w.in)); }
inline void graph_output_name(World& w) {
  Out<tenon_str> name(w.in);
  Out<tenon_value> value(w.in, Need::optional);
  const bool good =
      w.good(tenon_graph_output_name(w.graphs.any(w.in), w.in.below(4), name.arg(), value.arg()));
  if (name.filled(good)) read_text(name.value);
  value.filled(good);
}
inline void graph_decompose(World& w) {
  const tenon_str symbols[] = {w.text("N"), w.name()};
  const int64_t numbers[] = {w.dim(), w.dim()};
  const bool none = w.in.one_in(24);
  Out<tenon_graph*> out(w.in);
  if (out.filled(w.good(tenon_graph_decompose(w.graphs.any(w.in), none ? nullptr : symbols, numbers,
                                              none ? w.number() : w.in.below(3), out.arg()))))
    w.keep(w.graphs, out.value, tenon_graph_destroy);
}
// weights: outlives the optimizer.
inline tenon_optimizer optimizer(World& w, const std::array<tenon_value, 2>& weights) {
  static constexpr double kWrong[] = {1, -1, NAN, INFINITY, 1e300};
  const auto number = [&] { return w.in.one_in(32) ? w.in.of(kWrong) : 0.5; };
  tenon_optimizer o{};
  o.struct_size = w.size_of<tenon_optimizer>();
  o.kind = w.in.one_in(8) ? w.number() : 1 + w.in.below(3);
  o.skip_nonfinite = w.in.below(3);
  o.learning_rate = w.in.one_in(4) ? w.value() : kPlainRate;
  o.nesterov = w.in.below(2);
  o.beta1 = number(), o.beta2 = number(), o.eps = number(), o.momentum = number();
  o.dampening = number(), o.weight_decay = number(), o.clip_norm = number();
  o.decay_min_rank = w.in.below(4);
  if (w.in.one_in(4)) o.weights = weights.data();
  if (w.in.one_in(4)) o.weight_count = w.in.below(3);
  if (w.in.one_in(4)) o.name = w.name();
  return o;
}
inline void graph_minimize(World& w) {
  const std::array<tenon_value, 2> weights = {w.value(), w.value()};
  const tenon_optimizer o = optimizer(w, weights);
  Out<tenon_value> norm(w.in, Need::optional);
  norm.filled(w.good(tenon_graph_minimize(w.graphs.any(w.in), loss(w),
                                          w.in.one_in(24) ? nullptr : &o, norm.arg())));
}
inline void graph_accumulate(World& w) {
  w.good(tenon_graph_accumulate(w.graphs.any(w.in), loss(w)));
}
inline void graph_apply(World& w) {
  const std::array<tenon_value, 2> weights = {w.value(), w.value()};
  const tenon_optimizer o = optimizer(w, weights);
  Out<tenon_value> norm(w.in, Need::optional);
  norm.filled(
      w.good(tenon_graph_apply(w.graphs.any(w.in), w.in.one_in(24) ? nullptr : &o, norm.arg())));
}

}  // namespace tenon::fuzz
