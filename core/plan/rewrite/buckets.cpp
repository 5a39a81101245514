// SPDX-License-Identifier: Apache-2.0
// Finds what is padded, and writes each node so that padding does not count.
#include "plan/rewrite/buckets.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/number.hpp"
#include "grad/vmap.hpp"
#include "ops/control.hpp"
#include "ops/lower.hpp"
#include "ops/padded.hpp"
#include "plan/rewrite/bind.hpp"

namespace tenon::core {
namespace {

// A registered op may be decomposed into itself, also several times over.
constexpr int kMostRounds = 64;

using Sizes = std::map<std::string, int64_t>;

// A graph whose values and nodes are numbered as in any other one of this function that has the same
// nodes. `attrs`: of one node, instead of its own.
Graph in_order(const Graph& graph, NodeId node = kNone, const Attrs& attrs = {}) {
  Rewriter rewriter(graph);
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    if (n == node)
      rewriter.copy(n, attrs);
    else
      rewriter.copy(n);
  }
  return rewriter.finish();
}

Graph bound_to(const Graph& graph, const Sizes& sizes) {
  return in_order(expand_vmaps(lower_meta(bind_functions(bind(graph, sizes)))));
}

// The graph at the sizes of the buckets.
Graph rounded_up(const Graph& graph, const Sizes& sizes, const std::vector<std::string>& padded) {
  try {
    return bound_to(graph, sizes);
  } catch (const Error& e) {
    std::string text;
    for (const std::string& symbol : padded)
      text +=
          cat(text.empty() ? "" : ", ", "symbol '", symbol, "' rounded up to ", sizes.at(symbol));
    fail(e.code(), text, ": ", e.what());
  }
}

// The same graph with a symbol, or the bound of a node with an extent, at another size.
struct Probe {
  std::string who;  // "bucket of symbol 'N'"
  int64_t size = 0, other = 0;
  Graph graph{};
  NodeId node = kNone;  // the one with the extent
};

// A graph may have room for no more than a size, or take even numbers only. Axes of 1 broadcast.
std::vector<int64_t> other_sizes(int64_t size) {
  std::vector<int64_t> out;
  for (const int64_t other : {2 * size, size / 2, size - 1, size + 2})
    if (other > 1 && other != size) out.push_back(other);
  return out;
}

Probe probe_of(const Graph& graph, Sizes sizes, const std::string& symbol) {
  const int64_t size = sizes.at(symbol);
  std::string why;
  const std::string who = cat("bucket of symbol '", symbol, "'");
  for (const int64_t other : other_sizes(size)) {
    sizes[symbol] = other;
    try {
      return {who, size, other, bound_to(graph, sizes)};
    } catch (const Error& e) {
      if (why.empty()) why = e.what();
    }
  }
  fail(Code::unsupported, who, ": the graph takes no size but ", size, ": ", why);
}

// A node whose rows have an extent. In the decomposition of another op it has none: that op knows
// what it does with the rows behind.
bool is_extent(const NodeInfo& node) { return node.op->traits & kExtent; }
int64_t bound_of(const Graph& graph, NodeId node) {
  return graph.type(graph[node].outputs[0]).shape[0];
}

Probe probe_of(const Graph& base, NodeId node) {
  const std::string who = cat("extent of ", base[node].op->text(base[node].provenance));
  const int64_t size = bound_of(base, node);
  const auto with_bound = [&](int64_t bound) {
    Attrs attrs = base[node].attrs;
    std::erase_if(attrs, [](const Attr& a) { return a.name == "bound"; });
    attrs.push_back({"bound", bound});
    return in_order(base, node, attrs);
  };
  std::string why;
  for (const int64_t other : other_sizes(size)) {
    try {
      if (size == 1) with_bound(other + 1);  // of 1, rows broadcast; not to each of two lengths
      return {who, size, other, with_bound(other), node};
    } catch (const Error& e) {
      if (why.empty()) why = e.what();
    }
  }
  fail(Code::unsupported, who, ": the graph takes no bound but ", size, ": ", why);
}

// In a function, an extent would be lost with each call.
void refuse_inside(const Graph& function) {
  for (NodeId n = 0; n < function.node_count(); ++n) {
    if (is_extent(function[n]))
      fail(Code::unsupported, function[n].op->text(function[n].provenance),
           ": it has an extent, which is not possible in a function");
    for (const Attr& a : function[n].attrs)
      if (const auto* f = std::get_if<FunctionAttr>(&a.value); f && *f) refuse_inside(**f);
  }
}

// The graph is refused because of what this probe is of.
class Refusal : public Error {
 public:
  Refusal(size_t probe, const std::string& who, const std::string& why)
      : Error(Code::unsupported, cat(who, ": ", why)), probe_(probe), why_(why) {}
  size_t probe() const { return probe_; }
  const std::string& why() const { return why_; }

 private:
  size_t probe_;
  std::string why_;
};

// Attributes that give lengths of results: they may differ where lengths do.
bool is_length_attr(std::string_view name) {
  return name == "shape" || name == "len" || name == "size" || name == "dim" || name == "bound" ||
         name == "after";
}

bool same_value(const AttrValue& a, const AttrValue& b) {
  if (const auto* x = std::get_if<double>(&a))  // NaN stands for "not given"
    if (const auto* y = std::get_if<double>(&b)) return *x == *y || (*x != *x && *y != *y);
  if (const auto* f = std::get_if<FunctionAttr>(&a)) return f && std::get_if<FunctionAttr>(&b);
  return a == b;
}

// Do two nodes do the same, but for lengths?
bool same_but_lengths(const NodeInfo& a, const NodeInfo& b) {
  if (a.op != b.op || a.operands != b.operands || a.outputs != b.outputs || a.lists != b.lists)
    return false;
  const Attrs of_a = complete_attrs(a), of_b = complete_attrs(b);
  return std::ranges::equal(of_a, of_b, [](const Attr& x, const Attr& y) {
    return x.name == y.name && (is_length_attr(x.name) || same_value(x.value, y.value));
  });
}

bool same_content(const ValueInfo& a, const ValueInfo& b) {
  if (a.space != b.space) return false;
  return a.space != Space::constant || (a.type == b.type && *a.data == *b.data);
}

// A constant that counts elements: factor, times the numbers of these probes.
struct Count {
  int64_t factor = 0;
  std::vector<uint32_t> numbers{};
};

// Are a and b the same multiple of c and d?
bool same_ratio(int64_t a, int64_t c, int64_t b, int64_t d) {
  return c > 0 && d > 0 && a % c == 0 && b % d == 0 && a / c == b / d;
}

// The whole number that a constant of one element holds; 0 if it is none.
int64_t whole_number(const ValueInfo& value) {
  constexpr double kMost = 1ll << 53;
  double number = 0;
  if (value.space != Space::constant || value.type.shape.elements() != 1 ||
      !load_number(value.type.dtype, value.data->data(), &number))
    return 0;
  return number >= 1 && number < kMost && number == std::floor(number)
             ? static_cast<int64_t>(number)
             : 0;
}

std::string free_name(const Graph& graph, std::string name) {
  while (graph.find(Space::input, name)) name += "'";
  return name;
}

// A graph beside the same one for other sizes. Values and nodes have equal numbers.
struct Family {
  const Graph* base;
  std::vector<const Graph*> others;  // by probe
};

class Padder {
 public:
  // gradients: the graph asks for gradients.
  Padder(const std::vector<Probe>& probes, Builder& b, std::vector<Value> numbers, bool gradients)
      : probes_(probes),
        b_(b),
        gradients_(gradients),
        lengths_(b, std::move(numbers),
                 static_cast<uint32_t>(std::ranges::count(probes, kNone, &Probe::node))) {}

  Lengths lengths_of(const Family& family, Value v) const {
    Lengths lengths{};
    if (!v) return lengths;
    const Shape& shape = family.base->type(v).shape;
    // Extents come first: a bound may depend on a symbol, and what follows from that is no padding of
    // the symbol.
    for (size_t p = probes_.size(); p-- > 0;) {
      const Shape& other = family.others[p]->type(v).shape;
      if (other.rank() != shape.rank())
        refuse(p, cat("the rank of ", name(family, v), " depends on it"));
      for (int i = 0; i < shape.rank(); ++i)
        if (shape[i] != other[i])
          take_change(lengths[static_cast<size_t>(i)], p, shape[i], other[i],
                      [&] { return cat("axis ", i, " of ", name(family, v)); });
    }
    return lengths;
  }
  Value extent(uint32_t number) const { return lengths_.numbers()[number]; }
  // now: the new value of each value of family.base that is known. Fills in the rest.
  void write(const Family& family, std::vector<Value>& now) {
    if (const Difference d = difference(family); !d.what.empty()) refuse(d.probe, d.what);
    write_nodes(family, now);
  }

 private:
  // The length of an axis: `now`, and `other` by the probe.
  template <class Axis>
  void take_change(Length& length, size_t p, int64_t now, int64_t other, const Axis& axis) const {
    const Probe& probe = probes_[p];
    const int64_t change = other - now, step = probe.other - probe.size;
    if (length && probes_[length.number].node != kNone && probe.node == kNone) {
      const Probe& extent = probes_[length.number];
      if (change == length.times * (bound_of(probe.graph, extent.node) - extent.size)) return;
    }
    if (length) refuse(p, cat(axis(), " depends on it and on ", probes_[length.number].who));
    if (change % step != 0 || change / step < 0) refuse(p, cat(axis(), " is no multiple of it"));
    length = {static_cast<uint32_t>(p), change / step, 0};
    length.plus = now - length.times * probe.size;
  }

  void write_nodes(const Family& family, std::vector<Value>& now) {
    for (NodeId n = 0; n < family.base->node_count(); ++n) write_node(family, n, now);
  }

  // What is not the same in these graphs, but for lengths, and by which probe; empty if nothing.
  struct Difference {
    size_t probe = 0;
    std::string what{};
  };
  Difference difference(const Family& family) const {
    const Graph& base = *family.base;
    for (size_t p = 0; p < family.others.size(); ++p) {
      const Graph& other = *family.others[p];
      if (base.node_count() != other.node_count() || base.value_count() != other.value_count())
        return {p, "the number of nodes depends on it"};
      for (NodeId n = 0; n < base.node_count(); ++n)
        if (!same_but_lengths(base[n], other[n]))
          return {p, cat(base[n].op->text(base[n].provenance), ": its attributes depend on it")};
    }
    for (uint32_t v = 0; v < base.value_count(); ++v)
      for (size_t p = 0; p < family.others.size(); ++p)
        if (!same_content(base[Value{v}], (*family.others[p])[Value{v}])) {
          if (count_of(family, {v})) break;
          return {p, cat(reader_of(base, {v}), "a constant depends on it")};
        }
    return {};
  }
  static std::string reader_of(const Graph& graph, Value v) {
    for (NodeId n = 0; n < graph.node_count(); ++n)
      if (std::ranges::find(graph[n].operands, v) != graph[n].operands.end())
        return cat(graph[n].op->text(graph[n].provenance), ": ");
    return {};
  }

  // A mean divides by a number of elements, which is a constant where shapes are known. It is told by
  // its ratios: with each probe that it depends on, it grows as the number of that probe.
  std::optional<Count> count_of(const Family& family, Value v) const {
    const ValueInfo& base = (*family.base)[v];
    Count count{whole_number(base), {}};
    if (!count.factor) return std::nullopt;
    int64_t sizes = 1;
    for (size_t p = probes_.size(); p-- > 0;) {
      const ValueInfo& other = (*family.others[p])[v];
      const int64_t number = whole_number(other);
      if (!number || other.type != base.type) return std::nullopt;
      if (number == count.factor) continue;
      const Probe& probe = probes_[p];
      if (probe.node == kNone && !count.numbers.empty()) {
        const Probe& last = probes_[count.numbers.back()];
        // The bound of an extent depends on the symbol, and nothing else does.
        if (last.node != kNone &&
            same_ratio(number, bound_of(probe.graph, last.node), count.factor, last.size))
          continue;
      }
      if (!same_ratio(number, probe.other, count.factor, probe.size)) return std::nullopt;
      count.numbers.push_back(static_cast<uint32_t>(p));
      sizes *= probe.size;
    }
    if (count.numbers.empty() || count.factor % sizes) return std::nullopt;
    count.factor /= sizes;
    return count;
  }
  Value value_of(const Count& count, const Type& type) {
    Value product = b_.scalar_int(kI64, count.factor);
    for (uint32_t p : count.numbers) product = b_.times(product, lengths_.of({p, 1, 0}));
    return b_.reshape(b_.cast(product, type.dtype), type.shape);
  }
  [[noreturn]] void refuse(size_t p, const std::string& why) const {
    throw Refusal(p, probes_[p].who, why);
  }

  static std::string name(const Family& family, Value v) {
    const ValueInfo& info = (*family.base)[v];
    if (info.space != Space::node) return cat("'", info.name, "'");
    const NodeInfo& node = (*family.base)[info.node];
    return cat("the result of ", node.op->text(node.provenance));
  }

  Value mapped(const Family& family, Value v, std::vector<Value>& now) {
    if (!v || now[v.id] || (*family.base)[v].space != Space::constant)
      return v ? now[v.id] : Value{};
    const Type& type = family.base->type(v);
    const ValueInfo& info = (*family.base)[v];
    const bool same = std::ranges::all_of(
        family.others, [&](const Graph* other) { return same_content(info, (*other)[v]); });
    now[v.id] = same ? b_.graph.constant(type, info.data) : value_of(*count_of(family, v), type);
    return now[v.id];
  }

  void write_node(const Family& family, NodeId id, std::vector<Value>& now) {
    const NodeInfo& node = (*family.base)[id];
    std::vector<Padded::Operand> operands;
    bool padded = false;
    for (Value v : node.operands) {
      const Lengths lengths = lengths_of(family, v);
      operands.push_back({mapped(family, v, now), v ? family.base->type(v) : Type{}, lengths});
      padded |= any(lengths);
    }
    std::vector<Type> types;
    std::vector<Lengths> results;
    for (Value v : node.outputs) {
      types.push_back(v ? family.base->type(v) : Type{});
      results.push_back(lengths_of(family, v));
      padded |= any(results.back());
    }
    if (depth_ == 0) {
      b_.provenance = node.provenance;
      b_.marks = node;
    }
    std::vector<Value> made(node.outputs.size());
    std::string why;
    if (!padded)
      copy(node, operands, made);
    else if (is_control(node))
      write_control(family, id, now, made);
    else if (!by_rule(node, operands, types, results, made, why) &&
             !by_decomposition(family, id, operands, made, why))
      refuse_node(node, operands, results, why);
    if (is_extent(node) && depth_ == 0) lengths_.set(number_of(id), made[1]);
    for (size_t k = 0; k < made.size(); ++k) {
      if (!node.outputs[k]) continue;
      check(made[k] && b_.type(made[k]) == types[k], node.op->text(node.provenance),
            ": its rule for padded operands gives ", made[k] ? b_.type(made[k]).text() : "nothing",
            " for output ", k, ", expected ", types[k].text());
      now[node.outputs[k].id] = made[k];
      const std::string& hint = (*family.base)[node.outputs[k]].name;
      if (!hint.empty() && b_.graph[made[k]].name.empty()) b_.graph.set_name(made[k], hint);
    }
  }

  void copy(const NodeInfo& node, std::span<const Padded::Operand> operands,
            std::vector<Value>& made) {
    std::vector<Value> values;
    for (const Padded::Operand& o : operands) values.push_back(o.value);
    const NodeId id = b_.graph.add_node(*node.op, Operands(std::move(values), node.lists),
                                        node.attrs, wanted_outputs(node), b_.provenance);
    b_.graph.set_marks(id, b_.marks);
    for (size_t k = 0; k < made.size(); ++k)
      if (!made[k]) made[k] = b_.graph[id].outputs[k];
  }

  bool by_rule(const NodeInfo& node, std::vector<Padded::Operand>& operands,
               std::span<const Type> types, std::span<const Lengths> results,
               std::vector<Value>& made, std::string& why) {
    if (!node.op->padded) {
      if (!(node.op->traits & kElementwise)) return false;
      copy(node, operands, made);
      return true;
    }
    NodeInfo positions = node;
    for (uint32_t k = 0; k < positions.operands.size(); ++k)
      if (positions.operands[k]) positions.operands[k] = {k};
    std::vector<Padded::Operand> replaced = operands;
    Padded view(b_, lengths_, replaced, types, results, made, gradients_);
    if (!node.op->padded(view, positions)) {
      why = view.why();
      return false;
    }
    // A rule that gives no result wants the op itself.
    const bool given = std::ranges::any_of(made, [](Value v) { return bool(v); });
    if (!given) {
      copy(node, replaced, made);
      view.finish();
    }
    return true;
  }

  // The probe of a node with an extent.
  uint32_t number_of(NodeId node) const {
    const auto at = std::ranges::find(probes_, node, &Probe::node);
    return static_cast<uint32_t>(std::distance(probes_.begin(), at));
  }

  // ---- functions

  // A function of a node, which gets the numbers as further inputs, behind the others.
  FunctionAttr function_of(const Family& family) const {
    const Graph& base = *family.base;
    Graph to;
    to.name = base.name;
    std::vector<Value> now(base.value_count());
    for (Value v : base.inputs()) now[v.id] = to.input(base[v].name, base.type(v));
    Builder b(to, b_.provenance);
    Padder inside(probes_, b, number_inputs(to), gradients_);
    inside.write(family, now);
    for (const Output& o : base.outputs()) to.output(o.name, inside.mapped(family, o.value, now));
    return std::make_shared<const Graph>(std::move(to));
  }
  // Inputs for the numbers that there are.
  std::vector<Value> number_inputs(Graph& to) const {
    std::vector<Value> inputs;
    for (size_t p = 0; p < probes_.size(); ++p)
      inputs.push_back(
          lengths_.numbers()[p] ? to.input(free_name(to, cat("length ", p)), {kI64, {}}) : Value{});
    return inputs;
  }

  // The function of a trip that runs `body` only where the trip counts: else what is carried comes
  // back, and the other results are zeros. So nothing fails there, and no gradient comes from there.
  // An input behind carry and slices tells the trip.
  FunctionAttr counted_trip(const FunctionAttr& body, const Control& control,
                            const Length& length) const {
    Graph to, otherwise;
    to.name = otherwise.name = body->name;
    Builder b(to, b_.provenance), other(otherwise, b_.provenance);
    Control choice{.kind = Control::Kind::branch};
    const size_t behind = control.carry.size() + control.xs.size(), all = body->inputs().size();
    std::vector<Value> kept;
    Value trip;
    for (size_t k = 0; k < all; ++k) {
      const ValueInfo& info = (*body)[body->inputs()[k]];
      if (k == behind) trip = to.input(free_name(*body, "trip"), {kI64, {}});
      choice.captured.push_back(to.input(info.name, info.type));
      kept.push_back(otherwise.input(info.name, info.type));
    }
    std::vector<Value> numbers = number_values(choice.captured);
    LengthValues lengths(b, std::move(numbers), 0);
    choice.cond = b.compare("lt", trip, lengths.of(length));
    const size_t count = body->outputs().size();
    for (size_t k = 0; k < count; ++k)
      otherwise.output(
          body->outputs()[k].name,
          k < control.carry.size() ? kept[k] : other.zeros(body->type(body->outputs()[k].value)));
    choice.functions = {body, std::make_shared<const Graph>(std::move(otherwise))};
    const Results results = add_control(b, choice, count);
    for (size_t k = 0; k < count; ++k) to.output(body->outputs()[k].name, results[k]);
    return std::make_shared<const Graph>(std::move(to));
  }
  // The numbers among the inputs of a function: the last ones.
  std::vector<Value> number_values(std::span<const Value> inputs) const {
    std::vector<Value> numbers(probes_.size());
    size_t next = inputs.size();
    for (size_t p = probes_.size(); p-- > 0;)
      if (lengths_.numbers()[p]) numbers[p] = inputs[--next];
    return numbers;
  }

  void write_control(const Family& family, NodeId id, std::vector<Value>& now,
                     std::vector<Value>& made) {
    const NodeInfo& node = (*family.base)[id];
    Control control = control_of(*family.base, node);
    std::vector<Control> others;
    for (size_t p = 0; p < family.others.size(); ++p)
      others.push_back(control_of(*family.others[p], (*family.others[p])[id]));
    const Length trips = control.xs.empty() ? Length{} : lengths_of(family, control.xs[0])[0];
    if (control.cond) control.cond = mapped(family, control.cond, now);
    for (auto* values : {&control.carry, &control.xs, &control.captured})
      for (Value& v : *values) v = mapped(family, v, now);
    for (Value number : lengths_.numbers())
      if (number) control.captured.push_back(number);
    for (size_t f = 0; f < control.functions.size(); ++f) {
      const FunctionAttr function = control.functions[f];
      Family alike{function.get(), {}};
      for (const Control& other : others) alike.others.push_back(other.functions[f].get());
      control.functions[f] = function_of(alike);
    }
    if (trips) {
      control.functions[0] = counted_trip(control.functions[0], control, trips);
      control.xs.push_back(b_.iota({control.trips}, 0, kI64));
    }
    const Results results = add_control(b_, control, node.outputs.size());
    for (size_t k = 0; k < made.size(); ++k)
      if (node.outputs[k]) made[k] = results[k];
  }

  // The node alone, in the graph and beside it.
  bool by_decomposition(const Family& family, NodeId id, std::span<const Padded::Operand> operands,
                        std::vector<Value>& made, std::string& why) {
    const NodeInfo& node = (*family.base)[id];
    if (!node.op->lower) return false;
    Graph base;
    std::vector<Graph> others(family.others.size());
    std::vector<Value> results;
    if (!lowered(*family.base, id, base, results)) return false;
    Family inside{&base, {}};
    for (size_t p = 0; p < others.size(); ++p) {
      std::vector<Value> same;
      if (!lowered(*family.others[p], id, others[p], same) || same != results) return false;
      inside.others.push_back(&others[p]);
    }
    if (const Difference d = difference(inside); !d.what.empty()) {
      if (why.empty()) why = cat("in its decomposition, ", d.what);
      return false;
    }
    if (++depth_ > kMostRounds)
      fail(Code::invalid_argument, b_.provenance, ": its decomposition does not come to an end");
    std::vector<Value> now(base.value_count());
    for (size_t k = 0, next = 0; k < operands.size(); ++k)
      if (operands[k].value) now[base.inputs()[next++].id] = operands[k].value;
    try {
      write_nodes(inside, now);
    } catch (const Refusal& e) {
      if (why.empty()) why = cat("in its decomposition, ", e.why());
      refuse(e.probe(), cat(node.op->text(node.provenance), ": ", why));
    }
    for (size_t k = 0; k < made.size(); ++k)
      if (node.outputs[k]) made[k] = mapped(inside, results[k], now);
    --depth_;
    return true;
  }
  static bool lowered(const Graph& graph, NodeId id, Graph& out, std::vector<Value>& results) {
    NodeInfo one = graph[id];
    for (size_t k = 0; k < one.operands.size(); ++k)
      if (one.operands[k])
        one.operands[k] = out.input(std::to_string(k), graph.type(one.operands[k]));
    Builder inside(out, one.provenance.empty() ? one.op->name() : one.provenance);
    inside.marks = one;
    return lower_into(inside, one, results);
  }

  [[noreturn]] void refuse_node(const NodeInfo& node, std::span<const Padded::Operand> operands,
                                std::span<const Lengths> results, const std::string& why) const {
    uint32_t number = kNone;
    const auto look = [&](const Lengths& lengths) {
      for (const Length& l : lengths)
        if (l && number == kNone) number = l.number;
    };
    for (const Padded::Operand& o : operands) look(o.lengths);
    for (const Lengths& l : results) look(l);
    refuse(number, cat(node.op->text(node.provenance), ": ",
                       why.empty() ? "it has no rule for padded operands" : why));
  }

  const std::vector<Probe>& probes_;
  Builder& b_;
  bool gradients_;
  LengthValues lengths_;
  int depth_ = 0;
};

}  // namespace

bool has_extents(const Graph& graph) {
  for (NodeId n = 0; n < graph.node_count(); ++n) {
    if (is_extent(graph[n])) return true;
    for (const Attr& a : graph[n].attrs)
      if (const auto* f = std::get_if<FunctionAttr>(&a.value); f && *f && has_extents(**f))
        return true;
  }
  return false;
}

PaddedGraph pad_to_buckets(const Graph& graph, const Sizes& sizes,
                           const std::vector<std::string>& padded) {
  const Graph base = rounded_up(graph, sizes, padded);
  std::vector<Probe> probes;
  for (const std::string& symbol : padded) probes.push_back(probe_of(graph, sizes, symbol));
  for (NodeId n = 0; n < base.node_count(); ++n) {
    if (is_extent(base[n])) probes.push_back(probe_of(base, n));
    for (const Attr& a : base[n].attrs)
      if (const auto* f = std::get_if<FunctionAttr>(&a.value); f && *f) refuse_inside(**f);
  }
  Rewriter rewriter(base);
  PaddedGraph out;
  Builder b(rewriter.to);
  std::vector<Value> numbers;
  for (const std::string& symbol : padded) {
    const std::string input = free_name(rewriter.to, cat("length of ", symbol));
    numbers.push_back(rewriter.to.input(input, {kI64, {}}));
    out.numbers.push_back({symbol, input});
  }
  numbers.resize(probes.size());
  Family family{&base, {}};
  for (const Probe& p : probes) family.others.push_back(&p.graph);
  std::vector<Value> now(base.value_count());
  for (const auto* named : {&base.inputs(), &base.weights(), &base.states()})
    for (Value v : *named) now[v.id] = rewriter.map(v);
  bool gradients = false;  // all requests but those were expanded
  for (NodeId n = 0; n < base.node_count(); ++n) gradients |= base[n].op->meta();
  Padder padder(probes, b, std::move(numbers), gradients);
  padder.write(family, now);
  for (const Output& o : base.outputs()) out.outputs.push_back(padder.lengths_of(family, o.value));
  for (uint32_t v = 0; v < base.value_count(); ++v)
    if (now[v] && base[Value{v}].space == Space::node) rewriter.replace({v}, now[v]);
  out.graph = rewriter.finish();
  out.extents.resize(probes.size() - padded.size());
  for (const Lengths& lengths : out.outputs)
    for (const Length& l : lengths) {
      if (!l || l.number < padded.size()) continue;
      std::string& extent = out.extents[l.number - padded.size()];
      if (!extent.empty()) continue;
      extent = probes[l.number].who;
      while (std::ranges::find(out.graph.outputs(), extent, &Output::name) !=
             out.graph.outputs().end())
        extent += "'";
      out.graph.output(extent, padder.extent(l.number));
    }
  return out;
}

}  // namespace tenon::core
