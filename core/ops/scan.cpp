// SPDX-License-Identifier: Apache-2.0
// Records of the scan family: cumsum.
#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

void cumsum_shape(Infer& i, const op::cumsum& n) {
  want_number(i, n.x, "x");
  i.axis(n.axis, i.shape(n.x).rank());
  i.out(0, i.type(n.x));
}

void cumsum_grad(Grad& g, const op::cumsum& n) {
  if (!g.wants(n.x)) return;
  g.give(n.x, g.b.add(op::cumsum{
                  .axis = n.axis, .exclusive = n.exclusive, .reverse = !n.reverse, .x = g.dy()}));
}

bool cumsum_padded(Padded& p, const op::cumsum& n) {
  if (n.reverse) p.fill(n.x, n.axis, Fill::zero);
  return true;
}

constexpr Record<op::cumsum> kCumsum{.shape = cumsum_shape,
                                     .grad = cumsum_grad,
                                     .batch = batch_along_axis<op::cumsum>,
                                     .padded = cumsum_padded,
                                     .flops = no_products,
                                     .bytes = each_once};

}  // namespace

const OpRecord cumsum_def = record<op::cumsum, kCumsum>();

}  // namespace tenon::core
