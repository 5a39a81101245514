// SPDX-License-Identifier: Apache-2.0
// Phi-3: one product for q, k and v, and one for gate and up.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  r.ignore({"original_max_position_embeddings"});  // counts for longrope only
  c.rope = read_rope(r, c.head_dim, c.context);
  read_window(r, c, 0);
  r.expect("attention_bias", false);
}

Value attention(Step& p, Value x, int64_t layer, Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = "model.layers." + std::to_string(layer) + ".self_attn";
  const int64_t q_dim = c.heads * c.head_dim, kv_dim = c.kv_heads * c.head_dim;
  const Value qkv = p.project(x, name + ".qkv_proj", c.dim, q_dim + 2 * kv_dim);
  const auto heads = [&](int64_t start, int64_t count) {
    return p.heads(p.part(qkv, {p.s.batch, p.s.time}, start, count * c.head_dim), count,
                   c.head_dim);
  };
  const Value q = p.rotate(heads(0, c.heads), c.rope, "rope", name + ".q_rope");
  const Value k = p.rotate(heads(q_dim, c.kv_heads), c.rope, "rope", name + ".k_rope");
  const std::string cache = std::to_string(layer);
  const Value keys = p.append(cache + ".k", k, c.kv_heads, c.head_dim);
  const Value values =
      p.append(cache + ".v", heads(q_dim + kv_dim, c.kv_heads), c.kv_heads, c.head_dim);
  const bool local = c.local[static_cast<size_t>(layer)];
  const Value o = p.attend(q, keys, values, {.window = local ? c.window : 0}, name);
  return p.project(p.reshape(o, {p.s.batch, p.s.time, q_dim}), name + ".o_proj", q_dim, c.dim,
                   false, residual);
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  Value x = p.embed("model.embed_tokens");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    x = attention(p, p.rms_norm(x, name + ".input_layernorm", c.dim, c.norm_eps), i, x);
    const Value m = p.rms_norm(x, name + ".post_attention_layernorm", c.dim, c.norm_eps);
    const Value both = p.project(m, name + ".mlp.gate_up_proj", c.dim, 2 * c.ffn);
    x = p.project(p.gated(both, {}, c.activation, name + ".mlp.act"), name + ".mlp.down_proj",
                  c.ffn, c.dim, false, x);
  }
  return x;
}

}  // namespace

const Architecture kPhi3 = {"phi3", "Phi3ForCausalLM", read, hidden, decoder_logits};

}  // namespace tenon::llm
