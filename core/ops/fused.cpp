// SPDX-License-Identifier: Apache-2.0
// elementwise_region batch_elementwise_region: specification 1.9 and 1.10, without the index
// prologue. The decomposition is the body as separate nodes. The gradient is that of the
// decomposition.
#include <algorithm>

#include "ops/control.hpp"
#include "ops/fused.hpp"
#include "ops/quantized.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

std::string value_text(const Graph& body, Value v) {
  return body[v].name.empty() ? cat("value ", v.id) : cat("value '", body[v].name, "'");
}

// ---- checks of a body

void want_values(const Infer& i, const Graph& body) {
  if (!body.weights().empty() || !body.states().empty() || !body.updates().empty())
    i.fail(Code::invalid_argument, "attribute body: has weights, state or updates");
  const size_t inputs = body.inputs().size(), outputs = body.outputs().size();
  if (inputs == 0 || inputs > kFusedInputs || outputs == 0 || outputs > kFusedOutputs)
    i.fail(Code::invalid_argument, "attribute body: expected 1 to ", kFusedInputs,
           " inputs and 1 to ", kFusedOutputs, " outputs, got ", inputs, " and ", outputs);
  for (uint32_t k = 0; k < body.value_count(); ++k) {
    const ValueInfo& v = body[Value{k}];
    if (v.type.dtype == TENON_DTYPE_NONE || !v.type.shape.numeric())
      i.fail(Code::invalid_argument, "attribute body: ", value_text(body, {k}), " has symbols");
    if (v.space == Space::constant && v.type.shape.elements() != 1)
      i.fail(Code::invalid_argument, "attribute body: a constant has ", v.type.shape.elements(),
             " elements, expected one");
  }
  std::vector<bool> leaves(body.value_count());
  for (const Output& o : body.outputs()) {
    if (body[o.value].space != Space::node || leaves[o.value.id])
      i.fail(Code::invalid_argument, "attribute body: output '", o.name, "' is ",
             leaves[o.value.id] ? "another output too" : "made by no step");
    leaves[o.value.id] = true;
  }
}

// Refuses ops that cannot be steps.
void want_steps(const Infer& i, const Graph& body) {
  const uint32_t count = body.node_count();
  if (count == 0 || count > kFusedSteps)
    i.fail(Code::invalid_argument, "attribute body: expected 1 to ", kFusedSteps, " steps, got ",
           count);
  for (NodeId n = 0; n < count; ++n) {
    const NodeInfo& step = body[n];
    const bool reduction = (step.op->traits & kReduction) && n + 1 == count && n > 0;
    if ((!can_be_step(body, step) && !reduction) || step.outputs.size() != 1)
      i.fail(Code::invalid_argument, "attribute body: ", step.op->name(),
             step.op->traits & kReduction ? " can only be the last step of a fused body"
                                          : " cannot be a step of a fused body");
    if (reduction && body[step.operands[0]].space != Space::node)
      i.fail(Code::invalid_argument, "attribute body: ", step.op->name(),
             ": expected an operand that a step computes, got an input or constant");
    if (reduction &&
        std::ranges::find(body.outputs(), step.outputs[0], &Output::value) == body.outputs().end())
      i.fail(Code::invalid_argument, "attribute body: the result of ", step.op->name(),
             " is not an output");
  }
}

void want_body(const Infer& i, const FunctionAttr& body) {
  if (!body) i.fail(Code::invalid_argument, "attribute body is required");
  want_values(i, *body);
  want_steps(i, *body);
  const Shape d = fused_shape(*body);
  const NodeInfo& last = (*body)[body->node_count() - 1];
  const bool reduced = last.op->traits & kReduction;
  const auto want = [&](Value v, std::string_view what) {
    if (body->type(v).shape != d)
      i.fail(Code::shape_mismatch, "attribute body: ", what, " is ", body->type(v).text(),
             ", expected the shape of the steps, ", d.text());
  };
  if (reduced) want(last.operands[0], "the operand of the reduction");
  for (Value v : body->inputs())
    if (broadcast(d, body->type(v).shape, i.who()) != d)
      i.fail(Code::shape_mismatch, "attribute body: ", value_text(*body, v), " is ",
             body->type(v).text(), ", which does not broadcast to the shape of the steps, ",
             d.text());
  for (const Output& o : body->outputs())
    if (!reduced || o.value != last.outputs[0]) want(o.value, cat("output '", o.name, "'"));
}

void want_counts(const Infer& i, const Graph& body, size_t sets, size_t operands) {
  if (operands != sets * body.inputs().size())
    i.fail(Code::invalid_argument, "operand xs: expected ", sets * body.inputs().size(), ", got ",
           operands);
  if (i.out_count() != sets * body.outputs().size())
    i.fail(Code::invalid_argument, "output ys: expected ", sets * body.outputs().size(), ", got ",
           i.out_count());
  for (size_t k = 0; k < i.out_count(); ++k)
    if (!i.wanted(k)) i.fail(Code::invalid_argument, "output ys: entry ", k, " is left out");
}

// ---- the body as separate nodes

// Appends the steps in the accumulation dtype: rounds floats only at casts and at the outputs.
std::vector<Value> widened(const Graph& body, Builder& b, std::span<const Value> operands) {
  std::vector<Value> now(body.value_count());
  for (size_t k = 0; k < operands.size(); ++k) now[body.inputs()[k].id] = b.widen(operands[k]);
  for (NodeId n = 0; n < body.node_count(); ++n) {
    const NodeInfo& step = body[n];
    std::vector<Value> in;
    for (Value v : step.operands) {
      if (v && !now[v.id]) now[v.id] = b.widen(b.graph.constant(body.type(v), body[v].data));
      in.push_back(v ? now[v.id] : Value{});
    }
    const NodeId made =
        b.graph.add_node(*step.op, {std::move(in), step.lists}, step.attrs, {true}, b.provenance);
    b.graph.set_marks(made, b.marks);
    now[step.outputs[0].id] = b.widen(b.graph[made].outputs[0]);
  }
  std::vector<Value> results;
  for (const Output& o : body.outputs())
    results.push_back(b.cast(now[o.value.id], body.type(o.value).dtype));
  return results;
}

// ---- elementwise_region

void elementwise_region_shape(Infer& i, const op::elementwise_region& n) {
  want_body(i, n.body);
  want_counts(i, *n.body, 1, n.xs.size());
  for (size_t k = 0; k < n.xs.size(); ++k) {
    const Type& expected = n.body->type(n.body->inputs()[k]);
    if (i.type(n.xs[k]) != expected)
      i.fail(i.dtype(n.xs[k]) != expected.dtype ? Code::dtype_mismatch : Code::shape_mismatch,
             "operand xs: entry ", k, ": expected ", expected.text(), " as in the body, got ",
             i.type(n.xs[k]).text());
  }
  for (size_t k = 0; k < i.out_count(); ++k) i.out(k, n.body->type(n.body->outputs()[k].value));
}

bool elementwise_region_lower(Lower& l, const op::elementwise_region& n) {
  const std::vector<Value> results = widened(*n.body, l.b, n.xs);
  for (size_t k = 0; k < results.size(); ++k) l.out(k, results[k]);
  return true;
}
constexpr Record<op::elementwise_region> kFused{.shape = elementwise_region_shape,
                                                .lower = elementwise_region_lower,
                                                .flops = no_products,
                                                .bytes = each_once};

// ---- batch_elementwise_region

void batch_elementwise_region_shape(Infer& i, const op::batch_elementwise_region& n) {
  want_body(i, n.body);
  const size_t inputs = n.body->inputs().size(), outputs = n.body->outputs().size();
  if (n.sets < 1 || n.sets > TENON_BLOB_MAX_OPERANDS)
    i.fail(Code::invalid_argument, "attribute sets: expected 1 to ", TENON_BLOB_MAX_OPERANDS,
           ", given ", n.sets);
  const auto sets = static_cast<size_t>(n.sets);
  want_counts(i, *n.body, sets, n.xs.size());
  for (size_t s = 0; s < sets; ++s) {
    Graph own;
    std::vector<Value> operands;
    for (size_t k = 0; k < inputs; ++k) {
      const Type &given = i.type(n.xs[s * inputs + k]),
                 &expected = n.body->type(n.body->inputs()[k]);
      if (given.dtype != expected.dtype || (s == 0 && given != expected))
        i.fail(given.dtype != expected.dtype ? Code::dtype_mismatch : Code::shape_mismatch,
               "operand xs: entry ", k, " of set ", s, ": expected ",
               s ? std::string(dtype_name(expected.dtype)) : expected.text(), ", got ",
               given.text());
      operands.push_back(own.input(std::to_string(k), given));
    }
    std::vector<Value> results;
    try {
      Builder in(own);
      results = inline_function(in, *n.body, operands);
    } catch (const Error& e) {
      i.fail(e.code(), "operand xs: set ", s, ": ", e.what());
    }
    for (size_t k = 0; k < outputs; ++k) own.output(std::to_string(k), results[k]);
    const auto typed = std::make_shared<const Graph>(std::move(own));
    want_body(i, typed);
    for (size_t k = 0; k < outputs; ++k) i.out(s * outputs + k, typed->type(results[k]));
  }
}

bool batch_elementwise_region_lower(Lower& l, const op::batch_elementwise_region& n) {
  const size_t inputs = n.body->inputs().size(), outputs = n.body->outputs().size();
  for (size_t s = 0; s < static_cast<size_t>(n.sets); ++s) {
    const std::vector<Value> results =
        widened(*n.body, l.b, std::span(n.xs).subspan(s * inputs, inputs));
    for (size_t k = 0; k < outputs; ++k) l.out(s * outputs + k, results[k]);
  }
  return true;
}
constexpr Record<op::batch_elementwise_region> kBatch{.shape = batch_elementwise_region_shape,
                                                      .lower = batch_elementwise_region_lower,
                                                      .flops = no_products,
                                                      .bytes = each_once};

}  // namespace

Shape fused_shape(const Graph& body) {
  Shape d;
  for (NodeId n = 0; n < body.node_count(); ++n)
    if (can_be_step(body, body[n]))
      d = broadcast(d, body.type(body[n].outputs[0]).shape, "elementwise_region: the steps");
  return d;
}

const OpRecord& batch_fused_record() { return batch_elementwise_region_def; }

Attrs batch_fused_attrs(FunctionAttr body, size_t sets) {
  const op::batch_elementwise_region fused{.body = std::move(body),
                                           .sets = static_cast<int64_t>(sets)};
  Encoder e;
  visit(fused, e);
  return std::move(e.attrs);
}

const OpRecord& fused_record() { return elementwise_region_def; }

Attrs fused_attrs(FunctionAttr body) {
  const op::elementwise_region fused{.body = std::move(body)};
  Encoder e;
  visit(fused, e);
  return std::move(e.attrs);
}

bool can_be_step(const Graph& g, const NodeInfo& node) {
  const auto apart = [&](Value v) {
    return v && (is_complex(g.type(v).dtype) || is_blocks(g.type(v).dtype));
  };
  if (std::ranges::any_of(node.operands, apart) || std::ranges::any_of(node.outputs, apart))
    return false;
  if (node.op->traits & kElementwise) return true;
  const auto constant = [&](Value v) {
    return !v || (g[v].space == Space::constant && is_one_number(g.type(v).shape) &&
                  tenon_dtype_bits(g.type(v).dtype) >= 8);
  };
  const auto of_one_scale = [&](const auto& n) {
    return n.block == 0 && constant(n.scale) && constant(n.zero_point);
  };
  if (node.op == &quantize_def) return of_one_scale(decode<op::quantize>(node));
  return node.op == &dequantize_def && of_one_scale(decode<op::dequantize>(node));
}

Value rounded_step(Graph& body, Value v) {
  const DType t = body.type(v).dtype;
  if (!is_half(t) || body[body[v].node].op == &cast_def) return v;
  return body[body.add(op::cast{.to = t, .x = v})].outputs[0];
}

size_t step_count(const OpRecord* op, const Type& result) {
  return is_half(result.dtype) && op != &cast_def ? 2 : 1;
}

constinit const OpRecord elementwise_region_def = record<op::elementwise_region, kFused>();
constinit const OpRecord batch_elementwise_region_def =
    record<op::batch_elementwise_region, kBatch>();

}  // namespace tenon::core
