// SPDX-License-Identifier: Apache-2.0
// GPT-Neo: GPT-2 with a product for each of q, k and v, scores that are not scaled, and a window in
// some layers. StarCoder (GPT-BigCode): GPT-2 with one head of keys.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

// attention_types: pairs of a list of kinds and how often it is repeated.
void read_windows(ConfigReader& r, ModelConfig& c) {
  std::vector<std::string> kinds = r.repeated_texts("attention_types");
  if (!r.has("attention_types"))
    for (int i = 0; i < 12; ++i) kinds.insert(kinds.end(), {"global", "local"});
  const auto layers = static_cast<size_t>(c.layers);
  if (kinds.size() != layers)
    r.refuse("attention_types", "a kind for each of the " + std::to_string(layers) + " layers");
  for (size_t i = 0; i < layers; ++i) {
    if (kinds[i] != "global" && kinds[i] != "local")
      r.refuse("attention_types", "kinds 'global' and 'local'");
    c.local[i] = kinds[i] == "local";
  }
  // A copy that transformers does not read.
  if (const std::vector<std::string> copy = r.texts("attention_layers");
      !copy.empty() && copy != kinds)
    r.refuse("attention_layers", "the kinds of attention_types");
}

void read_neo(ConfigReader& r, ModelConfig& c) {
  c.dim = r.size("hidden_size");
  c.layers = r.size("num_layers", {}, 4096);
  c.heads = c.kv_heads = r.size("num_heads", {}, 1 << 16);
  if (c.dim % c.heads != 0)
    r.refuse("num_heads", "a divisor of hidden_size " + std::to_string(c.dim));
  c.head_dim = c.dim / c.heads;
  c.ffn = r.size("intermediate_size", 4 * c.dim, int64_t{1} << 22);
  c.context = r.size("max_position_embeddings", 2048, int64_t{1} << 30);
  c.norm = Norm::layer, c.norm_bias = true;
  c.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.activation = read_activation(r, "activation_function", "gelu_new");
  c.tied = r.flag("tie_word_embeddings", true);
  c.o_bias = c.mlp_bias = true;
  c.attention_scale = 1;
  c.window = r.size("window_size", 256, int64_t{1} << 30);
  c.local.assign(static_cast<size_t>(c.layers), false);
  c.sparse.assign(static_cast<size_t>(c.layers), false);
  c.no_rope.assign(static_cast<size_t>(c.layers), true);
  read_windows(r, c);
  // Of training.
  r.ignore({"resid_dropout", "embed_dropout", "classifier_dropout", "gradient_checkpointing",
            "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
            "summary_first_dropout"});
}

void read_bigcode(ConfigReader& r, ModelConfig& c) {
  read_gpt(r, c, {.activation = "gelu_pytorch_tanh"});
  if (r.flag("multi_query", true)) c.kv_heads = 1;
  if (!r.flag("scale_attn_weights", true)) c.attention_scale = 1;
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
  c.no_rope.assign(static_cast<size_t>(c.layers), true);
  r.expect("add_cross_attention", false);
  if (r.has("num_key_value_heads") && r.integer("num_key_value_heads") != c.kv_heads)
    r.refuse("num_key_value_heads", std::to_string(c.kv_heads) + " by 'multi_query'");
  // The precision of softmax, which is f32 anyway, and options of kernels.
  r.ignore({"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner",
            "validate_runner_input", "pre_allocate_kv_cache", "max_sequence_length",
            "max_batch_size", "pad_key_length"});
}

Value neo_attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual,
                           {.part = ".attn.attention", .output = "out_proj"});
}

Value bigcode_attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                        Value residual) {
  const std::string name = layer_name + ".attn";
  return decoder_attend(p, joined_heads(p, normed, name, "c_attn"), layer, name, residual,
                        "c_proj");
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "c_fc", "c_proj", residual);
}

Value layers(Step& p, LayerPart attention) {
  const Value x = with_positions(p, p.embed("transformer.wte"), "transformer.wpe");
  return decoder_layers(
      p, x, attention, mlp,
      {.layers = "transformer.h.", .first_norm = ".ln_1", .second_norm = ".ln_2"});
}

Value neo_hidden(Step& p) { return layers(p, neo_attention); }
Value bigcode_hidden(Step& p) { return layers(p, bigcode_attention); }

Value last_norm(Step& p, Value x) { return p.norm(x, "transformer.ln_f", p.c.dim); }

Value head(Step& p, Value normed) { return tied_head(p, normed, "transformer.wte"); }

}  // namespace

const Architecture kGptNeo = {"gpt_neo",  "GPTNeoForCausalLM", read_neo,
                              neo_hidden, last_norm,           head};
const Architecture kGptBigCode = {
    "gpt_bigcode", "GPTBigCodeForCausalLM", read_bigcode, bigcode_hidden, last_norm, head};

}  // namespace tenon::llm
