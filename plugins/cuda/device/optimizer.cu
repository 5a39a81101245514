//variant: T=f32 G=f32 V=4 RULE=adamw
//variant: T=bf16 G=bf16 V=8 RULE=momentum
//variant: T=f32 G=bf16 V=4 RULE=lion
//variant: T=f64 G=f64 V=2 RULE=sgd
// SPDX-License-Identifier: Apache-2.0
// sgd, momentum, adamw and lion: one pass over weight, gradient and moments. The numbers that live
// in the data are read once a block.
#include "common.cuh"

typedef acc_t<T> A;

typedef UpdateOf<T, G, A> Update;
struct Numbers {
  A rate, decay, root_scale, eps, scale, look_ahead, keep[2], take[2];
  bool nesterov, apply, first;
};

struct sgd {
  static constexpr int kMoments = 0;
  __device__ static void prepare(const Update& u, Numbers& n) {
    n.rate = (A)u.lr.read(0), n.decay = (A)u.decay;
  }
  __device__ static void step(const Numbers& n, A& w, A g, A*) {
    w = fma(-n.rate, fma(n.decay, w, g), w);
  }
};
struct momentum {
  static constexpr int kMoments = 1;
  __device__ static void prepare(const Update& u, Numbers& n) {
    n.first = u.step.read(2) <= 1;  // the buffer begins as the gradient, whatever it holds
    n.rate = (A)u.lr.read(0), n.decay = (A)u.decay;
    n.keep[0] = (A)u.keep[0], n.take[0] = (A)u.take[0];
    n.look_ahead = (A)u.look_ahead, n.nesterov = u.nesterov != 0;
  }
  __device__ static void step(const Numbers& n, A& w, A g, A* m) {
    const A slope = fma(n.decay, w, g);
    m[0] = n.first ? slope : fma(n.keep[0], m[0], n.take[0] * slope);
    w = fma(-n.rate, n.nesterov ? fma(n.look_ahead, m[0], slope) : m[0], w);
  }
};
struct adamw {
  static constexpr int kMoments = 2;
  __device__ static void prepare(const Update& u, Numbers& n) {
    const f64 lr = u.lr.read(0), t = u.step.read(1);
    n.rate = (A)(lr / (1 - pow(u.keep[0], t)));
    n.decay = (A)(lr * u.decay);
    n.root_scale = (A)(1 / sqrt(1 - pow(u.keep[1], t)));
    n.eps = (A)u.eps;
    for (int i = 0; i < 2; ++i) n.keep[i] = (A)u.keep[i], n.take[i] = (A)u.take[i];
  }
  __device__ static void step(const Numbers& n, A& w, A g, A* m) {
    m[0] = fma(n.keep[0], m[0], n.take[0] * g);
    m[1] = fma(n.keep[1], m[1], n.take[1] * (g * g));
    const A root = fma(sqrt(m[1]), n.root_scale, n.eps);
    w = w - fma(n.decay, w, n.rate * m[0] / root);
  }
};
struct lion {
  static constexpr int kMoments = 1;
  __device__ static void prepare(const Update& u, Numbers& n) {
    const f64 lr = u.lr.read(0);
    n.rate = (A)lr, n.decay = (A)(lr * u.decay);
    for (int i = 0; i < 2; ++i) n.keep[i] = (A)u.keep[i], n.take[i] = (A)u.take[i];
  }
  __device__ static void step(const Numbers& n, A& w, A g, A* m) {
    const A mixed = fma(n.keep[0], m[0], n.take[0] * g);
    const A sign = mixed > 0 ? A(1) : mixed < 0 ? A(-1) : mixed;  // keeps 0 and NaN
    w = w - fma(n.decay, w, n.rate * sign);
    m[0] = fma(n.keep[1], m[0], n.take[1] * g);
  }
};

template <int N>
__device__ inline void update_at(const Update& u, const Numbers& n, i64 i) {
  constexpr int kMoments = RULE::kMoments;
  Vec<T, N> w = load<T, N>(u.w + i);
  const Vec<G, N> g = load<G, N>(u.g + i);
  Vec<A, N> m[2];
#pragma unroll
  for (int k = 0; k < kMoments; ++k) m[k] = load<A, N>(u.moment[k] + i);
  if (n.apply) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      A value = widen(w.v[j]), moments[2] = {};
#pragma unroll
      for (int k = 0; k < kMoments; ++k) moments[k] = m[k].v[j];
      RULE::step(n, value, n.scale * (A)widen(g.v[j]), moments);
      w.v[j] = narrow<T>(value);
#pragma unroll
      for (int k = 0; k < kMoments; ++k) m[k].v[j] = moments[k];
    }
  }
  store(u.w_out + i, w);
#pragma unroll
  for (int k = 0; k < kMoments; ++k) store(u.moment_out[k] + i, m[k]);
}

extern "C" __global__ void __launch_bounds__(256) update(const Update u) {
  begin_early();
  __shared__ Numbers shared;
  if (threadIdx.x == 0) {
    Numbers n = {};
    n.scale = (A)u.scale.read(1);
    n.apply = u.apply.read(1) != 0;
    RULE::prepare(u, n);
    shared = n;
  }
  __syncthreads();
  const Numbers n = shared;
  const i64 vectors = u.count / V, items = vectors + u.count % V;
  for (i64 k = (i64)blockIdx.x * 256 + threadIdx.x; k < items; k += (i64)gridDim.x * 256) {
    if (k < vectors) update_at<V>(u, n, k * V);
    else update_at<1>(u, n, vectors * V + (k - vectors));
  }
}
