// SPDX-License-Identifier: Apache-2.0
// if, while, scan: nodes that run functions.
#include "ops/control.hpp"

#include <algorithm>
#include <map>

#include "ops/cost.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// Of a type that is not as expected.
Code mismatch(const Type& given, const Type& expected) {
  return given.dtype != expected.dtype ? Code::dtype_mismatch : Code::shape_mismatch;
}

bool is_condition(const Type& type) { return type.dtype == kBool && type.shape.elements() == 1; }

Type stacked_type(const Type& slice, int64_t length) {
  Shape shape;
  shape.push(length);
  for (Dim d : slice.shape) shape.push(d);
  return {slice.dtype, shape};
}

// ---- shape rules

// Binds a function of a node, for its shape rule.
class Functions {
 public:
  Functions(const Infer& infer, std::span<const Type> types) : infer_(infer), types_(types) {}

  // The types of its outputs.
  std::vector<Type> results(const FunctionAttr& function, std::string_view name) const {
    if (!function) infer_.fail(Code::invalid_argument, "attribute ", name, " is required");
    FunctionAttr bound;
    try {
      bound = bound_function(function, types_);
    } catch (const Error& e) {
      infer_.fail(e.code(), "function ", name, ": ", e.what());
    }
    std::vector<Type> out;
    for (const Output& o : bound->outputs()) out.push_back(bound->type(o.value));
    return out;
  }

  void want_condition(const FunctionAttr& function, std::string_view name) const {
    const std::vector<Type> given = results(function, name);
    if (given.size() != 1)
      infer_.fail(Code::invalid_argument, "function ", name, ": expected one output, got ",
                  given.size());
    if (!is_condition(given[0]))
      infer_.fail(mismatch(given[0], {kBool, {}}), "function ", name,
                  ": expected a bool of one element, got ", given[0].text());
  }

  // The first outputs must have the types of the carry, which are the first inputs.
  void want_carry(std::span<const Type> given, size_t carry) const {
    if (given.size() < carry)
      infer_.fail(Code::invalid_argument, "function body: expected an output for each of ", carry,
                  " values of carry, got ", given.size());
    for (size_t k = 0; k < carry; ++k)
      if (given[k] != types_[k])
        infer_.fail(mismatch(given[k], types_[k]), "function body: output ", k, ": expected ",
                    types_[k].text(), " as the carry before it, got ", given[k].text());
  }

 private:
  const Infer& infer_;
  std::span<const Type> types_;
};

std::vector<Type> types_of(const Infer& i, std::span<const Value> values) {
  std::vector<Type> out;
  for (Value v : values) out.push_back(i.type(v));
  return out;
}

void give(Infer& i, std::span<const Type> results) {
  if (i.out_count() > results.size())
    i.fail(Code::invalid_argument, "got ", i.out_count(), " outputs, its functions give ",
           results.size());
  for (size_t k = 0; k < i.out_count(); ++k) i.out(k, results[k]);
}

void if_shape(Infer& i, const op::if_& n) {
  if (!is_condition(i.type(n.cond)))
    i.fail(mismatch(i.type(n.cond), {kBool, {}}),
           "operand cond: expected a bool of one element, got ", i.type(n.cond).text());
  const std::vector<Type> types = types_of(i, n.xs);
  const Functions functions(i, types);
  const std::vector<Type> yes = functions.results(n.then_branch, "then_branch");
  const std::vector<Type> no = functions.results(n.else_branch, "else_branch");
  if (yes.size() != no.size())
    i.fail(Code::invalid_argument, "function else_branch: expected ", yes.size(),
           " outputs as then_branch, got ", no.size());
  for (size_t k = 0; k < yes.size(); ++k)
    if (yes[k] != no[k])
      i.fail(mismatch(no[k], yes[k]), "function else_branch: output ", k, ": expected ",
             yes[k].text(), " as then_branch, got ", no[k].text());
  give(i, yes);
}

void while_shape(Infer& i, const op::while_& n) {
  if (n.max_trip < -1)
    i.fail(Code::invalid_argument, "attribute max_trip: expected -1 or more, given ", n.max_trip);
  std::vector<Value> inputs = n.carry;
  inputs.insert(inputs.end(), n.captured.begin(), n.captured.end());
  const std::vector<Type> types = types_of(i, inputs);
  const Functions functions(i, types);
  functions.want_condition(n.cond, "cond");
  const std::vector<Type> results = functions.results(n.body, "body");
  functions.want_carry(results, n.carry.size());
  if (results.size() > n.carry.size())
    i.fail(Code::invalid_argument, "function body: expected ", n.carry.size(),
           " outputs, one for each value of carry, got ", results.size());
  give(i, results);
}

int64_t scan_length(const Infer& i, const op::scan& n) {
  if (n.length < -1)
    i.fail(Code::invalid_argument, "attribute length: expected -1 or more, given ", n.length);
  int64_t length = n.length;
  for (size_t k = 0; k < n.xs.size(); ++k) {
    const Shape& shape = i.shape(n.xs[k]);
    if (shape.rank() == 0)
      i.fail(Code::shape_mismatch, "operand xs: entry ", k,
             ": expected rank 1 or more: its slices are taken along axis 0");
    if (is_blocks(i.dtype(n.xs[k])))
      i.fail(Code::dtype_mismatch, "operand xs: entry ", k, ": got ", i.type(n.xs[k]).text(),
             "; blocks are passed as captured");
    if (length == -1) length = shape[0];
    if (slice_type(i.type(n.xs[k])).shape.elements() * tenon_dtype_bits(i.dtype(n.xs[k])) % 8)
      i.fail(Code::unsupported, "operand xs: entry ", k, ": the slices of ", i.type(n.xs[k]).text(),
             " do not fill whole bytes");
    if (shape[0] != length)
      i.fail(Code::shape_mismatch, "operand xs: entry ", k, ": expected a length of ", length,
             " along axis 0, got ", i.type(n.xs[k]).text());
  }
  if (length == -1)
    i.fail(Code::invalid_argument, "attribute length: is required where xs is an empty list");
  return length;
}

void scan_shape(Infer& i, const op::scan& n) {
  const int64_t length = scan_length(i, n);
  std::vector<Type> types = types_of(i, n.carry);
  for (Value v : n.xs) types.push_back(slice_type(i.type(v)));
  for (Value v : n.captured) types.push_back(i.type(v));
  const Functions functions(i, types);
  std::vector<Type> results = functions.results(n.body, "body");
  functions.want_carry(results, n.carry.size());
  for (size_t k = n.carry.size(); k < results.size(); ++k) {
    if (results[k].shape.elements() * tenon_dtype_bits(results[k].dtype) % 8)
      i.fail(Code::unsupported, "function body: output ", k, ": slices of ", results[k].text(),
             " do not fill whole bytes");
    results[k] = stacked_type(results[k], length);
  }
  give(i, results);
}

// ---- costs

double flops_of(const FunctionAttr& function) {
  double sum = 0;
  for (NodeId n = 0; n < function->node_count(); ++n)
    sum += product_flops(*function, (*function)[n]);
  return sum;
}
double bytes_of(const FunctionAttr& function) {
  double sum = 0;
  for (NodeId n = 0; n < function->node_count(); ++n) sum += least_bytes(*function, (*function)[n]);
  return sum;
}
double trips_of(const Cost& cost, const op::scan& n) {
  if (n.xs.empty()) return static_cast<double>(n.length);
  return static_cast<double>(cost.shape(n.xs[0])[0]);
}
// Unknown before the run. The bound stands for it, though it is seldom reached; without one, a single
// trip.
double trips_of(const op::while_& n) { return n.max_trip < 0 ? 1.0 : double(n.max_trip); }

double if_flops(const Cost&, const op::if_& n) {
  return std::max(flops_of(n.then_branch), flops_of(n.else_branch));
}
double if_bytes(const Cost&, const op::if_& n) {
  return std::max(bytes_of(n.then_branch), bytes_of(n.else_branch));
}
double while_flops(const Cost&, const op::while_& n) {
  return trips_of(n) * (flops_of(n.cond) + flops_of(n.body));
}
double while_bytes(const Cost&, const op::while_& n) {
  return trips_of(n) * (bytes_of(n.cond) + bytes_of(n.body));
}
double scan_flops(const Cost& cost, const op::scan& n) {
  return trips_of(cost, n) * flops_of(n.body);
}
double scan_bytes(const Cost& cost, const op::scan& n) {
  return trips_of(cost, n) * bytes_of(n.body);
}

// ---- a bounded loop as a number of trips

std::vector<Value> inputs_like(Graph& function, const Builder& b, std::span<const Value> values) {
  std::vector<Value> inputs;
  for (size_t k = 0; k < values.size(); ++k)
    inputs.push_back(function.input(std::to_string(function.inputs().size()), b.type(values[k])));
  return inputs;
}
FunctionAttr finished(Graph& function, std::span<const Value> outputs) {
  for (size_t k = 0; k < outputs.size(); ++k) function.output(std::to_string(k), outputs[k]);
  return std::make_shared<const Graph>(std::move(function));
}

// One more value of carry says whether the loop still runs. Each trip asks the condition first, as
// the loop does. A trip after the end runs neither function, so it computes nothing that could fail,
// and gradients pass it unchanged.
bool while_lower(Lower& l, const op::while_& n) {
  if (n.max_trip < 0) return false;
  Builder& b = l.b;
  std::vector<Value> operands = n.carry;
  operands.insert(operands.end(), n.captured.begin(), n.captured.end());
  std::vector<Type> types;
  for (Value v : operands) types.push_back(b.type(v));
  const FunctionAttr cond = bound_function(n.cond, types), body = bound_function(n.body, types);
  const size_t carry = n.carry.size();
  const auto first_inputs = [&](Graph& g) {
    std::vector<Value> inputs = inputs_like(g, b, operands);
    inputs.resize(carry);
    return inputs;
  };

  Graph same;
  const FunctionAttr unchanged = finished(same, first_inputs(same));
  Graph over;
  std::vector<Value> last = first_inputs(over);
  last.insert(last.begin(), Builder(over).zeros({kBool, {}}));
  const FunctionAttr stay = finished(over, last);

  Graph asked;
  std::vector<Value> inputs = inputs_like(asked, b, operands);
  Builder in_asked(asked, b.provenance);
  const Value goes = in_asked.reshape(inline_function(in_asked, *cond, inputs)[0], {});
  std::vector<Value> next = in_asked
                                .add(op::if_{.then_branch = body,
                                             .else_branch = unchanged,
                                             .cond = goes,
                                             .xs = inputs,
                                             .count_ys = carry})
                                .outputs;
  next.insert(next.begin(), goes);
  const FunctionAttr ask = finished(asked, next);

  Graph trip;
  const Value went = trip.input("goes", {kBool, {}});
  inputs = inputs_like(trip, b, operands);
  const Results after = Builder(trip, b.provenance)
                            .add(op::if_{.then_branch = ask,
                                         .else_branch = stay,
                                         .cond = went,
                                         .xs = inputs,
                                         .count_ys = carry + 1});
  std::vector<Value> begin = n.carry;
  begin.insert(begin.begin(), b.scalar_int(kBool, 1));
  const Results results = b.add(op::scan{.body = finished(trip, after.outputs),
                                         .length = n.max_trip,
                                         .carry = begin,
                                         .captured = n.captured,
                                         .count_ys = carry + 1});
  for (size_t k = 0; k < carry; ++k)
    if (l.wanted(k)) l.out(k, results[k + 1]);
  return true;
}

// ---- gradients: grad/functions.cpp

template <class Op>
void through_functions(Grad& g, const Op&) {
  g.through_functions();
}

constexpr Record<op::if_> kIf{.shape = if_shape,
                              .grad = through_functions<op::if_>,
                              .flops = if_flops,
                              .bytes = if_bytes,
                              .traits = kReadsBlocks};
constexpr Record<op::while_> kWhile{.shape = while_shape,
                                    .grad = through_functions<op::while_>,
                                    .lower = while_lower,
                                    .flops = while_flops,
                                    .bytes = while_bytes,
                                    .traits = kGradOfDecomposition | kReadsBlocks};
constexpr Record<op::scan> kScan{.shape = scan_shape,
                                 .grad = through_functions<op::scan>,
                                 .flops = scan_flops,
                                 .bytes = scan_bytes,
                                 .traits = kReadsBlocks};

// ---- binding

// Gives each symbol of a function the number that the operand has in its place.
class Fit {
 public:
  Fit(const Graph& function, std::span<const Type> types) : function_(function), types_(types) {}

  void run() {
    if (!function_.weights().empty() || !function_.states().empty())
      fail(Code::invalid_argument,
           "expected neither weights nor state, which reach a function as operands, got '",
           function_[function_.weights().empty() ? function_.states()[0] : function_.weights()[0]]
               .name,
           "'");
    if (function_.outputs().empty()) fail(Code::invalid_argument, "expected an output, got none");
    const std::vector<Value>& inputs = function_.inputs();
    if (inputs.size() != types_.size())
      fail(Code::invalid_argument, "expected ", types_.size(),
           " inputs, one for each operand, got ", inputs.size());
    for (size_t k = 0; k < inputs.size(); ++k) fit(inputs[k], types_[k]);
  }

 private:
  void fit(Value input, const Type& given) {
    const Type& wanted = function_.type(input);
    bool fits = wanted.shape.rank() == given.shape.rank();
    for (int i = 0; fits && i < given.shape.rank(); ++i) {
      const Dim d = wanted.shape[i];
      fits = is_symbol(d) ? numbers_.try_emplace(d, given.shape[i]).first->second == given.shape[i]
                          : d == given.shape[i];
    }
    if (wanted.dtype == given.dtype && fits) return;
    std::string text = cat(dtype_name(wanted.dtype), "[");
    for (int i = 0; i < wanted.shape.rank(); ++i) {
      const Dim d = wanted.shape[i];
      text += i ? "," : "";
      if (!is_symbol(d))
        text += std::to_string(d);
      else if (const auto at = numbers_.find(d); at != numbers_.end())
        text += cat(function_.symbol_name(d), "=", at->second);
      else
        text += function_.symbol_name(d);
    }
    fail(mismatch(given, wanted), "input '", function_[input].name, "' is ", text,
         "], its operand ", given.text());
  }

  const Graph& function_;
  std::span<const Type> types_;
  std::map<Dim, Dim> numbers_;
};

bool has_functions_with_symbols(const Graph& graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n)
    if (is_control(graph[n]))
      for (const Attr& a : graph[n].attrs)
        if (const auto* f = std::get_if<FunctionAttr>(&a.value))
          if (!(*f)->symbols().empty() || has_functions_with_symbols(**f)) return true;
  return false;
}

// Writes a graph with its functions bound, once its own types are numbers.
Graph bound_inside(const Graph& from, std::span<const Type> types) {
  Rewriter rewriter(from, types);
  for (NodeId n = 0; n < from.node_count(); ++n) {
    const NodeInfo& node = from[n];
    if (!is_control(node)) {
      rewriter.copy(n);
      continue;
    }
    NodeInfo now = node;
    now.operands = rewriter.map(node.operands);
    const Control control = control_of(rewriter.to, now);
    const std::vector<Type> inputs = input_types(rewriter.to, control);
    std::vector<FunctionAttr> functions;
    for (const FunctionAttr& f : control.functions) functions.push_back(bound_function(f, inputs));
    copy_with_functions(rewriter, from, n, functions);
  }
  return rewriter.finish();
}

}  // namespace

FunctionAttr bound_function(const FunctionAttr& function, std::span<const Type> types) {
  Fit(*function, types).run();
  if (function->symbols().empty() && !has_functions_with_symbols(*function)) return function;
  return std::make_shared<const Graph>(bound_inside(*function, types));
}

Graph bind_functions(const Graph& graph) {
  return has_functions_with_symbols(graph) ? bound_inside(graph, {}) : graph;
}

Type slice_type(const Type& stacked) {
  return {stacked.dtype, Shape(stacked.shape.dims().subspan(1))};
}

Control control_of(const Graph& graph, const NodeInfo& node) {
  Control out;
  if (node.op == &if__def) {
    auto n = decode<op::if_>(node);
    out.kind = Control::Kind::branch;
    out.functions = {n.then_branch, n.else_branch};
    out.cond = n.cond;
    out.captured = std::move(n.xs);
  } else if (node.op == &while__def) {
    auto n = decode<op::while_>(node);
    out.kind = Control::Kind::loop;
    out.functions = {n.cond, n.body};
    out.carry = std::move(n.carry), out.captured = std::move(n.captured);
    out.trips = n.max_trip;
  } else {
    check(node.op == &scan_def, node.op->name(), ": runs no functions");
    auto n = decode<op::scan>(node);
    out.kind = Control::Kind::trips;
    out.functions = {n.body};
    out.trips = n.xs.empty() ? n.length : graph.type(n.xs[0]).shape[0];
    out.reverse = n.reverse;
    out.carry = std::move(n.carry), out.xs = std::move(n.xs);
    out.captured = std::move(n.captured);
  }
  return out;
}

std::vector<Type> input_types(const Graph& graph, const Control& control) {
  std::vector<Type> types;
  for (Value v : control.carry) types.push_back(graph.type(v));
  for (Value v : control.xs) types.push_back(slice_type(graph.type(v)));
  for (Value v : control.captured) types.push_back(graph.type(v));
  return types;
}

void copy_with_functions(Rewriter& rewriter, const Graph& from, NodeId id,
                         std::span<const FunctionAttr> functions) {
  Attrs attrs = from[id].attrs;  // in the order of the op's entry, as the functions
  size_t next = 0;
  for (Attr& a : attrs)
    if (std::holds_alternative<FunctionAttr>(a.value)) a.value = functions[next++];
  rewriter.copy(id, std::move(attrs));
}

Results add_control(Builder& b, const Control& c, size_t count) {
  switch (c.kind) {
    case Control::Kind::branch:
      return b.add(op::if_{.then_branch = c.functions[0],
                           .else_branch = c.functions[1],
                           .cond = c.cond,
                           .xs = c.captured,
                           .count_ys = count});
    case Control::Kind::loop:
      return b.add(op::while_{.cond = c.functions[0],
                              .body = c.functions[1],
                              .max_trip = c.trips,
                              .carry = c.carry,
                              .captured = c.captured,
                              .count_ys = count});
    case Control::Kind::trips:
      return b.add(op::scan{.body = c.functions[0],
                            .length = c.trips,
                            .reverse = c.reverse,
                            .carry = c.carry,
                            .xs = c.xs,
                            .captured = c.captured,
                            .count_ys = count});
  }
  return {};
}

Results add_scan(Builder& b, Control scan, const ScanStep& step) {
  Graph body;
  const auto input = [&](const Type& t) { return body.input(cat(body.inputs().size()), t); };
  std::vector<Value> carry, xs, captured;
  for (Value v : scan.carry) carry.push_back(input(b.type(v)));
  for (Value v : scan.xs) xs.push_back(input(slice_type(b.type(v))));
  for (Value v : scan.captured) captured.push_back(input(b.type(v)));
  Builder inner(body, b.provenance);
  const std::vector<Value> results = step(inner, carry, xs, captured);
  for (size_t k = 0; k < results.size(); ++k) body.output(cat(k), results[k]);
  scan.functions = {std::make_shared<const Graph>(std::move(body))};
  return add_control(b, scan, results.size());
}

Results add_while(Builder& b, Control loop, const LoopGoes& goes, const LoopStep& step) {
  Graph cond, body;
  std::vector<Value> asked, inside;
  for (const std::vector<Value>* values : {&loop.carry, &loop.captured})
    for (const Value v : *values) {
      asked.push_back(cond.input(cat(asked.size()), b.type(v)));
      inside.push_back(body.input(cat(inside.size()), b.type(v)));
    }
  const size_t count = loop.carry.size();
  Builder in_cond(cond, b.provenance), in_body(body, b.provenance);
  cond.output("goes", goes(in_cond, std::span<const Value>(asked).first(count)));
  const std::span<const Value> all(inside);
  const std::vector<Value> next = step(in_body, all.first(count), all.subspan(count));
  for (size_t k = 0; k < next.size(); ++k) body.output(cat(k), next[k]);
  loop.functions = {std::make_shared<const Graph>(std::move(cond)),
                    std::make_shared<const Graph>(std::move(body))};
  return add_control(b, loop, count);
}

void copy_inside(Copier& copy, Builder& b, const Graph& function, NodeId n,
                 std::string_view where) {
  const NodeInfo& node = function[n];
  std::string name = node.provenance;
  if (name.empty()) name = where.empty() ? b.provenance : std::string(node.op->name());
  const NodeId made = copy.copy(n, where.empty() ? name : cat(where, ": ", name));
  Marks marks = b.marks;
  if (node.clone) marks.clone = node.clone;
  if (node.recompute) marks.recompute = node.recompute;
  b.graph.set_marks(made, marks);
}

std::vector<Value> inline_function(Builder& b, const Graph& function,
                                   std::span<const Value> operands, std::string_view where) {
  Copier copy(function, b.graph);
  for (size_t k = 0; k < operands.size(); ++k) copy.set(function.inputs()[k], operands[k]);
  for (NodeId n = 0; n < function.node_count(); ++n) copy_inside(copy, b, function, n, where);
  std::vector<Value> results;
  for (const Output& o : function.outputs()) results.push_back(copy(o.value));
  return results;
}

constinit const OpRecord if__def = record<op::if_, kIf>();
constinit const OpRecord while__def = record<op::while_, kWhile>();
constinit const OpRecord scan_def = record<op::scan, kScan>();

}  // namespace tenon::core
