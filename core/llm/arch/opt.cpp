// SPDX-License-Identifier: Apache-2.0
// OPT: learned positions, LayerNorm in front of each part or behind it, an MLP without a gate.
// BioGPT and XGLM scale the embedding; the positions of XGLM are sines and cosines, not weights.
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

void read_xglm(ConfigReader& r, ModelConfig& c) {
  // Of a file with both names of a size, transformers takes the usual one.
  const auto key = [&](std::string_view own, std::string_view usual) {
    r.ignore({own});
    return r.has(usual) ? usual : own;
  };
  const SizeKeys keys = {.dim = key("d_model", kUsualSizes.dim),
                         .layers = key("num_layers", kUsualSizes.layers),
                         .heads = key("attention_heads", kUsualSizes.heads)};
  read_common(r, c, keys);
  if (c.dim < 4) r.refuse(keys.dim, "4 or more, for two frequencies of positions");
  read_scale(r, c);
  c.ffn = r.size("ffn_dim", 4096);
  c.context = r.size("max_position_embeddings", 2048, int64_t{1} << 30);
  c.activation = read_activation(r, "activation_function", "gelu");
  // The row of the table of positions that has the number of the padding token is 0.
  if (!r.is_null("pad_token_id")) {
    const int64_t padding = r.integer("pad_token_id", 1);
    if (padding < 0) r.refuse("pad_token_id", "null, or a number from 0 on");
    c.zero_position = padding - kUnused;
  }
  r.expect("add_cross_attention", false);
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

// For each position, the sines of its angles, then the cosines, then 0 if `dim` is odd. Angles are
// products of f32, as transformers has them: those of late positions are far from the exact ones.
std::vector<float> sinusoids(int64_t positions, int64_t dim, int64_t zero_position) {
  const int64_t half = dim / 2;
  const auto step = static_cast<float>(-std::log(1e4) / static_cast<double>(half - 1));
  std::vector<float> frequencies;
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(i) * step;
    frequencies.push_back(static_cast<float>(std::exp(static_cast<double>(exponent))));
  }
  std::vector<float> out(static_cast<size_t>(positions * dim));
  for (int64_t p = 0; p < positions; ++p) {
    if (p == zero_position) continue;
    float* const row = out.data() + p * dim;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p + kUnused) * frequencies[static_cast<size_t>(i)];
      row[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
      row[half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    }
  }
  return out;
}

Value xglm_hidden(Step& p) {
  const int64_t rows = p.s.capacity, dim = p.c.dim, zero = p.c.zero_position;
  const Value table = p.table("positions", {rows, dim}, [=] { return sinusoids(rows, dim, zero); });
  const Value places = p.g.add(op::gather{.data = table, .indices = p.positions()}, "places");
  const Value x = p.binary("add", p.embed("model.embed_tokens"), p.cast(places, p.s.compute));
  return layers(p, x, "model.layers.");
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

Value xglm_norm(Step& p, Value x) { return p.norm(x, "model.layer_norm", p.c.dim); }

}  // namespace

const Architecture kOpt = {"opt", "OPTForCausalLM", read, hidden, last_norm, head};
const Architecture kBioGpt = {"biogpt",      "BioGptForCausalLM", read_biogpt,
                              biogpt_hidden, biogpt_norm,         biogpt_head};
const Architecture kXglm = {"xglm",      "XGLMForCausalLM", read_xglm,
                            xglm_hidden, xglm_norm,         decoder_head};

}  // namespace tenon::llm
