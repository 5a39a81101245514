// SPDX-License-Identifier: Apache-2.0
// Tiles of selective_scan: some channels of one group, and some steps. A channel has LANES lanes of
// a warp with STATES states each. TYPE: of u; BLD: the layout; VEC, BVEC: elements of an access to
// u and to b; THREADS, STEPS: of a tile; WHOLE: LANES · STATES is the number of states.
//variant: TYPE=bf16 BLD=0 VEC=8 BVEC=8 LANES=4 STATES=4 THREADS=128 STEPS=64 WHOLE=1
#pragma once
#include "scatter_sums.cuh"
#include "selective_scan.args.cuh"

typedef TYPE T;
constexpr int kLanes = LANES, kStates = STATES, kThreads = THREADS, kSteps = STEPS;
constexpr int kChannels = kThreads / kLanes, kAll = kLanes * kStates;
constexpr int kVec = VEC, kSharedVec = BVEC;
constexpr bool kByStep = BLD != 0, kWhole = WHOLE != 0;
constexpr f32 kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

__device__ inline f32 power2(f32 x) {
  if constexpr (sizeof(T) == 2) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  } else {
    return exp2f(x);
  }
}
__device__ inline f32 log2_of(f32 x) {  // no denormals
  f32 y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline f32 reciprocal(f32 x) {  // of infinity: 0
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Of 16-bit types without branches, so that elements of a vector go side by side.
__device__ inline f32 softplus(f32 x) {
  if constexpr (sizeof(T) == 2) {
    const f32 e = power2(x * kLog2e);
    // 1 + e has few bits of a small e.
    const f32 small = e * (1.f - e * (0.5f - e * (0.33333333f - e * 0.25f)));
    const f32 result = e < 0.03125f ? small : kLn2 * log2_of(1.f + e);
    return x > 20.f ? x : result;
  } else {
    return x > 20.f ? x : log1pf(expf(x));
  }
}
__device__ inline f32 sigmoid(f32 x) {
  if constexpr (sizeof(T) == 2)
    return reciprocal(1.f + power2(-x * kLog2e));
  else
    return 1.f / (1.f + expf(-x));
}

// The block's channels.
struct Tile {
  i64 sequence;
  int group, first, count;  // first: channel

  __device__ explicit Tile(const SelectiveScan& s) {
    const u32 row = blockIdx.x / s.blocks, part = blockIdx.x % s.blocks;
    sequence = row / s.groups;
    group = (int)(row % s.groups);
    first = group * s.each + (int)part * kChannels;
    count = min(kChannels, s.each - (int)part * kChannels);
  }
};

// The vectors of u, dt, dy and z of a tile that this thread moves.
constexpr int kItems = kChannels * kSteps / kVec;
constexpr int kOwnItems = (kItems + kThreads - 1) / kThreads;
struct Rows {
  Vec<T, kVec> v[kOwnItems];
};
// Item p of this thread: f(c, t), of its first element in the tile.
template <class F>
__device__ inline void for_items(F&& f) {
#pragma unroll
  for (int p = 0; p < kOwnItems; ++p) {
    const int i = p * kThreads + (int)threadIdx.x;
    if (kItems % kThreads != 0 && i >= kItems) continue;
    if constexpr (kByStep) {
      constexpr int width = kChannels / kVec;
      f(p, i % width * kVec, i / width);
    } else {
      // Two vectors of a channel side by side are a sector.
      constexpr int side = kSteps / kVec >= 2 ? 2 : 1;
      f(p, i / side % kChannels, (i % side + i / (side * kChannels) * side) * kVec);
    }
  }
}
__device__ inline int channel_of(int c, int e) { return kByStep ? c + e : c; }
__device__ inline int step_of(int t, int e) { return kByStep ? t : t + e; }
__device__ inline i64 row_at(const SelectiveScan& s, const Tile& tile, int c, i64 t) {
  return kByStep ? (tile.sequence * s.steps + t) * s.channels + tile.first + c
                 : (tile.sequence * s.channels + tile.first + c) * s.steps + t;
}
// A number of each channel of a vector of the tile: one where its elements are steps. Zeros where absent.
constexpr int kApartChannels = kByStep ? kVec : 1;
struct OfChannels {
  f32 v[kApartChannels];
  __device__ f32 at(int e) const { return v[e % kApartChannels]; }
};
__device__ inline OfChannels of_channels(const Tile& tile, const f32* from, int c) {
  OfChannels to;
#pragma unroll
  for (int e = 0; e < kApartChannels; ++e)
    to.v[e] = from && c + e < tile.count ? from[tile.first + c + e] : 0.f;
  return to;
}
// δ of a vector of dt.
struct Deltas {
  f32 v[kVec];
};
__device__ inline Deltas deltas_of(const SelectiveScan& s, const Vec<T, kVec>& dt,
                                   const OfChannels& bias) {
  Deltas to;
#pragma unroll
  for (int e = 0; e < kVec; ++e) to.v[e] = widen_at(dt, e) + bias.at(e);
  if (s.softplus) {
#pragma unroll
    for (int e = 0; e < kVec; ++e) to.v[e] = softplus(to.v[e]);
  }
  return to;
}
__device__ inline bool is_there(const SelectiveScan& s, const Tile& tile, int c, i64 t) {
  return c < tile.count && t < s.steps;
}
__device__ inline void load_rows(const SelectiveScan& s, const Tile& tile, const void* from,
                                 i64 begin, Rows& to) {
  for_items([&](int p, int c, int t) {
    if (is_there(s, tile, c, begin + t))
      to.v[p] = load<T, kVec>(static_cast<const T*>(from) + row_at(s, tile, c, begin + t));
    else
      to.v[p] = Vec<T, kVec>{};
  });
}

// Likewise b or c; in shared memory they are floats [kSteps][kAll].
constexpr int kSharedItems = kAll * kSteps / kSharedVec;
constexpr int kOwnShared = (kSharedItems + kThreads - 1) / kThreads;
struct SharedRows {
  Vec<T, kSharedVec> v[kOwnShared];
};
template <class F>
__device__ inline void for_shared(F&& f) {
#pragma unroll
  for (int p = 0; p < kOwnShared; ++p) {
    const int i = p * kThreads + (int)threadIdx.x;
    if (kSharedItems % kThreads != 0 && i >= kSharedItems) continue;
    if constexpr (kByStep) {
      constexpr int width = kAll / kSharedVec;
      f(p, i % width * kSharedVec, i / width);
    } else {
      f(p, i % kAll, i / kAll * kSharedVec);
    }
  }
}
__device__ inline i64 shared_at(const SelectiveScan& s, const Tile& tile, int n, i64 t) {
  return kByStep ? ((tile.sequence * s.steps + t) * s.groups + tile.group) * s.states + n
                 : ((tile.sequence * s.groups + tile.group) * s.states + n) * s.steps + t;
}
__device__ inline void load_shared(const SelectiveScan& s, const Tile& tile, const void* from,
                                   i64 begin, SharedRows& to) {
  for_shared([&](int p, int n, int t) {
    if (n < s.states && begin + t < s.steps)
      to.v[p] = load<T, kSharedVec>(static_cast<const T*>(from) + shared_at(s, tile, n, begin + t));
    else
      to.v[p] = Vec<T, kSharedVec>{};
  });
}
__device__ inline void put_shared_vector(const Vec<T, kSharedVec>& from, int n, int t, f32* to) {
#pragma unroll
  for (int e = 0; e < kSharedVec; ++e)
    to[(kByStep ? t : t + e) * kAll + (kByStep ? n + e : n)] = widen_at(from, e);
}
__device__ inline void put_shared(const SharedRows& from, f32* to) {
  for_shared([&](int p, int n, int t) { put_shared_vector(from.v[p], n, t, to); });
}

// f(j, where it is in [.., D, N]) for each state of this thread that exists.
template <class F>
__device__ inline void for_states(const SelectiveScan& s, const Tile& tile, i64 sequence, F&& f) {
  const int own = threadIdx.x / kLanes, first = (int)threadIdx.x % kLanes * kStates;
#pragma unroll
  for (int j = 0; j < kStates; ++j)
    if (own < tile.count && first + j < s.states)
      f(j, (sequence * s.channels + tile.first + own) * s.states + first + j);
}
