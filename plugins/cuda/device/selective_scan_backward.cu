//variant: TYPE=bf16 BLD=0 VEC=8 BVEC=8 LANES=4 STATES=4 THREADS=256 STEPS=16 WHOLE=1
//variant: TYPE=f32 BLD=1 VEC=1 BVEC=1 LANES=1 STATES=1 THREADS=256 STEPS=16 WHOLE=1
//variant: TYPE=f16 BLD=1 VEC=4 BVEC=1 LANES=16 STATES=8 THREADS=64 STEPS=16 WHOLE=0
// SPDX-License-Identifier: Apache-2.0
// The gradients of selective_scan. A block walks back through the chunks of its channels. A thread
// computes the states of a chunk again from the one before it, keeps them in registers, and walks
// back through them.
//entry: selective_scan_backward = backward(SelectiveScan, SelectiveScanGradients)
//entry: selective_scan_add_sequences = add_sequences(const f32*, f32*, i64, i64)
//entry: selective_scan_add_parts = add_parts(SelectiveScan, const f32*, Out, Out)
#include "selective_scan.cuh"

constexpr int kChunk = 8;
constexpr int kWarps = kThreads / 32, kApart = 32 / kLanes;  // kApart: channels of a warp
constexpr int kPitch = kSteps + 1;
static_assert(kSteps % kChunk == 0, "");
extern __shared__ __align__(16) unsigned char memory[];

// Of a channel's step. The sums over the states take the place of δ·u and of `free`.
struct alignas(16) Step {
  f32 delta, input, dy, free;
};

extern "C" __global__ void __launch_bounds__(THREADS, THREADS* STATES <= 1024 ? 2 : 1)
    backward(const SelectiveScan s, const SelectiveScanGradients g) {
  f32* const shared_b = reinterpret_cast<f32*>(memory);
  f32* const shared_c = shared_b + kSteps * kAll;
  Step* const rows = reinterpret_cast<Step*>(shared_c + kSteps * kAll);
  f32* const outputs = reinterpret_cast<f32*>(rows + kChannels * kPitch);  // C·h of each step
  f32* const products = outputs + kChannels * kPitch;  // [kWarps][kSteps][2][kAll]
  const Tile tile(s);
  const int own = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int warp = threadIdx.x / 32, apart = threadIdx.x % 32 / kLanes;
  const f32* const own_b = shared_b + lane * kStates;
  const f32* const own_c = shared_c + lane * kStates;
  Step* const row = rows + own * kPitch;
  f32 rate[kStates] = {}, later[kStates] = {}, da[kStates] = {};
  bool there[kStates] = {};
  for_states(s, tile, 0, [&](int j, i64 at) { rate[j] = s.a[at] * kLog2e, there[j] = true; });
  if (g.dh_last)
    for_states(s, tile, tile.sequence, [&](int j, i64 at) { later[j] = g.dh_last[at]; });
  // Elements of a vector side by side in the steps are of one channel.
  constexpr int kApartSums = kByStep ? kVec : 1;
  f32 dd[kOwnItems][kApartSums] = {}, dbias[kOwnItems][kApartSums] = {};
  const i64 chunks = (s.steps + kChunk - 1) / kChunk;

  for (i64 begin = (s.steps + kSteps - 1) / kSteps * kSteps; begin > 0;) {
    begin -= kSteps;
    {
      Rows u, dt, dout, z;
      SharedRows b, c;
      load_rows(s, tile, s.u, begin, u);
      load_rows(s, tile, s.dt, begin, dt);
      load_rows(s, tile, g.dy, begin, dout);
      if (s.z) load_rows(s, tile, s.z, begin, z);
      load_shared(s, tile, s.b, begin, b);
      load_shared(s, tile, s.c, begin, c);
      put_shared(b, shared_b);  // all threads are behind the tile before
      put_shared(c, shared_c);
      for_items([&](int p, int c0, int t0) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const int ch = channel_of(c0, e);
          Step step = {};
          if (ch < tile.count) {
            step.delta = widen_at(dt.v[p], e) + (s.dt_bias ? s.dt_bias[tile.first + ch] : 0.f);
            if (s.softplus) step.delta = softplus(step.delta);
          }
          step.input = step.delta * widen_at(u.v[p], e);
          step.dy = widen_at(dout.v[p], e);
          if (s.z) {
            const f32 gate = widen_at(z.v[p], e);
            step.dy *= gate * sigmoid(gate);
          }
          rows[ch * kPitch + step_of(t0, e)] = step;
        }
      });
    }
    __syncthreads();

    const int left = (int)min((i64)kSteps, s.steps - begin);
    for (int t = (left - 1) / kChunk * kChunk; t >= 0; t -= kChunk) {
      const f32* const from =
          g.before + (tile.sequence * chunks + (begin + t) / kChunk) * s.channels * (i64)s.states;
      f32 h[kStates] = {}, power[kChunk][kStates], kept[kChunk][kStates], sums[kChunk] = {};
      for_states(s, tile, 0, [&](int j, i64 at) { h[j] = from[at]; });
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (t + i >= left) continue;
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
        if (keeps_sums<kChunk, kLanes>(lane)) {
          constexpr int each = kChunk >= kLanes ? kChunk / kLanes : 1;
#pragma unroll
          for (int i = 0; i < each; ++i)
            outputs[own * kPitch + t + place_of_sums<kChunk, kLanes>(lane) + i] = sums[i];
        }
      }
      f32 through[kChunk] = {}, change[kChunk] = {};
#pragma unroll
      for (int i = kChunk - 1; i >= 0; --i) {
        if (t + i >= left) continue;
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
          const bool counts = own < tile.count;
          both[j] = counts ? slope * step.input : 0.f;
          both[kStates + j] = counts ? step.dy * fmaf(step.input, bs.v[j], kept[i][j]) : 0.f;
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
          to.input = through[i], to.free = change[i];
        }
      }
    }
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
    // Registers are for the states: what was read before is read again.
    Rows u, dt, dout, z;
    load_rows(s, tile, s.u, begin, u);
    load_rows(s, tile, s.dt, begin, dt);
    load_rows(s, tile, g.dy, begin, dout);
    if (s.z) load_rows(s, tile, s.z, begin, z);
    for_items([&](int p, int c0, int t0) {
      if (!is_there(s, tile, c0, begin + t0)) return;
      f32 du[kVec], ddt[kVec], dz[kVec];
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        const int ch = channel_of(c0, e), t = step_of(t0, e);
        const Step step = rows[ch * kPitch + t];
        const f32 x = widen_at(u.v[p], e), skip = s.d ? s.d[tile.first + ch] : 0.f;
        du[e] = fmaf(step.delta, step.input, s.d ? skip * step.dy : 0.f);
        ddt[e] = fmaf(x, step.input, kLn2 * step.free);
        if (s.softplus)
          ddt[e] *= sigmoid(widen_at(dt.v[p], e) + (s.dt_bias ? s.dt_bias[tile.first + ch] : 0.f));
        dd[p][e % kApartSums] = fmaf(step.dy, x, dd[p][e % kApartSums]);
        dbias[p][e % kApartSums] += ddt[e];
        dz[e] = 0;
        if (g.dz) {
          const f32 gate = widen_at(z.v[p], e), open = sigmoid(gate);
          const f32 sum = outputs[ch * kPitch + t] + (s.d ? skip * x : 0.f);
          dz[e] = widen_at(dout.v[p], e) * sum * open * (1.f + gate * (1.f - open));
        }
      }
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
          e < kApartSums ? Step{dd[p][e % kApartSums], dbias[p][e % kApartSums], 0, 0} : Step{};
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
