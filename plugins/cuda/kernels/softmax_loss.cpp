// SPDX-License-Identifier: Apache-2.0
// cross_entropy and its backward op: an item's loss is made by one group of lanes; sums over items
// are one block's, in a fixed order.
#include <string>

#include "../device.hpp"
#include "lines.hpp"
#include "softmax.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

// device/loss.cu mirrors it.
struct Shape {
  int64_t lines, inner, ignore;
  double smoothing;
  uint32_t n, slice;
};

// What forward and backward share: the checks and how lines are walked.
struct Loss {
  AxisView lines;
  Shape shape{};
  Walk walk;
  tenon_dtype acc;
  std::vector<std::string> defines;
  bool each, mean, needs_totals;
  int logits, labels, weight = -1;

  template <class Op>
  Loss(const Op& n, int slots, const Node& node) : lines(lines_along(n.logits.type(), n.axis)) {
    const tenon_dtype dtype = n.logits.type().dtype, label = n.labels.type().dtype;
    if (!is_float(dtype)) throw Refusal::dtype("logits", dtype);
    if (label != TENON_DTYPE_I32 && label != TENON_DTYPE_I64) throw Refusal::dtype("labels", label);
    acc = acc_dtype(dtype);
    if (n.labels.type().elements() != lines.count())
      throw Refusal::shape("labels must have the shape of logits without the class axis");
    if (lines.length == 0 && lines.count() != 0)
      throw Refusal::shape("logits must have at least one class");
    if (!(n.label_smoothing >= 0 && n.label_smoothing < 1))
      throw Refusal::attribute("label_smoothing", std::to_string(n.label_smoothing));
    if (n.reduction != "none" && n.reduction != "sum" && n.reduction != "mean")
      throw Refusal::attribute("reduction", n.reduction);
    tenon_dtype weight_dtype = dtype;
    if (n.weight) {
      weight = n.weight.position();
      weight_dtype = n.weight.type().dtype;
      if (weight_dtype != dtype && weight_dtype != acc)
        throw Refusal::dtype("weight", weight_dtype);
      if (n.weight.type().elements() != lines.length)
        throw Refusal::shape("weight has " + std::to_string(n.weight.type().elements()) +
                             " elements, logits have " + std::to_string(lines.length) + " classes");
    }
    const bool smooth = n.label_smoothing > 0;
    each = n.reduction == "none", mean = n.reduction == "mean";
    needs_totals = mean || smooth;
    logits = n.logits.position(), labels = n.labels.position();
    const Properties& properties = device_of(node).properties();
    walk = walk_of(lines, type_bytes(dtype), slots, properties.shared_per_block,
                   properties.multiprocessors);
    shape = {lines.count(),
             lines.inner,
             n.ignore_index,
             n.label_smoothing,
             static_cast<uint32_t>(lines.length),
             walk.slice};
    defines = {"TYPE=" + type_name("logits", dtype),
               "LABEL=" + type_name("labels", label),
               "WEIGHT=" + type_name("weight", weight_dtype),
               define("LANES", walk.lanes),
               define("SMOOTH", smooth),
               define("KEEP", walk.keep)};
  }

  const void* weights(const Call& c) const { return weight < 0 ? nullptr : c.inputs[weight]; }
  // Starts the totals' kernel where they are needed; gives where they lie.
  void* totals(const Code& code, const Call& c, uint64_t offset) const {
    void* at = needs_totals ? scratch_at(c, offset) : nullptr;
    if (at) code.launch(c, {.blocks = 1, .threads = 1024}, c.inputs[labels], weights(c), at, shape);
    return at;
  }
};

constexpr uint64_t kTotalsBytes = 2 * sizeof(double);

void check_like_items(std::string_view name, const Loss& loss, const Value& v, int64_t elements) {
  if (v.type().dtype != loss.acc) throw Refusal::dtype(name, v.type().dtype);
  if (v.type().elements() != elements)
    throw Refusal::shape(std::string(name) + " has " + std::to_string(v.type().elements()) +
                         " elements instead of " + std::to_string(elements));
}

}  // namespace

Kernel make_cross_entropy(const sdk::op::cross_entropy& n, const Node& node) {
  const Loss loss(n, 0, node);
  CudaDevice& device = device_of(node);
  const Code totals = device.code("loss.cu", "totals", loss.defines),
             forward = device.code("loss.cu", "forward", loss.defines),
             sum_up = device.code("loss.cu", "sum_up", loss.defines);
  uint64_t scratch = 0;
  const uint64_t totals_at = take_scratch(scratch, kTotalsBytes);
  const uint64_t losses_at = take_scratch(
      scratch, loss.each ? 0 : static_cast<uint64_t>(loss.lines.count() * type_bytes(loss.acc)));
  const Grid grid = line_grid(loss.lines.count(), loss.walk.lanes);
  Kernel kernel = kernel_of({totals, forward, sum_up}, [=, want_lse = n.want_lse](const Call& c) {
    void* const sums = loss.totals(totals, c, totals_at);
    void* const losses = loss.each ? c.outputs[0] : scratch_at(c, losses_at);
    void* const lse = want_lse ? c.outputs[1] : nullptr;
    forward.launch(c, grid, c.inputs[loss.logits], c.inputs[loss.labels], loss.weights(c),
                   static_cast<const void*>(sums), losses, lse, loss.shape, error_sink(c));
    if (!loss.each)
      sum_up.launch(c, {.blocks = 1, .threads = 1024}, losses, loss.mean ? sums : nullptr,
                    c.outputs[0], loss.shape.lines);
  });
  kernel.scratch = scratch;
  kernel.can_fail = true;
  return kernel;
}

Kernel make_cross_entropy_backward(const sdk::op::cross_entropy_backward& n, const Node& node) {
  const Loss loss(n, n.lse ? 0 : 1, node);
  check_like_items("dy", loss, n.dy, loss.each ? loss.lines.count() : 1);
  if (n.lse) check_like_items("lse", loss, n.lse, loss.lines.count());
  CudaDevice& device = device_of(node);
  const Code totals = device.code("loss.cu", "totals", loss.defines),
             backward = device.code("loss.cu", "backward", loss.defines, loss.walk.shared);
  const Grid grid = line_grid(loss.lines.count(), loss.walk.lanes, loss.walk.shared);
  Kernel kernel = kernel_of(
      {totals, backward},
      [=, dy = n.dy.position(), lse = n.lse ? n.lse.position() : -1](const Call& c) {
        void* const sums = loss.totals(totals, c, 0);
        backward.launch(
            c, grid, c.inputs[dy], c.inputs[loss.logits], c.inputs[loss.labels], loss.weights(c),
            lse < 0 ? static_cast<const void*>(nullptr) : c.inputs[lse],
            static_cast<const void*>(sums), c.outputs[0], loss.shape,
            static_cast<uint32_t>(loss.each), static_cast<uint32_t>(loss.mean), error_sink(c));
      });
  kernel.scratch = kTotalsBytes;
  kernel.in_place = {{n.logits.position(), 0}};
  kernel.can_fail = true;
  return kernel;
}

}  // namespace tenon::cuda
