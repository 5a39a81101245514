// SPDX-License-Identifier: Apache-2.0
// The axes that operands share, with neighbours joined where all operands allow it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tenon/kernel.hpp"

namespace tenon::cuda {

struct Loop {
  std::vector<int64_t> dims;                  // outermost first, at least one
  std::vector<std::vector<int64_t>> strides;  // [operand][axis], elements
  int64_t count = 1;
  // Dims from here on are of the axes that make_loop was told to keep apart.
  std::array<size_t, 2> splits{};

  size_t rank() const { return dims.size(); }
  int64_t inner() const { return dims.back(); }
};

// Operands broadcast to `shape` (NumPy); refuses those that do not. Axes from one of `splits` on
// are not joined with those before it.
inline Loop make_loop(std::span<const int64_t> shape, const std::vector<const sdk::Type*>& operands,
                      std::array<size_t, 2> splits = {}) {
  const int rank = static_cast<int>(shape.size());
  std::vector<std::vector<int64_t>> strides(operands.size());
  for (size_t k = 0; k < operands.size(); ++k) {
    const sdk::Type& t = *operands[k];
    if (t.rank > rank) throw sdk::Refusal::shape("an operand has a higher rank than the result");
    strides[k].assign(static_cast<size_t>(rank), 0);
    for (int i = 0; i < t.rank; ++i) {
      const auto at = static_cast<size_t>(i + rank - t.rank);
      if (t.dims[i] != shape[at] && t.dims[i] != 1)
        throw sdk::Refusal::shape("an operand does not broadcast to the result");
      strides[k][at] = t.dims[i] == 1 ? 0 : t.strides[i];
    }
  }
  Loop loop;
  loop.strides.resize(operands.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    loop.count *= shape[axis];
    for (size_t k = 0; k < splits.size(); ++k)
      if (axis == splits[k]) loop.splits[k] = loop.dims.size();
    if (shape[axis] == 1) continue;
    bool joins = loop.dims.size() > std::max(loop.splits[0], loop.splits[1]);
    for (size_t k = 0; joins && k < operands.size(); ++k)
      joins = loop.strides[k].back() == strides[k][axis] * shape[axis];
    if (joins) {
      loop.dims.back() *= shape[axis];
    } else {
      loop.dims.push_back(shape[axis]);
      for (auto& s : loop.strides) s.push_back(0);
    }
    for (size_t k = 0; k < operands.size(); ++k) loop.strides[k].back() = strides[k][axis];
  }
  for (size_t k = 0; k < splits.size(); ++k)
    if (splits[k] >= shape.size()) loop.splits[k] = loop.dims.size();
  if (loop.dims.size() == loop.splits[0]) {
    loop.dims.push_back(1);
    for (auto& s : loop.strides) s.push_back(0);
  }
  return loop;
}

}  // namespace tenon::cuda
