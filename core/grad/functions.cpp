// SPDX-License-Identifier: Apache-2.0
// Differentiates functions, and cuts what comes of it into a forward and a backward function.
#include "grad/functions.hpp"

#include <algorithm>
#include <set>

#include "grad/checkpoint.hpp"
#include "grad/grad.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kNoIntegers =
    "quantized integers carry no gradient into functions; hint: dequantize them before the node";

std::vector<Value> outputs_of(const Graph& g, const std::vector<uint32_t>& numbers) {
  std::vector<Value> out;
  for (uint32_t k : numbers) out.push_back(g.outputs()[k].value);
  return out;
}
std::vector<Value> inputs_of(const Graph& g, const std::vector<uint32_t>& numbers) {
  std::vector<Value> out;
  for (uint32_t k : numbers) out.push_back(g.inputs()[k]);
  return out;
}

// A function with its backward pass behind it.
struct Differentiated {
  Graph graph;
  NodeId end = 0;                // nodes before it are the function's
  std::vector<Value> seeds;      // inputs: the gradients of the losses
  std::vector<Value> gradients;  // of wrt
};

// losses: outputs, wrt: inputs, by position.
Differentiated differentiate(const FunctionAttr& function, const std::vector<uint32_t>& losses,
                             const std::vector<uint32_t>& wrt) {
  Differentiated out;
  out.graph = expand_grads(*function);
  Graph& g = out.graph;
  const auto way = [&](const Graph& now) {
    return Way{now.node_count(), outputs_of(now, losses), inputs_of(now, wrt)};
  };
  ValueMap ignored = ValueMap::identity(g.value_count());
  lower_way(g, way, &ignored);
  SavedTrips saved;
  g = save_trips(g, way(g), &saved, &ignored);
  out.end = g.node_count();
  const Way found = way(g);
  for (size_t k = 0; k < losses.size(); ++k) {
    std::string name = cat("gradient ", k);
    while (g.find(Space::input, name)) name += "'";
    out.seeds.push_back(g.input(name, g.type(found.losses[k])));
  }
  std::vector<bool> kept = kept_values(g);
  out.gradients = walk_back(g, out.end, found.losses, out.seeds, found.wrt, std::move(kept), saved,
                            Cut::is_zero);
  return out;
}

// The forward and the backward function of a node that runs trips.
class Splitting {
 public:
  // wants: by operand, in the order carry, xs, captured: its gradient is asked for. reaches: by
  // output: a gradient may come from there.
  Splitting(const FunctionAttr& body, const Control& control, std::vector<bool> wants,
            const std::vector<bool>& reaches)
      : carry_(control.carry.size()), xs_(control.xs.size()), outputs_(body->outputs().size()) {
    const auto is_float_value = [&](Value v) { return is_float(body->type(v).dtype); };
    for (uint32_t k = 0; k < outputs_; ++k)
      if (is_float_value(body->outputs()[k].value) && (k < carry_ || reaches[k]))
        losses_.push_back(k);
    std::vector<uint32_t> wrt;
    const auto first_slice = static_cast<uint32_t>(carry_);
    const auto first_captured = static_cast<uint32_t>(carry_ + xs_);
    for (uint32_t k = 0; k < body->inputs().size(); ++k) {
      if (!is_float_value(body->inputs()[k]) || (k >= first_slice && !wants[k])) continue;
      wrt.push_back(k);
      if (k < first_slice)
        out_.carry.push_back(k);
      else if (k < first_captured)
        out_.slices.push_back(k - first_slice);
      else
        out_.captured.push_back(k - first_captured);
    }
    d_ = differentiate(body, losses_, wrt);
    find_needed();
  }

  FunctionAttr forward() const {
    Graph g;
    Copier copy(d_.graph, g);
    for (size_t k = 0; k < input_count(); ++k) {
      const Value v = d_.graph.inputs()[k];
      copy.set(v, g.input(d_.graph[v].name, d_.graph.type(v)));
    }
    for (NodeId n = 0; n < d_.end; ++n) copy.copy(n);
    size_t k = 0;
    for (const Output& o : d_.graph.outputs()) g.output(cat(k++), copy(o.value));
    for (Value v : saved_) g.output(cat(k++), copy(v));
    return std::make_shared<const Graph>(std::move(g));
  }
  size_t saved_count() const { return saved_.size(); }

  BackwardTrips backward() {
    Graph g;
    Copier copy(d_.graph, g);
    Builder b(g);
    size_t count = 0;
    const auto input = [&](const Type& type) { return g.input(cat(count++), type); };
    // The gradients of the carry are those of its outputs.
    for (size_t k = 0; k < out_.carry.size(); ++k)
      copy.set(d_.seeds[k], input(d_.graph.type(d_.seeds[k])));
    std::vector<Value> sums;
    for (uint32_t k : out_.captured) {
      const Type type = d_.graph.type(d_.graph.inputs()[carry_ + xs_ + k]);
      sums.push_back(input({acc_dtype(type.dtype), type.shape}));
    }
    for (size_t k = 0; k < saved_.size(); ++k) {
      copy.set(saved_[k], input(d_.graph.type(saved_[k])));
      out_.sources.push_back({BackwardTrips::From::saved, static_cast<uint32_t>(outputs_ + k)});
    }
    for (uint32_t k = 0; k < xs_; ++k) {
      const Value v = d_.graph.inputs()[carry_ + k];
      if (!needed_.contains(v)) continue;
      copy.set(v, input(d_.graph.type(v)));
      out_.sources.push_back({BackwardTrips::From::slice, k});
    }
    for (size_t k = out_.carry.size(); k < d_.seeds.size(); ++k) {
      copy.set(d_.seeds[k], input(d_.graph.type(d_.seeds[k])));
      out_.sources.push_back({BackwardTrips::From::gradient, losses_[k]});
    }
    for (size_t k = carry_ + xs_; k < input_count(); ++k) {
      const Value v = d_.graph.inputs()[k];
      if (!needed_.contains(v)) continue;
      copy.set(v, input(d_.graph.type(v)));
      out_.reads.push_back(static_cast<uint32_t>(k - carry_ - xs_));
    }
    for (NodeId n = 0; n < d_.graph.node_count(); ++n)
      if (copied_[n]) copy.copy(n);
    std::vector<Value> carry, stacked;
    size_t k = 0;
    for (; k < out_.carry.size(); ++k) carry.push_back(copy(d_.gradients[k]));
    for (size_t i = 0; i < out_.slices.size(); ++i) stacked.push_back(copy(d_.gradients[k++]));
    for (Value sum : sums)
      carry.push_back(b.plus(sum, b.cast(copy(d_.gradients[k++]), b.dtype(sum))));
    carry.insert(carry.end(), stacked.begin(), stacked.end());
    for (size_t i = 0; i < carry.size(); ++i) g.output(cat(i), carry[i]);
    out_.function = std::make_shared<const Graph>(std::move(g));
    return std::move(out_);
  }

 private:
  size_t input_count() const { return d_.graph.inputs().size() - d_.seeds.size(); }

  // Finds what the backward pass reads. Values of the function that differ from trip to trip are
  // saved. The others are computed again in the backward function, from where they can be moved out.
  void find_needed() {
    const Graph& g = d_.graph;
    std::vector<bool> varies(g.value_count());
    for (size_t k = 0; k < carry_ + xs_; ++k) varies[g.inputs()[k].id] = true;
    for (NodeId n = 0; n < d_.end; ++n) {
      const NodeInfo& node = g[n];
      const bool any =
          node.op->traits & kOrdered || is_random(*node.op) ||
          std::ranges::any_of(node.operands, [&](Value v) { return v && varies[v.id]; });
      for (Value v : node.outputs)
        if (v && any) varies[v.id] = true;
    }
    copied_.assign(g.node_count(), false);
    const std::set<Value> is_carry(g.inputs().begin(),
                                   g.inputs().begin() + static_cast<ptrdiff_t>(carry_));
    std::set<Value> saved;
    const auto need = [&](Value v) {
      if (!v) return;
      const bool own = g[v].space == Space::node && g[v].node < d_.end;
      if ((own && varies[v.id]) || is_carry.contains(v)) {
        if (saved.insert(v).second) saved_.push_back(v);
      } else if (g[v].space == Space::node) {
        copied_[g[v].node] = true;
      } else if (g[v].space == Space::input) {
        needed_.insert(v);
      }
    };
    for (Value v : d_.gradients) need(v);
    for (NodeId n = g.node_count(); n-- > 0;)
      if (copied_[n])
        for (Value v : g[n].operands) need(v);
  }

  const size_t carry_, xs_, outputs_;
  std::vector<uint32_t> losses_;  // outputs: the float ones of the carry, then those that reach
  Differentiated d_;
  std::vector<Value> saved_;
  std::set<Value> needed_;    // slices and captured inputs that the backward function reads
  std::vector<bool> copied_;  // nodes of the backward function
  BackwardTrips out_;
};

bool has_requests_in_functions(const Graph& graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    if (!is_control(graph[n])) continue;
    for (const FunctionAttr& f : control_of(graph, graph[n]).functions) {
      if (has_requests_in_functions(*f)) return true;
      for (NodeId k = 0; k < f->node_count(); ++k)
        if ((*f)[k].op->meta()) return true;
    }
  }
  return false;
}

}  // namespace

Graph expand_in_functions(const Graph& graph) {
  if (!has_requests_in_functions(graph)) return graph;
  Rewriter rewriter(graph);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const NodeInfo& node = graph[n];
    if (!is_control(node)) {
      rewriter.copy(n);
      continue;
    }
    std::vector<FunctionAttr> functions;
    for (const FunctionAttr& f : control_of(graph, node).functions)
      functions.push_back(std::make_shared<const Graph>(expand_grads(expand_in_functions(*f))));
    copy_with_functions(rewriter, graph, n, functions);
  }
  return rewriter.finish();
}

Graph save_trips(const Graph& graph, const Way& way, SavedTrips* saved, ValueMap* map) {
  if (!has_control(graph)) {
    *map = ValueMap::identity(graph.value_count());
    return graph;
  }
  const Path path = find_path(graph, way);
  std::vector<bool> read(graph.value_count());  // a gradient may come from there
  for (Value v : way.losses) read[v.id] = true;
  for (NodeId n = 0; n < way.end; ++n)
    if (path.nodes[n])
      for (Value v : graph[n].operands)
        if (v) read[v.id] = true;
  Rewriter rewriter(graph);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    const NodeInfo& node = graph[n];
    const bool on_way = n < way.end && path.nodes[n] && is_control(node);
    const Control old = on_way ? control_of(graph, node) : Control{};
    if (!on_way || old.kind != Control::Kind::trips) {
      rewriter.copy(n);
      continue;
    }
    const FunctionAttr body = bound_function(old.functions[0], input_types(graph, old));
    std::vector<bool> wants, reaches;
    for (const auto* list : {&old.carry, &old.xs, &old.captured})
      for (Value v : *list) {
        wants.push_back(path.depends[v.id]);
        if (wants.back() && !is_float(graph.type(v).dtype))
          fail(Code::unsupported, node.op->text(node.provenance),
               ": no gradient for an operand: ", kNoIntegers);
      }
    for (size_t k = 0; k < body->outputs().size(); ++k)
      reaches.push_back(k < node.outputs.size() && node.outputs[k] && read[node.outputs[k].id]);
    try {
      Splitting split(body, old, std::move(wants), reaches);
      Control now = old;
      for (auto* list : {&now.carry, &now.xs, &now.captured}) *list = rewriter.map(*list);
      now.functions = {split.forward()};
      Builder b(rewriter.to, node.provenance);
      b.marks = node;
      const NodeId id = rewriter.to.node_count();
      const Results results = add_control(b, now, body->outputs().size() + split.saved_count());
      for (size_t k = 0; k < node.outputs.size(); ++k)
        if (node.outputs[k]) rewriter.replace(node.outputs[k], results[k]);
      saved->emplace(id, split.backward());
    } catch (const Error& e) {
      fail(e.code(), node.op->text(node.provenance), ": gradient of function body: ", e.what());
    }
  }
  Graph out = rewriter.finish();
  *map = rewriter.values();
  return out;
}

void through_branch(Grad& grad, const NodeInfo& node, const Control& control) {
  Builder& b = grad.b;
  const std::vector<Type> types = input_types(b.graph, control);
  std::vector<uint32_t> losses, wrt;
  Control back{.kind = Control::Kind::branch, .cond = control.cond, .captured = control.captured};
  for (uint32_t k = 0; k < node.outputs.size(); ++k)
    if (const Value dy = grad.dy(k)) {
      losses.push_back(k);
      back.captured.push_back(dy);
    }
  for (uint32_t k = 0; k < control.captured.size(); ++k)
    if (grad.wants(control.captured[k])) {
      if (!is_float(b.dtype(control.captured[k]))) grad.refuse("xs", kNoIntegers);
      wrt.push_back(k);
    }
  if (wrt.empty()) return;
  for (const FunctionAttr& f : control.functions) {
    Differentiated d = differentiate(bound_function(f, types), losses, wrt);
    Graph g;
    Copier copy(d.graph, g);
    for (Value v : d.graph.inputs()) copy.set(v, g.input(cat(g.inputs().size()), d.graph.type(v)));
    for (NodeId n = 0; n < d.graph.node_count(); ++n) copy.copy(n);
    for (size_t k = 0; k < wrt.size(); ++k) g.output(cat(k), copy(d.gradients[k]));
    back.functions.push_back(std::make_shared<const Graph>(std::move(g)));
  }
  const Results gradients = add_control(b, back, wrt.size());
  for (size_t k = 0; k < wrt.size(); ++k) grad.give(control.captured[wrt[k]], gradients[k]);
}

void through_trips(Grad& grad, const Control& control, const BackwardTrips& backward) {
  Builder& b = grad.b;
  Control back{.kind = Control::Kind::trips,
               .functions = {backward.function},
               .trips = control.trips,
               .reverse = !control.reverse};
  const auto gradient_of = [&](uint32_t k) {
    const Value dy = grad.dy(k);
    return dy ? dy : b.zeros(b.type(grad.y(k)));
  };
  for (uint32_t k : backward.carry) back.carry.push_back(gradient_of(k));
  for (uint32_t k : backward.captured) {
    const Type type = b.type(control.captured[k]);
    back.carry.push_back(b.zeros({acc_dtype(type.dtype), type.shape}));
  }
  for (const BackwardTrips::Source& s : backward.sources)
    back.xs.push_back(s.from == BackwardTrips::From::saved   ? grad.y(s.index)
                      : s.from == BackwardTrips::From::slice ? control.xs[s.index]
                                                             : gradient_of(s.index));
  for (uint32_t k : backward.reads) back.captured.push_back(control.captured[k]);
  const size_t carry = back.carry.size();
  const Results results = add_control(b, back, carry + backward.slices.size());
  size_t at = 0;
  for (uint32_t k : backward.carry) grad.give(control.carry[k], results[at++]);
  for (uint32_t k : backward.captured) {
    const Value v = control.captured[k];
    grad.give(v, b.cast(results[at++], b.dtype(v)));
  }
  for (uint32_t k : backward.slices) grad.give(control.xs[k], results[at++]);
}

}  // namespace tenon::core
