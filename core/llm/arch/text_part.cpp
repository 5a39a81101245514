// SPDX-License-Identifier: Apache-2.0
// The language models inside of models that read images or sounds.
#include "llm/arch/text_part.hpp"

#include <algorithm>
#include <array>

#include "llm/arch/config.hpp"

namespace tenon::llm {
namespace {

// Where tie_word_embeddings counts.
enum class Ties : uint8_t {
  either,  // beside text_config or in it: one of them is enough
  beside,  // beside text_config only; false if it is not there
  // Beside text_config; in it if it is not there. The classes of these tie by default, but
  // transformers does not tie where the files have a head.
  first
};

struct Wrapper {
  std::string_view model_type;
  std::string_view text;  // model_type of the text, unless text_config names it
  Ties ties;
  // Where the modules of transformers are that a model of text has in "model.".
  std::string_view inner = "model.language_model.";
};
constexpr Wrapper kWrappers[] = {{"gemma3", "gemma3_text", Ties::first},
                                 {"mistral3", "mistral", Ties::first},
                                 {"qwen2_vl", "qwen2", Ties::either},
                                 {"qwen2_5_vl", "qwen2", Ties::either},
                                 {"qwen3_vl", "qwen3", Ties::beside},
                                 {"qwen3_vl_moe", "qwen3_moe", Ties::beside},
                                 {"llava", "llama", Ties::either},
                                 {"llava_next", "llama", Ties::beside},
                                 {"llava_onevision", "qwen2", Ties::either},
                                 {"idefics3", "llama", Ties::beside, "model.text_model."},
                                 {"smolvlm", "llama", Ties::beside, "model.text_model."},
                                 {"internvl", "qwen2", Ties::first},
                                 {"aya_vision", "cohere2", Ties::first},
                                 {"cohere2_vision", "cohere2", Ties::first},
                                 {"qwen3_5", "qwen3_5_text", Ties::beside},
                                 {"qwen3_5_moe", "qwen3_5_moe_text", Ties::beside},
                                 {"lfm2_vl", "lfm2", Ties::first},
                                 {"llama4", "llama4_text", Ties::beside, "language_model.model."},
                                 {"gemma4", "gemma4_text", Ties::first},
                                 {"gemma3n", "gemma3n_text", Ties::first}};
// Names that a text_config has for a model that also exists alone.
constexpr std::array<std::string_view, 2> kSame[] = {{"qwen2_vl_text", "qwen2"},
                                                     {"qwen2_5_vl_text", "qwen2"},
                                                     {"qwen3_vl_text", "qwen3"},
                                                     {"qwen3_vl_moe_text", "qwen3_moe"}};

// What text_config leaves out has the value of the class. These are what published files leave out.
Json defaults(std::string_view type) {
  if (type == "gemma3_text")
    return {{"vocab_size", 262208},      {"hidden_size", 2304},
            {"intermediate_size", 9216}, {"num_hidden_layers", 26},
            {"num_attention_heads", 8},  {"num_key_value_heads", 4},
            {"head_dim", 256},           {"max_position_embeddings", 131072}};
  if (type == "llama")
    return {{"vocab_size", 32000},        {"hidden_size", 4096},
            {"intermediate_size", 11008}, {"num_hidden_layers", 32},
            {"num_attention_heads", 32},  {"max_position_embeddings", 2048}};
  if (type == "mistral")
    return {{"vocab_size", 32000},
            {"hidden_size", 4096},
            {"intermediate_size", 14336},
            {"num_hidden_layers", 32},
            {"num_attention_heads", 32},
            {"num_key_value_heads", 8},
            {"max_position_embeddings", 131072}};
  return Json::object();
}

// Keys of text_config or beside it that do not concern text.
constexpr std::string_view kOthers[] = {
    "vision_config",         "audio_config",           "image_token_id",      "video_token_id",
    "vision_start_token_id", "vision_end_token_id",    "vision_token_id",     "image_token_index",
    "_flash_attn_2_enabled", "is_llama_config",        "neftune_noise_alpha", "perceiver_config",
    "pixel_shuffle_factor",  "transformers.js_config", "use_resampler",       "rope_interleaved"};

// Where all tokens are text, the positions of the three sections of Qwen's rope are equal.
void without_sections(Json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = config.find(key);
    if (rope == config.end() || !rope->is_object()) continue;
    for (const char* part : {"mrope_section", "mrope_interleaved"}) rope->erase(part);
    for (const char* type : {"type", "rope_type"})
      if (rope->contains(type) && (*rope)[type] == "mrope") (*rope)[type] = "default";
  }
}

std::string text_of(const Json& config, const char* key) {
  const auto at = config.find(key);
  return at != config.end() && at->is_string() ? at->get<std::string>() : std::string();
}

bool has(const Json& config, const char* key) {
  return config.contains(key) && !config[key].is_null();
}

void take_ties(const Json& config, Ties ties, Json& out) {
  constexpr const char* kKey = "tie_word_embeddings";
  if (has(config, kKey)) {
    if (ties != Ties::either || config[kKey] != false) out[kKey] = config[kKey];
  } else if (ties == Ties::beside) {
    out[kKey] = false;
  }
}

}  // namespace

Json text_part(const Json& config, const std::string& file) {
  const std::string type = text_of(config, "model_type");
  const auto wrapper = std::ranges::find(kWrappers, type, &Wrapper::model_type);
  const auto inner = config.find("text_config");
  const bool has_inner = inner != config.end() && inner->is_object();
  if (wrapper == std::end(kWrappers)) return config;
  const bool flat =
      type == "qwen2_vl" || type == "qwen2_5_vl";  // older files of these have no text_config
  if (!has_inner && !flat)
    throw Error(TENON_CORRUPT, file + ": 'text_config'" +
                                   (inner == config.end() ? " is missing; " : ": ") +
                                   "expected an object with the language model of '" + type +
                                   "', got " + (inner == config.end() ? "nothing" : shown(*inner)));
  Json out = has_inner ? *inner : config;
  std::string text = has_inner ? text_of(*inner, "model_type") : std::string();
  for (const auto& [name, same] : kSame)
    if (text == name) text = same;
  if (text.empty()) text = wrapper->text;
  for (const std::string_view key : kOthers) out.erase(std::string(key));
  const Json usual = defaults(text);
  for (const auto& [key, value] : usual.items())
    if (!out.contains(key)) out[key] = value;
  if (has_inner) {
    // Beside text_config, these count more; where it has no dtype, that beside it counts.
    for (const char* key : {"eos_token_id", "quantization_config"})
      if (has(config, key)) out[key] = config[key];
    take_ties(config, wrapper->ties, out);
    if (!has(out, "dtype") && !has(out, "torch_dtype"))
      for (const char* key : {"dtype", "torch_dtype"})
        if (has(config, key)) out[key] = config[key];
  }
  // These always divide the weights of a token's experts by their sum.
  if (type == "qwen3_vl_moe") out["norm_topk_prob"] = true;
  without_sections(out);
  out["model_type"] = text;
  out.erase("architectures");
  for (const Architecture* a : architectures())
    if (a->model_type == text) out["architectures"] = {a->class_name};
  return out;
}

std::string text_tensor(const std::string& name) {
  for (const std::string_view other :
       {"vision_tower.", "multi_modal_projector.", "visual.", "vision_model.", "connector.",
        "image_newline", "audio_tower.", "embed_vision.", "embed_audio."})
    if (name.starts_with(other) || name.starts_with("model." + std::string(other))) return {};
  for (const std::string_view text : {"language_model.model.", "model.language_model.model.",
                                      "model.language_model.", "model.text_model."})
    if (name.starts_with(text)) return "model." + name.substr(text.size());
  constexpr std::string_view kWhole = "language_model.";
  return name.starts_with(kWhole) ? name.substr(kWhole.size()) : name;
}

std::string module_in_whole(const std::string& module, std::string_view type) {
  const auto wrapper = std::ranges::find(kWrappers, type, &Wrapper::model_type);
  if (wrapper == std::end(kWrappers)) return module;
  constexpr std::string_view kModel = "model.", kText = "language_model.";
  if (module.starts_with(kModel)) return std::string(wrapper->inner) + module.substr(kModel.size());
  // A head is beside the model; of Llama 4 both are in the model of text.
  return wrapper->inner.starts_with(kText) ? std::string(kText) + module : module;
}

std::vector<std::string> wrapped_names(const std::string& name) {
  if (!name.starts_with("model.")) return {"language_model." + name};
  const std::string rest = name.substr(6);
  return {"language_model." + name, "model.language_model." + rest, "model.text_model." + rest};
}

}  // namespace tenon::llm
