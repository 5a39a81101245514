// SPDX-License-Identifier: Apache-2.0
// softmax and its backward op. The losses are in softmax_loss.cpp.
#include "softmax.hpp"

#include <optional>
#include <utility>

#include "../device.hpp"
#include "../kernels.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

template <class Code>
struct Plan {
  Code code;
  Grid grid;
  args::SoftmaxShape shape;
};

template <class... Parameters>
Plan<TypedCode<Parameters...>> plan_of(const Entry<Parameters...>& entry, const sdk::Type& t,
                                       int64_t axis, bool log, int slots, const Node& node) {
  CudaDevice& device = device_of(node);
  const AxisView lines = lines_along(t, axis);
  const Walk walk = walk_of(lines, element_bytes(t.dtype), slots,
                            device.properties().shared_room(entry.file, entry.name),
                            device.properties().multiprocessors);
  return {device.code(entry,
                      {"TYPE=" + type_name("x", t.dtype), define("SIZE", element_bytes(t.dtype)),
                       define("LANES", walk.lanes), define("LOG", log), define("KEEP", walk.keep)},
                      walk.shared),
          line_grid(lines.length == 0 ? 0 : lines.count(), walk.lanes, walk.shared),
          {lines.count(), lines.inner, static_cast<uint32_t>(lines.length), walk.slice}};
}

std::optional<Kernel> make_long_softmax(const sdk::op::softmax& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  const AxisView lines = lines_along(x, n.axis);
  CudaDevice& device = device_of(node);
  const Properties& properties = device.properties();
  const std::optional<LongWalk> walk = long_walk_of(
      lines, x.dtype, properties, properties.shared_room("softmax_long.cu", "softmax"));
  if (!walk || !on_vectors(n.x) || !on_vectors(node.out(0))) return std::nullopt;
  const auto code = device.code(
      entries::softmax_long,
      {"TYPE=" + type_name("x", x.dtype), define("THREADS", walk->threads), define("LOG", n.log)},
      walk->shared);
  const args::LongSoftmaxShape shape = {lines.count(), static_cast<uint32_t>(lines.length)};
  return kernel_of({code}, [=, grid = walk->grid(lines.count())](const Call& c) {
    code.launch(c, grid, c.inputs[0], c.outputs[0], shape);
  });
}

Kernel make_softmax(const sdk::op::softmax& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  if (!is_float(x.dtype)) throw Refusal::dtype("x", x.dtype);
  Kernel kernel;
  if (std::optional<Kernel> made = make_long_softmax(n, node)) {
    kernel = std::move(*made);
  } else {
    const auto p = plan_of(entries::softmax, x, n.axis, n.log, 1, node);
    kernel = kernel_of({p.code}, [p](const Call& c) {
      p.code.launch(c, p.grid, c.inputs[0], c.outputs[0], p.shape);
    });
  }
  kernel.in_place = {{0, 0}};
  return kernel;
}

Kernel make_softmax_backward(const sdk::op::softmax_backward& n, const Node& node) {
  const sdk::Type& y = n.y.type();
  if (!is_float(y.dtype)) throw Refusal::dtype("y", y.dtype);
  const auto p = plan_of(entries::softmax_backward, y, n.axis, n.log, 2, node);
  Kernel kernel = kernel_of({p.code}, [p](const Call& c) {
    p.code.launch(c, p.grid, c.inputs[0], c.inputs[1], c.outputs[0], p.shape);
  });
  kernel.in_place = {{0, 0}, {1, 0}};
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::softmax, make_softmax>(),
    sdk::row<sdk::op::softmax_backward, make_softmax_backward>(),
    sdk::row<sdk::op::cross_entropy, make_cross_entropy>(),
    sdk::row<sdk::op::cross_entropy_backward, make_cross_entropy_backward>(),
};

}  // namespace

std::span<const sdk::Row> softmax_rows() { return kRows; }

}  // namespace tenon::cuda
