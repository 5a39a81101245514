//variant: TYPE=bf16 BLD=0 VEC=8 BVEC=8 LANES=4 STATES=4 THREADS=128 STEPS=64 WHOLE=1
//variant: TYPE=f32 BLD=1 VEC=1 BVEC=1 LANES=1 STATES=1 THREADS=128 STEPS=16 WHOLE=1
//variant: TYPE=f16 BLD=1 VEC=8 BVEC=1 LANES=16 STATES=8 THREADS=128 STEPS=32 WHOLE=0
// SPDX-License-Identifier: Apache-2.0
// selective_scan, and the states that its gradient begins chunks with.
//entry: selective_scan_forward = forward(SelectiveScan, Out, f32*)
//entry: selective_scan_states = states(SelectiveScan, f32*)
#include "selective_scan.cuh"

constexpr int kChunk = 8;                        // of states
constexpr int kGroup = kLanes > 4 ? kLanes : 4;  // steps whose sums are made together
constexpr int kPitch = kSteps + 2;               // pairs of a channel: δ and δ·u
static_assert(kSteps % kGroup == 0 && kSteps % kChunk == 0, "");
extern __shared__ __align__(16) unsigned char memory[];

template <bool kSaves>
__device__ inline void walk(const SelectiveScan& s, T* y, f32* saved) {
  f32* const shared_b = reinterpret_cast<f32*>(memory);
  f32* const shared_c = shared_b + kSteps * kAll;
  Vec<f32, 2>* const pairs = reinterpret_cast<Vec<f32, 2>*>(shared_c + kSteps * kAll);
  const Tile tile(s);
  const int own = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const f32* const own_b = shared_b + lane * kStates;
  const f32* const own_c = shared_c + lane * kStates;
  f32 h[kStates] = {}, rate[kStates] = {};
  bool there[kStates] = {};
  for_states(s, tile, 0, [&](int j, i64 at) { rate[j] = s.a[at] * kLog2e, there[j] = true; });
  if (s.h0) for_states(s, tile, tile.sequence, [&](int j, i64 at) { h[j] = s.h0[at]; });

  Rows u, dt, next_u, z;
  SharedRows b, c;
  const auto fetch = [&](i64 begin) {
    load_rows(s, tile, s.u, begin, next_u);
    load_rows(s, tile, s.dt, begin, dt);
    load_shared(s, tile, s.b, begin, b);
    if constexpr (!kSaves) load_shared(s, tile, s.c, begin, c);
  };
  const auto step = [&](const Vec<f32, 2>& pair, int t, f32& sum) {
    const Vec<f32, kStates> bs = load<f32, kStates>(own_b + t * kAll);
    Vec<f32, kStates> cs;
    if constexpr (!kSaves) cs = load<f32, kStates>(own_c + t * kAll);
#pragma unroll
    for (int j = 0; j < kStates; ++j) {
      h[j] = fmaf(power2(pair.v[0] * rate[j]), h[j], pair.v[1] * bs.v[j]);
      if constexpr (!kSaves) {
        if (kWhole || there[j]) sum = fmaf(cs.v[j], h[j], sum);
      }
    }
  };
  if (s.steps > 0) fetch(0);
  for (i64 begin = 0; begin < s.steps; begin += kSteps) {
    __syncthreads();  // the last tile was read
    u = next_u;
    for_items([&](int p, int c0, int t0) {
      const Deltas deltas = deltas_of(s, dt.v[p], of_channels(tile, s.dt_bias, c0));
#pragma unroll
      for (int e = 0; e < kVec; ++e)
        pairs[channel_of(c0, e) * kPitch + step_of(t0, e)] = {
            {deltas.v[e], deltas.v[e] * widen_at(u.v[p], e)}};
    });
    put_shared(b, shared_b);
    if constexpr (!kSaves) put_shared(c, shared_c);
    if (!kSaves && s.z) load_rows(s, tile, s.z, begin, z);
    if (begin + kSteps < s.steps) fetch(begin + kSteps);
    __syncthreads();

    const int left = (int)min((i64)kSteps, s.steps - begin);
    const Vec<f32, 2>* const row = pairs + own * kPitch;
    if constexpr (kSaves) {
      const i64 chunks = (s.steps + kChunk - 1) / kChunk;
      for (int t = 0; t < left; t += kChunk) {
        f32* const to =
            saved + (tile.sequence * chunks + (begin + t) / kChunk) * s.channels * (i64)s.states;
        for_states(s, tile, 0, [&](int j, i64 at) { to[at] = h[j]; });
        f32 none = 0;
        if (t + kChunk <= left) {
#pragma unroll
          for (int i = 0; i < kChunk; ++i) step(row[t + i], t + i, none);
        } else {
          for (int i = t; i < left; ++i) step(row[i], i, none);
        }
      }
    } else {
      for (int t = 0; t < left; t += kGroup) {
        f32 sums[kGroup] = {};
        if (t + kGroup <= left) {
#pragma unroll
          for (int i = 0; i < kGroup; i += 2) {
            const Vec<f32, 4> two = load<f32, 4>(row[t + i].v);
            step({{two.v[0], two.v[1]}}, t + i, sums[i]);
            step({{two.v[2], two.v[3]}}, t + i + 1, sums[i + 1]);
          }
        } else {
#pragma unroll
          for (int i = 0; i < kGroup; ++i)
            if (t + i < left) step(row[t + i], t + i, sums[i]);
        }
        scatter_sums<kGroup, kLanes>(sums, lane, 1);
        __syncwarp();  // all lanes of the channel have read their pairs
        constexpr int kept = kGroup / kLanes;
#pragma unroll
        for (int i = 0; i < kept; ++i) pairs[own * kPitch + t + lane * kept + i].v[0] = sums[i];
      }
      __syncthreads();
      for_items([&](int p, int c0, int t0) {
        if (!is_there(s, tile, c0, begin + t0)) return;
        f32 result[kVec];
#pragma unroll
        for (int e = 0; e < kVec; ++e)
          result[e] = pairs[channel_of(c0, e) * kPitch + step_of(t0, e)].v[0];
        if (s.d) {
          const OfChannels skip = of_channels(tile, s.d, c0);
#pragma unroll
          for (int e = 0; e < kVec; ++e)
            result[e] = fmaf(skip.at(e), widen_at(u.v[p], e), result[e]);
        }
        if (s.z) {
#pragma unroll
          for (int e = 0; e < kVec; ++e) {
            const f32 gate = widen_at(z.v[p], e);
            result[e] *= gate * sigmoid(gate);
          }
        }
        store(y + row_at(s, tile, c0, begin + t0), narrow_all<T, kVec>(result));
      });
    }
  }
  if constexpr (!kSaves)
    if (saved) for_states(s, tile, tile.sequence, [&](int j, i64 at) { saved[at] = h[j]; });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    forward(const SelectiveScan s, T* y, f32* h_last) {
  walk<false>(s, y, h_last);
}
extern "C" __global__ void __launch_bounds__(THREADS) states(const SelectiveScan s, f32* before) {
  walk<true>(s, nullptr, before);
}
