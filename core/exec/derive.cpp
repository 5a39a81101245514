// SPDX-License-Identifier: Apache-2.0
// Makes derived weights when a run is bound: the graph of a weight, then the layout of a program.
#include "exec/derive.hpp"

namespace tenon::core {
namespace {

// A slot for a buffer that somebody else owns.
Slot borrowed(Buffer& buffer) {
  return {std::shared_ptr<Buffer>(std::shared_ptr<void>(), &buffer), 0};
}

// Runs the maker's program once, in memory that goes with it.
class Making {
 public:
  Making(const WeightMaker& maker, Buffer& dense, Buffer& made)
      : maker_(maker), program_(*maker.program) {
    for (uint32_t v = 0; v < program_.values().size(); ++v)
      binding_.values.push_back(slot_of(v, dense, made));
    for (const Step& step : program_.steps()) {
      for (const Alias& a : step.aliases)
        if (a.view) {
          binding_.values[a.to] = binding_.values[a.from];
          binding_.values[a.to].offset += a.offset;
        }
      binding_.scratch.push_back(fresh(step.scratch));
    }
  }

  void run() { program_.device().instantiate(maker_.program, binding_)->run(0); }

 private:
  Slot slot_of(uint32_t v, Buffer& dense, Buffer& made) const {
    const ProgramValue& value = program_.values()[v];
    if (value.source == TENON_NONE) return fresh(value.size);
    const Value source = maker_.values[value.source];
    const ValueInfo& info = (*maker_.graph)[source];
    if (!value.layout.empty()) {
      const Slot slot = fresh(value.size);
      program_.derive(v, dense, *slot.buffer);
      return slot;
    }
    if (info.space == Space::weight) return borrowed(dense);
    if (source == maker_.graph->outputs()[0].value) return borrowed(made);
    const Slot slot = fresh(value.size);
    if (info.space == Space::constant && slot.buffer)
      slot.buffer->write(0, info.data->data(), info.data->size());
    return slot;
  }
  Slot fresh(uint64_t size) const { return {size ? program_.device().buffer(size) : nullptr, 0}; }

  const WeightMaker& maker_;
  const Program& program_;
  Binding binding_;
};

}  // namespace

void derive(const Plan& plan, const PlannedDerived& planned, Buffer& dense, Buffer& derived) {
  const auto lay_out = [&](Buffer& from) {
    plan.regions[planned.region].program->derive(planned.value, from, derived);
  };
  if (!planned.maker) return lay_out(dense);
  if (planned.region == kNone) return Making(*planned.maker, dense, derived).run();
  const WeightMaker& maker = *planned.maker;
  const auto made = maker.program->device().buffer(
      type_bytes(maker.graph->type(maker.graph->outputs()[0].value)));
  Making(maker, dense, *made).run();
  lay_out(*made);
}

}  // namespace tenon::core
