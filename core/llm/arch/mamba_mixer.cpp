// SPDX-License-Identifier: Apache-2.0
// The mixers of Mamba (Gu, Dao: arXiv 2312.00752) and Mamba-2 (Dao, Gu: arXiv 2405.21060): a causal
// convolution and a recurrence whose coefficients depend on the input. The state of a sequence has a
// constant size: the last inputs of the convolution, and the state of the recurrence.
#include "llm/arch/mamba_mixer.hpp"

#include <limits>

namespace tenon::llm {
namespace {

Value unary(Step& p, const char* kind, Value x) { return p.g.add(op::unary{.kind = kind, .x = x}); }

// silu of the convolution of the mixer.
Value convolved_silu(Step& p, Value x, int64_t channels, const std::string& name,
                     const std::string& cache) {
  const MambaConfig& m = p.c.mamba;
  const Value y = convolved(p, x, {channels, m.conv_width, m.conv_bias}, name, cache);
  return p.g.add(op::unary{.kind = "silu", .x = y}, name);
}

// The rates of decay, f32. Files of GGUF have them, with an axis of 1 behind those of Mamba-2; folders
// have the logarithm of the negated ones.
Value rates(Step& p, const std::string& name, const std::vector<int64_t>& dims) {
  const std::string own = name + ".A";
  if (!p.weights.has(own)) return unary(p, "neg", unary(p, "exp", p.wide(name + ".A_log", dims)));
  if (dims.size() > 1) return p.wide(own, dims);
  return p.reshape(p.wide(own, {dims[0], 1}), dims);
}

// A number of each head of Mamba-2, f32.
Value of_heads(Step& p, const std::string& name, int64_t heads) {
  const std::string column = name + ".column";  // files of GGUF
  if (!p.weights.has(column)) return p.wide(name, {heads});
  return p.reshape(p.wide(column, {heads, 1}), {heads});
}

// The norm of each group of y [batch, time, inner], with the gate z in front of it or behind it.
Value gated_norm(Step& p, Value y, Value z, const std::string& name) {
  const MambaConfig& m = p.c.mamba;
  const auto gated = [&](Value x) {
    return Value(p.g.add(op::swiglu{.gate = z, .up = x}, name + ".gate"));
  };
  if (m.norm == MixerNorm::none) return gated(y);
  if (m.norm == MixerNorm::behind_gate) y = gated(y);
  const int64_t each = m.inner / m.groups;
  const std::string grouped = name + ".grouped";  // files of GGUF
  const Value gamma = p.weights.has(grouped)
                          ? p.parameter(grouped, {m.groups, each})
                          : p.reshape(p.parameter(name + ".weight", {m.inner}), {m.groups, each});
  Value normed = m.groups == 1
                     ? p.rms_norm_by(y, p.reshape(gamma, {each}), name, m.norm_eps)
                     : p.binary("mul",
                                p.bare_rms_norm(p.reshape(y, {p.s.batch, p.s.time, m.groups, each}),
                                                name, m.norm_eps),
                                gamma);
  normed = p.reshape(normed, {p.s.batch, p.s.time, m.inner});
  return m.norm == MixerNorm::before_gate ? gated(normed) : normed;
}

}  // namespace

Value mamba_mixer(Step& p, Value x, const std::string& name, const std::string& cache,
                  Value residual) {
  const ModelConfig& c = p.c;
  const MambaConfig& m = c.mamba;
  const int64_t d = m.inner, n = m.state_size, rank = m.dt_rank;
  const std::vector<int64_t> leading = {p.s.batch, p.s.time};
  const Value both = p.project(x, name + ".in_proj", c.dim, 2 * d, m.bias);
  const Value u =
      convolved_silu(p, p.part(both, leading, 0, d), d, name + ".conv1d", cache + ".conv");
  const Value selected = p.project(u, name + ".x_proj", d, rank + 2 * n);
  const auto selection = [&](int64_t start, int64_t length, const char* norm) {
    const Value part = p.part(selected, leading, start, length);
    if (m.bare_norms) return p.bare_rms_norm(part, name + norm, m.norm_eps);
    return m.inner_norms ? p.rms_norm(part, name + norm, length, m.norm_eps) : part;
  };
  // The bias of dt_proj is an operand of the scan.
  const Value dt = p.project(selection(0, rank, ".dt_layernorm"), name + ".dt_proj", rank, d);
  const Value before = p.recurrent_state(cache + ".scan", f32, {d, n});
  const auto scan = p.g.add(op::selective_scan{.dt_softplus = true,
                                               .layout = "bld",
                                               .u = u,
                                               .dt = dt,
                                               .a = rates(p, name, {d, n}),
                                               .b = selection(rank, n, ".b_layernorm"),
                                               .c = selection(rank + n, n, ".c_layernorm"),
                                               .d = p.wide(name + ".D", {d}),
                                               .z = p.part(both, leading, d, d),
                                               .dt_bias = p.wide(name + ".dt_proj.bias", {d}),
                                               .h0 = before,
                                               .want_h_last = true},
                            name);
  p.update_state(cache + ".scan", scan[1]);
  return p.project(scan[0], name + ".out_proj", d, c.dim, m.bias, residual);
}

// Of each head, with a state S [state_size, head_dim], a step dt, a rate a, and b and c of its group:
//
//   S_t = exp(dt a) S_(t-1) + b_t (dt u_t)ᵀ        y_t = S_tᵀ c_t + d u_t
//
// That is linear attention with c as queries, b as keys and dt u as values. The gated delta rule adds
// beta b (v - S'ᵀ b)ᵀ, where S' is the decayed state. With beta = 2^-40 and v = dt u / beta, this is
// b (dt u)ᵀ up to a share of 2^-40 |b|² of the state, which is below the rounding of f32. Powers of two
// are exact, so nothing else is lost, and the kernels of the rule read chunks of tokens by products.
static Value recurrence(Step& p, Value u, Value b, Value c, Value dt, const std::string& name,
                        const std::string& cache) {
  const MambaConfig& m = p.c.mamba;
  constexpr double kBeta = 0x1p-40;
  const int64_t batch = p.s.batch, time = p.s.time, size = m.inner / m.heads;
  // Values over beta do not fit f16.
  const tenon_dtype dtype = p.s.compute == f16 ? tenon_dtype{f32} : p.s.compute;
  const auto groups = [&](Value x) {
    return p.cast(p.reshape(x, {batch, time, m.groups, m.state_size}), dtype);
  };
  const Value heads = p.cast(p.reshape(u, {batch, time, m.heads, size}), f32);
  const Value steps = p.reshape(dt, {batch, time, m.heads, 1});
  const Value beta = p.cast(p.g.constant<float>({}, {static_cast<float>(kBeta)}), dtype);
  const Value before = p.recurrent_state(cache, f32, {m.heads, m.state_size, size});
  const auto rule = p.g.add(
      op::gated_delta_rule{.scale = 1,
                           .q = groups(c),
                           .k = groups(b),
                           .v = p.cast(p.binary("mul", heads, p.scaled(steps, 1 / kBeta)), dtype),
                           .g = p.binary("mul", dt, rates(p, name, {m.heads})),
                           .beta = p.g.add(op::expand{.shape = {batch, time, m.heads}, .x = beta}),
                           .state = before,
                           .want_state_out = true},
      name);
  p.update_state(cache, rule[1]);
  const Value skip = p.reshape(of_heads(p, name + ".D", m.heads), {m.heads, 1});
  const Value y = p.binary("add", p.cast(rule[0], f32), p.binary("mul", heads, skip));
  return p.reshape(p.cast(y, p.s.compute), {batch, time, m.inner});
}

Value mamba2_mixer(Step& p, Value x, const std::string& name, const std::string& cache,
                   Value residual) {
  const ModelConfig& c = p.c;
  const MambaConfig& m = c.mamba;
  const int64_t shared = m.groups * m.state_size, channels = m.inner + 2 * shared;
  const std::vector<int64_t> leading = {p.s.batch, p.s.time};
  Value all = p.project(p.scaled(x, m.in_scale), name + ".in_proj", c.dim,
                        m.inner + channels + m.heads, m.bias);
  if (!m.part_scales.empty()) {
    const Value scales = p.table("mixer.part_scales", {m.inner + channels + m.heads}, [&] {
      std::vector<float> out;
      const int64_t lengths[] = {m.inner, m.inner, shared, shared, m.heads};
      for (size_t i = 0; i < 5; ++i)
        out.insert(out.end(), static_cast<size_t>(lengths[i]),
                   static_cast<float>(m.part_scales[i]));
      return out;
    });
    all = p.binary("mul", all, p.cast(scales, p.s.compute));
  }
  const Value z = p.part(all, leading, 0, m.inner);
  const Value mixed = convolved_silu(p, p.part(all, leading, m.inner, channels), channels,
                                     name + ".conv1d", cache + ".conv");
  const Value raw = p.part(all, leading, m.inner + channels, m.heads);
  Value dt =
      unary(p, "softplus", p.binary("add", p.cast(raw, f32), p.wide(name + ".dt_bias", {m.heads})));
  if (m.least_step > 0)
    dt = p.binary("max", dt, p.g.constant<float>({}, {static_cast<float>(m.least_step)}));
  if (m.most_step < std::numeric_limits<float>::max())
    dt = p.binary("min", dt, p.g.constant<float>({}, {static_cast<float>(m.most_step)}));
  const Value y =
      recurrence(p, p.part(mixed, leading, 0, m.inner), p.part(mixed, leading, m.inner, shared),
                 p.part(mixed, leading, m.inner + shared, shared), dt, name, cache + ".scan");
  return p.project(gated_norm(p, y, z, name + ".norm"), name + ".out_proj", m.inner, c.dim,
                   m.out_bias, residual);
}

// ---- Keys

void read_step_limit(ConfigReader& r, MambaConfig& m) {
  const std::vector<double> limits = r.limits("time_step_limit");
  if (limits.empty()) return;
  constexpr double kMost = 1e30;
  if (limits.size() != 2 || !(limits[0] >= 0) || !(limits[0] < limits[1]) || limits[0] > kMost)
    r.refuse("time_step_limit", "two numbers from 0 on, the smaller one first");
  m.least_step = limits[0], m.most_step = limits[1];
}

void check_mamba2(const ConfigReader& r, const MambaConfig& m, std::string_view heads_key,
                  std::string_view groups_key) {
  if (m.inner % m.heads != 0)
    r.refuse(heads_key, "a divisor of the " + std::to_string(m.inner) + " channels of a mixer");
  if (m.heads % m.groups != 0)
    r.refuse(groups_key, "a divisor of the " + std::to_string(m.heads) + " heads");
}

void read_mamba2(ConfigReader& r, ModelConfig& c, int64_t inner) {
  MambaConfig& m = c.mamba;
  constexpr int64_t kMost = int64_t{1} << 20;
  const int64_t expand = r.size("mamba_expand", 2, 64);
  m.inner = inner > 0 ? inner : expand * c.dim;
  m.heads = r.size("mamba_n_heads", 128, kMost);
  m.groups = r.size("mamba_n_groups", 1, kMost);
  m.state_size = r.size("mamba_d_state", 256, 1 << 16);
  m.conv_width = r.size("mamba_d_conv", 4, 64);
  if (m.conv_width < 2) r.refuse("mamba_d_conv", "2 to 64");
  m.conv_bias = r.flag("mamba_conv_bias", true);
  m.bias = m.out_bias = r.flag("mamba_proj_bias", false);
  m.norm_eps = c.norm_eps;
  check_mamba2(r, m, "mamba_n_heads", "mamba_n_groups");
  if (r.is_text("mamba_d_head")) {
    if (r.text("mamba_d_head") != "auto") r.refuse("mamba_d_head", "'auto' or a size");
  } else if (r.size("mamba_d_head", m.inner / m.heads, kMost) != m.inner / m.heads) {
    r.refuse("mamba_d_head", std::to_string(m.inner / m.heads) + ", the channels of a head");
  }
  read_step_limit(r, m);
  if (c.activation != "silu") r.refuse("hidden_act", "'silu'");
  // How the scan is cut, and initial values of steps.
  r.ignore(
      {"mamba_chunk_size", "time_step_min", "time_step_max", "time_step_floor", "mamba_dt_rank"});
}

bool read_mixer_layers(ConfigReader& r, ModelConfig& c) {
  for (const char* key : {"layer_types", "layers_block_type"}) {
    const std::vector<std::string> types = r.texts(key);
    if (types.empty()) continue;
    if (static_cast<int64_t>(types.size()) != c.layers)
      r.refuse(key, "one entry for each of the " + std::to_string(c.layers) + " layers");
    c.recurrent_layers.assign(types.size(), false);
    for (size_t i = 0; i < types.size(); ++i) {
      c.recurrent_layers[i] = types[i] == "mamba" || types[i] == "linear_attention";
      if (!c.recurrent_layers[i] && types[i] != "attention" && types[i] != "full_attention")
        r.refuse(key, "entries 'mamba', 'attention', 'linear_attention' and 'full_attention'");
    }
    return true;
  }
  return false;
}

}  // namespace tenon::llm
