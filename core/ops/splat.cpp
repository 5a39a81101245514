// SPDX-License-Identifier: Apache-2.0
// Records of the splat family: splat_project splat_sh. P Gaussians seen by I cameras.
//
// The covariance of a Gaussian is M·Mᵀ with M = rotation · diag(scales), and its projection A·Aᵀ with
// A = J·V·M [2,3], where V is the camera's rotation and J the derivative of the projection. In terms
// of A the determinant is a sum of squares (Lagrange's identity), which does not cancel for long thin
// Gaussians as the difference of products would.
#include "ops/splat.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- shape

void want_points(const Infer& i, Value v, std::string_view operand, Dim width) {
  want_f32_or_f64(i, v, operand);
  i.want_rank(v, operand, 2);
  i.want_shape(v, operand, {i.shape(v)[0], width});
}

void splat_project_shape(Infer& i, const op::splat_project& n) {
  want_projection(i, n);
  want_points(i, n.means, "means", 3);
  const DType t = i.dtype(n.means);
  const Dim points = i.shape(n.means)[0];
  for (const auto& [name, v, width] :
       {std::tuple("quats", n.quats, 4), std::tuple("scales", n.scales, 3)}) {
    i.want_same_dtype(v, name, n.means, "means");
    i.want_shape(v, name, {points, width});
  }
  i.want_same_dtype(n.viewmats, "viewmats", n.means, "means");
  i.want_rank(n.viewmats, "viewmats", 3);
  const Dim images = i.shape(n.viewmats)[0];
  i.want_shape(n.viewmats, "viewmats", {images, 4, 4});
  i.want_same_dtype(n.intrinsics, "intrinsics", n.means, "means");
  i.want_shape(n.intrinsics, "intrinsics", {images, 3, 3});
  i.out(0, {kI32, {images, points}});
  i.out(1, {t, {images, points, 2}});
  i.out(2, {t, {images, points}});
  i.out(3, {t, {images, points, 3}});
}

void splat_sh_shape(Infer& i, const op::splat_sh& n) {
  want_points(i, n.means, "means", 3);
  i.want_same_dtype(n.viewmats, "viewmats", n.means, "means");
  i.want_rank(n.viewmats, "viewmats", 3);
  const Dim images = i.shape(n.viewmats)[0], points = i.shape(n.means)[0];
  i.want_shape(n.viewmats, "viewmats", {images, 4, 4});
  want_harmonics(i, n.degree, n.coeffs, n.means);
  i.out(0, {i.dtype(n.means), {images, points, 3}});
}

// ---- vectors, matrices

// A component of each point, [1,P], of each camera, [I,1], or of each pair, [I,P].
using Vector3 = std::array<Value, 3>;

// x[.., at] of x [P, width].
Value of_points(Builder& b, Value x, int64_t at) {
  return b.reshape(b.narrow(x, 1, at, 1), {1, b.shape(x)[0]});
}
// x[:, row, column] of matrices x [I, n, n].
Value of_cameras(Builder& b, Value x, int64_t row, int64_t column) {
  return b.reshape(b.narrow(b.narrow(x, 1, row, 1), 2, column, 1), {b.shape(x)[0], 1});
}
Vector3 points_of(Builder& b, Value x) {
  return {of_points(b, x, 0), of_points(b, x, 1), of_points(b, x, 2)};
}
// The rotation of world to camera, by rows.
std::array<Vector3, 3> rotation_of(Builder& b, Value viewmats) {
  std::array<Vector3, 3> out;
  for (size_t r = 0; r < 3; ++r)
    for (size_t c = 0; c < 3; ++c)
      out[r][c] = of_cameras(b, viewmats, static_cast<int64_t>(r), static_cast<int64_t>(c));
  return out;
}
Value dot(Builder& b, const Vector3& x, const Vector3& y) {
  return b.plus(b.plus(b.times(x[0], y[0]), b.times(x[1], y[1])), b.times(x[2], y[2]));
}
// x·a - y·c.
Value difference(Builder& b, Value x, Value a, Value y, Value c) {
  return b.minus(b.times(x, a), b.times(y, c));
}
// Puts components [I,P] side by side: [I,P,n].
Value beside(Builder& b, std::initializer_list<Value> parts) {
  std::vector<Value> all;
  for (const Value v : parts) all.push_back(b.unsqueeze(v, 2));
  return b.concat(all, 2);
}

// True where an element is neither NaN nor infinite.
Value finite(Builder& b, Value x) {
  return b.compare("lt", b.unary("abs", x), std::numeric_limits<double>::infinity());
}
// True for rows of x [N, ..] whose elements are all finite.
Value finite_rows(Builder& b, Value x) {
  Ints axes;
  for (int k = 1; k < b.shape(x).rank(); ++k) axes.push_back(k);
  return b.reduce("min", b.cast(finite(b, x), kI32), axes, false);
}

// The rotation matrix of q / |q|, by rows; q = (w, x, y, z).
std::array<Vector3, 3> rotation_matrix(Builder& b, const std::array<Value, 4>& q) {
  const auto [w, x, y, z] = q;
  const auto twice = [&](Value v) { return b.times(v, 2); };
  const auto on = [&](Value p, Value q2) {  // 1 - 2(p² + q²)
    return b.binary("sub", b.scalar(b.dtype(p), 1), twice(b.plus(b.times(p, p), b.times(q2, q2))));
  };
  const auto plus = [&](Value p, Value q2, Value r) {  // 2(pq + wr)
    return twice(b.plus(b.times(p, q2), b.times(w, r)));
  };
  const auto minus = [&](Value p, Value q2, Value r) { return twice(difference(b, p, q2, w, r)); };
  return {{{on(y, z), minus(x, y, z), plus(x, z, y)},
           {plus(x, y, z), on(x, z), minus(y, z, x)},
           {minus(x, z, y), plus(y, z, x), on(x, y)}}};
}

// ---- splat_project

// Culled Gaussians use safe placeholder values, so that no value and no gradient is NaN.
bool splat_project_lower(Lower& l, const op::splat_project& n) {
  Builder& b = l.b;
  const DType t = b.dtype(n.means);
  const Value zero = b.scalar(t, 0), one = b.scalar(t, 1);
  const auto width = static_cast<double>(n.width), height = static_cast<double>(n.height);

  // Operands, with other numbers where one of a Gaussian or a camera is not finite.
  std::array<Value, 4> q;
  for (size_t k = 0; k < 4; ++k) q[k] = of_points(b, n.quats, static_cast<int64_t>(k));
  const Vector3 mean = points_of(b, n.means), scale = points_of(b, n.scales);
  const auto reshaped = [&](Value v, Shape shape) {
    return b.compare("ne", b.reshape(v, shape), b.scalar_int(kI32, 0));
  };
  const Dim points = b.shape(n.means)[0], images = b.shape(n.viewmats)[0];
  Value good = reshaped(
      b.min(b.min(finite_rows(b, n.means), finite_rows(b, n.quats)), finite_rows(b, n.scales)),
      {1, points});
  const Value camera =
      reshaped(b.min(finite_rows(b, n.viewmats), finite_rows(b, n.intrinsics)), {images, 1});
  // |q| by the largest component: no square overflows or vanishes.
  Value largest = b.unary("abs", q[0]);
  for (size_t k = 1; k < 4; ++k) largest = b.max(largest, b.unary("abs", q[k]));
  good = b.logical("and", good, b.compare("gt", largest, 0));
  const auto of_good = [&](Value v, Value otherwise) { return b.where(good, v, otherwise); };
  const auto of_camera = [&](Value v) { return b.where(camera, v, one); };
  largest = b.add(op::stop_gradient{.x = of_good(largest, one)});
  Value norm = zero;
  for (size_t k = 0; k < 4; ++k) {
    q[k] = of_good(q[k], k == 0 ? one : zero);
    norm = b.plus(norm, b.unary("square", b.over(q[k], largest)));
  }
  norm = b.times(b.unary("sqrt", norm), largest);
  for (Value& part : q) part = b.over(part, norm);
  std::array<Vector3, 3> view = rotation_of(b, n.viewmats);
  Vector3 shift;
  for (size_t r = 0; r < 3; ++r) {
    shift[r] = of_camera(of_cameras(b, n.viewmats, static_cast<int64_t>(r), 3));
    for (Value& v : view[r]) v = of_camera(v);
  }
  const auto intrinsic = [&](int64_t row, int64_t column) {
    return of_camera(of_cameras(b, n.intrinsics, row, column));
  };
  const Value fx = intrinsic(0, 0), fy = intrinsic(1, 1), cx = intrinsic(0, 2),
              cy = intrinsic(1, 2);

  // The centre in the camera's axes.
  Vector3 position, p;
  for (size_t k = 0; k < 3; ++k) position[k] = of_good(mean[k], zero);
  for (size_t r = 0; r < 3; ++r) p[r] = b.plus(dot(b, view[r], position), shift[r]);
  Value seen = b.logical("and", b.compare("gt", p[2], n.near), b.compare("lt", p[2], n.far));
  seen = b.logical("and", seen, b.logical("and", good, camera));
  // Gradients divide by the depth twice.
  const Value safe = b.where(seen, p[2], one);
  for (const Value part : {p[0], p[1]})
    seen = b.logical("and", seen, finite(b, b.over(b.over(part, safe), safe)));
  for (Value& part : p) part = b.where(seen, part, zero);
  const Value depth = b.where(seen, p[2], one);
  const Value over_x = b.over(p[0], depth), over_y = b.over(p[1], depth);

  // J·V, with x/z and y/z kept near the image.
  const auto slope = [&](Value ratio, Value focal, Value centre, double size) {
    const Value margin = b.over(b.scalar(t, 0.15 * size), focal);
    const Value low = b.neg(b.plus(b.over(centre, focal), margin));
    const Value high = b.plus(b.over(b.minus(b.scalar(t, size), centre), focal), margin);
    return b.max(b.min(ratio, high), low);
  };
  const Value ux = slope(over_x, fx, cx, width), uy = slope(over_y, fy, cy, height);
  const Value per_x = b.over(fx, depth), per_y = b.over(fy, depth);
  const std::array<Vector3, 3> turn = rotation_matrix(b, q);
  Vector3 row_x, row_y;  // of J·V
  for (size_t c = 0; c < 3; ++c) {
    row_x[c] = b.times(per_x, b.minus(view[0][c], b.times(ux, view[2][c])));
    row_y[c] = b.times(per_y, b.minus(view[1][c], b.times(uy, view[2][c])));
  }
  Vector3 ax, ay;  // the rows of A
  for (size_t c = 0; c < 3; ++c) {
    const Value size = of_good(scale[c], one);
    const Vector3 column = {turn[0][c], turn[1][c], turn[2][c]};
    ax[c] = b.times(dot(b, row_x, column), size);
    ay[c] = b.times(dot(b, row_y, column), size);
  }

  // Σ2 = A·Aᵀ + eps2d.
  struct Spread {
    Value xx, xy, yy, det;
  };
  const auto spread = [&](const Vector3& x, const Vector3& y) {
    const Value xx = dot(b, x, x), yy = dot(b, y, y);
    Vector3 cross;
    for (size_t k = 0; k < 3; ++k) {
      const size_t next = (k + 1) % 3;
      cross[k] = difference(b, x[k], y[next], x[next], y[k]);
    }
    const Value det =
        b.plus(b.plus(dot(b, cross, cross), b.times(b.plus(xx, yy), n.eps2d)), n.eps2d * n.eps2d);
    return Spread{b.plus(xx, n.eps2d), dot(b, x, y), b.plus(yy, n.eps2d), det};
  };
  const Spread all = spread(ax, ay);
  const Value u = b.plus(b.times(over_x, fx), cx), v = b.plus(b.times(over_y, fy), cy);
  const Value half = b.times(b.plus(all.xx, all.yy), 0.5);
  // h² - det, which would cancel for round Gaussians.
  const Value apart = b.times(b.minus(all.xx, all.yy), 0.5);
  const Value square = b.plus(b.times(apart, apart), b.times(all.xy, all.xy));
  const Value root = b.unary("sqrt", b.max(square, b.scalar(t, 0.01)));
  const Value radius = b.unary("ceil", b.times(b.unary("sqrt", b.plus(half, root)), 3));

  const auto keep = [&](Value condition) { seen = b.logical("and", seen, condition); };
  keep(b.compare("gt", all.det, 0));
  keep(finite(b, all.det));
  keep(finite(b, radius));
  keep(b.compare("gt", radius, n.radius_clip));
  for (const auto& [at, size] : {std::pair(u, width), std::pair(v, height)}) {
    keep(b.compare("gt", b.plus(at, radius), 0));
    keep(b.compare("lt", b.minus(at, radius), size));
  }
  // Once more for visible Gaussians only: the gradients of culled ones would meet infinities here.
  for (Vector3* row : {&ax, &ay})
    for (Value& part : *row) part = b.where(seen, part, zero);
  const Spread shown = spread(ax, ay);
  const Value det = b.where(seen, shown.det, one);
  const auto of_seen = [&](Value value) { return b.where(seen, value, zero); };
  // A radius beyond i32 covers any image.
  constexpr double kLargestRadius = 1 << 30;
  l.out(0, b.cast(b.min(of_seen(radius), b.scalar(t, kLargestRadius)), kI32));
  l.out(1, beside(b, {of_seen(u), of_seen(v)}));
  l.out(2, of_seen(p[2]));
  l.out(3, beside(b, {of_seen(b.over(shown.yy, det)), of_seen(b.neg(b.over(shown.xy, det))),
                      of_seen(b.over(shown.xx, det))}));
  return true;
}

// ---- splat_sh

// Real spherical harmonics at the unit vector d up to a degree, with the signs of 3D Gaussian
// splatting.
std::vector<Value> harmonics(Builder& b, const Vector3& d, int64_t degree) {
  const auto [x, y, z] = d;
  const auto times = [&](Value v, double factor) { return b.times(v, factor); };
  std::vector<Value> out = {b.scalar(b.dtype(x), 0.28209479177387814)};
  if (degree == 0) return out;
  constexpr double k1 = 0.4886025119029199;
  out.insert(out.end(), {times(y, -k1), times(z, k1), times(x, -k1)});
  if (degree == 1) return out;
  const Value xx = b.times(x, x), yy = b.times(y, y), zz = b.times(z, z);
  const Value xy = b.times(x, y), yz = b.times(y, z), xz = b.times(x, z);
  const Value across = b.minus(xx, yy);
  const auto weighted = [&](double of_zz, double of_rest) {  // of_zz·z² + of_rest·(x² + y²)
    return b.plus(times(zz, of_zz), times(b.plus(xx, yy), of_rest));
  };
  constexpr double k2 = 1.0925484305920792;
  out.insert(out.end(), {times(xy, k2), times(yz, -k2), times(weighted(2, -1), 0.31539156525252005),
                         times(xz, -k2), times(across, k2 / 2)});
  if (degree == 2) return out;
  constexpr double k3 = 0.5900435899266435, k4 = 2.890611442640554, k5 = 0.4570457994644658,
                   k6 = 0.3731763325901154;
  const auto mixed = [&](double of_xx, double of_yy) {
    return b.plus(times(xx, of_xx), times(yy, of_yy));
  };
  out.insert(out.end(),
             {times(b.times(y, mixed(3, -1)), -k3), times(b.times(xy, z), k4),
              times(b.times(y, weighted(4, -1)), -k5), times(b.times(z, weighted(2, -3)), k6),
              times(b.times(x, weighted(4, -1)), -k5), times(b.times(z, across), k4 / 2),
              times(b.times(x, mixed(1, -3)), -k3)});
  return out;
}

// The direction from a camera's centre -Vᵀt to each point; zero for the centre itself.
Vector3 directions(Builder& b, Value means, Value viewmats) {
  const std::array<Vector3, 3> view = rotation_of(b, viewmats);
  const Vector3 mean = points_of(b, means);
  Vector3 shift, d;
  for (size_t r = 0; r < 3; ++r) shift[r] = of_cameras(b, viewmats, static_cast<int64_t>(r), 3);
  for (size_t c = 0; c < 3; ++c)
    d[c] = b.plus(mean[c], dot(b, {view[0][c], view[1][c], view[2][c]}, shift));
  // Divided by the largest part first: no square overflows or vanishes.
  Value largest = b.max(b.max(b.unary("abs", d[0]), b.unary("abs", d[1])), b.unary("abs", d[2]));
  largest = b.where(b.compare("eq", largest, 0), b.scalar(b.dtype(means), 1),
                    Value(b.add(op::stop_gradient{.x = largest})));
  for (Value& part : d) part = b.over(part, largest);
  const Value square = dot(b, d, d);
  const Value length =
      b.unary("sqrt", b.where(b.compare("eq", square, 0), b.scalar(b.dtype(means), 1), square));
  for (Value& part : d) part = b.over(part, length);
  return d;
}

// A Gaussian or a camera that is not finite counts as one of zeros, and has no gradient.
bool splat_sh_lower(Lower& l, const op::splat_sh& one) {
  Builder& b = l.b;
  op::splat_sh n = one;
  const Value zero = b.scalar(b.dtype(n.means), 0);
  Value rows = finite_rows(b, n.coeffs);
  if (n.degree > 0) rows = b.min(rows, finite_rows(b, n.means));
  const Value good = b.compare("ne", rows, b.scalar_int(kI32, 0));
  n.means = b.where(b.unsqueeze(good, 1), n.means, zero);
  n.coeffs = b.where(b.unsqueeze(b.unsqueeze(good, 1), 2), n.coeffs, zero);
  const Value camera = b.compare("ne", finite_rows(b, n.viewmats), b.scalar_int(kI32, 0));
  n.viewmats = b.where(b.unsqueeze(b.unsqueeze(camera, 1), 2), n.viewmats, zero);
  // One sum over all terms: its gradient by the coefficients is one product, where a sum term by term
  // would write all coefficients for each.
  std::vector<Value> basis = harmonics(b, directions(b, n.means, n.viewmats), n.degree);
  const Dim points = b.shape(n.means)[0], images = b.shape(n.viewmats)[0];
  const auto terms = static_cast<int64_t>(basis.size());
  for (Value& v : basis) v = b.unsqueeze(b.expand(v, {images, points}), 2);
  const Value used = b.reshape(b.narrow(n.coeffs, 1, 0, terms), {1, points, terms, 3});
  const Value product = b.times(used, b.unsqueeze(b.concat(basis, 2), 3));
  const Value sum = b.sum(product, {2}, false);
  l.out(0, b.unary("relu", b.plus(sum, 0.5)));
  return true;
}

constexpr Record<op::splat_project> kSplatProject{.shape = splat_project_shape,
                                                  .lower = splat_project_lower,
                                                  .flops = no_products,
                                                  .bytes = each_once};
constexpr Record<op::splat_sh> kSplatSh{
    .shape = splat_sh_shape, .lower = splat_sh_lower, .flops = no_products, .bytes = each_once};

}  // namespace

const OpRecord splat_project_def = record<op::splat_project, kSplatProject>();
const OpRecord splat_sh_def = record<op::splat_sh, kSplatSh>();

}  // namespace tenon::core
