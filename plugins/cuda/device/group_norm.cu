// SPDX-License-Identifier: Apache-2.0
// group_norm and its backward op. A group is cut into pieces, one for a block; a piece is some units,
// each the pixels of one channel or a part of them, that stay in the registers of LANES lanes,
// CHUNKS vectors of VEC elements each. forward and backward read memory once: their blocks have whole
// groups, or the PIECES blocks of a cluster exchange what they found. Where a group does not fit,
// `moments` or `sums` leave what they found in memory, a kernel joins it, and `apply` or
// `differentiate` read again. GAMMA, BETA: dtypes of the parameters.
//variant: TYPE=f32 GAMMA=f32 BETA=f32 OUT=f32 JOIN=256 LANES=32 CHUNKS=8 VEC=4 PIECES=4
//variant: TYPE=bf16 GAMMA=f32 BETA=bf16 OUT=f32 JOIN=32 LANES=32 CHUNKS=4 VEC=8 PIECES=1
//variant: TYPE=f16 GAMMA=f16 BETA=f16 OUT=f16 JOIN=32 LANES=8 CHUNKS=7 VEC=1 PIECES=1
//variant: TYPE=f64 GAMMA=f64 BETA=f32 OUT=f64 JOIN=32 LANES=32 CHUNKS=4 VEC=2 PIECES=8
#include "channel_norm.cuh"

#if __CUDA_ARCH__ >= 900 && PIECES > 1
#define CLUSTER __cluster_dims__(PIECES, 1, 1)
#else
#define CLUSTER
#endif
constexpr int kMostWarps = 16;

struct Shape {
  i64 groups;  // of all images
  f64 eps;
  u32 groups_in_image, channels;  // channels of a group
  u32 pixels, unit, splits;       // of a channel; of a unit; units of a channel
  u32 pieces, units;              // of a group; of a piece
  u32 team, teams;                // threads of a piece; pieces of a block
};

// Where a thread works.
struct Place {
  i64 group;  // -1: there is none
  u32 piece, n, lane;
  u32 channel;  // in the image
  i64 unit;     // of all images
  i64 start;    // of the unit's n elements; of none without a group

  __device__ explicit Place(const Shape& s) {
    const u32 t = threadIdx.x % s.team, mine = t / LANES, all = s.channels * s.splits;
    group = blockIdx.x / s.pieces * (i64)s.teams + threadIdx.x / s.team;
    piece = blockIdx.x % s.pieces;
    lane = t % LANES;
    const u32 k = piece * s.units + mine;
    n = 0, channel = 0, unit = -1, start = 0;
    if (group >= s.groups) group = -1;
    if (group < 0 || mine >= s.units || k >= all) return;
    const u32 c = k / s.splits, begin = (k - c * s.splits) * s.unit;
    channel = (u32)(group % s.groups_in_image) * s.channels + c;
    unit = group * all + k;
    start = (group * s.channels + c) * s.pixels + begin;
    n = min(s.unit, s.pixels - min(begin, s.pixels));
  }
  __device__ u32 at(int c) const { return (c * LANES + lane) * VEC; }
  __device__ bool has(int c) const { return at(c) < n; }
};
// Elements of a group's first k units, of its piece k.
__device__ inline u32 elements_before(const Shape& s, u32 k) {
  const u32 c = min(k / s.splits, s.channels);
  if (c == s.channels) return c * s.pixels;
  return c * s.pixels + min((k - c * s.splits) * s.unit, s.pixels);
}
__device__ inline u32 piece_elements(const Shape& s, u32 k) {
  return elements_before(s, (k + 1) * s.units) - elements_before(s, k * s.units);
}
__device__ inline u32 group_elements(const Shape& s) { return s.channels * s.pixels; }

struct Part {
  Vec<T, VEC> v[CHUNKS];
  __device__ Part(const T* p, const Place& place) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
      if (place.has(c)) v[c] = load<T, VEC>(p + place.start + place.at(c));
  }
  __device__ A operator()(int c, int k) const { return widen(v[c].v[k]); }
  // What was widened is not kept beside what was read: the registers would not do.
  __device__ void forget() {
    if constexpr (sizeof(T) == 2 && VEC > 1)
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int w = 0; w < VEC / 2; ++w) asm volatile("" : "+r"(reinterpret_cast<u32*>(&v[c])[w]));
  }
};
// Sum of f(chunk, element) over a thread's part.
template <class F>
__device__ inline A part_sum(const Place& p, F&& f) {
  A sum = 0;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (!p.has(c)) continue;
    A t[VEC];
#pragma unroll
    for (int k = 0; k < VEC; ++k) t[k] = f(c, k);
    sum += join_all(t, Add());
  }
  return sum;
}

// ---- joining

// Of a team whose warps' sums are given; all threads of the block come here.
template <class P, class Join>
__device__ inline P join_warps(P v, const Shape& s, Join join) {
  if (s.team == 32) return v;
  __shared__ __align__(16) u8 parts[kMostWarps * sizeof(P)];
  const P* all = reinterpret_cast<const P*>(parts);
  __syncthreads();  // the last call's parts were read
  if (threadIdx.x % 32 == 0) reinterpret_cast<P*>(parts)[threadIdx.x / 32] = v;
  __syncthreads();
  const u32 first = threadIdx.x / s.team * (s.team / 32);
  v = all[first];
  for (u32 k = 1; k < s.team / 32; ++k) v = join(v, all[first + k]);
  return v;
}
__device__ inline A team_sum(A v, const Shape& s) {
  return join_warps(join_warp<32>(v, Add()), s, Add());
}

struct Moments {
  A mean, squares;  // squares of the distances from the mean
};
// What pieces found becomes what the group has; get(k) is piece k's.
template <class F>
__device__ inline Moments join_moments(const Shape& s, u32 begin, u32 end, u32 step, A mean,
                                       F&& get) {
  Moments sum{0, 0};
  for (u32 k = begin; k < end; k += step) {
    const A count = (A)piece_elements(s, k);
    if (count == 0) continue;
    const Moments m = get(k);
    const A off = m.mean - mean;
    sum.mean += m.mean * count;
    sum.squares += m.squares + count * off * off;
  }
  return sum;
}
__device__ inline Statistics statistics_of(A mean, A squares, const Shape& s) {
  return {mean, 1 / sqrt(squares / (A)group_elements(s) + (A)s.eps)};
}
__device__ inline Moments piece_moments(Part& x, const Place& p, const Shape& s) {
  const A count = (A)piece_elements(s, p.piece);
  const A mean = team_sum(part_sum(p, [&](int c, int k) { return x(c, k); }), s) / count;
  x.forget();
  const A squares = team_sum(part_sum(p,
                                      [&](int c, int k) {
                                        const A d = x(c, k) - mean;
                                        return d * d;
                                      }),
                             s);
  return {mean, squares};
}

// All blocks of a cluster pass a barrier; between arrive and wait a block goes on.
__device__ inline void arrive() {
#if __CUDA_ARCH__ >= 900 && PIECES > 1
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ inline void wait() {
#if __CUDA_ARCH__ >= 900 && PIECES > 1
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
// What the blocks of a cluster have, in their order. A barrier must follow before a block ends: the
// others read its memory.
template <class P>
__device__ inline const P* exchange([[maybe_unused]] const P& mine) {
  __shared__ __align__(16) u8 all[PIECES * sizeof(P)];
#if __CUDA_ARCH__ >= 900 && PIECES > 1
  __shared__ __align__(16) u8 own[sizeof(P)];
  if (threadIdx.x == 0) *reinterpret_cast<P*>(own) = mine;
  arrive();
  wait();
  constexpr u32 words = sizeof(P) / 4;
  if (threadIdx.x < PIECES * words) {
    u32 from = (u32)__cvta_generic_to_shared(own) + threadIdx.x % words * 4, value;
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(from) : "r"(threadIdx.x / words));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
    reinterpret_cast<u32*>(all)[threadIdx.x] = value;
  }
  __syncthreads();
#endif
  return reinterpret_cast<const P*>(all);
}
__device__ inline Statistics find_statistics(Part& x, const Place& p, const Shape& s) {
  const Moments m = piece_moments(x, p, s);
  if constexpr (PIECES == 1) return statistics_of(m.mean, m.squares, s);
  const Moments* all = exchange(m);
  const auto get = [=](u32 k) { return all[k]; };
  const A mean = join_moments(s, 0, PIECES, 1, 0, get).mean / (A)group_elements(s);
  return statistics_of(mean, join_moments(s, 0, PIECES, 1, mean, get).squares, s);
}
__device__ inline Statistics given_statistics(const A* means, const A* inverses, const Place& p) {
  if (p.group < 0) return {0, 0};
  return {means[p.group], inverses[p.group]};
}

// ---- group_norm

// gamma, beta may be absent.
__device__ inline void normalize(Part& x, const Place& p, const Statistics& f,
                                 const GAMMA* gamma, const BETA* beta, T* y) {
  x.forget();
  if (p.unit < 0) return;
  const A scale = gamma ? (A)widen(gamma[p.channel]) : A(1);
  const A shift = beta ? (A)widen(beta[p.channel]) : A(0);
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (!p.has(c)) continue;
    Vec<T, VEC> t;
#pragma unroll
    for (int k = 0; k < VEC; ++k)
      t.v[k] = narrow<T>((x(c, k) - f.mean) * f.inverse * scale + shift);
    store(y + p.start + p.at(c), t);
  }
}
// means, inverses may be absent.
extern "C" __global__ void CLUSTER __launch_bounds__(512, 2)
    forward(const T* x, const GAMMA* gamma, const BETA* beta, T* y, A* means, A* inverses,
            const Shape s) {
  const Place p(s);
  Part part(x, p);
  const Statistics f = find_statistics(part, p, s);
  arrive();
  normalize(part, p, f, gamma, beta, y);
  if (p.group >= 0 && p.piece == 0 && threadIdx.x % s.team == 0) {
    if (means) means[p.group] = f.mean;
    if (inverses) inverses[p.group] = f.inverse;
  }
  wait();
}

extern "C" __global__ void __launch_bounds__(512, 2)
    moments(const T* x, Moments* found, const Shape s) {
  const Place p(s);
  Part part(x, p);
  const Moments m = piece_moments(part, p, s);
  if (threadIdx.x == 0) found[blockIdx.x] = m;
}
// A block for a group.
extern "C" __global__ void __launch_bounds__(256)
    join_groups(const Moments* found, A* means, A* inverses, const Shape s) {
  found += (i64)blockIdx.x * s.pieces;
  const auto get = [=](u32 k) { return found[k]; };
  const u32 first = threadIdx.x;
  const A sum = join_lanes<256>(join_moments(s, first, s.pieces, 256, 0, get).mean, Add());
  const A mean = sum / (A)group_elements(s);
  const A squares =
      join_lanes<256>(join_moments(s, first, s.pieces, 256, mean, get).squares, Add());
  if (threadIdx.x != 0) return;
  const Statistics f = statistics_of(mean, squares, s);
  means[blockIdx.x] = f.mean;
  inverses[blockIdx.x] = f.inverse;
}
extern "C" __global__ void __launch_bounds__(512, 2)
    apply(const T* x, const GAMMA* gamma, const BETA* beta, T* y, const A* means,
          const A* inverses, const Shape s) {
  const Place p(s);
  Part part(x, p);
  normalize(part, p, given_statistics(means, inverses, p), gamma, beta, y);
}

// ---- backward

// The piece's sums of gamma times dy. channel_sums, which may be absent: one for each unit.
__device__ inline Pair piece_sums(Part& dy, Part& x, const Place& p,
                                  const Statistics& f, A scale, Pair* channel_sums,
                                  const Shape& s) {
  x.forget();
  const A up = part_sum(p, [&](int c, int k) { return dy(c, k); });
  const A along =
      part_sum(p, [&](int c, int k) { return dy(c, k) * ((x(c, k) - f.mean) * f.inverse); });
  Pair sum{up, along};
  sum = join_warp<LANES>(sum, AddPair());
  if (channel_sums && p.unit >= 0 && p.lane == 0) channel_sums[p.unit] = sum;
  sum = {sum.dy * scale, sum.dy_x * scale};
#pragma unroll
  for (int o = LANES; o < 32; o *= 2)
    sum = AddPair()(sum, each_word(sum, [=](u32 w) { return __shfl_xor_sync(~0u, w, o); }));
  return join_warps(sum, s, AddPair());
}
__device__ inline A scale_of(const GAMMA* gamma, const Place& p) {
  if (p.unit < 0) return 0;
  return gamma ? (A)widen(gamma[p.channel]) : A(1);
}
__device__ inline void put_gradient(Part& dy, Part& x, const Place& p,
                                    const Statistics& f, A scale, const Pair& total, T* dx,
                                    const Shape& s) {
  dy.forget();
  x.forget();
  const A count = (A)group_elements(s), mean = total.dy / count, slope = total.dy_x / count;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (!p.has(c)) continue;
    Vec<T, VEC> t;
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      const A normal = (x(c, k) - f.mean) * f.inverse;
      t.v[k] = narrow<T>(f.inverse * (dy(c, k) * scale - mean - normal * slope));
    }
    store(dx + p.start + p.at(c), t);
  }
}
// gamma, means with inverses, dx, channel_sums may be absent.
extern "C" __global__ void CLUSTER __launch_bounds__(512, 2)
    backward(const T* dy, const T* x, const GAMMA* gamma, const A* means, const A* inverses, T* dx,
             Pair* channel_sums, const Shape s) {
  const Place p(s);
  Part up(dy, p), part(x, p);
  const Statistics f =
      means ? given_statistics(means, inverses, p) : find_statistics(part, p, s);
  const A scale = scale_of(gamma, p);
  Pair total = piece_sums(up, part, p, f, scale, channel_sums, s);
  if (dx) {
    if constexpr (PIECES > 1) {
      const Pair* all = exchange(total);
      total = all[0];
      for (int k = 1; k < PIECES; ++k) total = AddPair()(total, all[k]);
    }
    arrive();
    put_gradient(up, part, p, f, scale, total, dx, s);
  } else {
    arrive();
  }
  wait();
}

extern "C" __global__ void __launch_bounds__(512, 2)
    sums(const T* dy, const T* x, const GAMMA* gamma, const A* means, const A* inverses,
         Pair* found, Pair* channel_sums, const Shape s) {
  const Place p(s);
  Part up(dy, p), part(x, p);
  const Pair sum = piece_sums(up, part, p, given_statistics(means, inverses, p),
                              scale_of(gamma, p), channel_sums, s);
  if (found && threadIdx.x == 0) found[blockIdx.x] = sum;
}
// A block for a group.
extern "C" __global__ void __launch_bounds__(256)
    join_sums(const Pair* found, Pair* totals, const Shape s) {
  Pair sum{0, 0};
  for (u32 k = threadIdx.x; k < s.pieces; k += 256)
    sum = AddPair()(sum, found[(i64)blockIdx.x * s.pieces + k]);
  sum = join_lanes<256>(sum, AddPair());
  if (threadIdx.x == 0) totals[blockIdx.x] = sum;
}
extern "C" __global__ void __launch_bounds__(512, 2)
    differentiate(const T* dy, const T* x, const GAMMA* gamma, const A* means, const A* inverses,
                  const Pair* totals, T* dx, const Shape s) {
  const Place p(s);
  if (p.unit < 0) return;
  Part up(dy, p), part(x, p);
  put_gradient(up, part, p, given_statistics(means, inverses, p),
               scale_of(gamma, p), totals[p.group], dx, s);
}
