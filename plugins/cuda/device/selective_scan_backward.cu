//variant: TYPE=bf16 BLD=0 VEC=8 BVEC=8 LANES=4 STATES=4 THREADS=128 STEPS=32 WHOLE=1
//variant: TYPE=f32 BLD=1 VEC=1 BVEC=1 LANES=1 STATES=1 THREADS=128 STEPS=16 WHOLE=1
//variant: TYPE=f16 BLD=1 VEC=4 BVEC=1 LANES=16 STATES=8 THREADS=64 STEPS=16 WHOLE=0
// SPDX-License-Identifier: Apache-2.0
// The gradients of selective_scan. A block walks back through the chunks of its channels. A thread
// computes the states of a chunk again from the one before it, keeps them in registers, and walks
// back through them.
//entry: selective_scan_backward = backward(SelectiveScan, SelectiveScanGradients)
//entry: selective_scan_add_sequences = add_sequences(const f32*, f32*, i64, i64)
//entry: selective_scan_add_parts = add_parts(SelectiveScan, const f32*, Out, Out)
#include "async.cuh"
#include "selective_scan.cuh"

constexpr int kChunk = 8;
constexpr int kWarps = kThreads / 32, kApart = 32 / kLanes;  // kApart: channels of a warp
constexpr int kPitch = kSteps + 1;
static_assert(kSteps % kChunk == 0, "");
extern __shared__ __align__(16) unsigned char memory[];

// Of a channel's step. Sums over the states take the place of `input`, of `dy`, and of `sum`: C·h.
struct alignas(16) Step {
  f32 delta, input, dy, sum;
};

// Operands of a tile as they are stored: a thread copies there what it alone reads. What the end of a
// tile reads again has two places, since the next tile is then on its way.
typedef Vec<T, kVec> RowVec;
typedef Vec<T, kSharedVec> SharedVec;
struct Stored {
  RowVec u[kItems], dy[kItems], z[kItems];
};
struct Area {
  f32 b[kSteps * kAll], c[kSteps * kAll];
  Step rows[kChannels * kPitch];
  f32 products[kWarps * kSteps * 2 * kAll];
  Stored stored[2];
  RowVec dt[kItems];
  alignas(16) SharedVec stored_b[kSharedItems], stored_c[kSharedItems];
};

// What kernels/selective_scan.cpp asks for.
static_assert(sizeof(Area) == kSteps * kAll * 8 + kChannels * kPitch * 16 +
                                  kWarps * kSteps * kAll * 8 +
                                  sizeof(T) * kSteps * (7 * kChannels + 2 * kAll),
              "");

template <class V>
__device__ inline void fetch(V& to, const void* from, i64 at, bool there) {
  const T* const p = static_cast<const T*>(from) + (there ? at : 0);
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(V) == 16) {
    copy_async(&to, p, there);
    return;
  }
#endif
  to = there ? *reinterpret_cast<const V*>(p) : V{};
}
__device__ inline void await_copies() {
#if __CUDA_ARCH__ >= 800
  copy_commit();
  copy_wait<0>();
#endif
}

// σ(x) of δ = softplus(x).
__device__ inline f32 softplus_slope(f32 delta) {
  if constexpr (sizeof(T) == 2) {
    const f32 small = delta * (1.f - delta * (0.5f - delta * 0.16666667f));
    return delta < 0.03125f ? small : 1.f - power2(-delta * kLog2e);
  } else {
    return -expm1f(-delta);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, THREADS* STATES <= 512     ? 4
                                                      : THREADS * STATES <= 1024 ? 2
                                                                                 : 1)
    backward(const SelectiveScan s, const SelectiveScanGradients g) {
  Area& area = *reinterpret_cast<Area*>(memory);
  f32* const products = area.products;  // [kWarps][kSteps][2][kAll]
  Step* const rows = area.rows;
  const Tile tile(s);
  const int own = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int warp = threadIdx.x / 32, apart = threadIdx.x % 32 / kLanes;
  const f32* const own_b = area.b + lane * kStates;
  const f32* const own_c = area.c + lane * kStates;
  Step* const row = rows + own * kPitch;
  f32 rate[kStates] = {}, later[kStates] = {}, da[kStates] = {};
  bool there[kStates] = {};
  for_states(s, tile, 0, [&](int j, i64 at) { rate[j] = s.a[at] * kLog2e, there[j] = true; });
  if (g.dh_last)
    for_states(s, tile, tile.sequence, [&](int j, i64 at) { later[j] = g.dh_last[at]; });
  // Elements of a vector side by side in the steps are of one channel.
  f32 dd[kOwnItems][kApartChannels] = {}, dbias[kOwnItems][kApartChannels] = {};
  const i64 chunks = (s.steps + kChunk - 1) / kChunk;

  const auto fetch_tile = [&](i64 begin, Stored& to) {
    for_items([&](int p, int c, int t) {
      const int i = p * kThreads + (int)threadIdx.x;
      const bool there = is_there(s, tile, c, begin + t);
      const i64 at = row_at(s, tile, c, begin + t);
      fetch(to.u[i], s.u, at, there);
      fetch(area.dt[i], s.dt, at, there);
      fetch(to.dy[i], g.dy, at, there);
      if (s.z) fetch(to.z[i], s.z, at, there);
    });
    for_shared([&](int p, int n, int t) {
      const int i = p * kThreads + (int)threadIdx.x;
      const bool there = n < s.states && begin + t < s.steps;
      const i64 at = shared_at(s, tile, n, begin + t);
      fetch(area.stored_b[i], s.b, at, there);
      fetch(area.stored_c[i], s.c, at, there);
    });
  };

  // Back through the steps [t, end) of the tile at `begin`, at most kChunk.
  const auto pass = [&](i64 begin, int t, int end) __attribute__((always_inline)) {
    const f32* const from =
        g.before + (tile.sequence * chunks + (begin + t) / kChunk) * s.channels * (i64)s.states;
    f32 h[kStates] = {}, power[kChunk][kStates], kept[kChunk][kStates], sums[kChunk] = {};
    for_states(s, tile, 0, [&](int j, i64 at) { h[j] = from[at]; });
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (t + i >= end) continue;
      const Step step = row[t + i];
      const Vec<f32, kStates> bs = load<f32, kStates>(own_b + (t + i) * kAll);
      const Vec<f32, kStates> cs = load<f32, kStates>(own_c + (t + i) * kAll);
#pragma unroll
      for (int j = 0; j < kStates; ++j) {
        power[i][j] = power2(step.delta * rate[j]);
        kept[i][j] = power[i][j] * h[j];
        h[j] = fmaf(step.input, bs.v[j], kept[i][j]);
        if (kWhole || there[j]) sums[i] = fmaf(cs.v[j], h[j], sums[i]);
      }
    }
    if (g.dz) {
      scatter_sums<kChunk, kLanes>(sums, lane, 1);
      __syncwarp();  // all lanes of the channel have read its steps
      if (keeps_sums<kChunk, kLanes>(lane)) {
        constexpr int each = kChunk >= kLanes ? kChunk / kLanes : 1;
#pragma unroll
        for (int i = 0; i < each; ++i)
          row[t + place_of_sums<kChunk, kLanes>(lane) + i].sum = sums[i];
      }
      __syncwarp();
    }
    f32 through[kChunk] = {}, change[kChunk] = {};
#pragma unroll
    for (int i = kChunk - 1; i >= 0; --i) {
      if (t + i >= end) continue;
      const Step step = row[t + i];
      const Vec<f32, kStates> bs = load<f32, kStates>(own_b + (t + i) * kAll);
      const Vec<f32, kStates> cs = load<f32, kStates>(own_c + (t + i) * kAll);
      f32 both[2 * kStates];  // what the channel adds to db, then to dc
#pragma unroll
      for (int j = 0; j < kStates; ++j) {
        const f32 slope = fmaf(step.dy, cs.v[j], later[j]);
        const f32 moved = slope * kept[i][j];
        if (kWhole || there[j]) {
          through[i] = fmaf(slope, bs.v[j], through[i]);
          change[i] = fmaf(rate[j], moved, change[i]);
        }
        da[j] = fmaf(step.delta, moved, da[j]);
        later[j] = power[i][j] * slope;
        // A channel beyond the block's has input = dy = 0.
        both[j] = slope * step.input;
        both[kStates + j] = step.dy * fmaf(step.input, bs.v[j], kept[i][j]);
      }
      scatter_sums<2 * kStates, kApart>(both, apart, kLanes);
      if (keeps_sums<2 * kStates, kApart>(apart)) {
        constexpr int each = 2 * kStates >= kApart ? 2 * kStates / kApart : 1;
#pragma unroll
        for (int k = 0; k < each; ++k) {
          const int at = place_of_sums<2 * kStates, kApart>(apart) + k;
          products[((warp * kSteps + t + i) * 2 + at / kStates) * kAll + lane * kStates +
                   at % kStates] = both[k];
        }
      }
    }
    scatter_sums<kChunk, kLanes>(through, lane, 1);
    scatter_sums<kChunk, kLanes>(change, lane, 1);
    __syncwarp();  // all lanes of the channel have read its steps
    if (keeps_sums<kChunk, kLanes>(lane)) {
      constexpr int each = kChunk >= kLanes ? kChunk / kLanes : 1;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        Step& to = row[t + place_of_sums<kChunk, kLanes>(lane) + i];
        to.input = through[i], to.dy = change[i];
      }
    }
  };

  i64 begin = (s.steps - 1) / kSteps * kSteps;
  if (s.steps > 0) fetch_tile(begin, area.stored[0]);
  for (int turn = 0; begin >= 0 && s.steps > 0; begin -= kSteps, turn ^= 1) {
    const Stored& stored = area.stored[turn];
    await_copies();
    for_items([&](int p, int c0, int t0) {
      const int i = p * kThreads + (int)threadIdx.x;
      const RowVec u = stored.u[i], dout = stored.dy[i];
      const Deltas deltas = deltas_of(s, area.dt[i], of_channels(tile, s.dt_bias, c0));
      f32 dy[kVec];
#pragma unroll
      for (int e = 0; e < kVec; ++e) dy[e] = widen_at(dout, e);
      if (s.z) {
        const RowVec z = stored.z[i];
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const f32 gate = widen_at(z, e);
          dy[e] *= gate * sigmoid(gate);
        }
      }
#pragma unroll
      for (int e = 0; e < kVec; ++e)
        rows[channel_of(c0, e) * kPitch + step_of(t0, e)] = {
            deltas.v[e], deltas.v[e] * widen_at(u, e), dy[e], 0.f};
    });
    for_shared([&](int p, int n, int t) {
      const int i = p * kThreads + (int)threadIdx.x;
      put_shared_vector(area.stored_b[i], n, t, area.b);
      put_shared_vector(area.stored_c[i], n, t, area.c);
    });
    __syncthreads();
    if (begin > 0) fetch_tile(begin - kSteps, area.stored[turn ^ 1]);

    const int left = (int)min((i64)kSteps, s.steps - begin);
    int t = (left - 1) / kChunk * kChunk;
    if (t + kChunk > left) pass(begin, t, left), t -= kChunk;
    for (; t >= 0; t -= kChunk) pass(begin, t, t + kChunk);
    __syncthreads();

    const i64 part =
        ((tile.sequence * s.groups + tile.group) * s.blocks + blockIdx.x % s.blocks) * s.steps +
        begin;
    for (int i = threadIdx.x; i < left * 2 * kAll; i += kThreads) {
      const int n = i % kAll;
      if (n >= s.states) continue;
      f32 sum = products[i];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) sum += products[w * kSteps * 2 * kAll + i];
      g.parts[(part * 2 + i / kAll) * s.states + n] = sum;
    }
    for_items([&](int p, int c0, int t0) {
      if (!is_there(s, tile, c0, begin + t0)) return;
      const int i = p * kThreads + (int)threadIdx.x;
      const RowVec u = stored.u[i], dout = stored.dy[i];
      const OfChannels skip = of_channels(tile, s.d, c0);
      f32 dy[kVec], du[kVec], ddt[kVec], dz[kVec] = {};
      const auto step_at = [&](int e) -> const Step& {  // input: through, dy: change
        return rows[channel_of(c0, e) * kPitch + step_of(t0, e)];
      };
#pragma unroll
      for (int e = 0; e < kVec; ++e) dy[e] = widen_at(dout, e);
      if (s.z) {
        const RowVec z = stored.z[i];
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const f32 gate = widen_at(z, e), open = sigmoid(gate);
          const f32 sum = step_at(e).sum + (s.d ? skip.at(e) * widen_at(u, e) : 0.f);
          dz[e] = dy[e] * sum * open * (1.f + gate * (1.f - open));
          dy[e] *= gate * open;
        }
      }
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        const Step step = step_at(e);
        const f32 x = widen_at(u, e);
        du[e] = fmaf(step.delta, step.input, s.d ? skip.at(e) * dy[e] : 0.f);
        ddt[e] = fmaf(x, step.input, kLn2 * step.dy);
        dd[p][e % kApartChannels] = fmaf(dy[e], x, dd[p][e % kApartChannels]);
      }
      if (s.softplus) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) ddt[e] *= softplus_slope(step_at(e).delta);
      }
#pragma unroll
      for (int e = 0; e < kVec; ++e) dbias[p][e % kApartChannels] += ddt[e];
      const i64 at = row_at(s, tile, c0, begin + t0);
      if (g.du) store(static_cast<T*>(g.du) + at, narrow_all<T, kVec>(du));
      if (g.ddt) store(static_cast<T*>(g.ddt) + at, narrow_all<T, kVec>(ddt));
      if (g.dz) store(static_cast<T*>(g.dz) + at, narrow_all<T, kVec>(dz));
    });
    __syncthreads();
  }

  const i64 sequence = tile.sequence * s.channels + tile.first;
  for_states(s, tile, tile.sequence, [&](int j, i64 at) {
    g.da[at] = da[j];
    if (g.dh0) g.dh0[at] = later[j];
  });
  for_items([&](int p, int c0, int t0) {
#pragma unroll
    for (int e = 0; e < kVec; ++e)
      rows[channel_of(c0, e) * kPitch + step_of(t0, e)] =
          e < kApartChannels ? Step{dd[p][e % kApartChannels], dbias[p][e % kApartChannels], 0, 0}
                             : Step{};
  });
  __syncthreads();
  if (lane == 0 && own < tile.count) {
    f32 sum = 0, bias = 0;
    for (int t = 0; t < kSteps; ++t) sum += row[t].delta, bias += row[t].input;
    g.dd[sequence + own] = sum, g.ddt_bias[sequence + own] = bias;
  }
}

// to[i] = the sum of from[k][i] over the sequences.
extern "C" __global__ void __launch_bounds__(256)
    add_sequences(const f32* from, f32* to, i64 count, i64 sequences) {
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  f32 sum = 0;
  for (i64 k = 0; k < sequences; ++k) sum += from[k * count + i];
  to[i] = sum;
}

// db and dc from their parts; a block takes 256 numbers of the parts of one group.
extern "C" __global__ void __launch_bounds__(256)
    add_parts(const SelectiveScan s, const f32* parts, T* db, T* dc) {
  const i64 width = 2 * s.states, count = s.steps * width, across = (count + 255) / 256;
  const i64 row = blockIdx.x / across;  // sequence · groups + group
  const i64 i = blockIdx.x % across * 256 + threadIdx.x;
  if (i >= count) return;
  const f32* const from = parts + row * s.blocks * count + i;
  f32 sum = 0;
#pragma unroll 4
  for (int k = 0; k < s.blocks; ++k) sum += from[k * count];
  const i64 t = i / width;
  const int n = (int)(i % width) % s.states;
  T* const to = i % width < s.states ? db : dc;
  const i64 sequence = row / s.groups, group = row % s.groups;
  const i64 at = kByStep ? ((sequence * s.steps + t) * s.groups + group) * s.states + n
                         : (row * s.states + n) * s.steps + t;
  if (to) to[at] = narrow<T>(sum);
}
