// SPDX-License-Identifier: Apache-2.0
// Constant conditions, counted loops, short loops written out, work moved out of loops.
#include "plan/rewrite/simplify_control.hpp"

#include <algorithm>
#include <optional>

#include "ops/control.hpp"
#include "plan/rewrite/loop.hpp"
#include "tenon/blob.h"

namespace tenon::core {
namespace {

// A scan is written out if its trips together have at most so many nodes, and stack at most so many
// bytes: as slices and as their concatenation these exist twice.
constexpr int64_t kMostNodesWritten = 64;
constexpr uint64_t kMostBytesWritten = 1 << 20;

// How many nodes a run of the graph runs; above `most`, only that it is more.
int64_t nodes_of(const Graph& graph, int64_t most) {
  int64_t count = graph.node_count();
  for (NodeId n = 0; n < graph.node_count() && count <= most; ++n) {
    if (!is_control(graph[n])) continue;
    const Control c = control_of(graph, graph[n]);
    int64_t inside = 0;
    for (const FunctionAttr& f : c.functions) inside += nodes_of(*f, most);
    const int64_t trips = c.kind == Control::Kind::trips ? c.trips : 1;
    count = inside > 0 && trips > most / inside ? most + 1 : count + trips * inside;
  }
  return count;
}

// Ordered nodes are neither left out nor moved.
bool has_ordered(const Graph& graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    if (graph[n].op->traits & kOrdered) return true;
    if (is_control(graph[n]))
      for (const FunctionAttr& f : control_of(graph, graph[n]).functions)
        if (has_ordered(*f)) return true;
  }
  return false;
}

std::vector<Value> outputs_of(const Graph& function, const std::vector<size_t>& places) {
  std::vector<Value> out;
  for (size_t k : places) out.push_back(function.outputs()[k].value);
  return out;
}

class ControlPass {
 public:
  ControlPass(const Graph& from, const Evaluate& evaluate)
      : from_(from), evaluate_(evaluate), rewriter_(from) {}

  bool changed = false;

  Graph run(ValueMap* map) {
    for (NodeId n = 0; n < from_.node_count(); ++n)
      if (!is_control(from_[n]) || !visit(n))
        rewriter_.copy(n);
      else
        changed = true;
    Graph out = rewriter_.finish();
    *map = rewriter_.values();
    return out;
  }

 private:
  bool visit(NodeId id) {
    const NodeInfo& node = from_[id];
    Control c = control_of(from_, node);
    const std::vector<Type> types = input_types(from_, c);
    for (FunctionAttr& f : c.functions) {
      f = bound_function(f, types);
      if (has_ordered(*f)) return false;
    }
    Builder b(rewriter_.to, node.provenance);
    b.marks = node;
    switch (c.kind) {
      case Control::Kind::branch:
        return choose(b, node, c);
      case Control::Kind::loop:
        return count(b, node, c) || slim(b, node, c);
      case Control::Kind::trips:
        return write_out(b, node, c) || slim(b, node, c);
    }
    return false;
  }

  static bool is_wanted(const NodeInfo& node, size_t k) {
    return k < node.outputs.size() && node.outputs[k];
  }
  void give(const NodeInfo& node, size_t k, Value value) {
    if (is_wanted(node, k)) rewriter_.replace(node.outputs[k], value);
  }

  // ---- if

  bool choose(Builder& b, const NodeInfo& node, const Control& c) {
    const ValueInfo& cond = from_[c.cond];
    if (cond.space != Space::constant) return false;
    const bool yes = std::to_integer<int>((*cond.data)[0]) != 0;
    const std::vector<Value> operands = rewriter_.map(c.captured);
    const std::vector<Value> results = inline_function(
        b, *c.functions[yes ? 0 : 1], operands,
        cat(node.op->text(node.provenance), ", ", yes ? "then_branch" : "else_branch"));
    for (size_t k = 0; k < results.size(); ++k) give(node, k, results[k]);
    return true;
  }

  // ---- while

  bool count(Builder& b, const NodeInfo& node, const Control& c) {
    const std::optional<int64_t> trips = known_trips(from_, c, evaluate_);
    if (!trips) return false;
    Control now = c;
    now.kind = Control::Kind::trips;
    now.functions = {c.functions[1]};
    now.trips = *trips;
    now.carry = rewriter_.map(c.carry), now.captured = rewriter_.map(c.captured);
    if (b.provenance.empty()) b.provenance = node.op->name();
    const Results results = add_control(b, now, c.carry.size());
    for (size_t k = 0; k < c.carry.size(); ++k) give(node, k, results[k]);
    return true;
  }

  // ---- scan

  bool is_short(const NodeInfo& node, const Control& c) const {
    const int64_t nodes = std::max<int64_t>(1, nodes_of(*c.functions[0], kMostNodesWritten));
    uint64_t bytes = 0;
    for (size_t k = c.carry.size(); k < node.outputs.size(); ++k)
      if (node.outputs[k]) bytes += type_bytes(from_.type(node.outputs[k]));
    // Not every op moves numbers of less than a byte.
    const auto is_packed = [&](Value v) { return v && tenon_dtype_bits(from_.type(v).dtype) < 8; };
    return c.trips <= kMostNodesWritten / nodes && bytes <= kMostBytesWritten &&
           std::ranges::none_of(c.xs, is_packed) && std::ranges::none_of(node.outputs, is_packed);
  }

  bool write_out(Builder& b, const NodeInfo& node, const Control& c) {
    const Graph& body = *c.functions[0];
    if (c.trips > 1 && !is_short(node, c)) return false;
    const size_t carry = c.carry.size(), stacked = body.outputs().size() - carry;
    std::vector<Value> now = rewriter_.map(c.carry);
    const std::vector<Value> xs = rewriter_.map(c.xs), captured = rewriter_.map(c.captured);
    std::vector<std::vector<Value>> slices(stacked, std::vector<Value>(size_t(c.trips)));
    for (int64_t t = 0; t < c.trips; ++t) {
      const int64_t at = c.reverse ? c.trips - 1 - t : t;
      std::vector<Value> operands = now;
      for (Value x : xs)
        operands.push_back(b.reshape(b.narrow(x, 0, at, 1), slice_type(b.type(x)).shape));
      operands.insert(operands.end(), captured.begin(), captured.end());
      const std::vector<Value> results = inline_function(
          b, body, operands, cat(node.op->text(node.provenance), ", function body, trip ", t));
      now.assign(results.begin(), results.begin() + ptrdiff_t(carry));
      for (size_t k = 0; k < stacked; ++k)
        if (is_wanted(node, carry + k)) slices[k][size_t(at)] = b.unsqueeze(results[carry + k], 0);
    }
    for (size_t k = 0; k < carry; ++k) give(node, k, now[k]);
    for (size_t k = 0; k < stacked; ++k) {
      if (!is_wanted(node, carry + k)) continue;
      const Type type = from_.type(node.outputs[carry + k]);
      give(node, carry + k,
           c.trips ? b.concat(slices[k], 0)
                   : b.graph.constant(type, std::make_shared<const Bytes>()));
    }
    return true;
  }

  // ---- loops that stay

  // Leaves out carry that decides nothing, and operands that nobody reads; carry that no trip
  // changes becomes captured; what no trip changes is computed before the loop.
  bool slim(Builder& b, const NodeInfo& node, const Control& c) {
    const Graph& body = *c.functions.back();
    const size_t carry = c.carry.size(), xs = c.xs.size(), first = carry + xs;
    std::vector<bool> keeps(body.outputs().size()), fixed(carry);
    std::vector<bool> read(body.inputs().size());  // of any function
    for (size_t k = 0; k < keeps.size(); ++k) {
      keeps[k] = is_wanted(node, k);
      if (k < carry) fixed[k] = body.outputs()[k].value == body.inputs()[k];
    }
    const auto mark = [&](const Graph& g, const std::vector<Value>& roots) {
      const std::vector<bool> needed = needed_for(g, roots);
      bool news = false;
      for (size_t k = 0; k < read.size(); ++k) {
        if (!needed[g.inputs()[k].id]) continue;
        read[k] = true;
        if (k < carry && !keeps[k]) keeps[k] = news = true;
      }
      return news;
    };
    if (c.kind == Control::Kind::loop) mark(*c.functions[0], outputs_of(*c.functions[0], {0}));
    // A loop without trips leaves the carry as it was, so a fixed one is its operand in any case.
    std::vector<size_t> outputs;  // of the body, that stay
    for (bool news = true; news;) {
      outputs.clear();
      for (size_t k = 0; k < keeps.size(); ++k)
        if (keeps[k] && !(k < carry && fixed[k])) outputs.push_back(k);
      news = mark(body, outputs_of(body, outputs));
    }
    std::vector<std::vector<size_t>> kept = {outputs};  // outputs that stay, by function
    if (c.kind == Control::Kind::loop) kept.insert(kept.begin(), {0});

    const size_t room = (TENON_BLOB_MAX_OPERANDS - read.size()) / c.functions.size();
    std::vector<std::vector<Value>> invariants;  // by function
    for (size_t f = 0; f < c.functions.size(); ++f)
      invariants.push_back(loop_invariants(*c.functions[f], first,
                                           outputs_of(*c.functions[f], kept[f]),
                                           c.kind == Control::Kind::loop, room));
    bool slimmer =
        std::ranges::any_of(invariants, [](const auto& values) { return !values.empty(); });
    for (size_t k = 0; k < read.size(); ++k)
      slimmer |= k < carry ? !keeps[k] || fixed[k] : !read[k];
    if (!slimmer) return false;

    for (size_t k = 0; k < carry; ++k)
      if (fixed[k]) give(node, k, rewriter_.map(c.carry[k]));
    if (outputs.empty()) return true;

    Control now{.kind = c.kind, .trips = c.trips, .reverse = c.reverse};
    std::vector<size_t> order;  // of the inputs that stay
    const auto keep = [&](size_t k, Value operand, std::vector<Value>& operands) {
      order.push_back(k);
      operands.push_back(rewriter_.map(operand));
    };
    for (size_t k = 0; k < carry; ++k)
      if (keeps[k] && !fixed[k]) keep(k, c.carry[k], now.carry);
    for (size_t k = 0; k < xs; ++k)
      if (read[carry + k]) keep(carry + k, c.xs[k], now.xs);
    for (size_t k = first; k < read.size(); ++k)
      if (read[k]) keep(k, c.captured[k - first], now.captured);
    for (size_t k = 0; k < carry; ++k)
      if (fixed[k] && read[k]) keep(k, c.carry[k], now.captured);
    for (size_t f = 0; f < c.functions.size(); ++f) move_out(b, node, c, f, invariants[f], now);

    for (size_t f = 0; f < c.functions.size(); ++f)
      now.functions.push_back(
          slim_function(*c.functions[f], order, invariants, f, now.captured, kept[f]));
    const Results results = add_control(b, now, outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) give(node, outputs[i], results[i]);
    return true;
  }

  void move_out(Builder& b, const NodeInfo& node, const Control& c, size_t f,
                const std::vector<Value>& invariants, Control& now) {
    const Graph& function = *c.functions[f];
    const bool is_body = f + 1 == c.functions.size();
    const std::string where =
        cat(node.op->text(node.provenance), ", function ", is_body ? "body" : "cond");
    Copier copy(function, rewriter_.to);
    const size_t first = c.carry.size() + c.xs.size();
    for (size_t k = 0; k < c.captured.size(); ++k)
      copy.set(function.inputs()[first + k], rewriter_.map(c.captured[k]));
    for (NodeId n : copy.makers_of(invariants)) copy_inside(copy, b, function, n, where);
    for (Value v : invariants) now.captured.push_back(copy(v));
  }

  // The function f. order: the inputs that stay. captured: in the end what moved out of functions.
  // outputs: those that stay.
  FunctionAttr slim_function(const Graph& function, const std::vector<size_t>& order,
                             const std::vector<std::vector<Value>>& invariants, size_t f,
                             const std::vector<Value>& captured,
                             const std::vector<size_t>& outputs) const {
    Graph g;
    g.name = function.name;
    Copier copy(function, g);
    for (size_t k : order) {
      const Value v = function.inputs()[k];
      copy.set(v, g.input(function[v].name, function.type(v)));
    }
    size_t moved = captured.size();
    for (const auto& values : invariants) moved -= values.size();
    for (size_t of = 0; of < invariants.size(); ++of)
      for (Value v : invariants[of]) {
        std::string name = cat("invariant ", moved);
        while (g.find(Space::input, name) || function.find(Space::input, name)) name += "'";
        const Value input = g.input(name, rewriter_.to.type(captured[moved++]));
        if (of == f) copy.set(v, input);
      }
    for (NodeId n : copy.makers_of(outputs_of(function, outputs))) copy.copy(n);
    for (size_t k : outputs)
      g.output(function.outputs()[k].name, copy(function.outputs()[k].value));
    return std::make_shared<const Graph>(std::move(g));
  }

  const Graph& from_;
  const Evaluate& evaluate_;
  Rewriter rewriter_;
};

}  // namespace

bool simplify_control(Graph& graph, const Evaluate& evaluate, ValueMap* map) {
  bool any = false;
  // What a node becomes may be simplified again. Two or three passes are enough for most graphs; the
  // bound is for deep nests, whose rest stays as it is.
  for (int pass = 0; pass < 16; ++pass) {
    if (!has_control(graph)) break;
    ControlPass now(graph, evaluate);
    ValueMap step;
    Graph next = now.run(&step);
    if (!now.changed) break;
    graph = std::move(next);
    *map = map->then(step);
    any = true;
  }
  return any;
}

}  // namespace tenon::core
