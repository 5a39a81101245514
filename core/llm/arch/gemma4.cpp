// SPDX-License-Identifier: Apache-2.0
// Gemma 4: Gemma 3 with inputs of each layer, layers that read the keys and values of others, wider
// heads in layers without a window, and experts beside the MLP.
#include <algorithm>
#include <cmath>

#include "llm/arch/families.hpp"
#include "llm/arch/gemma_parts.hpp"

namespace tenon::llm {
namespace {

// Sizes of layers without a window: an object for each of them since transformers 5.20, two numbers
// for all of them before.
void read_wide_layers(ConfigReader& r, ModelConfig& c) {
  PerLayerConfig& p = c.per_layer;
  p.keys_as_values = r.flag("attention_k_eq_v", false);
  p.head_dim = r.size("global_head_dim", 512, 1 << 16);
  const int64_t kv_heads =
      r.has("num_global_key_value_heads") ? r.size("num_global_key_value_heads") : c.kv_heads;
  p.kv_heads = p.keys_as_values ? kv_heads : c.kv_heads;
  std::optional<ConfigReader> layers = r.object("per_layer_config");
  if (layers) {
    const auto full = std::ranges::count(c.local, false);
    const std::vector<std::string> keys = layers->keys();
    if (static_cast<int64_t>(keys.size()) != full)
      r.refuse("per_layer_config", "an object for each layer without a window");
    for (size_t i = 0; i < keys.size(); ++i) {
      size_t layer = 0;
      while (layer < c.local.size() && (c.local[layer] || std::to_string(layer) != keys[i]))
        ++layer;
      if (layer == c.local.size())
        layers->refuse(keys[i], "the number of a layer without a window");
      std::optional<ConfigReader> one = layers->object(keys[i]);
      const int64_t head_dim = one->size("head_dim", c.head_dim, 1 << 16),
                    heads = one->size("num_key_value_heads", c.kv_heads, 1 << 16);
      one->refuse_unread();
      if (i > 0 && (head_dim != p.head_dim || heads != p.kv_heads))
        layers->refuse(keys[i], "the same sizes in all of these layers");
      p.head_dim = head_dim, p.kv_heads = heads;
    }
    layers->refuse_unread();
  }
  if (c.heads % p.kv_heads != 0)
    r.refuse(layers ? "per_layer_config" : "num_global_key_value_heads",
             "heads of keys that divide num_attention_heads " + std::to_string(c.heads));
}

void read(ConfigReader& r, ModelConfig& c) {
  read_gemma_parts(r, c, {});
  c.local.back() = false;  // whatever layer_types says
  check_shared_keys(r, c);
  PerLayerConfig& p = c.per_layer;
  read_wide_layers(r, c);
  if (!read_ropes_of_types(r, c, 1e6, 1e4, p.head_dim)) {
    r.expect_nothing("rope_parameters");
    c.rope = {.type = RopeConfig::Type::proportional, .dims = p.head_dim, .theta = 1e6};
    c.rope.turned_dims = p.head_dim / 4;
    c.local_rope = {.dims = c.head_dim, .theta = 1e4};
  }
  if (r.is_text("use_bidirectional_attention")) {
    // Of images.
    if (r.text("use_bidirectional_attention") != "vision")
      r.refuse("use_bidirectional_attention", "null or 'vision'");
  } else {
    r.expect_nothing("use_bidirectional_attention");
  }
  p.wide_mlp = r.flag("use_double_wide_mlp", false);
  p.experts = r.flag("enable_moe_block", false);
  if (p.experts) {
    c.moe.experts = r.size("num_experts", {}, 1 << 16);
    c.moe.per_token = r.size("top_k_experts", {}, c.moe.experts);
    c.moe.ffn = r.size("moe_intermediate_size");
  }
  r.ignore({"num_experts", "top_k_experts", "moe_intermediate_size"});
}

// Experts read the residual stream x by norms of their own.
Value chosen(Step& p, Value x, const std::string& layer_name) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".router";
  const ExpertNames names{.router = name + ".proj",
                          .experts = layer_name + ".experts",
                          .gate = "gate_proj",
                          .up = "up_proj",
                          .down = "down_proj"};
  const Value normed = p.bare_rms_norm(x, name + ".norm", c.norm_eps);
  const Value scale =
      p.scaled(p.parameter(name + ".scale", {c.dim}), 1 / std::sqrt(static_cast<double>(c.dim)));
  Routes routes = choose_experts(p, p.binary("mul", normed, scale), names);
  const Value factors = p.g.add(op::gather{
      .data = p.wide(name + ".per_expert_scale", {c.moe.experts}), .indices = routes.ids});
  routes.weights = p.binary("mul", routes.weights, factors);
  const Value read = p.norm(x, layer_name + ".pre_feedforward_layernorm_2", c.dim);
  return p.norm(weighted_experts(p, read, names, routes, {}),
                layer_name + ".post_feedforward_layernorm_2", c.dim);
}

Value feed_forward(Step& p, Value x, int64_t layer, const std::string& name, Value) {
  const ModelConfig& c = p.c;
  const bool wide = c.per_layer.wide_mlp && layer >= c.per_layer.first_shared(c.layers);
  const Value normed = p.norm(x, name + ".pre_feedforward_layernorm", c.dim);
  const Value y = decoder_mlp(p, normed, name + ".mlp", wide ? 2 * c.ffn : c.ffn, {});
  if (!c.per_layer.experts) return y;
  return p.binary("add", p.norm(y, name + ".post_feedforward_layernorm_1", c.dim),
                  chosen(p, x, name));
}

Value finish(Step& p, Value x, int64_t layer, const std::string& name) {
  if (p.c.per_layer.input_dim > 0) x = p.binary("add", x, layer_input(p, x, layer, name));
  return p.binary("mul", x, p.parameter(name + ".layer_scalar", {1}));
}

Value hidden(Step& p) {
  const Value x = p.embed("model.embed_tokens");
  make_layer_inputs(p, x);
  return decoder_layers(p, x, gemma_attention, feed_forward,
                        {.before_attention = ".input_layernorm",
                         .behind_attention = ".post_attention_layernorm",
                         .behind_mlp = ".post_feedforward_layernorm",
                         .finish = finish});
}

}  // namespace

const Architecture kGemma4 = {"gemma4_text", "Gemma4ForCausalLM", read,
                              hidden,        decoder_norm,        decoder_head};

}  // namespace tenon::llm
