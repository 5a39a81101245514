// SPDX-License-Identifier: Apache-2.0
// gather, scatter_add and scatter_reduce for evaluate.cpp.
#pragma once

#include "evaluate.hpp"

namespace tenon::core {

// y has its type; its numbers are not rounded.
void evaluate_gather(const op::gather& n, const Tensor& data, const Tensor& indices, Tensor& y);
void evaluate_scatter_add(const op::scatter_add& n, const Tensor& updates, const Tensor& indices,
                          const Tensor* base, Tensor& y);
void evaluate_scatter_reduce(const op::scatter_reduce& n, const Tensor& base, const Tensor& indices,
                             const Tensor& updates, Tensor& y);

}  // namespace tenon::core
