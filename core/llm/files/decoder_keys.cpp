// SPDX-License-Identifier: Apache-2.0
// Keys of single families, both ways.
#include "llm/files/decoder_keys.hpp"

#include <algorithm>

#include "llm/files/expert_keys.hpp"

namespace tenon::llm::files {
namespace {

// Every how many layers a family has one without a window, unless its files say otherwise; 0: it has no
// such layers.
int64_t usual_pattern(const Family& family) {
  if (family.gguf == "gpt-oss") return 2;
  return family.gguf == "cohere2" || family.gguf == "exaone4" || family.model_type == "olmo3" ? 4
                                                                                              : 0;
}

// A number, or true for each layer with a window.
Json layer_types(const Gguf& model, const FileKeys& k, const Family& family, int64_t layers) {
  const std::string key = std::string(family.gguf) + ".attention.sliding_window_pattern";
  Json types = Json::array();
  const auto add = [&](bool window) {
    types.push_back(window ? "sliding_attention" : "full_attention");
  };
  std::vector<int64_t> list;
  if (model.has(key)) list = k.integers("attention.sliding_window_pattern");
  const int64_t every = list.size() == 1 ? list[0] : usual_pattern(family);
  for (int64_t i = 0; i < layers; ++i)
    if (list.size() > 1)
      add(static_cast<size_t>(i) < list.size() && list[static_cast<size_t>(i)] != 0);
    else
      add(every == 0 || (i + 1) % every != 0);
  return types;
}

// The names that files of a family have for biases.
void rename_biases(const Gguf& model, const Family& family, Json& out) {
  const bool attention =
      model.has_tensor("blk.0.attn_q.bias") || model.has_tensor("blk.0.attn_qkv.bias");
  const auto only = [&](const char* name) {
    out.erase("attention_bias"), out.erase("mlp_bias");
    if (name) out[name] = attention;
  };
  if (family.gguf == "stablelm") only("use_qkv_bias");
  if (family.gguf == "starcoder2" || family.gguf.starts_with("ernie4_5")) only("use_bias");
  if (family.gguf == "gptneox") only("attention_bias");
  if (family.gguf == "phi2" || family.gguf == "exaone4") only(nullptr);
  if (family.gguf == "gpt-oss" || family.gguf == "glm4" || family.gguf == "chatglm" ||
      family.gguf == "seed_oss")
    out["attention_bias"] = attention;
}

}  // namespace

void set_decoder_keys(Fields& f, const Family& family, const Json& config,
                      const std::string& file) {
  if (family.gguf == "command-r" || family.gguf == "cohere2")
    f.set_real("logit_scale", f.real("logit_scale", 0.0625));
  if (family.gguf == "stablelm" || family.gguf == "gptneox")
    f.set_flag("use_parallel_residual", f.flag("use_parallel_residual", family.gguf == "gptneox"));
  if (usual_pattern(family) > 0) {
    const bool none = config.contains("sliding_window") && config["sliding_window"].is_null();
    if (!none) {
      if (!config.contains("sliding_window"))
        f.set("attention.sliding_window", family.gguf == "gpt-oss" ? 128 : 4096);
      f.set("attention.sliding_window_pattern",
            window_pattern(config, usual_pattern(family), file));
    }
  }
  if (family.model_type == "olmo3") {
    const RopeConfig rope = read_rope(config, file);
    const auto all = field<Json>(config, "rope_parameters", file);
    // Layers with a window have 5e5 unless rope_parameters says otherwise.
    const double local = all && all->contains("sliding_attention") ? rope.local_theta : 5e5;
    if (local != rope.theta)
      f.refuse("rope_theta", "another one of layers with a window", "one for all layers");
  }
  if (family.gguf == "gpt-oss") {
    if (const double v = f.real("swiglu_limit", 7); v != 7)
      f.refuse("swiglu_limit", std::to_string(v), "7");
    if (const double v = f.real("swiglu_alpha", 1.702); v != 1.702)
      f.refuse("swiglu_alpha", std::to_string(v), "1.702");
  }
  if (family.gguf == "olmoe") f.expect("norm_topk_prob", false);
  set_expert_keys(f, family, config, file);
  f.expect("qk_layernorm", false);
}

void read_decoder_keys(const Gguf& model, const Family& family, const std::string& file,
                       Json& out) {
  const FileKeys k(model, family, file);
  if (family.gguf == "command-r" || family.gguf == "cohere2")
    out["logit_scale"] = k.has("logit_scale") ? k.real("logit_scale") : 1.0;
  if (family.gguf == "command-r") out["use_qk_norm"] = model.has_tensor("blk.0.attn_q_norm.weight");
  if (family.gguf == "stablelm") {
    out["use_parallel_residual"] = !model.has_tensor("blk.0.ffn_norm.weight");
    out["qk_layernorm"] = model.has_tensor("blk.0.attn_q_norm.weight");
  }
  if (family.gguf == "gptneox") {
    out["use_parallel_residual"] =
        !k.has("use_parallel_residual") || k.flag("use_parallel_residual");
    out["rotary_emb_base"] = out["rope_theta"];
    out["rotary_pct"] = out.value("partial_rotary_factor", 1.0);
    for (const char* name :
         {"rope_theta", "partial_rotary_factor", "head_dim", "num_key_value_heads"})
      out.erase(name);
  }
  if (usual_pattern(family) > 0) {
    const int64_t layers = std::min<int64_t>(out["num_hidden_layers"].get<int64_t>(), 4096);
    if (out.contains("sliding_window")) {
      out["layer_types"] = layer_types(model, k, family, layers);
    } else {
      out["sliding_window"] = nullptr;
      out["layer_types"] = std::vector<std::string>(static_cast<size_t>(layers), "full_attention");
    }
  }
  // transformers takes a rope_theta beside other keys for layers without a window only.
  if (family.model_type == "olmo3" && out["rope_theta"] != 5e5) {
    const Json local{{"rope_type", "default"}, {"rope_theta", out["rope_theta"]}};
    Json full = out.contains("rope_scaling") ? out["rope_scaling"] : local;
    full["rope_theta"] = out["rope_theta"];
    out["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", local}};
    out.erase("rope_theta"), out.erase("rope_scaling");
  }
  if (family.gguf == "seed_oss")
    out["attention_out_bias"] = model.has_tensor("blk.0.attn_output.bias");
  if (family.gguf == "olmoe") out["norm_topk_prob"] = false;
  if (family.gguf == "gpt-oss") out["swiglu_limit"] = 7.0;
  read_expert_keys(k, family, out);
  if (family.gguf == "glm4moe") out["use_qk_norm"] = model.has_tensor("blk.0.attn_q_norm.weight");
  rename_biases(model, family, out);
}

}  // namespace tenon::llm::files
