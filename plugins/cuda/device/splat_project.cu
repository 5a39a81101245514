//variant: TYPE=f32
//variant: TYPE=f64
// SPDX-License-Identifier: Apache-2.0
// splat_project: a thread for each Gaussian in each image. The determinant is a sum of squares, as in
// the decomposition, so that it does not cancel for long thin Gaussians.
//entry: splat_project = project(SplatProject)
#include "common.cuh"
#include "splat.args.cuh"

typedef TYPE T;

__device__ inline bool is_finite(T x) { return fabs(x) < (T)__uint_as_float(0x7F800000u); }
template <int n>
__device__ inline bool all_finite(const T (&x)[n]) {
  bool all = true;
#pragma unroll
  for (int k = 0; k < n; ++k) all = all && is_finite(x[k]);
  return all;
}
template <int n>
__device__ inline void read(T (&to)[n], const void* from, i64 at) {
#pragma unroll
  for (int k = 0; k < n; ++k) to[k] = static_cast<const T*>(from)[at * n + k];
}
// NaN wins.
__device__ inline T lesser(T a, T b) { return a < b || a != a ? a : b; }
__device__ inline T greater(T a, T b) { return a > b || a != a ? a : b; }
__device__ inline T dot(const T (&a)[3], const T (&b)[3]) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}
// x/z or y/z, kept near the image.
__device__ inline T kept_slope(T ratio, T focal, T centre, T size) {
  const T margin = (T)0.15 * size / focal;
  const T low = -(centre / focal + margin), high = (size - centre) / focal + margin;
  return greater(lesser(ratio, high), low);
}

struct Projected {
  T u, v, depth, conic[3];
  i32 radius = 0;
};

__device__ inline void project_pair(const SplatProject& s, i64 image, i64 point, Projected& to) {
  T mean[3], quat[4], scale[3], view[16], camera[9];
  read(mean, s.means, point), read(quat, s.quats, point), read(scale, s.scales, point);
  read(view, s.views, image), read(camera, s.intrinsics, image);
  if (!all_finite(mean) || !all_finite(quat) || !all_finite(scale)) return;
  if (!all_finite(view) || !all_finite(camera)) return;
  // |q| by the largest component: no square overflows or vanishes.
  T largest = 0, norm = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) largest = fmax(largest, fabs(quat[k]));
  if (largest == 0) return;
#pragma unroll
  for (int k = 0; k < 4; ++k) norm += quat[k] / largest * (quat[k] / largest);
  norm = sqrt(norm) * largest;
#pragma unroll
  for (int k = 0; k < 4; ++k) quat[k] /= norm;

  T p[3];
#pragma unroll
  for (int r = 0; r < 3; ++r)
    p[r] = view[4 * r] * mean[0] + view[4 * r + 1] * mean[1] + view[4 * r + 2] * mean[2] +
           view[4 * r + 3];
  if (!(p[2] > (T)s.nearest && p[2] < (T)s.farthest)) return;
  const T over_x = p[0] / p[2], over_y = p[1] / p[2];
  if (!is_finite(over_x / p[2]) || !is_finite(over_y / p[2])) return;
  const T fx = camera[0], fy = camera[4], cx = camera[2], cy = camera[5];
  const T width = (T)s.width, height = (T)s.height;
  const T ux = kept_slope(over_x, fx, cx, width), uy = kept_slope(over_y, fy, cy, height);
  const T per_x = fx / p[2], per_y = fy / p[2];

  const T w = quat[0], x = quat[1], y = quat[2], z = quat[3];
  const T turn[3][3] = {{1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
                        {2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
                        {2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}};
  T row_x[3], row_y[3], ax[3], ay[3], cross[3];
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    row_x[c] = per_x * (view[c] - ux * view[8 + c]);
    row_y[c] = per_y * (view[4 + c] - uy * view[8 + c]);
  }
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    const T column[3] = {turn[0][c], turn[1][c], turn[2][c]};
    ax[c] = dot(row_x, column) * scale[c], ay[c] = dot(row_y, column) * scale[c];
  }
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    const int next = (k + 1) % 3;
    cross[k] = ax[k] * ay[next] - ax[next] * ay[k];
  }
  const T eps = (T)s.eps2d, xy = dot(ax, ay);
  T xx = dot(ax, ax), yy = dot(ay, ay);
  const T det = dot(cross, cross) + (xx + yy) * eps + (T)(s.eps2d * s.eps2d);
  xx += eps, yy += eps;
  const T u = over_x * fx + cx, v = over_y * fy + cy;
  // h² - det, which would cancel for round Gaussians.
  const T apart = (xx - yy) * (T)0.5;
  const T root = sqrt(greater(apart * apart + xy * xy, (T)0.01));
  const T radius = ceil(sqrt((xx + yy) * (T)0.5 + root) * 3);
  if (!(det > 0) || !is_finite(det) || !is_finite(radius) || !(radius > (T)s.clip)) return;
  if (!(u + radius > 0 && u - radius < width && v + radius > 0 && v - radius < height)) return;
  // A radius beyond i32 covers any image.
  to.radius = (i32)fmin(radius, (T)(1 << 30));
  to.u = u, to.v = v, to.depth = p[2];
  to.conic[0] = yy / det, to.conic[1] = -xy / det, to.conic[2] = xx / det;
}

extern "C" __global__ void __launch_bounds__(256) project(const SplatProject s) {
  const i64 pair = (i64)blockIdx.x * 256 + threadIdx.x;
  if (pair >= s.pairs) return;
  Projected to{};
  project_pair(s, pair / s.points, pair % s.points, to);
  s.radii[pair] = to.radius;
  static_cast<T*>(s.means2d)[2 * pair] = to.u, static_cast<T*>(s.means2d)[2 * pair + 1] = to.v;
  static_cast<T*>(s.depths)[pair] = to.depth;
#pragma unroll
  for (int k = 0; k < 3; ++k) static_cast<T*>(s.conics)[3 * pair + k] = to.conic[k];
}
