// SPDX-License-Identifier: Apache-2.0
// EXAONE 3: Llama by other names. EXAONE 4: norms behind attention and MLP, norms of q and k, and rope in
// layers with a window only. K-EXAONE: norms in front, and experts as DeepSeek-V3 chooses them.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

// transformers runs it as Llama, and writes Llama's names of keys, but not of weights.
void read3(ConfigReader& r, ModelConfig& c) {
  const auto either = [&](const char* own, const char* usual) { return r.has(own) ? own : usual; };
  read_decoder(r, c,
               {.norm_eps = 1e-5,
                .activation_key = either("activation_function", "hidden_act"),
                .eps_key = either("layer_norm_epsilon", "rms_norm_eps"),
                .layers_key = either("num_layers", "num_hidden_layers")});
  c.rope = read_rope(r, c.head_dim, c.context, 5e5);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  r.ignore({"embed_dropout"});
}

// A number, or a text of one letter for each layer of a period: L has the window, G sees all.
std::vector<bool> read_pattern(ConfigReader& r) {
  constexpr const char* kKey = "sliding_window_pattern";
  std::vector<bool> out;
  if (r.is_text(kKey)) {
    for (const char c : r.text(kKey)) {
      if (c != 'L' && c != 'G') r.refuse(kKey, "a number, or letters L and G");
      out.push_back(c == 'L');
    }
    if (out.empty()) r.refuse(kKey, "a number, or letters L and G");
    return out;
  }
  out.assign(static_cast<size_t>(r.size(kKey, 4, 4096)), true);
  out.back() = false;
  return out;
}

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qk_norm = true;
  if (r.is_null("sliding_window")) {  // then all layers see all, and have rope
    r.ignore({"sliding_window", "sliding_window_pattern", "layer_types"});
    return;
  }
  c.window = r.size("sliding_window", 4096, int64_t{1} << 30);
  const std::vector<bool> pattern = read_pattern(r);
  if (r.has("layer_types")) {
    read_layer_types(r, c, nullptr);
  } else {
    for (size_t i = 0; i < c.local.size(); ++i) c.local[i] = pattern[i % pattern.size()];
  }
  for (const bool local : c.local) c.no_rope.push_back(!local);
}

void read_moe(ConfigReader& r, ModelConfig& c) {
  read(r, c);
  read_grouped_experts(r, c,
                       {.experts = 64,
                        .per_token = 8,
                        .shared = 1,
                        .ffn = 1024,
                        .dense_layers = 1,
                        .normalize = true,
                        .scaling = 2.5,
                        .experts_key = "num_experts",
                        .shared_key = "num_shared_experts",
                        .by_types = true});
  if (c.moe.shared_ffn == 0) r.refuse("num_shared_experts", "1 to 64");
  // Layers that predict further tokens.
  r.ignore({"num_nextn_predict_layers", "mtp_loss_scaling_factor"});
}

Value feed_forward(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                   Value residual) {
  const ModelConfig& c = p.c;
  if (!c.sparse[static_cast<size_t>(layer)])
    return decoder_feed_forward(p, normed, layer, layer_name, residual);
  const std::string name = layer_name + ".mlp";
  return experts(p, normed,
                 {.router = name + ".gate",
                  .experts = name + ".experts",
                  .gate = "gate_proj",
                  .up = "up_proj",
                  .down = "down_proj",
                  .correction = name + ".e_score_correction_bias"},
                 decoder_mlp(p, normed, name + ".shared_experts", c.moe.shared_ffn, residual));
}

constexpr const char* kEmbedding = "transformer.wte";

Value attention3(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual,
                           {.part = ".attn.attention", .output = "out_proj"});
}

Value mlp3(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return decoder_mlp(p, normed, name + ".mlp", p.c.ffn, residual,
                     {.gate = "c_fc_0", .up = "c_fc_1", .down = "c_proj"});
}

Value hidden3(Step& p) {
  return decoder_layers(
      p, p.embed(kEmbedding), attention3, mlp3,
      LayerForm{.layers = "transformer.h.", .first_norm = ".ln_1", .second_norm = ".ln_2"});
}

Value norm3(Step& p, Value x) { return p.norm(x, "transformer.ln_f", p.c.dim); }

Value head3(Step& p, Value normed) { return tied_head(p, normed, kEmbedding); }

Value moe_hidden(Step& p) { return decoder_layers(p, decoder_attention, feed_forward); }

Value hidden(Step& p) {
  return decoder_layers(p, decoder_attention, decoder_feed_forward,
                        {.behind_attention = ".post_attention_layernorm",
                         .behind_mlp = ".post_feedforward_layernorm"});
}

}  // namespace

const Architecture kExaone = {"exaone", "ExaoneForCausalLM", read3, hidden3, norm3,
                              head3,    "LlamaForCausalLM"};
const Architecture kExaoneMoe = {"exaone_moe", "ExaoneMoeForCausalLM", read_moe,
                                 moe_hidden,   decoder_norm,           decoder_head};
const Architecture kExaone4 = {"exaone4", "Exaone4ForCausalLM", read,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
