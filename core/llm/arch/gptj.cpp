// SPDX-License-Identifier: Apache-2.0
// GPT-J: one LayerNorm for attention and an MLP without a gate side by side, neighbours of a part
// of each head rotated, a bias of the head. CodeGen: the same with one product for q, v and k.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

constexpr int64_t kParts = 4;  // of CodeGen's products for q, k and v

void read(ConfigReader& r, ModelConfig& c) {
  read_gpt(r, c, {.context = 2048, .tied = false});
  c.parallel = c.mlp_bias = true;
  c.rope.dims = r.is_null("rotary_dim") ? 0 : r.size("rotary_dim", 64);
  if (c.rope.dims < 2 || c.rope.dims % 2 != 0 || c.rope.dims > c.head_dim)
    r.refuse("rotary_dim",
             "an even number up to the " + std::to_string(c.head_dim) + " elements of a head");
  c.rope_interleaved = true;
  for (const char* key : {"rotary", "scale_attn_weights"}) r.expect(key, true);
}

void read_codegen(ConfigReader& r, ModelConfig& c) {
  read(r, c);
  if (c.heads % kParts != 0) r.refuse("n_head", "a multiple of " + std::to_string(kParts));
  r.ignore({"n_ctx"});  // of no effect
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual,
                           {.part = ".attn", .output = "out_proj"});
}

// The rows of qkv_proj are those of four devices that trained the model. Each had some of the
// heads: their q, then v, then k.
Value codegen_attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                        Value residual) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".attn";
  const int64_t each = c.heads / kParts;
  const Value all = p.reshape(p.project(normed, name + ".qkv_proj", c.dim, 3 * c.dim),
                              {p.s.batch, p.s.time, kParts, 3 * each, c.head_dim});
  const auto heads = [&](int64_t first) {
    const Value some = p.g.add(op::narrow{.start = {0, 0, 0, first, 0},
                                          .len = {p.s.batch, p.s.time, kParts, each, c.head_dim},
                                          .x = all});
    return p.heads(some, c.heads, c.head_dim);
  };
  return decoder_attend(p, {heads(0), heads(2 * each), heads(each)}, layer, name, residual,
                        "out_proj");
}

Value mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "fc_in", "fc_out", residual);
}

Value layers(Step& p, LayerPart part) {
  return decoder_layers(p, p.embed("transformer.wte"), part, mlp,
                        {.layers = "transformer.h.", .first_norm = ".ln_1", .second_norm = ""});
}
Value hidden(Step& p) { return layers(p, attention); }
Value codegen_hidden(Step& p) { return layers(p, codegen_attention); }

Value last_norm(Step& p, Value x) { return p.norm(x, "transformer.ln_f", p.c.dim); }

Value head(Step& p, Value normed) {
  return p.binary("add", tied_head(p, normed, "transformer.wte"),
                  p.wide("lm_head.bias", {p.c.vocab}));
}

}  // namespace

const Architecture kCodeGen = {
    "codegen", "CodeGenForCausalLM", read_codegen, codegen_hidden, last_norm, head};
const Architecture kGptJ = {"gptj", "GPTJForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
