// SPDX-License-Identifier: Apache-2.0
// grouped_matmul: sorts rows by expert (a stable counting sort), gathers them, and multiplies them
// expert by expert. The factor of a row is applied while the block is in cache.
#include "grouped_matmul.hpp"

#include <cstring>

#include "../kernels.hpp"
#include "axis.hpp"
#include "block_copy.hpp"
#include "convert.hpp"
#include "epilogue.hpp"
#include "index_policy.hpp"

namespace tenon::cpu {
namespace {

[[noreturn]] void bad_id(int64_t id, int64_t row, int64_t experts) {
  throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                     "operand ids: expert " + std::to_string(id) + " of row " +
                         std::to_string(row) + " is outside [-1, " + std::to_string(experts) + ")",
                     row);
}

template <class X>
void sort_ids(const RowGroups& g, const X* ids, int64_t* starts, int64_t* order) {
  for (int64_t i = 0; i < g.rows; ++i)
    if (ids[i] < -1 || ids[i] >= g.experts) bad_id(ids[i], i, g.experts);
  // starts[e + 2] counts the rows of expert e; then starts[e + 1] is the position of its next row.
  // Rows without an expert come last.
  std::fill_n(starts, g.experts + 2, 0);
  const auto group = [&](int64_t i) { return ids[i] < 0 ? g.experts : int64_t{ids[i]}; };
  for (int64_t i = 0; i < g.rows; ++i)
    if (group(i) < g.experts) ++starts[group(i) + 2];
  for (int64_t e = 2; e < g.experts + 2; ++e) starts[e] += starts[e - 1];
  for (int64_t i = 0; i < g.rows; ++i)
    if (group(i) < g.experts) order[starts[group(i) + 1]++] = i;
  int64_t end = starts[g.experts];
  for (int64_t i = 0; i < g.rows; ++i)
    if (group(i) == g.experts) order[end++] = i;
}

template <class X>
void sort_offsets(const RowGroups& g, const X* offsets, int64_t* starts, int64_t* order) {
  for (int64_t e = 0; e <= g.experts; ++e) {
    const int64_t least = e == 0 ? 0 : int64_t{offsets[e - 1]};
    const bool fine = e == 0           ? offsets[e] == 0
                      : e == g.experts ? offsets[e] >= least && offsets[e] == g.rows
                                       : offsets[e] >= least && offsets[e] <= g.rows;
    if (!fine)
      throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                         "operand offsets: expected numbers that ascend from 0 to " +
                             std::to_string(g.rows) + ", got " + std::to_string(offsets[e]) +
                             " at position " + std::to_string(e),
                         e);
    starts[e] = offsets[e];
  }
  for (int64_t i = 0; i < g.rows; ++i) order[i] = i;
}

}  // namespace

RowGroups::Sorted RowGroups::sort(const sdk::Call& c) const {
  int64_t* starts = reinterpret_cast<int64_t*>(static_cast<char*>(c.scratch) + starts_at);
  int64_t* order = reinterpret_cast<int64_t*>(static_cast<char*>(c.scratch) + order_at);
  with_indices(index, c.inputs[ids >= 0 ? ids : offsets], [&](const auto* list) {
    if (ids >= 0) {
      sort_ids(*this, list, starts, order);
    } else {
      sort_offsets(*this, list, starts, order);
    }
  });
  return {starts, order};
}

double RowGroups::scale(const sdk::Call& c, int64_t row) const {
  if (p < 0) return 1;
  if (p_dtype == TENON_DTYPE_F64) return c.in<double>(p)[row];
  float v = 0;
  widen(p_dtype, row_at(c.inputs[p], p_dtype, 1, row), &v, 1);
  return v;
}

RowGroups row_groups(const sdk::Value& x, const sdk::Value& w, const sdk::Value& ids,
                     const sdk::Value& offsets, const sdk::Value& p, bool trans_w,
                     Scratch& scratch) {
  const sdk::Type &xt = x.type(), &wt = w.type();
  if (!is_float(xt.dtype)) throw sdk::Refusal::dtype("x", xt.dtype);
  RowGroups g{.rows = xt.dims[0],
              .experts = wt.dims[0],
              .in = wt.dims[trans_w ? 2 : 1],
              .out = wt.dims[trans_w ? 1 : 2],
              .trans_w = trans_w,
              .dtype = xt.dtype};
  const sdk::Value& list = ids ? ids : offsets;
  g.index = list.type().dtype;
  (ids ? g.ids : g.offsets) = list.position();
  if (p) {
    g.p = p.position(), g.p_dtype = p.type().dtype;
  }
  g.starts_at = scratch.take(static_cast<uint64_t>(g.experts + 2) * sizeof(int64_t));
  g.order_at = scratch.take(static_cast<uint64_t>(g.rows) * sizeof(int64_t));
  return g;
}

void gather_rows(const void* x, tenon_dtype dtype, int64_t n, const int64_t* order, int64_t count,
                 void* to) {
  const int64_t bytes = n * element_bytes(dtype);
  parallel_for(count, grain_for(2 * bytes), [&](int64_t i, int64_t end) {
    for (; i < end; ++i) std::memcpy(row_at(to, dtype, n, i), row_at(x, dtype, n, order[i]), bytes);
  });
}

namespace {

struct Product {
  RowGroups g;
  int64_t chunk = 0;  // rows at a time
  int slots = 1;
  bool row_bits = false;              // see Gemm
  int64_t gathered = 0, scratch = 0;  // offsets

  Gemm gemm(int64_t m) const {
    return {m, g.out,   g.in, {g.dtype, g.in, 1}, g.matrix(), false, slots, F32Precision::ieee,
            0, row_bits};
  }

  void run(const sdk::Call& c) const {
    const RowGroups::Sorted sorted = g.sort(c);
    for (int64_t e = 0; e < g.experts; ++e)
      for (int64_t i = sorted.starts[e]; i < sorted.starts[e + 1]; i += chunk)
        run_rows(c, e, sorted.order + i, std::min(chunk, sorted.starts[e + 1] - i));
    for (int64_t i = sorted.starts[g.experts]; i < g.rows; ++i)
      zero_bytes(row_at(c.outputs[0], g.dtype, g.out, sorted.order[i]),
                 g.out * element_bytes(g.dtype));
  }
  void run_rows(const sdk::Call& c, int64_t expert, const int64_t* order, int64_t count) const {
    char* base = static_cast<char*>(c.scratch);
    gather_rows(c.inputs[0], g.dtype, g.in, order, count, base + gathered);
    const tenon_dtype sum = gemm_sum_dtype(g.dtype);
    const auto sink = [&](const GemmBlock& block) {
      for (int64_t i = 0; i < block.rows; ++i) {
        const int64_t row = order[block.i0 + i];
        char* sums = static_cast<char*>(block.sums) + i * block.ld * element_bytes(sum);
        if (g.p >= 0)
          epilogue_scale(sum, sums, g.scale(c, row), nullptr, TENON_DTYPE_NONE, block.cols);
        char* y = row_at(c.outputs[0], g.dtype, g.out, row) + block.j0 * element_bytes(g.dtype);
        epilogue_store(sum, sums, y, g.dtype, block.cols);
      }
    };
    const char* w = row_at(c.inputs[1], g.dtype, g.in * g.out, expert);
    gemm(count).run(base + gathered, w, nullptr, base + scratch, sink, false);
  }
};

sdk::Kernel make_grouped_matmul(const sdk::op::grouped_matmul& n, const sdk::Node&) {
  Scratch scratch;
  Product product{.g = row_groups(n.x, n.w, n.ids, n.offsets, n.p, n.trans_w, scratch)};
  const RowGroups& g = product.g;
  product.chunk = std::min(g.rows, kGroupRows);
  product.slots = widest_arena();
  product.row_bits = n.w.frozen();
  product.gathered = scratch.take(product.chunk * g.in * element_bytes(g.dtype));
  product.scratch =
      scratch.take(max_scratch(product.chunk, [&](int64_t m) { return product.gemm(m); }));
  sdk::Kernel kernel;
  kernel.scratch = scratch.size();
  kernel.cost = 2.0 * static_cast<double>(g.rows * g.in) * static_cast<double>(g.out) / 1e11;
  kernel.run = [product](const sdk::Call& c) { product.run(c); };
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::grouped_matmul, make_grouped_matmul>(),
    sdk::row<sdk::op::grouped_matmul_backward, make_grouped_matmul_backward>(),
};

}  // namespace

std::span<const sdk::Row> grouped_matmul_rows() { return kRows; }

}  // namespace tenon::cpu
