// SPDX-License-Identifier: Apache-2.0
// maxpool2d and its backward op. Where positions are asked for, each window is searched; ties go to
// the first tap, a NaN wins and the last of several.
#include "pool.hpp"

#include <cmath>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "norm.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

template <class A>
struct Maximum {
  A value;
  int64_t position;  // in the plane; -1 without taps
};

// Calls f(window, maximum) for the windows of one plane.
template <class T, class F>
void search_plane(const PoolWindows& p, const T* x, F&& f) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto wide = [](T v) {
    if constexpr (std::is_same_v<T, double>) {
      return v;
    } else {
      return to_float(v);
    }
  };
  int64_t window = 0;
  for (int64_t i = 0; i < p.h.count; ++i) {
    const PoolLine::Range rows = p.h.taps(i);
    for (int64_t j = 0; j < p.w.count; ++j, ++window) {
      const PoolLine::Range columns = p.w.taps(j);
      Maximum<A> best{-std::numeric_limits<A>::infinity(), -1};
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        const int64_t row = (p.h.first(i) + r * p.h.dilation) * p.w.size + p.w.first(j);
        for (int64_t k = columns.begin; k < columns.end; ++k) {
          const int64_t at = row + k * p.w.dilation;
          const A v = wide(x[at]);
          if (v > best.value || std::isnan(v) || best.position < 0) best = {v, at};
        }
      }
      f(window, best);
    }
  }
}

template <class F>
void with_float(tenon_dtype dtype, F&& f) {
  switch (dtype) {
    case TENON_DTYPE_F32:
      return f(float{});
    case TENON_DTYPE_F16:
      return f(F16{});
    case TENON_DTYPE_BF16:
      return f(Bf16{});
    default:
      return f(double{});
  }
}

int64_t search_cost(const PoolWindows& p) { return p.windows() * p.h.kernel * p.w.kernel * 4; }

void check_image(const sdk::Value& x) {
  if (!is_float(x.type().dtype)) throw sdk::Refusal::dtype("x", x.type().dtype);
  if (x.type().rank != 4) throw sdk::Refusal::shape("x must have rank 4");
}

Kernel make_maxpool2d(const sdk::op::maxpool2d& n, const Node& node) {
  check_image(n.x);
  const sdk::Type& x = n.x.type();
  const PoolWindows p = pool_windows(n, node.out(0).type(), x.dims[2], x.dims[3]);
  const tenon_dtype dtype = x.dtype;
  if (!n.want_indices) {
    const PoolRows rows(p, dtype, PoolKind::max, {}, {});
    return {.run = [rows](const Call& c) { rows.run(c.inputs[0], c.outputs[0], c.scratch); },
            .scratch = rows.scratch()};
  }
  return {.run = [p, dtype](const Call& c) {
    with_float(dtype, [&]<class T>(T) {
      parallel_for(p.planes, grain_for(search_cost(p)), [&](int64_t plane, int64_t end) {
        for (; plane < end; ++plane) {
          T* y = c.out<T>(0) + plane * p.windows();
          int64_t* indices = c.out<int64_t>(1) + plane * p.windows();
          search_plane(p, c.in<T>(0) + plane * p.pixels(), [&](int64_t window, const auto& best) {
            if constexpr (std::is_same_v<T, double>) {
              y[window] = best.value;
            } else {
              from_float(best.value, y + window);
            }
            indices[window] = best.position;
          });
        }
      });
    });
  }};
}

Kernel make_maxpool2d_backward(const sdk::op::maxpool2d_backward& n, const Node&) {
  check_image(n.x);
  const sdk::Type& x = n.x.type();
  const PoolWindows p = pool_windows(n, n.dy.type(), x.dims[2], x.dims[3]);
  const tenon_dtype dtype = x.dtype;
  if (n.dy.type().dtype != dtype) throw sdk::Refusal::dtype("dy", n.dy.type().dtype);
  const int64_t cost = search_cost(p) + p.pixels() * 8;
  // Planes are summed in the accumulation type: in dx itself, or aside.
  const Slots slots = make_slots(p.planes, is_half(dtype) ? p.pixels() * 4 : 0, cost);
  return {.run =
              [=](const Call& c) {
                with_float(dtype, [&]<class T>(T) {
                  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
                  slots.run(c.scratch, [&](int64_t plane, int64_t end, void* area) {
                    for (; plane < end; ++plane) {
                      T* dx = c.out<T>(0) + plane * p.pixels();
                      A* sums = is_half(dtype) ? static_cast<A*>(area) : reinterpret_cast<A*>(dx);
                      const T* dy = c.in<T>(0) + plane * p.windows();
                      std::fill_n(sums, p.pixels(), A{0});
                      search_plane(p, c.in<T>(1) + plane * p.pixels(),
                                   [&](int64_t window, const auto& best) {
                                     if (best.position < 0) return;
                                     if constexpr (std::is_same_v<T, double>) {
                                       sums[best.position] += dy[window];
                                     } else {
                                       sums[best.position] += to_float(dy[window]);
                                     }
                                   });
                      if constexpr (!std::is_same_v<T, A>) narrow(dtype, sums, dx, p.pixels());
                    }
                  });
                });
              },
          .scratch = slots.scratch()};
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::maxpool2d, make_maxpool2d>(),
    sdk::row<sdk::op::maxpool2d_backward, make_maxpool2d_backward>(),
    sdk::row<sdk::op::avgpool2d, make_avgpool2d>(),
    sdk::row<sdk::op::avgpool2d_backward, make_avgpool2d_backward>(),
};

}  // namespace

std::span<const sdk::Row> pool_rows() { return kRows; }

}  // namespace tenon::cpu
