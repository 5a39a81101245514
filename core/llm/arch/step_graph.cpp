// SPDX-License-Identifier: Apache-2.0
// The graph of a step with its outputs, and the graph that copies rows of caches.
#include "llm/arch/step.hpp"

namespace tenon::llm {

Value Step::logits(Value rows) {
  const Value x = c.architecture->head(*this, c.architecture->norm(*this, rows));
  if (c.logit_softcap <= 0) return x;
  const Value capped = g.add(op::unary{.kind = "tanh", .x = scaled(x, 1 / c.logit_softcap)});
  return scaled(capped, c.logit_softcap);
}

namespace {

// See step_graph(). Tokens are exact in f32, as vocabularies are below 2^24.
Value candidates(Step& step, Value logits) {
  Graph& g = step.g;
  const int64_t batch = step.s.batch, count = step_candidates(step.c.vocab);
  const Value scale = step.reshape(g.input("scale", {f32, {batch}}), {batch, 1});
  const auto top = g.add(op::topk{.k = count, .x = logits}, "candidates");
  const Value largest = step.part(top[0], {batch}, 0, 1);
  const Value powers = step.binary("mul", step.binary("sub", logits, largest), scale);
  const Value weights = g.add(op::unary{.kind = "exp", .x = powers});
  const Value mass = g.add(op::reduce{.kind = "sum", .axes = {1}, .keepdims = true, .x = weights});
  return g.add(op::concat{.axis = 1, .xs = {top[0], step.cast(top[1], f32), mass}});
}

}  // namespace

Graph step_graph(const ModelConfig& config, const StepShape& shape, Weights& weights,
                 std::vector<CacheState>* caches) {
  Graph g("llm.step." + std::to_string(shape.batch) + "x" + std::to_string(shape.time));
  Step step(g, config, shape, weights);
  const Architecture& architecture = *config.architecture;
  const Value x = step.wanted_rows(architecture.hidden(step));
  if (caches) *caches = step.caches();
  if (config.headless && !shape.hidden)
    throw Error(TENON_UNSUPPORTED,
                "the model has no head, which gives logits; expected it to be used for embeddings");
  if (shape.hidden) {
    const Value normed = step.cast(architecture.norm(step, x), f32);
    g.output("hidden", step.reshape(normed, {shape.batch, shape.time, config.dim}));
    return g;
  }
  const Value logits = step.logits(x);
  if (shape.all_logits) {
    g.output("logits", step.reshape(logits, {shape.batch, shape.time, config.vocab}));
    return g;
  }
  g.output("logits", logits);
  g.output("token", g.add(op::argmax{.axis = -1, .x = logits}, "token"));
  if (shape.candidates) g.output("candidates", candidates(step, logits));
  return g;
}

Graph copy_graph(const std::vector<CacheState>& caches, int64_t count) {
  Graph g("llm.copy." + std::to_string(count));
  const Value from = g.input("from", {i64, {count}}), to = g.input("to", {i64, {count}});
  for (const CacheState& c : caches) {
    const Value state = g.state(c.name, c.type);
    const Value rows = g.add(op::gather{.data = state, .indices = from});
    g.update(state,
             g.add(op::scatter{.oob = "skip", .base = state, .indices = to, .updates = rows}));
  }
  return g;
}

}  // namespace tenon::llm
