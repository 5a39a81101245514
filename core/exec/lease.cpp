// SPDX-License-Identifier: Apache-2.0
// Borrows and gives back the working memory of a lease.
#include "exec/lease.hpp"

#include <algorithm>
#include <utility>

namespace tenon::core {

Lease::Lease(std::shared_ptr<const BoundPlan> of) : bound(std::move(of)) {
  const Plan& plan = bound->plan;
  arenas.resize(plan.devices.size());
  inputs.assign(plan.inputs.size(), std::vector<std::shared_ptr<Buffer>>(plan.devices.size()));
  own_inputs = inputs;
  input_versions.assign(plan.inputs.size(), 0);
  outputs.resize(plan.output_slots.size());
  own_outputs.resize(plan.output_slots.size());
}

Lease::~Lease() {
  for (size_t d = 0; d < arenas.size(); ++d) bound->pools[d]->forget(*this, arenas[d]);
}

const int64_t* Lease::number_of(std::string_view input) const {
  const auto at = std::ranges::find(bound->numbers, input, &PaddedGraph::Number::input);
  return at == bound->numbers.end() ? nullptr : &numbers.find(at->symbol)->second;
}

void Lease::borrow() {
  {
    const std::lock_guard lock(run_mutex_);
    running_ = true;
    if (std::exchange(unbound_, false)) std::ranges::fill(generations, 0);
  }
  bool same = true;
  for (size_t d = 0; d < arenas.size(); ++d)
    same &= bound->pools[d]->borrow(*this, bound->plan.arenas[d].chunks, arenas[d]);
  if (!same) ready = false;
}

void Lease::give_back() noexcept {
  for (size_t d = 0; d < arenas.size(); ++d) bound->pools[d]->give_back(*this, arenas[d]);
  const std::lock_guard lock(run_mutex_);
  running_ = false;
  if (std::exchange(must_let_go_, false)) unbind_entries();
}

void Lease::let_go() noexcept {
  const std::lock_guard lock(run_mutex_);
  if (running_)
    must_let_go_ = true;
  else
    unbind_entries();
}

void Lease::unbind_entries() noexcept {
  unbound_ = true;
  entry_buffers.clear();
  free_instances();
}

void Lease::free_instances() noexcept { bound->pools[0]->free_instances(*this); }

void Lease::use_input(size_t input, uint32_t device, std::shared_ptr<Buffer> buffer) {
  const Plan& plan = bound->plan;
  auto& own = own_inputs[input][device];
  if (const uint64_t size = type_bytes(plan.inputs[input].type); buffer) {
    own = nullptr;
  } else if (size) {
    if (!own) {
      own = plan.devices[device]->buffer(size, "input");
      input_versions[input] = 0;
    }
    buffer = own;
  }
  if (inputs[input][device] == buffer) return;
  inputs[input][device] = std::move(buffer);
  moved = true;
}

void Lease::use_output(size_t slot, std::shared_ptr<Buffer> buffer) {
  const OutputSlot& out = bound->plan.output_slots[slot];
  auto& own = own_outputs[slot];
  if (const uint64_t size = type_bytes(out.type); size && !buffer) {
    // That of the last run, if nobody reads it: then nothing moves.
    auto at = std::ranges::find(own, outputs[slot], &OwnOutput::buffer);
    if (at == own.end() || !at->is_free()) at = std::ranges::find_if(own, &OwnOutput::is_free);
    if (at == own.end())
      at = own.insert(own.end(), {bound->plan.devices[out.device]->buffer(size, "output")});
    buffer = at->buffer;
  }
  std::erase_if(own, [&](const OwnOutput& o) { return o.buffer != buffer && o.is_free(); });
  if (outputs[slot] == buffer) return;
  outputs[slot] = std::move(buffer);
  moved = true;
}

std::shared_ptr<Buffer> Lease::buffer_at(const Place& place, uint32_t device) const {
  switch (place.home) {
    case Home::none:
      return nullptr;
    case Home::arena:
      return arenas[device][place.index]->buffer;
    case Home::input:
      return inputs[place.index][device];
    case Home::output:
      return outputs[place.index];
    case Home::entry:
      return entry_buffers[place.index][device];
    case Home::constant:
      return bound->constants[device][place.index];
    case Home::derived:
      return derived[place.index];
  }
  return nullptr;
}

}  // namespace tenon::core
