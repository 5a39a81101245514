// SPDX-License-Identifier: Apache-2.0
// Makes derived weights when a run is bound: the plan of a maker, then the layout of a program.
#include "exec/derive.hpp"

namespace tenon::core {
namespace {

using Buffers = std::vector<std::shared_ptr<Buffer>>;

// A reference to a buffer that somebody else owns.
std::shared_ptr<Buffer> borrowed(Buffer& buffer) {
  return std::shared_ptr<Buffer>(std::shared_ptr<void>(), &buffer);
}

// Runs a maker once. Its memory is freed afterwards.
class Making {
 public:
  Making(const Plan& maker, Buffer& dense, Buffer& made)
      : plan_(maker), device_(*maker.devices[0]), dense_(borrowed(dense)), made_(borrowed(made)) {
    for (const uint64_t size : plan_.arenas[0].chunks)
      chunks_.push_back(device_.buffer(size, "intermediates"));
    for (const PlannedConstant& c : plan_.constants) {
      auto& buffer = constants_.emplace_back();
      if (c.data->empty()) continue;
      buffer = device_.buffer(c.data->size(), "constant");
      buffer->write(0, c.data->data(), c.data->size());
    }
    for (const PlannedDerived& d : plan_.derived) {
      derived_.push_back(device_.buffer(d.size, "derived weight"));
      plan_.regions[d.region].program->derive(d.value, dense, *derived_.back());
    }
  }

  void run() const {
    for (const PlannedRegion& region : plan_.regions) {
      Binding binding;
      for (const Place& p : region.values) binding.values.push_back(slot_at(p));
      for (const Place& p : region.scratch) binding.scratch.push_back(slot_at(p));
      device_.instantiate(region.program, binding)->run(0);
    }
  }

 private:
  Slot slot_at(const Place& place) const {
    switch (place.home) {
      case Home::arena:
        return {chunks_[place.index], place.offset};
      case Home::constant:
        return {constants_[place.index], place.offset};
      case Home::derived:
        return {derived_[place.index], place.offset};
      case Home::entry:
        return {dense_, place.offset};
      case Home::output:
        return {made_, place.offset};
      default:
        return {};
    }
  }

  const Plan& plan_;
  Device& device_;
  std::shared_ptr<Buffer> dense_, made_;
  Buffers chunks_, constants_, derived_;
};

}  // namespace

void derive(const Plan& plan, const PlannedDerived& planned, Buffer& dense, Buffer& derived) {
  std::shared_ptr<Buffer> from = borrowed(dense);
  for (size_t k = 0; k < planned.makers.size(); ++k) {
    const Plan& maker = *planned.makers[k];
    const bool last = planned.region == kNone && k + 1 == planned.makers.size();
    const auto made =
        last ? borrowed(derived)
             : maker.devices[0]->buffer(type_bytes(maker.output_slots[0].type), "weight");
    Making(maker, *from, *made).run();
    from = made;
  }
  if (planned.region == kNone) return;
  const Plan& owner = planned.function ? *planned.function : plan;
  owner.regions[planned.region].program->derive(planned.value, *from, derived);
}

}  // namespace tenon::core
