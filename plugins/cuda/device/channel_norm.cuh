// SPDX-License-Identifier: Apache-2.0
// What group_norm.cu and layer_norm2d.cu share: sums by channel and the gradients made of them.
// OUT: dtype of a parameter's gradient; JOIN: lanes that join a channel's sums.
//variant: TYPE=bf16 OUT=f32 JOIN=32
#pragma once
#include "rows.cuh"

typedef TYPE T;
typedef acc_t<T> A;

struct Statistics {
  A mean, inverse;
};
struct Pair {  // sums of dy and of dy times the normalized x
  A dy, dy_x;
};
struct AddPair {
  __device__ Pair operator()(const Pair& x, const Pair& y) const {
    return {x.dy + y.dy, x.dy_x + y.dy_x};
  }
};

// sums: `count` rows of `each` for every channel.
extern "C" __global__ void __launch_bounds__(256)
    parameters(const Pair* sums, OUT* dgamma, OUT* dbeta, i64 count, u32 channels, u32 each) {
  begin_early();
  const i64 channel = Group<JOIN>::index();
  Pair total{0, 0};
  if (channel < channels)
#pragma unroll 4
    for (i64 i = Group<JOIN>::lane(); i < count * each; i += JOIN)
      total = AddPair()(total, sums[(i / each * channels + channel) * each + i % each]);
  total = join_lanes<JOIN>(total, AddPair());
  if (channel >= channels || Group<JOIN>::lane() != 0) return;
  if (dgamma) dgamma[channel] = narrow<OUT>((acc_t<OUT>)total.dy_x);
  if (dbeta) dbeta[channel] = narrow<OUT>((acc_t<OUT>)total.dy);
}
