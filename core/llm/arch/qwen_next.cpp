// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next and Qwen3.5: layers of linear attention by the gated delta rule (Yang, Kautz, Hatamizadeh:
// arXiv 2412.06464), and some layers of attention, whose result a gate multiplies.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_delta(ConfigReader& r, ModelConfig& c) {
  DeltaConfig& d = c.delta;
  d.key_dim = r.size("linear_key_head_dim", 128, 1 << 16);
  d.value_dim = r.size("linear_value_head_dim", 128, 1 << 16);
  d.key_heads = r.size("linear_num_key_heads", 16, 1 << 16);
  d.value_heads = r.size("linear_num_value_heads", 32, 1 << 16);
  if (d.value_heads % d.key_heads != 0)
    r.refuse("linear_num_value_heads",
             "a multiple of the " + std::to_string(d.key_heads) + " of linear_num_key_heads");
  d.conv_width = r.size("linear_conv_kernel_dim", 4, 64);
  if (d.conv_width < 2) r.refuse("linear_conv_kernel_dim", "2 to 64");
  const int64_t every = r.size("full_attention_interval", 4);
  read_recurrent_layers(r, c, "linear_attention",
                        [every](int64_t layer) { return (layer + 1) % every != 0; });
}

void read_shared(ConfigReader& r, ModelConfig& c, bool has_ffn) {
  read_decoder(r, c, {.head_dim = 256, .has_ffn = has_ffn});
  c.norm = Norm::rms_plus_one;
  c.rope = read_rope(r, c.head_dim, c.context, 1e4, 0.25);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  read_delta(r, c);
  r.expect("attn_output_gate", true);
  r.expect("use_sliding_window", false);
  // Layers that predict further tokens are not used. States are f32 in any case.
  c.extra_layers = r.integer("mtp_num_hidden_layers", 0);
  if (c.extra_layers < 0) r.refuse("mtp_num_hidden_layers", "a number of layers");
  r.ignore(
      {"mtp_use_dedicated_embeddings", "mamba_ssm_dtype", "sliding_window", "max_window_layers"});
}

void read_shared_expert(ConfigReader& r, ModelConfig& c) {
  c.moe.shared_ffn = r.size("shared_expert_intermediate_size", 512);
  c.moe.shared_gate = true;
}

void read_next(ConfigReader& r, ModelConfig& c) {
  read_shared(r, c, true);
  c.delta.joint = true;
  read_qwen_experts(r, c, {.experts = 512, .per_token = 10, .ffn = 512, .normalize = true});
  read_shared_expert(r, c);
}

void read_dense(ConfigReader& r, ModelConfig& c) {
  read_shared(r, c, true);
  r.ignore({"mlp_only_layers"});
}

void read_moe(ConfigReader& r, ModelConfig& c) {
  read_shared(r, c, false);
  read_qwen_experts(r, c, {.experts = 256, .per_token = 8, .ffn = 512, .normalize = true});
  // Whatever the keys of other families say.
  c.moe.normalize = true;
  c.sparse.assign(c.sparse.size(), true);
  read_shared_expert(r, c);
}

// What the products of a layer of linear attention give.
struct Products {
  Value qkv;          // [batch, time, 2 keys + values]: q of all heads, then k, then v
  Value gate;         // [batch, time, values]
  Value beta, decay;  // [batch, time, value heads]
};

Products products(Step& p, Value x, const std::string& name) {
  const DeltaConfig& d = p.c.delta;
  const int64_t dim = p.c.dim, keys = d.keys(), values = d.values();
  if (!d.joint) {
    const std::vector<Value> all = p.project_all(
        x, {name + ".in_proj_qkv", name + ".in_proj_z", name + ".in_proj_b", name + ".in_proj_a"},
        dim, {2 * keys + values, values, d.value_heads, d.value_heads});
    return {all[0], all[1], all[2], all[3]};
  }
  // Each key head has its rows of q and k and those of its value heads side by side.
  const std::vector<int64_t> of_heads = {p.s.batch, p.s.time, d.key_heads};
  const auto part = [&](Value heads, int64_t start, int64_t size) {
    return p.reshape(p.part(heads, of_heads, start, size),
                     {p.s.batch, p.s.time, d.key_heads * size});
  };
  const int64_t each = d.value_heads / d.key_heads, wide = each * d.value_dim;
  Products out{};
  if (p.weights.has(name + ".in_proj_qkv.weight")) {  // files of GGUF
    const std::vector<Value> all = p.project_all(x, {name + ".in_proj_qkv", name + ".in_proj_z"},
                                                 dim, {2 * keys + values, values});
    out.qkv = all[0], out.gate = all[1];
  } else {
    const Value all = p.heads(p.project(x, name + ".in_proj_qkvz", dim, 2 * (keys + values)),
                              d.key_heads, 2 * (d.key_dim + wide));
    out.qkv = p.g.add(op::concat{.axis = 2,
                                 .xs = {part(all, 0, d.key_dim), part(all, d.key_dim, d.key_dim),
                                        part(all, 2 * d.key_dim, wide)}});
    out.gate = part(all, 2 * d.key_dim + wide, wide);
  }
  const Value factors =
      p.heads(p.project(x, name + ".in_proj_ba", dim, 2 * d.value_heads), d.key_heads, 2 * each);
  out.beta = part(factors, 0, each), out.decay = part(factors, each, each);
  return out;
}

// Keys or queries [batch, time, key heads, key_dim], in files of GGUF once for each value head.
Value key_heads(Step& p, Value x) {
  const DeltaConfig& d = p.c.delta;
  const int64_t each = d.value_heads / d.key_heads;
  if (!d.tiled || each == 1) return p.heads(x, d.key_heads, d.key_dim);
  const Value one = p.reshape(x, {p.s.batch, p.s.time, 1, d.keys()});
  return p.heads(p.g.add(op::expand{.shape = {p.s.batch, p.s.time, each, d.keys()}, .x = one}),
                 d.value_heads, d.key_dim);
}

Value linear_attention(Step& p, Value x, int64_t layer, const std::string& layer_name,
                       Value residual) {
  const ModelConfig& c = p.c;
  const DeltaConfig& d = c.delta;
  const std::string name = layer_name + ".linear_attn", cache = std::to_string(layer);
  const Products all = products(p, x, name);
  const Convolution how = {2 * d.keys() + d.values(), d.conv_width};
  const Value qkv = p.activated(convolved(p, all.qkv, how, name + ".conv1d", cache + ".conv"),
                                c.activation, name + ".conv1d");
  const auto part = [&](int64_t start, int64_t size) {
    return p.part(qkv, {p.s.batch, p.s.time}, start, size);
  };
  const auto unary = [&](const char* kind, Value y) {
    return Value(p.g.add(op::unary{.kind = kind, .x = y}));
  };
  // Files of GGUF have A itself.
  const Value a = p.weights.has(name + ".A")
                      ? p.wide(name + ".A", {d.value_heads})
                      : unary("neg", unary("exp", p.wide(name + ".A_log", {d.value_heads})));
  const Value step =
      p.binary("add", p.cast(all.decay, f32), p.wide(name + ".dt_bias", {d.value_heads}));
  const Value before =
      p.recurrent_state(cache + ".delta", f32, {d.value_heads, d.key_dim, d.value_dim});
  const auto rule = p.g.add(
      op::gated_delta_rule{.qk_l2norm = true,
                           .q = key_heads(p, part(0, d.keys())),
                           .k = key_heads(p, part(d.keys(), d.keys())),
                           .v = p.heads(part(2 * d.keys(), d.values()), d.value_heads, d.value_dim),
                           .g = p.binary("mul", a, unary("softplus", step)),
                           .beta = unary("sigmoid", all.beta),
                           .state = before,
                           .want_state_out = true},
      name);
  p.update_state(cache + ".delta", rule[1]);
  const Value gated = p.gated(p.heads(all.gate, d.value_heads, d.value_dim),
                              p.rms_norm(rule[0], name + ".norm", d.value_dim, c.norm_eps), "silu",
                              name + ".gated");
  return p.project(p.reshape(gated, {p.s.batch, p.s.time, d.values()}), name + ".out_proj",
                   d.values(), c.dim, false, residual);
}

// Rows of q_proj: those of a head, then those of its gate.
Value gated_attention(Step& p, Value x, int64_t layer, const std::string& layer_name,
                      Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".self_attn";
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const std::vector<Value> all =
      p.project_all(x, {name + ".q_proj", name + ".k_proj", name + ".v_proj"}, c.dim,
                    {2 * q, kv, kv}, c.qkv_bias);
  const Value both = p.heads(all[0], c.heads, 2 * c.head_dim);
  const std::vector<int64_t> of_heads = {p.s.batch, p.s.time, c.heads};
  const Heads heads{
      .q = p.norm(p.part(both, of_heads, 0, c.head_dim), name + ".q_norm", c.head_dim),
      .k = p.norm(p.heads(all[1], c.kv_heads, c.head_dim), name + ".k_norm", c.head_dim),
      .v = p.heads(all[2], c.kv_heads, c.head_dim),
      .gate = p.reshape(p.part(both, of_heads, c.head_dim, c.head_dim), {p.s.batch, p.s.time, q})};
  return decoder_attend(p, heads, layer, name, residual);
}

Value mixed(Step& p, Value x, int64_t layer, const std::string& name, Value residual) {
  return p.c.recurrent_layers[static_cast<size_t>(layer)]
             ? linear_attention(p, x, layer, name, residual)
             : gated_attention(p, x, layer, name, residual);
}

Value hidden(Step& p) { return decoder_layers(p, mixed, decoder_feed_forward); }

}  // namespace

const Architecture kQwen3Next = {"qwen3_next", "Qwen3NextForCausalLM", read_next,
                                 hidden,       decoder_norm,           decoder_head};
const Architecture kQwen35 = {"qwen3_5_text", "Qwen3_5ForCausalLM", read_dense,
                              hidden,         decoder_norm,         decoder_head};
const Architecture kQwen35Moe = {
    "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", read_moe, hidden, decoder_norm, decoder_head};

}  // namespace tenon::llm
