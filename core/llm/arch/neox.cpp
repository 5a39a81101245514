// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX and Pythia: LayerNorm, one product for q, k and v, a part of each head rotated, an MLP
// without a gate.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

// transformers reads a number of rope from the object or under GPT-NeoX's own name, and ignores the
// name that other models have for it: that may only be a copy.
double read_own(ConfigReader& r, std::string_view own, std::string_view usual, double otherwise) {
  std::string_view from = own;
  double value = r.positive(own, otherwise);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    if (auto object = r.object(key); object && object->has(usual))
      from = key, value = object->positive(usual);
  if (r.has(usual) && r.positive(usual) != value)
    r.refuse(usual, shown(value) + " by '" + std::string(from) + "'");
  return value;
}

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .eps_key = "layer_norm_eps"});
  if (!r.has("hidden_act")) c.activation = "gelu";
  c.kv_heads = c.heads;  // transformers reads no num_key_value_heads
  c.norm = Norm::layer, c.norm_bias = true;
  c.mlp_bias = true;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", true);
  c.parallel = r.flag("use_parallel_residual", true);
  c.two_norms = true;
  // rope_parameters since transformers 5; rotary_emb_base and rotary_pct before.
  c.rope = read_rope(r, c.head_dim, c.context, read_own(r, "rotary_emb_base", "rope_theta", 1e4),
                     read_own(r, "rotary_pct", "partial_rotary_factor", 0.25));
  r.ignore({"classifier_dropout", "is_decoder"});
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return joined_attention(p, normed, layer, name + ".attention", residual);
}

Value hidden(Step& p) {
  return decoder_layers(p, p.embed("gpt_neox.embed_in"), attention, dense_mlp,
                        {.layers = "gpt_neox.layers."});
}

Value last_norm(Step& p, Value x) { return p.norm(x, "gpt_neox.final_layer_norm", p.c.dim); }

Value head(Step& p, Value normed) {
  const ModelConfig& c = p.c;
  const char* const name = c.tied                            ? "gpt_neox.embed_in.weight"
                           : p.weights.has("lm_head.weight") ? "lm_head.weight"
                                                             : "embed_out.weight";
  return p.multiply(normed, p.weight(name, {c.vocab, c.dim}), "embed_out", true, {}, {}, true);
}

}  // namespace

const Architecture kGptNeox = {"gpt_neox", "GPTNeoXForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
