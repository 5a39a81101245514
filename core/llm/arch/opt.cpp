// SPDX-License-Identifier: Apache-2.0
// OPT: learned positions, LayerNorm in front of each part or behind it, an MLP without a gate.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

constexpr int64_t kUnused = 2;  // rows of the positions that belong to none
constexpr const char* kDecoder = "model.decoder.";

void read(ConfigReader& r, ModelConfig& c) {
  c.dim = r.size("hidden_size");
  c.ffn = r.size("ffn_dim", 3072);
  c.layers = r.size("num_hidden_layers", {}, 4096);
  c.heads = c.kv_heads = r.size("num_attention_heads", {}, 1 << 16);
  if (c.dim % c.heads != 0)
    r.refuse("num_attention_heads", "a divisor of hidden_size " + std::to_string(c.dim));
  c.head_dim = c.dim / c.heads;
  c.context = r.size("max_position_embeddings", 2048, int64_t{1} << 30);
  c.embed_dim = r.size("word_embed_proj_dim", c.dim);
  c.norms_behind = !r.flag("do_layer_norm_before", true);
  c.last_norm = !c.norms_behind && !r.flag("_remove_final_layer_norm", false);
  r.ignore({"_remove_final_layer_norm"});
  c.norm = r.flag("layer_norm_elementwise_affine", true) ? Norm::layer : Norm::bare_layer;
  c.norm_bias = true;
  c.norm_eps = 1e-5;
  c.activation = read_activation(r, "activation_function", "relu");
  c.qkv_bias = c.o_bias = c.mlp_bias = r.flag("enable_bias", true);
  c.tied = r.flag("tie_word_embeddings", true);
  c.local.assign(static_cast<size_t>(c.layers), false);
  c.sparse.assign(static_cast<size_t>(c.layers), false);
  c.no_rope.assign(static_cast<size_t>(c.layers), true);
  // Of training.
  r.ignore({"dropout", "activation_dropout", "layerdrop", "init_std"});
}

// The norm behind a part, if the model has norms there.
Value behind(Step& p, Value sum, const std::string& name) {
  return p.c.norms_behind ? p.norm(sum, name, p.c.dim) : sum;
}

Value attention(Step& p, Value x, int64_t layer, const std::string& name, Value residual) {
  const Value sum = decoder_attention(p, x, layer, name, residual, {.output = "out_proj"});
  return behind(p, sum, name + ".self_attn_layer_norm");
}

Value mlp(Step& p, Value x, int64_t, const std::string& name, Value residual) {
  return behind(p, plain_mlp(p, x, name, "fc1", "fc2", residual), name + ".final_layer_norm");
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  const std::string decoder = kDecoder;
  Value x = p.embed(decoder + "embed_tokens");
  if (c.embed_dim != c.dim) x = p.project(x, decoder + "project_in", c.embed_dim, c.dim);
  x = with_positions(p, x, decoder + "embed_positions", kUnused);
  const bool before = !c.norms_behind;
  return decoder_layers(p, x, attention, mlp,
                        {.layers = "model.decoder.layers.",
                         .first_norm = before ? ".self_attn_layer_norm" : "",
                         .second_norm = before ? ".final_layer_norm" : ""});
}

Value last_norm(Step& p, Value x) {
  return p.c.last_norm ? p.norm(x, std::string(kDecoder) + "final_layer_norm", p.c.dim) : x;
}

Value head(Step& p, Value normed) {
  const ModelConfig& c = p.c;
  const std::string decoder = kDecoder;
  if (c.embed_dim == c.dim) return tied_head(p, normed, decoder + "embed_tokens");
  const Value x = p.project(normed, decoder + "project_out", c.dim, c.embed_dim);
  const Value w =
      p.weight(c.tied ? decoder + "embed_tokens.weight" : "lm_head.weight", {c.vocab, c.embed_dim});
  return p.multiply(x, w, "lm_head", true, {}, {}, true);
}

}  // namespace

const Architecture kOpt = {"opt", "OPTForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
