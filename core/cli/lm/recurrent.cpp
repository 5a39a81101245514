// SPDX-License-Identifier: Apache-2.0
// The layers of the recurrent models: Mamba (Gu, Dao: arXiv 2312.00752) and Gated DeltaNet (Yang,
// Kautz, Hatamizadeh: arXiv 2412.06464). What a layer keeps from step to step has a constant size:
// the last inputs of its convolution, and the state of its recurrence.
#include "cli/lm/builder.hpp"

namespace tenon::lm {

Value Builder::unary(const char* kind, Value x) { return g_.add(op::unary{.kind = kind, .x = x}); }

Value Builder::binary(const char* kind, Value a, Value b) {
  return g_.add(op::binary{.kind = kind, .a = a, .b = b});
}

Value Builder::part(const Place& at, Value x, int64_t start, int64_t length) {
  return g_.add(op::narrow{.start = {0, 0, start}, .len = {at.batch, at.time, length}, .x = x});
}

// silu of the causal depthwise convolution of x [batch, time, channels] along time. It is a sum of
// shifted products, so nothing is transposed.
Value Builder::convolved(const Place& at, const std::string& name, Value x, int64_t channels) {
  const int64_t width = c_.conv_width, before = width - 1;
  Value seen;  // x behind the inputs before it
  if (at.keeps_state) {
    const Value window = g_.state(at.cache + ".conv", {c_.dtype, {at.batch, before, channels}});
    seen = g_.add(op::concat{.axis = 1, .xs = {window, x}}, name + ".seen");
    g_.update(
        window,
        g_.add(op::narrow{.start = {0, at.time, 0}, .len = {at.batch, before, channels}, .x = seen},
               name + ".window"));
  } else {
    seen = g_.add(op::pad{.before = {0, before, 0}, .after = {0, 0, 0}, .x = x}, name + ".seen");
  }
  const Value taps = weight(name + ".weight");
  Value sum = weight(name + ".bias");
  for (int64_t k = 0; k < width; ++k) {
    const Value shifted =
        g_.add(op::narrow{.start = {0, k, 0}, .len = {at.batch, at.time, channels}, .x = seen});
    const Value tap = g_.add(op::narrow{.start = {k, 0}, .len = {1, channels}, .x = taps});
    sum = binary("add", sum, binary("mul", shifted, tap));
  }
  return g_.add(op::unary{.kind = "silu", .x = sum}, name);
}

Value Builder::mamba(const Place& at, Value normed, Value residual) {
  const std::string mixer = at.name + ".mixer";
  const int64_t d = c_.inner(), n = c_.state_size, rank = c_.dt_rank();
  const Value both = project(normed, mixer + ".in_proj");
  const Value u = convolved(at, mixer + ".conv1d", part(at, both, 0, d), d);
  const Value selected = project(u, mixer + ".x_proj");
  // The bias of dt_proj is an operand of the scan.
  const Value dt = g_.add(op::matmul{.trans_b = true,
                                     .a = part(at, selected, 0, rank),
                                     .b = weight(mixer + ".dt_proj.weight")},
                          mixer + ".dt_proj");
  const Value a = unary("neg", unary("exp", reshape(weight(mixer + ".A_log"), {d, n})));
  const Value before =
      at.keeps_state ? g_.state(at.cache + ".scan", {f32, {at.batch, d, n}}) : Value{};
  const auto scan = g_.add(op::selective_scan{.dt_softplus = true,
                                              .layout = "bld",
                                              .u = u,
                                              .dt = dt,
                                              .a = a,
                                              .b = part(at, selected, rank, n),
                                              .c = part(at, selected, rank + n, n),
                                              .d = weight(mixer + ".D"),
                                              .z = part(at, both, d, d),
                                              .dt_bias = weight(mixer + ".dt_bias"),
                                              .h0 = before,
                                              .want_h_last = at.keeps_state},
                           mixer);
  if (before) g_.update(before, scan[1]);
  return project(scan[0], mixer + ".out_proj", residual);
}

Value Builder::delta(const Place& at, Value normed, Value residual) {
  const std::string mixer = at.name + ".linear_attn";
  const int64_t h = c_.heads, k = c_.head_dim(), v = c_.expand * k;
  const Value qkv =
      convolved(at, mixer + ".conv1d", project(normed, mixer + ".in_proj_qkv"), h * (2 * k + v));
  const auto heads_of = [&](Value x, int64_t start, int64_t size) {
    return reshape(part(at, x, start, h * size), {at.batch, at.time, h, size});
  };
  const Value beta = unary("sigmoid", project(normed, mixer + ".in_proj_b"));
  const Value step = g_.add(op::cast{.to = f32, .x = project(normed, mixer + ".in_proj_a")});
  const Value rate = unary("neg", unary("exp", weight(mixer + ".A_log")));
  const Value decay =
      binary("mul", rate, unary("softplus", binary("add", step, weight(mixer + ".dt_bias"))));
  const Value before =
      at.keeps_state ? g_.state(at.cache + ".scan", {f32, {at.batch, h, k, v}}) : Value{};
  const auto rule = g_.add(op::gated_delta_rule{.qk_l2norm = true,
                                                .q = heads_of(qkv, 0, k),
                                                .k = heads_of(qkv, h * k, k),
                                                .v = heads_of(qkv, 2 * h * k, v),
                                                .g = decay,
                                                .beta = beta,
                                                .state = before,
                                                .want_state_out = at.keeps_state},
                           mixer);
  if (before) g_.update(before, rule[1]);
  const Value gate = heads_of(project(normed, mixer + ".in_proj_z"), 0, v);
  const Value gated =
      g_.add(op::swiglu{.gate = gate, .up = norm(rule[0], mixer + ".norm")}, mixer + ".gated");
  return project(reshape(gated, {at.batch, at.time, h * v}), mixer + ".out_proj", residual);
}

Value Builder::recurrent_layer(int64_t i, Value x, int64_t batch, int64_t time, bool keeps_state) {
  const Place at{layer_name(i), "cache." + std::to_string(i), batch, time, keeps_state};
  const Value normed = norm(x, at.name + ".input_layernorm");
  if (c_.arch == Arch::mamba) return mamba(at, normed, x);
  return mlp(at.name, delta(at, normed, x));
}

}  // namespace tenon::lm
