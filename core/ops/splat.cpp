// SPDX-License-Identifier: Apache-2.0
// The record of splat_project: P Gaussians seen by I cameras.
//
// The covariance of a Gaussian is M·Mᵀ with M = rotation · diag(scales), and its projection A·Aᵀ with
// A = J·V·M [2,3], where V is the camera's rotation and J the derivative of the projection. In terms
// of A the determinant is a sum of squares (Lagrange's identity), which does not cancel for long thin
// Gaussians as the difference of products would.
//
// Along a pixel's ray, a Gaussian is largest where the ray is nearest to the mean in units of the
// standard deviations. For the squared distance there, let d be the way from the pixel to the mean and
// F the form of the ellipse without eps2d and without clamping: F/((1 + p·dx + q·dy)² + k·F). The
// bracket is how far along the ray that point is, and 1/k the squared distance of the camera.
#include <array>
#include <tuple>

#include "ops/splat_points.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

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
  i.out(3, {t, {images, points, conic_width(n.response)}});
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

// A pinhole camera and a Gaussian in its axes.
struct InCamera {
  std::array<Vector3, 3> spread;  // V·M, by rows
  Value x_over_z, y_over_z, depth;
  Value per_x, per_y;  // fx/z, fy/z
};
// What a Gaussian is along rays: a, b, c, p, q, k, and the squared area of its ellipse. With A the
// rows of the ellipse, all come from their vector product, which is the normal m = adj(V·M)·(x/z, y/z, 1)
// times fx·fy/z².
struct Ray {
  std::vector<Value> conic;
  Value square;
};
Ray ray_of(Builder& b, const InCamera& at, const Value& seen) {
  const auto& [gx, gy, gz] = at.spread;
  const auto row = [&](const Vector3& g, Value ratio, Value per) {
    Vector3 out;
    for (size_t k = 0; k < 3; ++k) out[k] = b.times(per, b.minus(g[k], b.times(ratio, gz[k])));
    return out;
  };
  const Vector3 ax = row(gx, at.x_over_z, at.per_x), ay = row(gy, at.y_over_z, at.per_y);
  const Vector3 normal = cross(b, ax, ay), across = cross(b, gy, gz);
  const Value square = dot(b, normal, normal);
  const Value safe = seen ? b.where(seen, square, b.scalar(b.dtype(square), 1)) : square;
  const auto slope = [&](const Vector3& g, Value per) {
    return b.neg(b.over(b.times(dot(b, normal, g), b.over(per, at.depth)), safe));
  };
  const Value volume = b.times(dot(b, gx, across), b.times(at.per_x, at.per_y));
  const Value near = b.over(b.over(b.unary("square", volume), b.unary("square", at.depth)), safe);
  return {{b.over(dot(b, ay, ay), safe), b.neg(b.over(dot(b, ax, ay), safe)),
           b.over(dot(b, ax, ax), safe), slope(across, at.per_y), slope(cross(b, gz, gx), at.per_x),
           near},
          square};
}

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
    const Vector3 normal = cross(b, x, y);
    const Value det =
        b.plus(b.plus(dot(b, normal, normal), b.times(b.plus(xx, yy), n.eps2d)), n.eps2d * n.eps2d);
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
  InCamera own{.spread = {},
               .x_over_z = over_x,
               .y_over_z = over_y,
               .depth = depth,
               .per_x = per_x,
               .per_y = per_y};
  if (n.response == "ray3d") {
    for (size_t r = 0; r < 3; ++r)
      for (size_t c = 0; c < 3; ++c) {
        const Vector3 column = {turn[0][c], turn[1][c], turn[2][c]};
        own.spread[r][c] = b.times(dot(b, view[r], column), of_good(scale[c], one));
      }
    const Ray ray = ray_of(b, own, {});
    keep(b.compare("gt", ray.square, 0));
    for (const Value part : ray.conic) keep(finite(b, part));
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
  std::vector<Value> conic;
  if (n.response == "ray3d") {
    for (Vector3& row : own.spread)
      for (Value& part : row) part = b.where(seen, part, zero);
    for (Value* per : {&own.per_x, &own.per_y}) *per = b.where(seen, *per, zero);
    conic = ray_of(b, own, seen).conic;
  } else {
    conic = {b.over(shown.yy, det), b.neg(b.over(shown.xy, det)), b.over(shown.xx, det)};
  }
  for (Value& part : conic) part = of_seen(part);
  l.out(3, beside(b, conic));
  return true;
}

constexpr Record<op::splat_project> kSplatProject{.shape = splat_project_shape,
                                                  .words = {{"response", "ewa ray3d"}},
                                                  .lower = splat_project_lower,
                                                  .flops = no_products,
                                                  .bytes = each_once};
}  // namespace

const OpRecord splat_project_def = record<op::splat_project, kSplatProject>();

}  // namespace tenon::core
