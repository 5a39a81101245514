// SPDX-License-Identifier: Apache-2.0
// The gradient request: a node until shapes are numeric, then replaced by the reverse walk
// (core/grad).
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

void grad_shape(Infer& i, const op::grad& n) {
  if (!is_float(i.dtype(n.loss)))
    i.fail(Code::dtype_mismatch, "operand loss: expected a float, got ", i.type(n.loss).text());
  if (i.shape(n.loss).elements() != 1)
    i.fail(Code::shape_mismatch, "operand loss: expected one element, got ", i.type(n.loss).text());
  for (size_t k = 0; k < n.wrt.size(); ++k) {
    if (!is_complex(i.dtype(n.wrt[k]))) i.want_float(n.wrt[k], "wrt");
    i.out(k, i.type(n.wrt[k]));
  }
}

constexpr Record<op::grad> kGrad{
    .shape = grad_shape, .padded = padded_each<op::grad>, .flops = no_products, .bytes = each_once};

}  // namespace

const OpRecord grad_def = record<op::grad, kGrad>();

}  // namespace tenon::core
