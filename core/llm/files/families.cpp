// SPDX-License-Identifier: Apache-2.0
// The tables of names.
#include "llm/files/families.hpp"

#include <array>

namespace tenon::llm::files {
namespace {

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
    {TENON_LAYER "mlp.gate_proj", "blk.*.ffn_gate", Layers::dense},
    {TENON_LAYER "mlp.up_proj", "blk.*.ffn_up", Layers::dense},
    {TENON_LAYER "mlp.down_proj", "blk.*.ffn_down", Layers::dense},
    {TENON_LAYER "mlp.gate", "blk.*.ffn_gate_inp", Layers::sparse},
    {.folder = TENON_LAYER "mlp.gate.e_score_correction_bias",
     .gguf = "blk.*.exp_probs_b.bias",
     .layers = Layers::sparse,
     .optional = true,
     .whole = true},
    {TENON_LAYER "mlp.shared_experts.gate_proj", "blk.*.ffn_gate_shexp", Layers::sparse, true},
    {TENON_LAYER "mlp.shared_experts.up_proj", "blk.*.ffn_up_shexp", Layers::sparse, true},
    {TENON_LAYER "mlp.shared_experts.down_proj", "blk.*.ffn_down_shexp", Layers::sparse, true}};

// The first family of an architecture of GGUF is the one that a file without other signs has.
constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .gguf = "llama",
     .names = kLlama,
     .permuted = true},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .gguf = "llama",
     .names = kLlama,
     .permuted = true},
    {.model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .gguf = "llama",
     .names = kMixtral,
     .experts = kMixtralExperts,
     .permuted = true},
    {.model_type = "qwen2", .architecture = "Qwen2ForCausalLM", .gguf = "qwen2", .names = kLlama},
    {.model_type = "qwen3", .architecture = "Qwen3ForCausalLM", .gguf = "qwen3", .names = kQwen3},
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .gguf = "qwen3moe",
     .names = kQwen3Moe,
     .experts = kQwen3MoeExperts},
    {.model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .gguf = "gemma2",
     .names = kGemma2,
     .norm_plus_one = true,
     .tied = true},
    {.model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .names = kGemma3,
     .norm_plus_one = true,
     .tied = true},
    {.model_type = "phi3", .architecture = "Phi3ForCausalLM", .gguf = "phi3", .names = kPhi3},
    {.model_type = "gemma",
     .architecture = "GemmaForCausalLM",
     .gguf = "gemma",
     .names = kLlama,
     .norm_plus_one = true,
     .tied = true},
    {.model_type = "granite",
     .architecture = "GraniteForCausalLM",
     .gguf = "granite",
     .names = kLlama,
     .permuted = true},
    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .gguf = "smollm3",
     .names = kLlama,
     .permuted = true,
     .tied = true},
    {.model_type = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .gguf = "mistral3",
     .names = kLlama,
     .permuted = true},
    {.model_type = "olmo2", .architecture = "Olmo2ForCausalLM", .gguf = "olmo2", .names = kOlmo2},
    {.model_type = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .gguf = "qwen2moe",
     .names = kQwen2Moe,
     .experts = kQwen3MoeExperts},
    {.model_type = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .gguf = "gpt2",
     .names = kGpt2,
     .tied = true},
    {.model_type = "mamba",
     .architecture = "MambaForCausalLM",
     .gguf = "mamba",
     .names = kMamba,
     .tied = true},
    {.model_type = "deepseek_v2",
     .architecture = "DeepseekV2ForCausalLM",
     .gguf = "deepseek2",
     .names = kDeepseek,
     .experts = kQwen3MoeExperts},
    {.model_type = "deepseek_v3",
     .architecture = "DeepseekV3ForCausalLM",
     .gguf = "deepseek2",
     .names = kDeepseek,
     .experts = kQwen3MoeExperts},
};

}  // namespace

const Family& family_of_folder(const std::string& model_type, const std::string& file) {
  std::string known;
  for (const Family& f : kFamilies) {
    if (f.model_type == model_type) return f;
    known += (known.empty() ? "" : ", ") + std::string(f.model_type);
  }
  throw Error(TENON_UNSUPPORTED,
              file + ": model_type '" + model_type + "' cannot be converted; expected " + known);
}

const Family& family_of_gguf(const Gguf& model, const std::string& file) {
  if (!model.has("general.architecture"))
    throw Error(TENON_CORRUPT, file + ": key 'general.architecture' is missing");
  const std::string architecture = model.text("general.architecture");
  // A number of 0 says that the model has none.
  const auto has = [&](const char* key) {
    return model.has(key) && model.number<int64_t>(key) > 0;
  };
  if (architecture == "llama")
    return family_of_folder(has("llama.expert_count")               ? "mixtral"
                            : has("llama.attention.sliding_window") ? "mistral"
                                                                    : "llama",
                            file);
  constexpr int64_t kSigmoid = 2;
  if (architecture == "deepseek2" && model.has("deepseek2.expert_gating_func") &&
      model.number<int64_t>("deepseek2.expert_gating_func") == kSigmoid)
    return family_of_folder("deepseek_v3", file);
  std::string known;
  for (const Family& f : kFamilies) {
    if (f.gguf == architecture) return f;
    if (known.empty() || !known.ends_with(f.gguf))
      known += (known.empty() ? "" : ", ") + std::string(f.gguf);
  }
  throw Error(TENON_UNSUPPORTED, file + ": general.architecture '" + architecture +
                                     "' cannot be converted; expected " + known);
}

std::span<const std::string_view> ends_of(const NamePair& pair) {
  static constexpr std::string_view kWhole[] = {""}, kParts[] = {".weight", ".bias"};
  if (pair.whole) return kWhole;
  return kParts;
}

std::string numbered(std::string_view name, int64_t layer, int64_t expert) {
  std::string out;
  for (const char c : name) {
    if (c == '*')
      out += std::to_string(layer);
    else if (c == '#')
      out += std::to_string(expert);
    else
      out += c;
  }
  return out;
}

}  // namespace tenon::llm::files
