// SPDX-License-Identifier: Apache-2.0
// What can be known of a loop (while, scan) before it runs.
#pragma once

#include <optional>

#include "ops/control.hpp"
#include "plan/rewrite/fold.hpp"

namespace tenon::core {

// How many trips a `while` runs, where constants alone decide that. evaluate, if not empty, runs
// what decides: small values of integers, for at most 4096 trips.
std::optional<int64_t> known_trips(const Graph& graph, const Control& loop,
                                   const Evaluate& evaluate);

// Values of a function that no trip changes and that are worth computing before the loop, at most
// `room` of them. Inputs from `first` on are the same in every trip. roots: the outputs that are
// needed. may_skip: there may be no trip.
std::vector<Value> loop_invariants(const Graph& function, size_t first,
                                   std::span<const Value> roots, bool may_skip, size_t room);

}  // namespace tenon::core
