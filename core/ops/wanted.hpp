// SPDX-License-Identifier: Apache-2.0
// The gradient of an op by its backward op, of which only what is wanted is computed.
#pragma once

#include <utility>

#include "ops/record.hpp"

namespace tenon::core {

// Adds a backward op that has an optional output for each of some operands, in their order, and gives
// the gradients that are wanted. parts: the operands, and the flags of `back` that ask for them.
template <class Back, size_t n>
void give_wanted(Grad& g, Back back, const std::pair<Value, bool Back::*> (&parts)[n]) {
  bool any = false;
  for (const auto& [operand, want] : parts) any |= back.*want = g.wants(operand);
  if (!any) return;
  const Results made = g.b.add(back);
  for (size_t k = 0; k < n; ++k)
    if (g.wants(parts[k].first)) g.give(parts[k].first, made[k]);
}

}  // namespace tenon::core
