// SPDX-License-Identifier: Apache-2.0
// Counts trips; finds what no trip changes.
#include "plan/rewrite/loop.hpp"

#include <algorithm>
#include <cstring>

#include "ops/cost.hpp"

namespace tenon::core {
namespace {

// A loop is counted up to so many trips, and so many nodes in all: it takes as long as running it.
constexpr int64_t kMostCounted = 4096;
constexpr int64_t kMostNodesCounted = 1 << 16;
constexpr int64_t kMostCountedElements = 64;  // of a value that decides how often a loop runs

class TripCount {
 public:
  TripCount(const Graph& from, const Control& control, const Evaluate& evaluate)
      : from_(from), control_(control), evaluate_(evaluate) {}

  std::optional<int64_t> run() const {
    const Control& c = control_;
    if (c.trips == 0) return 0;
    const Graph &cond = *c.functions[0], &body = *c.functions[1];
    // The carry that decides: the condition's, and what the body computes that from.
    const size_t carry = c.carry.size();
    std::vector<Value> roots;
    std::vector<bool> decides(carry + c.captured.size());
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
    for (size_t k = 0; k < decides.size(); ++k)
      if (decides[k] && from_[operand(k)].space != Space::constant) return {};
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
        decides, std::min(kMostCounted, kMostNodesCounted / std::max<int64_t>(1, *nodes + *more)));
  }

 private:
  Value operand(size_t k) const {
    const size_t carry = control_.carry.size();
    return k < carry ? control_.carry[k] : control_.captured[k - carry];
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
  std::optional<int64_t> run_alone(const std::vector<bool>& decides, int64_t most) const {
    const Control& c = control_;
    const size_t carry = c.carry.size();
    if (c.trips != Control::kNoBound) most = std::min(most, c.trips);
    Graph alone;
    Builder b(alone);
    const auto constant = [&](Value v) { return alone.constant(from_.type(v), from_[v].data); };
    Control now{.kind = Control::Kind::loop, .trips = most};
    const Type count_type{kI64, {}};
    now.carry.push_back(b.zeros(count_type));
    for (size_t k = 0; k < decides.size(); ++k)
      if (decides[k]) (k < carry ? now.carry : now.captured).push_back(constant(operand(k)));
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

  const Graph& from_;
  const Control& control_;
  const Evaluate& evaluate_;
};

class Invariants {
 public:
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

  std::vector<Value> take() { return std::move(wanted_); }

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
  // By value: bytes of the captured inputs that it is made of, as often as they are read, but no
  // more than all of them.
  std::vector<uint64_t> leaf_bytes_;
  uint64_t captured_bytes_ = 0;
  uint64_t spent_ = 0;  // bytes of values that move and are no products
  std::vector<Value> wanted_;
};

}  // namespace

std::optional<int64_t> known_trips(const Graph& graph, const Control& loop,
                                   const Evaluate& evaluate) {
  return TripCount(graph, loop, evaluate).run();
}

std::vector<Value> loop_invariants(const Graph& function, size_t first,
                                   std::span<const Value> roots, bool may_skip, size_t room) {
  return Invariants(function, first, roots, may_skip, room).take();
}

}  // namespace tenon::core
