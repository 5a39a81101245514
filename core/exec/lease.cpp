// SPDX-License-Identifier: Apache-2.0
// Borrows and gives back the working memory of a lease.
#include "exec/lease.hpp"

namespace tenon::core {

Lease::Lease(std::shared_ptr<const BoundPlan> of) : bound(std::move(of)) {
  arenas.resize(bound->plan.devices.size());
}

Lease::~Lease() {
  for (size_t d = 0; d < arenas.size(); ++d) bound->pools[d]->forget(*this, arenas[d]);
}

void Lease::borrow() {
  bool same = true;
  for (size_t d = 0; d < arenas.size(); ++d)
    same &= bound->pools[d]->borrow(*this, bound->plan.arenas[d].chunks, arenas[d]);
  if (!same) ready = false;
}

void Lease::give_back() noexcept {
  for (size_t d = 0; d < arenas.size(); ++d) bound->pools[d]->give_back(*this, arenas[d]);
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
