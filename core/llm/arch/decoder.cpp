// SPDX-License-Identifier: Apache-2.0
// The decoder that Llama, Mistral, Qwen, Mixtral and others share: RMSNorm, rotary embedding,
// grouped heads, gated MLP. Weights have the names of transformers.
#include "llm/arch/step.hpp"

namespace tenon::llm {

Heads decoder_heads(Step& p, Value normed, const std::string& name) {
  const ModelConfig& c = p.c;
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const std::vector<Value> all =
      p.project_all(normed, {name + ".q_proj", name + ".k_proj", name + ".v_proj"}, c.dim,
                    {q, kv, kv}, c.qkv_bias);
  const auto heads_of = [&](Value x, int64_t count) {
    return p.heads(c.clip_qkv > 0 ? p.clipped(x, c.clip_qkv) : x, count, c.head_dim);
  };
  Heads heads{heads_of(all[0], c.heads), heads_of(all[1], c.kv_heads),
              heads_of(all[2], c.kv_heads)};
  // A step that decodes is a row of small kernels, so one less counts.
  if (p.s.time == 1 && !p.s.whole && !c.qk_norm && c.clip_qkv == 0)
    if (const Value qk = p.side_by_side(all[0], all[1]))
      heads.qk = p.heads(qk, c.heads + c.kv_heads, c.head_dim);
  return heads;
}

namespace {

struct LayerRope {
  RopeConfig config;
  std::string table;
};

// How a layer rotates, and the name of its table. Layers of equal theta share a table.
LayerRope rope_of(const ModelConfig& c, int64_t layer) {
  const auto i = static_cast<size_t>(layer);
  if (c.local[i] && c.local_rope.dims > 0) return {c.local_rope, "rope.local"};
  if (c.layer_thetas.empty()) return {c.rope, "rope"};
  const auto first = std::ranges::find(c.layer_thetas, c.layer_thetas[i]);
  LayerRope out{c.rope, "rope." + std::to_string(first - c.layer_thetas.begin())};
  out.config.theta = *first;
  return out;
}

}  // namespace

Value decoder_attend(Step& p, const Heads& heads, int64_t layer, const std::string& name,
                     Value residual, std::string_view output) {
  const ModelConfig& c = p.c;
  const bool local = c.local[static_cast<size_t>(layer)];
  const bool rotates =
      !heads.rotated && (c.no_rope.empty() || !c.no_rope[static_cast<size_t>(layer)]);
  const auto [rope, table] = rope_of(c, layer);
  const bool own_keys = heads.keys_of < 0;
  const std::string cache = std::to_string(own_keys ? layer : heads.keys_of);
  const Step::Attention how = {.scale = c.attention_scale,
                               .softcap = c.attention_softcap,
                               .window = local ? c.window : 0,
                               .chunk = local ? c.chunk : 0};
  const auto output_of = [&](Value o) {
    const int64_t dims = p.g.type(heads.q).dims[2] * p.g.type(o).dims.back();
    Value all = p.reshape(o, {p.s.batch, p.s.time, dims});
    if (heads.gate) all = p.gated(heads.gate, all, heads.gate_by, name + ".gated");
    return p.project(all, name + "." + std::string(output), dims, c.dim, c.o_bias, residual);
  };
  const Step::JointRope turns{.config = rope, .table = table, .interleaved = c.rope_interleaved};
  if (p.decodes_jointly() && own_keys && !p.has_mask(how) && !heads.sinks && c.rope.query_beta == 0)
    return output_of(
        p.decode(heads.q, heads.k, heads.v, cache, rotates ? &turns : nullptr, how, name));
  const auto rotate = [&](Value x, const char* which) {
    return rotates ? p.rotate(x, turns.config, turns.table, name + which, turns.interleaved) : x;
  };
  Value q, k;
  if (heads.qk && rotates) {
    const Value both = rotate(heads.qk, ".qk_rope");
    q = p.some_heads(both, 0, c.heads), k = p.some_heads(both, c.heads, c.kv_heads);
  } else {
    q = rotate(heads.q, ".q_rope");
    if (own_keys) k = rotate(heads.k, ".k_rope");
  }
  q = p.scaled_by_position(q, c.rope.query_beta, c.rope.original_context);
  const auto cached = [&](const char* which, Value rows) {
    if (!own_keys) return p.appended(cache + which);
    const std::vector<int64_t> dims = p.g.type(rows).dims;
    return p.append(cache + which, rows, dims[2], dims[3]);
  };
  const Value keys = cached(".k", k), values = cached(".v", heads.v);
  return output_of(heads.sinks ? p.attend_with_sinks(q, keys, values, heads.sinks, how, name)
                               : p.attend(q, keys, values, how, name));
}

Value decoder_attention(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                        Value residual, const AttentionForm& form) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + std::string(form.part);
  Heads heads = decoder_heads(p, normed, name);
  if (form.norms_behind_rope) {
    const auto rotate = [&](Value x, const char* which) {
      return p.rotate(x, c.rope, "rope", name + which, c.rope_interleaved);
    };
    heads.q = rotate(heads.q, ".q_rope"), heads.k = rotate(heads.k, ".k_rope");
    heads.rotated = true;
  }
  const auto normed_heads = [&](Value x, std::string_view which, int64_t count) {
    const std::string norm = name + std::string(which);
    return form.norm ? form.norm(p, x, norm, count) : p.norm(x, norm, c.head_dim);
  };
  if (c.qk_norm) {
    heads.q = normed_heads(heads.q, form.q_norm, c.heads);
    heads.k = normed_heads(heads.k, form.k_norm, c.kv_heads);
  }
  return decoder_attend(p, heads, layer, name, residual, form.output);
}

Value decoder_attention(Step& p, Value normed, int64_t layer, const std::string& name,
                        Value residual) {
  return decoder_attention(p, normed, layer, name, residual, {});
}

Value attention_with_sinks(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                           Value residual) {
  const std::string name = layer_name + ".self_attn";
  Heads heads = decoder_heads(p, normed, name);
  heads.sinks = p.wide(name + ".sinks", {p.c.heads});
  return decoder_attend(p, heads, layer, name, residual);
}

Heads split_heads(Step& p, Value qkv) {
  const ModelConfig& c = p.c;
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const auto heads = [&](int64_t start, int64_t count) {
    return p.heads(p.part(qkv, {p.s.batch, p.s.time}, start, count * c.head_dim), count,
                   c.head_dim);
  };
  return {heads(0, c.heads), heads(q, c.kv_heads), heads(q + kv, c.kv_heads)};
}

Heads joined_heads(Step& p, Value normed, const std::string& name, std::string_view product) {
  const ModelConfig& c = p.c;
  const int64_t rows = (c.heads + 2 * c.kv_heads) * c.head_dim, queries = c.heads / c.kv_heads;
  if (p.weights.has(name + ".qkv.weight"))
    return split_heads(p, p.project(normed, name + ".qkv", c.dim, rows, c.qkv_bias));
  const Value qkv = p.project(normed, name + "." + std::string(product), c.dim, rows, c.qkv_bias);
  if (c.kv_heads == 1) return split_heads(p, qkv);
  const Value groups = p.reshape(qkv, {p.s.batch, p.s.time, c.kv_heads, queries + 2, c.head_dim});
  const auto heads = [&](int64_t first, int64_t count) {
    const Value some =
        p.g.add(op::narrow{.start = {0, 0, 0, first, 0},
                           .len = {p.s.batch, p.s.time, c.kv_heads, count, c.head_dim},
                           .x = groups});
    return p.heads(some, c.kv_heads * count, c.head_dim);
  };
  return {heads(0, queries), heads(queries, 1), heads(queries + 1, 1)};
}

Value joined_attention(Step& p, Value normed, int64_t layer, const std::string& name,
                       Value residual) {
  return decoder_attend(p, joined_heads(p, normed, name), layer, name, residual, "dense");
}

Value norm_heads(Step& p, Value heads, Value gamma, const std::string& name) {
  const Value y = p.g.add(op::layer_norm{.eps = p.c.norm_eps, .x = heads}, name);
  return p.binary("mul", y, p.cast(gamma, p.s.compute));
}

Value norm_all_heads(Step& p, Value heads, const std::string& name, int64_t count) {
  const int64_t dims = count * p.c.head_dim;
  const Value all = p.reshape(heads, {p.s.batch, p.s.time, dims});
  return p.heads(p.rms_norm(all, name, dims, p.c.norm_eps), count, p.c.head_dim);
}

Value scaled_sum(Step& p, Value residual, Value more) {
  return p.binary("add", residual, p.scaled(more, p.c.residual_scale));
}

Value decoder_mlp(Step& p, Value x, const std::string& name, int64_t ffn, Value residual,
                  const MlpNames& parts) {
  const ModelConfig& c = p.c;
  const std::vector<std::string> names = {name + "." + parts.gate, name + "." + parts.up};
  const std::vector<int64_t> outs = {ffn, ffn};
  Value gate, up;
  if (is_gate(c.activation) && p.stacks(names, c.dim, outs, c.mlp_bias)) {
    gate = p.project_stacked(x, names, c.dim, outs, c.mlp_bias);
  } else {
    gate = p.project(x, names[0], c.dim, ffn, c.mlp_bias);
    up = p.project(x, names[1], c.dim, ffn, c.mlp_bias);
  }
  return p.project(p.gated(gate, up, c.activation, name + ".act"), name + "." + parts.down, ffn,
                   c.dim, c.mlp_bias, residual);
}

Value plain_mlp(Step& p, Value x, const std::string& name, const std::string& up,
                const std::string& down, Value residual, int64_t ffn) {
  const ModelConfig& c = p.c;
  if (ffn == 0) ffn = c.ffn;
  const Value y = p.project(x, name + "." + up, c.dim, ffn, c.mlp_bias);
  return p.project(p.activated(y, c.activation, name + ".act"), name + "." + down, ffn, c.dim,
                   c.mlp_bias, residual);
}

Value dense_mlp(Step& p, Value normed, int64_t, const std::string& name, Value residual) {
  return plain_mlp(p, normed, name + ".mlp", "dense_h_to_4h", "dense_4h_to_h", residual);
}

// An expert that all tokens use, times the sigmoid of a product with the token.
static Value gated_expert(Step& p, Value x, const std::string& name, Value residual) {
  const ModelConfig& c = p.c;
  const std::string gate = name + ".shared_expert_gate";
  const bool flat = p.weights.has(gate + ".flat");  // files of GGUF
  const Value row = flat ? p.reshape(p.weight(gate + ".flat", {c.dim}), {1, c.dim})
                         : p.weight(gate + ".weight", {1, c.dim});
  const Value weight =
      p.g.add(op::unary{.kind = "sigmoid", .x = p.multiply(x, row, gate)}, gate + ".sigmoid");
  const Value y = decoder_mlp(p, x, name + ".shared_expert", c.moe.shared_ffn, {});
  return p.binary("add", residual, p.binary("mul", y, weight));
}

Value decoder_feed_forward(Step& p, Value normed, int64_t layer, const std::string& name,
                           Value residual) {
  return named_feed_forward(p, normed, layer, name, residual, {});
}

Value named_feed_forward(Step& p, Value normed, int64_t layer, const std::string& layer_name,
                         Value residual, const MixtureNames& names) {
  const ModelConfig& c = p.c;
  const std::string name = layer_name + ".mlp";
  if (!c.sparse[static_cast<size_t>(layer)]) return decoder_mlp(p, normed, name, c.ffn, residual);
  if (c.moe.shared_gate)
    residual = gated_expert(p, normed, name, residual);
  else if (c.moe.shared_ffn > 0)
    residual = decoder_mlp(p, normed, name + names.shared, c.moe.shared_ffn, residual);
  return experts(p, normed,
                 {.router = name + names.router,
                  .experts = name + ".experts",
                  .correction = name + names.correction},
                 residual);
}

Value decoder_layers(Step& p, Value x, LayerPart attention, LayerPart feed_forward,
                     const LayerForm& form) {
  const ModelConfig& c = p.c;
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = std::string(form.layers) + std::to_string(i);
    const auto norm = [&](Value of, std::string_view which) {
      return which.empty() ? of : p.norm(of, name + std::string(which), c.dim);
    };
    const Value normed = norm(x, form.first_norm);
    const Value a = attention(p, normed, i, name, x);
    const Value m =
        c.parallel && !c.two_norms ? normed : norm(c.parallel ? x : a, form.second_norm);
    x = p.layer_end(x, feed_forward(p, m, i, name, a));
  }
  return x;
}

Value decoder_layers(Step& p, LayerPart attention, LayerPart feed_forward) {
  return decoder_layers(p, p.embed("model.embed_tokens"), attention, feed_forward, LayerForm{});
}

Value decoder_layers(Step& p, LayerPart attention, LayerPart feed_forward,
                     const LayerNorms& norms) {
  return decoder_layers(p, p.embed("model.embed_tokens"), attention, feed_forward, norms);
}

Value decoder_layers(Step& p, Value x, LayerPart attention, LayerPart feed_forward,
                     const LayerNorms& norms) {
  const ModelConfig& c = p.c;
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    const auto norm = [&](Value of, std::string_view which) {
      return which.empty() ? of : p.norm(of, name + std::string(which), c.dim);
    };
    const Value a = attention(p, norm(x, norms.before_attention), i, name, {});
    const Value y = p.binary("add", x, norm(a, norms.behind_attention));
    const Value m = feed_forward(p, norm(y, norms.before_mlp), i, name, {});
    const Value z = p.binary("add", y, norm(m, norms.behind_mlp));
    x = p.layer_end(x, norms.finish ? norms.finish(p, z, i, name) : z);
  }
  return x;
}

Value with_positions(Step& p, Value x, const std::string& name, int64_t unused) {
  const ModelConfig& c = p.c;
  Value at = p.positions();
  if (unused > 0) at = p.binary("add", at, p.constant({unused}));
  const Value table = p.weight(name + ".weight", {c.context + unused, c.dim});
  const Value places = p.g.add(op::gather{.data = table, .indices = at}, name);
  return p.binary("add", x, p.cast(places, p.s.compute));
}

Value decoder_hidden(Step& p) { return decoder_layers(p, decoder_attention, decoder_feed_forward); }

Value tied_head(Step& p, Value normed, const std::string& embedding) {
  const ModelConfig& c = p.c;
  const Value w = p.weight(c.tied ? embedding + ".weight" : "lm_head.weight", {c.vocab, c.dim});
  return p.scaled(p.multiply(normed, w, "lm_head", true, {}, {}, true), c.logit_scale);
}

Value decoder_head(Step& p, Value normed) { return tied_head(p, normed, "model.embed_tokens"); }

Value decoder_norm(Step& p, Value x) { return p.norm(x, "model.norm", p.c.dim); }

}  // namespace tenon::llm
