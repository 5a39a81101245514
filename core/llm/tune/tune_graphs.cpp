// SPDX-License-Identifier: Apache-2.0
// Loss and step of a fine-tuning as graphs.
#include "llm/tune/tune_graphs.hpp"

#include <algorithm>

namespace tenon::llm {
namespace {

// Logits are large, one for each token of the vocabulary: with checkpoints, those of so many rows
// exist at a time.
constexpr int64_t kRows = 256;

Value sum_of_losses(Step& p, Value rows, Value labels) {
  return p.g.add(
      op::cross_entropy{
          .ignore_index = kIgnored, .reduction = "sum", .logits = p.logits(rows), .labels = labels},
      "loss");
}

}  // namespace

Graph tune_graph(const ModelConfig& config, const StepShape& shape, Weights& weights, bool trains) {
  Graph g("llm.tune." + std::to_string(shape.batch) + "x" + std::to_string(shape.time));
  Step p(g, config, shape, weights);
  const Value labels = g.input("labels", {i64, {shape.batch, shape.time}});
  const int64_t rows = shape.batch * shape.time;
  const Value flat = p.reshape(labels, {rows});
  const Value hidden = p.wanted_rows(config.architecture->hidden(p));
  Value loss;
  if (!shape.checkpoint || rows <= kRows) {
    loss = sum_of_losses(p, hidden, flat);
  } else {
    for (int64_t at = 0; at < rows; at += kRows) {
      const int64_t count = std::min(kRows, rows - at);
      const Value x = g.add(op::narrow{.start = {at, 0}, .len = {count, config.dim}, .x = hidden});
      const Value y = g.add(op::narrow{.start = {at}, .len = {count}, .x = flat});
      const Value part = sum_of_losses(p, x, y);
      g.checkpoint({x, y}, {part});
      loss = loss ? p.binary("add", loss, part) : part;
    }
  }
  g.output("loss", loss);
  if (trains) g.accumulate(p.binary("mul", loss, g.input("scale", {f32, {}})));
  return g;
}

Graph tune_apply_graph(const TunedAdapter& adapter, Optimizer optimizer) {
  Graph g("llm.tune.apply");
  adapter.add_weights(g);
  optimizer.learning_rate = g.input("lr", {f32, {}});
  g.output("norm", g.apply(optimizer));
  return g;
}

}  // namespace tenon::llm
