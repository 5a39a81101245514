// SPDX-License-Identifier: Apache-2.0
// Command R of Cohere: LayerNorm without bias, attention and MLP side by side, neighbours rotated.
// The second version has layers with a window, and rotates nothing in the others.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_common(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .tied = true, .eps_key = "layer_norm_eps"});
  c.norm = Norm::layer;
  c.parallel = c.rope_interleaved = true;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.logit_scale = r.positive("logit_scale", 0.0625);
}

void read_cohere(ConfigReader& r, ModelConfig& c) {
  read_common(r, c);
  c.rope = read_rope(r, c.head_dim, c.context, 5e5);
  c.qk_norm = r.flag("use_qk_norm", false);
  r.ignore({"model_max_length"});
}

void read_cohere2(ConfigReader& r, ModelConfig& c) {
  read_common(r, c);
  c.rope = read_rope(r, c.head_dim, c.context);
  c.window = r.size("sliding_window", 4096, int64_t{1} << 30);
  const int64_t pattern = r.size("sliding_window_pattern", 4);
  if (r.has("layer_types")) {
    read_layer_types(r, c, nullptr);
  } else {
    for (int64_t i = 0; i < c.layers; ++i) c.local[static_cast<size_t>(i)] = (i + 1) % pattern != 0;
  }
  for (const bool local : c.local) c.no_rope.push_back(!local);
  // Files of the model's authors name what all of these models have.
  for (const char* key : {"use_gated_activation", "use_parallel_block"}) r.expect(key, true);
  if (r.number("rotary_pct", 1) != 1) r.refuse("rotary_pct", "1");
  if (r.text("position_embedding_type", "rope_gptj") != "rope_gptj")
    r.refuse("position_embedding_type", "'rope_gptj'");
  r.ignore({"layer_switch", "order_of_interleaved_layers", "use_embedding_sharing",
            "use_parallel_embedding"});
}

// Each head has weights of its own.
Value heads_norm(Step& p, Value x, const std::string& name, int64_t heads) {
  const Value y = p.g.add(op::layer_norm{.eps = p.c.norm_eps, .x = x}, name);
  return p.binary("mul", y, p.parameter(name + ".weight", {heads, p.c.head_dim}));
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const std::string name = layer_name + ".self_attn";
  Heads heads = decoder_heads(p, normed, name);
  if (p.c.qk_norm) {
    heads.q = heads_norm(p, heads.q, name + ".q_norm", p.c.heads);
    heads.k = heads_norm(p, heads.k, name + ".k_norm", p.c.kv_heads);
  }
  return decoder_attend(p, heads, layer, name, residual);
}

Value hidden(Step& p) { return decoder_layers(p, attention, decoder_feed_forward); }

}  // namespace

const Architecture kCohere = {"cohere", "CohereForCausalLM", read_cohere,
                              hidden,   decoder_norm,        decoder_head};
const Architecture kCohere2 = {"cohere2", "Cohere2ForCausalLM", read_cohere2,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
