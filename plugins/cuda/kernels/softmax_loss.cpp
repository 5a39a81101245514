// SPDX-License-Identifier: Apache-2.0
// cross_entropy and its backward op: an item's loss is made by one group of lanes, or by a block
// that keeps the item's line; sums over items are one block's, in a fixed order.
#include <optional>
#include <string>

#include "../device.hpp"
#include "entries.hpp"
#include "lines.hpp"
#include "softmax.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

// What forward and backward share: the checks and how lines are walked.
struct Loss {
  AxisView lines;
  args::LossShape shape{};
  Walk walk;
  std::optional<LongWalk> long_walk;
  tenon_dtype acc;
  std::vector<std::string> defines, long_defines;
  bool each, mean, smooth;
  int logits, labels, weight = -1;

  template <class Op>
  Loss(const Op& n, const char* entry, int slots, const Node& node)
      : lines(lines_along(n.logits.type(), n.axis)) {
    const tenon_dtype dtype = n.logits.type().dtype, label = n.labels.type().dtype;
    if (!is_float(dtype)) throw Refusal::dtype("logits", dtype);
    acc = acc_dtype(dtype);
    if (n.reduction != "none" && n.reduction != "sum" && n.reduction != "mean")
      throw Refusal::attribute("reduction", n.reduction);
    tenon_dtype weight_dtype = dtype;
    if (n.weight) {
      weight = n.weight.position();
      weight_dtype = n.weight.type().dtype;
    }
    smooth = n.label_smoothing > 0;
    each = n.reduction == "none", mean = n.reduction == "mean";
    logits = n.logits.position(), labels = n.labels.position();
    const Properties& properties = device_of(node).properties();
    walk = walk_of(lines, element_bytes(dtype), slots, properties.shared_room("loss.cu", entry),
                   properties.multiprocessors);
    shape = {lines.count(),
             lines.inner,
             n.ignore_index,
             n.label_smoothing,
             static_cast<uint32_t>(lines.length),
             walk.slice};
    long_defines =
        defines = {"TYPE=" + type_name("logits", dtype), "LABEL=" + type_name("labels", label),
                   "WEIGHT=" + type_name("weight", weight_dtype)};
    defines.insert(defines.end(), {define("LANES", walk.lanes), define("SMOOTH", smooth),
                                   define("KEEP", walk.keep)});
    if (!smooth && on_vectors(n.logits))
      long_walk =
          long_walk_of(lines, dtype, properties, properties.shared_room("loss_long.cu", entry));
    if (long_walk) long_defines.push_back(define("THREADS", long_walk->threads));
  }

  const void* weights(const Call& c) const { return c.in(weight); }
};

constexpr uint64_t kTotalsBytes = 2 * sizeof(double);
// Never early, nor is the forward kernel: the kernels behind them read ahead.
constexpr Grid kOneBlock = {.blocks = 1, .threads = 1024};

}  // namespace

Kernel make_cross_entropy(const sdk::op::cross_entropy& n, const Node& node) {
  const Loss loss(n, "forward", 0, node);
  CudaDevice& device = device_of(node);
  const auto totals = device.code(entries::loss_totals, loss.defines);
  const auto sum_up = device.code(entries::loss_sum_up, loss.defines);
  CodeFor<entries::loss_forward> forward;
  CodeFor<entries::loss_long_forward> long_forward;
  std::vector<Code> codes;
  if (loss.long_walk)
    codes.push_back(long_forward = device.code(entries::loss_long_forward, loss.long_defines,
                                               loss.long_walk->shared));
  else
    codes.push_back(forward = device.code(entries::loss_forward, loss.defines));
  uint64_t scratch = 0;
  const uint64_t totals_at = take_scratch(scratch, kTotalsBytes);
  const uint64_t losses_at = take_scratch(
      scratch, loss.each ? 0 : static_cast<uint64_t>(loss.lines.count() * element_bytes(loss.acc)));
  const int64_t items = loss.lines.count();
  const Grid grid =
      loss.long_walk ? loss.long_walk->grid(items) : line_grid(items, loss.walk.lanes);
  Grid one = kOneBlock;
  one.early = device.properties().early_starts && items > 0;  // else no kernel is between
  if (loss.smooth) codes.push_back(totals);
  if (!loss.each) codes.push_back(sum_up);
  Kernel kernel = kernel_of(codes, [=, want_lse = n.want_lse](const Call& c) {
    const void* const labels = c.inputs[loss.labels];
    void* const losses = loss.each ? c.outputs[0] : scratch_at(c, losses_at);
    void* const lse = want_lse ? c.outputs[1] : nullptr;
    if (loss.long_walk) {
      long_forward.launch(c, grid, c.inputs[loss.logits], labels, loss.weights(c), losses, lse,
                          loss.shape, error_sink(c));
    } else {
      void* const sums = loss.smooth ? scratch_at(c, totals_at) : nullptr;
      if (sums) totals.launch(c, kOneBlock, labels, loss.weights(c), sums, loss.shape);
      forward.launch(c, grid, c.inputs[loss.logits], labels, loss.weights(c), sums, losses, lse,
                     loss.shape, error_sink(c));
    }
    if (!loss.each)
      sum_up.launch(c, one, losses, labels, loss.weights(c), c.outputs[0], loss.shape,
                    static_cast<uint32_t>(loss.mean));
  });
  kernel.scratch = scratch;
  kernel.can_fail = true;
  return kernel;
}

Kernel make_cross_entropy_backward(const sdk::op::cross_entropy_backward& n, const Node& node) {
  Loss loss(n, "backward", n.lse ? 0 : 1, node);
  if (!on_vectors(node.out(0))) loss.long_walk.reset();
  CudaDevice& device = device_of(node);
  const auto totals = device.code(entries::loss_totals, loss.defines);
  CodeFor<entries::loss_backward> backward;
  CodeFor<entries::loss_long_backward> long_backward;
  std::vector<Code> codes;
  if (loss.long_walk)
    codes.push_back(long_backward = device.code(entries::loss_long_backward, loss.long_defines,
                                                loss.long_walk->shared));
  else
    codes.push_back(backward = device.code(entries::loss_backward, loss.defines, loss.walk.shared));
  const int64_t items = loss.lines.count();
  Grid grid = loss.long_walk ? loss.long_walk->grid(items)
                             : line_grid(items, loss.walk.lanes, loss.walk.shared);
  grid.early = loss.long_walk && loss.mean && device.properties().early_starts;
  if (loss.mean || loss.smooth) codes.push_back(totals);
  Kernel kernel =
      kernel_of(codes, [=, dy = n.dy.position(), lse_at = n.lse.position()](const Call& c) {
        const void* const labels = c.inputs[loss.labels];
        const void* const lse = c.in(lse_at);
        void* const sums = loss.mean || loss.smooth ? c.scratch : nullptr;
        if (sums) totals.launch(c, kOneBlock, labels, loss.weights(c), sums, loss.shape);
        const void *const logits = c.inputs[loss.logits], *const weights = loss.weights(c);
        const auto each = static_cast<uint32_t>(loss.each), mean = static_cast<uint32_t>(loss.mean);
        if (loss.long_walk)
          long_backward.launch(c, grid, c.inputs[dy], logits, labels, weights, lse, sums,
                               c.outputs[0], loss.shape, each, error_sink(c));
        else
          backward.launch(c, grid, c.inputs[dy], logits, labels, weights, lse, sums, c.outputs[0],
                          loss.shape, each, mean, error_sink(c));
      });
  kernel.scratch = kTotalsBytes;
  kernel.in_place = {{n.logits.position(), 0}};
  kernel.can_fail = true;
  return kernel;
}

}  // namespace tenon::cuda
