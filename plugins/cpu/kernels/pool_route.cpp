// SPDX-License-Identifier: Apache-2.0
// The backward op of maxpool2d: plane by plane, rows of windows find their greatest taps again in
// spread columns and add their gradients there.
#include "../parallel.hpp"
#include "axis.hpp"
#include "norm.hpp"
#include "pool.hpp"

namespace tenon::cpu {
namespace {

struct Router {
  PoolWindows p;
  tenon_dtype dtype{};
  PoolSpread spread{};
  std::vector<int64_t> offsets;

  int64_t row_numbers() const { return spread.stride * spread.phase; }
  int64_t plane_numbers() const { return p.h.size * row_numbers(); }

  // area: the spread x, then the spread dx. Padding is -inf, which no tap is below.
  template <class T>
  void run_plane(const T* dy, const T* x, T* dx, PoolAcc<T>* area) const {
    using A = PoolAcc<T>;
    A* const sums = area + plane_numbers();
    std::fill_n(sums, plane_numbers(), A{0});
    for (int64_t r = 0; r < p.h.size; ++r)
      pool_spread(dtype, spread, x + r * p.w.size, area + r * row_numbers());
    for (int64_t i = 0; i < p.h.count; ++i) {
      const PoolLine::Range taps = p.h.taps(i);
      if (taps.count() == 0) continue;
      const int64_t top = (p.h.first(i) + taps.begin * p.h.dilation) * row_numbers();
      const PoolRoute route{.x = area + top,
                            .dx = sums + top,
                            .rows = taps.count(),
                            .row_step = p.h.dilation * row_numbers(),
                            .offsets = offsets.data(),
                            .taps = p.w.kernel,
                            .n = p.w.count};
      if (pool_route(dtype, route, dy + i * p.w.count)) add_lowest(dy, x, i, sums);
    }
    for (int64_t r = 0; r < p.h.size; ++r)
      pool_join(dtype, spread, sums + r * row_numbers(), dx + r * p.w.size);
  }

  // Windows of a row in which all is -inf: their first tap has the gradient.
  template <class T>
  void add_lowest(const T* dy, const T* x, int64_t i, PoolAcc<T>* sums) const {
    using A = PoolAcc<T>;
    for (int64_t j = 0; j < p.w.count; ++j) {
      const Maximum<A> best = search_window(p, x, i, j);
      if (best.row < 0 || best.value != -std::numeric_limits<A>::infinity()) continue;
      const int64_t t = best.column + spread.before;
      sums[best.row * row_numbers() + t % spread.stride * spread.phase + t / spread.stride] +=
          pool_wide(dy[i * p.w.count + j]);
    }
  }
};

}  // namespace

sdk::Kernel make_maxpool2d_backward(const sdk::op::maxpool2d_backward& n, const sdk::Node&) {
  const sdk::Type& x = n.x.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  if (x.rank != 4) throw sdk::Refusal::shape("x must have rank 4");
  if (n.dy.type().dtype != x.dtype) throw sdk::Refusal::dtype("dy", n.dy.type().dtype);
  Router router{
      .p = pool_windows(n, n.dy.type(), x.dims[2], x.dims[3]), .dtype = x.dtype, .offsets = {}};
  const PoolWindows& p = router.p;
  // Taps are numbered in floats.
  if (p.h.kernel > (1 << 22) / p.w.kernel) throw sdk::Refusal::shape("more than 2^22 taps");
  router.spread = p.w.spread();
  router.offsets = p.w.tap_offsets();
  const int64_t bytes = 2 * router.plane_numbers() * bytes_of(acc_dtype(x.dtype));
  const Slots slots = make_slots(p.planes, bytes, 2 * bytes);
  return {.run =
              [router, slots](const sdk::Call& c) {
                with_float(router.dtype, [&]<class T>(T) {
                  using A = PoolAcc<T>;
                  const PoolWindows& p = router.p;
                  slots.run(c.scratch, [&](int64_t plane, int64_t end, void* area) {
                    std::fill_n(static_cast<A*>(area), router.plane_numbers(),
                                -std::numeric_limits<A>::infinity());
                    for (; plane < end; ++plane)
                      router.run_plane(c.in<T>(0) + plane * p.windows(),
                                       c.in<T>(1) + plane * p.pixels(),
                                       c.out<T>(0) + plane * p.pixels(), static_cast<A*>(area));
                  });
                });
              },
          .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
