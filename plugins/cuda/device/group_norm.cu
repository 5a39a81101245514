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
#define CLUSTER PIECES
#include "channel_norm.cuh"
#include "cluster.cuh"

constexpr int kMostWarps = 16;

typedef GroupNormShape Shape;

// Where a thread works.
struct Place {
  i64 group;  // -1: there is none
  u32 piece, n, lane;
  u32 channel;  // in the group
  i64 unit;     // of all images
  i64 start;    // of the unit's n elements; of none without a group

  __device__ explicit Place(const Shape& s) {
    const u32 team_in_block = s.by_team.quotient(threadIdx.x);
    const u32 t = threadIdx.x - team_in_block * s.team, mine = t / LANES;
    const u32 index = s.by_pieces.quotient(blockIdx.x), all = s.channels * s.splits;
    group = index * (i64)s.teams + team_in_block;
    piece = blockIdx.x - index * s.pieces;
    lane = t % LANES;
    const u32 k = piece * s.units + mine;
    n = 0, channel = 0, unit = -1, start = 0;
    if (group >= s.groups) group = -1;
    if (group < 0 || mine >= s.units || k >= all) return;
    channel = s.by_splits.quotient(k);
    const u32 begin = (k - channel * s.splits) * s.unit;
    unit = group * all + k;
    start = (group * s.channels + channel) * s.pixels + begin;
    n = min(s.unit, s.pixels - min(begin, s.pixels));
  }
  // Among all of an image. Slow: to be asked for while loads are under way.
  __device__ u32 channel_in_image(const Shape& s) const {
    const u32 in_image = (u64)group >> 32 == 0 ? (u32)group % s.groups_in_image
                                               : (u32)((u64)group % s.groups_in_image);
    return in_image * s.channels + channel;
  }
  __device__ u32 at(int c) const { return (c * LANES + lane) * VEC; }
  __device__ bool has(int c) const { return at(c) < n; }
};
__device__ inline u32 group_elements(const Shape& s) { return s.channels * s.pixels; }

struct Part {
  Vec<T, VEC> v[CHUNKS];
  __device__ Part(const T* p, const Place& place) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
      if (place.has(c)) v[c] = load<T, VEC>(p + place.start + place.at(c));
  }
  __device__ A operator()(int c, int k) const { return widen_at(v[c], k); }
  __device__ void forget() {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) ::forget(v[c]);
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

// What the warps at work at a group found, in their order: those of a team, or of all blocks of a
// cluster, which write to each other's memory and must have begun. All threads come here.
template <class P>
struct Found {
  const P* parts;
  u32 count;
};
template <class P>
__device__ inline Found<P> share(const P& mine, [[maybe_unused]] u32 piece, const Shape& s) {
  __shared__ __align__(16) u8 memory[PIECES * kMostWarps * sizeof(P)];
  P* const parts = reinterpret_cast<P*>(memory);
  const u32 warps = s.team / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900 && PIECES > 1
  constexpr u32 words = sizeof(P) / 4;
  if (lane < PIECES) {
    u32 to = (u32)__cvta_generic_to_shared(parts + piece * warps + warp);
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(to) : "r"(lane));
    each_word(mine, [&](u32 w) {
      asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(w) : "memory");
      to += 4;
      return w;
    });
  }
  cluster_arrive();
  cluster_wait();
  return {parts, PIECES * warps};
#else
  if (lane == 0) parts[warp] = mine;
  __syncthreads();
  return {parts + threadIdx.x / s.team * warps, warps};
#endif
}
struct WarpSum {
  __device__ A operator()(A v) const { return sum_warp<32>(v); }
};

struct Moments {
  A count, mean, squares;  // squares of the distances from the mean
};
// Of get(k) for every k that the threads of `sum` have.
template <class Get, class Sum>
__device__ inline Moments join_moments(u32 first, u32 end, u32 step, Get&& get, Sum&& sum) {
  A count = 0, total = 0, squares = 0;
#pragma unroll 2
  for (u32 k = first; k < end; k += step) {
    const Moments m = get(k);
    count += m.count;
    total += m.count * m.mean;
  }
  count = sum(count), total = sum(total);
  const A mean = count > 0 ? total / count : A(0);
#pragma unroll 2
  for (u32 k = first; k < end; k += step) {
    const Moments m = get(k);
    squares += m.squares + m.count * (m.mean - mean) * (m.mean - mean);
  }
  return {count, mean, sum(squares)};
}
__device__ inline Statistics statistics_of(const Moments& m, const Shape& s) {
  const A variance = m.squares / m.count;  // NaN of nothing, as is the mean
  return {m.count > 0 ? m.mean : variance, 1 / sqrt(variance + (A)s.eps)};
}
// Each warp takes the distances from its own mean, so that warps exchange only once.
__device__ inline Moments warp_moments(Part& x, const Place& p) {
  u32 own = 0;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) own += p.has(c) ? VEC : 0;
  const A count = WarpSum()((A)own);
  const A sum = WarpSum()(part_sum(p, [&](int c, int k) { return x(c, k); }));
  const A mean = count > 0 ? sum / count : A(0);
  x.forget();
  const A squares = WarpSum()(part_sum(p, [&](int c, int k) {
    const A d = x(c, k) - mean;
    return d * d;
  }));
  return {count, mean, squares};
}
// Of a team, or of a cluster.
__device__ inline Moments find_moments(Part& x, const Place& p, const Shape& s) {
  const Moments mine = warp_moments(x, p);
  if (PIECES == 1 && s.team == 32) return mine;
  const Found<Moments> all = share(mine, p.piece, s);
  return join_moments(threadIdx.x % 32, all.count, 32, [=](u32 k) { return all.parts[k]; },
                      WarpSum());
}
__device__ inline Statistics given_statistics(const A* means, const A* inverses, const Place& p) {
  if (p.group < 0) return {0, 0};
  return {means[p.group], inverses[p.group]};
}

// ---- group_norm

// What a unit is scaled and shifted by; gamma, beta may be absent.
struct Affine {
  A scale, shift;
};
__device__ inline Affine affine_of(const GAMMA* gamma, const BETA* beta, const Place& p,
                                   const Shape& s) {
  if (p.unit < 0) return {0, 0};
  const u32 channel = p.channel_in_image(s);
  return {gamma ? (A)widen(gamma[channel]) : A(1), beta ? (A)widen(beta[channel]) : A(0)};
}
__device__ inline void normalize(Part& x, const Place& p, const Statistics& f, const Affine& to,
                                 T* y) {
  x.forget();
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (!p.has(c)) continue;
    A t[VEC];
#pragma unroll
    for (int k = 0; k < VEC; ++k) t[k] = (x(c, k) - f.mean) * f.inverse * to.scale + to.shift;
    store(y + p.start + p.at(c), narrow_all<T>(t));
  }
}
// means, inverses may be absent.
extern "C" __global__ void IN_CLUSTER __launch_bounds__(512, 2)
    forward(const T* x, const GAMMA* gamma, const BETA* beta, T* y, A* means, A* inverses,
            const Shape s) {
  cluster_begin();
  const Place p(s);
  Part part(x, p);
  const Affine to = affine_of(gamma, beta, p, s);
  cluster_wait();
  const Statistics f = statistics_of(find_moments(part, p, s), s);
  normalize(part, p, f, to, y);
  if (p.group < 0 || p.piece != 0 || threadIdx.x % s.team != 0) return;
  if (means) means[p.group] = f.mean;
  if (inverses) inverses[p.group] = f.inverse;
}

extern "C" __global__ void __launch_bounds__(512, 2)
    moments(const T* x, Moments* found, const Shape s) {
  const Place p(s);
  Part part(x, p);
  const Moments m = find_moments(part, p, s);
  if (threadIdx.x == 0) found[blockIdx.x] = m;
}
// A block for a group.
extern "C" __global__ void __launch_bounds__(256)
    join_groups(const Moments* found, A* means, A* inverses, const Shape s) {
  found += (i64)blockIdx.x * s.pieces;
  const Moments m = join_moments(threadIdx.x, s.pieces, 256, [=](u32 k) { return found[k]; },
                                 [](A v) { return join_lanes<256>(v, Add()); });
  if (threadIdx.x != 0) return;
  const Statistics f = statistics_of(m, s);
  means[blockIdx.x] = f.mean;
  inverses[blockIdx.x] = f.inverse;
}
extern "C" __global__ void __launch_bounds__(512, 2)
    apply(const T* x, const GAMMA* gamma, const BETA* beta, T* y, const A* means,
          const A* inverses, const Shape s) {
  const Place p(s);
  Part part(x, p);
  normalize(part, p, given_statistics(means, inverses, p), affine_of(gamma, beta, p, s), y);
}

// ---- backward

// A warp's sums of gamma times dy. channel_sums, which may be absent: one for each unit.
__device__ inline Pair warp_sums(Part& dy, Part& x, const Place& p,
                                 const Statistics& f, A scale, Pair* channel_sums) {
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
  return sum;
}
// Of a team, or of a cluster.
__device__ inline Pair join_pairs(const Pair& mine, const Place& p, const Shape& s) {
  if (PIECES == 1 && s.team == 32) return mine;
  const Found<Pair> all = share(mine, p.piece, s);
  Pair sum{0, 0};
  for (u32 k = threadIdx.x % 32; k < all.count; k += 32) sum = AddPair()(sum, all.parts[k]);
  return join_warp<32>(sum, AddPair());
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
    A t[VEC];
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      const A normal = (x(c, k) - f.mean) * f.inverse;
      t[k] = f.inverse * (dy(c, k) * scale - mean - normal * slope);
    }
    store(dx + p.start + p.at(c), narrow_all<T>(t));
  }
}
// gamma, means with inverses, dx, channel_sums may be absent.
extern "C" __global__ void IN_CLUSTER __launch_bounds__(512, 2)
    backward(const T* dy, const T* x, const GAMMA* gamma, const A* means, const A* inverses, T* dx,
             Pair* channel_sums, const Shape s) {
  cluster_begin();
  const Place p(s);
  Part up(dy, p), part(x, p);
  const A scale = affine_of(gamma, nullptr, p, s).scale;
  cluster_wait();
  const Statistics f = means ? given_statistics(means, inverses, p)
                             : statistics_of(find_moments(part, p, s), s);
  const Pair mine = warp_sums(up, part, p, f, scale, channel_sums);
  if (dx) put_gradient(up, part, p, f, scale, join_pairs(mine, p, s), dx, s);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    sums(const T* dy, const T* x, const GAMMA* gamma, const A* means, const A* inverses,
         Pair* found, Pair* channel_sums, const Shape s) {
  const Place p(s);
  Part up(dy, p), part(x, p);
  const Pair mine = warp_sums(up, part, p, given_statistics(means, inverses, p),
                              affine_of(gamma, nullptr, p, s).scale, channel_sums);
  const Pair sum = join_pairs(mine, p, s);
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
               affine_of(gamma, nullptr, p, s).scale, totals[p.group], dx, s);
}
