// SPDX-License-Identifier: Apache-2.0
// gather and scatter_add for evaluate.cpp.
#pragma once

#include "evaluate.hpp"

namespace tenon::core {

// y has its type; its numbers are not rounded.
void evaluate_gather(const op::gather& n, const Tensor& data, const Tensor& indices, Tensor& y);
void evaluate_scatter_add(const op::scatter_add& n, const Tensor& updates, const Tensor& indices,
                          const Tensor* base, Tensor& y);

}  // namespace tenon::core
