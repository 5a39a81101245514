// SPDX-License-Identifier: Apache-2.0
// Granite: Llama with factors on the embedding, the scores, what each part of a layer adds, and the
// logits; with an MLP or with experts. In the hybrid Granite, most layers have a mixer of Mamba-2 in
// place of attention. Granite with windows has sinks, windows in some layers, and a rope for each layer.
#include <algorithm>
#include <cmath>

#include "llm/arch/families.hpp"
#include "llm/arch/mamba_mixer.hpp"

namespace tenon::llm {
namespace {

void read_dense(ConfigReader& r, ModelConfig& c, const DecoderDefaults& defaults) {
  read_decoder(r, c, defaults);
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  c.embed_scale = r.positive("embedding_multiplier", 1);
  c.residual_scale = r.positive("residual_multiplier", 1);
  c.attention_scale = r.positive("attention_multiplier", 1);
  c.logit_scale = 1 / r.positive("logits_scaling", 1);
}

void read(ConfigReader& r, ModelConfig& c) { read_dense(r, c, {}); }

void read_moe(ConfigReader& r, ModelConfig& c) {
  read(r, c);
  c.moe.experts = r.size("num_local_experts", 8, 1 << 16);
  c.moe.per_token = r.size("num_experts_per_tok", 2, c.moe.experts);
  c.moe.ffn = c.ffn;
}

void read_shared_moe(ConfigReader& r, ModelConfig& c) {
  read_moe(r, c);
  c.moe.shared_ffn = r.integer("shared_intermediate_size", 0);
  if (c.moe.shared_ffn != 0) c.moe.shared_ffn = r.size("shared_intermediate_size");
}

// layer_rope_theta: the theta of each layer, 0 for no rope.
void read_layer_thetas(ConfigReader& r, ModelConfig& c) {
  constexpr const char* kKey = "layer_rope_theta";
  const std::vector<double> thetas = r.numbers(kKey);
  if (!r.has(kKey)) return;
  if (static_cast<int64_t>(thetas.size()) != c.layers)
    r.refuse(kKey, "one number for each of the " + std::to_string(c.layers) + " layers");
  for (const double theta : thetas) {
    if (!std::isfinite(theta) || theta < 0) r.refuse(kKey, "numbers above 0, and 0 for no rope");
    c.no_rope.push_back(theta == 0);
    RopeConfig rope = c.rope;
    rope.theta = theta;
    if (theta > 0) check_rope(rope, r.where() + ": " + kKey);
  }
  c.layer_thetas = thetas;
}

void read_windows(ConfigReader& r, ModelConfig& c) {
  read_layer_types(r, c, [](int64_t layer) { return layer % 4 != 0; });
  read_window_of_types(r, c, 128);
  read_layer_thetas(r, c);
}

void read_swa(ConfigReader& r, ModelConfig& c) {
  read_dense(r, c, {.norm_eps = 1e-5, .tied = true, .kv_heads = 4});
  read_windows(r, c);
}

void read_moe_swa(ConfigReader& r, ModelConfig& c) {
  read_shared_moe(r, c);
  read_windows(r, c);
}

// HyperCLOVA X: Granite whose logits are multiplied, with norms behind each part.
void read_hyperclovax(ConfigReader& r, ModelConfig& c) {
  read(r, c);
  if (!r.has("attention_multiplier")) c.attention_scale = 0;
  c.logit_scale = 1 / c.logit_scale;
  c.norms_behind = r.flag("use_post_norm", true);
}

void read_hybrid(ConfigReader& r, ModelConfig& c) {
  read(r, c);
  if (c.mlp_bias) r.refuse("mlp_bias", "false");
  if (!read_mixer_layers(r, c)) c.recurrent_layers.assign(static_cast<size_t>(c.layers), true);
  read_mamba2(r, c);
  if (std::ranges::none_of(c.recurrent_layers, [](bool mixes) { return mixes; })) c.mamba = {};
  const std::string positions = r.text("position_embedding_type", "nope");
  if (positions != "rope" && positions != "nope")
    r.refuse("position_embedding_type", "'rope', 'nope' or null");
  if (positions == "nope") c.no_rope.assign(static_cast<size_t>(c.layers), true);
  if (r.text("normalization_function", "rmsnorm") != "rmsnorm")
    r.refuse("normalization_function", "'rmsnorm'");
  c.moe.shared_ffn = r.size("shared_intermediate_size", 1024);
  if (const int64_t experts = r.integer("num_local_experts", 8); experts != 0) {
    c.moe.experts = r.size("num_local_experts", 8, 1 << 16);
    c.moe.per_token = r.size("num_experts_per_tok", 2, c.moe.experts);
    c.moe.ffn = c.ffn;
  }
  r.ignore({"num_experts_per_tok", "init_method"});
}

// The norm behind a part of HyperCLOVA X, if the model has these.
Value behind(Step& p, Value more, const std::string& name) {
  return p.c.norms_behind ? p.norm(more, name, p.c.dim) : more;
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  const Value more = decoder_attention(p, normed, layer, name, {});
  return scaled_sum(p, residual, behind(p, more, name + ".post_norm1"));
}

Value sink_attention(Step& p, Value normed, int64_t layer, const std::string& name,
                     Value residual) {
  return scaled_sum(p, residual, attention_with_sinks(p, normed, layer, name, {}));
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  const Value more = decoder_mlp(p, normed, name + ".mlp", p.c.ffn, {});
  return scaled_sum(p, residual, behind(p, more, name + ".post_norm2"));
}

Value chosen_experts(Step& p, Value normed, const std::string& layer_name) {
  const std::string name = layer_name + ".block_sparse_moe";
  const bool short_name = p.weights.has(name + ".router.weight");  // with windows
  return experts(
      p, normed,
      {.router = name + (short_name ? ".router" : ".router.layer"), .experts = name + ".experts"},
      {});
}

Value mixture(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return scaled_sum(p, residual, chosen_experts(p, normed, name));
}

Value mixer_or_attention(Step& p, Value normed, int64_t layer, const std::string& name,
                         Value residual) {
  if (!p.c.recurrent_layers[static_cast<size_t>(layer)])
    return attention(p, normed, layer, name, residual);
  return scaled_sum(p, residual,
                    mamba2_mixer(p, normed, name + ".mamba", std::to_string(layer), {}));
}

// The MLP that all tokens use. Folders have gate and up in one matrix.
Value shared_mlp(Step& p, Value x, const std::string& name) {
  const ModelConfig& c = p.c;
  const int64_t ffn = c.moe.shared_ffn;
  Value gate, up;
  if (p.weights.has(name + ".gate_proj.weight")) {
    const std::vector<Value> both =
        p.project_all(x, {name + ".gate_proj", name + ".up_proj"}, c.dim, {ffn, ffn});
    gate = both[0], up = both[1];
  } else {
    gate = p.project(x, name + ".input_linear", c.dim, 2 * ffn);
    if (!is_gate(c.activation)) {
      const std::vector<int64_t> leading = {p.s.batch, p.s.time};
      up = p.part(gate, leading, ffn, ffn);
      gate = p.part(gate, leading, 0, ffn);
    }
  }
  return p.project(p.gated(gate, up, c.activation, name + ".act"), name + ".output_linear", ffn,
                   c.dim);
}

Value shared_and_chosen(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  const bool shares = p.c.moe.shared_ffn > 0, chooses = p.c.moe.experts > 0;
  Value more = shares ? shared_mlp(p, normed, name + ".shared_mlp") : Value{};
  if (chooses) {
    const Value chosen = chosen_experts(p, normed, name);
    more = shares ? p.binary("add", more, chosen) : chosen;
  }
  return scaled_sum(p, residual, more);
}

Value hybrid_hidden(Step& p) { return decoder_layers(p, mixer_or_attention, shared_and_chosen); }

Value shared_moe_hidden(Step& p) { return decoder_layers(p, attention, shared_and_chosen); }

Value moe_hidden(Step& p) { return decoder_layers(p, attention, mixture); }

Value hidden(Step& p) { return decoder_layers(p, attention, mlp); }

Value swa_hidden(Step& p) { return decoder_layers(p, sink_attention, mlp); }

Value moe_swa_hidden(Step& p) { return decoder_layers(p, sink_attention, shared_and_chosen); }

}  // namespace

const Architecture kGraniteMoe = {
    "granitemoe", "GraniteMoeForCausalLM", read_moe, moe_hidden, decoder_norm, decoder_head};
const Architecture kGraniteMoeShared = {"granitemoeshared", "GraniteMoeSharedForCausalLM",
                                        read_shared_moe,    shared_moe_hidden,
                                        decoder_norm,       decoder_head};
const Architecture kHyperClovaX = {
    "hyperclovax", "HyperCLOVAXForCausalLM", read_hyperclovax, hidden, decoder_norm, decoder_head};
const Architecture kGraniteHybrid = {"granitemoehybrid", "GraniteMoeHybridForCausalLM",
                                     read_hybrid,        hybrid_hidden,
                                     decoder_norm,       decoder_head};
const Architecture kGraniteSwa = {
    "granite_swa", "GraniteSWAForCausalLM", read_swa, swa_hidden, decoder_norm, decoder_head};
const Architecture kGraniteMoeSwa = {"granitemoe_swa", "GraniteMoeSWAForCausalLM",
                                     read_moe_swa,     moe_swa_hidden,
                                     decoder_norm,     decoder_head};
const Architecture kGranite = {"granite", "GraniteForCausalLM", read,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
