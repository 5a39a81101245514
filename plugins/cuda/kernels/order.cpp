// SPDX-License-Identifier: Apache-2.0
// argmax and argmin, and the rows of the family.
#include "order.hpp"

#include "../kernels.hpp"

namespace tenon::cuda {
namespace {

using sdk::Kernel;
using sdk::Node;

Kernel make_arg(const sdk::Type& x, int64_t axis, bool last, bool greatest, const Node& node) {
  if (!is_float(x.dtype) && !is_integer(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  const AxisView lines = lines_along(x, axis);
  CudaDevice& device = device_of(node);
  const Walk walk =
      walk_of(lines, element_bytes(x.dtype), 0, 0, device.properties().multiprocessors);
  // Blocks of a cluster share a long line, where lines are few.
  constexpr int kClusterMajor = 9;
  constexpr int64_t kMostBlocks = 8, kWholeBlock = 1024;  // lanes
  constexpr int64_t kLongest = 1 << 14;                   // part of a block
  int64_t cluster = 1;
  if (device.properties().major >= kClusterMajor && walk.lanes == kWholeBlock)
    while (cluster < kMostBlocks && lines.length / cluster > kLongest &&
           cluster * lines.count() <= device.properties().multiprocessors)
      cluster *= 2;
  const auto code =
      device.code(entries::argmax,
                  {"TYPE=" + type_name("x", x.dtype), define("LANES", walk.lanes),
                   define("GREATEST", greatest), define("LAST", last), define("CLUSTER", cluster)});
  return kernel_of(
      {code},
      [code, grid = line_grid(lines.count() * cluster, walk.lanes),
       shape = args::ArgShape{lines.count(), lines.inner, static_cast<uint32_t>(lines.length)}](
          const sdk::Call& c) { code.launch(c, grid, c.inputs[0], c.outputs[0], shape); });
}

Kernel make_argmax(const sdk::op::argmax& n, const Node& node) {
  return make_arg(n.x.type(), n.axis, n.select_last, true, node);
}
Kernel make_argmin(const sdk::op::argmin& n, const Node& node) {
  return make_arg(n.x.type(), n.axis, n.select_last, false, node);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::argmax, make_argmax>(),
    sdk::row<sdk::op::argmin, make_argmin>(),
    sdk::row<sdk::op::topk, make_topk>(),
    sdk::row<sdk::op::sort, make_sort>(),
};

}  // namespace

std::span<const sdk::Row> order_rows() { return kRows; }

}  // namespace tenon::cuda
