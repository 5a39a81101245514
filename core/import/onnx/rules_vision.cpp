// SPDX-License-Identifier: Apache-2.0
// Rules: grids over pictures, and the choice of boxes.
#include <limits>

#include "import/onnx/helpers.hpp"
#include "ops/control.hpp"

namespace tenon::core::onnx {
namespace {

// The coordinates of `size` pixels in [-1, 1]: their centres, or with align_corners their corners.
Value places(Builder& b, DType t, int64_t size, bool corners) {
  const auto n = static_cast<double>(size);
  if (!corners) return b.iota({size}, 0, t, 1 / n - 1, 2 / n);
  return size < 2 ? b.iota({size}, 0, t, 0, 0) : b.iota({size}, 0, t, -1, 2 / (n - 1));
}

// theta [N, d, d + 1], size [N, C, spatial..]: grid [N, spatial.., d], the coordinate of the last
// axis first.
void affine_grid(Call& c) {
  Builder& b = c.b;
  const Shape theta = c.shape(0);
  const Ints size = c.ints(1, "size");
  const auto axes = static_cast<int64_t>(size.size()) - 2;
  if (theta.rank() != 3 || (axes != 2 && axes != 3) || theta[1] != axes || theta[2] != axes + 1)
    c.wrong("expected theta [N, d, d + 1] and size [N, C, spatial..] with d of 2 or 3, got ",
            theta.text(), " and ", size.size(), " numbers");
  const bool corners = c.flag("align_corners", false);
  const DType t = c.dtype(0);
  const Ints spatial(size.begin() + 2, size.end());
  const Shape pixels = shape_of(spatial);
  std::vector<Value> columns;
  for (int64_t k = axes; k-- > 0;) {
    Shape along;
    for (int64_t i = 0; i < axes; ++i) along.push(i == k ? spatial[static_cast<size_t>(k)] : 1);
    const Value line = b.reshape(places(b, t, spatial[static_cast<size_t>(k)], corners), along);
    columns.push_back(b.unsqueeze(b.expand(line, pixels), static_cast<int>(axes)));
  }
  Shape one = pixels;
  one.push(1);
  columns.push_back(b.full({t, one}, 1));
  const int64_t count = pixels.elements();
  const Value base = b.reshape(b.concat(columns, static_cast<int>(axes)), {1, count, axes + 1});
  Shape out{theta[0]};
  for (const int64_t d : spatial) out.push(d);
  out.push(axes);
  c.out(b.reshape(b.matmul(base, c.value(0), false, true), out));
}

// The overlap of all pairs of boxes [B, n, 4], as a share of their union: [B, n, n].
Value overlaps(Builder& b, Value boxes, bool centres) {
  const auto column = [&](int64_t k) { return b.narrow(boxes, 2, k, 1); };
  Value low[2], high[2];
  for (const int k : {0, 1}) {
    if (centres) {
      // x, y, width, height
      const Value half = b.times(column(k + 2), 0.5);
      low[k] = b.minus(column(k), half), high[k] = b.plus(column(k), half);
    } else {
      low[k] = b.min(column(k), column(k + 2)), high[k] = b.max(column(k), column(k + 2));
    }
  }
  const DType t = b.dtype(boxes);
  Value shared{};
  for (const int k : {0, 1}) {
    const Value end = b.min(high[k], b.swap_last(high[k]));
    const Value begin = b.max(low[k], b.swap_last(low[k]));
    const Value side = b.max(b.minus(end, begin), b.scalar(t, 0));
    shared = shared ? b.times(shared, side) : side;
  }
  const Value area = b.times(b.minus(high[0], low[0]), b.minus(high[1], low[1]));
  const Value both = b.minus(b.plus(area, b.swap_last(area)), shared);
  return b.where(b.compare("gt", both, 0.0), b.over(shared, both), b.scalar(t, 0));
}

// Which of the boxes, in the order of their scores, are taken: [n, B, C]. A box that overlaps one
// taken before it is not.
Value taken_boxes(Builder& b, Value scores, Value order, Value overlap, Value least, Value most,
                  Value limit) {
  const Shape s = b.shape(scores);  // [B, C, n]
  const DType t = b.dtype(scores);
  core::Graph body;
  Builder in(body, b.provenance);
  const Value dropped = body.input("dropped", {kBool, s});
  const Value count = body.input("count", {kI64, {s[0], s[1], 1}});
  const Value score = body.input("score", {t, {s[0], s[1]}}),
              box = body.input("box", {kI64, {s[0], s[1]}});
  const Value rows = body.input("overlap", {t, {s[0] * s[2], s[2]}});
  const Value floor = body.input("least", {t, {}}), ceiling = body.input("most", {t, {}});
  const Value number = body.input("limit", {kI64, {}});
  const Value at = in.unsqueeze(box, 2);
  // bool has no sums: is the box among those that are dropped?
  const Value own = in.compare("eq", in.iota({1, 1, s[2]}, 2, kI64), at);
  const Value out = in.reduce("any", in.logical("and", dropped, own), {2}, true);
  Value takes =
      in.logical("and", in.compare("gt", in.unsqueeze(score, 2), floor), in.logical("not", out));
  takes = in.logical("and", takes, in.compare("lt", count, number));
  const Value first = in.iota({s[0], 1}, 0, kI64, 0, static_cast<double>(s[2]));
  const Value row = in.add(op::gather{.data = rows, .indices = in.plus(box, first)});
  const Value near = in.logical("and", takes, in.compare("gt", row, ceiling));
  body.output("dropped", in.logical("or", dropped, near));
  body.output("count", in.plus(count, in.cast(takes, kI64)));
  body.output("takes", in.reshape(takes, {s[0], s[1]}));
  Control scan{.kind = Control::Kind::trips, .trips = s[2]};
  scan.functions = {std::make_shared<const core::Graph>(std::move(body))};
  const Value no = b.graph.constant({kBool, {}}, std::make_shared<const Bytes>(1, std::byte{0}));
  scan.carry = {b.expand(no, s), b.expand(b.scalar_int(kI64, 0), {s[0], s[1], 1})};
  scan.xs = {b.transpose(scores, {2, 0, 1}), b.transpose(order, {2, 0, 1})};
  scan.captured = {b.reshape(overlap, {s[0] * s[2], s[2]}), least, most, limit};
  return add_control(b, scan, 3)[2];
}

// boxes [B, n, 4], scores [B, C, n]: rows of batch, class and box. How many, the run finds.
void non_max_suppression(Call& c) {
  Builder& b = c.b;
  const Shape boxes = c.shape(0), s = c.shape(1);
  if (boxes.rank() != 3 || s.rank() != 3 || boxes[2] != 4 || boxes[0] != s[0] || boxes[1] != s[2])
    c.wrong("expected boxes [B, n, 4] and scores [B, C, n], got ", boxes.text(), " and ", s.text());
  if (boxes[1] > 8192) c.refuse("more than 8192 boxes: all pairs are compared");
  const DType t = c.dtype(0);
  const auto number = [&](size_t k, DType as, double otherwise) {
    return c.has(k) ? b.reshape(b.cast(c.value(k), as), {}) : b.scalar(as, otherwise);
  };
  const Results sorted = b.add(op::sort{.axis = 2, .descending = true, .x = c.value(1)});
  const Value overlap = overlaps(b, c.value(0), c.flag("center_point_box", false));
  const Value least =
      c.has(4) ? number(4, t, 0) : b.scalar(t, -std::numeric_limits<double>::infinity());
  const Value takes =
      taken_boxes(b, sorted[0], sorted[1], overlap, least, number(3, t, 0), number(2, kI64, 0));
  const Value rows =
      b.add(op::non_zero{.x = b.transpose(takes, {1, 2, 0})})[0];  // batch, class, place
  const Value weights = index_constant(b, {s[1] * s[2], s[2], 1});
  const Value flat = b.reduce("sum", b.times(rows, weights), {1}, true);
  const Value box =
      b.add(op::gather{.data = b.reshape(sorted[1], {s.elements()}), .indices = flat});
  // The last column becomes the box. A selection, as the number of rows is not known here.
  const Value last = b.compare("eq", b.iota({1, 3}, 1, kI64), b.scalar_int(kI64, 2));
  c.out(b.where(last, box, rows));
}

constexpr Rule kRules[] = {
    {"AffineGrid", 20, affine_grid},
    {"NonMaxSuppression", 10, non_max_suppression},
};

}  // namespace

std::span<const Rule> vision_rules() { return kRules; }

}  // namespace tenon::core::onnx
