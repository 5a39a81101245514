// SPDX-License-Identifier: Apache-2.0
// Phi-3.5-MoE: LayerNorm, biases, and two experts of each token, chosen one behind the other
// (SparseMixer; Liu and others: arXiv 2409.12136).
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5});
  c.norm = Norm::layer, c.norm_bias = true;
  c.rope = read_rope(r, c.head_dim, c.context, 1e6, 0, {.named_amplitudes = true});
  if (c.rope.type != RopeConfig::Type::plain && c.rope.type != RopeConfig::Type::longrope)
    r.refuse(r.has("rope_parameters") ? "rope_parameters" : "rope_scaling",
             "'default' or 'longrope'");
  r.ignore({"original_max_position_embeddings"});
  read_window(r, c, 0);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.head_bias = r.flag("lm_head_bias", false);
  c.moe.experts = r.size("num_local_experts", 16, 1 << 16);
  c.moe.per_token = r.size("num_experts_per_tok", 2);
  if (c.moe.per_token != 2) r.refuse("num_experts_per_tok", "2");
  if (c.moe.experts < 2) r.refuse("num_local_experts", "at least 2");
  c.moe.ffn = c.ffn;
  c.moe.jitter = r.number("router_jitter_noise", 0.01);
  if (!(c.moe.jitter >= 0)) r.refuse("router_jitter_noise", "a number from 0 on");
  r.ignore({"input_jitter_noise", "hidden_dropout"});  // of training
}

// The weight of an expert is the softmax over those whose scores are near its own: within 2 jitter
// of it, in relation to the larger of both.
Routes sparse_mixer(Step& p, Value x, const ExpertNames& names) {
  const MoeConfig& m = p.c.moe;
  const int64_t rows = p.s.batch * p.s.time;
  const Value scores = router_logits(p, x, names);
  const Value size = p.g.add(op::unary{.kind = "abs", .x = scores});
  const auto number = [&](double v) { return p.g.constant<float>({}, {static_cast<float>(v)}); };
  constexpr double kLowest = -1e30;
  struct Choice {
    Value id, weight;  // [rows, 1]
  };
  // candidates: the scores, without the expert that has been chosen.
  const auto choose = [&](Value candidates) {
    const auto top = p.g.add(op::topk{.k = 1, .x = candidates});
    const Value most = top[0], below = p.binary("sub", most, scores);
    const Value share = p.binary("div", below, p.binary("max", size, most));
    const Value far = p.g.add(op::compare{.kind = "gt", .a = share, .b = number(2 * m.jitter)});
    const Value near = p.g.add(op::where{.cond = far, .a = number(kLowest), .b = candidates});
    const Value powers = p.g.add(op::unary{.kind = "exp", .x = p.binary("sub", near, most)});
    const Value sum =
        p.g.add(op::reduce{.kind = "sum", .axes = {1}, .keepdims = true, .x = powers});
    return Choice{.id = top[1], .weight = p.binary("div", number(1), sum)};
  };
  const Choice first = choose(scores);
  const Value place = p.g.add(op::iota{.shape = {1, m.experts}, .axis = 1, .dtype = i64});
  const Value taken = p.g.add(op::compare{.kind = "eq", .a = place, .b = first.id});
  const Choice second =
      choose(p.g.add(op::where{.cond = taken, .a = number(kLowest), .b = scores}));
  const auto both = [&](Value a, Value b) {
    return p.reshape(p.g.add(op::concat{.axis = 1, .xs = {a, b}}), {2 * rows});
  };
  return {.ids = both(first.id, second.id), .weights = both(first.weight, second.weight)};
}

Value mixture(Step& p, Value normed, int64_t, const std::string& layer_name, Value residual) {
  const std::string name = layer_name + ".block_sparse_moe";
  const ExpertNames names{.router = name + ".gate",
                          .experts = name + ".experts",
                          .gate = "w1",
                          .up = "w3",
                          .down = "w2"};
  return weighted_experts(p, normed, names, sparse_mixer(p, normed, names), residual);
}

Value hidden(Step& p) { return decoder_layers(p, decoder_attention, mixture); }

Value head(Step& p, Value normed) {
  const Value logits = decoder_head(p, normed);
  if (!p.c.head_bias) return logits;
  return p.binary("add", logits, p.wide("lm_head.bias", {p.c.vocab}));
}

}  // namespace

const Architecture kPhiMoe = {"phimoe", "PhimoeForCausalLM", read, hidden, decoder_norm,
                              head,     "PhiMoEForCausalLM"};

}  // namespace tenon::llm
