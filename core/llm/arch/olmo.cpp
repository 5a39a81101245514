// SPDX-License-Identifier: Apache-2.0
// OLMo 2: norms behind attention and MLP instead of in front of them, and norms of all heads of q and
// of k together.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
}

Value attention(Step& p, Value x, int64_t layer, const std::string& name) {
  const ModelConfig& c = p.c;
  const int64_t q_dims = c.heads * c.head_dim, kv_dims = c.kv_heads * c.head_dim;
  const auto project = [&](const char* which, int64_t dims) {
    return p.project(x, name + which, c.dim, dims, c.qkv_bias);
  };
  const Value q = p.rms_norm(project(".q_proj", q_dims), name + ".q_norm", q_dims, c.norm_eps),
              k = p.rms_norm(project(".k_proj", kv_dims), name + ".k_norm", kv_dims, c.norm_eps);
  return decoder_attend(p,
                        {p.heads(q, c.heads, c.head_dim), p.heads(k, c.kv_heads, c.head_dim),
                         p.heads(project(".v_proj", kv_dims), c.kv_heads, c.head_dim)},
                        layer, name, {});
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  Value x = p.embed("model.embed_tokens");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    const auto add = [&](Value more, const char* norm) {
      x = p.binary("add", x, p.rms_norm(more, name + norm, c.dim, c.norm_eps));
    };
    add(attention(p, x, i, name + ".self_attn"), ".post_attention_layernorm");
    add(decoder_mlp(p, x, name + ".mlp", c.ffn, {}), ".post_feedforward_layernorm");
  }
  return x;
}

}  // namespace

const Architecture kOlmo2 = {"olmo2", "Olmo2ForCausalLM", read, hidden, decoder_norm, decoder_head};

}  // namespace tenon::llm
