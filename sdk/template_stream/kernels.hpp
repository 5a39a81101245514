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

// loops.cpp: a kernel whose code is that of a maker for host memory. can_fail: it may throw
// Failure.
Kernel launch_of(Kernel loops, const Node& node, bool can_fail);

// The maker that launches the loops of another maker.
template <class Op, Kernel (*make)(const Op&, const Node&), bool can_fail = false>
Kernel launched(const Op& n, const Node& node) {
  return launch_of(make(n, node), node, can_fail);
}

}  // namespace tenon::sample_stream
