// SPDX-License-Identifier: Apache-2.0
// The record of splat_sh: colors of Gaussians from spherical harmonics.
#include "ops/splat_points.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

void splat_sh_shape(Infer& i, const op::splat_sh& n) {
  want_points(i, n.means, "means", 3);
  i.want_same_dtype(n.viewmats, "viewmats", n.means, "means");
  i.want_rank(n.viewmats, "viewmats", 3);
  const Dim images = i.shape(n.viewmats)[0], points = i.shape(n.means)[0];
  i.want_shape(n.viewmats, "viewmats", {images, 4, 4});
  want_harmonics(i, n.degree, n.coeffs, n.means);
  i.out(0, {i.dtype(n.means), {images, points, 3}});
}

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

constexpr Record<op::splat_sh> kSplatSh{
    .shape = splat_sh_shape, .lower = splat_sh_lower, .flops = no_products, .bytes = each_once};

}  // namespace

const OpRecord splat_sh_def = record<op::splat_sh, kSplatSh>();

}  // namespace tenon::core
