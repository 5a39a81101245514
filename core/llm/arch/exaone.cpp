// SPDX-License-Identifier: Apache-2.0
// EXAONE 4: norms behind attention and MLP, norms of q and k, and rope in layers with a window
// only. K-EXAONE: norms in front, and experts as DeepSeek-V3 chooses them.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

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

Value moe_hidden(Step& p) { return decoder_layers(p, decoder_attention, feed_forward); }

Value hidden(Step& p) {
  return decoder_layers(p, decoder_attention, decoder_feed_forward,
                        {.behind_attention = ".post_attention_layernorm",
                         .behind_mlp = ".post_feedforward_layernorm"});
}

}  // namespace

const Architecture kExaoneMoe = {"exaone_moe", "ExaoneMoeForCausalLM", read_moe,
                                 moe_hidden,   decoder_norm,           decoder_head};
const Architecture kExaone4 = {"exaone4", "Exaone4ForCausalLM", read,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
