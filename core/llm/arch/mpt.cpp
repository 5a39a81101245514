// SPDX-License-Identifier: Apache-2.0
// MPT: LayerNorm without bias, biases of attention instead of rope, one product for q, k and v,
// which may be clipped, an MLP without a gate.
#include "llm/arch/families.hpp"
#include "llm/arch/harmless_keys.hpp"

namespace tenon::llm {
namespace {

// transformers ignores what is refused here. It ignores alibi_bias_max, too, which the authors' code
// and llama.cpp read.
void read_attention(ConfigReader& r, ModelConfig& c) {
  std::optional<ConfigReader> o = r.object("attn_config");
  c.alibi = alibi(c.heads, static_cast<double>(o ? o->size("alibi_bias_max", 8, 64) : 8));
  if (!o) return;
  if (o->has("clip_qkv")) c.clip_qkv = o->positive("clip_qkv");
  if (o->has("softmax_scale")) c.attention_scale = o->positive("softmax_scale");
  if (o->text("attn_type", "multihead_attention") != "multihead_attention")
    o->refuse("attn_type", "'multihead_attention'");
  o->expect("alibi", true);
  for (const char* key : {"prefix_lm", "qk_ln", "qk_gn", "attn_uses_sequence_id", "rope"})
    o->expect(key, false);
  for (const std::string_view key : kHarmlessKeys) o->ignore({key});
  o->ignore({"attn_pdrop", "attn_impl", "model_type", "dtype"});
  o->refuse_unread();
}

void read(ConfigReader& r, ModelConfig& c) {
  read_sizes(r, c, {.dim = "d_model", .layers = "n_layers", .heads = "n_heads"});
  c.ffn = 4 * c.dim;
  if (r.number("expansion_ratio", 4) != 4) r.refuse("expansion_ratio", "4");
  c.context = r.size("max_seq_len", 2048, int64_t{1} << 30);
  c.norm = Norm::layer;
  c.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.activation = "gelu";
  c.tied = r.flag("tie_word_embeddings", true);
  c.no_rope.assign(static_cast<size_t>(c.layers), true);
  read_attention(r, c);
  r.expect_nothing("logit_scale");
  r.expect("no_bias", true);
  const std::string norm = r.text("norm_type", "low_precision_layernorm");
  if (norm != "low_precision_layernorm" && norm != "layernorm")
    r.refuse("norm_type", "'low_precision_layernorm' or 'layernorm'");
  // How training begins, and positions, which models with these biases lack.
  r.ignore({"init_config", "init_device", "embedding_fraction", "emb_pdrop", "learned_pos_emb",
            "tokenizer_name", "verbose"});
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".attn";
  Value qkv = p.project(normed, name + ".Wqkv", c.dim, 3 * c.dim);
  if (c.clip_qkv > 0) qkv = p.clipped(qkv, c.clip_qkv);
  return decoder_attend(p, split_heads(p, qkv), layer, name, residual, "out_proj");
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".ffn", "up_proj", "down_proj", residual);
}

Value hidden(Step& p) {
  return decoder_layers(
      p, p.embed("transformer.wte"), attention, mlp,
      {.layers = "transformer.blocks.", .first_norm = ".norm_1", .second_norm = ".norm_2"});
}

Value last_norm(Step& p, Value x) { return p.norm(x, "transformer.norm_f", p.c.dim); }

Value head(Step& p, Value normed) { return tied_head(p, normed, "transformer.wte"); }

}  // namespace

const Architecture kMpt = {"mpt", "MptForCausalLM", read, hidden, last_norm,
                           head,  "MPTForCausalLM"};

}  // namespace tenon::llm
