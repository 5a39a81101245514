// SPDX-License-Identifier: Apache-2.0
// Mamba and Mamba-2: layers of a norm and a mixer.
#include "llm/arch/families.hpp"
#include "llm/arch/mamba_mixer.hpp"

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

// Mamba with norms of dt, b and c that have no weights.
void read_falcon(ConfigReader& r, ModelConfig& c) {
  read(r, c);
  c.mamba.inner_norms = c.mamba.bare_norms = true;
  c.mamba.norm_eps = r.positive("mixer_rms_eps", 1e-6);
  r.ignore({"use_falcon_mambapy"});
}

void read_2(ConfigReader& r, ModelConfig& c) {
  MambaConfig& m = c.mamba;
  c.dim = r.size("hidden_size");
  c.layers = r.size("num_hidden_layers", {}, 4096);
  c.context = int64_t{1} << 20;  // nothing limits it
  c.norm_eps = m.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.tied = r.flag("tie_word_embeddings", false);
  m.inner = r.size("expand", 2, 64) * c.dim;
  m.heads = r.size("num_heads", 128);
  m.groups = r.size("n_groups", 8);
  m.state_size = r.size("state_size", 128, 1 << 16);
  m.conv_width = r.size("conv_kernel", 4, 64);
  if (m.conv_width < 2) r.refuse("conv_kernel", "2 to 64");
  check_mamba2(r, m, "num_heads", "n_groups");
  if (r.size("head_dim", 64) != m.inner / m.heads)
    r.refuse("head_dim", std::to_string(m.inner / m.heads) + ", the channels of a head");
  if (r.size("intermediate_size", m.inner, int64_t{1} << 26) != m.inner)
    r.refuse("intermediate_size", std::to_string(m.inner) + ", expand * hidden_size");
  m.bias = m.out_bias = r.flag("use_bias", false);
  m.conv_bias = r.flag("use_conv_bias", true);
  read_step_limit(r, m);
  c.activation = read_activation(r, "hidden_act", "silu");
  if (c.activation != "silu") r.refuse("hidden_act", "'silu'");
  r.expect("rms_norm", true);
  // Initial values and training; how the scan is cut; the dtype of the residual stream in half
  // precision. transformers has the gate in front of the norm whatever norm_before_gate says.
  r.ignore({"time_step_rank", "time_step_min", "time_step_max", "time_step_init_scheme",
            "time_step_floor", "rescale_prenorm_residual", "chunk_size", "residual_in_fp32",
            "norm_before_gate", "pad_vocab_size_multiple", "layer_types"});
}

using Mixer = Value (*)(Step& p, Value x, const std::string& name, const std::string& cache,
                        Value residual);
Value layers(Step& p, Mixer mixer) {
  const ModelConfig& c = p.c;
  Value x = p.embed("backbone.embeddings");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = "backbone.layers." + std::to_string(i);
    x = p.layer_end(x, mixer(p, p.rms_norm(x, name + ".norm", c.dim, c.norm_eps), name + ".mixer",
                             std::to_string(i), x));
  }
  return x;
}

Value hidden(Step& p) { return layers(p, mamba_mixer); }
Value hidden_2(Step& p) { return layers(p, mamba2_mixer); }

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

const Architecture kFalconMamba = {
    "falcon_mamba", "FalconMambaForCausalLM", read_falcon, hidden, last_norm, head};
const Architecture kMamba = {"mamba", "MambaForCausalLM", read, hidden, last_norm, head};
const Architecture kMamba2 = {"mamba2", "Mamba2ForCausalLM", read_2, hidden_2, last_norm, head};

}  // namespace tenon::llm
