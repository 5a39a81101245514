// SPDX-License-Identifier: Apache-2.0
// Graphs as text, for reports, tests and bug reports. print and parse are each other's inverse.
//
//   graph "mlp" {
//     symbols N
//     input x: f32[N,4]
//     weight w: f32[4,4] trainable
//     state n: i64[]
//     const c: f32[2] = {1.0, 2.5}              # large or inexact content: = 0x0000803f...
//     y = rms_norm(x, w) {eps=1e-06} @"layers.0"
//     (values, _) = topk(y) {k=3} clone 2       # _ = an operand or output that is absent
//     r = unary(y) {kind="silu"} recompute 1    # gradients run it again instead of keeping r
//     output "y" = y
//     update n = m
//   }
//
// An identifier is also the name of its value. A value without a name, or whose name is not an
// identifier or is taken, is written %<number>, followed by its name as a string if it has one. Ops
// of other domains are written domain:name, older versions of an op name/version. # starts a
// comment.
#pragma once

#include <functional>

#include "ir/graph.hpp"

namespace tenon::core {

// with_types: appends the output types of each node as a comment.
std::string print(const Graph& graph, bool with_types = false);

// Finds the record of an op; version 0 means the newest.
using FindRecord = std::function<const OpRecord*(std::string_view domain, std::string_view name,
                                                 uint32_t version)>;

// Errors start with file_name:line:column. Safe on any bytes.
Graph parse(std::string_view text, std::string_view file_name);
Graph parse(std::string_view text, std::string_view file_name, const FindRecord& find);

}  // namespace tenon::core
