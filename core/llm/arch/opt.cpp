// SPDX-License-Identifier: Apache-2.0
// OPT: learned positions, LayerNorm in front of each part or behind it, an MLP without a gate.
// BioGPT scales the embedding.
#include <cmath>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

constexpr int64_t kUnused = 2;  // rows of the positions that belong to none
constexpr const char* kDecoder = "model.decoder.";

void read_common(ConfigReader& r, ModelConfig& c, const SizeKeys& keys) {
  read_sizes(r, c, keys);
  c.norm = Norm::layer, c.norm_bias = true;
  c.norm_eps = 1e-5;
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
  c.tied = r.flag("tie_word_embeddings", true);
  c.no_rope.assign(static_cast<size_t>(c.layers), true);
  // Of training.
  r.ignore({"dropout", "activation_dropout", "layerdrop", "init_std"});
}

constexpr SizeKeys kUsualSizes = {
    .dim = "hidden_size", .layers = "num_hidden_layers", .heads = "num_attention_heads"};

void read(ConfigReader& r, ModelConfig& c) {
  read_common(r, c, kUsualSizes);
  c.ffn = r.size("ffn_dim", 3072);
  c.context = r.size("max_position_embeddings", 2048, int64_t{1} << 30);
  c.embed_dim = r.size("word_embed_proj_dim", c.dim);
  c.norms_behind = !r.flag("do_layer_norm_before", true);
  c.last_norm = !c.norms_behind && !r.flag("_remove_final_layer_norm", false);
  r.ignore({"_remove_final_layer_norm"});
  c.norm = r.flag("layer_norm_elementwise_affine", true) ? Norm::layer : Norm::bare_layer;
  c.activation = read_activation(r, "activation_function", "relu");
  c.qkv_bias = c.o_bias = c.mlp_bias = r.flag("enable_bias", true);
}

void read_scale(ConfigReader& r, ModelConfig& c) {
  if (r.flag("scale_embedding", true)) c.embed_scale = std::sqrt(static_cast<double>(c.dim));
}

void read_biogpt(ConfigReader& r, ModelConfig& c) {
  read_common(r, c, kUsualSizes);
  read_scale(r, c);
  c.ffn = r.size("intermediate_size", 4096);
  c.context = r.size("max_position_embeddings", 1024, int64_t{1} << 30);
  c.activation = read_activation(r, "hidden_act", "gelu");
  // transformers does not read the eps.
  r.ignore({"layer_norm_eps", "attention_probs_dropout_prob"});
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

Value layers(Step& p, Value x, std::string_view name) {
  const bool before = !p.c.norms_behind;
  return decoder_layers(p, x, attention, mlp,
                        {.layers = name,
                         .first_norm = before ? ".self_attn_layer_norm" : "",
                         .second_norm = before ? ".final_layer_norm" : ""});
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  const std::string decoder = kDecoder;
  Value x = p.embed(decoder + "embed_tokens");
  if (c.embed_dim != c.dim) x = p.project(x, decoder + "project_in", c.embed_dim, c.dim);
  return layers(p, with_positions(p, x, decoder + "embed_positions", kUnused),
                "model.decoder.layers.");
}

Value biogpt_hidden(Step& p) {
  const Value x = p.embed("biogpt.embed_tokens");
  return layers(p, with_positions(p, x, "biogpt.embed_positions", kUnused), "biogpt.layers.");
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

Value biogpt_norm(Step& p, Value x) { return p.norm(x, "biogpt.layer_norm", p.c.dim); }

Value biogpt_head(Step& p, Value normed) {
  const ModelConfig& c = p.c;
  const std::string name = "output_projection";
  const Value w = p.weight((c.tied ? "biogpt.embed_tokens" : name) + ".weight", {c.vocab, c.dim});
  return p.multiply(normed, w, name, true, {}, {}, true);
}

}  // namespace

const Architecture kOpt = {"opt", "OPTForCausalLM", read, hidden, last_norm, head};
const Architecture kBioGpt = {"biogpt",      "BioGptForCausalLM", read_biogpt,
                              biogpt_hidden, biogpt_norm,         biogpt_head};

}  // namespace tenon::llm
