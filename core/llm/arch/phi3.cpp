// SPDX-License-Identifier: Apache-2.0
// Phi-3: one product for q, k and v, and one for gate and up.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  r.ignore({"original_max_position_embeddings"});  // counts for longrope only
  c.rope = read_rope(r, c.head_dim, c.context, 1e4, 1);
  read_window(r, c, 0);
  r.expect("attention_bias", false);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".self_attn";
  const int64_t q_dim = c.heads * c.head_dim, kv_dim = c.kv_heads * c.head_dim;
  const Value qkv = p.project(normed, name + ".qkv_proj", c.dim, q_dim + 2 * kv_dim);
  const auto heads = [&](int64_t start, int64_t count) {
    return p.heads(p.part(qkv, {p.s.batch, p.s.time}, start, count * c.head_dim), count,
                   c.head_dim);
  };
  return decoder_attend(
      p, {heads(0, c.heads), heads(q_dim, c.kv_heads), heads(q_dim + kv_dim, c.kv_heads)}, layer,
      name, residual);
}

Value mlp(Step& p, Value normed, int64_t, const std::string& layer_name, Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".mlp";
  const Value both = p.project(normed, name + ".gate_up_proj", c.dim, 2 * c.ffn);
  return p.project(p.gated(both, {}, c.activation, name + ".act"), name + ".down_proj", c.ffn,
                   c.dim, false, residual);
}

Value hidden(Step& p) { return decoder_layers(p, attention, mlp); }

}  // namespace

const Architecture kPhi3 = {"phi3", "Phi3ForCausalLM", read, hidden, decoder_norm, decoder_head};

}  // namespace tenon::llm
