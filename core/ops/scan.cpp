// SPDX-License-Identifier: Apache-2.0
// Records of the scan family: cumsum cumprod.
#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// Bools count in i64.
template <class Op>
void scan_shape(Infer& i, const Op& n) {
  want_number_or_bool(i, n.x, "x");
  i.axis(n.axis, i.shape(n.x).rank());
  Type y = i.type(n.x);
  if (y.dtype == kBool) y.dtype = kI64;
  i.out(0, y);
}

// Only for bools.
template <class Op>
bool counted(Lower& l, const Op& n) {
  if (l.type(n.x).dtype != kBool) return false;
  Op m = n;
  m.x = l.b.cast(n.x, kI64);
  l.out(0, l.b.add(m));
  return true;
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

constexpr Record<op::cumsum> kCumsum{.shape = scan_shape<op::cumsum>,
                                     .grad = cumsum_grad,
                                     .lower = counted<op::cumsum>,
                                     .batch = batch_along_axis<op::cumsum>,
                                     .padded = cumsum_padded,
                                     .flops = no_products,
                                     .bytes = each_once};

// By doubling: after step s, each element is the product of itself and the 2^s - 1 elements before
// it. Its gradient has no quotients, so zeros do not matter.
bool cumprod_lower(Lower& l, const op::cumprod& n) {
  if (counted(l, n)) return true;
  Builder& b = l.b;
  const Type type = l.type(n.x);
  const int axis = static_cast<int>(n.axis < 0 ? n.axis + type.shape.rank() : n.axis);
  const int64_t length = type.shape[axis];
  const auto flipped = [&](Value v) {
    return n.reverse && length > 1 ? b.narrow(v, axis, length - 1, length, -1) : v;
  };
  Value y = flipped(b.widen(n.x));
  const auto shifted = [&](Value v, int64_t by) {
    Shape ones = type.shape;
    ones[axis] = by;
    const Value one = b.expand(b.scalar(b.dtype(v), 1), ones);
    return b.concat({one, b.narrow(v, axis, 0, length - by)}, axis);
  };
  if (n.exclusive && length > 0) y = shifted(y, 1);
  for (int64_t by = 1; by < length; by *= 2) y = b.times(y, shifted(y, by));
  l.out(0, b.cast(flipped(y), type.dtype));
  return true;
}

bool cumprod_padded(Padded& p, const op::cumprod& n) {
  if (n.reverse) p.fill(n.x, n.axis, Fill::one);
  return true;
}

constexpr Record<op::cumprod> kCumprod{.shape = scan_shape<op::cumprod>,
                                       .lower = cumprod_lower,
                                       .batch = batch_along_axis<op::cumprod>,
                                       .padded = cumprod_padded,
                                       .flops = no_products,
                                       .bytes = each_once};

}  // namespace

const OpRecord cumsum_def = record<op::cumsum, kCumsum>();
const OpRecord cumprod_def = record<op::cumprod, kCumprod>();

}  // namespace tenon::core
