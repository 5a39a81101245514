// SPDX-License-Identifier: Apache-2.0
// What Gemma 3n and Gemma 4 share.
#include "llm/arch/gemma_parts.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::llm {

void read_gemma_parts(ConfigReader& r, ModelConfig& c, const GemmaDefaults& defaults) {
  read_decoder(
      r, c,
      {.tied = true, .activation_key = "hidden_activation", .head_dim = 256, .ffn_list = true});
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.attention_scale = 1;
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  c.logit_softcap = read_cap(r, "final_logit_softcapping", defaults.logit_softcap);
  c.window = r.size("sliding_window", 512, int64_t{1} << 30);
  if (r.has("layer_types")) {
    read_layer_types(r, c, nullptr);
  } else {
    for (int64_t i = 0; i < c.layers; ++i)
      c.local[static_cast<size_t>(i)] = (i + 1) % defaults.period != 0;
  }
  PerLayerConfig& p = c.per_layer;
  p.input_dim =
      r.is_null("hidden_size_per_layer_input") ? 0 : r.integer("hidden_size_per_layer_input", 256);
  if (p.input_dim < 0 || p.input_dim > 1 << 16)
    r.refuse("hidden_size_per_layer_input", "0 to 65536");
  p.input_vocab = r.size("vocab_size_per_layer_input", 262144, int64_t{1} << 24);
  r.ignore({"hidden_size_per_layer_input"});
  p.shared_keys = r.integer("num_kv_shared_layers", defaults.shared_keys);
  if (p.shared_keys < 0 || p.shared_keys >= c.layers)
    r.refuse("num_kv_shared_layers", "0 to num_hidden_layers - 1");
}

void check_shared_keys(const ConfigReader& r, const ModelConfig& c) {
  for (int64_t i = c.per_layer.first_shared(c.layers); i < c.layers; ++i)
    if (layer_of_keys(c, i) < 0)
      r.refuse("num_kv_shared_layers", "a layer of each of layer_types in front of these");
}

int64_t layer_of_keys(const ModelConfig& c, int64_t layer) {
  const int64_t first = c.per_layer.first_shared(c.layers);
  if (layer < first) return -1;
  const auto is_local = [&](int64_t i) { return c.local[static_cast<size_t>(i)]; };
  int64_t other = first - 1;
  while (other >= 0 && is_local(other) != is_local(layer)) --other;
  return other;
}

Value gemma_attention(Step& p, Value normed, int64_t layer, const std::string& layer_name, Value) {
  const ModelConfig& c = p.c;
  const PerLayerConfig& own = c.per_layer;
  const std::string name = layer_name + ".self_attn";
  const bool local = c.local[static_cast<size_t>(layer)];
  const int64_t dim = !local && own.head_dim > 0 ? own.head_dim : c.head_dim;
  const int64_t kv_heads = !local && own.kv_heads > 0 ? own.kv_heads : c.kv_heads;
  const bool keys_as_values = own.keys_as_values && !local;
  Heads heads{};
  heads.keys_of = layer_of_keys(c, layer);
  const auto normed_heads = [&](Value x, int64_t count, const char* norm) {
    return p.norm(p.heads(x, count, dim), name + norm, dim);
  };
  std::vector<std::string> names = {name + ".q_proj"};
  std::vector<int64_t> outs = {c.heads * dim};
  if (heads.keys_of < 0) {
    names.push_back(name + ".k_proj"), outs.push_back(kv_heads * dim);
    if (!keys_as_values) names.push_back(name + ".v_proj"), outs.push_back(kv_heads * dim);
  }
  const std::vector<Value> all = p.project_all(normed, names, c.dim, outs, c.qkv_bias);
  heads.q = normed_heads(all[0], c.heads, ".q_norm");
  if (heads.keys_of < 0) {
    heads.k = normed_heads(all[1], kv_heads, ".k_norm");
    heads.v = p.bare_rms_norm(p.heads(all.back(), kv_heads, dim), name + ".v_norm", c.norm_eps);
  }
  return decoder_attend(p, heads, layer, name, {});
}

void make_layer_inputs(Step& p, Value x) {
  const ModelConfig& c = p.c;
  const PerLayerConfig& own = c.per_layer;
  if (own.input_dim == 0) return;
  const int64_t all = c.layers * own.input_dim;
  const auto of_layers = [&](Value y) {
    return p.reshape(y, {p.s.batch, p.s.time, c.layers, own.input_dim});
  };
  const Value of_tokens =
      p.scaled(of_layers(p.rows_of("model.embed_tokens_per_layer", own.input_vocab, all)),
               std::sqrt(static_cast<double>(own.input_dim)));
  const Value projected = p.scaled(p.project(x, "model.per_layer_model_projection", c.dim, all),
                                   1 / std::sqrt(static_cast<double>(c.dim)));
  const Value of_stream =
      p.norm(of_layers(projected), "model.per_layer_projection_norm", own.input_dim);
  p.kept["layer_inputs"] = p.scaled(p.binary("add", of_stream, of_tokens), std::sqrt(0.5));
}

Value layer_input(Step& p, Value x, int64_t layer, const std::string& name) {
  const ModelConfig& c = p.c;
  const int64_t dim = c.per_layer.input_dim;
  const Value all = p.kept.at("layer_inputs");
  const Value mine =
      p.reshape(p.g.add(op::narrow{
                    .start = {0, 0, layer, 0}, .len = {p.s.batch, p.s.time, 1, dim}, .x = all}),
                {p.s.batch, p.s.time, dim});
  const Value gate = p.project(x, name + ".per_layer_input_gate", c.dim, dim);
  const Value chosen = p.gated(gate, mine, c.activation, name + ".per_layer_act");
  return p.norm(p.project(chosen, name + ".per_layer_projection", dim, c.dim),
                name + ".post_per_layer_input_norm", c.dim);
}

}  // namespace tenon::llm
