// SPDX-License-Identifier: Apache-2.0
// avgpool2d and its backward op. The divisor of a window is the product of one number per axis.
#include "../parallel.hpp"
#include "axis.hpp"
#include "norm.hpp"
#include "pool.hpp"

namespace tenon::cpu {
namespace {

// The divisors of the windows of an axis.
template <class Op>
std::vector<double> divisors(const Op& n, const PoolLine& line) {
  std::vector<double> out(static_cast<size_t>(line.count), 1.0);
  if (n.divisor_override != 0) return out;
  for (int64_t o = 0; o < line.count; ++o) {
    const PoolLine::Range taps =
        n.count_include_pad ? line.within(o, -line.before, line.size + line.after) : line.taps(o);
    out[static_cast<size_t>(o)] = static_cast<double>(std::max<int64_t>(taps.count(), 1));
  }
  return out;
}
template <class Op>
std::vector<double> row_divisors(const Op& n, const PoolLine& line) {
  std::vector<double> out = divisors(n, line);
  if (n.divisor_override != 0) std::ranges::fill(out, static_cast<double>(n.divisor_override));
  return out;
}

// A row of dx: adds up the rows of windows that cover it, then adds the share of each window to its
// taps, in the order of the windows.
struct Backward {
  PoolWindows p;
  tenon_dtype dtype;
  std::vector<double> rows, columns;

  template <class A>
  void run_row(const char* dy, char* dx, int64_t row, A* shares) const {
    const PoolLine &h = p.h, &w = p.w;
    const int64_t plane = row / h.size, at = row - plane * h.size, size = element_bytes(dtype);
    A* sums = shares + w.count;
    std::fill_n(shares, w.count + w.size, A{0});
    for (int64_t k = h.kernel - 1; k >= 0; --k) {
      const int64_t t = at + h.before - k * h.dilation, o = t / h.stride;
      if (t < 0 || t % h.stride != 0 || o >= h.count) continue;
      pool_add_row(dtype, dy + (plane * h.count + o) * w.count * size, w.count,
                   rows[static_cast<size_t>(o)], shares);
    }
    for (int64_t o = 0; o < w.count; ++o) {
      const A share = shares[o] / static_cast<A>(columns[static_cast<size_t>(o)]);
      const PoolLine::Range taps = w.taps(o);
      for (int64_t k = taps.begin; k < taps.end; ++k) sums[w.first(o) + k * w.dilation] += share;
    }
    char* to = dx + row * w.size * size;
    if constexpr (std::is_same_v<A, float>) {
      narrow(dtype, sums, to, w.size);
    } else {
      std::copy_n(sums, w.size, reinterpret_cast<double*>(to));
    }
  }
};

}  // namespace

sdk::Kernel make_avgpool2d(const sdk::op::avgpool2d& n, const sdk::Node& node) {
  const sdk::Type& x = n.x.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  const PoolWindows p = pool_windows(n, node.out(0).type(), x.dims[2], x.dims[3]);
  const PoolRows rows(p, x.dtype, PoolKind::sum, row_divisors(n, p.h), divisors(n, p.w));
  return {.run = [rows](const sdk::Call& c) { rows.run(c.inputs[0], c.outputs[0], c.scratch); },
          .scratch = rows.scratch()};
}

sdk::Kernel make_avgpool2d_backward(const sdk::op::avgpool2d_backward& n, const sdk::Node&) {
  const sdk::Type& dy = n.dy.type();
  if (!is_float(dy.dtype)) throw sdk::Refusal::dtype("dy", dy.dtype);
  const PoolWindows p = pool_windows(n, dy, n.size[0], n.size[1]);
  const Backward b{p, dy.dtype, row_divisors(n, p.h), divisors(n, p.w)};
  const int64_t numbers = p.w.count + p.w.size;
  const Slots slots = make_slots(p.planes * p.h.size, numbers * element_bytes(acc_dtype(dy.dtype)),
                                 (p.h.kernel + 2) * numbers * element_bytes(dy.dtype));
  return {.run =
              [b, slots](const sdk::Call& c) {
                slots.run(c.scratch, [&](int64_t row, int64_t end, void* area) {
                  for (; row < end; ++row) {
                    if (b.dtype == TENON_DTYPE_F64) {
                      b.run_row(c.in<char>(0), c.out<char>(0), row, static_cast<double*>(area));
                    } else {
                      b.run_row(c.in<char>(0), c.out<char>(0), row, static_cast<float*>(area));
                    }
                  }
                });
              },
          .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
