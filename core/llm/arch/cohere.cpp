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
Value own_norms(Step& p, Value heads, const std::string& name, int64_t count) {
  return norm_heads(p, heads, p.weight(name + ".weight", {count, p.c.head_dim}), name);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual, {.norm = own_norms});
}

Value hidden(Step& p) { return decoder_layers(p, attention, decoder_feed_forward); }

}  // namespace

const Architecture kCohere = {"cohere", "CohereForCausalLM", read_cohere,
                              hidden,   decoder_norm,        decoder_head};
const Architecture kCohere2 = {"cohere2", "Cohere2ForCausalLM", read_cohere2,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
