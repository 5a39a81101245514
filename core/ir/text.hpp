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
// An identifier is also the value's name; a value without a name, or with one that is no identifier
// or is taken, is
// %<number>, followed by its name as a string where it has one. Another domain's op is domain:name;
// an op of an older version name/version. # begins a comment.
#pragma once

#include <functional>

#include "ir/graph.hpp"

namespace tenon::core {

// with_types: each node's output types behind it, as a comment.
std::string print(const Graph& graph, bool with_types = false);

// Finds an op's record; version 0 is the newest.
using FindRecord = std::function<const OpRecord*(std::string_view domain, std::string_view name,
                                                 uint32_t version)>;

// Throws an Error that opens with file_name:line:column. Safe on any bytes.
Graph parse(std::string_view text, std::string_view file_name);
Graph parse(std::string_view text, std::string_view file_name, const FindRecord& find);

}  // namespace tenon::core
