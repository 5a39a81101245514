// SPDX-License-Identifier: Apache-2.0
// The ops that only look at their operand otherwise are views; copy writes what lies strided.
#include "../kernels.hpp"
#include "elementwise.hpp"
#include "tenon/layer/views.hpp"

namespace tenon::cuda {
namespace {

using sdk::Kernel;
using sdk::Node;

Kernel make_copy(const sdk::op::copy& n, const Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  if (y.dtype != x.dtype) throw sdk::Refusal::dtype("y", y.dtype);
  if (!y.same_shape(x)) throw sdk::Refusal::shape("copy: x and y differ in shape");
  if (x.dense()) {
    return {.run = [bytes = x.bytes()](const sdk::Call& c) {
      TENON_CUDA(copy_on_device, reinterpret_cast<Address>(c.outputs[0]),
                 reinterpret_cast<Address>(c.inputs[0]), bytes, static_cast<Stream>(c.stream));
    }};
  }
  BodyText text;
  const Register r = text.input("x", x.dtype, true);
  text.output(r, x.dtype, true);
  return elementwise_kernel(device_of(node), "copy", text, {n.x}, y.shape(), 0, true);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::copy, make_copy>(sdk::kStrided),
    sdk::row<sdk::op::narrow, sdk::view_narrow>(sdk::kStrided),
    sdk::row<sdk::op::transpose, sdk::view_transpose>(sdk::kStrided),
    sdk::row<sdk::op::expand, sdk::view_expand>(sdk::kStrided),
    sdk::row<sdk::op::reshape, sdk::view_reshape>(sdk::kStrided),
};

}  // namespace

std::span<const sdk::Row> shape_rows() { return kRows; }

}  // namespace tenon::cuda
