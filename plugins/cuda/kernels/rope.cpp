// SPDX-License-Identifier: Apache-2.0
// rope: rotary positions in the layouts bshd, bhsd and bsh, tables by position or by token.
#include <algorithm>
#include <string>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr uint32_t kThreads = 256;

template <class A>
sdk::Kernel make(const sdk::op::rope& n, const sdk::Node& node,
                 const Entry<const void*, const void*, const void*, const void*, void*,
                             args::RopeOf<A>>& entry) {
  const sdk::Type &x = n.x.type(), &table = n.cos.type();
  const bool flat = n.layout == "bsh", heads_first = n.layout == "bhsd";
  args::RopeOf<A> r;
  r.heads_first = heads_first, r.offset = n.offset;
  r.steps = x.dims[heads_first ? 2 : 1];
  r.heads = flat ? n.num_heads : x.dims[heads_first ? 1 : 2];
  r.dim = flat ? x.dims[2] / n.num_heads : x.dims[3];
  if (r.dim >= kNarrowIndex) throw Refusal::shape("heads are too long for one kernel");
  r.half = (n.n_rot == 0 ? r.dim : n.n_rot) / 2;
  r.batch_rows = r.steps * r.heads;
  r.sign = n.inverse ? -1 : 1;
  const bool per_token = table.rank == 3;
  const int64_t tokens = x.dims[0] * r.steps, size = element_bytes(x.dtype);
  r.table_rows = per_token ? tokens : table.dims[0];
  int ids = per_token ? 1 : 0;
  if (n.position_ids) {
    const tenon_dtype t = n.position_ids.type().dtype;
    ids = t == TENON_DTYPE_I32 ? 2 : 3;
    r.table_rows = table.dims[0];
  }
  // Halves, the whole head and rows of the tables are vectors.
  int width = common_width(size, n.interleaved ? 2 * r.half : r.half, {n.x, node.out(0)});
  while (width > 1 && r.dim % width != 0) width /= 2;
  if (!n.interleaved)
    while (width > 1 && common_width(sizeof(A), r.half, {n.cos, n.sin}) <
                            std::min<int64_t>(width, 16 / static_cast<int64_t>(sizeof(A))))
      width /= 2;
  r.pair_groups =
      static_cast<int32_t>(n.interleaved ? r.half / std::max(width / 2, 1) : r.half / width);
  r.row_groups = static_cast<int32_t>(r.pair_groups + r.dim - 2 * r.half);
  r.groups = x.dims[0] * r.batch_rows * r.row_groups;
  const auto code =
      device_of(node).code(entry, {"T=" + type_name("x", x.dtype), "W=" + std::to_string(width),
                                   std::string("INTERLEAVED=") + (n.interleaved ? "1" : "0"),
                                   "IDS=" + std::to_string(ids)});
  const int at = n.x.position(), cos = n.cos.position(), sin = n.sin.position(),
            list = n.position_ids.position();
  const Grid grid = {.blocks = blocks_for(r.groups, kThreads),
                     .threads = kThreads,
                     .early = device_of(node).properties().early_starts};
  sdk::Kernel kernel = kernel_of({code}, [=](const sdk::Call& c) {
    args::RopeOf<A> now = r;
    now.sink = error_sink(c);
    const void* numbers = c.in(list);
    code.launch(c, grid, c.inputs[at], c.inputs[cos], c.inputs[sin], numbers, c.outputs[0], now);
  });
  kernel.in_place = {{at, 0}};
  kernel.can_fail = true;
  return kernel;
}

sdk::Kernel make_rope(const sdk::op::rope& n, const sdk::Node& node) {
  const sdk::Type& x = n.x.type();
  if (!is_float(x.dtype)) throw Refusal::dtype("x", x.dtype);
  const bool flat = n.layout == "bsh";
  if (!flat && n.layout != "bhsd" && n.layout != "bshd")
    throw Refusal::attribute("layout", n.layout);
  return x.dtype == TENON_DTYPE_F64 ? make<double>(n, node, entries::rope_f64)
                                    : make<float>(n, node, entries::rope_f32);
}

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::rope, make_rope>()};

}  // namespace

std::span<const sdk::Row> rope_rows() { return kRows; }

}  // namespace tenon::cuda
