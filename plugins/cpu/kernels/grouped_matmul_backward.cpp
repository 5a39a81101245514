// SPDX-License-Identifier: Apache-2.0
// Gradients of grouped_matmul. u = dy·wᵀ serves dx = p·u and dp = u·x. dw is a product over the
// rows of each expert, computed in parts that are added in order.
#include <cstring>

#include "block_copy.hpp"
#include "convert.hpp"
#include "epilogue.hpp"
#include "grouped_matmul.hpp"
#include "loops.hpp"

namespace tenon::cpu {
namespace {

// Sum of u[i]·x[i]; u has the accumulation dtype.
double dot(tenon_dtype dtype, const void* u, const char* x, int64_t n) {
  constexpr int64_t kLanes = 4;
  double sums[kLanes] = {};
  const auto add = [&](const auto* a, const auto* b, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      sums[i % kLanes] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  };
  if (dtype == TENON_DTYPE_F64) {
    add(static_cast<const double*>(u), reinterpret_cast<const double*>(x), n);
  } else {
    float wide[kTile];
    for (int64_t i = 0; i < n; i += kTile) {
      const int64_t count = std::min(kTile, n - i);
      widen(dtype, x + i * element_bytes(dtype), wide, count);
      add(static_cast<const float*>(u) + i, wide, count);
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

struct Backward {
  RowGroups g;
  tenon_dtype sum{};
  int64_t chunk = 0;  // rows at a time
  int slots = 1;
  bool dx = false, dw = false, dp = false;
  tenon_dtype dp_dtype{};
  // Offsets in scratch. gathered: rows in their own dtype; u, wide_x, wide_dy: rows in the
  // accumulation dtype; matrix: sums of dw.
  int64_t gathered = 0, u = 0, wide_x = 0, wide_dy = 0, matrix = 0, scratch = 0;

  static constexpr int kDy = 0, kX = 1, kW = 2;  // operands

  Gemm input_gemm(int64_t m) const {
    return {m, g.in, g.out, {g.dtype, g.out, 1}, g.transposed(), true, slots};
  }
  // Layout of dw: [in, out], or [out, in] with trans_w.
  int64_t dw_rows() const { return g.trans_w ? g.out : g.in; }
  int64_t dw_cols() const { return g.trans_w ? g.in : g.out; }
  Gemm weight_gemm(int64_t k) const {
    return {dw_rows(), dw_cols(), k, {sum, 1, dw_rows()}, {sum, dw_cols(), 1}, false, slots};
  }
  char* area(const sdk::Call& c, int64_t offset) const {
    return static_cast<char*>(c.scratch) + offset;
  }

  void run(const sdk::Call& c) const {
    const RowGroups::Sorted sorted = g.sort(c);
    for (int64_t e = 0; e < g.experts; ++e) {
      const int64_t *begin = sorted.order + sorted.starts[e],
                    *end = sorted.order + sorted.starts[e + 1];
      for (const int64_t* rows = begin; rows < end && (dx || dp); rows += chunk)
        run_inputs(c, e, rows, std::min(chunk, int64_t{end - rows}));
      if (!dw) continue;
      if (begin == end) zero_bytes(weights(c, e), g.in * g.out * element_bytes(g.dtype));
      for (const int64_t* rows = begin; rows < end; rows += chunk)
        run_weights(c, e, rows, std::min(chunk, int64_t{end - rows}), rows == begin,
                    end - rows <= chunk);
    }
    for (int64_t i = sorted.starts[g.experts]; i < g.rows; ++i) {
      const int64_t row = sorted.order[i];
      if (dx) zero_bytes(row_at(c.outputs[0], g.dtype, g.in, row), g.in * element_bytes(g.dtype));
      if (dp) set_dp(c, row, 0);
    }
  }
  char* weights(const sdk::Call& c, int64_t expert) const {
    return row_at(c.outputs[1], g.dtype, g.in * g.out, expert);
  }
  void set_dp(const sdk::Call& c, int64_t row, double v) const {
    if (dp_dtype == TENON_DTYPE_F64) {
      c.out<double>(2)[row] = v;
    } else {
      const float once = dp_dtype == TENON_DTYPE_F32 ? static_cast<float>(v) : round_to_odd(v);
      narrow(dp_dtype, &once, row_at(c.outputs[2], dp_dtype, 1, row), 1);
    }
  }

  void run_inputs(const sdk::Call& c, int64_t expert, const int64_t* order, int64_t count) const {
    gather_rows(c.inputs[kDy], g.dtype, g.out, order, count, area(c, gathered));
    const auto nothing = [](const GemmBlock&) {};
    input_gemm(count).run(area(c, gathered), row_at(c.inputs[kW], g.dtype, g.in * g.out, expert),
                          area(c, u), area(c, scratch), nothing, false);
    parallel_for(count, grain_for(3 * g.in * element_bytes(sum)), [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        const int64_t row = order[i];
        char* sums = row_at(area(c, u), sum, g.in, i);
        if (dp) set_dp(c, row, dot(g.dtype, sums, row_at(c.inputs[kX], g.dtype, g.in, row), g.in));
        if (!dx) continue;
        if (g.p >= 0) epilogue_scale(sum, sums, g.scale(c, row), nullptr, TENON_DTYPE_NONE, g.in);
        epilogue_store(sum, sums, row_at(c.outputs[0], g.dtype, g.in, row), g.dtype, g.in);
      }
    });
  }

  // Rows of x and of p·dy in the accumulation type.
  void gather_wide(const sdk::Call& c, const int64_t* order, int64_t count) const {
    const auto one = [&](int operand, int64_t n, int64_t row, char* to) {
      const char* from = row_at(c.inputs[operand], g.dtype, n, row);
      if (g.dtype == TENON_DTYPE_F64) {
        std::memcpy(to, from, n * sizeof(double));
      } else {
        widen(g.dtype, from, reinterpret_cast<float*>(to), n);
      }
    };
    parallel_for(count, grain_for(2 * (g.in + g.out) * element_bytes(sum)),
                 [&](int64_t i, int64_t end) {
                   for (; i < end; ++i) {
                     const int64_t row = order[i];
                     one(kX, g.in, row, row_at(area(c, wide_x), sum, g.in, i));
                     char* dy = row_at(area(c, wide_dy), sum, g.out, i);
                     one(kDy, g.out, row, dy);
                     if (g.p >= 0)
                       epilogue_scale(sum, dy, g.scale(c, row), nullptr, TENON_DTYPE_NONE, g.out);
                   }
                 });
  }
  void run_weights(const sdk::Call& c, int64_t expert, const int64_t* order, int64_t count,
                   bool first, bool last) const {
    gather_wide(c, order, count);
    char* to = weights(c, expert);
    char* sums_so_far = g.dtype == sum ? to : area(c, matrix);
    const auto sink = [&](const GemmBlock& block) {
      for (int64_t i = 0; i < block.rows; ++i) {
        char* sums = static_cast<char*>(block.sums) + i * block.ld * element_bytes(sum);
        const int64_t at = (block.i0 + i) * dw_cols() + block.j0;
        char* so_far = sums_so_far + at * element_bytes(sum);
        if (!first) epilogue_add(sum, sums, so_far, sum, block.cols);
        if (last) {
          epilogue_store(sum, sums, to + at * element_bytes(g.dtype), g.dtype, block.cols);
        } else {
          epilogue_store(sum, sums, so_far, sum, block.cols);
        }
      }
    };
    const int64_t left = g.trans_w ? wide_dy : wide_x, right = g.trans_w ? wide_x : wide_dy;
    weight_gemm(count).run(area(c, left), area(c, right), nullptr, area(c, scratch), sink, false);
  }
};

}  // namespace

sdk::Kernel make_grouped_matmul_backward(const sdk::op::grouped_matmul_backward& n,
                                         const sdk::Node& node) {
  Scratch scratch;
  Backward b{.g = row_groups(n.x, n.w, n.ids, n.offsets, n.p, n.trans_w, scratch)};
  const RowGroups& g = b.g;
  b.sum = gemm_sum_dtype(g.dtype);
  b.chunk = std::min(g.rows, kGroupRows);
  b.slots = widest_arena();
  b.dx = n.want_dx, b.dw = n.want_dw, b.dp = n.want_dp;
  if (b.dp) {
    b.dp_dtype = node.out(2).type().dtype;
  }
  const int64_t wide = element_bytes(b.sum);
  uint64_t largest = 0;
  if (b.dx || b.dp) {
    b.gathered = scratch.take(b.chunk * g.out * element_bytes(g.dtype));
    b.u = scratch.take(b.chunk * g.in * wide);
    largest = max_scratch(b.chunk, [&](int64_t m) { return b.input_gemm(m); });
  }
  if (b.dw) {
    b.wide_x = scratch.take(b.chunk * g.in * wide);
    b.wide_dy = scratch.take(b.chunk * g.out * wide);
    if (g.dtype != b.sum) b.matrix = scratch.take(g.in * g.out * wide);
    largest = std::max(largest, max_scratch(b.chunk, [&](int64_t k) { return b.weight_gemm(k); }));
  }
  b.scratch = scratch.take(largest);
  sdk::Kernel kernel;
  kernel.scratch = scratch.size();
  kernel.cost = 4.0 * static_cast<double>(g.rows * g.in) * static_cast<double>(g.out) / 1e11;
  kernel.run = [b](const sdk::Call& c) { b.run(c); };
  return kernel;
}

}  // namespace tenon::cpu
