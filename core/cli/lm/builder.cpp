// SPDX-License-Identifier: Apache-2.0
// What all models share, and the layers of the Llama-style decoder.
#include "cli/lm/builder.hpp"

#include <cmath>

namespace tenon::lm {

Builder::Builder(Graph& graph, const Config& config, bool trainable) : g_(graph), c_(config) {
  for (const WeightSpec& w : weight_specs(config))
    weights_.emplace(w.name, g_.weight(w.name, {w.dtype, w.dims}, trainable));
}

Value Builder::embed(Value tokens) {
  return g_.add(op::gather{.data = weight("model.embed_tokens.weight"), .indices = tokens},
                "model.embed_tokens");
}

void Builder::make_rope() {
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

Builder::Attended Builder::attended(const std::string& name, Value x, int64_t batch, int64_t time,
                                    Value positions) {
  const Value n = norm(x, name + ".input_layernorm");
  const auto heads_of = [&](const std::string& w, int64_t heads) {
    const Value flat = project(n, name + ".self_attn." + w);
    return reshape(flat, {batch, time, heads, c_.head_dim()});
  };
  Attended a;
  a.q = rotate(heads_of("q_proj", c_.heads), positions, name + ".self_attn.q_rope");
  a.k = rotate(heads_of("k_proj", c_.kv_heads), positions, name + ".self_attn.k_rope");
  a.v = heads_of("v_proj", c_.kv_heads);
  return a;
}

Value Builder::after_attention(const std::string& name, Value x, Value attended) {
  return mlp(name, project(attended, name + ".self_attn.o_proj", x));
}

Value Builder::mlp(const std::string& name, Value x) {
  const Value m = norm(x, name + ".post_attention_layernorm");
  const Value gate = project(m, name + ".mlp.gate_proj"), up = project(m, name + ".mlp.up_proj");
  const Value gated = activated(gate, up, name + ".mlp.act");
  return project(gated, name + ".mlp.down_proj", x);
}

Value Builder::logits(Value x) {
  const Value n = norm(x, "model.norm");
  const Value w = weight(c_.tied ? "model.embed_tokens.weight" : "lm_head.weight");
  return g_.add(op::matmul{.trans_b = true, .a = n, .b = w}, "lm_head");
}

Value Builder::decoder(Value tokens, int64_t batch, int64_t time) {
  if (!c_.recurrent()) make_rope();
  Value x = embed(tokens);
  const auto attend = [&](const Attended& a, const std::string& name) -> Value {
    return g_.add(op::attention{.layout = "bshd", .causal = true, .q = a.q, .k = a.k, .v = a.v},
                  name);
  };
  for (int64_t i = 0; i < c_.layers; ++i) {
    const Value before = x;
    x = c_.recurrent() ? recurrent_layer(i, before, batch, time, false)
                       : layer(i, before, batch, time, {}, attend);
    if (checkpoint) g_.checkpoint({before}, {x});
  }
  return logits(x);
}

Value Builder::loss(Value tokens, int64_t batch) {
  const int64_t t = c_.context;
  const Value x = g_.add(op::narrow{.start = {0, 0}, .len = {batch, t}, .x = tokens}, "inputs");
  const Value y = g_.add(op::narrow{.start = {0, 1}, .len = {batch, t}, .x = tokens}, "labels");
  return g_.add(op::cross_entropy{.logits = decoder(x, batch, t), .labels = y}, "loss");
}

Value Builder::reshape(Value x, std::vector<int64_t> shape) {
  return g_.add(op::reshape{.shape = std::move(shape), .x = x});
}

Value Builder::weight(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end()) throw Error(TENON_INTERNAL, "model: no weight " + name);
  return found->second;
}

Value Builder::norm(Value x, const std::string& name) {
  return g_.add(op::rms_norm{.eps = c_.norm_eps, .x = x, .gamma = weight(name + ".weight")}, name);
}

Value Builder::project(Value x, const std::string& name, Value residual) {
  const auto found = weights_.find(name + ".bias");
  const Value bias = found == weights_.end() ? Value{} : found->second;
  const Value w = weight(name + ".weight");
  if (!residual && !bias) return g_.add(op::matmul{.trans_b = true, .a = x, .b = w}, name);
  return g_.add(op::linear{.trans_b = true, .a = x, .b = w, .bias = bias, .residual = residual},
                name);
}

Value Builder::activated(Value gate, Value up, const std::string& name) {
  for (const char* fused : {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"})
    if (c_.activation == fused)
      return g_.add(op::swiglu{.act = c_.activation, .gate = gate, .up = up}, name);
  const Value a = g_.add(op::unary{.kind = c_.activation, .x = gate}, name);
  return g_.add(op::binary{.kind = "mul", .a = a, .b = up}, name);
}

Value Builder::rotate(Value x, Value positions, const std::string& name) {
  return g_.add(op::rope{.x = x, .cos = cos_, .sin = sin_, .position_ids = positions}, name);
}

}  // namespace tenon::lm
