// SPDX-License-Identifier: Apache-2.0
// Opens folders and GGUF files.
#include "llm/model_files.hpp"

#include <algorithm>

#include "llm/arch/config_reader.hpp"
#include "llm/arch/joint_experts.hpp"
#include "llm/arch/quantization.hpp"
#include "llm/arch/text_part.hpp"
#include "llm/embedding.hpp"
#include "llm/gguf_model.hpp"
#include "llm/json_text.hpp"
#include "llm/model_folder.hpp"

namespace tenon::llm {
namespace {

// generation_config.json may name more end tokens than config.json, such as the end of a turn.
void read_generation_config(const std::string& folder, ModelConfig& config) {
  const std::string file = folder + "/generation_config.json";
  const auto text = read_if_there(file);
  if (!text) return;
  const Json json = parse_object(*text, file);
  ConfigReader r(json, file);
  for (const int64_t token : r.integers("eos_token_id"))
    if (std::ranges::find(config.end_tokens, token) == config.end_tokens.end())
      config.end_tokens.push_back(token);
}

}  // namespace

tenon_dtype activations_of(const ModelConfig& config, const OpenOptions& options) {
  if (options.compute != TENON_DTYPE_NONE) return options.compute;
  return options.on_cpu ? tenon_dtype{f32} : config.dtype;
}

ModelFiles open_model(const std::string& path, const OpenOptions& options) {
  if (is_model_file(path)) {
    const GgufModel file(path);
    ModelConfig config = file.config();
    TensorSource tensors = file.tensors(config);
    return {std::move(config), std::move(tensors)};
  }
  const std::string file = path + "/config.json";
  ModelConfig config = parse_config(read_text(file), file);
  read_generation_config(path, config);
  read_folder_pooling(path, config);
  const DecodeOptions decode = {.dtype = activations_of(config, options),
                                .inputs_are_rows = config.architecture->model_type == "gpt2"};
  const JointLayout joint = joint_layout(config.architecture->model_type);
  const Quantization::Layout layout = config.quantization.layout;
  if (layout != Quantization::Layout::none && layout != Quantization::Layout::mxfp4) {
    TensorSource tensors = quantized_tensors(path, config.quantization, decode);
    return {std::move(config), std::move(tensors)};
  }
  TensorSource tensors = joint == JointLayout::none
                             ? folder_tensors(path)
                             : joint_tensors(path, joint, config.dim, decode);
  return {std::move(config), std::move(tensors)};
}

bool is_harmless_tensor(const std::string& name, const ModelConfig& c) {
  if (!c.wrapper.empty() && text_tensor(name).empty()) return true;  // of images or sounds
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  // Causal masks; biases of products are named c_attn.bias and so on.
  const std::string_view type = c.architecture->model_type;
  if (type == "gpt2" || type == "gpt_neox" || type == "gptj" || type == "gpt_neo" ||
      type == "gpt_bigcode" || type == "codegen")
    for (const char* end :
         {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias"})
      if (name.ends_with(end)) return true;
  if (c.altup.streams > 0 && !c.altup.scaled && name.ends_with(".altup.correct_output_scale"))
    return true;
  // Keys and values of layers that read those of others.
  for (int64_t i = c.per_layer.first_shared(c.layers); i < c.layers; ++i)
    for (const char* part : {"k_proj.", "v_proj.", "k_norm.", "v_norm."})
      if (text_tensor(name).starts_with("model.layers." + std::to_string(i) + ".self_attn." + part))
        return true;
  // Layers that predict further tokens.
  if ((type == "exaone_moe" || type == "mellum") && name.starts_with("mtp.")) return true;
  if (type == "mimo_v2_flash" && name.starts_with("model.mtp.")) return true;
  if (type == "nemotron_h" && name.starts_with("mtp.")) return true;
  if (type == "ernie4_5_moe" && name.starts_with("model.mtp_")) return true;
  if (c.tied && text_tensor(name) == "lm_head.weight") return true;
  if (c.tied && type == "biogpt" && name == "output_projection.weight") return true;
  if (type == "xglm" && name.ends_with("embed_positions.weights")) return true;  // sinusoids
  // Layers that predict further tokens.
  if (c.delta.key_heads > 0 && name.starts_with("mtp.")) return true;
  for (int64_t i = 0; i < c.extra_layers && i < 64; ++i)
    if (name.starts_with("model.layers." + std::to_string(c.layers + i) + ".")) return true;
  return false;
}

bool runs_on_cpu(const Runtime& runtime, const std::string& device) {
  bool only_cpu = true;
  for (const DeviceEntry& d : runtime.devices()) {
    if (d.id == device) return d.class_name() == "cpu";
    only_cpu = only_cpu && (d.class_name() == "cpu" || !d.reason.empty());
  }
  return device == "cpu" || (device == "auto" && only_cpu);
}

}  // namespace tenon::llm
