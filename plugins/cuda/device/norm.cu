// SPDX-License-Identifier: Apache-2.0
// layer_norm, rms_norm (RMS), their residual forms and backward ops: a row stays in the registers of
// LANES threads, CHUNKS vectors of VEC elements each. GAMMA, BETA, BIAS: dtypes of the parameters;
// OUT: of a parameter's gradient; GAMMAS, BETAS: whether their gradients are wanted. AHEAD: so
// many rows of a group are under way while it works at one (0: none). RESIDUAL: there is one. WHOLE:
// every lane has all its chunks. BLOCKS: at work on a multiprocessor. EAGER: parameters are read with
// the row (else when its statistics are there).
//variant: TYPE=bf16 GAMMA=bf16 BETA=bf16 BIAS=bf16 OUT=bf16 LANES=256 CHUNKS=2 VEC=8 RMS=0 GAMMAS=1 BETAS=1 AHEAD=5 RESIDUAL=1 BLOCKS=2 WHOLE=1
//variant: TYPE=bf16 GAMMA=bf16 BETA=bf16 BIAS=bf16 OUT=bf16 LANES=128 CHUNKS=4 VEC=8 RMS=0 GAMMAS=0 BETAS=0 AHEAD=0 RESIDUAL=0 BLOCKS=4 WHOLE=1
//variant: TYPE=f32 GAMMA=f32 BETA=f32 BIAS=f32 OUT=f32 LANES=64 CHUNKS=4 VEC=4 RMS=1 GAMMAS=1 BETAS=0 AHEAD=3 RESIDUAL=0 BLOCKS=2 WHOLE=0
//variant: TYPE=f16 GAMMA=f32 BETA=f16 BIAS=f16 OUT=f32 LANES=32 CHUNKS=5 VEC=1 RMS=0 GAMMAS=0 BETAS=0 AHEAD=0 RESIDUAL=1 BLOCKS=1 WHOLE=0
//variant: TYPE=f32 GAMMA=f32 BETA=f32 BIAS=f32 OUT=f32 LANES=32 CHUNKS=3 VEC=4 RMS=0 GAMMAS=0 BETAS=0 AHEAD=0 RESIDUAL=0 BLOCKS=1 WHOLE=0 EAGER=1
//variant: TYPE=f64 GAMMA=f32 BETA=f64 BIAS=f64 OUT=f64 LANES=256 CHUNKS=4 VEC=2 RMS=0 GAMMAS=1 BETAS=1 AHEAD=0 RESIDUAL=0 BLOCKS=1 WHOLE=0
#include "async.cuh"
#include "rows.cuh"

typedef TYPE T;
typedef acc_t<T> A;
typedef Group<LANES> Lane;
constexpr int kEach = CHUNKS * VEC;

typedef NormShape Shape;

// The place of chunk c in the row of n, and whether it has one.
__device__ inline u32 place(int c) { return (c * LANES + Lane::lane()) * VEC; }
__device__ inline bool has(int c, u32 n) { return WHOLE || place(c) < n; }

template <class U>
__device__ inline void add_vector(A (&v)[VEC], const Vec<U, VEC>& t) {
#pragma unroll
  for (int k = 0; k < VEC; ++k) v[k] += (A)widen_at(t, k);
}
// Of a parameter that may be absent.
template <class U>
__device__ inline Vec<U, VEC> load_or(const U* p, u32 i, f32 absent) {
  if (p) return load<U, VEC>(p + i);
  Vec<U, VEC> t;
#pragma unroll
  for (int k = 0; k < VEC; ++k) t.v[k] = narrow<U>((acc_t<U>)absent);
  return t;
}
// A lane's part of a row, as it lies in memory.
struct Packed {
  Vec<T, VEC> v[CHUNKS];
  __device__ A operator()(int c, int k) const { return widen_at(v[c], k); }
  __device__ void forget() {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) ::forget(v[c]);
  }
};
struct Statistics {
  A mean, inverse;
};
// Rows of two operands and their statistics where they are given, `groups` apart, in the order in
// which a group takes them. Those ahead are on their way to shared memory; a thread reads what it
// copied itself, so that no barrier is needed.
struct Lines {
#if AHEAD && __CUDA_ARCH__ >= 800
  static constexpr int kStages = AHEAD + 1;
#endif
  const T* from[2];  // of the row that is read next from memory, at this lane
  const A *const means, *const inverses;  // may be absent
  const Shape& s;
  i64 next, groups;
  int stage = 0;
  Packed row[2];
  Statistics given{0, 0};

  __device__ Lines(const Shape& s, const T* p, const T* q, const A* means, const A* inverses)
      : means(means),
        inverses(inverses),
        s(s),
        next(Lane::index()),
        groups((i64)gridDim.x * Lane::per_block) {
    from[0] = p + next * s.n + place(0), from[1] = q + next * s.n + place(0);
#if AHEAD && __CUDA_ARCH__ >= 800
    for (int k = 0; k + 1 < kStages; ++k) fetch(k);
#endif
  }
  template <class F>
  __device__ void each(F&& f) {
    if (next < s.rows)
#pragma unroll
      for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c)
          if (has(c, s.n)) f(k, c, from[k] + c * LANES * VEC);
    next += groups, from[0] += groups * s.n, from[1] += groups * s.n;
  }
#if AHEAD && __CUDA_ARCH__ >= 800
  // Where this thread's vector c of operand k lies, of all stages' Vecs.
  __device__ static int slot(int stage, int k, int c) {
    return ((stage * 2 + k) * CHUNKS + c) * Lane::threads + (int)threadIdx.x;
  }
  static constexpr int kRowBytes = kStages * 2 * CHUNKS * Lane::threads * (int)sizeof(Vec<T, VEC>);
  // Where this thread's statistic k lies, of all stages' numbers behind the rows.
  __device__ static int statistic(int stage, int k) {
    return (stage * 2 + k) * Lane::threads + (int)threadIdx.x;
  }
  __device__ void fetch(int to) {
    const u32 base = shared_address(shared_lines), numbers = base + kRowBytes;
    if (next < s.rows) {
      if (means) copy_word_async(numbers + statistic(to, 0) * (u32)sizeof(A), means + next);
      if (inverses) copy_word_async(numbers + statistic(to, 1) * (u32)sizeof(A), inverses + next);
    }
    const u32 at = base + slot(to, 0, 0) * (u32)sizeof(Vec<T, VEC>);
    each([&](int k, int c, const T* p) {
      copy_async(at + (k * CHUNKS + c) * Lane::threads * (u32)sizeof(Vec<T, VEC>), p, true);
    });
    copy_commit();
  }
  // The next row comes into `row`, and another on its way.
  __device__ void read() {
    copy_wait<kStages - 2>();
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c)
        row[k].v[c] = reinterpret_cast<const Vec<T, VEC>*>(shared_lines)[slot(stage, k, c)];
    const A* const numbers = reinterpret_cast<const A*>(shared_lines + kRowBytes);
    if (means) given.mean = numbers[statistic(stage, 0)];
    if (inverses) given.inverse = numbers[statistic(stage, 1)];
    fetch(stage == 0 ? kStages - 1 : stage - 1);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
#else
  __device__ void read() {
    if (means && next < s.rows) given.mean = means[next];
    if (inverses && next < s.rows) given.inverse = inverses[next];
    each([&](int k, int c, const T* p) { row[k].v[c] = load<T, VEC>(p); });
  }
#endif
};
// Sum of f(c, k) over a lane's part of a row of n.
template <class F>
__device__ inline A part_sum(u32 n, F&& f) {
  return sum_chunks<CHUNKS, VEC, A>([=](int c) { return has(c, n); }, f);
}
// Of a part of a row: count, a mean or what is near it, sums of distances from it and of their
// squares. The former makes good what the rounding of a mean far from zero would do to the latter.
struct Moments {
  A count, mean, left, squares;
};
// The same numbers, their distances taken from another mean.
__device__ inline void turn_to(Moments& m, A mean) {
  const A off = m.mean - mean;
  m.squares += off * (2 * m.left + m.count * off);
  m.left += m.count * off;
}
// x(c, k) are the row's elements. A lane takes distances from its first one, so that it looks at
// them once and warps exchange once.
template <class Values>
__device__ inline Statistics statistics(Values& x, const Shape& s, u32 n, u32 turn) {
  constexpr int warps = LANES / 32;
  const A share = 1 / (A)s.n;
#if RMS
  A squares = sum_warp<32>(part_sum(n, [&](int c, int k) { return x(c, k) * x(c, k); }));
  if constexpr (warps > 1)
    squares = sum_warp<warps>(exchange<LANES>(squares, turn)[Lane::lane() % warps]);
  x.forget();
  return {0, 1 / sqrt(squares * share + (A)s.eps)};
#else
  Moments m{0, has(0, n) ? x(0, 0) : A(0), 0, 0};
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (!has(c, n)) continue;
    A t[VEC], q[VEC];
#pragma unroll
    for (int k = 0; k < VEC; ++k) t[k] = x(c, k) - m.mean, q[k] = t[k] * t[k];
    m.count += VEC, m.left += join_all(t, Add()), m.squares += join_all(q, Add());
  }
  x.forget();
  const auto join = [&](auto sum, A count, A part) {
    const A mean = sum(m.count * m.mean + m.left) * part;
    turn_to(m, mean);
    m = {count, mean, sum(m.left), sum(m.squares)};
  };
  const auto sum_lanes = [](A v) { return sum_warp<32>(v); };
  if constexpr (warps > 1) {
    u32 own = 0;  // elements of the warp
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const u32 at = (c * LANES + Lane::lane() / 32 * 32) * VEC;
      own += WHOLE ? 32 * VEC : at < n ? min(n - at, 32u * VEC) : 0;
    }
    join(sum_lanes, (A)own, own == 0 ? A(0) : 1 / (A)own);
    m = exchange<LANES>(m, turn)[Lane::lane() % warps];
    join([](A v) { return sum_warp<warps>(v); }, (A)s.n, share);
  } else {
    join(sum_lanes, (A)s.n, share);
  }
  const A rest = m.left * share, squares = m.squares - m.left * rest;
  return {m.mean + rest, 1 / sqrt((squares < 0 ? A(0) : squares) * share + (A)s.eps)};
#endif
}

#if RESIDUAL
struct Row {  // sums of operands
  A v[CHUNKS][VEC];
  __device__ A operator()(int c, int k) const { return v[c][k]; }
  __device__ void forget() {}
};
#else
typedef Packed Row;
#endif

// A row for each group. bias, gamma, beta, sum, means, inverses may be absent.
extern "C" __global__ void __launch_bounds__(Lane::threads, BLOCKS)
    forward(const T* x, const T* residual, const BIAS* bias, const GAMMA* gamma, const BETA* beta,
            T* y, T* sum, A* means, A* inverses, const Shape s) {
#if VEC > 1
  // While the kernel before is still at work. One block is enough: that all did it cost a tenth.
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if (gamma) fetch_ahead(gamma, s.n * (u32)sizeof(GAMMA));
    if (beta) fetch_ahead(beta, s.n * (u32)sizeof(BETA));
  }
#endif
  begin_early();
  const i64 row = Lane::index(), start = row * s.n;
  const u32 n = s.n;
  if (row >= s.rows) return;
  Row v;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    const u32 i = place(c);
    if (!has(c, n)) continue;
    const Vec<T, VEC> own = load<T, VEC>(x + start + i);
#if RESIDUAL
#pragma unroll
    for (int k = 0; k < VEC; ++k) v.v[c][k] = widen_at(own, k);
    add_vector(v.v[c], load<T, VEC>(residual + start + i));
    if (bias) add_vector(v.v[c], load<BIAS, VEC>(bias + i));
#else
    v.v[c] = own;
#endif
  }
#if EAGER
  Vec<GAMMA, VEC> scales[CHUNKS];
  Vec<BETA, VEC> shifts[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c)
    if (has(c, n)) scales[c] = load_or(gamma, place(c), 1), shifts[c] = load_or(beta, place(c), 0);
#endif
  const Statistics found = statistics(v, s, n, 0);
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    const u32 i = place(c);
    if (!has(c, n)) continue;
#if EAGER
    const Vec<GAMMA, VEC> scale = scales[c];
    const Vec<BETA, VEC> shift = shifts[c];
#else
    const Vec<GAMMA, VEC> scale = load_or(gamma, i, 1);
    const Vec<BETA, VEC> shift = load_or(beta, i, 0);
#endif
    A mine[VEC];
#pragma unroll
    for (int k = 0; k < VEC; ++k) mine[k] = v(c, k);
#if RESIDUAL
    if (sum) store(sum + start + i, narrow_all<T>(mine));
#endif
#pragma unroll
    for (int k = 0; k < VEC; ++k)
      mine[k] = (mine[k] - found.mean) * found.inverse * (A)widen_at(scale, k) +
                (A)widen_at(shift, k);
    store(y + start + i, narrow_all<T>(mine));
  }
  if (Lane::lane() != 0) return;
  if (means) means[row] = found.mean;
  if (inverses) inverses[row] = found.inverse;
}

struct Two {
  A a, b;
};
template <int WIDTH>
__device__ inline Two sum_two(const Two& v) {
  return {RMS ? A(0) : sum_warp<WIDTH>(v.a), sum_warp<WIDTH>(v.b)};
}
__device__ inline Two join_sums(Two sums, u32 turn) {
  constexpr int warps = LANES / 32;
  sums = sum_two<32>(sums);
  if constexpr (warps > 1)
    sums = sum_two<warps>(exchange<LANES>(sums, turn)[Lane::lane() % warps]);
  return sums;
}

// A group takes rows `groups` apart and leaves its sums of the parameters' gradients as one row of
// dgammas and dbetas. gamma, means and inverses, dsum, dx may be absent.
extern "C" __global__ void __launch_bounds__(Lane::threads, BLOCKS)
    backward(const T* dy, const T* x, const GAMMA* gamma, const A* means, const A* inverses,
             const T* dsum, T* dx, A* dgammas, A* dbetas, const Shape s) {
  let_next_begin();
  [[maybe_unused]] A dgamma[CHUNKS][VEC] = {}, dbeta[CHUNKS][VEC] = {};
  const bool given = inverses && (RMS || means);
  Lines lines(s, x, dy, given && !RMS ? means : nullptr, given ? inverses : nullptr);
  Packed &in = lines.row[0], &up = lines.row[1];
  // Where registers are enough, gamma is read once.
  constexpr bool keeps = sizeof(GAMMA) * kEach <= 32;
  [[maybe_unused]] Vec<GAMMA, VEC> kept[keeps ? CHUNKS : 1];
  if constexpr (keeps)
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
      if (has(c, s.n)) kept[c] = load_or(gamma, place(c), 1);
  const auto scale_of = [&](int c) {
    if constexpr (!keeps) return load_or(gamma, place(c), 1);
    else {
      forget(kept[c]);
      return kept[c];
    }
  };
  const A share = 1 / (A)s.n;
  const u32 n = s.n;
  u32 turn = 0;
  for (i64 row = Lane::index(); row < s.rows; row += lines.groups, ++turn) {
    const i64 start = row * s.n;
    lines.read();
    const Statistics found = given ? lines.given : statistics(in, s, n, turn);
    // Sums of gamma * dy and of it times the normalized x.
    Two sums{0, 0};
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (!has(c, n)) continue;
      const Vec<GAMMA, VEC> scale = scale_of(c);
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        const A a = (in(c, k) - found.mean) * found.inverse, d = up(c, k);
        if (GAMMAS) dgamma[c][k] += d * a;
        if (BETAS) dbeta[c][k] += d;
        const A scaled = d * (A)widen_at(scale, k);
        if (!RMS) sums.a += scaled;
        sums.b += scaled * a;
      }
    }
    if (!dx) continue;
    sums = join_sums(sums, turn);
    const A mean = sums.a * share * found.inverse;
    const A slope = sums.b * share * found.inverse * found.inverse;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const u32 i = place(c);
      if (!has(c, n)) continue;
      forget(in.v[c]);
      forget(up.v[c]);
      const Vec<GAMMA, VEC> scale = scale_of(c);
      A out[VEC];
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        const A scaled = up(c, k) * (A)widen_at(scale, k);
        out[k] = (scaled * found.inverse - mean) - (in(c, k) - found.mean) * slope;
      }
      if (dsum) add_vector(out, load<T, VEC>(dsum + start + i));
      store(dx + start + i, narrow_all<T>(out));
    }
  }
#if GAMMAS || BETAS
  const auto leave = [&](A* to, const A (&sums)[CHUNKS][VEC]) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
      if (has(c, s.n)) store(to + Lane::index() * s.n + place(c), narrow_all<A>(sums[c]));
  };
  if (GAMMAS) leave(dgammas, dgamma);
  if (BETAS) leave(dbetas, dbeta);
#endif
}

// The gradients are the sums of `count` rows. Blocks of 32 columns, 32 threads in each; those of
// the second half make dbeta.
extern "C" __global__ void __launch_bounds__(1024)
    parameters(const A* dgammas, const A* dbetas, OUT* dgamma, OUT* dbeta, i64 count, u32 n) {
  begin_early();
  __shared__ A parts[32][33];
  const u32 blocks = (n + 31) / 32, block = blockIdx.x % blocks;
  const bool second = !GAMMAS || blockIdx.x >= blocks;
  const A* const rows = second ? dbetas : dgammas;
  const u32 c = threadIdx.x % 32, r = threadIdx.x / 32, column = block * 32 + c;
  A sum = 0;
  if (column < n) {
#pragma unroll 4
    for (i64 i = r; i < count; i += 32) sum += rows[i * n + column];
  }
  parts[c][r] = sum;
  __syncthreads();
  sum = join_warp<32>(parts[r][c], Add());
  if (c == 0 && block * 32 + r < n)
    (second ? dbeta : dgamma)[block * 32 + r] = narrow<OUT>((acc_t<OUT>)sum);
}
