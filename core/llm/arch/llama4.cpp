// SPDX-License-Identifier: Apache-2.0
// Llama 4: attention within chunks in layers that rotate q and k; all keys in the others, which
// scale queries by their position instead. Experts in some layers, whose weights multiply what they
// read.
#include <algorithm>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_layers(ConfigReader& r, ModelConfig& c) {
  const auto each = [&](std::vector<bool>& out, const auto& of) {
    out.resize(static_cast<size_t>(c.layers));
    for (int64_t i = 0; i < c.layers; ++i) out[static_cast<size_t>(i)] = of(i);
  };
  const int64_t interval = r.size("no_rope_layer_interval", 4);
  const std::vector<int64_t> rotates = r.integers("no_rope_layers");  // 1 where a layer has rope
  if (!rotates.empty() && static_cast<int64_t>(rotates.size()) < c.layers)
    r.refuse("no_rope_layers", "one entry for each of the " + std::to_string(c.layers) + " layers");
  each(c.no_rope, [&](int64_t i) {
    return rotates.empty() ? (i + 1) % interval == 0 : rotates[static_cast<size_t>(i)] == 0;
  });
  const bool chunks = !r.is_null("attention_chunk_size");
  c.chunk = chunks ? r.size("attention_chunk_size", 8192, int64_t{1} << 30) : 0;
  const std::vector<std::string> types = r.texts("layer_types");
  if (!types.empty() && static_cast<int64_t>(types.size()) != c.layers)
    r.refuse("layer_types", "one entry for each of the " + std::to_string(c.layers) + " layers");
  for (const std::string& type : types)
    if (type != "full_attention" && !(type == "chunked_attention" && chunks))
      r.refuse("layer_types", chunks ? "entries 'full_attention' and 'chunked_attention'"
                                     : "entries 'full_attention' without attention_chunk_size");
  each(c.local, [&](int64_t i) {
    return types.empty() ? chunks && !c.no_rope[static_cast<size_t>(i)]
                         : types[static_cast<size_t>(i)] == "chunked_attention";
  });
  const int64_t step = r.size("interleave_moe_layer_step", 1);
  const std::vector<int64_t> sparse = r.integers("moe_layers");
  if (std::ranges::any_of(sparse, [&](int64_t i) { return i < 0 || i >= c.layers; }))
    r.refuse("moe_layers", "numbers of layers");
  const bool listed = r.has("moe_layers");
  each(c.sparse, [&](int64_t i) {
    return listed ? std::ranges::find(sparse, i) != sparse.end() : (i + 1) % step == 0;
  });
}

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = 128});
  c.rope = read_rope(r, c.head_dim, c.context, 5e5);
  c.rope_interleaved = true;
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = r.flag("use_qk_norm", true);
  MoeConfig& m = c.moe;
  m.experts = r.size("num_local_experts", 16, 1 << 16);
  m.per_token = r.size("num_experts_per_tok", 1, m.experts);
  m.ffn = m.shared_ffn = c.ffn;
  c.ffn = r.size("intermediate_size_mlp", 16384);
  m.score = "sigmoid";
  m.normalize = false;
  m.weigh_inputs = true;
  read_layers(r, c);
  const double beta = r.number("attn_scale", 0.1);
  const int64_t every = r.size("floor_scale", 8192, int64_t{1} << 30);
  if (!(beta >= 0 && beta <= 1e6)) r.refuse("attn_scale", "a number from 0 on");
  // Older files have a number here, which is no 0.
  const bool tuned = r.is_number("attn_temperature_tuning")
                         ? r.integer("attn_temperature_tuning") != 0
                         : r.flag("attn_temperature_tuning", true);
  if (tuned) c.query_beta = beta, c.query_every = every;
  r.ignore({"for_llm_compressor"});
}

// RMSNorm without weights.
Value plain_norm(Step& p, Value x, const std::string& name) {
  const auto ones = [&p] { return std::vector<float>(static_cast<size_t>(p.c.head_dim), 1.f); };
  return p.rms_norm_by(x, p.table("ones.head", {p.c.head_dim}, ones), name, p.c.norm_eps);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".self_attn";
  Heads heads = decoder_heads(p, normed, name);
  if (c.no_rope[static_cast<size_t>(layer)]) {
    heads.q = p.scaled_by_position(heads.q, c.query_beta, c.query_every, 1);
  } else if (c.qk_norm) {
    const auto changed = [&](Value x, const char* which) {
      const std::string rope = name + which + "_rope", norm = name + which + "_norm";
      return plain_norm(p, p.rotate(x, c.rope, "rope", rope, c.rope_interleaved), norm);
    };
    heads = {
        .q = changed(heads.q, ".q"), .k = changed(heads.k, ".k"), .v = heads.v, .rotated = true};
  }
  return decoder_attend(p, heads, layer, name, residual);
}

Value feed_forward(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                   Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".feed_forward";
  if (!c.sparse[static_cast<size_t>(layer)]) return decoder_mlp(p, normed, name, c.ffn, residual);
  return experts(p, normed, {.router = name + ".router", .experts = name + ".experts"},
                 decoder_mlp(p, normed, name + ".shared_expert", c.moe.shared_ffn, residual));
}

Value hidden(Step& p) { return decoder_layers(p, attention, feed_forward); }

}  // namespace

const Architecture kLlama4 = {"llama4_text", "Llama4ForCausalLM", read,
                              hidden,        decoder_norm,        decoder_head};

}  // namespace tenon::llm
