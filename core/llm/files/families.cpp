// SPDX-License-Identifier: Apache-2.0
// The list of families.
#include "llm/files/families.hpp"

#include <algorithm>
#include <array>

#include "llm/files/family_names.hpp"
#include "llm/files/mixer_names.hpp"

namespace tenon::llm::files {
namespace {

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
    {.model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .gguf = "phi3",
     .names = kPhi3,
     .rope_part = 1},
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
    {.model_type = "cohere",
     .architecture = "CohereForCausalLM",
     .gguf = "command-r",
     .names = kCohere,
     .tied = true,
     .eps = "layer_norm_eps"},
    {.model_type = "cohere2",
     .architecture = "Cohere2ForCausalLM",
     .gguf = "cohere2",
     .names = kCohere,
     .tied = true,
     .eps = "layer_norm_eps"},
    {.model_type = "stablelm",
     .architecture = "StableLmForCausalLM",
     .gguf = "stablelm",
     .names = kStableLm,
     .eps = "layer_norm_eps",
     .rope_part = 0.25},
    {.model_type = "phi",
     .architecture = "PhiForCausalLM",
     .gguf = "phi2",
     .names = kPhi,
     .eps = "layer_norm_eps",
     .activation = "gelu_new",
     .rope_part = 0.5},
    {.model_type = "gpt_neox",
     .architecture = "GPTNeoXForCausalLM",
     .gguf = "gptneox",
     .names = kNeox,
     .eps = "layer_norm_eps",
     .activation = "gelu",
     .rope_part = 0.25},
    {.model_type = "starcoder2",
     .architecture = "Starcoder2ForCausalLM",
     .gguf = "starcoder2",
     .names = kStarcoder2,
     .tied = true,
     .eps = "norm_epsilon",
     .activation = "gelu_pytorch_tanh"},
    {.model_type = "nemotron",
     .architecture = "NemotronForCausalLM",
     .gguf = "nemotron",
     .names = kUpAndDown,
     .norm_plus_one = true,
     .eps = "norm_eps",
     .activation = "relu2",
     .rope_part = 0.5},
    {.model_type = "arcee",
     .architecture = "ArceeForCausalLM",
     .gguf = "arcee",
     .names = kUpAndDown,
     .permuted = true,
     .activation = "relu2"},
    {.model_type = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .gguf = "gpt-oss",
     .names = kGptOss,
     .experts = kQwen3MoeExperts},
    {.model_type = "glm",
     .architecture = "GlmForCausalLM",
     .gguf = "chatglm",
     .names = kGlm,
     .rope_part = 0.5},
    {.model_type = "glm4",
     .architecture = "Glm4ForCausalLM",
     .gguf = "glm4",
     .names = kGlm4,
     .rope_part = 0.5},
    {.model_type = "glm4_moe",
     .architecture = "Glm4MoeForCausalLM",
     .gguf = "glm4moe",
     .names = kGlm4Moe,
     .experts = kQwen3MoeExperts,
     .rope_part = 0.5},
    {.model_type = "olmo3", .architecture = "Olmo3ForCausalLM", .gguf = "olmo2", .names = kOlmo2},
    {.model_type = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .gguf = "olmoe",
     .names = kQwen3Moe,
     .experts = kQwen3MoeExperts},
    {.model_type = "granitemoe",
     .architecture = "GraniteMoeForCausalLM",
     .gguf = "granitemoe",
     .names = kGraniteMoe,
     .experts = kGraniteExperts,
     .permuted = true},
    {.model_type = "seed_oss",
     .architecture = "SeedOssForCausalLM",
     .gguf = "seed_oss",
     .names = kSeedOss},
    {.model_type = "ernie4_5",
     .architecture = "Ernie4_5ForCausalLM",
     .gguf = "ernie4_5",
     .names = kLlama,
     .tied = true},
    {.model_type = "exaone4",
     .architecture = "Exaone4ForCausalLM",
     .gguf = "exaone4",
     .names = kOlmo2},
    {.model_type = "hunyuan_v1_dense",
     .architecture = "HunYuanDenseV1ForCausalLM",
     .gguf = "hunyuan-dense",
     .names = kHunyuan},
    {.model_type = "qwen3_next",
     .architecture = "Qwen3NextForCausalLM",
     .gguf = "qwen3next",
     .names = kQwen3Next,
     .experts = kQwen3MoeExperts,
     .norm_plus_one = true,
     .rope_part = 0.25},
    {.model_type = "qwen3_5_text",
     .architecture = "Qwen3_5ForCausalLM",
     .gguf = "qwen35",
     .names = kQwen35,
     .norm_plus_one = true,
     .rope_part = 0.25},
    {.model_type = "qwen3_5_moe_text",
     .architecture = "Qwen3_5MoeForCausalLM",
     .gguf = "qwen35moe",
     .names = kQwen35Moe,
     .experts = kQwen3MoeExperts,
     .norm_plus_one = true,
     .rope_part = 0.25},
    {.model_type = "lfm2",
     .architecture = "Lfm2ForCausalLM",
     .gguf = "lfm2",
     .names = kLfm2,
     .tied = true,
     .eps = "norm_eps"},
    {.model_type = "lfm2_moe",
     .architecture = "Lfm2MoeForCausalLM",
     .gguf = "lfm2moe",
     .names = kLfm2Moe,
     .experts = kLfm2Experts,
     .tied = true,
     .eps = "norm_eps"},
    {.model_type = "mamba2",
     .architecture = "Mamba2ForCausalLM",
     .gguf = "mamba2",
     .names = kMamba2,
     .hybrid = true},
    {.model_type = "granitemoehybrid",
     .architecture = "GraniteMoeHybridForCausalLM",
     .gguf = "granitehybrid",
     .names = kGraniteHybrid,
     .permuted = true,
     .hybrid = true},
    {.model_type = "granitemoehybrid",
     .architecture = "GraniteMoeHybridForCausalLM",
     .gguf = "granitehybrid",
     .names = kGraniteHybridMoe,
     .experts = kGraniteExperts,
     .permuted = true,
     .hybrid = true},
    {.model_type = "falcon_h1",
     .architecture = "FalconH1ForCausalLM",
     .gguf = "falcon-h1",
     .names = kFalconH1,
     .hybrid = true},
    {.model_type = "nemotron_h",
     .architecture = "NemotronHForCausalLM",
     .gguf = "nemotron_h",
     .names = kNemotronH,
     .activation = "relu2",
     .hybrid = true},
    {.model_type = "nemotron_h",
     .architecture = "NemotronHForCausalLM",
     .gguf = "nemotron_h_moe",
     .names = kNemotronHMoe,
     .experts = kNemotronHExperts,
     .activation = "relu2",
     .hybrid = true},
    {.model_type = "jamba",
     .architecture = "JambaForCausalLM",
     .gguf = "jamba",
     .names = kJamba,
     .experts = kJambaExperts,
     .hybrid = true},
    {.model_type = "ernie4_5_moe",
     .architecture = "Ernie4_5_MoeForCausalLM",
     .gguf = "ernie4_5-moe",
     .names = kErnieMoe,
     .experts = kQwen3MoeExperts,
     .tied = true},
    {.model_type = "hunyuan_v1_moe",
     .architecture = "HunYuanMoEV1ForCausalLM",
     .gguf = "hunyuan-moe",
     .names = kHunyuanMoe,
     .experts = kQwen3MoeExperts},
    {.model_type = "falcon",
     .architecture = "FalconForCausalLM",
     .gguf = "falcon",
     .names = kFalcon,
     .tied = true},
    {.model_type = "falcon",
     .architecture = "FalconForCausalLM",
     .gguf = "falcon",
     .names = kFalconTwoNorms,
     .tied = true,
     .two_norms = true},
    {.model_type = "mpt",
     .architecture = "MptForCausalLM",
     .gguf = "mpt",
     .names = kMpt,
     .tied = true},
    {.model_type = "bloom",
     .architecture = "BloomForCausalLM",
     .gguf = "bloom",
     .names = kBloom,
     .tied = true},
    {.model_type = "llama4_text",
     .architecture = "Llama4ForCausalLM",
     .gguf = "llama4",
     .names = kLlama4,
     .experts = kLlama4Experts},
    {.model_type = "dots1",
     .architecture = "Dots1ForCausalLM",
     .gguf = "dots1",
     .names = kDots1,
     .experts = kQwen3MoeExperts},
    {.model_type = "afmoe",
     .architecture = "AfmoeForCausalLM",
     .gguf = "afmoe",
     .names = kAfmoe,
     .experts = kQwen3MoeExperts},
    {.model_type = "apertus",
     .architecture = "ApertusForCausalLM",
     .gguf = "apertus",
     .names = kApertus,
     .lists = kApertusLists,
     .activation = "xielu"},
    // The text of models that also read images.
    {.model_type = "qwen2", .architecture = "Qwen2ForCausalLM", .gguf = "qwen2vl", .names = kLlama},
    {.model_type = "qwen3", .architecture = "Qwen3ForCausalLM", .gguf = "qwen3vl", .names = kQwen3},
    // EXAONE 3 is Llama; its rows of q and k keep the order of folders.
    {.model_type = "llama", .architecture = "LlamaForCausalLM", .gguf = "exaone", .names = kLlama},
};

}  // namespace

const Family& family_of_folder(const std::string& model_type, const std::string& file,
                               bool two_norms) {
  std::string known;
  for (const Family& f : kFamilies) {
    if (f.model_type == model_type && f.two_norms == two_norms) return f;
    known += (known.empty() ? "" : ", ") + std::string(f.model_type);
  }
  throw Error(TENON_UNSUPPORTED,
              file + ": model_type '" + model_type + "' cannot be converted; expected " + known);
}

bool is_permuted(std::string_view model_type) {
  return std::ranges::any_of(
      kFamilies, [&](const Family& f) { return f.model_type == model_type && f.permuted; });
}

const Family& family_of(const ModelConfig& config, const std::string& file) {
  const std::string type(config.architecture->model_type);
  const bool attention_alone = type == "granitemoehybrid" && !config.recurrent();
  if (attention_alone)
    throw Error(TENON_UNSUPPORTED, file +
                                       ": 'layer_types': a model of attention alone has no form "
                                       "in GGUF for model_type 'granitemoehybrid'; expected "
                                       "some layers of 'mamba'");
  const Family& first = family_of_folder(type, file);
  for (const Family& f : kFamilies)
    if (f.hybrid && f.model_type == type && f.experts.empty() == (config.moe.experts == 0))
      return f;
  return first;
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
  if (architecture == "olmo2" && has("olmo2.attention.sliding_window"))
    return family_of_folder("olmo3", file);
  if (architecture == "granitehybrid" && has("granitehybrid.expert_count"))
    for (const Family& f : kFamilies)
      if (f.gguf == architecture && !f.experts.empty()) return f;
  if (architecture == "falcon")
    return family_of_folder("falcon", file, model.has_tensor("blk.0.attn_norm_2.weight"));
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

std::vector<float> numbers_of(const NumberList& list, const Gguf& model, int64_t layers,
                              const std::string& file) {
  const std::string key(list.key);
  if (!model.has(key)) throw Error(TENON_CORRUPT, file + ": key '" + key + "' is missing");
  std::vector<float> out = model.numbers<float>(key);
  if (out.size() == 1) out.assign(static_cast<size_t>(layers), out[0]);
  if (static_cast<int64_t>(out.size()) != layers)
    throw Error(TENON_CORRUPT, file + ": key '" + key + "' has " + std::to_string(out.size()) +
                                   " numbers; expected one for each of the " +
                                   std::to_string(layers) + " layers");
  return out;
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
