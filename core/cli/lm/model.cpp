// SPDX-License-Identifier: Apache-2.0
// Builds the decoder's graphs for training, evaluation, prefill and decode.
#include "cli/lm/model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

namespace tenon::lm {
namespace {

void require(bool holds, const std::string& text) {
  if (!holds) throw Error(TENON_INVALID_ARGUMENT, "config: " + text);
}

// Shared by all graphs of the model. x is [batch, time, dim]; heads stay in the layout [batch,
// time, head, dim], so nothing is transposed.
class Builder {
 public:
  Builder(Graph& graph, const Config& config, bool trainable) : g_(graph), c_(config) {
    for (const WeightSpec& w : weight_specs(config))
      weights_.emplace(w.name, g_.weight(w.name, {c_.dtype, w.dims}, trainable));
  }
  bool checkpoint = false;  // each layer of decoder

  Value embed(Value tokens) {
    return g_.add(op::gather{.data = weight("model.embed_tokens.weight"), .indices = tokens},
                  "model.embed_tokens");
  }

  // cos and sin of the rope, [context, head_dim / 2].
  void make_rope() {
    const std::vector<double> frequencies = c_.rope.frequencies(c_.head_dim());
    const auto half = static_cast<int64_t>(frequencies.size());
    std::vector<float> cos, sin;
    for (int64_t p = 0; p < c_.context; ++p)
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(p) * frequency;
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    cos_ = g_.constant({c_.context, half}, cos);
    sin_ = g_.constant({c_.context, half}, sin);
  }

  struct Attended {
    Value q, k, v;  // [batch, time, heads, head_dim], q and k rotated
  };

  // One layer. `attend` computes the attention output [batch, time, heads, head_dim] from q, k, v.
  template <class Attend>
  Value layer(int64_t i, Value x, int64_t batch, int64_t time, Value positions, Attend attend) {
    const std::string name = "model.layers." + std::to_string(i);
    const Value n = norm(x, name + ".input_layernorm");
    const auto heads_of = [&](const std::string& w, int64_t heads) {
      const Value flat = project(n, name + ".self_attn." + w);
      return reshape(flat, {batch, time, heads, c_.head_dim()});
    };
    Attended a;
    a.q = rotate(heads_of("q_proj", c_.heads), positions, name + ".self_attn.q_rope");
    a.k = rotate(heads_of("k_proj", c_.kv_heads), positions, name + ".self_attn.k_rope");
    a.v = heads_of("v_proj", c_.kv_heads);
    const Value o =
        reshape(attend(a, name + ".self_attn"), {batch, time, c_.heads * c_.head_dim()});
    const Value mixed = project(o, name + ".self_attn.o_proj", x);
    const Value m = norm(mixed, name + ".post_attention_layernorm");
    const Value gate = project(m, name + ".mlp.gate_proj"), up = project(m, name + ".mlp.up_proj");
    const Value gated = activated(gate, up, name + ".mlp.act");
    return project(gated, name + ".mlp.down_proj", mixed);
  }

  Value logits(Value x) {
    const Value n = norm(x, "model.norm");
    const Value w = weight(c_.tied ? "model.embed_tokens.weight" : "lm_head.weight");
    return g_.add(op::matmul{.trans_b = true, .a = n, .b = w}, "lm_head");
  }

  // Complete sequences, without a cache.
  Value decoder(Value tokens, int64_t batch, int64_t time) {
    make_rope();
    Value x = embed(tokens);
    const auto attend = [&](const Attended& a, const std::string& name) -> Value {
      return g_.add(op::attention{.layout = "bshd", .causal = true, .q = a.q, .k = a.k, .v = a.v},
                    name);
    };
    for (int64_t i = 0; i < c_.layers; ++i) {
      const Value before = x;
      x = layer(i, before, batch, time, {}, attend);
      if (checkpoint) g_.checkpoint({before}, {x});
    }
    return logits(x);
  }

  Value loss(Value tokens, int64_t batch) {
    const int64_t t = c_.context;
    const Value x = g_.add(op::narrow{.start = {0, 0}, .len = {batch, t}, .x = tokens}, "inputs");
    const Value y = g_.add(op::narrow{.start = {0, 1}, .len = {batch, t}, .x = tokens}, "labels");
    return g_.add(op::cross_entropy{.logits = decoder(x, batch, t), .labels = y}, "loss");
  }

  Value reshape(Value x, std::vector<int64_t> shape) {
    return g_.add(op::reshape{.shape = std::move(shape), .x = x});
  }

 private:
  Value weight(const std::string& name) const {
    const auto found = weights_.find(name);
    if (found == weights_.end()) throw Error(TENON_INTERNAL, "model: no weight " + name);
    return found->second;
  }
  Value norm(Value x, const std::string& name) {
    return g_.add(op::rms_norm{.eps = c_.norm_eps, .x = x, .gamma = weight(name + ".weight")},
                  name);
  }
  // x times the transposed weight, plus bias and residual, in one op.
  Value project(Value x, const std::string& name, Value residual = {}) {
    const auto found = weights_.find(name + ".bias");
    const Value bias = found == weights_.end() ? Value{} : found->second;
    const Value w = weight(name + ".weight");
    if (!residual && !bias) return g_.add(op::matmul{.trans_b = true, .a = x, .b = w}, name);
    return g_.add(op::linear{.trans_b = true, .a = x, .b = w, .bias = bias, .residual = residual},
                  name);
  }
  Value activated(Value gate, Value up, const std::string& name) {
    for (const char* fused : {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"})
      if (c_.activation == fused)
        return g_.add(op::swiglu{.act = c_.activation, .gate = gate, .up = up}, name);
    const Value a = g_.add(op::unary{.kind = c_.activation, .x = gate}, name);
    return g_.add(op::binary{.kind = "mul", .a = a, .b = up}, name);
  }
  Value rotate(Value x, Value positions, const std::string& name) {
    return g_.add(op::rope{.x = x, .cos = cos_, .sin = sin_, .position_ids = positions}, name);
  }

  Graph& g_;
  const Config& c_;
  std::map<std::string, Value, std::less<>> weights_;
  Value cos_, sin_;
};

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

  // Samples the next token from logits [1, vocab]. Advances the state by `count`, i64 [1].
  void advance(Value logits, Value new_length, const SampleOptions& o) {
    const Value ids = g.add(op::sample{.temperature = o.temperature,
                                       .top_k = o.top_k,
                                       .top_p = o.top_p,
                                       .logits = logits,
                                       .rng = rng},
                            "sample");
    g.output("token", ids);
    g.update(token, g.add(op::reshape{.shape = {1, 1}, .x = ids}));
    g.update(length, new_length);
    const Value step = g.constant<int64_t>({2}, {0, 1});
    g.update(rng, g.add(op::binary{.kind = "add", .a = rng, .b = step}, "rng"));
  }
};

}  // namespace

void Config::check() const {
  constexpr int64_t most = int64_t{1} << 20;
  const auto positive = [](int64_t v, const char* name) {
    require(v > 0 && v <= most, std::string(name) + " is " + std::to_string(v) +
                                    ", expected 1 to " + std::to_string(most));
  };
  positive(vocab, "vocab_size");
  positive(dim, "hidden_size");
  positive(layers, "num_hidden_layers");
  positive(heads, "num_attention_heads");
  positive(kv_heads, "num_key_value_heads");
  positive(ffn, "intermediate_size");
  positive(context, "max_position_embeddings");
  require(head_size >= 0 && head_size <= most,
          "head_dim is " + std::to_string(head_size) + ", expected 1 to " + std::to_string(most));
  require(dim % heads == 0, "hidden_size " + std::to_string(dim) +
                                " is no multiple of num_attention_heads " + std::to_string(heads));
  require(head_dim() % 2 == 0 && head_dim() > 0,
          "head_dim, else hidden_size / num_attention_heads, is " + std::to_string(head_dim()) +
              ", expected an even number for rope");
  require(heads % kv_heads == 0, "num_attention_heads " + std::to_string(heads) +
                                     " is no multiple of num_key_value_heads " +
                                     std::to_string(kv_heads));
  const auto above_zero = [](double v, const char* name) {
    require(std::isfinite(v) && v > 0,
            std::string(name) + " is " + std::to_string(v) + ", expected a number above 0");
  };
  above_zero(rope.theta, "rope_theta");
  above_zero(rope.factor, "the factor of rope");
  above_zero(rope.low_freq_factor, "low_freq_factor");
  above_zero(rope.high_freq_factor, "high_freq_factor");
  positive(rope.original_context, "original_max_position_embeddings");
  require(rope.type != Rope::Type::llama3 || rope.high_freq_factor > rope.low_freq_factor,
          "high_freq_factor must be above low_freq_factor");
  require(std::isfinite(init_range) && init_range >= 0, "initializer_range must be at least 0");
  require(attention_dropout >= 0 && attention_dropout < 1,
          "attention_dropout must be at least 0 and below 1");
  require(std::isfinite(norm_eps) && norm_eps >= 0, "rms_norm_eps must be at least 0");
}

std::vector<WeightSpec> weight_specs(const Config& c) {
  using Init = WeightSpec::Init;
  std::vector<WeightSpec> specs;
  const double scale = c.init_range;
  // Weights that add to the residual stream start smaller, so that their sum does not grow with the
  // number of layers.
  const double residual_scale = scale / std::sqrt(2.0 * static_cast<double>(c.layers));
  const int64_t q = c.heads * c.head_dim(), kv = c.kv_heads * c.head_dim();
  const auto projection = [&](const std::string& name, int64_t out, int64_t in, double s,
                              bool bias) {
    specs.push_back({name + ".weight", {out, in}, Init::normal, s});
    if (bias) specs.push_back({name + ".bias", {out}, Init::zeros, 0});
  };
  specs.push_back({"model.embed_tokens.weight", {c.vocab, c.dim}, Init::normal, scale});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string n = "model.layers." + std::to_string(i) + ".";
    specs.push_back({n + "input_layernorm.weight", {c.dim}, Init::ones, 0});
    projection(n + "self_attn.q_proj", q, c.dim, scale, c.attention_bias);
    projection(n + "self_attn.k_proj", kv, c.dim, scale, c.attention_bias);
    projection(n + "self_attn.v_proj", kv, c.dim, scale, c.attention_bias);
    projection(n + "self_attn.o_proj", c.dim, q, residual_scale, c.attention_bias);
    specs.push_back({n + "post_attention_layernorm.weight", {c.dim}, Init::ones, 0});
    projection(n + "mlp.gate_proj", c.ffn, c.dim, scale, c.mlp_bias);
    projection(n + "mlp.up_proj", c.ffn, c.dim, scale, c.mlp_bias);
    projection(n + "mlp.down_proj", c.dim, c.ffn, residual_scale, c.mlp_bias);
  }
  specs.push_back({"model.norm.weight", {c.dim}, Init::ones, 0});
  if (!c.tied) specs.push_back({"lm_head.weight", {c.vocab, c.dim}, Init::normal, scale});
  return specs;
}

double parameter_count(const Config& c) {
  Config one = c;
  one.layers = 1;  // all layers are alike, and the user chooses their number
  double layer = 0, other = 0;
  for (const WeightSpec& w : weight_specs(one))
    (w.name.starts_with("model.layers.") ? layer : other) +=
        static_cast<double>(TensorType(f32, w.dims).elements());
  return other + static_cast<double>(c.layers) * layer;
}

std::vector<double> Rope::frequencies(int64_t head_dim) const {
  std::vector<double> out;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (type == Type::linear) f /= factor;
    if (type == Type::llama3) {
      // Rotations within the original context: fast ones are kept, slow ones are scaled, with a
      // ramp between them.
      const double turns = static_cast<double>(original_context) * f / (2 * std::numbers::pi);
      const double kept =
          std::clamp((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0.0, 1.0);
      f = kept * f + (1 - kept) * f / factor;
    }
    out.push_back(f);
  }
  return out;
}

namespace {
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

Graph prefill_graph(const Config& config, int64_t bucket, const SampleOptions& o) {
  Graph g("lm.prefill." + std::to_string(bucket));
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
  Builder b(g, config, false);
  Generation s(g, config);
  b.make_rope();
  Value x = b.embed(s.token);
  const Value position = b.reshape(s.length, {1, 1});
  const Value length =
      g.add(op::binary{.kind = "add", .a = s.length, .b = g.constant<int64_t>({1}, {1})}, "length");
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
