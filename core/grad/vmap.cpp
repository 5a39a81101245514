// SPDX-License-Identifier: Apache-2.0
// Writes the nodes of a body for a batch of examples.
#include "grad/vmap.hpp"

#include <algorithm>

#include "grad/functions.hpp"
#include "grad/grad.hpp"
#include "ops/control.hpp"
#include "ops/lower.hpp"
#include "ops/vmap.hpp"

namespace tenon::core {
namespace {

// A registered op may be decomposed into itself, also several times over.
constexpr int kMostRounds = 64;

// Axis `from` becomes axis `to`; the others keep their order.
Value move_axis(Builder& b, Value x, int from, int to) {
  Ints perm;
  for (int i = 0; i < b.shape(x).rank(); ++i)
    if (i != from) perm.push_back(i);
  perm.insert(perm.begin() + to, from);
  return b.transpose(x, perm);
}

// The value in the new graph for a value of the body.
struct Mapped {
  Value value{};
  bool batched = false;
};

// Writes bodies into a builder's graph.
class Batcher {
 public:
  // first_number: added to the numbers of clones and segments of recomputation in the body.
  Batcher(Builder& b, int64_t size, std::string where, uint32_t first_number)
      : b_(b),
        size_(size),
        where_(std::move(where)),
        marks_(b.marks),
        first_number_(first_number) {}

  // operands: for the inputs of the body. Returns its outputs.
  std::vector<Mapped> write(const Graph& body, std::span<const Mapped> operands) {
    std::vector<Mapped> now(body.value_count());
    for (size_t k = 0; k < operands.size(); ++k) now[body.inputs()[k].id] = operands[k];
    write_nodes(body, now);
    std::vector<Mapped> outputs;
    for (const Output& o : body.outputs()) outputs.push_back(mapped(body, o.value, now));
    return outputs;
  }
  // With the batch as axis 0.
  Value all(const Mapped& m) {
    if (m.batched) return m.value;
    return b_.expand(b_.unsqueeze(m.value, 0), with_axis(b_.type(m.value), 0, size_).shape);
  }

 private:
  Mapped mapped(const Graph& body, Value v, std::vector<Mapped>& now) {
    if (!v) return {};
    if (!now[v.id].value && body[v].space == Space::constant)
      now[v.id].value = b_.graph.constant(body.type(v), body[v].data);
    return now[v.id];
  }

  // While a node is written, the builder has its name and marks. Then it has those of the node
  // around it again.
  void write_nodes(const Graph& body, std::vector<Mapped>& now) {
    const std::string provenance = b_.provenance;
    const Marks marks = b_.marks;
    for (NodeId n = 0; n < body.node_count(); ++n) write_node(body, body[n], now);
    b_.provenance = provenance;
    b_.marks = marks;
  }

  void write_node(const Graph& body, const NodeInfo& node, std::vector<Mapped>& now) {
    std::vector<Batch::Operand> operands;
    bool any = false;
    for (Value v : node.operands) {
      const Mapped m = mapped(body, v, now);
      operands.push_back({m.value, m.batched, v ? body.type(v) : Type{}});
      any |= m.batched;
    }
    b_.provenance =
        cat(where_, ": ",
            node.provenance.empty() ? node.op->name() : std::string_view(node.provenance));
    b_.marks = marks_;
    if (node.clone) b_.marks.clone = first_number_ + node.clone;
    if (node.recompute) b_.marks.recompute = first_number_ + node.recompute;

    std::vector<Value> results(node.outputs.size());
    std::vector<Type> types;
    for (Value v : node.outputs) types.push_back(v ? body.type(v) : Type{});
    if (any && (node.op->traits & kExtent))
      fail(Code::unsupported, b_.provenance, ": each example would have an extent of its own");
    if (!any) {
      copy(node, operands, results);
    } else if (is_control(node)) {
      write_control(body, node, operands, results);
    } else if (!by_rule(node, operands, types, results) &&
               !by_decomposition(node, operands, results)) {
      by_scan(node, operands, results);
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Value v = node.outputs[k];
      if (!v) continue;
      const Type expected = any ? with_axis(body.type(v), 0, size_) : body.type(v);
      check(results[k] && b_.type(results[k]) == expected, b_.provenance, ": its batch rule gives ",
            results[k] ? b_.type(results[k]).text() : "nothing", " for output ", k, ", expected ",
            expected.text());
      now[v.id] = {results[k], any};
    }
  }

  static std::vector<Value> values_of(std::span<const Batch::Operand> operands) {
    std::vector<Value> values;
    for (const Batch::Operand& o : operands) values.push_back(o.value);
    return values;
  }

  void copy(const NodeInfo& node, std::span<const Batch::Operand> operands,
            std::vector<Value>& results) {
    const NodeId made = b_.graph.add_node(*node.op, Operands(values_of(operands), node.lists),
                                          node.attrs, wanted_outputs(node), b_.provenance);
    b_.graph.set_marks(made, b_.marks);
    const auto& outputs = b_.graph[made].outputs;
    for (size_t k = 0; k < results.size(); ++k) results[k] = outputs[k];
  }

  bool by_rule(const NodeInfo& node, std::span<const Batch::Operand> operands,
               std::span<const Type> types, std::vector<Value>& results) {
    if (!node.op->batch) return false;
    NodeInfo positions = node;
    for (uint32_t k = 0; k < positions.operands.size(); ++k)
      if (positions.operands[k]) positions.operands[k] = {k};
    Batch batch(b_, operands, types, size_, results);
    return node.op->batch(batch, positions);
  }

  bool by_decomposition(const NodeInfo& node, std::span<const Batch::Operand> operands,
                        std::vector<Value>& results) {
    if (!node.op->lower) return false;
    // A graph of the node alone, for one example, with an input for each operand.
    Graph graph;
    NodeInfo one = node;
    std::vector<Mapped> now;
    for (size_t k = 0; k < operands.size(); ++k) {
      if (!operands[k].value) continue;
      one.operands[k] = graph.input(std::to_string(k), operands[k].type);
      now.push_back({operands[k].value, operands[k].batched});
    }
    std::vector<Value> made;
    Builder inside(graph, node.provenance.empty() ? node.op->name() : node.provenance);
    inside.marks = node;
    if (!lower_into(inside, one, made)) return false;
    if (++rounds_ > kMostRounds)
      fail(Code::invalid_argument, b_.provenance, ": its decomposition does not come to an end");
    now.resize(graph.value_count());
    write_nodes(graph, now);
    --rounds_;
    for (size_t k = 0; k < results.size(); ++k)
      if (made[k]) results[k] = all(mapped(graph, made[k], now));
    return true;
  }

  // One example after the other.
  void by_scan(const NodeInfo& node, std::span<const Batch::Operand> operands,
               std::vector<Value>& results) {
    Graph body;
    NodeInfo one = node;
    Control scan{.kind = Control::Kind::trips, .trips = size_};
    for (const bool batched : {true, false})
      for (size_t k = 0; k < operands.size(); ++k) {
        if (!operands[k].value || operands[k].batched != batched) continue;
        one.operands[k] = body.input(std::to_string(k), operands[k].type);
        (batched ? scan.xs : scan.captured).push_back(operands[k].value);
      }
    const NodeId made = body.add_node(*node.op, Operands(one.operands, node.lists), node.attrs,
                                      wanted_outputs(node), node.provenance);
    for (size_t k = 0; k < body[made].outputs.size(); ++k)
      if (body[made].outputs[k]) body.output(std::to_string(k), body[made].outputs[k]);
    const size_t count = body.outputs().size();
    scan.functions = {std::make_shared<const Graph>(std::move(body))};
    const Results ys = add_control(b_, scan, count);
    size_t next = 0;
    for (size_t k = 0; k < node.outputs.size(); ++k)
      if (node.outputs[k]) results[k] = ys[next++];
  }

  // ---- control flow

  // A function of the batch: its inputs are batched where `batched` says so, its outputs all are.
  FunctionAttr function_of(const Graph& body, const std::vector<bool>& batched) const {
    Graph out;
    std::vector<Mapped> operands;
    for (size_t k = 0; k < batched.size(); ++k) operands.push_back(input(out, body, k, batched[k]));
    Builder b(out, b_.provenance);
    Batcher inside(b, size_, where_, first_number_);
    const std::vector<Mapped> results = inside.write(body, operands);
    for (size_t k = 0; k < results.size(); ++k)
      out.output(std::to_string(k), inside.all(results[k]));
    return std::make_shared<const Graph>(std::move(out));
  }
  Mapped input(Graph& to, const Graph& body, size_t k, bool batched) const {
    const Type& one = body.type(body.inputs()[k]);
    return {to.input(std::to_string(to.inputs().size()), batched ? with_axis(one, 0, size_) : one),
            batched};
  }
  // Per example: chosen[B] ? yes : no. yes is batched; no may be the same for all.
  static Value choose(Builder& b, Value chosen, Value yes, Value no) {
    const int rank = b.shape(yes).rank();
    Shape shape;
    shape.push(b.shape(yes)[0]);
    for (int i = 1; i < rank; ++i) shape.push(1);
    return b.where(b.reshape(chosen, shape), yes, no);
  }
  static bool has_arithmetic(DType t) { return is_float(t) || is_integer(t) || t == kBool; }
  // A function runs on all examples, also on those that would not run it alone. Their results are
  // not used, but may fail (an index), or have gradients that are not finite, and 0 times that is
  // NaN. So these examples get the operands of one that runs it: runs[B] says which ones do.
  class Safe {
   public:
    Safe(Builder& b, Value runs) : b_(b), runs_(runs) {
      if (b.shape(runs)[0] == 0) return;
      first_ = first_set(b, runs);
    }
    Value batched(Value x) const {
      if (!first_ || !has_arithmetic(b_.dtype(x))) return x;
      return choose(b_, runs_, x, row_at(b_, x, first_));
    }
    // The same where perhaps none runs it. Then the operands are numbers that most functions take,
    // and no gradient reaches the given ones.
    Mapped or_number(const Mapped& m) {
      const DType t = b_.dtype(m.value);
      if (!first_ || !has_arithmetic(t)) return m;
      if (!any_) any_ = b_.reduce("any", runs_, {0}, false);
      const Value number = is_float(t) ? b_.scalar(t, 1) : b_.scalar_int(t, 0);
      return {b_.where(any_, m.batched ? batched(m.value) : m.value, number), m.batched};
    }

   private:
    Builder& b_;
    Value runs_, first_{}, any_{};
  };

  void write_control(const Graph& body, const NodeInfo& node,
                     std::span<const Batch::Operand> operands, std::vector<Value>& results) {
    const Control control = control_of(body, node);
    // In the order of the operands.
    size_t next = 0;
    const auto take = [&] {
      const Batch::Operand& o = operands[next++];
      return Mapped{o.value, o.batched};
    };
    Mapped cond;
    if (control.kind == Control::Kind::branch) cond = take();
    std::vector<Mapped> carry, xs, captured;
    for (size_t k = 0; k < control.carry.size(); ++k) carry.push_back(take());
    for (size_t k = 0; k < control.xs.size(); ++k) xs.push_back(take());
    for (size_t k = 0; k < control.captured.size(); ++k) captured.push_back(take());
    std::vector<Value> made;
    switch (control.kind) {
      case Control::Kind::branch:
        made = branch(control, cond, captured);
        break;
      case Control::Kind::trips:
        made = trips(control, carry, xs, captured);
        break;
      case Control::Kind::loop:
        made = loop(control, carry, captured);
        break;
    }
    for (size_t k = 0; k < results.size(); ++k)
      if (node.outputs[k]) results[k] = made.at(k);
  }

  // Replaces values of the body by those of the new graph, and adds which of them are batched.
  static void replace(std::vector<Value>& values, std::span<const Mapped> by,
                      std::vector<bool>& batched) {
    for (size_t k = 0; k < by.size(); ++k) {
      values[k] = by[k].value;
      batched.push_back(by[k].batched);
    }
  }

  std::vector<Value> branch(Control control, Mapped cond, std::span<const Mapped> xs) {
    if (cond.batched) return both_branches(control, flags(*this, b_, cond), xs);
    std::vector<bool> batched;
    replace(control.captured, xs, batched);
    control.cond = cond.value;
    for (FunctionAttr& f : control.functions) f = function_of(*f, batched);
    return add_control(b_, control, control.functions[0]->outputs().size()).outputs;
  }

  // A condition of each example's own: both functions run for all.
  std::vector<Value> both_branches(const Control& control, Value chosen,
                                   std::span<const Mapped> xs) {
    std::vector<Mapped> results[2];
    for (const bool yes : {true, false}) {
      Safe safe(b_, yes ? chosen : b_.logical("not", chosen));
      std::vector<Mapped> operands;
      for (const Mapped& m : xs) operands.push_back(safe.or_number(m));
      results[yes] = write(*control.functions[yes ? 0 : 1], operands);
    }
    std::vector<Value> out;
    for (size_t k = 0; k < results[true].size(); ++k)
      out.push_back(choose(b_, chosen, all(results[true][k]), all(results[false][k])));
    return out;
  }

  // Slices are taken along axis 0, so the batch is axis 1 of what is stacked.
  std::vector<Value> trips(Control control, std::span<const Mapped> carry,
                           std::span<const Mapped> xs, std::span<const Mapped> captured) {
    std::vector<bool> batched(carry.size(), true);
    for (size_t k = 0; k < carry.size(); ++k) control.carry[k] = all(carry[k]);
    replace(control.xs, xs, batched);
    for (size_t k = 0; k < xs.size(); ++k)
      if (xs[k].batched) control.xs[k] = move_axis(b_, xs[k].value, 0, 1);
    replace(control.captured, captured, batched);
    control.functions[0] = function_of(*control.functions[0], batched);
    std::vector<Value> out =
        add_control(b_, control, control.functions[0]->outputs().size()).outputs;
    for (size_t k = carry.size(); k < out.size(); ++k) out[k] = move_axis(b_, out[k], 1, 0);
    return out;
  }

  // Trips go on until no example goes on. An extra carry value goes[B] marks those that do; the
  // others keep their values.
  std::vector<Value> loop(Control control, std::span<const Mapped> carry,
                          std::span<const Mapped> captured) {
    const Graph &cond = *control.functions[0], &body = *control.functions[1];
    std::vector<Mapped> begin;
    for (const Mapped& m : carry) begin.push_back({all(m), true});
    std::vector<Mapped> first = begin;
    first.insert(first.end(), captured.begin(), captured.end());
    const Value active = flags(*this, b_, write(cond, first)[0]);

    const auto inputs = [&](Graph& g, Value* flag) {
      *flag = g.input("goes", {kBool, {size_}});
      std::vector<Mapped> in;
      for (size_t k = 0; k < first.size(); ++k)
        in.push_back(input(g, body, k, k < carry.size() || first[k].batched));
      return in;
    };
    Value goes;
    Graph ask;
    inputs(ask, &goes);
    Builder in_ask(ask, b_.provenance);
    ask.output("goes", in_ask.reduce("any", goes, {0}, false));

    Graph trip;
    std::vector<Mapped> in = inputs(trip, &goes);
    Builder in_trip(trip, b_.provenance);
    Batcher inside(in_trip, size_, where_, first_number_);
    const Safe safe(in_trip, goes);  // a trip begins only while some example goes on
    std::vector<Mapped> operands;
    for (const Mapped& m : in)
      operands.push_back(m.batched ? Mapped{safe.batched(m.value), true} : m);
    const std::vector<Mapped> next = inside.write(body, operands);
    std::vector<Value> kept;
    for (size_t k = 0; k < carry.size(); ++k) {
      kept.push_back(choose(in_trip, goes, inside.all(next[k]), in[k].value));
      in[k].value = kept.back();
    }
    const Value more = flags(inside, in_trip, inside.write(cond, in)[0]);
    trip.output("goes", in_trip.logical("and", goes, more));
    for (size_t k = 0; k < kept.size(); ++k) trip.output(std::to_string(k), kept[k]);

    control.carry = {active};
    for (const Mapped& m : begin) control.carry.push_back(m.value);
    for (size_t k = 0; k < captured.size(); ++k) control.captured[k] = captured[k].value;
    control.functions = {std::make_shared<const Graph>(std::move(ask)),
                         std::make_shared<const Graph>(std::move(trip))};
    std::vector<Value> out = add_control(b_, control, carry.size() + 1).outputs;
    out.erase(out.begin());
    return out;
  }
  // A bool of one element per example, as [B].
  static Value flags(Batcher& batcher, Builder& b, const Mapped& condition) {
    return b.reshape(batcher.all(condition), {batcher.size_});
  }

  Builder& b_;
  int64_t size_;
  std::string where_;
  Marks marks_;
  uint32_t first_number_;
  int rounds_ = 0;
};

// Above all numbers of clones and segments in a graph.
uint32_t last_number(const Graph& graph) {
  uint32_t last = 0;
  for (NodeId n = 0; n < graph.node_count(); ++n)
    last = std::max({last, graph[n].clone, graph[n].recompute});
  return last;
}

bool has_vmap(const Graph& graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    if (is_vmap(graph[n])) return true;
    for (const Attr& a : graph[n].attrs)
      if (const auto* f = std::get_if<FunctionAttr>(&a.value); f && *f && has_vmap(**f))
        return true;
  }
  return false;
}

int axis_in(const Ints& axes, size_t k, int rank) {
  return normalize_axis(axes.empty() ? 0 : axes[k], rank, "a batch");
}

void expand_one(Rewriter& rewriter, const Graph& from, NodeId id) {
  NodeInfo node = from[id];
  node.operands = rewriter.map(node.operands);
  const VmapRequest n = vmap_of(node);
  Builder b(rewriter.to,
            from[id].provenance.empty() ? std::string(node.op->name()) : from[id].provenance);
  b.marks = node;

  std::vector<Mapped> operands;
  std::vector<Type> types;
  int64_t size = 0;
  for (size_t k = 0; k < n.xs.size(); ++k) {
    const Type x = b.type(n.xs[k]);
    const int axis = axis_in(n.in_axes, k, x.shape.rank());
    size = x.shape[axis];
    operands.push_back({move_axis(b, n.xs[k], axis, 0), true});
    types.push_back(without_axis(x, axis));
  }
  for (Value v : n.captured) {
    operands.push_back({v, false});
    types.push_back(b.type(v));
  }
  const FunctionAttr bound = bound_function(n.body, types);
  const Graph body = expand_grads(expand_in_functions(expand_vmaps(*bound)));
  Batcher batcher(b, size, b.provenance, std::max(last_number(from), last_number(rewriter.to)));
  const std::vector<Mapped> outputs = batcher.write(body, operands);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!node.outputs[k]) continue;
    const Value y = batcher.all(outputs[k]);
    rewriter.replace(from[id].outputs[k],
                     move_axis(b, y, 0, axis_in(n.out_axes, k, b.shape(y).rank())));
  }
}

}  // namespace

Graph expand_vmaps(const Graph& graph) {
  if (!has_vmap(graph)) return graph;
  Rewriter rewriter(graph);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const NodeInfo& node = graph[n];
    if (is_vmap(node)) {
      try {
        expand_one(rewriter, graph, n);
      } catch (const Error& e) {
        fail(e.code(), node.op->text(node.provenance), ": ", e.what());
      }
    } else if (is_control(node)) {
      std::vector<FunctionAttr> functions;
      for (const FunctionAttr& f : control_of(graph, node).functions)
        functions.push_back(std::make_shared<const Graph>(expand_vmaps(*f)));
      copy_with_functions(rewriter, graph, n, functions);
    } else {
      rewriter.copy(n);
    }
  }
  return rewriter.finish();
}

}  // namespace tenon::core
