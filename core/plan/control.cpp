// SPDX-License-Identifier: Apache-2.0
// Plans the functions of a node, and lays out what they need from trip to trip.
#include "plan/control.hpp"

#include <algorithm>
#include <map>

#include "ir/blob.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kNames[][2] = {
    {"then_branch", "else_branch"}, {"cond", "body"}, {"body", ""}};

class Planning {
 public:
  Planning(const Graph& graph, const NodeInfo& node, const std::shared_ptr<Device>& device,
           const PlanOptions& options, const Evaluate& evaluate)
      : graph_(graph),
        node_(node),
        device_(device),
        evaluate_(evaluate),
        control_(control_of(graph, node)),
        types_(input_types(graph, control_)) {
    options_.simplify = options.simplify;
    options_.fuse = options.fuse;
    options_.decompose_all = options.decompose_all;
    options_.batch_invariant = options.batch_invariant;
    options_.exec_mode = options.exec_mode;
    options_.aot = options.aot;
    for (FunctionAttr& f : control_.functions) f = bound_function(f, types_);
    for (const auto* operands : {&control_.carry, &control_.xs, &control_.captured})
      inputs_.insert(inputs_.end(), operands->begin(), operands->end());
  }

  std::shared_ptr<const ControlPlan> run() {
    out_.kind = control_.kind;
    out_.trips = control_.trips;
    out_.reverse = control_.reverse;
    for (size_t k = 0; k < control_.functions.size(); ++k) add_function(k);
    lay_out();
    return std::make_shared<const ControlPlan>(std::move(out_));
  }

 private:
  void add_function(size_t k) {
    const std::string name(kNames[static_cast<size_t>(control_.kind)][k]);
    try {
      Plan plan = make_plan(numbered(k), {device_}, options_, evaluate_);
      out_.functions.push_back({name, std::make_shared<const Plan>(std::move(plan)), {}});
    } catch (const Error& e) {
      fail(e.code(), "function ", name, ": ", e.what());
    }
  }

  // The function with positions as names.
  Graph numbered(size_t k) const {
    Graph g;
    g.name =
        cat(node_.op->text(node_.provenance), ", ", kNames[static_cast<size_t>(control_.kind)][k]);
    std::vector<Value> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) inputs.push_back(input(g, i));
    Builder b(g);
    const std::vector<Value> outputs = inline_function(b, *control_.functions[k], inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool needed = control_.kind == Control::Kind::loop || i < control_.carry.size() ||
                          (i < node_.outputs.size() && node_.outputs[i]);
      if (needed) g.output(std::to_string(i), outputs[i]);
    }
    return g;
  }

  Value input(Graph& g, size_t i) const {
    const ValueInfo& operand = graph_[inputs_[i]];
    const bool fixed = i >= control_.carry.size() + control_.xs.size();
    if (fixed && operand.space == Space::constant && operand.data->size() <= kBlobConstantLimit)
      return g.constant(operand.type, operand.data);
    if (fixed && operand.space == Space::weight && !graph_.update_of(inputs_[i]))
      return g.weight(std::to_string(i), types_[i], false);
    return g.input(std::to_string(i), types_[i]);
  }

  void lay_out() {
    out_.alignment = std::max<uint64_t>(device_->info().alignment, 64);
    for (const PlannedFunction& f : out_.functions)
      for (const PlannedRegion& region : f.plan->regions) {
        if (region.control.plan)
          out_.alignment = std::max(out_.alignment, region.control.plan->alignment);
        for (const ProgramValue& v : region.program->values())
          out_.alignment = std::max(out_.alignment, v.alignment);
      }
    const size_t carry = control_.carry.size();
    for (auto& side : out_.carry)
      for (size_t k = 0; k < carry; ++k) side.push_back(room(types_[k]));
    for (size_t k = 0; k < control_.xs.size(); ++k) out_.slices.push_back(room(types_[carry + k]));
    if (control_.kind == Control::Kind::trips)
      for (size_t k = carry; k < node_.outputs.size(); ++k)
        out_.results.push_back(node_.outputs[k] ? room(slice_type(graph_.type(node_.outputs[k])))
                                                : PlannedRoom{});
    if (control_.kind == Control::Kind::loop) out_.condition = room({kBool, {}});
    // Only one function runs at a time.
    const uint64_t begin = out_.scratch;
    uint64_t most = begin;
    for (PlannedFunction& f : out_.functions) {
      out_.scratch = begin;
      for (const uint64_t size : f.plan->arenas[0].chunks) f.chunk_at.push_back(take(size));
      most = std::max(most, out_.scratch);
    }
    out_.scratch = most;
  }

  PlannedRoom room(const Type& type) {
    const uint64_t size = type_bytes(type);
    return {size, take(size)};
  }
  uint64_t take(uint64_t size) {
    const uint64_t at = (out_.scratch + out_.alignment - 1) & ~(out_.alignment - 1);
    out_.scratch = at + size;
    return at;
  }

  const Graph& graph_;
  const NodeInfo& node_;
  const std::shared_ptr<Device>& device_;
  const Evaluate& evaluate_;
  Control control_;
  const std::vector<Type> types_;
  std::vector<Value> inputs_;
  PlanOptions options_;
  ControlPlan out_;
};

}  // namespace

std::shared_ptr<const ControlPlan> plan_control(const Graph& graph, const NodeInfo& node,
                                                const std::shared_ptr<Device>& device,
                                                const PlanOptions& options,
                                                const Evaluate& evaluate) {
  return Planning(graph, node, device, options, evaluate).run();
}

PlannedRegion control_region(const Graph& graph, const CutRegion& cut,
                             std::shared_ptr<Device> device) {
  const NodeInfo& node = graph[cut.region.nodes[0]];
  PlannedRegion out{.device = cut.region.device};
  out.control.plan = cut.control;
  std::vector<ProgramValue> values;
  Step step;
  step.node = 0;
  step.scratch = cut.control->scratch;
  step.label = node.op->name();
  std::map<Value, uint32_t> known;
  const auto value_of = [&](Value v, std::vector<uint32_t>& touched) {
    if (!v) return kNone;
    const auto [at, fresh] = known.try_emplace(v, static_cast<uint32_t>(values.size()));
    if (!fresh) return at->second;
    const auto source = std::ranges::find(cut.blob.values, v);
    check(source != cut.blob.values.end(), node.op->name(), ": a value is not in its region");
    values.push_back({.source = static_cast<uint32_t>(source - cut.blob.values.begin()),
                      .size = type_bytes(graph.type(v)),
                      .alignment = device->info().alignment});
    touched.push_back(at->second);
    return at->second;
  };
  for (Value v : node.operands) out.control.operands.push_back(value_of(v, step.reads));
  for (Value v : node.outputs) out.control.outputs.push_back(value_of(v, step.writes));
  out.program = std::make_shared<Program>(std::move(device), std::move(values),
                                          std::vector<Step>{std::move(step)});
  return out;
}

}  // namespace tenon::core
