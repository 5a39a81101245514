// SPDX-License-Identifier: Apache-2.0
// The backward op of maxpool2d, plane by plane. Finds the largest taps of a row of windows in
// spread columns, and adds the gradients there.
#include "../parallel.hpp"
#include "axis.hpp"
#include "nontemporal.hpp"
#include "norm.hpp"
#include "pool.hpp"

namespace tenon::cpu {
namespace {

struct Router {
  PoolWindows p;
  tenon_dtype dtype{};
  std::vector<int64_t> offsets;

  int64_t plane_numbers() const { return p.h.size * p.w.spread(); }
  PoolPlan plan() const { return {dtype, PoolKind::max, p, offsets.data(), nullptr, nullptr}; }

  bool in_quarters() const {
    return quarters(p.h) && quarters(p.w) && (dtype == TENON_DTYPE_F32 || dtype == TENON_DTYPE_F64);
  }
  void run_quarters(const char* dy, const char* x, char* dx) const {
    const int64_t bytes = element_bytes(dtype), plane_bytes = p.pixels() * bytes;
    const bool nontemporal = bypasses_cache(dx, p.planes * plane_bytes, {dy, x});
    parallel_for(p.planes, grain_for(3 * plane_bytes), [&](int64_t plane, int64_t end) {
      pool_route_quarters(plan(), dy + plane * p.windows() * bytes, x + plane * plane_bytes,
                          dx + plane * plane_bytes, end - plane, nontemporal);
    });
  }

  // Planes [plane, end). area: the spread x, then the spread dx. Padding is -inf, below every tap.
  template <class T>
  void run(const T* dy, const T* x, T* dx, int64_t plane, int64_t end, PoolAcc<T>* area) const {
    using A = PoolAcc<T>;
    A* const sums = area + plane_numbers();
    std::fill(area, sums, -std::numeric_limits<A>::infinity());
    for (; plane < end; ++plane) {
      const T *own_dy = dy + plane * p.windows(), *own_x = x + plane * p.pixels();
      if (pool_route(plan(), own_dy, own_x, area, sums)) add_lowest(own_dy, own_x, sums);
      pool_join(plan(), sums, dx + plane * p.pixels());
    }
  }

  // Windows that contain only -inf pass their gradient to the first tap.
  template <class T>
  void add_lowest(const T* dy, const T* x, PoolAcc<T>* sums) const {
    using A = PoolAcc<T>;
    for (int64_t i = 0; i < p.h.count; ++i)
      for (int64_t j = 0; j < p.w.count; ++j) {
        const Maximum<A> best = search_window(p, x, i, j);
        if (best.row < 0 || best.value != -std::numeric_limits<A>::infinity()) continue;
        sums[best.row * p.w.spread() + p.w.spread_at(best.column)] +=
            pool_wide(dy[i * p.w.count + j]);
      }
  }
};

}  // namespace

sdk::Kernel make_maxpool2d_backward(const sdk::op::maxpool2d_backward& n, const sdk::Node&) {
  const sdk::Type& x = n.x.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  Router router{
      .p = pool_windows(n, n.dy.type(), x.dims[2], x.dims[3]), .dtype = x.dtype, .offsets = {}};
  const PoolWindows& p = router.p;
  // Taps are numbered in floats.
  if (p.h.kernel > (1 << 22) / p.w.kernel) throw sdk::Refusal::shape("more than 2^22 taps");
  router.offsets = p.w.tap_offsets();
  if (router.in_quarters())
    return {.run = [router](const sdk::Call& c) {
      router.run_quarters(c.in<char>(0), c.in<char>(1), c.out<char>(0));
    }};
  const int64_t bytes = 2 * router.plane_numbers() * element_bytes(acc_dtype(x.dtype));
  const Slots slots = make_slots(p.planes, bytes, 2 * bytes);
  return {.run =
              [router, slots](const sdk::Call& c) {
                with_type(sdk::kFloatTypes, router.dtype, [&]<class T>(T) {
                  slots.run(c.scratch, [&](int64_t plane, int64_t end, void* area) {
                    router.run(c.in<T>(0), c.in<T>(1), c.out<T>(0), plane, end,
                               static_cast<PoolAcc<T>*>(area));
                  });
                });
              },
          .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
