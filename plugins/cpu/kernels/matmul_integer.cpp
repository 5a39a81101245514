// SPDX-License-Identifier: Apache-2.0
// matmul of integers of 4 and 8 bytes. Products and sums wrap, so signed and unsigned ones are the
// same. A piece of work is a tile of y: panels of b are packed for it, one after the other.
#include <algorithm>

#include "matmul.hpp"
#include "slots.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_integer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef TENON_CPU_MATMUL_INTEGER_ONCE
#define TENON_CPU_MATMUL_INTEGER_ONCE
namespace tenon::cpu {

// Elements of a tile of y, and of the depth of a panel.
constexpr int64_t kTileRows = 64, kTileColumns = 64, kDepth = 128;

// y[m, n] = a[m, k] · b[k, n]; the dtypes of the operands are not used.
struct IntegerProduct {
  int64_t m, n, k;
  GemmOperand a, b;

  int64_t column_tiles() const { return (n + kTileColumns - 1) / kTileColumns; }
  int64_t tiles() const { return (m + kTileRows - 1) / kTileRows * column_tiles(); }
};
// Of one tile. area: of tile_bytes.
using RunTile = void (*)(const IntegerProduct& p, int64_t tile, const void* a, const void* b,
                         void* y, void* area);
constexpr int64_t tile_bytes(int64_t element) {
  return (kTileRows + kDepth) * kTileColumns * element;
}

}  // namespace tenon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sums[rows][kTileColumns] += a[rows][depth] · panel[depth][kTileColumns], in `columns` of them,
// rounded up to whole vectors.
template <int rows, class U>
HWY_INLINE void add_products(const U* a, const GemmOperand& step, const U* panel, int64_t depth,
                             int64_t columns, U* sums) {
  const hn::CappedTag<U, kTileColumns / 2> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < columns; j += 2 * lanes) {
    hn::Vec<decltype(d)> low[rows], high[rows];
    for (int i = 0; i < rows; ++i) {
      low[i] = hn::Load(d, sums + i * kTileColumns + j);
      high[i] = hn::Load(d, sums + i * kTileColumns + j + lanes);
    }
    for (int64_t k = 0; k < depth; ++k) {
      const auto b_low = hn::Load(d, panel + k * kTileColumns + j);
      const auto b_high = hn::Load(d, panel + k * kTileColumns + j + lanes);
      for (int i = 0; i < rows; ++i) {
        const auto factor = hn::Set(d, a[i * step.row + k * step.col]);
        low[i] = hn::Add(low[i], hn::Mul(factor, b_low));
        high[i] = hn::Add(high[i], hn::Mul(factor, b_high));
      }
    }
    for (int i = 0; i < rows; ++i) {
      hn::Store(low[i], d, sums + i * kTileColumns + j);
      hn::Store(high[i], d, sums + i * kTileColumns + j + lanes);
    }
  }
}

// y[rows] = a[rows][k] · b[k], where rows of a and b are dense.
template <class U>
void dot_rows(const IntegerProduct& p, int64_t rows, const U* a, const U* b, U* y) {
  const hn::ScalableTag<U> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    const U* const row = a + i * p.a.row;
    auto low = hn::Zero(d), high = hn::Zero(d);
    int64_t k = 0;
    for (; k + 2 * lanes <= p.k; k += 2 * lanes) {
      low = hn::Add(low, hn::Mul(hn::LoadU(d, row + k), hn::LoadU(d, b + k)));
      high = hn::Add(high, hn::Mul(hn::LoadU(d, row + k + lanes), hn::LoadU(d, b + k + lanes)));
    }
    U sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
    for (; k < p.k; ++k) sum += row[k] * b[k];
    y[i] = sum;
  }
}

template <class U>
void run_tile(const IntegerProduct& p, int64_t tile, const void* a_at, const void* b_at, void* y_at,
              void* area) {
  constexpr int kRows = 4;  // whose sums registers hold
  const int64_t i0 = tile / p.column_tiles() * kTileRows,
                j0 = tile % p.column_tiles() * kTileColumns;
  const int64_t rows = std::min(kTileRows, p.m - i0), columns = std::min(kTileColumns, p.n - j0);
  const U* a = static_cast<const U*>(a_at) + i0 * p.a.row;
  const U* b = static_cast<const U*>(b_at) + j0 * p.b.col;
  if (p.n == 1 && p.a.col == 1 && p.b.row == 1)
    return dot_rows(p, rows, a, b, static_cast<U*>(y_at) + i0);
  U* sums = static_cast<U*>(area);
  U* panel = sums + kTileRows * kTileColumns;
  std::fill_n(sums, rows * kTileColumns, U{});
  for (int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - k0);
    for (int64_t k = 0; k < depth; ++k) {
      U* const line = panel + k * kTileColumns;
      const U* const from = b + (k0 + k) * p.b.row;
      if (p.b.col == 1) {
        std::copy_n(from, columns, line);
      } else {
        for (int64_t j = 0; j < columns; ++j) line[j] = from[j * p.b.col];
      }
      std::fill(line + columns, line + kTileColumns, U{});
    }
    const U* const left = a + k0 * p.a.col;
    int64_t i = 0;
    for (; i + kRows <= rows; i += kRows)
      add_products<kRows>(left + i * p.a.row, p.a, panel, depth, columns, sums + i * kTileColumns);
    for (; i < rows; ++i)
      add_products<1>(left + i * p.a.row, p.a, panel, depth, columns, sums + i * kTileColumns);
  }
  U* y = static_cast<U*>(y_at) + i0 * p.n + j0;
  for (int64_t i = 0; i < rows; ++i) std::copy_n(sums + i * kTileColumns, columns, y + i * p.n);
}

RunTile run_tile_for(int64_t element) {
  return element == 4 ? run_tile<uint32_t> : run_tile<uint64_t>;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {
HWY_EXPORT(run_tile_for);

sdk::Kernel make_integer_matmul(const sdk::op::matmul& n, const sdk::Node& node) {
  const tenon_dtype t = n.a.type().dtype;
  const int64_t size = element_bytes(t);
  if (!sdk::is_integer(t) || size < 4) throw sdk::Refusal::dtype("a", t);
  if (n.b.type().dtype != t) throw sdk::Refusal::dtype("b", n.b.type().dtype);
  const sdk::Type& y = node.out(0).type();
  if (y.dtype != t) throw sdk::Refusal::dtype("y", y.dtype);
  if (n.alpha != 1) throw sdk::Refusal::attribute("alpha", std::to_string(n.alpha));
  Products all = products_of(n.trans_a, n.trans_b, n.a.type(), n.b.type(), y);
  const IntegerProduct p{
      .m = all.a.rows, .n = all.b.cols, .k = all.a.cols, .a = all.a.layout, .b = all.b.layout};
  const int64_t tiles = p.tiles(),
                work = std::min(p.m, kTileRows) * std::min(p.n, kTileColumns) * p.k;
  const Slots slots =
      make_slots(tiles * static_cast<int64_t>(all.a_offsets.size()), tile_bytes(size), work);
  const RunTile run_tile = HWY_DYNAMIC_DISPATCH(run_tile_for)(size);
  const auto run = [=, a_offsets = std::move(all.a_offsets), b_offsets = std::move(all.b_offsets),
                    a = n.a.position(), b = n.b.position()](const sdk::Call& c) {
    slots.run(c.scratch, [&](int64_t begin, int64_t end, void* area) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t batch = item / tiles;
        run_tile(p, item - batch * tiles, c.in<char>(a) + a_offsets[batch] * size,
                 c.in<char>(b) + b_offsets[batch] * size, c.out<char>(0) + batch * p.m * p.n * size,
                 area);
      }
    });
  };
  sdk::Kernel kernel{.run = run, .scratch = slots.scratch()};
  kernel.cost = static_cast<double>(work) * static_cast<double>(slots.rows) / 5e9;
  return kernel;
}

}  // namespace tenon::cpu
#endif
