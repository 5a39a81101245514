// SPDX-License-Identifier: Apache-2.0
// softmax of lines of 16 bits that lie together and are long, from sm_80 on. A block asks for all of
// its line at once, which stays in shared memory. The tensor lies on vectors, its lines need not: the
// vector in which two lines meet is read for both, and elements of the other line count as none.
//variant: TYPE=bf16 THREADS=512 LOG=0
//variant: TYPE=f16 THREADS=512 LOG=1
#include "async.cuh"
#include "rows.cuh"

typedef TYPE T;
constexpr int kWarps = THREADS / 32, kWidth = 16 / sizeof(T);
constexpr f32 kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

struct Shape {
  i64 lines;
  u32 n;
};

#if __CUDA_ARCH__ >= 800
typedef Vec<T, kWidth> Vector;

__device__ inline u32 none_bits(bf16) { return 0xFF80u; }  // of minus infinity
__device__ inline u32 none_bits(f16) { return 0xFC00u; }
// In each half of a word; NaN wins.
__device__ inline u32 most_of(u32 a, u32 b, bf16) {
  asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
__device__ inline u32 most_of(u32 a, u32 b, f16) {
  asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
__device__ inline u32 most_of(const Vector& v) {
  const u32* w = reinterpret_cast<const u32*>(&v);
  return most_of(most_of(w[0], w[1], T{}), most_of(w[2], w[3], T{}), T{});
}
__device__ inline f32 power_of_two(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The sum of e^x is scale * 2^shift. The shift is whole, so that changing it rounds nothing.
__device__ inline f32 shift_of(f32 most) { return rintf(most * kLog2e); }
struct Sum {
  f32 most, scale;
  __device__ f32 shift() const { return shift_of(most); }
};
template <int WIDTH>
__device__ inline Sum join(const Sum& mine) {
  Sum all = mine;
#pragma unroll
  for (int o = WIDTH / 2; o > 0; o /= 2)
    all.most = Most()(all.most, __shfl_xor_sync(~0u, all.most, o));
  const f32 from = mine.shift(), to = all.shift();
  all.scale = from == to ? mine.scale : mine.scale * power_of_two(from - to);
#pragma unroll
  for (int o = WIDTH / 2; o > 0; o /= 2) all.scale += __shfl_xor_sync(~0u, all.scale, o);
  return all;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 2) softmax(const T* x, T* y, const Shape s) {
#if __CUDA_ARCH__ >= 800
  Vector* const kept = reinterpret_cast<Vector*>(shared_lines);
  const i64 begin = blockIdx.x * (i64)s.n, all = s.lines * s.n, first = begin / kWidth * kWidth;
  // The first vector begins `before` elements before the line.
  const u32 before = (u32)(begin - first), vectors = (before + s.n + kWidth - 1) / kWidth;
  x += first, y += first;
  const auto own = [&](u32 i, int k) { return i * kWidth + k - before < s.n; };
  const auto whole = [&](u32 i) { return own(i, 0) && own(i, kWidth - 1); };
  // The tensor may end within the last line's last vector, which is then read by elements.
  const i64 left = all - first;
  const u32 filled = left / kWidth < vectors ? (u32)(left / kWidth) : vectors;
#pragma unroll 4
  for (u32 i = threadIdx.x; i < filled; i += THREADS) copy_async(kept + i, x + i * kWidth, true);
  copy_commit();
  if (filled < vectors && filled % THREADS == threadIdx.x)
    for (u32 k = 0; k < (u32)(left % kWidth); ++k) kept[filled].v[k] = x[filled * kWidth + k];
  copy_wait<0>();  // of what this thread copied, which no other reads
  Sum sum{-infinity<f32>(), 0};
#pragma unroll 2
  for (u32 i = threadIdx.x; i < vectors; i += THREADS) {
    Vector v = kept[i];
    if (!whole(i)) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        if (!own(i, k)) v.v[k].bits = none_bits(T{});
      kept[i] = v;
    }
    const u32 tops = most_of(v);
    const f32 most = Most()(sum.most, Most()(widen(T{(u16)tops}), widen(T{(u16)(tops >> 16)})));
    if (most == -infinity<f32>()) continue;
    const f32 from = sum.shift(), to = shift_of(most);
    f32 e[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) e[k] = power_of_two(widen(v.v[k]) * kLog2e - to);
    sum.scale = (from == to ? sum.scale : sum.scale * power_of_two(from - to)) + join_all(e, Add());
    sum.most = most;
  }
  sum = join<32>(sum);
  sum = join<kWarps>(exchange<THREADS>(sum, 0)[threadIdx.x % kWarps]);
  if (!isfinite(sum.most)) sum.scale = sum.most - sum.most;  // the line is NaN
  const f32 shift = sum.shift(), inverse = 1 / sum.scale;
  const f32 log_sum = log(sum.scale) + (shift - sum.most * kLog2e) * kLn2;
#pragma unroll 2
  for (u32 i = threadIdx.x; i < vectors; i += THREADS) {
    const Vector v = kept[i];
    f32 e[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const f32 a = widen(v.v[k]);
      e[k] = LOG ? a - sum.most - log_sum : power_of_two(a * kLog2e - shift) * inverse;
    }
    const Vector out = narrow_all<T>(e);
    if (whole(i)) {
      store(y + i * kWidth, out);
    } else {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        if (own(i, k)) y[i * kWidth + k] = out.v[k];
    }
  }
#endif
}
