// SPDX-License-Identifier: Apache-2.0
// What the recurrent models share.
#include "cli/lm/builder.hpp"

namespace tenon::lm {

Builder::Builder(Graph& graph, const Config& config, bool trainable) : g_(graph), c_(config) {
  for (const WeightSpec& w : weight_specs(config))
    weights_.emplace(w.name, g_.weight(w.name, {w.dtype, w.dims}, trainable));
}

Value Builder::embed(Value tokens) {
  return g_.add(op::gather{.data = weight("model.embed_tokens.weight"), .indices = tokens},
                "model.embed_tokens");
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
  Value x = embed(tokens);
  for (int64_t i = 0; i < c_.layers; ++i) {
    const Value before = x;
    x = recurrent_layer(i, before, batch, time, false);
    if (checkpoint) g_.checkpoint({before}, {x});
  }
  return logits(x);
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

}  // namespace tenon::lm
