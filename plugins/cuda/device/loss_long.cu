// SPDX-License-Identifier: Apache-2.0
// cross_entropy and its backward op of long lines of 16 bits whose labels are not smoothed, a block
// for each; loss.cu sums what they leave. LABEL, WEIGHT: their dtypes.
//variant: TYPE=bf16 LABEL=i64 WEIGHT=bf16 THREADS=512
//variant: TYPE=f16 LABEL=i32 WEIGHT=f32 THREADS=512
#include "long_line.cuh"
#include "loss.cuh"

typedef TYPE T;

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    forward(const T* x, const LABEL* labels, const WEIGHT* weight, f32* losses, f32* lse,
            const LossShape s, const ErrorSink sink) {
#if __CUDA_ARCH__ >= 800
  let_next_begin();
  const LongLine<T, THREADS> line(blockIdx.x, s.n);
  line.ask(x, s.lines);
  const i64 told = labels[blockIdx.x];
  const ExpSum<f32> sum = infinite_or(line.sum());
  if (threadIdx.x != 0) return;
  const i64 label = label_of(told, blockIdx.x, s, sink, true);
  const f32 log_sum = log(sum.scale);
  if (lse) lse[blockIdx.x] = sum.most + log_sum;
  f32 loss = 0;
  if (label >= 0)
    loss = weight_of<f32>(weight, label) * (log_sum + (sum.most - widen(line.element(label))));
  losses[blockIdx.x] = loss;
#endif
}

// each: dy has one element per item. lse: may be absent. totals: absent but for the mean, and then
// made by the kernel before this one, while this one may begin.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    backward(const f32* dy, const T* x, const LABEL* labels, const WEIGHT* weight, const f32* lse,
             const f64* totals, T* dx, const LossShape s, u32 each, const ErrorSink sink) {
#if __CUDA_ARCH__ >= 800
  typedef LongLine<T, THREADS> Line;
  const Line line(blockIdx.x, s.n);
  line.ask(x, s.lines);
  const i64 told = labels[blockIdx.x];
  f32 from, factor = 1, log_factor = 0;  // p = e^(x - from) * factor
  if (lse && trusted(lse[blockIdx.x])) {
    from = lse[blockIdx.x];
  } else {
    const ExpSum<f32> sum = infinite_or(line.sum());
    from = sum.most, factor = 1 / sum.scale, log_factor = -log(sum.scale);
  }
  await_earlier();
  const i64 label = label_of(told, blockIdx.x, s, sink, threadIdx.x == 0);
  f32 up = dy[each ? blockIdx.x : 0];
  if (totals) up /= (f32)totals[0];
  if (label >= 0) up *= weight_of<f32>(weight, label);
  const f32 scale = up * factor;
  line.each_arriving([&](const Line::Vector& v, u32 i) {
    if (label < 0) return line.put(dx, i, Line::Vector{});
    f32 d[Line::width];
#pragma unroll
    for (int k = 0; k < Line::width; ++k)
      d[k] = scale * exp_for<T>(widen_at(v, k) - from);
    line.put(dx, i, narrow_all<T>(d));
  });
  // p - 1 without loss, over what this thread has just written.
  if (label >= 0 && line.asked_for(label)) {
    const f32 log_p = (widen(line.element(label)) - from) + log_factor;
    dx[line.first + line.before + label] = narrow<T>(up * expm1(log_p));
  }
#endif
}
