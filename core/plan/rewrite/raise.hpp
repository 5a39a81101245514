// SPDX-License-Identifier: Apache-2.0
// Simple ops that spell out a composite become it, before gradients are taken. The composite means
// the same on all data, NaN and infinities included, up to rounding; no other node reads a value in
// between. Attention is the one exception: it assumes that q, k and v are finite.
#pragma once

#include <string_view>

#include "ir/graph.hpp"

namespace tenon::core {

// Every form, by the name that notes use. exec.random_form spells each one out.
inline constexpr std::string_view kRaiseForms[] = {
    "softmax", "log softmax", "gelu",          "sigmoid",   "layer_norm",      "rms_norm",
    "silu",    "scaled norm", "cross_entropy", "attention", "attention layout"};

// Types must be numeric. What a node was made of, and why a candidate was left, stands in the note.
Graph raise(Graph g);

}  // namespace tenon::core
