// SPDX-License-Identifier: Apache-2.0
// Nemotron-H: a layer is a norm and one of a mixer of Mamba-2, attention without positions, an MLP
// without a gate, and experts without gates.
#include "llm/arch/families.hpp"
#include "llm/arch/mamba_mixer.hpp"

namespace tenon::llm {
namespace {

// The letters of hybrid_override_pattern.
constexpr char kMixer = 'M', kAttention = '*', kMlp = '-', kExperts = 'E';

std::string pattern_of(ConfigReader& r) {
  if (r.has("hybrid_override_pattern")) {
    if (r.has("layers_block_type") || r.has("layer_types"))
      r.refuse("hybrid_override_pattern", "nothing beside a list of layers");
    const std::string pattern = r.text("hybrid_override_pattern");
    if (pattern.find_first_not_of("M*-E") != pattern.npos)
      r.refuse("hybrid_override_pattern", "the letters M, *, - and E");
    return pattern;
  }
  const char* const key = r.has("layers_block_type") ? "layers_block_type" : "layer_types";
  std::string out;
  for (const std::string& type : r.texts(key)) {
    const bool mixer = type == "linear_attention" || type == "mamba";
    const bool attention = type == "full_attention" || type == "attention";
    if (!mixer && !attention && type != "mlp" && type != "moe")
      r.refuse(key, "entries 'linear_attention', 'full_attention', 'mlp' and 'moe'");
    out += mixer ? kMixer : attention ? kAttention : type == "mlp" ? kMlp : kExperts;
  }
  return out;
}

void read_experts(ConfigReader& r, ModelConfig& c) {
  MoeConfig& m = c.moe;
  const char* const key = r.has("num_local_experts") ? "num_local_experts" : "n_routed_experts";
  m.experts = r.size(key, 8, 1 << 16);
  m.per_token = r.size("num_experts_per_tok", 2, m.experts);
  m.ffn = r.size("moe_intermediate_size", 7688);
  m.shared_ffn = r.size("moe_shared_expert_intermediate_size", 7688);
  m.scaling = r.positive("routed_scaling_factor", 1);
  m.normalize = r.flag("norm_topk_prob", true);
  m.score = "sigmoid", m.correction_bias = true;
  m.groups = r.size("n_group", 1, m.experts);
  m.groups_per_token = r.size("topk_group", 1, m.groups);
  if (m.experts % m.groups != 0 || (m.groups > 1 && m.experts / m.groups < 2))
    r.refuse("n_group", "groups of at least two experts each");
  if (m.groups > 1) m.group_score = "top2_sum";
  if (m.per_token > m.groups_per_token * (m.experts / m.groups))
    r.refuse("num_experts_per_tok", "at most the experts of topk_group groups");
  r.expect_nothing("moe_latent_size");
}

void read(ConfigReader& r, ModelConfig& c) {
  c.pattern = pattern_of(r);
  if (c.pattern.empty() || c.pattern.size() > 4096)
    r.refuse("layers_block_type", "a list of 1 to 4096 layers");
  const auto layers = static_cast<int64_t>(c.pattern.size());
  if (r.size("num_hidden_layers", layers, 4096) != layers)
    r.refuse("num_hidden_layers", std::to_string(layers) + ", the length of the list of layers");
  c.layers = layers;
  c.dim = r.size("hidden_size");
  c.heads = r.size("num_attention_heads", 32, 1 << 16);
  c.kv_heads = r.size("num_key_value_heads", 8, 1 << 16);
  if (c.heads % c.kv_heads != 0)
    r.refuse("num_key_value_heads",
             "a divisor of the " + std::to_string(c.heads) + " of num_attention_heads");
  const char* const head = r.has("attention_head_dim") ? "attention_head_dim" : "head_dim";
  c.head_dim = r.size(head, 128, 1 << 16);
  if (r.size("head_dim", c.head_dim, 1 << 16) != c.head_dim)
    r.refuse("head_dim", std::to_string(c.head_dim) + ", the value of attention_head_dim");
  c.context = r.size("max_position_embeddings", 4096, int64_t{1} << 30);
  c.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.tied = r.flag("tie_word_embeddings", false);
  c.ffn = r.size("intermediate_size", 21504);
  c.activation = read_activation(r, "mlp_hidden_act", "relu2");
  c.mlp_bias = r.flag("mlp_bias", false);
  const auto flags = static_cast<size_t>(layers);
  c.local.assign(flags, false), c.no_rope.assign(flags, true);
  for (const char type : c.pattern) c.recurrent_layers.push_back(type == kMixer);
  if (c.pattern.find(kExperts) != c.pattern.npos) read_experts(r, c);
  MambaConfig& m = c.mamba;
  m.heads = r.size("mamba_num_heads", 128);
  m.inner = m.heads * r.size("mamba_head_dim", 64);
  m.groups = r.size("n_groups", 8);
  m.state_size = r.size("ssm_state_size", 128, 1 << 16);
  m.conv_width = r.size("conv_kernel", 4, 64);
  if (m.conv_width < 2) r.refuse("conv_kernel", "2 to 64");
  check_mamba2(r, m, "mamba_num_heads", "n_groups");
  m.conv_bias = r.flag("use_conv_bias", true);
  m.bias = m.out_bias = r.flag("use_bias", false);
  m.norm_eps = c.norm_eps;
  // transformers takes the least step from here, and has no greatest one.
  m.least_step = r.positive("time_step_min", 0.001);
  if (read_activation(r, "mamba_hidden_act", "silu") != "silu")
    r.refuse("mamba_hidden_act", "'silu'");
  if (c.pattern.find(kMixer) == c.pattern.npos) c.mamba = {};
  r.expect("attention_bias", false);
  r.expect_nothing("sliding_window");
  // Of models that have no such layers; the scan's form and states; training; names of the same size.
  r.ignore({"n_routed_experts",
            "num_local_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "moe_shared_expert_intermediate_size",
            "moe_latent_size",
            "routed_scaling_factor",
            "norm_topk_prob",
            "n_group",
            "topk_group",
            "n_shared_experts",
            "moe_shared_expert_overlap",
            "expand",
            "mamba_proj_bias",
            "chunk_size",
            "use_mamba_kernels",
            "mamba_ssm_cache_dtype",
            "residual_in_fp32",
            "time_step_limit",
            "time_step_max",
            "time_step_floor",
            "time_step_rank",
            "rescale_prenorm_residual",
            "rms_norm_eps",
            "num_logits_to_keep",
            "num_query_groups",
            "num_nextn_predict_layers",
            "mtp_layers_block_type",
            "mtp_hybrid_override_pattern"});
}

Value mlp(Step& p, Value x, const std::string& name, int64_t ffn, Value residual) {
  return plain_mlp(p, x, name, "up_proj", "down_proj", residual, ffn);
}

Value part(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  const ModelConfig& c = p.c;
  switch (c.pattern[static_cast<size_t>(layer)]) {
    case kMixer:
      return mamba2_mixer(p, normed, name, std::to_string(layer), residual);
    case kAttention:
      return decoder_attend(p, decoder_heads(p, normed, name), layer, name, residual);
    case kMlp:
      return mlp(p, normed, name, c.ffn, residual);
    default:
      residual = mlp(p, normed, name + ".shared_experts", c.moe.shared_ffn, residual);
      return experts(p, normed,
                     {.router = name + ".gate", .experts = name + ".experts", .gate = ""},
                     residual);
  }
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  Value x = p.embed("backbone.embeddings");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "backbone.layers." + std::to_string(i);
    x = p.layer_end(x, part(p, p.norm(x, name + ".norm", c.dim), i, name + ".mixer", x));
  }
  return x;
}

Value last_norm(Step& p, Value x) { return p.norm(x, "backbone.norm_f", p.c.dim); }

Value head(Step& p, Value normed) {
  const ModelConfig& c = p.c;
  const Value w =
      p.weight(c.tied ? "backbone.embeddings.weight" : "lm_head.weight", {c.vocab, c.dim});
  return p.multiply(normed, w, "lm_head", true, {}, {}, true);
}

}  // namespace

const Architecture kNemotronH = {"nemotron_h", "NemotronHForCausalLM", read, hidden, last_norm,
                                 head};

}  // namespace tenon::llm
