// SPDX-License-Identifier: Apache-2.0
// The makers of all kernels: kernels/<name>.cpp defines them, plugin.cpp lists them.
#pragma once

#include <tenon/kernel.hpp>

namespace tenon::sample_stream {

using sdk::Kernel;
using sdk::Node;
namespace op = sdk::op;

// copy.cpp: a kernel with code of its own, as all of a real backend are.
Kernel make_copy(const op::copy&, const Node&);

// loops.cpp: a kernel whose code is that of a maker for host memory. checked: the operand
// whose data the code checks: it throws Failure for a bad index, or for a bad matrix. Absent: the code
// cannot fail.
Kernel launch_of(Kernel loops, const Node& node, const sdk::Value& checked);

// The maker that launches the loops of another maker. operand: a member of Op, or nullptr.
template <class Op, Kernel (*make)(const Op&, const Node&), auto operand = nullptr>
Kernel launched(const Op& n, const Node& node) {
  sdk::Value checked;
  if constexpr (operand != nullptr) checked = n.*operand;
  return launch_of(make(n, node), node, checked);
}

}  // namespace tenon::sample_stream
