// SPDX-License-Identifier: Apache-2.0
// The gated ops of the elementwise family; their rows are with the others'.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cuda {

sdk::Kernel make_swiglu(const sdk::op::swiglu& n, const sdk::Node& node);
sdk::Kernel make_swiglu_backward(const sdk::op::swiglu_backward& n, const sdk::Node& node);

}  // namespace tenon::cuda
