// SPDX-License-Identifier: Apache-2.0
// Joins products with blocks of quantized weights with the norm of what they multiply, and with the gate
// of what they make. A part of `fuse`, which has joined the norms with the sums before them.
#pragma once

#include "plan/rewrite/claims.hpp"

namespace tenon::core {

Graph join_block_products(Graph graph, const Query& query);

}  // namespace tenon::core
