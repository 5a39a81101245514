// SPDX-License-Identifier: Apache-2.0
// Rules: grids over pictures.
#include "import/onnx/helpers.hpp"

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

constexpr Rule kRules[] = {
    {"AffineGrid", 20, affine_grid},
};

}  // namespace

std::span<const Rule> vision_rules() { return kRules; }

}  // namespace tenon::core::onnx
