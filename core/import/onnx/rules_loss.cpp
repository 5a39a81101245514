// SPDX-License-Identifier: Apache-2.0
// Rules for losses of classifiers.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

// logs [N, C, ..]: logarithms of probabilities; labels [N, ..]
Value nll(Call& c, Value logs, Value labels, Value weights) {
  Builder& b = c.b;
  const std::string reduction = c.s("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    c.wrong("attribute reduction: expected none, sum or mean, got '", reduction, "'");
  const DType t = b.dtype(logs);
  const Value wide = b.widen(logs);
  labels = b.cast(labels, kI64);
  Value counts{};  // which items count
  if (c.has_attr("ignore_index")) {
    counts = b.compare("ne", labels, b.scalar_int(kI64, c.i("ignore_index", 0)));
    labels = b.where(counts, labels, b.scalar_int(kI64, 0));
  }
  Value picked =
      b.add(op::gather_elements{.axis = 1, .data = wide, .indices = b.unsqueeze(labels, 1)});
  picked = b.neg(b.reshape(picked, b.shape(labels)));
  Value share =
      weights ? Value(b.add(op::gather{.data = b.cast(weights, b.dtype(wide)), .indices = labels}))
              : b.full({b.dtype(wide), b.shape(labels)}, 1);
  const Value zero = b.scalar(b.dtype(wide), 0);
  if (counts) {
    share = b.where(counts, share, zero);
    picked = b.where(counts, picked, zero);
  }
  Value loss = b.times(picked, share);
  const Ints all = iota_list(b.shape(loss).rank());
  if (reduction != "none") {
    loss = b.reduce("sum", loss, all, false);
    if (reduction == "mean") loss = b.over(loss, b.reduce("sum", share, all, false));
  }
  return b.cast(loss, t);
}

void negative_log_likelihood(Call& c) { c.out(nll(c, c.value(0), c.value(1), c.value_or_none(2))); }

void softmax_cross_entropy(Call& c) {
  const Value logs = c.b.add(op::softmax{.axis = 1, .log = true, .x = c.value(0)});
  c.out(0, nll(c, logs, c.value(1), c.value_or_none(2)));
  c.out(1, logs);
}

constexpr Rule kRules[] = {
    {"NegativeLogLikelihoodLoss", 12, negative_log_likelihood},
    {"SoftmaxCrossEntropyLoss", 12, softmax_cross_entropy},
};

}  // namespace

std::span<const Rule> loss_rules() { return kRules; }

}  // namespace tenon::core::onnx
