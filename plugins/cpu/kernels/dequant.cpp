// SPDX-License-Identifier: Apache-2.0
// dequantize_blocks dequant_matmul grouped_dequant_matmul dequant_rows: plans the products of nodes
// and spreads panels of w over threads.
#include "dequant.hpp"

#include <algorithm>
#include <optional>

#include "../kernels.hpp"
#include "convert.hpp"
#include "epilogue.hpp"
#include "grouped_matmul.hpp"
#include "index_policy.hpp"

namespace tenon::cpu {
namespace {

void want_blocks(const sdk::Value& w) {
  const sdk::Type& t = w.type();
  if (!sdk::is_decodable(t.dtype) || !t.dense()) throw sdk::Refusal::dtype("w", t.dtype);
}

// ---- elements

// Writes `count` elements as `to`. f64: in f64.
void decode_to(tenon_dtype to, tenon_dtype from, const unsigned char* blocks, int64_t count,
               char* y) {
  if (to == TENON_DTYPE_F32) return decode_blocks(from, blocks, count, reinterpret_cast<float*>(y));
  if (to == TENON_DTYPE_F64) {
    const tenon_block block = tenon_dtype_block(from);
    auto* at = reinterpret_cast<double*>(y);
    for (; count > 0; count -= block.elements, blocks += block.bytes, at += block.elements)
      sdk::decode_block(from, blocks, at);
    return;
  }
  float some[kUnpacked];
  for (int64_t k = 0; k < count; k += kUnpacked) {
    const int64_t n = std::min(kUnpacked, count - k);
    decode_blocks(from, blocks + tenon_dense_bytes(from, k), n, some);
    narrow(to, some, y + k * element_bytes(to), n);
  }
}

sdk::Kernel make_dequantize_blocks(const sdk::op::dequantize_blocks& n, const sdk::Node&) {
  want_blocks(n.w);
  if (!is_float(n.to)) throw sdk::Refusal::dtype("to", n.to);
  const tenon_dtype from = n.w.type().dtype, to = n.to;
  const int64_t elements = n.w.type().elements(), chunks = padded_depth(elements) / kUnpacked;
  sdk::Kernel kernel;
  kernel.cost = static_cast<double>(elements) * 5e-11;
  kernel.run = [=](const sdk::Call& c) {
    parallel_for(chunks, grain_for(kUnpacked * element_bytes(to)), [&](int64_t begin, int64_t end) {
      const int64_t k = begin * kUnpacked, count = std::min(end * kUnpacked, elements) - k;
      decode_to(to, from, c.in<unsigned char>(0) + tenon_dense_bytes(from, k), count,
                c.out<char>(0) + k * element_bytes(to));
    });
  };
  return kernel;
}

sdk::Kernel make_dequant_rows(const sdk::op::dequant_rows& n, const sdk::Node&) {
  want_blocks(n.w);
  if (!is_float(n.to)) throw sdk::Refusal::dtype("to", n.to);
  const sdk::Type& w = n.w.type();
  const tenon_dtype from = w.dtype, to = n.to, index = n.ids.type().dtype;
  const int64_t count = n.ids.type().elements(), k = w.dims[1];
  const IndexAxis axis{.length = w.dims[0]};
  sdk::Kernel kernel;
  kernel.cost = static_cast<double>(count * k) * 5e-11;
  kernel.run = [=](const sdk::Call& c) {
    with_indices(index, c.inputs[1], [&](const auto* ids) {
      axis.check(ids, count);
      parallel_for(count, grain_for(k * element_bytes(to)), [&](int64_t i, int64_t end) {
        for (; i < end; ++i)
          decode_to(to, from,
                    c.in<unsigned char>(0) + axis.resolve(ids[i]) * tenon_dense_bytes(from, k), k,
                    c.out<char>(0) + i * k * element_bytes(to));
      });
    });
  };
  return kernel;
}

// ---- products

// A product with weights [n, k] of `m` rows of x at most.
struct Plan {
  tenon_dtype w{}, x{};
  int64_t m = 0, n = 0, k = 0;
  bool bytes = false;
  int slots = 1;
  int64_t wide_at = -1;                                          // x in f32
  int64_t level_at = 0, scale_at = 0, sum_at = 0, shift_at = 0;  // x in bytes
  int64_t arranged_at = -1;
  int64_t areas_at = 0, area = 0;

  // few: a product may have few rows of x.
  void take(Scratch& scratch, bool few) {
    const auto rows = static_cast<uint64_t>(m);
    if (x != TENON_DTYPE_F32) wide_at = scratch.take(rows * static_cast<uint64_t>(k) * 4);
    if (bytes) {
      const auto depth = static_cast<uint64_t>(padded_depth(k));
      level_at = scratch.take(rows * depth);
      const uint64_t groups = rows * depth / static_cast<uint64_t>(scale_group(w));
      scale_at = scratch.take(groups * sizeof(float));
      sum_at = scratch.take(groups * sizeof(float));
      shift_at = scratch.take(groups * sizeof(int32_t));
      if (few && arranges_rows(w))
        arranged_at = scratch.take(rows * static_cast<uint64_t>(arranged_depth(k)));
    }
    area = static_cast<int64_t>((block_area(m) + 63) / 64 * 64);
    areas_at = scratch.take(static_cast<uint64_t>(area) * static_cast<uint64_t>(slots));
  }
  // Below that of a product with decoded weights, also for blocks of 8 bits: those would take four
  // times the memory.
  double cost() const {
    const double products =
        static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    return products / 5e10 + static_cast<double>(tenon_dense_bytes(w, n * k)) / 4e10;
  }

  // Converts x once for all products.
  BlockProduct prepare(const sdk::Call& c) const {
    auto* const base = static_cast<char*>(c.scratch);
    BlockProduct p{.dtype = w,
                   .w = nullptr,
                   .n = n,
                   .k = k,
                   .x = nullptr,
                   .bytes = {},
                   .order = nullptr,
                   .m = m};
    const float* rows = c.in<float>(0);
    float* const wide = wide_at < 0 ? nullptr : reinterpret_cast<float*>(base + wide_at);
    if (wide) rows = wide;
    if (bytes)
      p.bytes = {reinterpret_cast<int8_t*>(base + level_at),
                 reinterpret_cast<float*>(base + scale_at),
                 reinterpret_cast<float*>(base + sum_at),
                 reinterpret_cast<int32_t*>(base + shift_at),
                 padded_depth(k),
                 scale_group(w),
                 level_lift(w),
                 arranged_at < 0 ? nullptr : reinterpret_cast<int8_t*>(base + arranged_at)};
    else
      p.x = rows;
    if (wide || bytes)
      parallel_for(m, grain_for(8 * k), [&](int64_t i, int64_t end) {
        for (; i < end; ++i) {
          if (wide) widen(x, c.in<char>(0) + i * k * element_bytes(x), wide + i * k, k);
          if (bytes) to_bytes(rows + i * k, k, i, p.bytes);
          if (arranged_at >= 0) arrange_row(w, i, p.bytes);
        }
      });
    return p;
  }
  int64_t panels(const BlockProduct& p) const {
    const int64_t wide = block_columns(p);
    return (n + wide - 1) / wide;
  }
  int64_t grain(const BlockProduct& p) const {
    return grain_for(block_columns(p) * k * (2 + p.m) / 2);
  }
  void run_panels(const sdk::Call& c, const BlockProduct& p, int slot, int64_t panel, int64_t end,
                  BlockSink sink) const {
    char* const own = static_cast<char*>(c.scratch) + areas_at + slot * area;
    const int64_t wide = block_columns(p);
    for (int64_t j = panel * wide; panel < end; ++panel, j += wide)
      block_panel(p, j, std::min(wide, n - j), own, sink);
  }
  void run(const sdk::Call& c, const BlockProduct& p, BlockSink sink) const {
    parallel_for_slots(panels(p), grain(p), slots, [&](int slot, int64_t panel, int64_t end) {
      run_panels(c, p, slot, panel, end, sink);
    });
  }
};

Plan plan_of(const sdk::Value& x, const sdk::Value& w, int64_t m, const std::string& compute) {
  want_blocks(w);
  const sdk::Type &xt = x.type(), &wt = w.type();
  // f64 is decomposed.
  if (!is_float(xt.dtype) || xt.dtype == TENON_DTYPE_F64) throw sdk::Refusal::dtype("x", xt.dtype);
  for (const char* const known : {"f32", "tf32", "f16", "bf16", "int8"})
    if (compute == known)
      return {.w = wt.dtype,
              .x = xt.dtype,
              .m = m,
              .n = wt.dims[wt.rank - 2],
              .k = wt.dims[wt.rank - 1],
              .bytes = compute == "int8" && has_integer_levels(wt.dtype),
              .slots = widest_arena()};
  throw sdk::Refusal::attribute("compute", compute);
}

sdk::Kernel make_dequant_matmul(const sdk::op::dequant_matmul& n, const sdk::Node&) {
  if (n.gamma) throw sdk::Refusal::shape("a norm within a product is a node of its own here");
  if (n.gate != "none") throw sdk::Refusal::attribute("gate", n.gate);
  const sdk::Type& x = n.x.type();
  int64_t m = 1;
  for (int i = 0; i + 1 < x.rank; ++i) m *= x.dims[i];
  Plan plan = plan_of(n.x, n.w, m, n.compute);
  Scratch scratch;
  plan.take(scratch, m <= kFewByteRows);
  const int bias = n.bias ? n.bias.position() : -1;
  const tenon_dtype bias_dtype = n.bias ? n.bias.type().dtype : TENON_DTYPE_NONE;
  sdk::Kernel kernel;
  kernel.scratch = scratch.size();
  kernel.cost = plan.cost();
  kernel.run = [=](const sdk::Call& c) {
    BlockProduct p = plan.prepare(c);
    p.w = c.in<unsigned char>(1);
    plan.run(c, p, [&](int64_t i, int64_t rows, int64_t j, int64_t cols, float* sums) {
      for (int64_t r = 0; r < rows; ++r) {
        float* const row = sums + r * kBlockPanel;
        if (bias >= 0)
          epilogue_scale(TENON_DTYPE_F32, row, 1, c.in<char>(bias) + j * element_bytes(bias_dtype),
                         bias_dtype, cols);
        epilogue_store(TENON_DTYPE_F32, row,
                       row_at(c.outputs[0], plan.x, plan.n, i + r) + j * element_bytes(plan.x),
                       plan.x, cols);
      }
    });
  };
  return kernel;
}

// Up to so many rows, the panels of all experts are spread over the threads at once: each is little
// work then. With more, experts may have very different numbers of rows, so they take turns.
constexpr int64_t kFewGroupedRows = 16;

struct Experts {
  Plan plan;
  RowGroups g;
  int64_t ends_at = 0;  // [experts]: the panels of an expert and of all before it, with few rows

  BlockProduct product(const sdk::Call& c, BlockProduct p, const RowGroups::Sorted& sorted,
                       int64_t e) const {
    p.order = sorted.order + sorted.starts[e];
    p.m = sorted.starts[e + 1] - sorted.starts[e];
    p.w = c.in<unsigned char>(1) +
          e * static_cast<int64_t>(tenon_dense_bytes(plan.w, plan.n * plan.k));
    return p;
  }
  void store(const sdk::Call& c, const BlockProduct& p, int64_t i, int64_t rows, int64_t j,
             int64_t cols, float* sums) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = p.order[i + r];
      float* const row = sums + r * kBlockPanel;
      if (g.p >= 0)
        epilogue_scale(TENON_DTYPE_F32, row, g.scale(c, at), nullptr, TENON_DTYPE_NONE, cols);
      epilogue_store(TENON_DTYPE_F32, row,
                     row_at(c.outputs[0], plan.x, plan.n, at) + j * element_bytes(plan.x), plan.x,
                     cols);
    }
  }
  void run_few(const sdk::Call& c, const BlockProduct& all, const RowGroups::Sorted& sorted) const {
    auto* const ends = reinterpret_cast<int64_t*>(static_cast<char*>(c.scratch) + ends_at);
    int64_t total = 0, grain = 1;
    for (int64_t e = 0; e < g.experts; ++e) {
      const BlockProduct p = product(c, all, sorted, e);
      if (p.m > 0) total += plan.panels(p), grain = std::max(grain, plan.grain(p));
      ends[e] = total;
    }
    parallel_for_slots(total, grain, plan.slots, [&](int slot, int64_t panel, int64_t end) {
      for (int64_t e = std::upper_bound(ends, ends + g.experts, panel) - ends; panel < end; ++e) {
        const BlockProduct p = product(c, all, sorted, e);
        const int64_t first = e == 0 ? 0 : ends[e - 1], stop = std::min(end, ends[e]);
        plan.run_panels(c, p, slot, panel - first, stop - first,
                        [&](int64_t i, int64_t rows, int64_t j, int64_t cols, float* sums) {
                          store(c, p, i, rows, j, cols, sums);
                        });
        panel = stop;
      }
    });
  }
  void run(const sdk::Call& c) const {
    const RowGroups::Sorted sorted = g.sort(c);
    const BlockProduct all = plan.prepare(c);
    if (g.rows <= kFewGroupedRows) {
      run_few(c, all, sorted);
    } else {
      for (int64_t e = 0; e < g.experts; ++e) {
        const BlockProduct p = product(c, all, sorted, e);
        if (p.m == 0) continue;
        plan.run(c, p, [&](int64_t i, int64_t rows, int64_t j, int64_t cols, float* sums) {
          store(c, p, i, rows, j, cols, sums);
        });
      }
    }
    for (int64_t i = sorted.starts[g.experts]; i < g.rows; ++i)
      std::fill_n(row_at(c.outputs[0], plan.x, plan.n, sorted.order[i]),
                  plan.n * element_bytes(plan.x), char{0});
  }
};

sdk::Kernel make_grouped_dequant_matmul(const sdk::op::grouped_dequant_matmul& n,
                                        const sdk::Node&) {
  Scratch scratch;
  Experts all{.plan = plan_of(n.x, n.w, n.x.type().dims[0], n.compute),
              .g = row_groups(n.x, n.w, n.ids, n.offsets, n.p, true, scratch)};
  all.plan.take(scratch, true);
  all.ends_at = scratch.take(static_cast<uint64_t>(all.g.experts) * sizeof(int64_t));
  sdk::Kernel kernel;
  kernel.scratch = scratch.size();
  kernel.cost = all.plan.cost();
  kernel.run = [all](const sdk::Call& c) { all.run(c); };
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::dequantize_blocks, make_dequantize_blocks>(),
    sdk::row<sdk::op::dequant_matmul, make_dequant_matmul>(),
    sdk::row<sdk::op::grouped_dequant_matmul, make_grouped_dequant_matmul>(),
    sdk::row<sdk::op::dequant_rows, make_dequant_rows>(),
};

}  // namespace

std::span<const sdk::Row> dequant_rows() { return kRows; }

}  // namespace tenon::cpu
