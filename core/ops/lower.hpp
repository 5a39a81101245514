// SPDX-License-Identifier: Apache-2.0
// One node written in other ops, for the passes that decompose.
#pragma once

#include "ops/record.hpp"

namespace tenon::core {

// `node`: a copy of the node whose operands are values of b.graph; its outputs only tell which are
// wanted. True: results (as long as the outputs) holds a value for each wanted output. False: the
// op has no decomposition, or this node is primitive; nothing was written.
bool lower_into(Builder& b, const NodeInfo& node, std::vector<Value>& results);

}  // namespace tenon::core
