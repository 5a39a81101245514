// SPDX-License-Identifier: Apache-2.0
// Rows of the elementwise family, and of copy.
#include "elementwise.hpp"

#include "../kernels.hpp"

namespace tenon::cpu {
using sdk::Refusal;

sdk::Kernel make_copy(const sdk::op::copy& n, const sdk::Node&) {
  const sdk::Type& type = n.x.type();
  // 4-bit elements cannot be copied one by one.
  if (tenon_dtype_bits(type.dtype) < 8 && !type.dense()) throw Refusal::dtype("x", type.dtype);
  return {.run = [copy = StridedCopy(type), position = n.x.position()](const sdk::Call& c) {
    copy.run(c.inputs[position], c.outputs[0]);
  }};
}

namespace {

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::binary, make_binary>(sdk::kStrided),
    sdk::row<sdk::op::compare, make_compare>(sdk::kStrided),
    sdk::row<sdk::op::logical, make_logical>(sdk::kStrided),
    sdk::row<sdk::op::unary, make_unary>(sdk::kStrided),
    sdk::row<sdk::op::activation_backward, make_activation_backward>(sdk::kStrided),
    sdk::row<sdk::op::cast, make_cast>(sdk::kStrided | sdk::kBlocks),
    sdk::row<sdk::op::copy, make_copy>(sdk::kStrided),
    sdk::row<sdk::op::where, make_where>(sdk::kStrided),
    sdk::row<sdk::op::swiglu, make_swiglu>(),
    sdk::row<sdk::op::swiglu_backward, make_swiglu_backward>(),
};

}  // namespace

std::span<const sdk::Row> elementwise_rows() { return kRows; }

}  // namespace tenon::cpu
