// SPDX-License-Identifier: Apache-2.0
// GLM-4: neighbours of a part of each head rotated, one product for gate and up. Its second
// generation also has norms behind attention and MLP. GLM-4.5, dots.llm1, Solar Open and Sarvam: experts as
// DeepSeek-V3 chooses them.
#include <algorithm>

#include "llm/arch/families.hpp"

namespace tenon::llm {

void read_dense_and_sparse(ConfigReader& r, ModelConfig& c, int64_t dense) {
  for (int64_t i = 0; i < c.layers; ++i) c.sparse[static_cast<size_t>(i)] = i >= dense;
  const std::vector<std::string> types = r.texts("mlp_layer_types");
  if (types.empty()) return;
  if (types.size() != c.sparse.size())
    r.refuse("mlp_layer_types",
             "one entry for each of the " + std::to_string(c.layers) + " layers");
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "dense" && types[i] != "sparse")
      r.refuse("mlp_layer_types", "entries 'dense' and 'sparse'");
    c.sparse[i] = types[i] == "sparse";
  }
}

// mlp_layer_types, or how many layers in front have no experts.
static void read_sparse_layers(ConfigReader& r, ModelConfig& c, const GroupedExperts& defaults) {
  const int64_t dense = r.integer("first_k_dense_replace", defaults.dense_layers);
  if (!defaults.counts_dense_layers && dense != defaults.dense_layers && !r.has("mlp_layer_types"))
    r.refuse("first_k_dense_replace",
             std::to_string(defaults.dense_layers) + ", or mlp_layer_types beside it");
  if (defaults.by_types) return read_dense_and_sparse(r, c, dense);
  for (int64_t i = 0; i < c.layers; ++i) c.sparse[static_cast<size_t>(i)] = i >= dense;
}

void read_grouped_experts(ConfigReader& r, ModelConfig& c, const GroupedExperts& defaults) {
  MoeConfig& m = c.moe;
  const std::string experts_key(defaults.experts_key), shared_key(defaults.shared_key);
  m.experts = r.size(experts_key, defaults.experts, 1 << 16);
  m.per_token = r.size("num_experts_per_tok", defaults.per_token, m.experts);
  m.ffn = r.size("moe_intermediate_size", defaults.ffn);
  const int64_t shared = r.integer(shared_key, defaults.shared);
  if (shared < 0 || shared > 64) r.refuse(shared_key, "0 to 64");
  m.shared_ffn = m.ffn * shared;
  m.scaling = r.positive("routed_scaling_factor", defaults.scaling);
  m.normalize = r.flag("norm_topk_prob", defaults.normalize);
  m.score = "sigmoid", m.correction_bias = true;
  m.groups = r.size("n_group", 1, m.experts);
  m.groups_per_token = r.size("topk_group", 1, m.groups);
  if (m.experts % m.groups != 0) r.refuse("n_group", "a divisor of " + experts_key);
  const int64_t of_group = m.experts / m.groups;
  if (m.per_token > m.groups_per_token * of_group)
    r.refuse("num_experts_per_tok", "at most the experts of topk_group groups");
  if (m.groups > 1 && of_group > 1) m.group_score = "top2_sum";
  read_sparse_layers(r, c, defaults);
  r.ignore({"scoring_func", "topk_method"});
}

void read_sarvam_experts(ConfigReader& r, ModelConfig& c, int64_t per_token, int64_t ffn) {
  constexpr const char* kNormalize = "norm_topk_prob";
  if (r.is_null(kNormalize)) r.refuse(kNormalize, "true or false");
  read_grouped_experts(
      r, c,
      {.experts = 128,
       .per_token = per_token,
       .shared = 1,
       .ffn = ffn,
       .dense_layers = 1,
       .normalize = true,
       .scaling = 2.5,
       .experts_key = r.name_of({"n_routed_experts", "num_experts", "num_local_experts"}),
       .shared_key = r.name_of({"n_shared_experts", "num_shared_experts"})});
  if (c.moe.experts / c.moe.groups < 2) r.refuse("n_group", "groups of at least two experts");
  // Layers that predict further tokens.
  const std::string_view more = r.name_of({"num_nextn_predict_layers", "num_mtp_layers"});
  c.extra_layers = r.integer(more, 0);
  if (c.extra_layers < 0) r.refuse(more, "a number of layers");
  // Files of the model's authors name what all of these models have.
  r.expect("moe_router_enable_expert_bias", true);
  for (const char* key : {"score_function", "scoring_func"})
    if (r.text(key, "sigmoid") != "sigmoid") r.refuse(key, "'sigmoid'");
  if (r.text("topk_method", "noaux_tc") != "noaux_tc") r.refuse("topk_method", "'noaux_tc'");
  if (r.size("moe_layer_freq", 1) != 1) r.refuse("moe_layer_freq", "1");
  r.ignore({"output_dropout", "ep_size", "aux_loss_alpha", "seq_aux"});  // of training
}

namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 0.00000015625, .head_dim = 128});
  c.qkv_bias = r.flag("attention_bias", true);
  c.rope = read_rope(r, c.head_dim, c.context, 1e4, 0.5);
  c.rope_interleaved = true;
}

void read_moe(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.qkv_bias = r.flag("attention_bias", false);
  c.qk_norm = r.flag("use_qk_norm", false);
  c.rope = read_rope(r, c.head_dim, c.context, 1e4, 0.5);
  read_grouped_experts(
      r, c, {.experts = 128, .per_token = 8, .shared = 1, .dense_layers = 1, .normalize = true});
  // Layers that predict further tokens.
  const char* const more = r.has("num_mtp_layers") ? "num_mtp_layers" : "num_nextn_predict_layers";
  c.extra_layers = r.integer(more, 1);
}

void read_sarvam(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.head_dim = 64, .kv_heads = 4});
  c.qkv_bias = r.flag(r.name_of({"attention_bias", "use_qkv_bias"}), false);
  c.qk_norm = r.flag("use_qk_norm", true);
  c.rope = read_rope(r, c.head_dim, c.context, 8e6, 1);
  read_sarvam_experts(r, c, 6, 1024);
  // Files of the model's authors have these. No layer has a window.
  r.expect("use_bias", false);
  r.ignore({"max_window_layers"});
}

void read_dots1(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  c.rope = read_rope(r, c.head_dim, c.context);
  read_grouped_experts(r, c, {});
  if (c.moe.experts / c.moe.groups < 2) r.refuse("n_group", "groups of at least two experts");
  if (c.moe.shared_ffn == 0) r.refuse("n_shared_experts", "1 to 64");
  if (r.size("moe_layer_freq", 1) != 1) r.refuse("moe_layer_freq", "1");
  const int64_t first = r.integer("max_window_layers", 62);
  if (r.is_null("sliding_window")) {
    r.ignore({"sliding_window", "layer_types"});
    return;
  }
  c.window = r.size("sliding_window", 4096, int64_t{1} << 30);
  if (r.has("layer_types"))
    read_layer_types(r, c, nullptr);
  else
    for (int64_t i = 0; i < c.layers; ++i) c.local[static_cast<size_t>(i)] = i >= first;
}

void read_solar(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = 128, .has_ffn = false});
  c.qkv_bias = r.flag("attention_bias", false);
  c.rope = read_rope(r, c.head_dim, c.context, 1e6, 1);
  read_grouped_experts(
      r, c, {.experts = 128, .per_token = 8, .shared = 1, .ffn = 1280, .normalize = true});
  if (std::ranges::find(c.sparse, false) != c.sparse.end()) r.refuse("first_k_dense_replace", "0");
}

// Sarvam's files have names of their own, and q, k and v in one matrix; other folders have those of GLM-4.5.
std::string sarvam_embedding(const Step& p) {
  const std::string own = "model.word_embeddings";
  return p.weights.has(own + ".weight") ? own : "model.embed_tokens";
}

Value sarvam_attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                       Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".attention", product = name + ".query_key_value";
  if (!p.weights.has(product + ".weight"))
    return decoder_attention(p, normed, layer, layer_name, residual);
  const int64_t rows = (c.heads + 2 * c.kv_heads) * c.head_dim;
  Heads heads = split_heads(p, p.project(normed, product, c.dim, rows, c.qkv_bias));
  if (c.qk_norm) {
    heads.q = p.norm(heads.q, name + ".query_layernorm", c.head_dim);
    heads.k = p.norm(heads.k, name + ".key_layernorm", c.head_dim);
  }
  return decoder_attend(p, heads, layer, name, residual, "dense");
}

Value sarvam_feed_forward(Step& p, Value normed, int64_t layer, const std::string& name,
                          Value residual) {
  MixtureNames names;
  const std::string own = ".gate.expert_bias";
  if (p.weights.has(name + ".mlp" + own)) names.correction = own;
  return named_feed_forward(p, normed, layer, name, residual, names);
}

Value sarvam_hidden(Step& p) {
  return decoder_layers(p, p.embed(sarvam_embedding(p)), sarvam_attention, sarvam_feed_forward,
                        LayerForm{});
}

Value sarvam_head(Step& p, Value normed) { return tied_head(p, normed, sarvam_embedding(p)); }

Value mlp(Step& p, Value normed, int64_t, const std::string& layer_name, Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".mlp";
  const Value both = p.project(normed, name + ".gate_up_proj", c.dim, 2 * c.ffn);
  return p.project(p.gated(both, {}, c.activation, name + ".act"), name + ".down_proj", c.ffn,
                   c.dim, false, residual);
}

Value hidden(Step& p) { return decoder_layers(p, decoder_attention, mlp); }

Value hidden4(Step& p) {
  return decoder_layers(p, decoder_attention, mlp,
                        {.before_attention = ".input_layernorm",
                         .behind_attention = ".post_self_attn_layernorm",
                         .before_mlp = ".post_attention_layernorm",
                         .behind_mlp = ".post_mlp_layernorm"});
}

}  // namespace

const Architecture kGlm = {"glm", "GlmForCausalLM", read, hidden, decoder_norm, decoder_head};
const Architecture kGlm4 = {"glm4", "Glm4ForCausalLM", read, hidden4, decoder_norm, decoder_head};
const Architecture kGlm4Moe = {"glm4_moe",     "Glm4MoeForCausalLM", read_moe,
                               decoder_hidden, decoder_norm,         decoder_head};
const Architecture kSolarOpen = {"solar_open",   "SolarOpenForCausalLM", read_solar,
                                 decoder_hidden, decoder_norm,           decoder_head};
const Architecture kSarvamMoe = {"sarvam_moe",          "Glm4MoeForCausalLM", read_sarvam,
                                 sarvam_hidden,         decoder_norm,         sarvam_head,
                                 "SarvamMoEForCausalLM"};
const Architecture kDots1 = {"dots1",        "Dots1ForCausalLM", read_dots1,
                             decoder_hidden, decoder_norm,       decoder_head};

}  // namespace tenon::llm
