// SPDX-License-Identifier: Apache-2.0
// cross_entropy and its backward op, one group of LANES per item. LABEL, WEIGHT: their dtypes;
// SMOOTH: labels are smoothed; KEEP: the line stays in shared memory.
//variant: TYPE=bf16 LABEL=i64 WEIGHT=bf16 LANES=512 SMOOTH=0 KEEP=1
//variant: TYPE=f32 LABEL=i32 WEIGHT=f32 LANES=1 SMOOTH=1 KEEP=0
//variant: TYPE=f64 LABEL=i64 WEIGHT=f64 LANES=32 SMOOTH=1 KEEP=1
#include "loss.cuh"

typedef TYPE T;
typedef acc_t<T> A;
typedef Group<LANES> Lane;

__device__ inline f64 kept_weights(const LABEL* labels, const WEIGHT* weight, const LossShape& s) {
  f64 kept = 0;
#pragma unroll 8
  for (i64 i = threadIdx.x; i < s.lines; i += 1024) {
    const i64 label = labels[i];
    if (label != s.ignore && is_class(label, s)) kept += weight_of<A>(weight, label);
  }
  return join_lanes<1024>(kept, Add());
}

// totals[0]: the weights of kept labels; totals[1]: of all classes. One block of 1024.
extern "C" __global__ void __launch_bounds__(1024)
    totals(const LABEL* labels, const WEIGHT* weight, f64* totals, const LossShape s) {
  let_next_begin();
  const f64 kept = kept_weights(labels, weight, s);
  f64 all = 0;
  for (u32 c = threadIdx.x; c < s.n; c += 1024) all += weight_of<A>(weight, c);
  all = join_lanes<1024>(all, Add());
  if (threadIdx.x == 0) totals[0] = kept, totals[1] = all;
}

// What is told of an item: to be asked for before anything depends on it.
__device__ inline i64 told_label(const LABEL* labels, i64 line, const LossShape& s) {
  return line < s.lines ? (i64)labels[line] : s.ignore;
}

extern "C" __global__ void __launch_bounds__(Lane::threads, 1024 / Lane::threads)
    forward(const T* x, const LABEL* labels, const WEIGHT* weight, const f64* totals, A* losses,
            A* lse, const LossShape s, const ErrorSink sink) {
  let_next_begin();
  const i64 line = Lane::index(), told = told_label(labels, line, s);
  const u32 n = line < s.lines ? s.n : 0;
  x += line_start(line, s.n, s.inner);
#if SMOOTH
  const i64 label = label_of(told, line, s, sink, Lane::lane() == 0);
  const A logit = label < 0 ? 0 : (A)widen(x[label * s.inner]);
  // Differences are taken from the label's logit, which is near to the others.
  const A from = isfinite(logit) ? logit : 0;
#endif
  ExpSum<A> found = no_terms<A>();
  A spread = 0;
  for_line<LANES>(x, n, s.inner, [&](const auto& v, u32 i) {
    take(found, v);
#if SMOOTH
    constexpr int N = sizeof(v) / sizeof(T);
    A d[N];
#pragma unroll
    for (int k = 0; k < N; ++k) d[k] = weight_of<A>(weight, i + k) * (from - (A)widen(v.v[k]));
    spread += join_all(d, Add());
#endif
  });
  found = infinite_or(join_lanes<LANES>(found, JoinExp()));
  if (SMOOTH) spread = join_lanes<LANES>(spread, Add());
  if (line >= s.lines || Lane::lane() != 0) return;
#if !SMOOTH  // the line was asked for first
  const i64 label = label_of(told, line, s, sink, Lane::lane() == 0);
  const A logit = label < 0 ? 0 : (A)widen(x[label * s.inner]);
#endif
  const A log_sum = log(found.scale);
  if (lse) lse[line] = found.most + log_sum;
  A loss = 0;
  if (label >= 0) {
    loss = weight_of<A>(weight, label) * (log_sum + (found.most - logit));
#if SMOOTH
    spread += (A)totals[1] * (log_sum + (found.most - from));
    loss = (1 - (A)s.smoothing) * loss + (A)(s.smoothing / s.n) * spread;
#endif
  }
  losses[line] = loss;
}

// mean: the sum is divided by the weights of kept labels. One block of 1024, which may begin while
// the losses are made.
extern "C" __global__ void __launch_bounds__(1024)
    sum_up(const A* losses, const LABEL* labels, const WEIGHT* weight, A* loss, const LossShape s,
           u32 mean) {
  const f64 kept = mean ? kept_weights(labels, weight, s) : 1;  // forward does not write there
  await_earlier();
  f64 sum = 0;
#pragma unroll 8
  for (i64 i = threadIdx.x; i < s.lines; i += 1024) sum += losses[i];
  sum = join_lanes<1024>(sum, Add());
  if (threadIdx.x == 0) *loss = (A)(sum / kept);
}

// each: dy has one element per item; mean: it is divided by totals[0]. lse: may be absent.
extern "C" __global__ void __launch_bounds__(Lane::threads, 1024 / Lane::threads)
    backward(const A* dy, const T* x, const LABEL* labels, const WEIGHT* weight, const A* lse,
             const f64* totals, T* dx, const LossShape s, u32 each, u32 mean,
             const ErrorSink sink) {
  const i64 line = Lane::index(), told = told_label(labels, line, s);
  const u32 n = line < s.lines ? s.n : 0;
  const i64 start = line_start(line, s.n, s.inner);
  x += start, dx += start;
  const i64 label = label_of(told, line, s, sink, Lane::lane() == 0);
  const bool same = phase_of(x) == phase_of(dx);
  ExpSum<A> found = no_terms<A>();
  const T* source = x;
  i64 stride = s.inner;
  // One way for the block, since lines are summed with all its threads.
  if (lse && __syncthreads_and(line >= s.lines || trusted(lse[line]))) {
    if (line < s.lines) found = {lse[line], 1};
  } else {
#if KEEP
    T* kept = kept_line(x, Lane::in_block(), s.slice);
    source = kept, stride = 1;
#endif
    for_line<LANES>(x, n, s.inner, [&](const auto& v, u32 i) {
      take(found, v);
#if KEEP
      put(kept, i, 1, v, true);
#endif
    });
    found = infinite_or(join_lanes<LANES>(found, JoinExp()));
  }
  A scale = 0, own = 0;
  [[maybe_unused]] A slope = 0;
  if (label >= 0) {
    A up = dy[each ? line : 0];
    if (mean) up /= (A)totals[0];
    const A mine = weight_of<A>(weight, label);
    const A log_p = ((A)widen(x[label * s.inner]) - found.most) - log(found.scale);
    scale = mine, own = mine * expm1(log_p);
#if SMOOTH
    const A part = (A)(s.smoothing / s.n), kept = 1 - (A)s.smoothing;
    scale = kept * mine + part * (A)totals[1];
    own = kept * own + part * ((A)totals[1] * exp(log_p) - mine);
    slope = up * part;
#endif
    scale *= up / found.scale, own *= up;
  }
  if (LANES <= 32) __syncwarp();  // the label's logit was read, dx may lie over it
  else __syncthreads();
  for_line<LANES>(source, n, stride, [&](const auto& v, u32 i) {
    constexpr int N = sizeof(v) / sizeof(T);
    Vec<T, N> out;
    if (label < 0) {
      for (int k = 0; k < N; ++k) out.v[k] = narrow<T>(A(0));
      return put(dx, i, s.inner, out, same);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      A d = scale * exp_for<T>((A)widen(v.v[k]) - found.most);
#if SMOOTH
      d -= slope * weight_of<A>(weight, i + k);
#endif
      out.v[k] = narrow<T>(d);
    }
    // Few vectors have the label: the others do not look for it in each element.
    if ((u32)label - i < N) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (i + k == (u32)label) out.v[k] = narrow<T>(own);
    }
    put(dx, i, s.inner, out, same);
  });
}
