// SPDX-License-Identifier: Apache-2.0
// Record of the rope family: rope_axial2d. The columns of a grid rotate the first half of a head, its
// rows the second. With `inverse`, it is its own backward op.
#include <cmath>

#include "base/number.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

void rope_axial2d_shape(Infer& i, const op::rope_axial2d& n) {
  i.want_float(n.x, "x");
  i.want_rank(n.x, "x", 4);
  const Shape x = i.shape(n.x);
  constexpr int64_t kLongest = 1 << 20;
  for (const auto& [attr, given] : {std::pair("width", n.width), std::pair("height", n.height)})
    if (given < 1 || given > kLongest)
      i.fail(Code::invalid_argument, "attribute ", attr, ": expected a number from 1 to ", kLongest,
             ", given ", given);
  if (!std::isfinite(n.theta) || n.theta <= 0)
    i.fail(Code::invalid_argument, "attribute theta: expected a number > 0, given ", n.theta);
  if (n.exclude_tail < 0 || n.exclude_tail > x[1])
    i.fail(Code::invalid_argument, "attribute exclude_tail: expected a number from 0 to ", x[1],
           ", given ", n.exclude_tail);
  if (x[3] % 4 != 0)
    i.fail(Code::shape_mismatch, "operand x: expected heads of a multiple of 4 elements, got ",
           i.type(n.x).text());
  if ((x[1] - n.exclude_tail) % (n.width * n.height) != 0)
    i.fail(Code::shape_mismatch, "operand x: expected whole grids of ", n.width, " x ", n.height,
           " tokens before a tail of ", n.exclude_tail, ", got ", i.type(n.x).text());
  i.out(0, i.type(n.x));
}

// Rows of cosines or sines of the positions [0, count) of an axis.
Value table_of(Builder& b, DType t, int64_t count, int64_t dim, double theta,
               double (*of)(double)) {
  const int64_t width = dim / 4;
  auto data = std::make_shared<Bytes>(static_cast<size_t>(count * width) * tenon_dtype_bits(t) / 8);
  for (int64_t p = 0; p < count; ++p)
    for (int64_t k = 0; k < width; ++k) {
      const double angle = static_cast<double>(p) * std::pow(theta, -4.0 * static_cast<double>(k) /
                                                                        static_cast<double>(dim));
      const auto at = static_cast<size_t>(p * width + k);
      store_number(t, data->data() + at * tenon_dtype_bits(t) / 8, of(angle));
    }
  return b.graph.constant({t, {count, width}}, std::move(data));
}

bool rope_axial2d_lower(Lower& l, const op::rope_axial2d& n) {
  Builder& b = l.b;
  const Type type = b.type(n.x);
  const Shape x = type.shape;
  const int64_t steps = x[1] - n.exclude_tail, half = x[3] / 2;
  if (x.elements() == 0 || steps == 0) {
    l.out(0, b.copy(n.x));
    return true;
  }
  const DType wide = acc_dtype(type.dtype);
  const Value body = b.narrow(n.x, 1, 0, steps), width = b.scalar_int(kI64, n.width);
  const Value token = b.iota({steps}, 0, kI64);
  const Value cell = b.binary("mod", token, b.scalar_int(kI64, n.width * n.height));
  const auto turned = [&](int64_t first, Value place, int64_t count) -> Value {
    return b.add(op::rope{.interleaved = true,
                          .inverse = n.inverse,
                          .x = b.narrow(body, 3, first, half),
                          .cos = table_of(b, wide, count, x[3], n.theta, std::cos),
                          .sin = table_of(b, wide, count, x[3], n.theta, std::sin),
                          .position_ids = b.expand(place, {x[0], steps})});
  };
  Value y = b.concat({turned(0, b.binary("mod", cell, width), n.width),
                      turned(half, b.binary("div", cell, width), n.height)},
                     3);
  if (n.exclude_tail > 0) y = b.concat({y, b.narrow(n.x, 1, steps, n.exclude_tail)}, 1);
  l.out(0, y);
  return true;
}

void rope_axial2d_grad(Grad& g, const op::rope_axial2d& n) {
  if (!g.wants(n.x)) return;
  op::rope_axial2d back = n;
  back.x = g.dy();
  back.inverse = !n.inverse;
  g.give(n.x, g.b.add(back));
}

bool rope_axial2d_batch(Batch& v, const op::rope_axial2d& n) {
  return v.add_folded(n, [](Value) { return Value{}; });
}

constexpr Record<op::rope_axial2d> kRopeAxial2d{.shape = rope_axial2d_shape,
                                                .grad = rope_axial2d_grad,
                                                .lower = rope_axial2d_lower,
                                                .batch = rope_axial2d_batch,
                                                .flops = no_products,
                                                .bytes = each_once};

}  // namespace

const OpRecord rope_axial2d_def = record<op::rope_axial2d, kRopeAxial2d>();

}  // namespace tenon::core
