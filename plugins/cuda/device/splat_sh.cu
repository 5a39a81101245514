//variant: TYPE=f32 DEGREE=3
//variant: TYPE=f32 DEGREE=0
//variant: TYPE=f64 DEGREE=2
//variant: TYPE=f64 DEGREE=1
// SPDX-License-Identifier: Apache-2.0
// splat_sh: a thread for each Gaussian, whose coefficients come through shared memory, for all cameras.
//entry: splat_colors = colors(SplatColors)
#include "common.cuh"
#include "splat.args.cuh"

typedef TYPE T;
constexpr int kThreads = 128, kTerms = (DEGREE + 1) * (DEGREE + 1);
// Values of a Gaussian that are staged together. An odd pitch: no two lanes share a bank.
constexpr int kStaged = sizeof(T) == 4 ? 48 : 24, kPitch = kStaged + 1;

// Real spherical harmonics at a unit vector, with the signs of 3D Gaussian splatting.
__device__ inline void harmonics(T x, T y, T z, T (&to)[kTerms]) {
  to[0] = (T)0.28209479177387814;
  if constexpr (DEGREE >= 1) {
    constexpr T k1 = (T)0.4886025119029199;
    to[1] = -k1 * y, to[2] = k1 * z, to[3] = -k1 * x;
  }
  const T xx = x * x, yy = y * y, zz = z * z, xy = x * y, both = xx + yy;
  if constexpr (DEGREE >= 2) {
    constexpr T k2 = (T)1.0925484305920792, k20 = (T)0.31539156525252005;
    to[4] = k2 * xy, to[5] = -k2 * (y * z), to[6] = k20 * (2 * zz - both);
    to[7] = -k2 * (x * z), to[8] = k2 / 2 * (xx - yy);
  }
  if constexpr (DEGREE >= 3) {
    constexpr T k3 = (T)0.5900435899266435, k4 = (T)2.890611442640554;
    constexpr T k5 = (T)0.4570457994644658, k6 = (T)0.3731763325901154;
    to[9] = -k3 * (y * (3 * xx - yy)), to[10] = k4 * (xy * z);
    to[11] = -k5 * (y * (4 * zz - both)), to[12] = k6 * (z * (2 * zz - 3 * both));
    to[13] = -k5 * (x * (4 * zz - both)), to[14] = k4 / 2 * (z * (xx - yy));
    to[15] = -k3 * (x * (xx - 3 * yy));
  }
}

// The harmonics at the direction from the camera's centre to the mean; zero for the centre itself.
__device__ inline void look(const T* view, const T (&mean)[3], T (&basis)[kTerms]) {
  T v[16], finite = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) v[k] = view[k], finite += v[k] * 0;
  if (finite != 0) {  // NaN: a camera that is not finite counts as one of zeros
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = 0;
  }
  T d[3];
#pragma unroll
  for (int c = 0; c < 3; ++c) d[c] = mean[c] + (v[c] * v[3] + v[4 + c] * v[7] + v[8 + c] * v[11]);
  // Divided by the largest part first: no square overflows or vanishes.
  const T largest = fmax(fmax(fabs(d[0]), fabs(d[1])), fabs(d[2]));
  if (!(largest == 0)) {
    T square = 0;
#pragma unroll
    for (int c = 0; c < 3; ++c) d[c] /= largest, square += d[c] * d[c];
    const T length = sqrt(square);
#pragma unroll
    for (int c = 0; c < 3; ++c) d[c] /= length;
  }
  harmonics(d[0], d[1], d[2], basis);
}

extern "C" __global__ void __launch_bounds__(kThreads) colors(const SplatColors s) {
  __shared__ T staged[kThreads * kPitch];
  const i64 first = (i64)blockIdx.x * kThreads, point = first + threadIdx.x;
  const int there = (int)min((i64)kThreads, s.points - first);
  T coeffs[3 * kTerms], bad = 0;  // bad: NaN where a coefficient is not finite
#pragma unroll
  for (int k = 0; k < 3 * kTerms; ++k) coeffs[k] = 0;
  // Coefficients that no term uses are only tested.
  for (i64 begin = 0; begin < s.values; begin += kStaged) {
    const int width = (int)min((i64)kStaged, s.values - begin);
    __syncthreads();  // the values before were read
    for (int i = threadIdx.x; i < there * width; i += kThreads)
      staged[i / width * kPitch + i % width] =
          static_cast<const T*>(s.coeffs)[(first + i / width) * s.values + begin + i % width];
    __syncthreads();
    if (threadIdx.x >= there) continue;
    const T* const own = staged + threadIdx.x * kPitch;
    for (int k = 0; k < width; ++k) bad += own[k] * 0;
#pragma unroll
    for (int k = 0; k < 3 * kTerms; ++k)
      if (k >= begin && k < begin + width) coeffs[k] = own[k - (int)begin];
  }
  if (point >= s.points) return;
  T mean[3] = {0, 0, 0};
  if constexpr (DEGREE > 0) {
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      mean[c] = static_cast<const T*>(s.means)[3 * point + c];
      bad += mean[c] * 0;
    }
  }
  for (i64 image = 0; image < s.images; ++image) {
    T basis[kTerms], sum[3] = {0, 0, 0};
    if (bad == 0) {
      look(static_cast<const T*>(s.views) + 16 * image, mean, basis);
#pragma unroll
      for (int k = 0; k < kTerms; ++k)
#pragma unroll
        for (int c = 0; c < 3; ++c) sum[c] += basis[k] * coeffs[3 * k + c];
    }
    T* const to = static_cast<T*>(s.y) + 3 * (image * s.points + point);
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      const T v = sum[c] + (T)0.5;
      to[c] = v < 0 ? (T)0 : v;  // keeps NaN
    }
  }
}
