// SPDX-License-Identifier: Apache-2.0
// argmax and argmin, one group of LANES per line. NaN is the extreme, and the first NaN counts; of
// equal numbers the first, or with LAST the last. CLUSTER: blocks that share a line, if not 1.
//variant: TYPE=f32 LANES=512 GREATEST=1 LAST=0 CLUSTER=1
//variant: TYPE=f32 LANES=1024 GREATEST=1 LAST=0 CLUSTER=8
//variant: TYPE=u64 LANES=1024 GREATEST=0 LAST=1 CLUSTER=2
//variant: TYPE=bf16 LANES=1 GREATEST=0 LAST=1 CLUSTER=1
//variant: TYPE=u64 LANES=32 GREATEST=0 LAST=0 CLUSTER=1
#include "cluster.cuh"
#include "rows.cuh"

typedef TYPE T;
typedef acc_t<T> A;
typedef Group<LANES> Lane;

struct Best {
  A value;
  u32 place;  // all bits set: none yet
};
constexpr u32 kNone = ~0u;

__device__ inline bool is_better(A a, A b) {
  const bool beyond = GREATEST ? a > b : a < b;
  return beyond || (a != a && b == b);
}
struct Join {
  __device__ Best operator()(const Best& a, const Best& b) const {
    if (a.place == kNone || b.place == kNone) return a.place == kNone ? b : a;
    if (is_better(a.value, b.value)) return a;
    if (is_better(b.value, a.value)) return b;
    return (a.place < b.place) != (LAST && a.value == b.value) ? a : b;
  }
};

typedef ArgShape Shape;

extern "C" IN_CLUSTER __global__ void __launch_bounds__(Lane::threads)
    argmax(const T* __restrict__ x, i64* __restrict__ y, const Shape s) {
  const i64 line = Lane::index() / CLUSTER;
  // The block's part of the line.
  const u32 length = line < s.lines ? s.n : 0, share = (length + CLUSTER - 1) / CLUSTER,
            rank = CLUSTER > 1 ? blockIdx.x % CLUSTER : 0, first = min(rank * share, length),
            n = min(length - first, share);
  Best best{0, kNone};
  // Elements come to a lane in order.
  for_line<LANES>(
      x + line_start(line, s.n, s.inner) + first, n, s.inner, [&](const auto& v, u32 i) {
        constexpr int N = sizeof(v) / sizeof(T);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const A a = widen(v.v[k]);
          const bool better =
              best.place == kNone || is_better(a, best.value) || (LAST && a == best.value);
          if (better) best = {a, first + i + k};
        }
      });
  best = join_lanes<LANES>(best, Join());
#if CLUSTER > 1
  __shared__ Best of_block;
  if (Lane::lane() == 0) of_block = best;
  cluster_arrive();
  cluster_wait();
  if (rank == 0 && Lane::lane() == 0)
    for (int c = 1; c < CLUSTER; ++c) best = Join()(best, *in_block(&of_block, c));
  cluster_arrive();
  cluster_wait();
#endif
  if (rank == 0 && line < s.lines && Lane::lane() == 0) y[line] = best.place;
}
