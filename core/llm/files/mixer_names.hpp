// SPDX-License-Identifier: Apache-2.0
// The tables of names of models with mixers of Mamba-2, and of hybrid models.
#pragma once

#include "llm/files/families.hpp"

namespace tenon::llm::files {

#define TENON_LAYER "model.layers.*."
#define TENON_BACKBONE "backbone.layers.*."
// The mixer of Mamba-2; `folder` ends with a point.
#define TENON_MIXER(folder_name, which)            \
  {folder_name "in_proj", "blk.*.ssm_in", which},  \
      {.folder = folder_name "conv1d",             \
       .gguf = "blk.*.ssm_conv1d",                 \
       .layers = which,                            \
       .change = Change::flat},                    \
      {.folder = folder_name "dt_bias",            \
       .gguf = "blk.*.ssm_dt.bias",                \
       .layers = which,                            \
       .whole = true},                             \
      {.folder = folder_name "A_log",              \
       .gguf = "blk.*.ssm_a",                      \
       .layers = which,                            \
       .change = Change::exponent_column,          \
       .whole = true},                             \
      {.folder = folder_name "D",                  \
       .gguf = "blk.*.ssm_d",                      \
       .layers = which,                            \
       .change = Change::column,                   \
       .whole = true},                             \
  {                                                \
    folder_name "out_proj", "blk.*.ssm_out", which \
  }
#define TENON_MIXER_NORM(folder_name, which, may_lack)                                             \
  {                                                                                                \
    .folder = folder_name "norm", .gguf = "blk.*.ssm_norm", .layers = which, .optional = may_lack, \
    .change = Change::groups                                                                       \
  }
#define TENON_SOME_ATTENTION(folder_name)                          \
  {folder_name "q_proj", "blk.*.attn_q", Layers::attention},       \
      {folder_name "k_proj", "blk.*.attn_k", Layers::attention},   \
      {folder_name "v_proj", "blk.*.attn_v", Layers::attention}, { \
    folder_name "o_proj", "blk.*.attn_output", Layers::attention   \
  }
constexpr NamePair kMamba2[] = {{"backbone.embeddings", "token_embd"},
                                {"backbone.norm_f", "output_norm"},
                                {"lm_head", "output"},
                                {TENON_BACKBONE "norm", "blk.*.attn_norm"},
                                TENON_MIXER(TENON_BACKBONE "mixer.", Layers::all),
                                TENON_MIXER_NORM(TENON_BACKBONE "mixer.", Layers::all, false)};
#define TENON_GRANITE_HYBRID                                                                  \
  {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}, \
      {TENON_LAYER "input_layernorm", "blk.*.attn_norm"},                                     \
      TENON_MIXER(TENON_LAYER "mamba.", Layers::recurrent),                                   \
      TENON_MIXER_NORM(TENON_LAYER "mamba.", Layers::recurrent, false),                       \
      TENON_SOME_ATTENTION(TENON_LAYER "self_attn."), {                                       \
    TENON_LAYER "post_attention_layernorm", "blk.*.ffn_norm"                                  \
  }
constexpr NamePair kGraniteHybrid[] = {TENON_GRANITE_HYBRID,
                                       {.folder = TENON_LAYER "shared_mlp.input_linear",
                                        .gguf = "blk.*.ffn_gate",
                                        .change = Change::first_half},
                                       {.folder = TENON_LAYER "shared_mlp.input_linear",
                                        .gguf = "blk.*.ffn_up",
                                        .change = Change::second_half},
                                       {TENON_LAYER "shared_mlp.output_linear", "blk.*.ffn_down"}};
constexpr NamePair kGraniteHybridMoe[] = {
    TENON_GRANITE_HYBRID,
    {TENON_LAYER "block_sparse_moe.router.layer", "blk.*.ffn_gate_inp"},
    {.folder = TENON_LAYER "shared_mlp.input_linear",
     .gguf = "blk.*.ffn_gate_shexp",
     .change = Change::first_half},
    {.folder = TENON_LAYER "shared_mlp.input_linear",
     .gguf = "blk.*.ffn_up_shexp",
     .change = Change::second_half},
    {TENON_LAYER "shared_mlp.output_linear", "blk.*.ffn_down_shexp"}};
constexpr NamePair kFalconH1[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.final_layernorm", "output_norm"},
    {"lm_head", "output"},
    {TENON_LAYER "input_layernorm", "blk.*.attn_norm"},
    TENON_SOME_ATTENTION(TENON_LAYER "self_attn."),
    TENON_MIXER(TENON_LAYER "mamba.", Layers::all),
    TENON_MIXER_NORM(TENON_LAYER "mamba.", Layers::all, true),
    {.folder = TENON_LAYER "pre_ff_layernorm.weight", .gguf = "blk.*.ffn_norm", .whole = true},
    {TENON_LAYER "feed_forward.gate_proj", "blk.*.ffn_gate"},
    {TENON_LAYER "feed_forward.up_proj", "blk.*.ffn_up"},
    {TENON_LAYER "feed_forward.down_proj", "blk.*.ffn_down"}};
#define TENON_NEMOTRON_H                                                     \
  {"backbone.embeddings", "token_embd"}, {"backbone.norm_f", "output_norm"}, \
      {"lm_head", "output"}, {TENON_BACKBONE "norm", "blk.*.attn_norm"},     \
      TENON_MIXER(TENON_BACKBONE "mixer.", Layers::recurrent),               \
      TENON_MIXER_NORM(TENON_BACKBONE "mixer.", Layers::recurrent, false),   \
      TENON_SOME_ATTENTION(TENON_BACKBONE "mixer.")
constexpr NamePair kNemotronH[] = {
    TENON_NEMOTRON_H,
    {TENON_BACKBONE "mixer.up_proj", "blk.*.ffn_up", Layers::dense},
    {TENON_BACKBONE "mixer.down_proj", "blk.*.ffn_down", Layers::dense}};
constexpr NamePair kNemotronHMoe[] = {
    TENON_NEMOTRON_H,
    {TENON_BACKBONE "mixer.gate", "blk.*.ffn_gate_inp", Layers::sparse},
    {.folder = TENON_BACKBONE "mixer.gate.e_score_correction_bias",
     .gguf = "blk.*.exp_probs_b.bias",
     .layers = Layers::sparse,
     .whole = true},
    {TENON_BACKBONE "mixer.shared_experts.up_proj", "blk.*.ffn_up_shexp", Layers::sparse},
    {TENON_BACKBONE "mixer.shared_experts.down_proj", "blk.*.ffn_down_shexp", Layers::sparse}};
constexpr ExpertPair kNemotronHExperts[] = {
    {TENON_BACKBONE "mixer.experts.#.up_proj", "blk.*.ffn_up_exps"},
    {TENON_BACKBONE "mixer.experts.#.down_proj", "blk.*.ffn_down_exps"}};
#define TENON_JAMBA TENON_LAYER "mamba."
#define TENON_JAMBA_FFN TENON_LAYER "feed_forward."
constexpr NamePair kJamba[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.final_layernorm", "output_norm"},
    {"lm_head", "output"},
    {TENON_LAYER "input_layernorm", "blk.*.attn_norm"},
    TENON_SOME_ATTENTION(TENON_LAYER "self_attn."),
    {TENON_JAMBA "in_proj", "blk.*.ssm_in", Layers::recurrent},
    {.folder = TENON_JAMBA "conv1d",
     .gguf = "blk.*.ssm_conv1d",
     .layers = Layers::recurrent,
     .change = Change::flat},
    {TENON_JAMBA "x_proj", "blk.*.ssm_x", Layers::recurrent},
    {TENON_JAMBA "dt_proj", "blk.*.ssm_dt", Layers::recurrent},
    {TENON_JAMBA "dt_layernorm", "blk.*.ssm_dt_norm", Layers::recurrent},
    {TENON_JAMBA "b_layernorm", "blk.*.ssm_b_norm", Layers::recurrent},
    {TENON_JAMBA "c_layernorm", "blk.*.ssm_c_norm", Layers::recurrent},
    {.folder = TENON_JAMBA "A_log",
     .gguf = "blk.*.ssm_a",
     .layers = Layers::recurrent,
     .change = Change::exponent,
     .whole = true},
    {.folder = TENON_JAMBA "D", .gguf = "blk.*.ssm_d", .layers = Layers::recurrent, .whole = true},
    {TENON_JAMBA "out_proj", "blk.*.ssm_out", Layers::recurrent},
    {TENON_LAYER "pre_ff_layernorm", "blk.*.ffn_norm"},
    {TENON_JAMBA_FFN "gate_proj", "blk.*.ffn_gate", Layers::dense},
    {TENON_JAMBA_FFN "up_proj", "blk.*.ffn_up", Layers::dense},
    {TENON_JAMBA_FFN "down_proj", "blk.*.ffn_down", Layers::dense},
    {TENON_JAMBA_FFN "router", "blk.*.ffn_gate_inp", Layers::sparse}};
constexpr ExpertPair kJambaExperts[] = {
    {TENON_JAMBA_FFN "experts.#.gate_proj", "blk.*.ffn_gate_exps"},
    {TENON_JAMBA_FFN "experts.#.up_proj", "blk.*.ffn_up_exps"},
    {TENON_JAMBA_FFN "experts.#.down_proj", "blk.*.ffn_down_exps"}};

#undef TENON_MIXER
#undef TENON_MIXER_NORM
#undef TENON_SOME_ATTENTION
#undef TENON_GRANITE_HYBRID
#undef TENON_NEMOTRON_H
#undef TENON_JAMBA
#undef TENON_JAMBA_FFN
#undef TENON_LAYER
#undef TENON_BACKBONE

}  // namespace tenon::llm::files
