// SPDX-License-Identifier: Apache-2.0
// GPT-J: one LayerNorm for attention and an MLP without a gate side by side, neighbours of a part
// of each head rotated, a bias of the head.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  c.dim = r.size("n_embd");
  c.layers = r.size("n_layer", {}, 4096);
  c.heads = c.kv_heads = r.size("n_head", {}, 1 << 16);
  if (c.dim % c.heads != 0) r.refuse("n_head", "a divisor of n_embd " + std::to_string(c.dim));
  c.head_dim = c.dim / c.heads;
  c.ffn = r.size("n_inner", 4 * c.dim, int64_t{1} << 22);
  c.context = r.size("n_positions", 2048, int64_t{1} << 30);
  c.norm = Norm::layer, c.norm_bias = true;
  c.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.activation = read_activation(r, "activation_function", "gelu_new");
  c.tied = r.flag("tie_word_embeddings", false);
  c.parallel = c.mlp_bias = true;
  c.rope.dims = r.is_null("rotary_dim") ? 0 : r.size("rotary_dim", 64);
  if (c.rope.dims < 2 || c.rope.dims % 2 != 0 || c.rope.dims > c.head_dim)
    r.refuse("rotary_dim",
             "an even number up to the " + std::to_string(c.head_dim) + " elements of a head");
  c.rope_interleaved = true;
  c.local.assign(static_cast<size_t>(c.layers), false);
  c.sparse.assign(static_cast<size_t>(c.layers), false);
  for (const char* key : {"rotary", "scale_attn_weights"}) r.expect(key, true);
  r.ignore({"gradient_checkpointing", "summary_type", "summary_use_proj", "summary_activation",
            "summary_proj_to_labels", "summary_first_dropout"});
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual,
                           {.part = ".attn", .output = "out_proj"});
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "fc_in", "fc_out", residual);
}

Value hidden(Step& p) {
  return decoder_layers(p, p.embed("transformer.wte"), attention, mlp,
                        {.layers = "transformer.h.", .first_norm = ".ln_1", .second_norm = ""});
}

Value last_norm(Step& p, Value x) { return p.norm(x, "transformer.ln_f", p.c.dim); }

Value head(Step& p, Value normed) {
  return p.binary("add", tied_head(p, normed, "transformer.wte"),
                  p.wide("lm_head.bias", {p.c.vocab}));
}

}  // namespace

const Architecture kGptJ = {"gptj", "GPTJForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
