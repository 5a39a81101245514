// SPDX-License-Identifier: Apache-2.0
// LFM2: layers of a short convolution between two gates, and some layers of attention. With experts:
// layers behind the first ones choose some, as DeepSeek-V3 does.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_shared(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .tied = true, .eps_key = "norm_eps", .has_ffn = false});
  if (c.activation != "silu") r.refuse("hidden_act", "'silu'");
  c.tied = r.flag("tie_embedding", c.tied);  // of older files
  c.rope = read_rope(r, c.head_dim, c.context, 1e6);
  c.qk_norm = true;
  c.short_conv.width = r.size("conv_L_cache", 3, 64);
  if (c.short_conv.width < 2) r.refuse("conv_L_cache", "2 to 64");
  c.short_conv.bias = r.flag("conv_bias", false);
  r.expect("use_pos_enc", true);
  // Other names of sizes, which transformers does not read, and initial values.
  r.ignore({"block_dim", "conv_dim", "conv_dim_out", "num_heads", "theta", "block_norm_eps",
            "block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init",
            "conv_use_xavier_init"});
}

void read_lfm2(ConfigReader& r, ModelConfig& c) {
  read_shared(r, c);
  r.expect("block_use_swiglu", true);
  c.ffn = r.size("block_ff_dim", c.ffn > 0 ? c.ffn : 12288);
  const int64_t multiple = r.size("block_multiple_of", 256);
  const bool has_factor = !r.is_null("block_ffn_dim_multiplier");
  const double factor = r.positive("block_ffn_dim_multiplier", 1);
  if (r.flag("block_auto_adjust_ff_dim", true)) {
    c.ffn = 2 * c.ffn / 3;
    if (has_factor) {
      const double most = factor * static_cast<double>(c.ffn);
      if (!(most >= 1 && most <= 1 << 20))
        r.refuse("block_ffn_dim_multiplier", "a factor that gives an MLP of 1 to 1048576");
      c.ffn = (static_cast<int64_t>(most) + multiple - 1) / multiple * multiple;
    }
  }
  const bool listed = r.has("full_attn_idxs");
  const std::vector<int64_t> attention = r.integers("full_attn_idxs");
  read_recurrent_layers(r, c, "conv", [&](int64_t layer) {
    return listed && std::ranges::find(attention, layer) == attention.end();
  });
}

void read_moe(ConfigReader& r, ModelConfig& c) {
  read_shared(r, c);
  if (c.ffn == 0) c.ffn = 7168;
  c.moe.experts = r.size("num_experts", 32, 1 << 16);
  c.moe.per_token = r.size("num_experts_per_tok", 4, c.moe.experts);
  c.moe.ffn = r.size("moe_intermediate_size", 1792);
  c.moe.score = "sigmoid";
  c.moe.correction_bias = r.flag("use_expert_bias", true);
  c.moe.normalize = r.flag("norm_topk_prob", true);
  c.moe.scaling = r.number("routed_scaling_factor", 1);
  const int64_t dense = r.integer("num_dense_layers", 2);
  if (dense < 0) r.refuse("num_dense_layers", "a number of layers");
  for (int64_t i = 0; i < c.layers; ++i) c.sparse[static_cast<size_t>(i)] = i >= dense;
  if (!r.has("layer_types"))
    r.refuse("layer_types", "a list of 'conv' and 'full_attention', one for each layer");
  read_recurrent_layers(r, c, "conv", nullptr);
}

Value attention(Step& p, Value x, int64_t layer, const std::string& name, Value residual) {
  const ModelConfig& c = p.c;
  Heads heads = decoder_heads(p, x, name);
  heads.q = p.norm(heads.q, name + ".q_layernorm", c.head_dim);
  heads.k = p.norm(heads.k, name + ".k_layernorm", c.head_dim);
  return decoder_attend(p, heads, layer, name, residual, "out_proj");
}

// in_proj gives two gates and what is convolved, with one gate in front of the convolution.
Value convolution(Step& p, Value x, int64_t layer, const std::string& name, Value residual) {
  const ModelConfig& c = p.c;
  const bool bias = c.short_conv.bias;
  const Value all = p.project(x, name + ".in_proj", c.dim, 3 * c.dim, bias);
  const auto part = [&](int64_t i) { return p.part(all, {p.s.batch, p.s.time}, i * c.dim, c.dim); };
  const Value y = convolved(p, p.binary("mul", part(0), part(2)), {c.dim, c.short_conv.width, bias},
                            name + ".conv", std::to_string(layer) + ".conv");
  return p.project(p.binary("mul", part(1), y), name + ".out_proj", c.dim, c.dim, bias, residual);
}

Value feed_forward(Step& p, Value x, int64_t layer, const std::string& name, Value residual) {
  if (!p.c.sparse[static_cast<size_t>(layer)])
    return decoder_mlp(p, x, name, p.c.ffn, residual, {.gate = "w1", .up = "w3", .down = "w2"});
  return experts(p, x,
                 {.router = name + ".gate",
                  .experts = name + ".experts",
                  .gate = "w1",
                  .up = "w3",
                  .down = "w2",
                  .correction = name + ".expert_bias"},
                 residual);
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  Value x = p.embed("model.embed_tokens");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    const Value normed = p.norm(x, name + ".operator_norm", c.dim);
    const Value y = c.recurrent_layers[static_cast<size_t>(i)]
                        ? convolution(p, normed, i, name + ".conv", x)
                        : attention(p, normed, i, name + ".self_attn", x);
    x = p.layer_end(
        x, feed_forward(p, p.norm(y, name + ".ffn_norm", c.dim), i, name + ".feed_forward", y));
  }
  return x;
}

Value last_norm(Step& p, Value x) { return p.norm(x, "model.embedding_norm", p.c.dim); }

}  // namespace

const Architecture kLfm2 = {"lfm2", "Lfm2ForCausalLM", read_lfm2, hidden, last_norm, decoder_head};
const Architecture kLfm2Moe = {"lfm2_moe", "Lfm2MoeForCausalLM", read_moe, hidden,
                               last_norm,  decoder_head};

}  // namespace tenon::llm
