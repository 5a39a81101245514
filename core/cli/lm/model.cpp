// SPDX-License-Identifier: Apache-2.0
// The graphs of training, evaluation, prefill and decode.
#include "cli/lm/model.hpp"

#include "cli/lm/builder.hpp"
#include "cli/lm/decoder.hpp"

namespace tenon::lm {
namespace {

// The state of generation, and its update in a step.
struct Generation {
  Graph& g;
  Value token, length, rng;

  explicit Generation(Graph& graph) : g(graph) {
    token = g.state("token", {i64, {1, 1}});
    length = g.state("length", {i64, {1}});
    rng = g.state("rng", {i64, {2}});
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

// Logits [batch, time, vocab] of complete sequences, without a cache.
Value sequence_logits(Graph& g, const Config& config, Value tokens, int64_t time, bool trainable,
                      bool checkpoint) {
  const int64_t batch = g.type(tokens).dims[0];
  if (!config.recurrent()) return Decoder(config).sequence_logits(g, tokens, trainable, checkpoint);
  Builder b(g, config, trainable);
  b.checkpoint = checkpoint;
  return b.decoder(tokens, batch, time);
}

// The mean over all tokens but the first of each sequence of `context` + 1.
Value sequence_loss(Graph& g, const Config& config, int64_t batch, bool trainable,
                    bool checkpoint) {
  const int64_t t = config.context;
  const Value tokens = g.input("tokens", {i32, {batch, t + 1}});
  const Value x = g.add(op::narrow{.start = {0, 0}, .len = {batch, t}, .x = tokens}, "inputs");
  const Value y = g.add(op::narrow{.start = {0, 1}, .len = {batch, t}, .x = tokens}, "labels");
  const Value logits = sequence_logits(g, config, x, t, trainable, checkpoint);
  return g.add(op::cross_entropy{.logits = logits, .labels = y}, "loss");
}

Value train_loss(Graph& g, const Config& config, const TrainOptions& o) {
  const Value loss = sequence_loss(g, config, o.batch, true, o.checkpoint);
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
  for (const WeightSpec& w : weight_specs(config)) g.weight(w.name, {w.dtype, w.dims}, true);
  g.output("norm", g.apply(adamw(g.input("lr", {f32, {}}), o)));
  return g;
}

Graph eval_graph(const Config& config, int64_t batch) {
  Graph g("lm.eval");
  g.output("loss", sequence_loss(g, config, batch, false, false));
  return g;
}

Graph logits_graph(const Config& config, int64_t length) {
  Graph g("lm.logits");
  const Value tokens = g.input("tokens", {i64, {1, length}});
  const Value logits = sequence_logits(g, config, tokens, length, false, false);
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
  Generation s(g);
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
  Generation s(g);
  const Value prompt = g.input("prompt", {i64, {1, bucket}});
  const Value count = g.input("count", {i64, {1}});
  const Value none = g.constant<int64_t>({1}, {0});
  s.advance(Decoder(config).next_logits(g, prompt, none, count), count, o);
  return g;
}

Graph decode_graph(const Config& config, const SampleOptions& o) {
  Graph g("lm.decode");
  if (config.recurrent()) return continue_sequence(std::move(g), config, 1, o);
  Generation s(g);
  const Value one = g.constant<int64_t>({1}, {1});
  s.advance(Decoder(config).next_logits(g, s.token, s.length, one), longer(g, s, 1), o);
  return g;
}

}  // namespace tenon::lm
