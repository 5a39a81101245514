// SPDX-License-Identifier: Apache-2.0
// Apertus: Llama with norms of q and k, and an MLP without a gate whose activation has weights
// (xIELU; Huang and Schlag: arXiv 2411.13010).
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

constexpr const char* kXielu = "xielu";

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .activation_key = ""});
  c.activation = r.text("hidden_act", kXielu);
  if (c.activation != kXielu) c.activation = read_activation(r, "hidden_act", kXielu);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  if (r.has("rope_parameters") || r.has("rope_scaling")) {
    c.rope = read_rope(r, c.head_dim, c.context, 12e6);
  } else {
    if (r.positive("rope_theta", 12e6) != 12e6)
      r.refuse("rope_theta", "12000000, or rope_parameters beside it");
    c.rope = {.type = RopeConfig::Type::llama3,
              .dims = c.head_dim,
              .theta = 12e6,
              .factor = 8,
              .original_context = 8192};
    check_rope(c.rope, r.where());
  }
  // Names of what all of these models have.
  r.expect("qk_norm", true);
  for (const char* key : {"post_norm", "mlp_bias"}) r.expect(key, false);
}

// p x^2 + beta x for x above 0, else n (e^min(x, eps) - 1 - x) + beta x, where p =
// softplus(alpha_p) and n = beta + softplus(alpha_n).
Value xielu(Step& p, Value x, const std::string& name) {
  const auto number = [&](const char* which, const std::vector<int64_t>& dims) {
    return p.wide(name + which, dims);
  };
  const auto softplus = [&](Value v) { return p.g.add(op::unary{.kind = "softplus", .x = v}); };
  const auto cast = [&](Value v) { return p.cast(v, p.g.dtype(x)); };
  const Value wide_beta = number(".beta", {}), beta = cast(wide_beta),
              eps = cast(number(".eps", {}));
  const Value positive = cast(softplus(number(".alpha_p", {1})));
  const Value negative = cast(p.binary("add", wide_beta, softplus(number(".alpha_n", {1}))));
  const Value power =
      p.g.add(op::unary{.kind = "expm1", .x = p.binary("min", x, eps)}, name + ".expm1");
  const Value above = p.binary("mul", positive, p.binary("mul", x, x));
  const Value below = p.binary("mul", p.binary("sub", power, x), negative);
  const Value zero = cast(p.g.constant<float>({}, {0.f}));
  const Value is_above = p.g.add(op::compare{.kind = "gt", .a = x, .b = zero});
  const Value curve = p.g.add(op::where{.cond = is_above, .a = above, .b = below}, name);
  return p.binary("add", curve, p.binary("mul", beta, x));
}

Value mlp(Step& p, Value normed, int64_t, const std::string& layer_name, Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".mlp";
  if (c.activation != kXielu) return plain_mlp(p, normed, name, "up_proj", "down_proj", residual);
  const Value up = p.project(normed, name + ".up_proj", c.dim, c.ffn);
  return p.project(xielu(p, up, name + ".act_fn"), name + ".down_proj", c.ffn, c.dim, false,
                   residual);
}

Value hidden(Step& p) {
  return decoder_layers(
      p, p.embed("model.embed_tokens"), decoder_attention, mlp,
      {.first_norm = ".attention_layernorm", .second_norm = ".feedforward_layernorm"});
}

}  // namespace

const Architecture kApertus = {"apertus", "ApertusForCausalLM", read,
                               hidden,    decoder_norm,         decoder_head};

}  // namespace tenon::llm
