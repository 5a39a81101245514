// SPDX-License-Identifier: Apache-2.0
// The makers of all kernels: kernels/<family>.cpp defines them, plugin.cpp lists them.
#pragma once

#include <tenon/kernel.hpp>

namespace tenon::sample {

using sdk::Kernel;
using sdk::Node;
namespace op = sdk::op;

Kernel make_binary(const op::binary&, const Node&);
Kernel make_compare(const op::compare&, const Node&);
Kernel make_logical(const op::logical&, const Node&);
Kernel make_unary(const op::unary&, const Node&);
Kernel make_cast(const op::cast&, const Node&);
Kernel make_where(const op::where&, const Node&);
Kernel make_matmul(const op::matmul&, const Node&);
Kernel make_lu(const op::lu&, const Node&);
Kernel make_triangular_solve(const op::triangular_solve&, const Node&);
Kernel make_cholesky(const op::cholesky&, const Node&);
Kernel make_reduce(const op::reduce&, const Node&);
Kernel make_sort(const op::sort&, const Node&);
Kernel make_cumsum(const op::cumsum&, const Node&);
Kernel make_random_bits(const op::random_bits&, const Node&);
Kernel make_gather(const op::gather&, const Node&);
Kernel make_scatter(const op::scatter&, const Node&);
Kernel make_scatter_add(const op::scatter_add&, const Node&);
Kernel make_scatter_reduce(const op::scatter_reduce&, const Node&);
Kernel make_dynamic_slice(const op::dynamic_slice&, const Node&);
Kernel make_dynamic_update_slice(const op::dynamic_update_slice&, const Node&);
Kernel make_concat(const op::concat&, const Node&);
Kernel make_pad(const op::pad&, const Node&);
Kernel make_iota(const op::iota&, const Node&);
Kernel make_dequantize_blocks(const op::dequantize_blocks&, const Node&);

}  // namespace tenon::sample
