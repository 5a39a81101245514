// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5: Llama with neighbours rotated; with experts, too, whose choice has a correction that
// their weights lack.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_common(ConfigReader& r, ModelConfig& c, int64_t head_dim) {
  read_decoder(r, c, {.norm_eps = 1e-5, .tied = true, .head_dim = head_dim});
  c.rope = read_rope(r, c.head_dim, c.context, 5e5);
  c.rope_interleaved = true;
  c.qkv_bias = c.o_bias = c.mlp_bias = r.flag("use_bias", false);
}

void read(ConfigReader& r, ModelConfig& c) { read_common(r, c, 128); }

void read_moe(ConfigReader& r, ModelConfig& c) {
  read_common(r, c, 0);
  MoeConfig& m = c.moe;
  m.experts = r.size("moe_num_experts", 64, 1 << 16);
  m.per_token = r.size("moe_k", 6, m.experts);
  m.ffn = r.size("moe_intermediate_size", 1536);
  const int64_t shared = r.integer("moe_num_shared_experts", 2);
  if (shared < 0 || shared > 64) r.refuse("moe_num_shared_experts", "0 to 64");
  m.shared_ffn = m.ffn * shared;
  m.correction_bias = true;
  const int64_t first = r.integer("moe_layer_start_index", 1),
                last = r.integer("moe_layer_end_index", -1),
                interval = r.size("moe_layer_interval", 1);
  for (int64_t i = 0; i < c.layers; ++i)
    c.sparse[static_cast<size_t>(i)] =
        (i + 1) % interval == 0 && i >= first && (last == -1 || i <= last);
  // A sum of weights below this counts as this much. The op adds 1e-20 instead.
  if (r.positive("moe_norm_min", 1e-12) > 1e-6) r.refuse("moe_norm_min", "at most 1e-6");
  // Names of what all of these models have.
  if (r.text("moe_gate", "topk") != "topk") r.refuse("moe_gate", "'topk'");
  for (const char* key : {"moe_use_aux_free", "use_rmsnorm"}) r.expect(key, true);
  // Of training, and of layers that predict further tokens, whose tensors are not used.
  r.ignore({"moe_capacity", "num_nextn_predict_layers"});
}

Value feed_forward(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                   Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".mlp";
  if (!c.sparse[static_cast<size_t>(layer)]) return decoder_mlp(p, normed, name, c.ffn, residual);
  if (c.moe.shared_ffn > 0)
    residual = decoder_mlp(p, normed, name + ".shared_experts", c.moe.shared_ffn, residual);
  return experts(p, normed,
                 {.router = name + ".gate",
                  .experts = name + ".experts",
                  .correction = name + ".moe_statics.e_score_correction_bias",
                  .correction_is_row = true},
                 residual);
}

Value moe_head(Step& p, Value normed) {
  const Value logits = decoder_head(p, normed);
  if (!p.c.mlp_bias) return logits;
  return p.binary("add", logits, p.wide("lm_head.bias", {p.c.vocab}));
}

Value moe_hidden(Step& p) { return decoder_layers(p, decoder_attention, feed_forward); }

}  // namespace

const Architecture kErnie = {"ernie4_5",     "Ernie4_5ForCausalLM", read,
                             decoder_hidden, decoder_norm,          decoder_head};
const Architecture kErnieMoe = {
    "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", read_moe, moe_hidden, decoder_norm, moe_head};

}  // namespace tenon::llm
