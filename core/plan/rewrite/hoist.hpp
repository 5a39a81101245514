// SPDX-License-Identifier: Apache-2.0
// Takes out of a run what only a weight decides that no run changes: a cast of it, say. That is
// computed when the weight is set, and kept as a derived weight.
#pragma once

#include "plan/report.hpp"
#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// Replaces values of a legal graph that depend on one weight, which the graph does not update, and
// on small constants, by weights of names of their own, and adds to legal.hoisted what makes them.
// Views stay in the run, where they cost nothing. Random, ordered and grouped nodes stay, and so
// does what leaves the graph, what is much larger than its weight, and what the device does not
// take by itself.
void hoist_weights(LegalGraph& legal, const Query& query);

}  // namespace tenon::core
