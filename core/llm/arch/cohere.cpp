// SPDX-License-Identifier: Apache-2.0
// Command R of Cohere: LayerNorm without bias, attention and MLP side by side, neighbours rotated.
// The second version has layers with a window, and rotates nothing in the others; it may have experts.
#include <algorithm>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_common(ConfigReader& r, ModelConfig& c, int64_t head_dim = 0) {
  read_decoder(r, c,
               {.norm_eps = 1e-5, .tied = true, .eps_key = "layer_norm_eps", .head_dim = head_dim});
  c.norm = Norm::layer;
  c.parallel = c.rope_interleaved = true;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.logit_scale = r.positive("logit_scale", 0.0625);
}

void read_cohere(ConfigReader& r, ModelConfig& c) {
  read_common(r, c);
  c.rope = read_rope(r, c.head_dim, c.context, 5e5);
  c.qk_norm = r.flag("use_qk_norm", false);
  r.ignore({"model_max_length"});
}

// Files of the model's authors name what all of these models have.
void read_names(ConfigReader& r) {
  for (const char* key : {"use_gated_activation", "use_parallel_block"}) r.expect(key, true);
  if (r.number("rotary_pct", 1) != 1) r.refuse("rotary_pct", "1");
  if (r.text("position_embedding_type", "rope_gptj") != "rope_gptj")
    r.refuse("position_embedding_type", "'rope_gptj'");
  r.ignore({"layer_switch", "order_of_interleaved_layers", "use_embedding_sharing",
            "use_parallel_embedding"});
}

// `count` layers from `first` on have the window but for every pattern-th of them.
void set_windows(ModelConfig& c, int64_t first, int64_t count, int64_t pattern) {
  for (int64_t i = 0; i < count; ++i)
    c.local[static_cast<size_t>(first + i)] = (i + 1) % pattern != 0;
}

void read_cohere2(ConfigReader& r, ModelConfig& c) {
  read_common(r, c);
  c.rope = read_rope(r, c.head_dim, c.context);
  c.window = r.size("sliding_window", 4096, int64_t{1} << 30);
  const int64_t pattern = r.size("sliding_window_pattern", 4);
  if (r.has("layer_types")) {
    read_layer_types(r, c, nullptr);
  } else {
    set_windows(c, 0, c.layers, pattern);
  }
  for (const bool local : c.local) c.no_rope.push_back(!local);
  read_names(r);
}

void read_cohere2_moe(ConfigReader& r, ModelConfig& c) {
  read_common(r, c, 128);
  if (r.has("rms_norm_eps")) c.norm = Norm::rms, c.norm_eps = r.positive("rms_norm_eps");
  if (r.has("rope_scaling"))
    r.refuse("rope_scaling", "rope_parameters, as transformers does not read it for this model");
  c.rope = read_rope(r, c.head_dim, c.context);
  MoeConfig& m = c.moe;
  m.experts = r.size("num_experts", 8, 1 << 16);
  m.per_token = r.size("num_experts_per_tok", 2, m.experts);
  m.ffn = c.ffn;
  c.ffn = r.size("prefix_dense_intermediate_size", c.ffn);
  const int64_t shared = r.integer("num_shared_experts", 0);
  if (shared < 0 || shared > 64) r.refuse("num_shared_experts", "0 to 64");
  m.shared_ffn = m.ffn * shared;
  const std::string together = r.text("shared_expert_combination_strategy", "average");
  if (together != "average" && together != "sum")
    r.refuse("shared_expert_combination_strategy", "'average' or 'sum'");
  m.average = shared > 0 && together == "average";
  m.score = r.text("expert_selection_fn", "softmax");
  if (m.score != "softmax" && m.score != "sigmoid")
    r.refuse("expert_selection_fn", "'softmax' or 'sigmoid'");
  // The softmax is that of the chosen ones alone: all of them, divided by the sum of the chosen ones.
  const bool divided = r.flag("norm_topk_prob", true);
  m.normalize = m.score == "softmax" || divided;
  const int64_t prefix = std::clamp<int64_t>(r.integer("first_k_dense_replace", 0), 0, c.layers);
  const int64_t prefix_pattern = r.size("prefix_dense_sliding_window_pattern", 1),
                pattern = r.size("sliding_window_pattern", 4);
  if (r.has("layer_types")) {
    read_layer_types(r, c, nullptr);
  } else {
    set_windows(c, 0, prefix, prefix_pattern);
    set_windows(c, prefix, c.layers - prefix, pattern);
  }
  read_window_of_types(r, c, 4096);
  read_dense_and_sparse(r, c, prefix);
  for (size_t i = 0; i < c.local.size(); ++i)
    c.no_rope.push_back(!c.local[i] && (c.sparse[i] || prefix_pattern != 1));
  read_names(r);
  r.expect("use_qk_norm", false);
}

// Each head has weights of its own.
Value own_norms(Step& p, Value heads, const std::string& name, int64_t count) {
  return norm_heads(p, heads, p.weight(name + ".weight", {count, p.c.head_dim}), name);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual, {.norm = own_norms});
}

Value hidden(Step& p) { return decoder_layers(p, attention, decoder_feed_forward); }

Value mixture(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  if (!p.c.moe.average || !p.c.sparse[static_cast<size_t>(layer)])
    return decoder_feed_forward(p, normed, layer, name, residual);
  const Value both = decoder_feed_forward(p, normed, layer, name, {});
  return p.binary("add", residual, p.scaled(both, 0.5));
}

Value moe_hidden(Step& p) { return decoder_layers(p, decoder_attention, mixture); }

}  // namespace

const Architecture kCohere = {"cohere", "CohereForCausalLM", read_cohere,
                              hidden,   decoder_norm,        decoder_head};
const Architecture kCohere2 = {"cohere2", "Cohere2ForCausalLM", read_cohere2,
                               hidden,    decoder_norm,         decoder_head};
const Architecture kCohere2Moe = {"cohere2_moe",    "Cohere2MoeForCausalLM",
                                  read_cohere2_moe, moe_hidden,
                                  decoder_norm,     decoder_head};

}  // namespace tenon::llm
