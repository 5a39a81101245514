// SPDX-License-Identifier: Apache-2.0
// Mamba (Gu, Dao: arXiv 2312.00752): layers of a convolution along time and a selective scan. The
// state of a sequence has a constant size: the last inputs of the convolution, and the scan's state.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  MambaConfig& m = c.mamba;
  c.dim = r.size("hidden_size");
  c.layers = r.size("num_hidden_layers", {}, 4096);
  c.context = int64_t{1} << 20;  // nothing limits it
  c.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.tied = r.flag("tie_word_embeddings", true);
  m.state_size = r.size("state_size", 16, 1 << 16);
  m.conv_width = r.size("conv_kernel", 4, 64);
  if (m.conv_width < 2) r.refuse("conv_kernel", "2 to 64");
  const int64_t expand = r.size("expand", 2, 64);
  m.inner = r.size("intermediate_size", expand * c.dim, int64_t{1} << 26);
  const int64_t rank = (c.dim + 15) / 16;
  if (r.is_text("time_step_rank")) {
    if (r.text("time_step_rank") != "auto") r.refuse("time_step_rank", "'auto' or a size");
    m.dt_rank = rank;
  } else {
    m.dt_rank = r.size("time_step_rank", rank);
  }
  m.bias = r.flag("use_bias", false);
  m.conv_bias = r.flag("use_conv_bias", true);
  c.activation = read_activation(r, "hidden_act", "silu");
  if (c.activation != "silu") r.refuse("hidden_act", "'silu'");
  // Initial values and training; the scan's form; the dtype of the residual stream in half precision.
  r.ignore({"time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme",
            "time_step_floor", "rescale_prenorm_residual", "use_mambapy", "use_associative_scan",
            "residual_in_fp32", "ssm_cfg", "d_model", "n_layer", "fused_add_norm", "rms_norm",
            "pad_vocab_size_multiple", "max_seqlen"});
}

Value mixer(Step& p, Value x, const std::string& name, const std::string& cache, Value residual) {
  const ModelConfig& c = p.c;
  const MambaConfig& m = c.mamba;
  const int64_t d = m.inner, n = m.state_size, rank = m.dt_rank;
  const std::vector<int64_t> leading = {p.s.batch, p.s.time};
  const Value both = p.project(x, name + ".in_proj", c.dim, 2 * d, m.bias);
  const Value conv = convolved(p, p.part(both, leading, 0, d), {d, m.conv_width, m.conv_bias},
                               name + ".conv1d", cache + ".conv");
  const Value u = p.g.add(op::unary{.kind = "silu", .x = conv}, name + ".conv1d");
  const Value selected = p.project(u, name + ".x_proj", d, rank + 2 * n);
  // The bias of dt_proj is an operand of the scan.
  const Value dt = p.project(p.part(selected, leading, 0, rank), name + ".dt_proj", rank, d);
  const auto minus_exp = [&](Value log) {
    return Value(
        p.g.add(op::unary{.kind = "neg", .x = p.g.add(op::unary{.kind = "exp", .x = log})}));
  };
  // Files of GGUF have A itself.
  const Value a = p.weights.has(name + ".A") ? p.wide(name + ".A", {d, n})
                                             : minus_exp(p.wide(name + ".A_log", {d, n}));
  const Value before = p.recurrent_state(cache + ".scan", f32, {d, n});
  const auto scan = p.g.add(op::selective_scan{.dt_softplus = true,
                                               .layout = "bld",
                                               .u = u,
                                               .dt = dt,
                                               .a = a,
                                               .b = p.part(selected, leading, rank, n),
                                               .c = p.part(selected, leading, rank + n, n),
                                               .d = p.wide(name + ".D", {d}),
                                               .z = p.part(both, leading, d, d),
                                               .dt_bias = p.wide(name + ".dt_proj.bias", {d}),
                                               .h0 = before,
                                               .want_h_last = true},
                            name);
  p.update_state(cache + ".scan", scan[1]);
  return p.project(scan[0], name + ".out_proj", d, c.dim, m.bias, residual);
}

Value hidden(Step& p) {
  const ModelConfig& c = p.c;
  Value x = p.embed("backbone.embeddings");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "backbone.layers." + std::to_string(i);
    x = p.layer_end(x, mixer(p, p.rms_norm(x, name + ".norm", c.dim, c.norm_eps), name + ".mixer",
                             std::to_string(i), x));
  }
  return x;
}

Value last_norm(Step& p, Value x) {
  return p.rms_norm(x, "backbone.norm_f", p.c.dim, p.c.norm_eps);
}

Value head(Step& p, Value normed) {
  const ModelConfig& c = p.c;
  const Value w =
      p.weight(c.tied ? "backbone.embeddings.weight" : "lm_head.weight", {c.vocab, c.dim});
  return p.multiply(normed, w, "lm_head", true, {}, {}, true);
}

}  // namespace

const Architecture kMamba = {"mamba", "MambaForCausalLM", read, hidden, last_norm, head};

}  // namespace tenon::llm
