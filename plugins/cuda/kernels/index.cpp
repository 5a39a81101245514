// SPDX-License-Identifier: Apache-2.0
// gather and gather_elements, and the rows of the families index, index_elements and scatter_reduce.
// The scatters are in index_scatter.cpp, the dynamic slices in index_slice.cpp.
#include "index.hpp"

#include "../kernels.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

constexpr uint32_t kThreads = 256;
constexpr int64_t kEach = 4;  // units of a thread

Divisor divisor(int64_t n) {
  return n > 0 && n < kNarrowIndex ? Divisor(static_cast<uint32_t>(n)) : Divisor();
}

Kernel make_gather(const sdk::op::gather& n, const Node& node) {
  const sdk::Type& data = n.data.type();
  const AxisView view = along_axis(data, n.axis);
  const Units row = units_of("data", data.dtype, view.inner);
  int64_t unit = element_bytes(row.dtype);
  const int64_t bytes = row.count * unit;
  while (unit < 16 && bytes % (2 * unit) == 0 && n.data.alignment() > 0 &&
         n.data.alignment() % static_cast<uint64_t>(2 * unit) == 0)
    unit *= 2;
  args::GatherShape g{.axis = index_axis(view.length, n.indices.type()), .row = bytes / unit};
  g.total = view.outer * g.axis.count * g.row;
  g.rows = divisor(g.row), g.counts = divisor(g.axis.count);
  const std::vector<std::string> defines = {oob_define(n.oob), define("SIZE", unit),
                                            define("NARROW", g.total < kNarrowIndex),
                                            define("RANK", 1)};
  // Warps take rows that are long enough for them.
  constexpr int64_t kLongRow = 128, kWarps = kThreads / 32;
  const int64_t rows = view.outer * g.axis.count;
  const bool by_row = g.row >= kLongRow && rows < kNarrowIndex;
  CodeFor<entries::gather> by_units;
  CodeFor<entries::gather_rows> by_rows;
  Code code;
  if (by_row)
    code = by_rows = device_of(node).code(entries::gather_rows, defines);
  else
    code = by_units = device_of(node).code(entries::gather, defines);
  const int from = n.data.position(), indices = n.indices.position();
  Kernel kernel = kernel_of({code}, [=](const Call& c) {
    args::GatherShape now = g;
    now.axis = axis_at(g.axis, c, indices);
    if (by_row)
      by_rows.launch(c, {.blocks = blocks_for(rows, kWarps), .threads = kThreads}, c.inputs[from],
                     c.outputs[0], now, static_cast<uint32_t>(rows));
    else
      by_units.launch(c, {.blocks = blocks_for(g.total, kThreads * kEach), .threads = kThreads},
                      c.inputs[from], c.outputs[0], now);
  });
  kernel.can_fail = true;
  return kernel;
}

Kernel make_gather_elements(const sdk::op::gather_elements& n, const Node& node) {
  const sdk::Type &data = n.data.type(), &at = n.indices.type();
  const AxisView view = along_axis(data, n.axis);
  want_bytes("data", data.dtype);
  args::GatherElements e{.axis = index_axis(view.length, at), .step = view.inner};
  sdk::Type whole = data;
  whole.set_dense_strides();
  for (int k = 0; k < at.rank; ++k) {
    e.dims[k] = at.dims[k];
    e.strides[k] = k == view.axis ? 0 : whole.strides[k];
  }
  const auto code = device_of(node).code(
      entries::gather_elements,
      {oob_define(n.oob), define("SIZE", element_bytes(data.dtype)),
       define("NARROW", e.axis.count < kNarrowIndex), define("RANK", at.rank)});
  const int from = n.data.position(), indices = n.indices.position();
  Kernel kernel = kernel_of({code}, [=](const Call& c) {
    args::GatherElements now = e;
    now.axis = axis_at(e.axis, c, indices);
    code.launch(c, {.blocks = blocks_for(e.axis.count, kThreads), .threads = kThreads},
                c.inputs[from], c.outputs[0], now);
  });
  kernel.can_fail = true;
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::gather, make_gather>(sdk::kBlocks),
    sdk::row<sdk::op::gather_backward, make_gather_backward>(),
    sdk::row<sdk::op::scatter, make_scatter>(sdk::kBlocks),
    sdk::row<sdk::op::scatter_add, make_scatter_add>(),
    sdk::row<sdk::op::dynamic_slice, make_dynamic_slice>(sdk::kStrided),
    sdk::row<sdk::op::dynamic_update_slice, make_dynamic_update_slice>(sdk::kStrided),
    sdk::row<sdk::op::gather_elements, make_gather_elements>(),
    sdk::row<sdk::op::scatter_elements_add, make_scatter_elements_add>(),
    sdk::row<sdk::op::scatter_reduce, make_scatter_reduce>(),
    sdk::row<sdk::op::scatter_elements_reduce, make_scatter_elements_reduce>(),
};

}  // namespace

std::span<const sdk::Row> index_rows() { return kRows; }

}  // namespace tenon::cuda
