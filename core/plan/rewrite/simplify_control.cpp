// SPDX-License-Identifier: Apache-2.0
// Constant conditions, counted loops, short loops written out, work moved out of loops.
#include "plan/rewrite/simplify_control.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "ops/control.hpp"
#include "ops/cost.hpp"
#include "tenon/blob.h"

namespace tenon::core {
namespace {

// A scan is written out if its trips together have at most so many nodes, and stack at most so many
// bytes: as slices and as their concatenation these exist twice.
constexpr int64_t kMostNodesWritten = 64;
constexpr uint64_t kMostBytesWritten = 1 << 20;
// A loop is counted up to so many trips, and so many nodes in all: it takes as long as running it.
constexpr int64_t kMostCounted = 4096;
constexpr int64_t kMostNodesCounted = 1 << 16;
constexpr int64_t kMostCountedElements = 64;  // of a value that decides how often a loop runs

// What a run of the graph comes to, or more than `most`.
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

// A function from which nodes that no trip changes move out.
class Invariants {
 public:
  // Inputs from `first` on are the same in every trip. roots: outputs that stay. may_skip: there may
  // be no trip. room: so many values may move out.
  Invariants(const Graph& function, size_t first, std::span<const Value> roots, bool may_skip,
             size_t room)
      : g_(function), room_(room) {
    fixed_.assign(g_.value_count(), false);
    leaf_bytes_.assign(g_.value_count(), 0);
    for (uint32_t v = 0; v < g_.value_count(); ++v)
      fixed_[v] = g_[Value{v}].space == Space::constant;
    for (size_t k = first; k < g_.inputs().size(); ++k) {
      const Value v = g_.inputs()[k];
      fixed_[v.id] = true;
      leaf_bytes_[v.id] = type_bytes(g_.type(v));
      captured_bytes_ += leaf_bytes_[v.id];
    }
    for (NodeId n = 0; n < g_.node_count(); ++n)
      if (is_fixed(g_[n], may_skip)) add(g_[n]);
    find_wanted(roots);
  }

  // The values that are worth a place of their own.
  const std::vector<Value>& values() const { return wanted_; }

 private:
  bool is_fixed(const NodeInfo& node, bool may_skip) const {
    if (is_random(*node.op) || node.group != kNone) return false;
    if (may_skip && may_fail(node)) return false;
    return std::ranges::any_of(node.outputs, [](Value v) { return bool(v); }) &&
           std::ranges::all_of(node.operands, [&](Value v) { return !v || fixed_[v.id]; });
  }
  // An integer may be an index, and a wrong index fails. A loop without trips must not fail.
  bool may_fail(const NodeInfo& node) const {
    return node.op->is_registered() || is_control(node) ||
           std::ranges::any_of(node.operands, [&](Value v) {
             return v && !is_float(g_.type(v).dtype) && g_.type(v).dtype != kBool;
           });
  }

  void add(const NodeInfo& node) {
    uint64_t bytes = 0;
    for (Value v : node.operands)
      if (v) bytes = std::min(bytes + leaf_bytes_[v.id], captured_bytes_);
    for (Value v : node.outputs)
      if (v) fixed_[v.id] = true, leaf_bytes_[v.id] = bytes;
  }

  // From the end: what a trip reads, or what makes it where it is not worth a place. A node moves
  // with all of its outputs that are read.
  void find_wanted(std::span<const Value> roots) {
    std::vector<bool> read(g_.value_count());
    for (Value v : roots) read[v.id] = true;
    for (NodeId n = g_.node_count(); n-- > 0;) {
      const NodeInfo& node = g_[n];
      std::vector<Value> outputs;
      for (Value v : node.outputs)
        if (v && read[v.id]) outputs.push_back(v);
      if (outputs.empty()) continue;
      if (takes(node, outputs))
        wanted_.insert(wanted_.end(), outputs.begin(), outputs.end());
      else
        for (Value v : node.operands)
          if (v) read[v.id] = true;
    }
    std::ranges::sort(wanted_);
  }

  // A view costs nothing where it is. A value that is larger than what it is made of may cost more
  // to read than to compute again, among the work that reads it; and all values that move stay in
  // memory as long as the loop runs.
  bool takes(const NodeInfo& node, const std::vector<Value>& outputs) {
    const uint64_t leaves = leaf_bytes_[outputs[0].id];
    if (!fixed_[outputs[0].id] || leaves == 0 || node.op->traits & kView ||
        wanted_.size() + outputs.size() > room_)
      return false;
    if (is_control(node) || product_flops(g_, node) > 0) return true;
    uint64_t bytes = 0;
    for (Value v : outputs) bytes += type_bytes(g_.type(v));
    if (bytes > leaves || spent_ + bytes > captured_bytes_) return false;
    spent_ += bytes;
    return true;
  }

  const Graph& g_;
  const size_t room_;
  std::vector<bool> fixed_;  // by value: no trip changes it
  std::vector<uint64_t>
      leaf_bytes_;               // by value: of the captured inputs that it is made of, or more
  uint64_t captured_bytes_ = 0;  // of all captured inputs
  uint64_t spent_ = 0;           // bytes of elementwise values and the like that move
  std::vector<Value> wanted_;
};

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

  void give(const NodeInfo& node, size_t k, Value value) {
    if (k < node.outputs.size() && node.outputs[k]) rewriter_.replace(node.outputs[k], value);
  }
  static bool is_wanted(const NodeInfo& node, size_t k) {
    return k < node.outputs.size() && node.outputs[k];
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
    const std::optional<int64_t> trips = trips_of(c);
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

  // How often the loop runs, where constants alone decide that.
  std::optional<int64_t> trips_of(const Control& c) const {
    if (c.trips == 0) return 0;
    const Graph &cond = *c.functions[0], &body = *c.functions[1];
    // The carry that decides: the condition's, and what the body computes that from.
    const size_t carry = c.carry.size();
    std::vector<Value> roots;
    std::vector<bool> decides(c.carry.size() + c.captured.size());
    const auto add = [&](const std::vector<bool>& needed, const Graph& g) {
      for (size_t k = 0; k < decides.size(); ++k)
        if (needed[g.inputs()[k].id] && !decides[k]) {
          decides[k] = true;
          if (k < carry) roots.push_back(body.outputs()[k].value);
        }
    };
    const Value asked = cond.outputs()[0].value;
    add(needed_for(cond, std::span(&asked, 1)), cond);
    for (size_t before = kNone; before != roots.size();) {
      before = roots.size();
      add(needed_for(body, roots), body);
    }
    const auto input_of = [&](size_t k) { return k < carry ? c.carry[k] : c.captured[k - carry]; };
    for (size_t k = 0; k < decides.size(); ++k)
      if (decides[k] && from_[input_of(k)].space != Space::constant) return {};
    if (roots.empty() && cond[asked].space == Space::constant) {
      if (std::to_integer<int>((*cond[asked].data)[0]) == 0) return 0;
      if (c.trips == Control::kNoBound) return {};
      return c.trips;
    }
    if (!evaluate_) return {};
    const std::optional<int64_t> nodes = nodes_to_count(cond, std::span(&asked, 1)),
                                 more = nodes_to_count(body, roots);
    if (!nodes || !more) return {};
    return run_alone(
        c, decides,
        std::min(kMostCounted, kMostNodesCounted / std::max<int64_t>(1, *nodes + *more)));
  }

  // How many nodes decide, if they may run while planning: small ones of integers, which are equal
  // on all devices.
  static std::optional<int64_t> nodes_to_count(const Graph& g, std::span<const Value> roots) {
    const std::vector<bool> needed = needed_for(g, roots);
    int64_t count = 0;
    for (NodeId n = 0; n < g.node_count(); ++n) {
      const NodeInfo& node = g[n];
      if (std::ranges::none_of(node.outputs, [&](Value v) { return v && needed[v.id]; })) continue;
      if (is_random(*node.op) || is_control(node) || node.op->is_registered()) return {};
      for (const auto* values : {&node.operands, &node.outputs})
        for (Value v : *values)
          if (v && (g.type(v).shape.elements() > kMostCountedElements || is_float(g.type(v).dtype)))
            return {};
      ++count;
    }
    return count;
  }

  // Runs the loop with nothing but what decides its end, and counts.
  std::optional<int64_t> run_alone(const Control& c, const std::vector<bool>& decides,
                                   int64_t most) const {
    const size_t carry = c.carry.size();
    if (c.trips != Control::kNoBound) most = std::min(most, c.trips);
    Graph alone;
    Builder b(alone);
    const auto constant = [&](Value v) { return alone.constant(from_.type(v), from_[v].data); };
    Control now{.kind = Control::Kind::loop, .trips = most};
    const Type count_type{kI64, {}};
    now.carry.push_back(b.zeros(count_type));
    for (size_t k = 0; k < decides.size(); ++k)
      if (decides[k])
        (k < carry ? now.carry : now.captured)
            .push_back(constant(k < carry ? c.carry[k] : c.captured[k - carry]));
    for (size_t f = 0; f < 2; ++f) {
      Graph g;
      const Value count = g.input("count", count_type);
      Copier copy(*c.functions[f], g);
      std::vector<Value> roots;
      for (size_t k = 0; k < decides.size(); ++k) {
        const Value v = c.functions[f]->inputs()[k];
        if (!decides[k]) continue;
        copy.set(v, g.input(cat(k), c.functions[f]->type(v)));
        if (f == 1 && k < carry) roots.push_back(c.functions[f]->outputs()[k].value);
      }
      if (f == 0) roots.push_back(c.functions[f]->outputs()[0].value);
      for (NodeId n : copy.makers_of(roots)) copy.copy(n);
      if (f == 1) g.output("count", Builder(g).plus(count, Builder(g).scalar_int(kI64, 1)));
      for (size_t k = 0; k < roots.size(); ++k) g.output(cat(k), copy(roots[k]));
      now.functions.push_back(std::make_shared<const Graph>(std::move(g)));
    }
    const Results results = add_control(b, now, now.carry.size());
    alone.output("count", results[0]);
    std::vector<Bytes> bytes;
    try {
      bytes = evaluate_(alone);
    } catch (const Error&) {
      return {};  // the loop fails where it runs
    }
    int64_t trips = 0;
    std::memcpy(&trips, bytes.at(0).data(), sizeof trips);
    if (trips == most && most != c.trips) return {};
    return trips;
  }

  // ---- scan

  bool write_out(Builder& b, const NodeInfo& node, const Control& c) {
    const Graph& body = *c.functions[0];
    if (c.trips > 1) {
      const int64_t nodes = std::max<int64_t>(1, nodes_of(body, kMostNodesWritten));
      if (c.trips > kMostNodesWritten / nodes) return false;
    }
    const size_t carry = c.carry.size(), stacked = body.outputs().size() - carry;
    // Not every op moves numbers of less than a byte.
    const auto is_packed = [](const Graph& g, Value v) {
      return tenon_dtype_bits(g.type(v).dtype) < 8;
    };
    if (c.trips > 1)
      for (size_t k = 0; k < std::max(c.xs.size(), stacked); ++k)
        if ((k < c.xs.size() && is_packed(from_, c.xs[k])) ||
            (k < stacked && is_packed(body, body.outputs()[carry + k].value)))
          return false;
    uint64_t bytes = 0;
    for (size_t k = carry; k < node.outputs.size(); ++k)
      if (node.outputs[k]) bytes += type_bytes(from_.type(node.outputs[k]));
    if (c.trips > 1 && bytes > kMostBytesWritten) return false;
    std::vector<Value> now = rewriter_.map(c.carry);
    const std::vector<Value> xs = rewriter_.map(c.xs), captured = rewriter_.map(c.captured);
    std::vector<std::vector<Value>> slices(stacked, std::vector<Value>(size_t(c.trips)));
    for (int64_t t = 0; t < c.trips; ++t) {
      const int64_t at = c.reverse ? c.trips - 1 - t : t;
      std::vector<Value> operands = now;
      for (Value x : xs) {
        const Shape shape = b.shape(x);
        operands.push_back(b.reshape(b.narrow(x, 0, at, 1), Shape(shape.dims().subspan(1))));
      }
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
    if (c.kind == Control::Kind::loop) mark(*c.functions[0], {c.functions[0]->outputs()[0].value});
    for (bool news = true; news;) {
      std::vector<Value> roots;
      for (size_t k = 0; k < keeps.size(); ++k)
        if (keeps[k] && !(k < carry && fixed[k])) roots.push_back(body.outputs()[k].value);
      news = mark(body, roots);
    }

    // A loop without trips leaves the carry as it was, so a fixed one is its operand in any case.
    std::vector<size_t> outputs;  // of the body, that stay
    for (size_t k = 0; k < keeps.size(); ++k)
      if (keeps[k] && !(k < carry && fixed[k])) outputs.push_back(k);
    const auto roots_of = [&](size_t f) {
      std::vector<Value> roots;
      for (size_t k : f + 1 == c.functions.size() ? outputs : std::vector<size_t>{0})
        roots.push_back(c.functions[f]->outputs()[k].value);
      return roots;
    };
    const size_t room = (TENON_BLOB_MAX_OPERANDS - read.size()) / c.functions.size();
    std::vector<Invariants> invariants;
    for (size_t f = 0; f < c.functions.size(); ++f)
      invariants.emplace_back(*c.functions[f], first, roots_of(f), c.kind == Control::Kind::loop,
                              room);
    bool slimmer =
        std::ranges::any_of(invariants, [](const auto& i) { return !i.values().empty(); });
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

    size_t moved = now.captured.size();
    for (const Invariants& i : invariants) moved -= i.values().size();
    for (size_t f = 0; f < c.functions.size(); ++f) {
      const bool is_body = f + 1 == c.functions.size();
      now.functions.push_back(slim_function(*c.functions[f], order, invariants, f, now, moved,
                                            is_body ? outputs : std::vector<size_t>{0}));
    }
    const Results results = add_control(b, now, outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) give(node, outputs[i], results[i]);
    return true;
  }

  void move_out(Builder& b, const NodeInfo& node, const Control& c, size_t f,
                const Invariants& invariants, Control& now) {
    const Graph& function = *c.functions[f];
    const bool is_body = f + 1 == c.functions.size();
    const std::string where =
        cat(node.op->text(node.provenance), ", function ", is_body ? "body" : "cond");
    Copier copy(function, rewriter_.to);
    const size_t first = c.carry.size() + c.xs.size();
    for (size_t k = 0; k < c.captured.size(); ++k)
      copy.set(function.inputs()[first + k], rewriter_.map(c.captured[k]));
    for (NodeId n : copy.makers_of(invariants.values())) copy_inside(copy, b, function, n, where);
    for (Value v : invariants.values()) now.captured.push_back(copy(v));
  }

  // order: the inputs that stay. moved: the first captured operand that moved out of a function.
  FunctionAttr slim_function(const Graph& function, const std::vector<size_t>& order,
                             const std::vector<Invariants>& invariants, size_t which,
                             const Control& now, size_t moved,
                             const std::vector<size_t>& outputs) const {
    Graph g;
    g.name = function.name;
    Copier copy(function, g);
    for (size_t k : order) {
      const Value v = function.inputs()[k];
      copy.set(v, g.input(function[v].name, function.type(v)));
    }
    for (size_t f = 0; f < invariants.size(); ++f)
      for (Value v : invariants[f].values()) {
        std::string name = cat("invariant ", moved);
        while (g.find(Space::input, name) || function.find(Space::input, name)) name += "'";
        const Value input = g.input(name, rewriter_.to.type(now.captured[moved++]));
        if (f == which) copy.set(v, input);
      }
    std::vector<Value> roots;
    for (size_t k : outputs) roots.push_back(function.outputs()[k].value);
    for (NodeId n : copy.makers_of(roots)) copy.copy(n);
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
    bool has_control = false;
    for (NodeId n = 0; n < graph.node_count(); ++n) has_control |= is_control(graph[n]);
    if (!has_control) break;
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
