// SPDX-License-Identifier: Apache-2.0
// StarCoder 2, Nemotron and Jais 2: LayerNorm and an MLP without a gate.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_starcoder2(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .tied = true, .eps_key = "norm_epsilon"});
  if (!r.has("hidden_act")) c.activation = "gelu_tanh";
  c.norm = Norm::layer, c.norm_bias = true;
  c.qkv_bias = c.o_bias = c.mlp_bias = r.flag("use_bias", true);
  c.rope = read_rope(r, c.head_dim, c.context);
  read_window(r, c, 0);
  if (r.text("mlp_type", "default") != "default") r.refuse("mlp_type", "'default'");
  if (r.text("norm_type", "layer_norm") != "layer_norm") r.refuse("norm_type", "'layer_norm'");
  r.expect("scale_attn_weights", true);
  // A copy that does not count, and the precision of softmax, which is f32 anyway.
  r.ignore({"activation_function", "layer_norm_epsilon", "attention_softmax_in_fp32",
            "scale_attention_softmax_in_fp32"});
}

void read_nemotron(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .eps_key = "norm_eps"});
  if (!r.has("hidden_act")) c.activation = "relu2";
  c.norm = Norm::layer_plus_one, c.norm_bias = true;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  c.rope = read_rope(r, c.head_dim, c.context, 1e4, 0.5);
}

void read_jais2(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .eps_key = "layer_norm_eps"});
  if (!r.has("hidden_act")) c.activation = "relu2";
  c.norm = Norm::layer, c.norm_bias = true;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", true);
  c.mlp_bias = r.flag("mlp_bias", true);
  c.rope = read_rope(r, c.head_dim, c.context);
}

Value starcoder_mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "c_fc", "c_proj", residual);
}

Value up_and_down(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "up_proj", "down_proj", residual);
}

// Arcee: Llama with such an MLP.
void read_arcee(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  if (!r.has("hidden_act")) c.activation = "relu2";
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
}

Value starcoder_hidden(Step& p) { return decoder_layers(p, decoder_attention, starcoder_mlp); }
Value plain_hidden(Step& p) { return decoder_layers(p, decoder_attention, up_and_down); }

}  // namespace

const Architecture kStarcoder2 = {"starcoder2",    "Starcoder2ForCausalLM",
                                  read_starcoder2, starcoder_hidden,
                                  decoder_norm,    decoder_head};
const Architecture kNemotron = {"nemotron",   "NemotronForCausalLM", read_nemotron,
                                plain_hidden, decoder_norm,          decoder_head};
const Architecture kJais2 = {"jais2",      "Jais2ForCausalLM", read_jais2,
                             plain_hidden, decoder_norm,       decoder_head};
const Architecture kArcee = {"arcee",      "ArceeForCausalLM", read_arcee,
                             plain_hidden, decoder_norm,       decoder_head};

}  // namespace tenon::llm
