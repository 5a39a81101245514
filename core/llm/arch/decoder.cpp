// SPDX-License-Identifier: Apache-2.0
// The decoder that Llama, Mistral, Qwen, Mixtral and others share: RMSNorm, rotary embedding, grouped
// heads, gated MLP. Weights have the names of transformers.
#include "llm/arch/step.hpp"

namespace tenon::llm {

Value decoder_attention(Step& p, Value normed, int64_t layer, Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = "model.layers." + std::to_string(layer) + ".self_attn";
  const int64_t q_dim = c.heads * c.head_dim, kv_dim = c.kv_heads * c.head_dim;
  Value q =
      p.heads(p.project(normed, name + ".q_proj", c.dim, q_dim, c.qkv_bias), c.heads, c.head_dim);
  Value k = p.heads(p.project(normed, name + ".k_proj", c.dim, kv_dim, c.qkv_bias), c.kv_heads,
                    c.head_dim);
  const Value v = p.heads(p.project(normed, name + ".v_proj", c.dim, kv_dim, c.qkv_bias),
                          c.kv_heads, c.head_dim);
  if (c.qk_norm) {
    q = p.rms_norm(q, name + ".q_norm", c.head_dim, c.norm_eps);
    k = p.rms_norm(k, name + ".k_norm", c.head_dim, c.norm_eps);
  }
  const bool local = c.local[static_cast<size_t>(layer)];
  q = p.rotate(q, c.rope, "rope", name + ".q_rope", c.rope_interleaved);
  k = p.rotate(k, c.rope, "rope", name + ".k_rope", c.rope_interleaved);
  const std::string cache = std::to_string(layer);
  const Value keys = p.append(cache + ".k", k, c.kv_heads, c.head_dim);
  const Value values = p.append(cache + ".v", v, c.kv_heads, c.head_dim);
  const Value o = p.attend(
      q, keys, values,
      {.scale = c.attention_scale, .softcap = c.attention_softcap, .window = local ? c.window : 0},
      name);
  return p.project(p.reshape(o, {p.s.batch, p.s.time, q_dim}), name + ".o_proj", q_dim, c.dim,
                   c.o_bias, residual);
}

Value decoder_mlp(Step& p, Value x, const std::string& name, int64_t ffn, Value residual) {
  const ModelConfig& c = p.c;
  const Value gate = p.project(x, name + ".gate_proj", c.dim, ffn, c.mlp_bias);
  const Value up = p.project(x, name + ".up_proj", c.dim, ffn, c.mlp_bias);
  return p.project(p.gated(gate, up, c.activation, name + ".act"), name + ".down_proj", ffn, c.dim,
                   c.mlp_bias, residual);
}

Value decoder_hidden(Step& p) {
  const ModelConfig& c = p.c;
  Value x = p.embed("model.embed_tokens");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    x = decoder_attention(p, p.rms_norm(x, name + ".input_layernorm", c.dim, c.norm_eps), i, x);
    const Value m = p.rms_norm(x, name + ".post_attention_layernorm", c.dim, c.norm_eps);
    if (!c.sparse[static_cast<size_t>(i)]) {
      x = decoder_mlp(p, m, name + ".mlp", c.ffn, x);
      continue;
    }
    x = p.binary("add", x,
                 experts(p, m,
                         {.router = name + ".mlp.gate",
                          .experts = name + ".mlp.experts",
                          .gate = "gate_proj",
                          .up = "up_proj",
                          .down = "down_proj"}));
  }
  return x;
}

Value decoder_logits(Step& p, Value x) {
  const ModelConfig& c = p.c;
  const Value n = p.rms_norm(x, "model.norm", c.dim, c.norm_eps);
  const Value w =
      p.weight(c.tied ? "model.embed_tokens.weight" : "lm_head.weight", {c.vocab, c.dim});
  return p.multiply(n, w, "lm_head", true, {}, {}, true);
}

}  // namespace tenon::llm
