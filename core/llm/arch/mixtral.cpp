// SPDX-License-Identifier: Apache-2.0
// Mixtral: Mistral's attention, and a mixture of experts in each layer. MiniMax-M2: norms of q and
// k, a part of each head rotated, and experts as DeepSeek-V3 chooses them.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.rope = read_rope(r, c.head_dim, c.context, 1e6);
  read_window(r, c, 0);
  c.moe.experts = r.size("num_local_experts", 8, 1 << 16);
  c.moe.per_token = r.size("num_experts_per_tok", 2, c.moe.experts);
  c.moe.ffn = c.ffn;
}

void read_minimax(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.head_dim = 128});
  const double part = r.has("rotary_dim")
                          ? static_cast<double>(r.size("rotary_dim", {}, c.head_dim)) /
                                static_cast<double>(c.head_dim)
                          : 1;
  c.rope = read_rope(r, c.head_dim, c.context, 5e6, part);
  c.qk_norm = true;
  MoeConfig& m = c.moe;
  m.experts = r.size("num_local_experts", 256, 1 << 16);
  m.per_token = r.size("num_experts_per_tok", 8, m.experts);
  m.ffn = c.ffn;
  m.score = "sigmoid", m.correction_bias = true;
  // Names of what all of these models have.
  for (const char* key : {"use_qk_norm", "use_routing_bias"}) r.expect(key, true);
  if (r.text("qk_norm_type", "per_layer") != "per_layer") r.refuse("qk_norm_type", "'per_layer'");
  if (r.text("scoring_func", "sigmoid") != "sigmoid") r.refuse("scoring_func", "'sigmoid'");
  if (r.integer("shared_intermediate_size", 0) != 0) r.refuse("shared_intermediate_size", "0");
  for (const int64_t type : r.integers("attn_type_list"))
    if (type != 1) r.refuse("attn_type_list", "1 for each layer");
  r.expect_nothing("sliding_window");
  // Layers that predict further tokens are not used.
  c.extra_layers = r.integer("num_mtp_modules", 0);
  if (c.extra_layers < 0) r.refuse("num_mtp_modules", "a number of layers");
  // Of an older model.
  r.ignore({"use_mtp", "mtp_transformer_layers", "mlp_intermediate_size", "shared_moe_mode",
            "layernorm_full_attention_beta", "layernorm_linear_attention_beta",
            "layernorm_mlp_beta"});
}

Value mixture(Step& p, Value normed, int64_t, const std::string& layer_name, Value residual) {
  const std::string name = layer_name + ".block_sparse_moe";
  return experts(p, normed,
                 {.router = name + ".gate",
                  .experts = name + ".experts",
                  .gate = "w1",
                  .up = "w3",
                  .down = "w2",
                  .correction = name + ".e_score_correction_bias"},
                 residual);
}

Value minimax_attention(Step& p, Value normed, int64_t layer, const std::string& name,
                        Value residual) {
  return decoder_attention(p, normed, layer, name, residual, {.norm = norm_all_heads});
}

Value minimax_hidden(Step& p) { return decoder_layers(p, minimax_attention, mixture); }

Value hidden(Step& p) { return decoder_layers(p, decoder_attention, mixture); }

}  // namespace

const Architecture kMiniMaxM2 = {"minimax_m2",   "MiniMaxM2ForCausalLM", read_minimax,
                                 minimax_hidden, decoder_norm,           decoder_head};
const Architecture kMixtral = {"mixtral", "MixtralForCausalLM", read,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
