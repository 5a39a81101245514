// SPDX-License-Identifier: Apache-2.0
// A transform of POINTS complex numbers by LANES threads, in registers and shared memory. Each pass of
// RADICES, whose product is POINTS, makes butterflies of its radix in registers. Between passes the
// numbers change threads. Results are in natural order (Stockham's algorithm), without bit reversal.
// COLUMNS transforms may alternate in shared memory. PARTS: 2 exchanges real and imaginary parts at
// once, 1 one after the other in half the memory. An inverse transform swaps the parts of its operand and
// of its result. unit.cuda.fft compiles this file for the host, once for each of its transforms.
//variant: POINTS=256 RADICES=16,16 LANES=16 THREADS=256 COLUMNS=1 PARTS=2
#ifdef __CUDACC__
#include "common.cuh"
#include "fft.args.cuh"
#endif

// A number that the compiler knows, as an argument.
template <int N>
struct Number {
  static constexpr int value = N;
};
template <int I, int END, class F>
__device__ __forceinline__ void each(F&& f) {
  if constexpr (I < END) {
    f(Number<I>{});
    each<I + 1, END>(f);
  }
}

// ---- complex numbers

__device__ __forceinline__ c64 operator+(c64 a, c64 b) { return {a.re + b.re, a.im + b.im}; }
__device__ __forceinline__ c64 operator-(c64 a, c64 b) { return {a.re - b.re, a.im - b.im}; }
__device__ __forceinline__ c64 operator*(c64 a, c64 b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ __forceinline__ c64 conjugate(c64 a) { return {a.re, -a.im}; }
__device__ __forceinline__ c64 swapped(c64 a) { return {a.im, a.re}; }
__device__ __forceinline__ c64 scaled(c64 a, f32 by) { return {a.re * by, a.im * by}; }

// Number i of a table, which no kernel writes.
__device__ __forceinline__ c64 entry_of(const c64* table, int i) {
  const float2 v = __ldg(reinterpret_cast<const float2*>(table) + i);
  return {v.x, v.y};
}

// ---- roots of 1

constexpr f64 kTurn = 6.283185307179586476925286766559;
constexpr f64 series_of_sine(f64 x) {
  f64 term = x, sum = x;
  for (int k = 2; k < 30; k += 2) {
    term *= -x * x / (k * (k + 1));
    sum += term;
  }
  return sum;
}
// Of k/n of a turn, 0 <= k < n.
constexpr f64 sine_of(int k, int n) { return series_of_sine(kTurn * (2 * k > n ? k - n : k) / n); }
constexpr f64 cosine_of(int k, int n) {
  return series_of_sine(kTurn / 4 - kTurn * (2 * k > n ? n - k : k) / n);
}

// v * exp(-2 pi i K/N)
template <int K, int N>
__device__ __forceinline__ c64 turned(c64 v) {
  constexpr f32 kHalf = 0.70710678118654752440f;
  constexpr int k = K % N;
  if constexpr (k == 0) {
    return v;
  } else if constexpr (4 * k == N) {
    return {v.im, -v.re};
  } else if constexpr (2 * k == N) {
    return {-v.re, -v.im};
  } else if constexpr (4 * k == 3 * N) {
    return {-v.im, v.re};
  } else if constexpr (8 * k == N) {
    return {(v.re + v.im) * kHalf, (v.im - v.re) * kHalf};
  } else if constexpr (8 * k == 3 * N) {
    return {(v.im - v.re) * kHalf, (v.re + v.im) * -kHalf};
  } else {
    constexpr f32 c = (f32)cosine_of(k, N), s = (f32)sine_of(k, N);
    return {v.re * c + v.im * s, v.im * c - v.re * s};
  }
}

// ---- butterflies: v becomes its transform of R points

constexpr int first_factor(int r) {
  if (r % 4 == 0 && r > 4) return 4;
  for (int f = 2; f < r; ++f)
    if (r % f == 0) return f;
  return r;
}

// By sums and differences of the numbers k and R - k.
template <int R>
__device__ __forceinline__ void odd_butterfly(c64 (&v)[R]) {
  constexpr int H = R / 2;
  const c64 first = v[0];
  c64 sum[H], difference[H];
  each<0, H>([&](auto k) {
    constexpr int K = decltype(k)::value;
    sum[K] = v[K + 1] + v[R - 1 - K];
    difference[K] = v[K + 1] - v[R - 1 - K];
    v[0] = v[0] + sum[K];
  });
  each<1, H + 1>([&](auto j) {
    constexpr int J = decltype(j)::value;
    c64 even = first, odd = {0, 0};
    each<0, H>([&](auto k) {
      constexpr int K = decltype(k)::value, T = J * (K + 1) % R;
      constexpr f32 c = (f32)cosine_of(T, R), s = (f32)sine_of(T, R);
      even = even + scaled(sum[K], c);
      odd = odd + scaled(difference[K], s);
    });
    v[J] = {even.re + odd.im, even.im - odd.re};
    v[R - J] = {even.re - odd.im, even.im + odd.re};
  });
}

template <int R>
__device__ __forceinline__ void butterfly(c64 (&v)[R]) {
  constexpr int A = first_factor(R), B = R / A;
  if constexpr (R == 1) {
    return;
  } else if constexpr (R == 2) {
    const c64 a = v[0], b = v[1];
    v[0] = a + b, v[1] = a - b;
  } else if constexpr (B == 1) {
    odd_butterfly(v);
  } else {
    c64 rows[A][B];
    each<0, B>([&](auto b) {
      constexpr int kB = decltype(b)::value;
      c64 part[A];
      each<0, A>([&](auto a) { part[decltype(a)::value] = v[B * decltype(a)::value + kB]; });
      butterfly<A>(part);
      each<0, A>([&](auto a) {
        constexpr int kA = decltype(a)::value;
        rows[kA][kB] = turned<kA * kB, R>(part[kA]);
      });
    });
    each<0, A>([&](auto a) {
      constexpr int kA = decltype(a)::value;
      butterfly<B>(rows[kA]);
      each<0, B>([&](auto b) { v[kA + A * decltype(b)::value] = rows[kA][decltype(b)::value]; });
    });
  }
}

// ---- passes

constexpr int kRadices[] = {RADICES};
constexpr int kPasses = sizeof(kRadices) / sizeof(kRadices[0]);
constexpr int kPart = fft_part(POINTS, COLUMNS);

constexpr int product_before(int pass) {
  int product = 1;
  for (int k = 0; k < pass; ++k) product *= kRadices[k];
  return product;
}
static_assert(product_before(kPasses) == POINTS, "");

template <int P>
struct Pass {
  static constexpr int radix = kRadices[P];
  static constexpr int stride = product_before(P);    // points of the transforms that it joins
  static constexpr int butterflies = POINTS / radix;  // of all threads
  static constexpr int rounds = (butterflies + LANES - 1) / LANES;
  static constexpr bool first = P == 0, last = P == kPasses - 1;
  // Round r may have no butterfly for the last threads.
  template <int r>
  __device__ static __forceinline__ bool has(int lane) {
    if constexpr ((r + 1) * LANES <= butterflies) return true;
    return r * LANES + lane < butterflies;
  }
};

// Complex numbers that a thread holds.
template <int P>
constexpr int held() {
  if constexpr (P == kPasses) {
    return 0;
  } else {
    constexpr int own = Pass<P>::rounds * Pass<P>::radix, later = held<P + 1>();
    return own > later ? own : later;
  }
}
// Blocks of a multiprocessor: 1024 threads, unless they need more registers.
constexpr int kWarpThreads = (THREADS + 31) / 32 * 32;
constexpr int kBlocks = held<0>() > 16 || THREADS > 512 ? 1
                        : THREADS < 64                  ? 16
                                                        : 1024 / kWarpThreads;

// Where a thread is.
struct Lane {
  int index, column;
  __device__ __forceinline__ int place(int point) const {
    return (point + (point >> fft_shift(COLUMNS))) * COLUMNS + column;
  }
};

// All threads that share a transform come here. Those within a warp do not wait for others.
__device__ __forceinline__ void meet() {
  if constexpr (COLUMNS == 1 && 32 % LANES == 0 && THREADS % 32 == 0)
    __syncwarp();
  else
    __syncthreads();
}

// Results of pass P, v, become the operands of the next one, w.
template <int P, class V, class W>
__device__ __forceinline__ void exchange(f32* area, Lane lane, const V& v, W& w) {
  using Now = Pass<P>;
  using Next = Pass<P + 1>;
  const auto put = [&](auto part, f32* to) {
    each<0, Now::rounds>([&](auto r) {
      constexpr int kR = decltype(r)::value;
      if (!Now::template has<kR>(lane.index)) return;
      const int b = kR * LANES + lane.index, p = b % Now::stride;
      const int at = (b - p) * Now::radix + p;
      each<0, Now::radix>([&](auto q) {
        constexpr int kQ = decltype(q)::value;
        to[lane.place(at + kQ * Now::stride)] = decltype(part)::value ? v[kR][kQ].im : v[kR][kQ].re;
      });
    });
  };
  const auto take = [&](auto part, const f32* from) {
    each<0, Next::rounds>([&](auto r) {
      constexpr int kR = decltype(r)::value;
      if (!Next::template has<kR>(lane.index)) return;
      const int b = kR * LANES + lane.index;
      each<0, Next::radix>([&](auto q) {
        constexpr int kQ = decltype(q)::value;
        const f32 x = from[lane.place(b + kQ * Next::butterflies)];
        (decltype(part)::value ? w[kR][kQ].im : w[kR][kQ].re) = x;
      });
    });
  };
  if constexpr (!Now::first) meet();  // the numbers of the exchange before have been read
  put(Number<0>{}, area);
  if constexpr (PARTS == 2) put(Number<1>{}, area + kPart);
  meet();
  take(Number<0>{}, area);
  if constexpr (PARTS == 2) {
    take(Number<1>{}, area + kPart);
  } else {
    meet();
    put(Number<1>{}, area);
    meet();
    take(Number<1>{}, area);
  }
}

template <bool KEEPS, int P, class V, class Store>
__device__ __forceinline__ void passes(const c64* roots, f32* area, Lane lane, V& v, Store& store) {
  using Now = Pass<P>;
  if constexpr (KEEPS && Now::last && !Now::first) meet();
  each<0, Now::rounds>([&](auto r) {
    constexpr int kR = decltype(r)::value;
    if (!Now::template has<kR>(lane.index)) return;
    [[maybe_unused]] const int b = kR * LANES + lane.index;
    if constexpr (!Now::first) {
      const c64* const own = roots + (Now::stride - kRadices[0]);
      each<1, Now::radix>([&](auto q) {
        constexpr int kQ = decltype(q)::value;
        v[kR][kQ] = v[kR][kQ] * entry_of(own, (kQ - 1) * Now::stride + b % Now::stride);
      });
    }
    butterfly<Now::radix>(v[kR]);
    if constexpr (Now::last) store(b, v[kR]);
  });
  if constexpr (!Now::last) {
    c64 next[Pass<P + 1>::rounds][Pass<P + 1>::radix];
    exchange<P>(area, lane, v, next);
    passes<KEEPS, P + 1>(roots, area, lane, next, store);
  }
}

// load(i) gives point i. store(b, v) takes the results b + q * kApart in v[q]. roots: the table that fft_roots() of
// the host makes. KEEPS: store writes to the area. All threads of the block come here.
constexpr int kApart = Pass<kPasses - 1>::butterflies;
template <bool KEEPS, class Load, class Store>
__device__ __forceinline__ void transform(const c64* roots, f32* area, Lane lane, Load load,
                                          Store store) {
  using First = Pass<0>;
  c64 v[First::rounds][First::radix];
  each<0, First::rounds>([&](auto r) {
    constexpr int kR = decltype(r)::value;
    if (!First::template has<kR>(lane.index)) return;
    each<0, First::radix>([&](auto q) {
      constexpr int kQ = decltype(q)::value;
      v[kR][kQ] = load(kR * LANES + lane.index + kQ * First::butterflies);
    });
  });
  passes<KEEPS, 0>(roots, area, lane, v, store);
}
// The same with store(i, result).
template <bool KEEPS, class Load, class Store>
__device__ __forceinline__ void transform_each(const c64* roots, f32* area, Lane lane, Load load,
                                               Store store) {
  transform<KEEPS>(roots, area, lane, load, [&](int b, auto& v) {
    each<0, Pass<kPasses - 1>::radix>(
        [&](auto q) { store(b + decltype(q)::value * kApart, v[decltype(q)::value]); });
  });
}

// Puts results where they can be read after the threads met again: real parts at place(i), imaginary ones kPart
// behind.
template <class Load>
__device__ __forceinline__ void transform_kept(const c64* roots, f32* area, Lane lane, Load load) {
  transform_each<true>(roots, area, lane, load, [&](int i, c64 v) {
    area[lane.place(i)] = v.re, area[lane.place(i) + kPart] = v.im;
  });
  meet();
}
__device__ __forceinline__ c64 kept(const f32* area, Lane lane, int i) {
  return {area[lane.place(i)], area[lane.place(i) + kPart]};
}

// Where the roots exp(-2 pi i k / (2 POINTS)) begin, by which real numbers are split.
constexpr int kSplitRoots = POINTS - kRadices[0];

// Bins k and POINTS - k of 2 POINTS real numbers, whose transform as POINTS complex ones is z: a = z[k], b =
// z[POINTS - k].
struct TwoBins {
  c64 low, high;
};
__device__ __forceinline__ TwoBins split_bins(c64 a, c64 b, c64 root) {
  const c64 even = scaled(a + conjugate(b), 0.5f), d = scaled(a - conjugate(b), 0.5f);
  const c64 odd = root * c64{d.im, -d.re};
  return {even + odd, conjugate(even - odd)};
}
