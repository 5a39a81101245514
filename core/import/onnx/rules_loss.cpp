// SPDX-License-Identifier: Apache-2.0
// Rules for losses of classifiers.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

// logs [N, C, ..]: logarithms of probabilities; labels [N, ..]
Value nll(Call& c, Value logs, Value labels, Value weights) {
  const std::string reduction = c.s("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    c.wrong("attribute reduction: expected none, sum or mean, got '", reduction, "'");
  op::nll_loss loss{.axis = 1, .reduction = reduction, .x = logs, .labels = c.b.cast(labels, kI64)};
  if (c.has_attr("ignore_index")) loss.ignore_index = c.i("ignore_index", 0);
  if (weights) loss.weight = c.b.cast(weights, c.b.dtype(logs));
  return c.b.cast(c.b.add(loss), c.b.dtype(logs));
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
