// SPDX-License-Identifier: Apache-2.0
// What ops share that multiply each row of x with the matrix of its expert. Rows name their experts
// by `ids`, or follow one another by expert, with `offsets`.
#pragma once

#include "ops/padded.hpp"
#include "ops/record.hpp"

namespace tenon::core {

template <class Op>
void want_experts(const Infer& i, const Op& n, int64_t rows, int64_t experts) {
  if (experts == 0 && rows != 0)
    i.fail(Code::shape_mismatch, "operand w: expected at least one expert for the rows of x ",
           i.type(n.x).text(), ", got ", i.type(n.w).text());
  if (!n.ids == !n.offsets)
    i.fail(Code::invalid_argument, "expected one of operands ids and offsets, got ",
           n.ids ? "both" : "neither");
  i.want_index(n.ids, "ids");
  i.want_shape(n.ids, "ids", {rows});
  i.want_index(n.offsets, "offsets");
  i.want_shape(n.offsets, "offsets", {experts + 1});
  if (n.p && i.dtype(n.p) != i.dtype(n.x) && i.dtype(n.p) != kF32)
    i.fail(Code::dtype_mismatch, "operand p: expected ", dtype_name(i.dtype(n.x)), " or f32, got ",
           i.type(n.p).text());
  i.want_shape(n.p, "p", {rows});
}

// Rows of no meaning belong to no expert: their id is -1.
template <class Op>
bool grouped_padded(Padded& p, const Op& n) {
  if (!n.ids) return p.refuse("its offsets would count padded rows");
  if (p.any_from(n.x, 1) || p.any(n.w)) return p.refuse("an axis other than its rows is padded");
  p.fill(n.ids, 0, p.b.scalar_int(p.type(n.ids).dtype, -1));
  return true;
}

}  // namespace tenon::core
