// SPDX-License-Identifier: Apache-2.0
// GPT-2: learned positions, LayerNorm with bias, weights stored [in, out].
#include <cmath>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_gpt(r, c, 1024, true);
  if (r.integer("n_ctx", c.context) != c.context) r.refuse("n_ctx", "the value of n_positions");
  if (!r.flag("scale_attn_weights", true)) c.attention_scale = 1;
  c.scale_by_layer = r.flag("scale_attn_by_inverse_layer_idx", false);
  r.expect("add_cross_attention", false);
  // The order of two multiplications in training with half precision.
  r.ignore({"reorder_and_upcast_attn"});
}

Value norm(Step& p, Value x, const std::string& name) {
  return p.g.add(op::layer_norm{.eps = p.c.norm_eps,
                                .x = x,
                                .gamma = p.parameter(name + ".weight", {p.c.dim}),
                                .beta = p.parameter(name + ".bias", {p.c.dim})},
                 name);
}

Value project(Step& p, Value x, const std::string& name, int64_t in, int64_t out,
              Value residual = {}) {
  const bool outputs_first = p.c.outputs_first;  // files of GGUF
  const Value w =
      p.weight(name + ".weight", outputs_first ? std::vector{out, in} : std::vector{in, out});
  return p.multiply(x, w, name, outputs_first, p.parameter(name + ".bias", {out}), residual);
}

Value attention(Step& p, Value x, int64_t layer, const std::string& name, Value residual) {
  const ModelConfig& c = p.c;
  const Value qkv = project(p, x, name + ".c_attn", c.dim, 3 * c.dim);
  const Heads heads = split_heads(p, qkv);
  const std::string cache = std::to_string(layer);
  const Value keys = p.append(cache + ".k", heads.k, c.heads, c.head_dim);
  const Value values = p.append(cache + ".v", heads.v, c.heads, c.head_dim);
  double scale =
      c.attention_scale > 0 ? c.attention_scale : 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (c.scale_by_layer) scale /= static_cast<double>(layer + 1);
  const Value o = p.attend(heads.q, keys, values, {.scale = scale}, name);
  return project(p, p.reshape(o, {p.s.batch, p.s.time, c.dim}), name + ".c_proj", c.dim, c.dim,
                 residual);
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  const Value places =
      p.g.add(op::gather{.data = p.weight("transformer.wpe.weight", {c.context, c.dim}),
                         .indices = p.positions()},
              "transformer.wpe");
  Value x = p.binary("add", p.embed("transformer.wte"), p.cast(places, p.s.compute));
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "transformer.h." + std::to_string(i);
    const Value y = attention(p, norm(p, x, name + ".ln_1"), i, name + ".attn", x);
    const Value m = project(p, norm(p, y, name + ".ln_2"), name + ".mlp.c_fc", c.dim, c.ffn);
    const Value a = p.g.add(op::unary{.kind = c.activation, .x = m}, name + ".mlp.act");
    x = p.layer_end(x, project(p, a, name + ".mlp.c_proj", c.ffn, c.dim, y));
  }
  return x;
}

Value last_norm(Step& p, Value x) { return norm(p, x, "transformer.ln_f"); }

Value head(Step& p, Value normed) { return tied_head(p, normed, "transformer.wte"); }

}  // namespace

const Architecture kGpt2 = {"gpt2", "GPT2LMHeadModel", read, hidden, last_norm, head};

}  // namespace tenon::llm
