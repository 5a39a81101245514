// SPDX-License-Identifier: Apache-2.0
// Gemma 3n: several residual streams, of which layers read one and correct all (AltUp; Baykal and
// others: arXiv 2301.13310), a low-rank path beside attention, and gates of which few are active.
#include <algorithm>
#include <cmath>

#include "llm/arch/families.hpp"
#include "llm/arch/gemma_parts.hpp"

namespace tenon::llm {
namespace {

// Below which the given share of a normal distribution lies.
double quantile(double share) {
  double low = -10, high = 10;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

void read(ConfigReader& r, ModelConfig& c) {
  read_gemma_parts(r, c, {.period = 5, .shared_keys = 15, .logit_softcap = 30});
  check_shared_keys(r, c);
  if (c.per_layer.input_dim == 0) r.refuse("hidden_size_per_layer_input", "1 to 65536");
  read_gemma_ropes(r, c);
  AltUpConfig& a = c.altup;
  a.streams = r.size("altup_num_inputs", 4, 64);
  if (a.streams < 2) r.refuse("altup_num_inputs", "2 to 64");
  a.active = r.integer("altup_active_idx", 0);
  if (a.active < 0 || a.active >= a.streams)
    r.refuse("altup_active_idx", "0 to altup_num_inputs - 1");
  a.scaled = r.flag("altup_correct_scale", true);
  a.laurel_rank = r.size("laurel_rank", 64);
  a.sparsity = r.numbers("activation_sparsity_pattern");
  const auto layers = static_cast<size_t>(c.layers);
  if (!r.has("activation_sparsity_pattern")) {
    a.sparsity.assign(layers, 0);
    if (layers > 10) std::fill_n(a.sparsity.begin(), 10, 0.95);
  }
  if (a.sparsity.size() != layers ||
      !std::ranges::all_of(a.sparsity, [](double s) { return s >= 0 && s < 1; }))
    r.refuse("activation_sparsity_pattern",
             "a number from 0 to below 1 for each of the " + std::to_string(c.layers) + " layers");
  r.ignore({"altup_coef_clip", "altup_lr_multiplier"});  // of training
}

// All of [batch, time, dim].
using Streams = std::vector<Value>;

Value mean(Step& p, Value x) {
  return p.g.add(op::reduce{.kind = "mean", .axes = {2}, .keepdims = true, .x = x});
}

Value root(Step& p, Value x) { return p.g.add(op::unary{.kind = "sqrt", .x = x}); }

Value number(Step& p, double v) {
  return p.cast(p.g.constant<float>({}, {static_cast<float>(v)}), p.s.compute);
}

// y with the root mean square of x.
Value as_large_as(Step& p, Value y, Value x) {
  const auto square = [&](Value v) { return mean(p, p.binary("mul", v, v)); };
  const Value own = root(p, p.binary("max", square(y), number(p, 1e-5)));
  return p.binary("div", p.binary("mul", y, root(p, square(x))), own);
}

// [batch, time, streams]: how the streams depend on x.
Value modalities(Step& p, Value x, const std::string& name) {
  const ModelConfig& c = p.c;
  const Value normed =
      p.scaled(p.norm(x, name + ".router_norm", c.dim), 1 / static_cast<double>(c.dim));
  const Value routed = p.project(normed, name + ".modality_router", c.dim, c.altup.streams);
  return p.g.add(op::unary{.kind = "tanh", .x = routed});
}

// Column `i` of coefficients, [batch, time, 1].
Value column(Step& p, Value all, int64_t i) { return p.part(all, {p.s.batch, p.s.time}, i, 1); }

Streams predicted(Step& p, const Streams& x, const std::string& name) {
  const AltUpConfig& a = p.c.altup;
  const Value all = p.project(modalities(p, x[static_cast<size_t>(a.active)], name),
                              name + ".prediction_coefs", a.streams, a.streams * a.streams);
  Streams out;
  for (int64_t to = 0; to < a.streams; ++to) {
    Value sum = x[static_cast<size_t>(to)];
    for (int64_t from = 0; from < a.streams; ++from)
      sum = p.binary(
          "add", sum,
          p.binary("mul", x[static_cast<size_t>(from)], column(p, all, to * a.streams + from)));
    out.push_back(sum);
  }
  return out;
}

// y: what the layer has made of the active stream.
Streams corrected(Step& p, const Streams& x, Value y, const std::string& name) {
  const AltUpConfig& a = p.c.altup;
  const Value all = p.binary(
      "add", p.project(modalities(p, y, name), name + ".correction_coefs", a.streams, a.streams),
      number(p, 1));
  const Value innovation = p.binary("sub", y, x[static_cast<size_t>(a.active)]);
  Streams out;
  for (int64_t i = 0; i < a.streams; ++i)
    out.push_back(
        p.binary("add", x[static_cast<size_t>(i)], p.binary("mul", innovation, column(p, all, i))));
  return out;
}

// Gates below the mean plus so many standard deviations are 0.
Value sparse(Step& p, Value gate, double share) {
  const Value middle = mean(p, gate), away = p.binary("sub", gate, middle);
  const Value deviation = root(p, mean(p, p.binary("mul", away, away)));
  return p.g.add(
      op::unary{.kind = "relu", .x = p.binary("sub", away, p.scaled(deviation, quantile(share)))});
}

Value mlp(Step& p, Value x, int64_t layer, const std::string& name) {
  const ModelConfig& c = p.c;
  const double share = c.altup.sparsity[static_cast<size_t>(layer)];
  if (share == 0) return decoder_mlp(p, x, name, c.ffn, {});
  const std::vector<Value> both =
      p.project_all(x, {name + ".gate_proj", name + ".up_proj"}, c.dim, {c.ffn, c.ffn});
  return p.project(p.gated(sparse(p, both[0], share), both[1], c.activation, name + ".act"),
                   name + ".down_proj", c.ffn, c.dim);
}

Value laurel(Step& p, Value x, const std::string& name) {
  const ModelConfig& c = p.c;
  const int64_t rank = c.altup.laurel_rank;
  const Value low = p.project(x, name + ".linear_left", c.dim, rank);
  const Value y = p.project(low, name + ".linear_right", rank, c.dim);
  return p.binary("add", x, p.norm(y, name + ".post_laurel_norm", c.dim));
}

Streams layer_of(Step& p, const Streams& before, int64_t i) {
  const ModelConfig& c = p.c;
  const AltUpConfig& a = c.altup;
  const std::string name = "model.layers." + std::to_string(i);
  const auto norm = [&](Value x, const char* which) { return p.norm(x, name + which, c.dim); };
  const Streams x = predicted(p, before, name + ".altup");
  const Value active = x[static_cast<size_t>(a.active)];
  const Value normed = norm(active, ".input_layernorm");
  const Value beside = laurel(p, normed, name + ".laurel");
  const Value attended = norm(gemma_attention(p, normed, i, name, {}), ".post_attention_layernorm");
  const Value y =
      p.scaled(p.binary("add", p.binary("add", active, attended), beside), std::sqrt(0.5));
  const Value m = norm(mlp(p, norm(y, ".pre_feedforward_layernorm"), i, name + ".mlp"),
                       ".post_feedforward_layernorm");
  Streams out = corrected(p, x, p.binary("add", y, m), name + ".altup");
  Value first = out[static_cast<size_t>(a.active)];
  if (a.scaled)
    first = p.binary("mul", first, p.parameter(name + ".altup.correct_output_scale", {c.dim}));
  const Value more = layer_input(p, first, i, name);
  for (size_t s = 1; s < out.size(); ++s) out[s] = p.binary("add", out[s], more);
  return out;
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  const int64_t streams = c.altup.streams;
  Streams x = {p.embed("model.embed_tokens")};
  make_layer_inputs(p, x[0]);
  const auto projected = [&](Value of, const char* name, int64_t i) {
    return p.project(of, name + std::to_string(i - 1), c.dim, c.dim);
  };
  for (int64_t i = 1; i < streams; ++i)
    x.push_back(as_large_as(p, projected(x[0], "model.altup_projections.", i), x[0]));
  for (int64_t i = 0; i < c.layers; ++i) {
    const Streams y = layer_of(p, x, i);
    if (p.s.checkpoint) p.g.checkpoint(x, y);
    x = y;
  }
  Value sum = x[0];
  for (int64_t i = 1; i < streams; ++i)
    sum = p.binary(
        "add", sum,
        as_large_as(p, projected(x[static_cast<size_t>(i)], "model.altup_unembed_projections.", i),
                    x[0]));
  return p.scaled(sum, 1 / static_cast<double>(streams));
}

}  // namespace

const Architecture kGemma3n = {"gemma3n_text", "Gemma3nForCausalLM", read,
                               hidden,         decoder_norm,         decoder_head};

}  // namespace tenon::llm
