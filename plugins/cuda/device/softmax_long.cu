// SPDX-License-Identifier: Apache-2.0
// softmax of long lines of 16 bits, a block for each.
//variant: TYPE=bf16 THREADS=512 LOG=0
//variant: TYPE=f16 THREADS=512 LOG=1
#include "long_line.cuh"

typedef TYPE T;

typedef LongSoftmaxShape Shape;

extern "C" __global__ void __launch_bounds__(THREADS, 2) softmax(const T* x, T* y, const Shape s) {
#if __CUDA_ARCH__ >= 800
  typedef LongLine<T, THREADS> Line;
  const Line line(blockIdx.x, s.n);
  line.ask(x, s.lines);
  const ExpSum<f32> sum = line.sum();
  const f32 inverse = 1 / sum.scale, log_sum = log(sum.scale);
  line.each_arriving([&](const Line::Vector& v, u32 i) {
    f32 e[Line::width];
#pragma unroll
    for (int k = 0; k < Line::width; ++k) {
      const f32 d = widen_at(v, k) - sum.most;
      e[k] = LOG ? d - log_sum : exp_for<T>(d) * inverse;
    }
    line.put(y, i, narrow_all<T>(e));
  });
#endif
}
