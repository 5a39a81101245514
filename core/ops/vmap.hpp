// SPDX-License-Identifier: Apache-2.0
// The request for a batch, and what batches are made of.
#pragma once

#include "ops/build.hpp"

namespace tenon::core {

struct VmapRequest {
  FunctionAttr body{};
  Ints in_axes{}, out_axes{};  // empty: 0
  std::vector<Value> xs{}, captured{};
};
bool is_vmap(const NodeInfo& node);
VmapRequest vmap_of(const NodeInfo& node);

// The first example whose flag[B] is set; 0 if there is none. B is at least 1.
Value first_set(Builder& b, Value flags);
// Without axis 0: what x has at that index.
Value row_at(Builder& b, Value x, Value index);

Type without_axis(const Type& type, int axis);
Type with_axis(const Type& type, int axis, int64_t length);

}  // namespace tenon::core
