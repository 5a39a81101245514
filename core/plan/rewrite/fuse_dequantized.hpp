// SPDX-License-Identifier: Apache-2.0
// Places dequantize so that others can be joined with it, where it has one scale.
#pragma once

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// Ops that move elements move the integers, and dequantize follows them, if the device claims that:
// reshape(dequantize(q)) becomes dequantize(reshape(q)). A quantize with the same scale and zero point
// then gives back the integers, so that both are dropped. Results do not change.
Graph move_integers(const Graph& graph, const Query& query);

// Each elementwise or reducing reader gets a dequantize of its own, if the device claims it as a step
// of a body: bodies then read the integers.
Graph repeat_dequantize(const Graph& graph, const Query& query);

}  // namespace tenon::core
