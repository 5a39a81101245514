// SPDX-License-Identifier: Apache-2.0
// The table: which op runs here, and whether its kernel reads strided operands.
// kernels/<family>.cpp defines the makers.
#pragma once

#include <tenon/plugin.hpp>

namespace tenon::sample {

using sdk::Kernel;
using sdk::kStrided;
using sdk::Node;
using sdk::row;
namespace op = sdk::op;

Kernel make_binary(const op::binary&, const Node&);
Kernel make_compare(const op::compare&, const Node&);
Kernel make_logical(const op::logical&, const Node&);
Kernel make_unary(const op::unary&, const Node&);
Kernel make_cast(const op::cast&, const Node&);
Kernel make_where(const op::where&, const Node&);
Kernel make_matmul(const op::matmul&, const Node&);
Kernel make_reduce(const op::reduce&, const Node&);
Kernel make_sort(const op::sort&, const Node&);
Kernel make_cumsum(const op::cumsum&, const Node&);
Kernel make_random_bits(const op::random_bits&, const Node&);
Kernel make_gather(const op::gather&, const Node&);
Kernel make_scatter(const op::scatter&, const Node&);
Kernel make_scatter_add(const op::scatter_add&, const Node&);
Kernel make_dynamic_slice(const op::dynamic_slice&, const Node&);
Kernel make_dynamic_update_slice(const op::dynamic_update_slice&, const Node&);
Kernel make_concat(const op::concat&, const Node&);
Kernel make_pad(const op::pad&, const Node&);
Kernel make_iota(const op::iota&, const Node&);

inline constexpr sdk::Row kRows[] = {
    row<op::binary, make_binary>(kStrided),
    row<op::compare, make_compare>(kStrided),
    row<op::logical, make_logical>(kStrided),
    row<op::unary, make_unary>(kStrided),
    row<op::cast, make_cast>(kStrided),
    row<op::copy, sdk::strided_copy>(kStrided),
    row<op::where, make_where>(kStrided),
    row<op::matmul, make_matmul>(kStrided),
    row<op::reduce, make_reduce>(kStrided),
    row<op::sort, make_sort>(),
    row<op::cumsum, make_cumsum>(),
    row<op::random_bits, make_random_bits>(),
    row<op::gather, make_gather>(),
    row<op::scatter, make_scatter>(),
    row<op::scatter_add, make_scatter_add>(),
    row<op::dynamic_slice, make_dynamic_slice>(kStrided),
    row<op::dynamic_update_slice, make_dynamic_update_slice>(),
    row<op::narrow, sdk::view_narrow>(kStrided),
    row<op::concat, make_concat>(),
    row<op::transpose, sdk::view_transpose>(kStrided),
    row<op::expand, sdk::view_expand>(kStrided),
    row<op::reshape, sdk::view_reshape>(kStrided),
    row<op::pad, make_pad>(kStrided),
    row<op::iota, make_iota>(),
};

}  // namespace tenon::sample
