// SPDX-License-Identifier: Apache-2.0
// The tables of names.
#pragma once

#include "llm/files/families.hpp"

namespace tenon::llm::files {

#define TENON_LAYER "model.layers.*."
#define TENON_ENDS \
  {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, { "lm_head", "output" }
#define TENON_ATTENTION                                   \
  {TENON_LAYER "input_layernorm", "blk.*.attn_norm"},     \
      {TENON_LAYER "self_attn.q_proj", "blk.*.attn_q"},   \
      {TENON_LAYER "self_attn.k_proj", "blk.*.attn_k"},   \
      {TENON_LAYER "self_attn.v_proj", "blk.*.attn_v"}, { \
    TENON_LAYER "self_attn.o_proj", "blk.*.attn_output"   \
  }
#define TENON_FEED_FORWARD                                                                        \
  {TENON_LAYER "mlp.gate_proj", "blk.*.ffn_gate"}, {TENON_LAYER "mlp.up_proj", "blk.*.ffn_up"}, { \
    TENON_LAYER "mlp.down_proj", "blk.*.ffn_down"                                                 \
  }
#define TENON_HEAD_NORMS                                   \
  {TENON_LAYER "self_attn.q_norm", "blk.*.attn_q_norm"}, { \
    TENON_LAYER "self_attn.k_norm", "blk.*.attn_k_norm"    \
  }
#define TENON_SECOND_NORM \
  { TENON_LAYER "post_attention_layernorm", "blk.*.ffn_norm" }
#define TENON_GEMMA_NORMS                                                \
  {TENON_LAYER "post_attention_layernorm", "blk.*.post_attention_norm"}, \
      {TENON_LAYER "pre_feedforward_layernorm", "blk.*.ffn_norm"}, {     \
    TENON_LAYER "post_feedforward_layernorm", "blk.*.post_ffw_norm"      \
  }

constexpr NamePair kLlama[] = {TENON_ENDS, TENON_ATTENTION, TENON_SECOND_NORM, TENON_FEED_FORWARD};
constexpr NamePair kQwen3[] = {TENON_ENDS, TENON_ATTENTION, TENON_HEAD_NORMS, TENON_SECOND_NORM,
                               TENON_FEED_FORWARD};
constexpr NamePair kGemma2[] = {TENON_ENDS, TENON_ATTENTION, TENON_GEMMA_NORMS, TENON_FEED_FORWARD};
constexpr NamePair kGemma3[] = {TENON_ENDS, TENON_ATTENTION, TENON_HEAD_NORMS, TENON_GEMMA_NORMS,
                                TENON_FEED_FORWARD};
constexpr NamePair kPhi3[] = {TENON_ENDS,
                              {TENON_LAYER "input_layernorm", "blk.*.attn_norm"},
                              {TENON_LAYER "self_attn.qkv_proj", "blk.*.attn_qkv"},
                              {TENON_LAYER "self_attn.o_proj", "blk.*.attn_output"},
                              TENON_SECOND_NORM,
                              {TENON_LAYER "mlp.gate_up_proj", "blk.*.ffn_up"},
                              {TENON_LAYER "mlp.down_proj", "blk.*.ffn_down"}};
constexpr NamePair kMixtral[] = {TENON_ENDS,
                                 TENON_ATTENTION,
                                 TENON_SECOND_NORM,
                                 {TENON_LAYER "block_sparse_moe.gate", "blk.*.ffn_gate_inp"}};
constexpr ExpertPair kMixtralExperts[] = {
    {TENON_LAYER "block_sparse_moe.experts.#.w1", "blk.*.ffn_gate_exps"},
    {TENON_LAYER "block_sparse_moe.experts.#.w3", "blk.*.ffn_up_exps"},
    {TENON_LAYER "block_sparse_moe.experts.#.w2", "blk.*.ffn_down_exps"}};
constexpr NamePair kQwen3Moe[] = {TENON_ENDS,
                                  TENON_ATTENTION,
                                  TENON_HEAD_NORMS,
                                  TENON_SECOND_NORM,
                                  {TENON_LAYER "mlp.gate", "blk.*.ffn_gate_inp"}};
constexpr ExpertPair kQwen3MoeExperts[] = {
    {TENON_LAYER "mlp.experts.#.gate_proj", "blk.*.ffn_gate_exps"},
    {TENON_LAYER "mlp.experts.#.up_proj", "blk.*.ffn_up_exps"},
    {TENON_LAYER "mlp.experts.#.down_proj", "blk.*.ffn_down_exps"}};
constexpr NamePair kQwen2Moe[] = {
    TENON_ENDS,
    TENON_ATTENTION,
    TENON_SECOND_NORM,
    {TENON_LAYER "mlp.gate", "blk.*.ffn_gate_inp"},
    {TENON_LAYER "mlp.shared_expert.gate_proj", "blk.*.ffn_gate_shexp"},
    {TENON_LAYER "mlp.shared_expert.up_proj", "blk.*.ffn_up_shexp"},
    {TENON_LAYER "mlp.shared_expert.down_proj", "blk.*.ffn_down_shexp"},
    {.folder = TENON_LAYER "mlp.shared_expert_gate",
     .gguf = "blk.*.ffn_gate_inp_shexp",
     .change = Change::row}};
constexpr NamePair kOlmo2[] = {
    TENON_ENDS,
    {TENON_LAYER "self_attn.q_proj", "blk.*.attn_q"},
    {TENON_LAYER "self_attn.k_proj", "blk.*.attn_k"},
    {TENON_LAYER "self_attn.v_proj", "blk.*.attn_v"},
    {TENON_LAYER "self_attn.o_proj", "blk.*.attn_output"},
    TENON_HEAD_NORMS,
    {TENON_LAYER "post_attention_layernorm", "blk.*.post_attention_norm"},
    {TENON_LAYER "post_feedforward_layernorm", "blk.*.post_ffw_norm"},
    TENON_FEED_FORWARD};

#define TENON_GPT2 "transformer.h.*."
constexpr NamePair kGpt2[] = {
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.ln_f", "output_norm"},
    {"lm_head", "output"},
    {TENON_GPT2 "ln_1", "blk.*.attn_norm"},
    {.folder = TENON_GPT2 "attn.c_attn", .gguf = "blk.*.attn_qkv", .change = Change::turned},
    {.folder = TENON_GPT2 "attn.c_proj", .gguf = "blk.*.attn_output", .change = Change::turned},
    {TENON_GPT2 "ln_2", "blk.*.ffn_norm"},
    {.folder = TENON_GPT2 "mlp.c_fc", .gguf = "blk.*.ffn_up", .change = Change::turned},
    {.folder = TENON_GPT2 "mlp.c_proj", .gguf = "blk.*.ffn_down", .change = Change::turned}};

#define TENON_MAMBA "backbone.layers.*."
constexpr NamePair kMamba[] = {
    {"backbone.embeddings", "token_embd"},
    {"backbone.norm_f", "output_norm"},
    {"lm_head", "output"},
    {TENON_MAMBA "norm", "blk.*.attn_norm"},
    {TENON_MAMBA "mixer.in_proj", "blk.*.ssm_in"},
    {.folder = TENON_MAMBA "mixer.conv1d", .gguf = "blk.*.ssm_conv1d", .change = Change::flat},
    {TENON_MAMBA "mixer.x_proj", "blk.*.ssm_x"},
    {TENON_MAMBA "mixer.dt_proj", "blk.*.ssm_dt"},
    {.folder = TENON_MAMBA "mixer.A_log",
     .gguf = "blk.*.ssm_a",
     .change = Change::exponent,
     .whole = true},
    {.folder = TENON_MAMBA "mixer.D", .gguf = "blk.*.ssm_d", .whole = true},
    {TENON_MAMBA "mixer.out_proj", "blk.*.ssm_out"}};

// An MLP in some layers, experts and one for all tokens in the others.
#define TENON_MLP_OR_EXPERTS                                                                      \
  {TENON_LAYER "mlp.gate_proj", "blk.*.ffn_gate", Layers::dense},                                 \
      {TENON_LAYER "mlp.up_proj", "blk.*.ffn_up", Layers::dense},                                 \
      {TENON_LAYER "mlp.down_proj", "blk.*.ffn_down", Layers::dense},                             \
      {TENON_LAYER "mlp.gate", "blk.*.ffn_gate_inp", Layers::sparse},                             \
      {TENON_LAYER "mlp.shared_experts.gate_proj", "blk.*.ffn_gate_shexp", Layers::sparse, true}, \
      {TENON_LAYER "mlp.shared_experts.up_proj", "blk.*.ffn_up_shexp", Layers::sparse, true}, {   \
    TENON_LAYER "mlp.shared_experts.down_proj", "blk.*.ffn_down_shexp", Layers::sparse, true      \
  }
// The same, where experts are chosen as DeepSeek-V3 does.
#define TENON_SOME_EXPERTS                                                                      \
  TENON_MLP_OR_EXPERTS, {                                                                       \
    .folder = TENON_LAYER "mlp.gate.e_score_correction_bias", .gguf = "blk.*.exp_probs_b.bias", \
    .layers = Layers::sparse, .optional = true, .whole = true                                   \
  }

#define TENON_LATENT TENON_LAYER "self_attn."
constexpr NamePair kDeepseek[] = {
    TENON_ENDS,
    {TENON_LAYER "input_layernorm", "blk.*.attn_norm"},
    {.folder = TENON_LATENT "q_proj", .gguf = "blk.*.attn_q", .optional = true},
    {.folder = TENON_LATENT "q_a_proj", .gguf = "blk.*.attn_q_a", .optional = true},
    {.folder = TENON_LATENT "q_a_layernorm", .gguf = "blk.*.attn_q_a_norm", .optional = true},
    {.folder = TENON_LATENT "q_b_proj", .gguf = "blk.*.attn_q_b", .optional = true},
    {TENON_LATENT "kv_a_proj_with_mqa", "blk.*.attn_kv_a_mqa"},
    {TENON_LATENT "kv_a_layernorm", "blk.*.attn_kv_a_norm"},
    {.folder = TENON_LATENT "kv_b_proj", .gguf = "blk.*.attn_k_b", .change = Change::keys},
    {.folder = TENON_LATENT "kv_b_proj", .gguf = "blk.*.attn_v_b", .change = Change::values},
    {.folder = TENON_LATENT "kv_b_proj", .gguf = "blk.*.attn_kv_b", .change = Change::both_halves},
    {TENON_LATENT "o_proj", "blk.*.attn_output"},
    TENON_SECOND_NORM,
    TENON_SOME_EXPERTS};

constexpr NamePair kCohere[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    TENON_ATTENTION,
    {.folder = TENON_LAYER "self_attn.q_norm", .gguf = "blk.*.attn_q_norm", .optional = true},
    {.folder = TENON_LAYER "self_attn.k_norm", .gguf = "blk.*.attn_k_norm", .optional = true},
    TENON_FEED_FORWARD};
constexpr NamePair kStableLm[] = {
    TENON_ENDS,
    TENON_ATTENTION,
    {.folder = TENON_LAYER "post_attention_layernorm", .gguf = "blk.*.ffn_norm", .optional = true},
    TENON_FEED_FORWARD};
constexpr NamePair kPhi[] = {{"model.embed_tokens", "token_embd"},
                             {"model.final_layernorm", "output_norm"},
                             {"lm_head", "output"},
                             {TENON_LAYER "input_layernorm", "blk.*.attn_norm"},
                             {TENON_LAYER "self_attn.q_proj", "blk.*.attn_q"},
                             {TENON_LAYER "self_attn.k_proj", "blk.*.attn_k"},
                             {TENON_LAYER "self_attn.v_proj", "blk.*.attn_v"},
                             {TENON_LAYER "self_attn.dense", "blk.*.attn_output"},
                             {TENON_LAYER "mlp.fc1", "blk.*.ffn_up"},
                             {TENON_LAYER "mlp.fc2", "blk.*.ffn_down"}};
#define TENON_NEOX "gpt_neox.layers.*."
constexpr NamePair kNeox[] = {{"gpt_neox.embed_in", "token_embd"},
                              {"gpt_neox.final_layer_norm", "output_norm"},
                              {"embed_out", "output"},
                              {TENON_NEOX "input_layernorm", "blk.*.attn_norm"},
                              {.folder = TENON_NEOX "attention.query_key_value",
                               .gguf = "blk.*.attn_qkv",
                               .change = Change::by_part},
                              {TENON_NEOX "attention.dense", "blk.*.attn_output"},
                              {TENON_NEOX "post_attention_layernorm", "blk.*.ffn_norm"},
                              {TENON_NEOX "mlp.dense_h_to_4h", "blk.*.ffn_up"},
                              {TENON_NEOX "mlp.dense_4h_to_h", "blk.*.ffn_down"}};
constexpr NamePair kStarcoder2[] = {TENON_ENDS,
                                    TENON_ATTENTION,
                                    TENON_SECOND_NORM,
                                    {TENON_LAYER "mlp.c_fc", "blk.*.ffn_up"},
                                    {TENON_LAYER "mlp.c_proj", "blk.*.ffn_down"}};
constexpr NamePair kUpAndDown[] = {TENON_ENDS,
                                   TENON_ATTENTION,
                                   TENON_SECOND_NORM,
                                   {TENON_LAYER "mlp.up_proj", "blk.*.ffn_up"},
                                   {TENON_LAYER "mlp.down_proj", "blk.*.ffn_down"}};
constexpr NamePair kGlm[] = {TENON_ENDS,
                             TENON_ATTENTION,
                             TENON_SECOND_NORM,
                             {TENON_LAYER "mlp.gate_up_proj", "blk.*.ffn_up"},
                             {TENON_LAYER "mlp.down_proj", "blk.*.ffn_down"}};
constexpr NamePair kGlm4[] = {TENON_ENDS,
                              TENON_ATTENTION,
                              {TENON_LAYER "post_self_attn_layernorm", "blk.*.post_attention_norm"},
                              TENON_SECOND_NORM,
                              {TENON_LAYER "post_mlp_layernorm", "blk.*.post_ffw_norm"},
                              {TENON_LAYER "mlp.gate_up_proj", "blk.*.ffn_up"},
                              {TENON_LAYER "mlp.down_proj", "blk.*.ffn_down"}};
constexpr NamePair kGlm4Moe[] = {
    TENON_ENDS,
    TENON_ATTENTION,
    {.folder = TENON_LAYER "self_attn.q_norm", .gguf = "blk.*.attn_q_norm", .optional = true},
    {.folder = TENON_LAYER "self_attn.k_norm", .gguf = "blk.*.attn_k_norm", .optional = true},
    {TENON_LAYER "post_attention_layernorm", "blk.*.post_attention_norm"},
    TENON_SOME_EXPERTS};
constexpr NamePair kSeedOss[] = {
    TENON_ENDS,
    TENON_ATTENTION,
    {TENON_LAYER "post_attention_layernorm", "blk.*.post_attention_norm"},
    TENON_FEED_FORWARD};
constexpr NamePair kHunyuan[] = {TENON_ENDS,
                                 TENON_ATTENTION,
                                 {TENON_LAYER "self_attn.query_layernorm", "blk.*.attn_q_norm"},
                                 {TENON_LAYER "self_attn.key_layernorm", "blk.*.attn_k_norm"},
                                 TENON_SECOND_NORM,
                                 TENON_FEED_FORWARD};
#define TENON_MIXTURE TENON_LAYER "mlp."
constexpr NamePair kGptOss[] = {
    TENON_ENDS,
    TENON_ATTENTION,
    {.folder = TENON_LAYER "self_attn.sinks", .gguf = "blk.*.attn_sinks.weight", .whole = true},
    {TENON_LAYER "post_attention_layernorm", "blk.*.post_attention_norm"},
    {TENON_MIXTURE "router", "blk.*.ffn_gate_inp"},
    {.folder = TENON_MIXTURE "experts.gate_proj.bias",
     .gguf = "blk.*.ffn_gate_exps.bias",
     .whole = true},
    {.folder = TENON_MIXTURE "experts.up_proj.bias",
     .gguf = "blk.*.ffn_up_exps.bias",
     .whole = true},
    {.folder = TENON_MIXTURE "experts.down_proj.bias",
     .gguf = "blk.*.ffn_down_exps.bias",
     .whole = true}};
constexpr NamePair kGraniteMoe[] = {
    TENON_ENDS,
    TENON_ATTENTION,
    TENON_SECOND_NORM,
    {TENON_LAYER "block_sparse_moe.router.layer", "blk.*.ffn_gate_inp"}};
constexpr ExpertPair kGraniteExperts[] = {
    {TENON_LAYER "block_sparse_moe.experts.#.gate_proj", "blk.*.ffn_gate_exps"},
    {TENON_LAYER "block_sparse_moe.experts.#.up_proj", "blk.*.ffn_up_exps"},
    {TENON_LAYER "block_sparse_moe.experts.#.down_proj", "blk.*.ffn_down_exps"}};

#define TENON_LINEAR TENON_LAYER "linear_attn."
// What Qwen3-Next and Qwen3.5 share: gated attention in some layers, linear attention in the others.
#define TENON_LINEAR_ATTENTION(order_)                                                       \
  TENON_ENDS, {TENON_LAYER "input_layernorm", "blk.*.attn_norm"},                            \
      {TENON_LAYER "post_attention_layernorm", "blk.*.post_attention_norm"},                 \
      {TENON_LAYER "self_attn.q_proj", "blk.*.attn_q", Layers::attention},                   \
      {TENON_LAYER "self_attn.k_proj", "blk.*.attn_k", Layers::attention},                   \
      {TENON_LAYER "self_attn.v_proj", "blk.*.attn_v", Layers::attention},                   \
      {TENON_LAYER "self_attn.o_proj", "blk.*.attn_output", Layers::attention},              \
      {TENON_LAYER "self_attn.q_norm", "blk.*.attn_q_norm", Layers::attention},              \
      {TENON_LAYER "self_attn.k_norm", "blk.*.attn_k_norm", Layers::attention},              \
      {.folder = TENON_LINEAR "conv1d",                                                      \
       .gguf = "blk.*.ssm_conv1d",                                                           \
       .layers = Layers::recurrent,                                                          \
       .change = Change::flat,                                                               \
       .order = order_ ? Order::rows_behind_keys : Order::same},                             \
      {.folder = TENON_LINEAR "A_log",                                                       \
       .gguf = "blk.*.ssm_a",                                                                \
       .layers = Layers::recurrent,                                                          \
       .change = Change::exponent,                                                           \
       .whole = true,                                                                        \
       .order = order_ ? Order::rows : Order::same},                                         \
      {.folder = TENON_LINEAR "dt_bias",                                                     \
       .gguf = "blk.*.ssm_dt.bias",                                                          \
       .layers = Layers::recurrent,                                                          \
       .whole = true,                                                                        \
       .order = order_ ? Order::rows : Order::same},                                         \
      {TENON_LINEAR "norm", "blk.*.ssm_norm", Layers::recurrent}, {                          \
    .folder = TENON_LINEAR "out_proj", .gguf = "blk.*.ssm_out", .layers = Layers::recurrent, \
    .order = order_ ? Order::columns : Order::same                                           \
  }
// The products of Qwen3.5.
#define TENON_LINEAR_PRODUCTS                                                                   \
  {.folder = TENON_LINEAR "in_proj_qkv",                                                        \
   .gguf = "blk.*.attn_qkv",                                                                    \
   .layers = Layers::recurrent,                                                                 \
   .order = Order::rows_behind_keys},                                                           \
      {.folder = TENON_LINEAR "in_proj_z",                                                      \
       .gguf = "blk.*.attn_gate",                                                               \
       .layers = Layers::recurrent,                                                             \
       .order = Order::rows},                                                                   \
      {.folder = TENON_LINEAR "in_proj_b",                                                      \
       .gguf = "blk.*.ssm_beta",                                                                \
       .layers = Layers::recurrent,                                                             \
       .order = Order::rows},                                                                   \
  {                                                                                             \
    .folder = TENON_LINEAR "in_proj_a", .gguf = "blk.*.ssm_alpha", .layers = Layers::recurrent, \
    .order = Order::rows                                                                        \
  }
#define TENON_SHARED_EXPERT                                                             \
  {TENON_LAYER "mlp.gate", "blk.*.ffn_gate_inp"},                                       \
      {TENON_LAYER "mlp.shared_expert.gate_proj", "blk.*.ffn_gate_shexp"},              \
      {TENON_LAYER "mlp.shared_expert.up_proj", "blk.*.ffn_up_shexp"},                  \
      {TENON_LAYER "mlp.shared_expert.down_proj", "blk.*.ffn_down_shexp"}, {            \
    .folder = TENON_LAYER "mlp.shared_expert_gate", .gguf = "blk.*.ffn_gate_inp_shexp", \
    .change = Change::row                                                               \
  }
constexpr NamePair kQwen3Next[] = {TENON_LINEAR_ATTENTION(false),
                                   {.folder = TENON_LINEAR "in_proj_qkvz",
                                    .gguf = "blk.*.attn_qkv",
                                    .layers = Layers::recurrent,
                                    .change = Change::of_qkv},
                                   {.folder = TENON_LINEAR "in_proj_qkvz",
                                    .gguf = "blk.*.attn_gate",
                                    .layers = Layers::recurrent,
                                    .change = Change::of_gate},
                                   {.folder = TENON_LINEAR "in_proj_qkvz",
                                    .gguf = "blk.*.ssm_in",
                                    .layers = Layers::recurrent,
                                    .change = Change::old},
                                   {TENON_LINEAR "in_proj_ba", "blk.*.ssm_ba", Layers::recurrent},
                                   TENON_SHARED_EXPERT};
constexpr NamePair kQwen35[] = {TENON_LINEAR_ATTENTION(true), TENON_LINEAR_PRODUCTS,
                                TENON_FEED_FORWARD};
constexpr NamePair kQwen35Moe[] = {TENON_LINEAR_ATTENTION(true), TENON_LINEAR_PRODUCTS,
                                   TENON_SHARED_EXPERT};

#define TENON_LFM2                                                                   \
  {"model.embed_tokens", "token_embd"}, {"model.embedding_norm", "token_embd_norm"}, \
      {"lm_head", "output"}, {TENON_LAYER "operator_norm", "blk.*.attn_norm"},       \
      {TENON_LAYER "ffn_norm", "blk.*.ffn_norm"},                                    \
      {TENON_LAYER "self_attn.q_proj", "blk.*.attn_q", Layers::attention},           \
      {TENON_LAYER "self_attn.k_proj", "blk.*.attn_k", Layers::attention},           \
      {TENON_LAYER "self_attn.v_proj", "blk.*.attn_v", Layers::attention},           \
      {TENON_LAYER "self_attn.out_proj", "blk.*.attn_output", Layers::attention},    \
      {TENON_LAYER "self_attn.q_layernorm", "blk.*.attn_q_norm", Layers::attention}, \
      {TENON_LAYER "self_attn.k_layernorm", "blk.*.attn_k_norm", Layers::attention}, \
      {TENON_LAYER "conv.in_proj", "blk.*.shortconv.in_proj", Layers::recurrent},    \
      {.folder = TENON_LAYER "conv.conv",                                            \
       .gguf = "blk.*.shortconv.conv",                                               \
       .layers = Layers::recurrent,                                                  \
       .change = Change::flat},                                                      \
  {                                                                                  \
    TENON_LAYER "conv.out_proj", "blk.*.shortconv.out_proj", Layers::recurrent       \
  }
constexpr NamePair kLfm2[] = {TENON_LFM2,
                              {TENON_LAYER "feed_forward.w1", "blk.*.ffn_gate"},
                              {TENON_LAYER "feed_forward.w3", "blk.*.ffn_up"},
                              {TENON_LAYER "feed_forward.w2", "blk.*.ffn_down"}};
constexpr NamePair kLfm2Moe[] = {
    TENON_LFM2,
    {TENON_LAYER "feed_forward.w1", "blk.*.ffn_gate", Layers::dense},
    {TENON_LAYER "feed_forward.w3", "blk.*.ffn_up", Layers::dense},
    {TENON_LAYER "feed_forward.w2", "blk.*.ffn_down", Layers::dense},
    {TENON_LAYER "feed_forward.gate", "blk.*.ffn_gate_inp", Layers::sparse},
    {.folder = TENON_LAYER "feed_forward.expert_bias",
     .gguf = "blk.*.exp_probs_b.bias",
     .layers = Layers::sparse,
     .optional = true,
     .whole = true}};
constexpr ExpertPair kLfm2Experts[] = {
    {TENON_LAYER "feed_forward.experts.#.w1", "blk.*.ffn_gate_exps"},
    {TENON_LAYER "feed_forward.experts.#.w3", "blk.*.ffn_up_exps"},
    {TENON_LAYER "feed_forward.experts.#.w2", "blk.*.ffn_down_exps"}};
constexpr NamePair kErnieMoe[] = {TENON_ENDS,
                                  TENON_ATTENTION,
                                  TENON_SECOND_NORM,
                                  TENON_MLP_OR_EXPERTS,
                                  {.folder = TENON_LAYER "mlp.moe_statics.e_score_correction_bias",
                                   .gguf = "blk.*.exp_probs_b.bias",
                                   .layers = Layers::sparse,
                                   .change = Change::row,
                                   .whole = true}};
constexpr NamePair kHunyuanMoe[] = {
    TENON_ENDS,
    TENON_ATTENTION,
    {TENON_LAYER "self_attn.query_layernorm", "blk.*.attn_q_norm"},
    {TENON_LAYER "self_attn.key_layernorm", "blk.*.attn_k_norm"},
    TENON_SECOND_NORM,
    {TENON_LAYER "mlp.gate.wg", "blk.*.ffn_gate_inp"},
    {TENON_LAYER "mlp.shared_mlp.gate_proj", "blk.*.ffn_gate_shexp"},
    {TENON_LAYER "mlp.shared_mlp.up_proj", "blk.*.ffn_up_shexp"},
    {TENON_LAYER "mlp.shared_mlp.down_proj", "blk.*.ffn_down_shexp"}};
constexpr NamePair kDots1[] = {TENON_ENDS, TENON_ATTENTION, TENON_HEAD_NORMS, TENON_SECOND_NORM,
                               TENON_SOME_EXPERTS};
#define TENON_PART TENON_LAYER "feed_forward."
constexpr NamePair kLlama4[] = {
    TENON_ENDS,
    TENON_ATTENTION,
    TENON_SECOND_NORM,
    {TENON_PART "gate_proj", "blk.*.ffn_gate", Layers::dense},
    {TENON_PART "up_proj", "blk.*.ffn_up", Layers::dense},
    {TENON_PART "down_proj", "blk.*.ffn_down", Layers::dense},
    {TENON_PART "router", "blk.*.ffn_gate_inp", Layers::sparse},
    {TENON_PART "shared_expert.gate_proj", "blk.*.ffn_gate_shexp", Layers::sparse},
    {TENON_PART "shared_expert.up_proj", "blk.*.ffn_up_shexp", Layers::sparse},
    {TENON_PART "shared_expert.down_proj", "blk.*.ffn_down_shexp", Layers::sparse}};
constexpr ExpertPair kLlama4Experts[] = {{TENON_PART "experts.#.gate_proj", "blk.*.ffn_gate_exps"},
                                         {TENON_PART "experts.#.up_proj", "blk.*.ffn_up_exps"},
                                         {TENON_PART "experts.#.down_proj", "blk.*.ffn_down_exps"}};
#define TENON_BLOCK "transformer.h.*."
#define TENON_BLOCK_ENDS                                                                \
  {"transformer.word_embeddings", "token_embd"}, {"transformer.ln_f", "output_norm"}, { \
    "lm_head", "output"                                                                 \
  }
#define TENON_BLOCK_PRODUCTS                                     \
  {.folder = TENON_BLOCK "self_attention.query_key_value",       \
   .gguf = "blk.*.attn_qkv",                                     \
   .change = Change::by_part},                                   \
      {TENON_BLOCK "self_attention.dense", "blk.*.attn_output"}, \
      {TENON_BLOCK "mlp.dense_h_to_4h", "blk.*.ffn_up"}, {       \
    TENON_BLOCK "mlp.dense_4h_to_h", "blk.*.ffn_down"            \
  }
constexpr NamePair kFalcon[] = {
    TENON_BLOCK_ENDS, {TENON_BLOCK "input_layernorm", "blk.*.attn_norm"}, TENON_BLOCK_PRODUCTS};
constexpr NamePair kFalconTwoNorms[] = {TENON_BLOCK_ENDS,
                                        {TENON_BLOCK "ln_mlp", "blk.*.attn_norm"},
                                        {TENON_BLOCK "ln_attn", "blk.*.attn_norm_2"},
                                        TENON_BLOCK_PRODUCTS};
constexpr NamePair kBloom[] = {TENON_BLOCK_ENDS,
                               {"transformer.word_embeddings_layernorm", "token_embd_norm"},
                               {TENON_BLOCK "input_layernorm", "blk.*.attn_norm"},
                               {TENON_BLOCK "post_attention_layernorm", "blk.*.ffn_norm"},
                               TENON_BLOCK_PRODUCTS};
#define TENON_MPT "transformer.blocks.*."
constexpr NamePair kMpt[] = {{"transformer.wte", "token_embd"},
                             {"transformer.norm_f", "output_norm"},
                             {"lm_head", "output"},
                             {TENON_MPT "norm_1", "blk.*.attn_norm"},
                             {TENON_MPT "attn.Wqkv", "blk.*.attn_qkv"},
                             {TENON_MPT "attn.out_proj", "blk.*.attn_output"},
                             {TENON_MPT "norm_2", "blk.*.ffn_norm"},
                             {TENON_MPT "ffn.up_proj", "blk.*.ffn_up"},
                             {TENON_MPT "ffn.down_proj", "blk.*.ffn_down"}};

constexpr NamePair kAfmoe[] = {
    TENON_ENDS,
    TENON_ATTENTION,
    TENON_HEAD_NORMS,
    {TENON_LAYER "self_attn.gate_proj", "blk.*.attn_gate"},
    {TENON_LAYER "post_attention_layernorm", "blk.*.post_attention_norm"},
    {TENON_LAYER "pre_mlp_layernorm", "blk.*.ffn_norm"},
    {TENON_LAYER "post_mlp_layernorm", "blk.*.post_ffw_norm"},
    {TENON_LAYER "mlp.gate_proj", "blk.*.ffn_gate", Layers::dense},
    {TENON_LAYER "mlp.up_proj", "blk.*.ffn_up", Layers::dense},
    {TENON_LAYER "mlp.down_proj", "blk.*.ffn_down", Layers::dense},
    {TENON_LAYER "mlp.router.gate", "blk.*.ffn_gate_inp", Layers::sparse},
    {TENON_LAYER "mlp.shared_experts.gate_proj", "blk.*.ffn_gate_shexp", Layers::sparse},
    {TENON_LAYER "mlp.shared_experts.up_proj", "blk.*.ffn_up_shexp", Layers::sparse},
    {TENON_LAYER "mlp.shared_experts.down_proj", "blk.*.ffn_down_shexp", Layers::sparse},
    {.folder = TENON_LAYER "mlp.expert_bias",
     .gguf = "blk.*.exp_probs_b.bias",
     .layers = Layers::sparse,
     .whole = true}};

constexpr NamePair kApertus[] = {TENON_ENDS,
                                 {TENON_LAYER "attention_layernorm", "blk.*.attn_norm"},
                                 {TENON_LAYER "self_attn.q_proj", "blk.*.attn_q"},
                                 {TENON_LAYER "self_attn.k_proj", "blk.*.attn_k"},
                                 {TENON_LAYER "self_attn.v_proj", "blk.*.attn_v"},
                                 {TENON_LAYER "self_attn.o_proj", "blk.*.attn_output"},
                                 TENON_HEAD_NORMS,
                                 {TENON_LAYER "feedforward_layernorm", "blk.*.ffn_norm"},
                                 {TENON_LAYER "mlp.up_proj", "blk.*.ffn_up"},
                                 {TENON_LAYER "mlp.down_proj", "blk.*.ffn_down"}};
constexpr NumberList kApertusLists[] = {{TENON_LAYER "mlp.act_fn.alpha_n", "xielu.alpha_n"},
                                        {TENON_LAYER "mlp.act_fn.alpha_p", "xielu.alpha_p"},
                                        {TENON_LAYER "mlp.act_fn.beta", "xielu.beta", true},
                                        {TENON_LAYER "mlp.act_fn.eps", "xielu.eps", true}};

#undef TENON_LAYER
#undef TENON_ENDS
#undef TENON_ATTENTION
#undef TENON_FEED_FORWARD
#undef TENON_HEAD_NORMS
#undef TENON_SECOND_NORM
#undef TENON_GEMMA_NORMS
#undef TENON_GPT2
#undef TENON_MAMBA
#undef TENON_SOME_EXPERTS
#undef TENON_MLP_OR_EXPERTS
#undef TENON_PART
#undef TENON_BLOCK
#undef TENON_BLOCK_ENDS
#undef TENON_BLOCK_PRODUCTS
#undef TENON_MPT
#undef TENON_LATENT
#undef TENON_NEOX
#undef TENON_MIXTURE
#undef TENON_LINEAR
#undef TENON_LINEAR_ATTENTION
#undef TENON_LINEAR_PRODUCTS
#undef TENON_SHARED_EXPERT
#undef TENON_LFM2

}  // namespace tenon::llm::files
