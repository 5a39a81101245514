//variant: TYPE=f32 THREADS=1024
//variant: TYPE=bf16 THREADS=256
//variant: TYPE=f64 THREADS=1024
// SPDX-License-Identifier: Apache-2.0
// sample: a block to a row. Weights are e^((x - greatest) / temperature), so the greatest is 1. Their
// sums are whole numbers of 2^-s.fraction: the same in whatever order they are made.
#include "order.cuh"
#include "philox.cuh"

typedef TYPE T;
typedef Order<f32, true> O;  // the best logit has the least key

__device__ inline f32 logit(const T* x, u32 i) { return (f32)widen(x[i]); }
__device__ inline u32 key_of(f32 x) { return O::key(__float_as_uint(x)); }
__device__ inline f32 logit_of(u32 key) {
  const u32 zero = 0;
  return __uint_as_float(O::element(key, &zero));
}
// All threads call f with the keys of a row, in any order.
template <class F>
__device__ inline void for_keys(const T* x, u32 n, F f) {
  for_line<THREADS>(x, n, 1, [&](const auto& v, u32) {
    constexpr int N = sizeof(v) / sizeof(T);
#pragma unroll
    for (int k = 0; k < N; ++k) f(key_of((f32)widen(v.v[k])));
  });
}
struct Weigh {
  f32 most, temperature;
  i32 fraction;
  __device__ f32 operator()(f32 x) const { return expf((x - most) / temperature); }
  __device__ u64 whole(f32 w) const { return (u64)((f64)w * (f64)((u64)1 << fraction)); }
};

// The greatest and where it is first; NaN counts as the greatest.
struct Best {
  f32 value;
  u32 place;
};
struct Better {
  __device__ Best operator()(const Best& a, const Best& b) const {
    const bool less = a.value < b.value || (a.value == a.value && b.value != b.value);
    const bool greater = b.value < a.value || (b.value == b.value && a.value != a.value);
    if (less || greater) return less ? b : a;
    return a.place < b.place ? a : b;
  }
};

// What is kept: keys below `key`, and of those that equal it the first `equals` by index.
struct Kept {
  u32 key, equals;
};

constexpr int kDigit = 11, kBins = 1 << kDigit;

// Sums of each bin in two words, so that one atomic serves for each.
struct Bins {
  u32 low[kBins], high[kBins];
  __device__ void add(u32 b, u64 v) {
    if (v == 0) return;
    const u32 word = (u32)v, carry = atomicAdd(&low[b], word) > ~word;
    const u32 upper = (u32)(v >> 32) + carry;
    if (upper != 0) atomicAdd(&high[b], upper);
  }
  __device__ u64 at(u32 b) const { return (u64)high[b] << 32 | low[b]; }
};

// How many of the best, as `of` keeps them, it takes until the sum of unit(key) is `wanted`, which
// is at least 1 and at most their sum.
template <class Unit>
__device__ inline Kept reach(const T* x, u32 n, const Kept& of, u64 wanted, Unit unit) {
  __shared__ Bins bins;
  u32 prefix = 0, mask = 0;
  for (int top = 32; top > 0;) {
    const int width = top < kDigit ? top : kDigit, shift = top - width;
    const u32 digits = (1u << width) - 1;
    for (int b = threadIdx.x; b < kBins; b += THREADS) bins.low[b] = bins.high[b] = 0;
    __syncthreads();
    for_keys(x, n, [&](u32 key) {
      if (key < of.key && (key & mask) == prefix) bins.add(key >> shift & digits, unit(key));
    });
    if (threadIdx.x == 0 && of.equals > 0 && (of.key & mask) == prefix)
      bins.add(of.key >> shift & digits, unit(of.key) * of.equals);
    __syncthreads();
    const Bin<u64> bin = find_bin<THREADS, kBins>(wanted, [&](u32 b) { return bins.at(b); });
    wanted -= bin.before;
    prefix |= bin.index << shift;
    mask |= digits << shift;
    top = shift;
  }
  const u64 each = unit(prefix);
  return {prefix, (u32)((wanted + each - 1) / each)};
}

// Sums over [begin, end) by one warp: what is surely kept, and the number of those that equal.
struct Sums {
  u64 mass;
  u32 equals, unused;
};
struct AddSums {
  __device__ Sums operator()(const Sums& a, const Sums& b) const {
    return {a.mass + b.mass, a.equals + b.equals, 0};
  }
};
template <class Unit>
__device__ inline Sums sums_of(const T* x, u32 begin, u32 end, const Kept& kept, Unit unit) {
  Sums sum{0, 0, 0};
#pragma unroll 8
  for (u32 i = begin + threadIdx.x % 32; i < end; i += 32) {
    const u32 key = key_of(logit(x, i));
    if (key < kept.key) sum.mass += unit(key);
    sum.equals += key == kept.key;
  }
  return join_warp<32>(sum, AddSums());
}

struct Drawn {
  u32 place;
  u64 total;
};
// The first kept place at which the sum of unit passes u of the total, which is not 0.
template <class Unit>
__device__ inline Drawn draw_kept(const T* x, u32 n, const Kept& kept, f64 u, Unit unit) {
  constexpr u32 warps = THREADS / 32;
  __shared__ Sums sums[warps];
  const u64 each = unit(kept.key);
  u32 begin = 0, end = n, left = kept.equals;  // left: of the equals, from begin on
  u64 total = 0, past = 0, before = 0;
  for (bool first = true; first || end - begin > 1; first = false) {
    const u32 part = (end - begin + warps - 1) / warps, warp = threadIdx.x / 32;
    const Sums own = sums_of(x, min(end, begin + warp * part), min(end, begin + warp * part + part),
                             kept, unit);
    __syncthreads();  // the last sums were read
    if (threadIdx.x % 32 == 0) sums[warp] = own;
    __syncthreads();
    if (first) {
      u32 rest = left;
      for (u32 w = 0; w < warps; ++w) {
        const u32 take = min(rest, sums[w].equals);
        total += sums[w].mass + take * each;
        rest -= take;
      }
      const u64 share = (u64)(u * (f64)total);
      past = share < total ? share : total - 1;
    }
    // The part in which the sum passes.
    for (u32 w = 0; w < warps; ++w) {
      const u32 take = min(left, sums[w].equals);
      const u64 next = before + sums[w].mass + take * each;
      if (next > past) {
        begin += w * part;
        end = min(end, begin + part);
        break;
      }
      before = next;
      left -= take;
    }
  }
  return {begin, total};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sample(const T* __restrict__ logits, const u64* rng, i64* ids, f32* logprob, const Sample s,
           const ErrorSink sink) {
  const i64 row = blockIdx.x;
  const T* const x = logits + row * s.columns;
  const u32 n = s.columns;
  const auto put = [&](i64 id, f32 p) {
    if (threadIdx.x != 0) return;
    ids[row] = id;
    if (logprob) logprob[row] = p;
  };
  Best best{-infinity<f32>(), ~0u};
  for_line<THREADS>(x, n, 1, [&](const auto& v, u32 i) {
    constexpr int N = sizeof(v) / sizeof(T);
#pragma unroll
    for (int k = 0; k < N; ++k) best = Better()(best, {(f32)widen(v.v[k]), i + k});
  });
  best = join_lanes<THREADS>(best, Better());
  if (!(fabsf(best.value) < infinity<f32>())) {
    put(-1, 0);
    if (threadIdx.x == 0) report(sink, kNumericError, (u64)row);
    return;
  }
  if (s.temperature == 0) return put(best.place, 0);
  const Weigh weigh{best.value, s.temperature, s.fraction};
  Kept kept{~0u, 0};  // all: no key is this one
#pragma unroll 1
  for (int by_mass = 0; by_mass < 2; ++by_mass) {
    if (by_mass ? !(s.top_p < 1) : s.top_k == 0) continue;
    const auto unit = [&](u32 key) { return by_mass ? weigh.whole(weigh(logit_of(key))) : 1; };
    u64 wanted = s.top_k;
    if (by_mass) {
      Sums all{0, 0, 0};
      for_keys(x, n, [&](u32 key) {
        if (key < kept.key) all.mass += unit(key);
      });
      all = join_lanes<THREADS>(all, AddSums());
      if (kept.equals > 0) all.mass += unit(kept.key) * kept.equals;
      const f64 share = ceil(s.top_p * (f64)all.mass);
      wanted = share < 1 ? 1 : min((u64)share, all.mass);
    }
    kept = reach(x, n, kept, wanted, unit);
  }
  const auto filtered = [&](u32 key) {
    const f32 w = weigh(logit_of(key));
    return w >= s.min_p ? weigh.whole(w) : (u64)0;
  };
  const Words words = philox(rng, (u64)row);
  const Drawn drawn = draw_kept(x, n, kept, unit_f64(words.w[0], words.w[1]), filtered);
  const f64 w = (f64)weigh(logit(x, drawn.place));
  put(drawn.place, (f32)log(w * (f64)((u64)1 << s.fraction) / (f64)drawn.total));
}
