// SPDX-License-Identifier: Apache-2.0
// splat_sh: the colors of Gaussians, point by point.
#include <algorithm>
#include <cmath>

#include "../parallel.hpp"
#include "splat.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kMostTerms = 16;

// Real spherical harmonics at a unit vector, with the signs of 3D Gaussian splatting.
template <class T>
void harmonics(T x, T y, T z, int64_t degree, T* to) {
  to[0] = T(0.28209479177387814);
  if (degree < 1) return;
  constexpr T k1 = T(0.4886025119029199);
  to[1] = -k1 * y, to[2] = k1 * z, to[3] = -k1 * x;
  if (degree < 2) return;
  constexpr T k2 = T(1.0925484305920792), k20 = T(0.31539156525252005);
  const T xx = x * x, yy = y * y, zz = z * z, xy = x * y;
  to[4] = k2 * xy, to[5] = -k2 * (y * z), to[6] = k20 * (2 * zz - (xx + yy));
  to[7] = -k2 * (x * z), to[8] = k2 / 2 * (xx - yy);
  if (degree < 3) return;
  constexpr T k3 = T(0.5900435899266435), k4 = T(2.890611442640554), k5 = T(0.4570457994644658),
              k6 = T(0.3731763325901154);
  to[9] = -k3 * (y * (3 * xx - yy)), to[10] = k4 * (xy * z);
  to[11] = -k5 * (y * (4 * zz - (xx + yy))), to[12] = k6 * (z * (2 * zz - 3 * (xx + yy)));
  to[13] = -k5 * (x * (4 * zz - (xx + yy))), to[14] = k4 / 2 * (z * (xx - yy));
  to[15] = -k3 * (x * (xx - 3 * yy));
}

template <class T>
bool all_finite(const T* x, int64_t count) {
  // Zero times a number that is not finite is NaN.
  T sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] * 0;
  return sum == 0;
}

struct Colors {
  int64_t images, points, terms, degree;

  // view: [4, 4], from world to camera.
  template <class T>
  void point(const T* mean, const T* coeffs, const T* view, T* to) const {
    const int64_t used = (degree + 1) * (degree + 1);
    T basis[kMostTerms] = {T(0.28209479177387814)};
    T sum[3] = {0, 0, 0};
    const bool good = all_finite(coeffs, 3 * terms) && (degree == 0 || all_finite(mean, 3));
    if (good && degree > 0) {
      constexpr T kNone[16] = {};
      if (!all_finite(view, 16)) view = kNone;
      T d[3], largest = 0;
      for (int c = 0; c < 3; ++c) {
        d[c] = mean[c] + (view[c] * view[3] + view[4 + c] * view[7] + view[8 + c] * view[11]);
        largest = std::isnan(d[c]) ? d[c] : std::max(largest, std::abs(d[c]));
      }
      if (largest != 0) {  // divided by the largest part first: no square overflows or vanishes
        T square = 0;
        for (T& part : d) part /= largest, square += part * part;
        const T length = std::sqrt(square);
        for (T& part : d) part /= length;
      }
      harmonics(d[0], d[1], d[2], degree, basis);
    }
    for (int64_t k = 0; good && k < used; ++k)
      for (int c = 0; c < 3; ++c) sum[c] += basis[k] * coeffs[3 * k + c];
    for (int c = 0; c < 3; ++c) {
      const T v = sum[c] + T(0.5);
      to[c] = v < 0 ? T{0} : v;  // keeps NaN
    }
  }
};

template <class T>
sdk::Kernel colors(const Colors& n, int means, int viewmats, int coeffs) {
  sdk::Kernel kernel;
  kernel.run = [=](const sdk::Call& c) {
    const T *const mean = c.in<T>(means), *const views = c.in<T>(viewmats);
    const T* const all = c.in<T>(coeffs);
    T* const y = c.out<T>(0);
    const int64_t grain = grain_for(n.terms * 3 * static_cast<int64_t>(sizeof(T)) + 256);
    parallel_for(n.images * n.points, grain, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const int64_t p = k % n.points;
        n.point(mean + 3 * p, all + 3 * n.terms * p, views + 16 * (k / n.points), y + 3 * k);
      }
    });
  };
  return kernel;
}

}  // namespace

sdk::Kernel make_splat_sh(const sdk::op::splat_sh& n, const sdk::Node&) {
  const sdk::Type& coeffs = n.coeffs.type();
  const Colors work{.images = n.viewmats.type().dims[0],
                    .points = coeffs.dims[0],
                    .terms = coeffs.dims[1],
                    .degree = n.degree};
  const int means = n.means.position(), views = n.viewmats.position(), at = n.coeffs.position();
  if (coeffs.dtype == TENON_DTYPE_F32) return colors<float>(work, means, views, at);
  if (coeffs.dtype == TENON_DTYPE_F64) return colors<double>(work, means, views, at);
  throw sdk::Refusal::dtype("coeffs", coeffs.dtype);
}

}  // namespace tenon::cpu
