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
  c.norm = Norm::layer, c.norm_bias = true;
  c.mlp_bias = true;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", true);
  c.parallel = r.flag("use_parallel_residual", true);
  // rope_parameters since transformers 5; rotary_emb_base and rotary_pct before.
  c.rope = read_rope(r, c.head_dim, c.context, read_own(r, "rotary_emb_base", "rope_theta", 1e4),
                     read_own(r, "rotary_pct", "partial_rotary_factor", 0.25));
  r.ignore({"classifier_dropout", "is_decoder"});
}

// Rows of the product are [heads, 3, head_dim]; in files of GGUF [3, heads, head_dim].
Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  const ModelConfig& c = p.c;
  const bool flat = p.weights.has(name + ".qkv.weight");
  const Value qkv =
      p.project(normed, name + (flat ? ".qkv" : ".query_key_value"), c.dim, 3 * c.dim, c.qkv_bias);
  const auto heads = [&](int64_t which) {
    if (flat)
      return p.heads(p.part(qkv, {p.s.batch, p.s.time}, which * c.dim, c.dim), c.heads, c.head_dim);
    return p.part(p.heads(qkv, c.heads, 3 * c.head_dim), {p.s.batch, p.s.time, c.heads},
                  which * c.head_dim, c.head_dim);
  };
  return decoder_attend(p, {heads(0), heads(1), heads(2)}, layer, name, residual, "dense");
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  Value x = p.embed("gpt_neox.embed_in");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "gpt_neox.layers." + std::to_string(i);
    const Value a =
        attention(p, p.norm(x, name + ".input_layernorm", c.dim), i, name + ".attention", x);
    const Value m = p.norm(c.parallel ? x : a, name + ".post_attention_layernorm", c.dim);
    x = p.layer_end(x, plain_mlp(p, m, name + ".mlp", "dense_h_to_4h", "dense_4h_to_h", a));
  }
  return x;
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
