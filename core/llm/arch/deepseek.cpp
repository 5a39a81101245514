// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 and V3: latent attention (MLA) and experts that are chosen group by group. GLM-4.7-Flash,
// Mistral 4 and Sarvam have both, too; MiniCPM3 and Youtu have latent attention and an MLP.
//
// The cache keeps one latent vector and one rotated key per token, which all heads share. Queries
// are multiplied into the latent space instead of expanding what is cached: a score is
// (q_nope W_uk)·latent + q_rope·k_rope, and the result of a head is (Σ p·latent) W_uv.
#include <cmath>
#include <cstring>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

// What config.json leaves out has the value that transformers gives the family.
struct LatentDefaults {
  int64_t q_rank = 1536, kv_rank = 512;                // q_rank 0: queries have no latent vector
  int64_t nope_dim = 128, rope_dim = 64, v_dim = 128;  // v_dim 0: hidden_size / num_attention_heads
  double norm_eps = 1e-6;
  bool tied = false;
  bool of_whole_head = false;  // partial_rotary_factor is that of both parts of a head of q
  RopeForm rope{};
};

void read_latent(ConfigReader& r, ModelConfig& c, const LatentDefaults& defaults = {}) {
  LatentConfig& l = c.latent;
  l.rope_dim = r.size("qk_rope_head_dim", defaults.rope_dim, 1 << 16);
  read_decoder(r, c,
               {.norm_eps = defaults.norm_eps, .tied = defaults.tied, .head_dim = l.rope_dim});
  if (c.kv_heads != c.heads) r.refuse("num_key_value_heads", "the value of num_attention_heads");
  l.kv_rank = r.size("kv_lora_rank", defaults.kv_rank);
  const bool no_rank = r.is_null("q_lora_rank") || (defaults.q_rank == 0 && !r.has("q_lora_rank"));
  l.q_rank = no_rank ? 0 : r.size("q_lora_rank", defaults.q_rank);
  r.ignore({"q_lora_rank", "head_dim", "qk_head_dim"});  // the last two follow from others
  l.nope_dim = r.size("qk_nope_head_dim", defaults.nope_dim, 1 << 16);
  l.v_dim = r.size("v_head_dim", defaults.v_dim > 0 ? defaults.v_dim : c.dim / c.heads, 1 << 16);
  if (defaults.of_whole_head) {
    const int64_t whole = l.nope_dim + l.rope_dim;
    c.rope = read_rope(r, whole, c.context, 1e4,
                       static_cast<double>(l.rope_dim) / static_cast<double>(whole));
    if (c.rope.dims != l.rope_dim)
      r.refuse("qk_rope_head_dim", "the part of a head that 'partial_rotary_factor' names");
  } else {
    c.rope = read_rope(r, l.rope_dim, c.context, 1e4, 0, defaults.rope);
  }
  c.attention_scale =
      c.rope.softmax_scale() / std::sqrt(static_cast<double>(l.nope_dim + l.rope_dim));
  c.o_bias = r.flag("attention_bias", false);
}

void read_common(ConfigReader& r, ModelConfig& c, bool v3) {
  read_latent(r, c);
  MoeConfig& m = c.moe;
  m.experts = r.size("n_routed_experts", {}, 1 << 16);
  m.ffn = r.size("moe_intermediate_size");
  const int64_t shared =
      r.is_null("n_shared_experts") ? 0 : r.integer("n_shared_experts", v3 ? 1 : 2);
  if (shared < 0 || shared > 64) r.refuse("n_shared_experts", "0 to 64");
  m.shared_ffn = m.ffn * shared;
  m.per_token = r.size("num_experts_per_tok", {}, m.experts);
  m.scaling = r.positive("routed_scaling_factor", v3 ? 2.5 : 1);
  if (r.size("moe_layer_freq", 1) != 1) r.refuse("moe_layer_freq", "1");
  r.ignore({"ep_size", "aux_loss_alpha", "seq_aux"});  // of training
}

void read_sparse_layers(ConfigReader& r, ModelConfig& c, int64_t otherwise) {
  const int64_t dense = r.integer("first_k_dense_replace", otherwise);
  for (int64_t i = 0; i < c.layers; ++i) c.sparse[static_cast<size_t>(i)] = i >= dense;
}

void read_groups(ConfigReader& r, ModelConfig& c, int64_t groups, int64_t used) {
  MoeConfig& m = c.moe;
  m.groups = r.size("n_group", groups, m.experts);
  m.groups_per_token = r.size("topk_group", used, m.groups);
  if (m.experts % m.groups != 0) r.refuse("n_group", "a divisor of n_routed_experts");
  if (m.per_token > m.groups_per_token * (m.experts / m.groups))
    r.refuse("num_experts_per_tok", "at most the experts of topk_group groups");
}

void read_v2(ConfigReader& r, ModelConfig& c) {
  read_common(r, c, false);
  read_sparse_layers(r, c, 0);
  c.mlp_bias = r.flag("mlp_bias", false);
  const std::string method = r.text("topk_method", "greedy");
  if (method == "group_limited_greedy")
    read_groups(r, c, 1, 1);
  else if (method == "greedy")
    r.ignore({"n_group", "topk_group"});
  else
    r.refuse("topk_method", "'greedy' or 'group_limited_greedy'");
  r.expect("norm_topk_prob", false);
  c.moe.normalize = false;
  if (r.text("scoring_func", "softmax") != "softmax") r.refuse("scoring_func", "'softmax'");
}

void read_v3(ConfigReader& r, ModelConfig& c) {
  read_common(r, c, true);
  read_sparse_layers(r, c, 3);
  read_groups(r, c, 8, 4);
  MoeConfig& m = c.moe;
  if (m.experts / m.groups < 2) r.refuse("n_group", "groups of at least two experts");
  m.normalize = r.flag("norm_topk_prob", true);
  m.score = "sigmoid", m.group_score = "top2_sum", m.correction_bias = true;
  if (r.text("topk_method", "noaux_tc") != "noaux_tc") r.refuse("topk_method", "'noaux_tc'");
  if (r.text("scoring_func", "sigmoid") != "sigmoid") r.refuse("scoring_func", "'sigmoid'");
  // The order of pairs changes queries and keys alike, so their products stay.
  r.expect("rope_interleave", true);
  c.extra_layers = r.integer("num_nextn_predict_layers", 0);
}

void read_glm_lite(ConfigReader& r, ModelConfig& c) {
  read_latent(r, c, {.q_rank = 768, .nope_dim = 192, .v_dim = 256, .norm_eps = 1e-5});
  if (r.integer("first_k_dense_replace", 1) != 1) r.refuse("first_k_dense_replace", "1");
  read_grouped_experts(r, c,
                       {.experts = 64,
                        .per_token = 4,
                        .shared = 1,
                        .ffn = 1536,
                        .dense_layers = 1,
                        .normalize = true,
                        .scaling = 1.8,
                        .by_types = true});
  c.latent.interleaved = r.flag("rope_interleave", true);
  c.extra_layers = r.integer("num_nextn_predict_layers", 0);
}

// Mistral 4: queries are scaled by their position, as those of Ministral 3.
void read_mistral4(ConfigReader& r, ModelConfig& c) {
  if (!r.has("rope_parameters") && !r.has("rope_scaling"))
    r.refuse("rope_parameters", "an object, also for rope_type 'default'");
  read_latent(r, c, {.q_rank = 1024, .kv_rank = 256, .nope_dim = 64, .of_whole_head = true});
  MoeConfig& m = c.moe;
  m.experts = r.size("n_routed_experts", 128, 1 << 16);
  m.per_token = r.size("num_experts_per_tok", 4, m.experts);
  m.ffn = r.size("moe_intermediate_size", 2048);
  const int64_t shared = r.integer("n_shared_experts", 1);
  if (shared < 1 || shared > 64) r.refuse("n_shared_experts", "1 to 64");
  m.shared_ffn = m.ffn * shared;
  m.scaling = r.positive("routed_scaling_factor", 1);
  m.normalize = r.flag("norm_topk_prob", true);
  read_groups(r, c, 1, 1);
  if (m.experts / m.groups < 2) r.refuse("n_group", "groups of at least two experts");
  m.group_score = "top2_sum";
  read_sparse_layers(r, c, 0);
  c.latent.interleaved = r.flag("rope_interleave", true);
}

void read_youtu(ConfigReader& r, ModelConfig& c) {
  read_latent(r, c, {.tied = true});
  r.expect("mlp_bias", false);
  c.latent.interleaved = r.flag("rope_interleave", true);
  r.ignore({"embedding_initializer_range"});
}

// MiniCPM3: factors of the embedding, of what each part adds, and of the logits.
void read_minicpm3(ConfigReader& r, ModelConfig& c) {
  read_latent(r, c,
              {.q_rank = 768,
               .kv_rank = 256,
               .nope_dim = 64,
               .rope_dim = 32,
               .v_dim = 0,
               .norm_eps = 1e-5,
               .tied = true});
  c.latent.interleaved = false;
  c.mlp_bias = r.flag("mlp_bias", false);
  c.embed_scale = r.positive("scale_emb", 12);
  if (!r.is_null("scale_depth"))
    c.residual_scale = r.positive("scale_depth", 1.4) / std::sqrt(static_cast<double>(c.layers));
  if (!r.is_null("dim_model_base"))
    c.logit_scale = static_cast<double>(r.size("dim_model_base", 256)) / static_cast<double>(c.dim);
  r.ignore({"scale_depth", "dim_model_base"});
}

void read_sarvam(ConfigReader& r, ModelConfig& c) {
  read_latent(r, c, {.q_rank = 0, .rope = {.deepseek_yarn = true}});
  read_sarvam_experts(r, c, 8, 2048);
  constexpr const char* kPairs = "rope_interleave";
  if (r.is_null(kPairs)) r.refuse(kPairs, "true or false");
  c.latent.interleaved = r.flag(kPairs, true);
  // transformers reads neither of these, which files of the model's authors have.
  r.ignore({"q_head_dim", "use_qk_norm", "default_theta"});
}

// Some of the rows of each head of kv_b_proj, as [heads, rows, rank].
Value up_projection(Step& p, const std::string& name, const char* which, int64_t start,
                    int64_t rows) {
  const LatentConfig& l = p.c.latent;
  const int64_t heads = p.c.heads, all = l.nope_dim + l.v_dim, rank = l.kv_rank;
  const auto take = [=](const std::vector<Tensor>& from) {
    Tensor out(TensorType(from[0].dtype(), {heads, rows, rank}));
    const size_t row = from[0].size() / static_cast<size_t>(heads * all);
    const auto* source = static_cast<const std::byte*>(from[0].data());
    auto* to = static_cast<std::byte*>(out.data());
    for (int64_t h = 0; h < heads; ++h)
      std::memcpy(to + static_cast<size_t>(h * rows) * row,
                  source + static_cast<size_t>(h * all + start) * row,
                  static_cast<size_t>(rows) * row);
    return out;
  };
  return p.made(name + ".kv_b_proj." + which, {name + ".kv_b_proj.weight"}, {heads * all, rank},
                TENON_DTYPE_NONE, {heads, rows, rank}, take);
}

// Exchanges the first two axes: rows and heads.
Value swapped(Step& p, Value x, int64_t a, int64_t b, int64_t dim) {
  if (a == 1 || b == 1) return p.reshape(x, {b, a, dim});
  return p.g.add(op::transpose{.perm = {1, 0, 2}, .x = x});
}

}  // namespace

Value latent_attention(Step& p, Value x, int64_t layer, const std::string& layer_name,
                       Value residual) {
  const ModelConfig& c = p.c;
  const LatentConfig& l = c.latent;
  const std::string name = layer_name + ".self_attn";
  const std::string cache = std::to_string(layer);
  constexpr double kEps = 1e-6;  // of the norms of latent vectors, whatever the config says
  const int64_t rows = p.s.batch * p.s.time, qk = l.nope_dim + l.rope_dim;
  const std::vector<int64_t> leading = {p.s.batch, p.s.time};

  Value q;
  if (l.q_rank > 0) {
    const Value latent = p.project(x, name + ".q_a_proj", c.dim, l.q_rank, c.o_bias);
    q = p.project(p.rms_norm(latent, name + ".q_a_layernorm", l.q_rank, kEps), name + ".q_b_proj",
                  l.q_rank, c.heads * qk);
  } else {
    q = p.project(x, name + ".q_proj", c.dim, c.heads * qk);
  }
  q = p.heads(q, c.heads, qk);
  const std::vector<int64_t> of_heads = {p.s.batch, p.s.time, c.heads};
  const Value q_rope = p.rotate(p.part(q, of_heads, l.nope_dim, l.rope_dim), c.rope, "rope",
                                name + ".q_rope", l.interleaved);
  const Value q_nope = p.reshape(p.part(q, of_heads, 0, l.nope_dim), {rows, c.heads, l.nope_dim});
  // Files of GGUF have kv_b_proj in two parts, that of keys turned.
  const bool parts = p.weights.has(name + ".k_b_proj.weight");
  const Value w_k = parts ? p.weight(name + ".k_b_proj.weight", {c.heads, l.kv_rank, l.nope_dim})
                          : up_projection(p, name, "k", 0, l.nope_dim);
  const Value q_by_head = swapped(p, q_nope, rows, c.heads, l.nope_dim);
  // The change of kv_b_proj is multiplied in factor by factor: B's rows of each head, and A.
  const Step::Factors change =
      p.factors(name + ".kv_b_proj", l.kv_rank, c.heads * (l.nope_dim + l.v_dim));
  const auto rows_of_b = [&](int64_t start, int64_t count) {
    const int64_t rank = p.g.type(change.b).dims[1];
    const Value of_heads = p.reshape(change.b, {c.heads, l.nope_dim + l.v_dim, rank});
    const Value b =
        p.g.add(op::narrow{.start = {0, start, 0}, .len = {c.heads, count, rank}, .x = of_heads});
    return p.scaled(p.cast(b, p.s.compute), change.scale);
  };
  Value by_head = p.multiply(q_by_head, w_k, name + ".q_latent", parts);
  if (change.a) {
    const Value u = p.multiply(q_by_head, rows_of_b(0, l.nope_dim), name + ".q_low", false);
    const Value flat = p.reshape(u, {c.heads * rows, p.g.type(change.b).dims[1]});
    const Value y = p.g.add(op::matmul{.a = flat, .b = p.cast(change.a, p.s.compute)});
    by_head = p.binary("add", by_head, p.reshape(y, {c.heads, rows, l.kv_rank}));
  }
  const Value q_latent = p.heads(swapped(p, by_head, c.heads, rows, l.kv_rank), c.heads, l.kv_rank);

  const Value both =
      p.project(x, name + ".kv_a_proj_with_mqa", c.dim, l.kv_rank + l.rope_dim, c.o_bias);
  const Value latent = p.heads(
      p.rms_norm(p.part(both, leading, 0, l.kv_rank), name + ".kv_a_layernorm", l.kv_rank, kEps), 1,
      l.kv_rank);
  const Value k_rope =
      p.rotate(p.heads(p.part(both, leading, l.kv_rank, l.rope_dim), 1, l.rope_dim), c.rope, "rope",
               name + ".k_rope", l.interleaved);
  const auto joined = [&](Value a, Value b) {
    return p.g.add(op::concat{.axis = 3, .xs = {a, b}});
  };
  const Value keys = p.append(cache + ".k", joined(latent, k_rope), 1, l.kv_rank + l.rope_dim);
  const Value values = p.append(cache + ".v", latent, 1, l.kv_rank);
  const Value queries =
      p.scaled_by_position(joined(q_latent, q_rope), c.rope.query_beta, c.rope.original_context);
  const Value o = p.attend(queries, keys, values, {.scale = c.attention_scale}, name);
  const Value o_by_head =
      swapped(p, p.reshape(o, {rows, c.heads, l.kv_rank}), rows, c.heads, l.kv_rank);
  const Value w_v = parts ? p.weight(name + ".v_b_proj.weight", {c.heads, l.v_dim, l.kv_rank})
                          : up_projection(p, name, "v", l.nope_dim, l.v_dim);
  Value up = p.multiply(o_by_head, w_v, name + ".v_up");
  if (change.a) {
    const Value u =
        p.g.add(op::matmul{.trans_b = true, .a = o_by_head, .b = p.cast(change.a, p.s.compute)});
    up = p.binary("add", up, p.multiply(u, rows_of_b(l.nope_dim, l.v_dim), name + ".v_low"));
  }
  const Value out = swapped(p, up, c.heads, rows, l.v_dim);
  return p.project(p.reshape(out, {p.s.batch, p.s.time, c.heads * l.v_dim}), name + ".o_proj",
                   c.heads * l.v_dim, c.dim, c.o_bias, residual);
}

namespace {

Value hidden(Step& p) { return decoder_layers(p, latent_attention, decoder_feed_forward); }

Value scaled_attention(Step& p, Value x, int64_t layer, const std::string& name, Value residual) {
  return scaled_sum(p, residual, latent_attention(p, x, layer, name, {}));
}
Value scaled_mlp(Step& p, Value x, int64_t, const std::string& name, Value residual) {
  return scaled_sum(p, residual, decoder_mlp(p, x, name + ".mlp", p.c.ffn, {}));
}
Value scaled_hidden(Step& p) { return decoder_layers(p, scaled_attention, scaled_mlp); }

}  // namespace

const Architecture kDeepseekV2 = {
    "deepseek_v2", "DeepseekV2ForCausalLM", read_v2, hidden, decoder_norm, decoder_head};
const Architecture kGlm4MoeLite = {
    "glm4_moe_lite", "Glm4MoeLiteForCausalLM", read_glm_lite, hidden, decoder_norm, decoder_head};
const Architecture kMistral4 = {"mistral4", "Mistral4ForCausalLM", read_mistral4,
                                hidden,     decoder_norm,          decoder_head};
const Architecture kYoutu = {"youtu", "YoutuForCausalLM", read_youtu,
                             hidden,  decoder_norm,       decoder_head};
const Architecture kMiniCpm3 = {"minicpm3",    "MiniCPM3ForCausalLM", read_minicpm3,
                                scaled_hidden, decoder_norm,          decoder_head};
const Architecture kSarvamMla = {
    "sarvam_mla", "DeepseekV3ForCausalLM", read_sarvam, hidden, decoder_norm,
    decoder_head, "SarvamMLAForCausalLM"};
const Architecture kDeepseekV3 = {
    "deepseek_v3", "DeepseekV3ForCausalLM", read_v3, hidden, decoder_norm, decoder_head};

}  // namespace tenon::llm
