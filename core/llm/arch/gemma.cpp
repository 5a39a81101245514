// SPDX-License-Identifier: Apache-2.0
// Gemma: norms whose weights are added to 1, and scaled embeddings. Gemma 2 and 3: norms before and
// behind attention and MLP, layers with and without a window. Gemma 2 caps scores and logits; Gemma
// 3 has norms of q and k, and a rotary embedding of its own for layers with a window.
#include <cmath>

#include "llm/arch/families.hpp"

namespace tenon::llm {

double read_cap(ConfigReader& r, std::string_view key, double otherwise) {
  if (r.is_null(key)) {
    r.ignore({key});
    return 0;
  }
  if (otherwise == 0 && !r.has(key)) return 0;
  return r.positive(key, otherwise);
}

// rope_parameters since transformers 5 has an object for each type of layer; before, rope_theta,
// rope_local_base_freq, and a rope_scaling of the layers without a window.
void read_gemma_ropes(ConfigReader& r, ModelConfig& c) {
  const double local_theta = r.positive("rope_local_base_freq", 1e4);
  if (read_ropes_of_types(r, c, 1e6, local_theta)) return;
  c.rope = read_rope(r, c.head_dim, c.context, 1e6);
  c.local_rope = {.dims = c.head_dim, .theta = local_theta};
}

namespace {

void read_gemma(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.tied = true, .activation_key = "hidden_activation", .head_dim = 256});
  c.norm = Norm::rms_plus_one;
  r.ignore({"hidden_act"});  // older files have it beside hidden_activation, which counts
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  r.expect("use_bidirectional_attention", false);
  c.attention_scale = 1 / std::sqrt(r.positive("query_pre_attn_scalar", 256));
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  c.norm = Norm::rms_plus_one;  // in f32, as transformers computes it
  c.window = r.is_null("sliding_window") ? 0 : r.size("sliding_window", 4096, int64_t{1} << 30);
}

void read_gemma2(ConfigReader& r, ModelConfig& c) {
  read_gemma(r, c);
  c.rope = read_rope(r, c.head_dim, c.context);
  c.attention_softcap = read_cap(r, "attn_logit_softcapping", 50);
  c.logit_softcap = read_cap(r, "final_logit_softcapping", 30);
  r.ignore({"cache_implementation"});
  read_layer_types(r, c, [](int64_t layer) { return layer % 2 == 0; });
}

void read_gemma3(ConfigReader& r, ModelConfig& c) {
  read_gemma(r, c);
  read_gemma_ropes(r, c);
  c.qk_norm = true;
  r.expect_nothing("attn_logit_softcapping");  // transformers reads it, and caps nothing
  c.logit_softcap = read_cap(r, "final_logit_softcapping", 0);
  r.ignore({"_sliding_window_pattern"});
  const int64_t pattern = r.size("sliding_window_pattern", 6);
  if (r.has("layer_types")) {
    read_layer_types(r, c, nullptr);
  } else {
    for (int64_t i = 0; i < c.layers; ++i) c.local[static_cast<size_t>(i)] = (i + 1) % pattern != 0;
  }
}

// Gemma 2 without the norms behind attention and MLP.
Value vault_hidden(Step& p) {
  return decoder_layers(p, p.embed("model.embed_tokens"), decoder_attention, decoder_feed_forward,
                        {.second_norm = ".pre_feedforward_layernorm"});
}

Value hidden(Step& p) {
  return decoder_layers(p, decoder_attention, decoder_feed_forward,
                        {.before_attention = ".input_layernorm",
                         .behind_attention = ".post_attention_layernorm",
                         .before_mlp = ".pre_feedforward_layernorm",
                         .behind_mlp = ".post_feedforward_layernorm"});
}

// ---- The first Gemma

void read_first(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.tied = true, .head_dim = 256});
  c.norm = Norm::rms_plus_one;
  // Files that name no activation mean this one.
  if (!r.has("hidden_act")) c.activation = "gelu_tanh";
  if (r.has("hidden_activation")) c.activation = read_activation(r, "hidden_activation", "");
  r.expect("use_bidirectional_attention", false);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  c.rope = read_rope(r, c.head_dim, c.context);
}

}  // namespace

const Architecture kGemma = {"gemma",        "GemmaForCausalLM", read_first,
                             decoder_hidden, decoder_norm,       decoder_head};
const Architecture kGemma2 = {"gemma2", "Gemma2ForCausalLM", read_gemma2,
                              hidden,   decoder_norm,        decoder_head};
const Architecture kVaultGemma = {
    "vaultgemma", "VaultGemmaForCausalLM", read_gemma2, vault_hidden, decoder_norm, decoder_head};
const Architecture kGemma3 = {"gemma3_text", "Gemma3ForCausalLM", read_gemma3,
                              hidden,        decoder_norm,        decoder_head};

}  // namespace tenon::llm
