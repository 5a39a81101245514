// SPDX-License-Identifier: Apache-2.0
// Recurrent layers as a scan over their steps. The importer of ONNX uses it for cells that the ops
// do not have.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ops/build.hpp"

namespace tenon::core {

// One direction of a layer.
struct Recurrence {
  // The next state from a step's slice of x. The first value of the state is also the output.
  using Step = std::function<std::vector<Value>(Builder& b, Value x, std::span<const Value> state,
                                                std::span<const Value> captured)>;
  Value x{};  // [T, B, ...]
  std::vector<Value> state{}, captured{};
  Value lengths{};                 // [B, 1] i64; absent: all sequences have T steps
  DType dtype = TENON_DTYPE_NONE;  // of the outputs
  bool reverse = false;
  Step step{};
};
// Returns the last state, then the outputs of all steps. Behind its end, a sequence keeps its state
// and outputs 0.
Results add_recurrence(Builder& b, const Recurrence& layer);

}  // namespace tenon::core
