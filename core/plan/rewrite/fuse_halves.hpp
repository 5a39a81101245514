// SPDX-License-Identifier: Apache-2.0
// Products of f32 read halves as they are, where a device claims that: the cast before them then
// goes, and so do the bytes that it writes.
#pragma once

#include <string_view>

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// The form that read_halves finds, as kFuseForms of fuse.hpp.
inline constexpr std::string_view kHalfForm = "half operand";

// matmul and linear, of which one operand is a half that was cast to f32, read the half; the casts
// stay for other readers. Every number stays what it was: f32 holds each half. Asks the nodes'
// device.
Graph read_halves(const Graph& graph, const Query& query);

}  // namespace tenon::core
