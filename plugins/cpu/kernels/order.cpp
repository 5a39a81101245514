// SPDX-License-Identifier: Apache-2.0
// The rows of the order family. Kernels are in order_argmax.cpp, order_topk.cpp and order_sort.cpp.
#include "order.hpp"

#include "../kernels.hpp"

namespace tenon::cpu {
namespace {

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::argmax, make_argmax>(),
    sdk::row<sdk::op::argmin, make_argmin>(),
    sdk::row<sdk::op::topk, make_topk>(),
    sdk::row<sdk::op::sort, make_sort>(),
};

}  // namespace

std::span<const sdk::Row> order_rows() { return kRows; }

}  // namespace tenon::cpu
