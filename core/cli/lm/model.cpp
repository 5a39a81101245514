// SPDX-License-Identifier: Apache-2.0
// The graphs of training, evaluation, prefill and decode.
#include "cli/lm/model.hpp"

#include "cli/lm/builder.hpp"

namespace tenon::lm {
namespace {

// The state of generation, and its update in a step.
struct Generation {
  Graph& g;
  const Config& c;
  Value token, length, rng;

  Generation(Graph& graph, const Config& config) : g(graph), c(config) {
    token = g.state("token", {i64, {1, 1}});
    length = g.state("length", {i64, {1}});
    rng = g.state("rng", {i64, {2}});
  }

  // Appends k and v [1, time, heads, dim] at position `at`, i64 [1]. Returns the caches.
  std::pair<Value, Value> append(int64_t layer, Value k, Value v, Value at) {
    const std::string name = "cache." + std::to_string(layer);
    const TensorType type{c.dtype, {1, c.context, c.kv_heads, c.head_dim()}};
    const Value zero = g.constant<int64_t>({1}, {0});
    const Value start = g.add(op::concat{.xs = {zero, at, zero, zero}}, name + ".start");
    const auto push = [&](const std::string& which, Value update) {
      const Value old = g.state(name + which, type);
      const Value now = g.add(
          op::dynamic_update_slice{.base = old, .update = update, .start = start}, name + which);
      g.update(old, now);
      return now;
    };
    const Value keys = push(".k", k);
    return {keys, push(".v", v)};
  }

  // Samples the next token from logits [1, vocab], and advances the state. Random numbers advance by
  // `drawn`; the sample uses the last of them.
  void advance(Value logits, Value new_length, const SampleOptions& o, int64_t drawn = 1) {
    const auto drawn_after = [&](Value from, int64_t count) -> Value {
      const Value step = g.constant<int64_t>({2}, {0, count});
      return g.add(op::binary{.kind = "add", .a = from, .b = step}, "rng");
    };
    const Value last = drawn > 1 ? drawn_after(rng, drawn - 1) : rng;
    const Value ids = g.add(op::sample{.temperature = o.temperature,
                                       .top_k = o.top_k,
                                       .top_p = o.top_p,
                                       .logits = logits,
                                       .rng = last},
                            "sample");
    g.output("token", ids);
    g.update(token, g.add(op::reshape{.shape = {1, 1}, .x = ids}));
    g.update(length, new_length);
    g.update(rng, drawn_after(last, 1));
  }
};

Value train_loss(Graph& g, const Config& config, const TrainOptions& o) {
  Builder b(g, config, true);
  b.checkpoint = o.checkpoint;
  const Value loss = b.loss(g.input("tokens", {i32, {o.batch, config.context + 1}}), o.batch);
  g.output("loss", loss);
  return loss;
}

Optimizer adamw(Value lr, const TrainOptions& o) {
  return {.kind = TENON_OPTIMIZER_ADAMW,
          .learning_rate = lr,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .weight_decay = o.weight_decay,
          .clip_norm = o.clip_norm,
          .decay_min_rank = 2};
}
}  // namespace

Graph train_graph(const Config& config, const TrainOptions& o) {
  Graph g("lm.train");
  const Value loss = train_loss(g, config, o);
  g.output("norm", g.minimize(loss, adamw(g.input("lr", {f32, {}}), o)));
  return g;
}

Graph accumulate_graph(const Config& config, const TrainOptions& o) {
  Graph g("lm.accumulate");
  g.accumulate(train_loss(g, config, o));
  return g;
}

Graph apply_graph(const Config& config, const TrainOptions& o) {
  Graph g("lm.apply");
  const Builder weights(g, config, true);
  g.output("norm", g.apply(adamw(g.input("lr", {f32, {}}), o)));
  return g;
}

Graph eval_graph(const Config& config, int64_t batch) {
  Graph g("lm.eval");
  Builder b(g, config, false);
  g.output("loss", b.loss(g.input("tokens", {i32, {batch, config.context + 1}}), batch));
  return g;
}

Graph logits_graph(const Config& config, int64_t length) {
  Graph g("lm.logits");
  Builder b(g, config, false);
  const Value logits = b.decoder(g.input("tokens", {i64, {1, length}}), 1, length);
  g.output("logits", g.add(op::cast{.to = f32, .x = logits}));
  return g;
}

namespace {

// Adds `length` to the length of the sequence.
Value longer(Graph& g, const Generation& s, int64_t length) {
  return g.add(op::binary{.kind = "add", .a = s.length, .b = g.constant<int64_t>({1}, {length})},
               "length");
}

// A recurrent model continues the sequence of its state by `tokens` [1, count]. Random numbers
// advance by count, so the pieces of a prompt make no difference.
Graph continue_sequence(Graph g, const Config& config, int64_t count, const SampleOptions& o) {
  Builder b(g, config, false);
  Generation s(g, config);
  Value x = b.embed(count == 1 ? s.token : g.input("prompt", {i64, {1, count}}));
  for (int64_t i = 0; i < config.layers; ++i) x = b.recurrent_layer(i, x, 1, count, true);
  const Value last =
      g.add(op::narrow{.start = {0, count - 1, 0}, .len = {1, 1, config.dim}, .x = x}, "last_row");
  s.advance(b.reshape(b.logits(last), {1, config.vocab}), longer(g, s, count), o, count);
  return g;
}

}  // namespace

Graph prefill_graph(const Config& config, int64_t bucket, const SampleOptions& o) {
  Graph g("lm.prefill." + std::to_string(bucket));
  if (config.recurrent()) return continue_sequence(std::move(g), config, bucket, o);
  Builder b(g, config, false);
  Generation s(g, config);
  const Value prompt = g.input("prompt", {i64, {1, bucket}});
  const Value count = g.input("count", {i64, {1}});
  b.make_rope();
  Value x = b.embed(prompt);
  const Value zero = g.constant<int64_t>({1}, {0});
  for (int64_t i = 0; i < config.layers; ++i)
    x = b.layer(i, x, 1, bucket, {}, [&](const auto& a, const std::string& name) -> Value {
      s.append(
          i, a.k, a.v,
          zero);  // padding lands behind the length, where decode overwrites it before it is read
      return g.add(op::attention{.layout = "bshd", .causal = true, .q = a.q, .k = a.k, .v = a.v},
                   name);
    });
  const Value last =
      g.add(op::binary{.kind = "sub", .a = count, .b = g.constant<int64_t>({1}, {1})}, "last");
  const Value row =
      g.add(op::gather{.axis = 1, .data = x, .indices = last}, "last_row");  // [1, 1, dim]
  s.advance(b.reshape(b.logits(row), {1, config.vocab}), count, o);
  return g;
}

Graph decode_graph(const Config& config, const SampleOptions& o) {
  Graph g("lm.decode");
  if (config.recurrent()) return continue_sequence(std::move(g), config, 1, o);
  Builder b(g, config, false);
  Generation s(g, config);
  b.make_rope();
  Value x = b.embed(s.token);
  const Value position = b.reshape(s.length, {1, 1});
  const Value length = longer(g, s, 1);
  for (int64_t i = 0; i < config.layers; ++i)
    x = b.layer(i, x, 1, 1, position, [&](const auto& a, const std::string& name) -> Value {
      const auto [keys, values] = s.append(i, a.k, a.v, s.length);
      return g.add(
          op::attention{.layout = "bshd", .q = a.q, .k = keys, .v = values, .kv_len = length},
          name);
    });
  s.advance(b.reshape(b.logits(x), {1, config.vocab}), length, o);
  return g;
}

}  // namespace tenon::lm
