// SPDX-License-Identifier: Apache-2.0
// maxpool2d. If indices are requested, each window is searched.
#include "pool.hpp"

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

template <class T>
void search_plane(const PoolWindows& p, const T* x, T* y, int64_t* indices) {
  for (int64_t i = 0; i < p.h.count; ++i)
    for (int64_t j = 0; j < p.w.count; ++j, ++y, ++indices) {
      const auto best = search_window(p, x, i, j);
      if constexpr (std::is_same_v<T, double>) {
        *y = best.value;
      } else {
        from_float(best.value, y);
      }
      *indices = best.row < 0 ? -1 : best.row * p.w.size + best.column;
    }
}

void check_image(const sdk::Value& x) {
  if (!is_float(x.type().dtype)) throw sdk::Refusal::dtype("x", x.type().dtype);
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
  const int64_t cost = p.windows() * p.h.kernel * p.w.kernel * 4;
  return {.run = [p, dtype, cost](const Call& c) {
    with_type(sdk::kFloatTypes, dtype, [&]<class T>(T) {
      parallel_for(p.planes, grain_for(cost), [&](int64_t plane, int64_t end) {
        for (; plane < end; ++plane)
          search_plane(p, c.in<T>(0) + plane * p.pixels(), c.out<T>(0) + plane * p.windows(),
                       c.out<int64_t>(1) + plane * p.windows());
      });
    });
  }};
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
