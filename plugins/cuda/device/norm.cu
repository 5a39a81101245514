// SPDX-License-Identifier: Apache-2.0
// layer_norm, rms_norm (RMS), their residual forms and backward ops: a row stays in the registers of
// LANES threads, CHUNKS vectors of VEC elements each. GAMMA, BETA, BIAS: dtypes of the parameters;
// OUT: of a parameter's gradient; GAMMAS, BETAS: whether their gradients are wanted. AHEAD: so
// many rows of a group are under way while it works at one (0: none). RESIDUAL: there is one. BLOCKS:
// at work on a multiprocessor.
//variant: TYPE=bf16 GAMMA=bf16 BETA=bf16 BIAS=bf16 OUT=bf16 LANES=256 CHUNKS=2 VEC=8 RMS=0 GAMMAS=1 BETAS=1 AHEAD=3 RESIDUAL=1 BLOCKS=2
//variant: TYPE=f32 GAMMA=f32 BETA=f32 BIAS=f32 OUT=f32 LANES=64 CHUNKS=4 VEC=4 RMS=1 GAMMAS=1 BETAS=0 AHEAD=3 RESIDUAL=0 BLOCKS=2
//variant: TYPE=f16 GAMMA=f32 BETA=f16 BIAS=f16 OUT=f32 LANES=32 CHUNKS=5 VEC=1 RMS=0 GAMMAS=0 BETAS=0 AHEAD=0 RESIDUAL=1 BLOCKS=1
//variant: TYPE=f64 GAMMA=f32 BETA=f64 BIAS=f64 OUT=f64 LANES=256 CHUNKS=4 VEC=2 RMS=0 GAMMAS=1 BETAS=1 AHEAD=0 RESIDUAL=0 BLOCKS=1
#include "async.cuh"
#include "rows.cuh"

typedef TYPE T;
typedef acc_t<T> A;
typedef Group<LANES> Lane;
constexpr int kEach = CHUNKS * VEC;

struct Shape {
  i64 rows;
  f64 eps;
  u32 n;
};

// The place of chunk c in the row; beyond n: none.
__device__ inline u32 place(int c) { return (c * LANES + Lane::lane()) * VEC; }

template <class U>
__device__ inline void add_vector(A* v, const Vec<U, VEC>& t) {
#pragma unroll
  for (int k = 0; k < VEC; ++k) v[k] += (A)widen(t.v[k]);
}
template <class U>
__device__ inline void add_vector(A* v, const U* p) {
  add_vector(v, load<U, VEC>(p));
}
// Rows of LINES operands, `groups` apart, in the order in which a group takes them. Those ahead are
// on their way to shared memory; a thread reads what it copied itself, so that no barrier is needed.
// Of a row that is none nothing is read.
template <int LINES>
struct Lines {
#if AHEAD && __CUDA_ARCH__ >= 800
  static constexpr int kStages = AHEAD + 1;
#else
  static constexpr int kStages = 0;
#endif
  const T* from[LINES];
  const Shape& s;
  i64 next, groups;
  int stage = 0;
  Vec<T, VEC> v[LINES][CHUNKS];

  template <class... P>
  __device__ Lines(const Shape& s, const P*... p)
      : from{p...}, s(s), next(Lane::index()), groups((i64)gridDim.x * Lane::per_block) {
    for (int k = 0; k + 1 < kStages; ++k) fetch(k);
  }
  template <class F>
  __device__ void each(F&& f) {
    const u32 n = next < s.rows ? s.n : 0;
#pragma unroll
    for (int k = 0; k < LINES; ++k)
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c)
        if (place(c) < n) f(k, c, from[k] + next * s.n + place(c));
    next += groups;
  }
  __device__ static Vec<T, VEC>* slot(int stage, int k, int c) {
    return reinterpret_cast<Vec<T, VEC>*>(shared_lines) +
           ((stage * LINES + k) * CHUNKS + c) * Lane::threads + threadIdx.x;
  }
  __device__ void fetch([[maybe_unused]] int to) {
#if AHEAD && __CUDA_ARCH__ >= 800
    each([&](int k, int c, const T* p) { copy_async(slot(to, k, c), p, true); });
    copy_commit();
#endif
  }
  // The next row comes into v, and another on its way.
  __device__ void read() {
#if AHEAD && __CUDA_ARCH__ >= 800
    copy_wait<kStages - 2>();
#pragma unroll
    for (int k = 0; k < LINES; ++k)
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) v[k][c] = *slot(stage, k, c);
    fetch(stage == 0 ? kStages - 1 : stage - 1);
    stage = stage + 1 == kStages ? 0 : stage + 1;
#else
    each([&](int k, int c, const T* p) { v[k][c] = load<T, VEC>(p); });
#endif
  }
};
__device__ inline void put_vector(T* p, const A* v) {
  Vec<T, VEC> t;
#pragma unroll
  for (int k = 0; k < VEC; ++k) t.v[k] = narrow<T>(v[k]);
  store(p, t);
}
// Of v where it belongs to the row.
template <class F>
__device__ inline A row_sum(const A (&v)[kEach], u32 n, F&& f) {
  A sum = 0;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (place(c) >= n) continue;
    A t[VEC];
#pragma unroll
    for (int k = 0; k < VEC; ++k) t[k] = f(v[c * VEC + k]);
    sum += join_all(t, Add());
  }
  return join_lanes<LANES>(sum, Add());
}
struct Statistics {
  A mean, inverse;
};
__device__ inline Statistics statistics(const A (&v)[kEach], const Shape& s, u32 n) {
  const A mean = RMS ? 0 : row_sum(v, n, [](A a) { return a; }) / (A)s.n;
  const A squares = row_sum(v, n, [=](A a) { return (a - mean) * (a - mean); });
  return {mean, 1 / sqrt(squares / (A)s.n + (A)s.eps)};
}

// A group takes rows as many apart as there are groups. bias, gamma, beta, sum, means, inverses may
// be absent.
extern "C" __global__ void __launch_bounds__(Lane::threads, BLOCKS)
    forward(const T* x, const T* residual, const BIAS* bias, const GAMMA* gamma, const BETA* beta,
            T* y, T* sum, A* means, A* inverses, const Shape s) {
#if VEC > 1
  if (threadIdx.x == 0) {  // while the kernel before is still at work
    if (gamma) fetch_ahead(gamma, s.n * (u32)sizeof(GAMMA));
    if (beta) fetch_ahead(beta, s.n * (u32)sizeof(BETA));
  }
#endif
  let_next_begin();
  await_earlier();
#if RESIDUAL
  Lines<2> lines(s, x, residual);
#else
  Lines<1> lines(s, x);
#endif
  // All groups of a block go round equally often.
  for (i64 base = (i64)blockIdx.x * Lane::per_block; base < s.rows; base += lines.groups) {
    const i64 row = base + Lane::in_block(), start = row * s.n;
    const u32 n = row < s.rows ? s.n : 0;
    lines.read();
    A v[kEach] = {};
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const u32 i = place(c);
      if (i >= n) continue;
      add_vector(v + c * VEC, lines.v[0][c]);
      if (RESIDUAL) add_vector(v + c * VEC, lines.v[RESIDUAL][c]);
      if (bias) add_vector(v + c * VEC, bias + i);
    }
    const Statistics found = statistics(v, s, n);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const u32 i = place(c);
      if (i >= n) continue;
      A* mine = v + c * VEC;
      if (sum) put_vector(sum + start + i, mine);
      A shift[VEC] = {}, scale[VEC] = {};
      if (gamma) add_vector(scale, gamma + i);
      if (beta) add_vector(shift, beta + i);
#pragma unroll
      for (int k = 0; k < VEC; ++k)
        mine[k] = (mine[k] - found.mean) * found.inverse * (gamma ? scale[k] : 1) + shift[k];
      put_vector(y + start + i, mine);
    }
    if (row >= s.rows || Lane::lane() != 0) continue;
    if (means) means[row] = found.mean;
    if (inverses) inverses[row] = found.inverse;
  }
}

struct Two {
  A a, b;
};
struct AddTwo {
  __device__ Two operator()(const Two& x, const Two& y) const { return {x.a + y.a, x.b + y.b}; }
};

// A group takes rows `groups` apart and leaves its sums of the parameters' gradients as one row of
// dgammas and dbetas. gamma, means and inverses, dsum, dx may be absent.
extern "C" __global__ void __launch_bounds__(Lane::threads, BLOCKS)
    backward(const T* dy, const T* x, const GAMMA* gamma, const A* means, const A* inverses,
             const T* dsum, T* dx, A* dgammas, A* dbetas, const Shape s) {
  [[maybe_unused]] A dgamma[kEach] = {}, dbeta[kEach] = {};
  Lines<2> lines(s, x, dy);
  // All groups of a block go round equally often.
  for (i64 base = (i64)blockIdx.x * Lane::per_block; base < s.rows; base += lines.groups) {
    const i64 row = base + Lane::in_block(), start = row * s.n;
    const u32 n = row < s.rows ? s.n : 0;
    A v[kEach] = {}, d[kEach] = {};
    if (lines.kStages > 0) lines.read();
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const u32 i = place(c);
      if (i >= n) continue;
      if (lines.kStages > 0) {
        add_vector(v + c * VEC, lines.v[0][c]);
        add_vector(d + c * VEC, lines.v[1][c]);
      } else {  // there are no registers for the rows as they lie in memory
        add_vector(v + c * VEC, x + start + i);
        add_vector(d + c * VEC, dy + start + i);
      }
    }
    Statistics found{0, 0};
    if (inverses && (RMS || means)) {
      if (n > 0) found = {RMS ? A(0) : means[row], inverses[row]};
    } else {
      found = statistics(v, s, n);
    }
    Two sums{0, 0};
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const u32 i = place(c);
      if (i >= n) continue;
      A scale[VEC] = {};
      if (gamma) add_vector(scale, gamma + i);
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        A &a = v[c * VEC + k], &b = d[c * VEC + k];
        a = (a - found.mean) * found.inverse;
        if (GAMMAS) dgamma[c * VEC + k] += b * a;
        if (BETAS) dbeta[c * VEC + k] += b;
        if (gamma) b *= scale[k];
        sums.a += b, sums.b += b * a;
      }
    }
    if (!dx) continue;
    sums = join_lanes<LANES>(sums, AddTwo());
    const A mean = RMS ? 0 : sums.a / (A)s.n, slope = sums.b / (A)s.n;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      const u32 i = place(c);
      if (i >= n) continue;
      A out[VEC] = {};
      if (dsum) add_vector(out, dsum + start + i);
#pragma unroll
      for (int k = 0; k < VEC; ++k)
        out[k] += found.inverse * (d[c * VEC + k] - mean - v[c * VEC + k] * slope);
      put_vector(dx + start + i, out);
    }
  }
#if GAMMAS || BETAS
  const i64 group = (i64)blockIdx.x * Lane::per_block + Lane::in_block();
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    const u32 i = place(c);
    if (i >= s.n) continue;
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      if (GAMMAS) dgammas[group * s.n + i + k] = dgamma[c * VEC + k];
      if (BETAS) dbetas[group * s.n + i + k] = dbeta[c * VEC + k];
    }
  }
#endif
}

// The gradients are the sums of `count` rows. Blocks of 32 columns, 32 threads in each; those of
// the second half make dbeta.
extern "C" __global__ void __launch_bounds__(1024)
    parameters(const A* __restrict__ dgammas, const A* __restrict__ dbetas,
               OUT* __restrict__ dgamma, OUT* __restrict__ dbeta, i64 count, u32 n) {
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
