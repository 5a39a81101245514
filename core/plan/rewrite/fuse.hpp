// SPDX-License-Identifier: Apache-2.0
// Joins nodes into the composite ops that a device claims: a product with its bias, activation and
// residual, a sum with the norm that reads it, a gate with what it gates, a product with blocks of
// quantized weights with the norm before it and the gate behind it. Only what the device
// answers `native` to is joined, and a value that others read, or that leaves the graph, stays.
#pragma once

#include <optional>
#include <string_view>

#include "ops/record.hpp"
#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// Every form, in the order in which they are tried. exec.random_form spells each one out. Products
// with blocks are joined behind them; exec.fuse_blocks has random graphs of these.
inline constexpr std::string_view kFuseForms[] = {"gate", "product", "residual layer_norm",
                                                  "residual rms_norm"};

// Asks the nodes' device, a graph of one node at a time, each kind of node once. Types must be
// numeric. What was joined, and why a candidate was not, stands in the nodes' notes.
Graph fuse(const Graph& graph, const Query& query);

// A product, which is a matmul too, as a linear op: one without a residual that keeps nothing more.
// Nothing for another node.
std::optional<op::linear> product_of(const NodeInfo& node);

}  // namespace tenon::core
