// SPDX-License-Identifier: Apache-2.0
// gpt-oss: attention with sinks, a window in every other layer, and experts with biases and limits.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = 64});
  if (c.activation != "silu") r.refuse("hidden_act", "'silu'");
  // transformers would scale the embedding of a file that says nothing.
  if (!r.has("rope_parameters") && !r.has("rope_scaling"))
    r.refuse("rope_parameters", "an object, also for rope_type 'default'");
  c.rope = read_rope(r, c.head_dim, c.context, 150000);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", true);
  c.window = r.size("sliding_window", 128, int64_t{1} << 30);
  read_layer_types(r, c, [](int64_t layer) { return layer % 2 == 0; });
  MoeConfig& m = c.moe;
  m.experts = r.size(r.has("num_experts") ? "num_experts" : "num_local_experts", 128, 1 << 16);
  m.per_token = r.size("num_experts_per_tok", 4, m.experts);
  m.ffn = c.ffn;
  m.biases = true;
  m.gate_limit = r.positive("swiglu_limit", 7);
  m.gate_alpha = r.positive("swiglu_alpha", 1.702);
  c.sparse.assign(c.sparse.size(), true);
  r.ignore({"experts_per_token", "initial_context_length"});  // copies
}

Value mixture(Step& p, Value normed, int64_t, const std::string& layer_name, Value residual) {
  const std::string name = layer_name + ".mlp";
  return experts(p, normed, {.router = name + ".router", .experts = name + ".experts"}, residual);
}

Value hidden(Step& p) { return decoder_layers(p, attention_with_sinks, mixture); }

}  // namespace

const Architecture kGptOss = {"gpt_oss", "GptOssForCausalLM", read,
                              hidden,    decoder_norm,        decoder_head};

}  // namespace tenon::llm
