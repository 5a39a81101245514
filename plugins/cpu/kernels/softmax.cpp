// SPDX-License-Identifier: Apache-2.0
// softmax and its backward op: checks, and distribution of the lines. The losses are in
// softmax_loss.cpp.
#include "softmax.hpp"

#include "../kernels.hpp"
#include "nontemporal.hpp"

namespace tenon::cpu {
namespace {

sdk::Kernel make_softmax(const sdk::op::softmax& n, const sdk::Node&) {
  const sdk::Type& x = n.x.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  const AxisView view = along_axis(x, n.axis);
  const int64_t bytes = element_bytes("x", x.dtype);
  const int64_t total = static_cast<int64_t>(x.bytes());
  const auto run = [=, dtype = x.dtype, log = n.log](const sdk::Call& c) {
    const bool nontemporal = bypasses_cache(c.outputs[0], total, {c.inputs[0]});
    for_lines(view, bytes, 4 * bytes, [&](const Lines& lines) {
      softmax_forward(dtype, lines, log, nontemporal, c.inputs[0], c.outputs[0]);
    });
  };
  return {.run = run, .in_place = {{0, 0}}};
}

sdk::Kernel make_softmax_backward(const sdk::op::softmax_backward& n, const sdk::Node&) {
  const sdk::Type& y = n.y.type();
  if (!is_float(y.dtype)) throw sdk::Refusal::dtype("y", y.dtype);
  const AxisView view = along_axis(y, n.axis);
  const int64_t bytes = element_bytes("y", y.dtype);
  const int64_t total = static_cast<int64_t>(y.bytes());
  const auto run = [=, dtype = y.dtype, log = n.log](const sdk::Call& c) {
    const bool nontemporal = bypasses_cache(c.outputs[0], total, {c.inputs[0], c.inputs[1]});
    for_lines(view, bytes, 4 * bytes, [&](const Lines& lines) {
      softmax_backward(dtype, lines, log, nontemporal, c.inputs[0], c.inputs[1], c.outputs[0]);
    });
  };
  return {.run = run, .in_place = {{0, 0}, {1, 0}}};
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::softmax, make_softmax>(),
    sdk::row<sdk::op::softmax_backward, make_softmax_backward>(),
    sdk::row<sdk::op::cross_entropy, make_cross_entropy>(),
    sdk::row<sdk::op::cross_entropy_backward, make_cross_entropy_backward>(),
};

}  // namespace

std::span<const sdk::Row> softmax_rows() { return kRows; }

}  // namespace tenon::cpu
