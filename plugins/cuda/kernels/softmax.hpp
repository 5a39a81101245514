// SPDX-License-Identifier: Apache-2.0
// The losses of the softmax family; the others are in softmax.cpp.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cuda {

sdk::Kernel make_cross_entropy(const sdk::op::cross_entropy& n, const sdk::Node& node);
sdk::Kernel make_cross_entropy_backward(const sdk::op::cross_entropy_backward& n,
                                        const sdk::Node& node);

}  // namespace tenon::cuda
