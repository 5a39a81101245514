// SPDX-License-Identifier: Apache-2.0
// OLMo: Llama with LayerNorms without weights. OLMo 2 and 3: norms behind attention and MLP instead of in front of them, and norms of all heads
// of q and of k together. The third one has layers with a window. OLMoE: norms in front, and
// experts. FlexOlmo: OLMo 2 with experts.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
}

void read_olmo3(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  // Files before transformers 5 have a rope_theta and a rope_scaling. transformers 5 takes both for
  // the layers without a window only.
  if (!read_ropes_of_types(r, c, 5e5, 5e5)) {
    c.rope = read_rope(r, c.head_dim, c.context, 5e5);
    c.local_rope = {.dims = c.head_dim, .theta = 5e5};
  }
  c.window = r.size("sliding_window", 4096, int64_t{1} << 30);
  read_layer_types(r, c, [](int64_t layer) { return (layer + 1) % 4 != 0; });
}

void read_olmoe(ConfigReader& r, ModelConfig& c) {
  read(r, c);
  r.expect_nothing("clip_qkv");
  const char* const key = r.has("num_local_experts") ? "num_local_experts" : "num_experts";
  c.moe.experts = r.size(key, 64, 1 << 16);
  c.moe.per_token = r.size("num_experts_per_tok", 8, c.moe.experts);
  c.moe.ffn = c.ffn;
  c.moe.normalize = r.flag("norm_topk_prob", false);
  c.sparse.assign(c.sparse.size(), true);
}

void read_olmo(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.eps_key = ""});
  c.norm = Norm::bare_layer, c.norm_eps = 1e-5;
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  if (r.has("clip_qkv")) c.clip_qkv = r.positive("clip_qkv");
}

void read_flex(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  c.rope = read_rope(r, c.head_dim, c.context, 5e5);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  const char* const key = r.has("num_local_experts") ? "num_local_experts" : "num_experts";
  c.moe.experts = r.size(key, 7, 1 << 16);
  c.moe.per_token = r.size("num_experts_per_tok", 5, c.moe.experts);
  c.moe.ffn = c.ffn;
  c.moe.normalize = r.flag("norm_topk_prob", false);
  c.sparse.assign(c.sparse.size(), true);
}

Value attention(Step& p, Value x, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, x, layer, name, residual, {.norm = norm_all_heads});
}

Value olmoe_hidden(Step& p) { return decoder_layers(p, attention, decoder_feed_forward); }

Value hidden(Step& p) {
  return decoder_layers(p, attention, decoder_feed_forward,
                        {.behind_attention = ".post_attention_layernorm",
                         .behind_mlp = ".post_feedforward_layernorm"});
}

}  // namespace

const Architecture kOlmo = {"olmo",         "OlmoForCausalLM", read_olmo,
                            decoder_hidden, decoder_norm,      decoder_head};
const Architecture kFlexOlmo = {"flex_olmo", "FlexOlmoForCausalLM", read_flex,
                                hidden,      decoder_norm,          decoder_head};
const Architecture kOlmo3 = {"olmo3", "Olmo3ForCausalLM", read_olmo3,
                             hidden,  decoder_norm,       decoder_head};
const Architecture kOlmoe = {"olmoe",      "OlmoeForCausalLM", read_olmoe,
                             olmoe_hidden, decoder_norm,       decoder_head};
const Architecture kOlmo2 = {"olmo2", "Olmo2ForCausalLM", read, hidden, decoder_norm, decoder_head};

}  // namespace tenon::llm
