// SPDX-License-Identifier: Apache-2.0
// Keys of GPT-2 and Mamba, and those that DeepSeek, Granite, Ministral 3, Qwen2 with experts and
// SmolLM3 add to the common ones.
#include "llm/files/own_keys.hpp"

#include <charconv>
#include <cmath>

#include "llm/files/config_keys.hpp"
#include "llm/files/decoder_keys.hpp"
#include "llm/files/hybrid_keys.hpp"
#include "llm/files/key_fields.hpp"
#include "llm/files/older_keys.hpp"

namespace tenon::llm::files {
namespace {

void set_gpt2(Fields f) {
  const int64_t dim = f.size("n_embd");
  f.set("context_length", f.integer("n_positions", 1024));
  f.set("embedding_length", dim);
  f.set("block_count", f.size("n_layer"));
  f.set("feed_forward_length", f.integer("n_inner", 4 * dim));
  f.set("attention.head_count", f.size("n_head"));
  f.set("vocab_size", f.size("vocab_size"));
  f.set_real("attention.layer_norm_epsilon", f.real("layer_norm_epsilon", 1e-5));
  f.expect("scale_attn_weights", true);
  f.expect("scale_attn_by_inverse_layer_idx", false);
  f.expect("add_cross_attention", false);
  const std::string act = f.text("activation_function", "gelu_new");
  if (act != "gelu_new" && act != "gelu_fast" && act != "gelu_pytorch_tanh")
    f.refuse("activation_function", act, "gelu_new");
}

void set_mamba(Fields f) {
  const int64_t dim = f.size("hidden_size"),
                inner = f.integer("intermediate_size", f.integer("expand", 2) * dim);
  if (inner != 2 * dim) f.refuse("intermediate_size", std::to_string(inner), "2 * hidden_size");
  f.set("context_length", 1 << 20);
  f.set("embedding_length", dim);
  f.set("block_count", f.size("num_hidden_layers"));
  f.set("feed_forward_length", 0);
  f.set("attention.head_count", 0);
  f.set("vocab_size", f.size("vocab_size"));
  f.set_real("attention.layer_norm_rms_epsilon", f.real("layer_norm_epsilon", 1e-5));
  f.set("ssm.conv_kernel", f.integer("conv_kernel", 4));
  f.set("ssm.inner_size", inner);
  f.set("ssm.state_size", f.integer("state_size", 16));
  f.expect("use_bias", false);
  f.expect("use_conv_bias", true);
  if (const std::string act = f.text("hidden_act", "silu"); act != "silu")
    f.refuse("hidden_act", act, "silu");
}

void read_gpt2(const FileKeys& k, Json& out) {
  out["n_positions"] = k.integer("context_length");
  out["n_embd"] = k.integer("embedding_length");
  out["n_layer"] = k.integer("block_count");
  out["n_inner"] = k.integer("feed_forward_length");
  out["n_head"] = k.integer("attention.head_count");
  out["layer_norm_epsilon"] = k.real("attention.layer_norm_epsilon");
  out["activation_function"] = "gelu_new";
}

void read_mamba(const FileKeys& k, Json& out, const std::string& file) {
  if (k.flag("ssm.dt_b_c_rms"))
    throw Error(
        TENON_UNSUPPORTED,
        file + ": key 'mamba.ssm.dt_b_c_rms' is true; expected a Mamba without these norms");
  const int64_t inner = k.integer("ssm.inner_size");
  out["hidden_size"] = k.integer("embedding_length");
  out["num_hidden_layers"] = k.integer("block_count");
  out["intermediate_size"] = inner;
  out["expand"] = 2;
  out["conv_kernel"] = k.integer("ssm.conv_kernel");
  out["state_size"] = k.integer("ssm.state_size");
  out["time_step_rank"] = k.integer("ssm.time_step_rank");
  out["layer_norm_epsilon"] = k.real("attention.layer_norm_rms_epsilon");
  out["hidden_act"] = "silu";
  out["use_bias"] = false;
  out["use_conv_bias"] = true;
}

}  // namespace

double finite(float value, const std::string& name, const std::string& file) {
  if (!std::isfinite(value))
    throw Error(TENON_CORRUPT, file + ": '" + name + "': expected finite numbers");
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double out = value;
  std::from_chars(text, end, out);
  return out;
}

bool set_own_keys(GgufWriter& out, const Family& family, const Json& config,
                  const std::string& file) {
  const Fields fields(out, family, config, file);
  if (family.gguf == "gpt2") {
    set_gpt2(fields);
    return true;
  }
  if (Fields older = fields; set_older_keys(older, family, config, file)) return true;
  if (family.gguf != "mamba") return false;
  set_mamba(fields);
  // A number, or "auto".
  const auto rank = config.find("time_step_rank");
  const bool given = rank != config.end() && rank->is_number_integer();
  Fields(fields).set("ssm.time_step_rank",
                     given ? need_size(config, "time_step_rank", file)
                           : (need_size(config, "hidden_size", file) + 15) / 16);
  return true;
}

bool read_own_keys(const Gguf& model, const Family& family, const std::string& file, Json& out) {
  const FileKeys keys(model, family, file);
  if (family.gguf == "gpt2")
    read_gpt2(keys, out);
  else if (family.gguf == "mamba")
    read_mamba(keys, out, file);
  else
    return read_older_keys(keys, family, out);
  return true;
}

void set_more_keys(GgufWriter& out, const Family& family, const Json& config,
                   const std::string& file) {
  Fields f(out, family, config, file);
  set_decoder_keys(f, family, config, file);
  set_hybrid_keys(out, f, family, config, file);
  if (family.gguf.starts_with("granite")) {
    f.set_real("attention.scale", f.real("attention_multiplier", 1));
    f.set_real("embedding_scale", f.real("embedding_multiplier", 1));
    f.set_real("residual_scale", f.real("residual_multiplier", 1));
    f.set_real("logit_scale", f.real("logits_scaling", 1));
  } else if (family.gguf == "smollm3") {
    f.expect("use_sliding_window", false);
    const auto rotates = config.find("no_rope_layers");
    const bool listed = rotates != config.end() && rotates->is_array();
    bool usual = listed || f.integer("no_rope_layer_interval", 4) == 4;
    for (size_t i = 0; listed && i < rotates->size(); ++i)
      usual = usual && (*rotates)[i] == ((i + 1) % 4 != 0 ? 1 : 0);
    if (!usual) f.refuse("no_rope_layers", "other layers", "every fourth layer without rope");
  } else if (family.gguf == "qwen2moe") {
    f.expect("norm_topk_prob", false);
    f.set("expert_shared_feed_forward_length", f.integer("shared_expert_intermediate_size", 5632));
  } else if (family.gguf == "mistral3") {
    const RopeConfig rope = read_rope(config, file);
    const double beta = field<double>(rope.scaling, "llama_4_scaling_beta", file).value_or(0);
    if (beta != 0) f.set_real("attention.temperature_scale", beta);
  }
}

void read_more_keys(const Gguf& model, const Family& family, const std::string& file, Json& out) {
  const FileKeys k(model, family, file);
  const auto take = [&](const char* name, const char* field_name) {
    if (k.has(name)) out[field_name] = k.real(name);
  };
  read_decoder_keys(model, family, file, out);
  read_hybrid_keys(k, family, out);
  if (family.gguf.starts_with("granite")) {
    // Zero stands for the usual scale of attention.
    if (k.has("attention.scale") && k.real("attention.scale") > 0)
      take("attention.scale", "attention_multiplier");
    else
      out["attention_multiplier"] = 1 / std::sqrt(out["head_dim"].get<double>());
    take("embedding_scale", "embedding_multiplier");
    take("residual_scale", "residual_multiplier");
    take("logit_scale", "logits_scaling");
  } else if (family.gguf == "qwen2moe") {
    out["norm_topk_prob"] = false;
    out["qkv_bias"] = model.has_tensor("blk.0.attn_q.bias");
    out["shared_expert_intermediate_size"] = k.integer("expert_shared_feed_forward_length", 5632);
  } else if (family.gguf == "mistral3" && k.has("attention.temperature_scale")) {
    if (!out.contains("rope_scaling"))
      throw Error(TENON_UNSUPPORTED, file +
                                         ": key 'mistral3.attention.temperature_scale' is set; "
                                         "expected rope.scaling.type yarn beside it");
    out["rope_scaling"]["llama_4_scaling_beta"] = k.real("attention.temperature_scale");
  }
}

void set_deepseek_keys(GgufWriter& out, const Family& family, const Json& config,
                       const std::string& file) {
  Fields f(out, family, config, file);
  const bool v3 = family.model_type == "deepseek_v3";
  const int64_t rank = f.integer("kv_lora_rank", 512), rope = f.integer("qk_rope_head_dim", 64),
                nope = f.integer("qk_nope_head_dim", 128), value = f.integer("v_head_dim", 128);
  f.expect("attention_bias", false);
  f.expect("mlp_bias", false);
  if (!config.contains("q_lora_rank") || !config["q_lora_rank"].is_null())
    f.set("attention.q_lora_rank", f.integer("q_lora_rank", 1536));
  f.set("attention.kv_lora_rank", rank);
  // As the latent vector is cached: one head for keys and values.
  f.set("attention.key_length", rank + rope);
  f.set("attention.value_length", rank);
  f.set("attention.key_length_mla", nope + rope);
  f.set("attention.value_length_mla", value);
  f.set("leading_dense_block_count", dense_layers(config, family, file));
  f.set("expert_count", f.size("n_routed_experts"));
  f.set("expert_used_count", f.size("num_experts_per_tok"));
  const auto shared = config.find("n_shared_experts");
  f.set("expert_shared_count", shared != config.end() && shared->is_null()
                                   ? 0
                                   : f.integer("n_shared_experts", v3 ? 1 : 2));
  f.set("expert_feed_forward_length", f.size("moe_intermediate_size"));
  f.set_real("expert_weights_scale", f.real("routed_scaling_factor", v3 ? 2.5 : 1));
  out.set(f.key("expert_weights_norm"), v3 && f.flag("norm_topk_prob", true));
  f.set("expert_gating_func", v3 ? 2 : 1);  // sigmoid; softmax
  if (!v3) f.expect("norm_topk_prob", false);
  const std::string method = f.text("topk_method", v3 ? "noaux_tc" : "greedy");
  if (method == "greedy") return;
  f.set("expert_group_count", f.integer("n_group", v3 ? 8 : 1));
  f.set("expert_group_used_count", f.integer("topk_group", v3 ? 4 : 1));
}

void read_deepseek_keys(const Gguf& model, const Family& family, const std::string& file,
                        Json& out) {
  const FileKeys k(model, family, file);
  const bool v3 = family.model_type == "deepseek_v3";
  const int64_t rope = k.integer("rope.dimension_count");
  const int64_t key = k.integer(k.has("attention.key_length_mla") ? "attention.key_length_mla"
                                                                  : "attention.key_length");
  if (key <= rope)
    throw Error(TENON_CORRUPT, file + ": key 'deepseek2.attention.key_length_mla' is " +
                                   std::to_string(key) + "; expected more than the " +
                                   std::to_string(rope) + " of rope.dimension_count");
  out.erase("head_dim");
  out["num_key_value_heads"] = out["num_attention_heads"];
  out["qk_rope_head_dim"] = rope;
  out["qk_nope_head_dim"] = key - rope;
  out["v_head_dim"] = k.integer(k.has("attention.value_length_mla") ? "attention.value_length_mla"
                                                                    : "attention.value_length");
  out["kv_lora_rank"] = k.integer("attention.kv_lora_rank");
  out["q_lora_rank"] = nullptr;
  // Zero says that there is none. Files of the light models may have the key without the tensors.
  if (const int64_t rank = k.integer("attention.q_lora_rank", 0);
      rank > 0 && !model.has_tensor("blk.0.attn_q.weight"))
    out["q_lora_rank"] = rank;
  out["first_k_dense_replace"] = k.integer("leading_dense_block_count", 0);
  out["n_routed_experts"] = k.integer("expert_count");
  out["num_experts_per_tok"] = k.integer("expert_used_count");
  out["n_shared_experts"] = k.integer("expert_shared_count", 0);
  out["moe_intermediate_size"] = k.integer("expert_feed_forward_length");
  out["routed_scaling_factor"] = k.has("expert_weights_scale") ? k.real("expert_weights_scale") : 1;
  out["norm_topk_prob"] = k.flag("expert_weights_norm");
  const int64_t groups = k.integer("expert_group_count", 1);
  out["n_group"] = groups;
  out["topk_group"] = k.integer("expert_group_used_count", 1);
  out["topk_method"] = v3 ? "noaux_tc" : groups > 1 ? "group_limited_greedy" : "greedy";
  out["scoring_func"] = v3 ? "sigmoid" : "softmax";
  read_extra_layers(k, out);
}

void read_extra_layers(const FileKeys& k, Json& out, const char* name) {
  const int64_t more = k.integer("nextn_predict_layers", 0);
  if (more == 0) return;
  const int64_t layers = out["num_hidden_layers"].get<int64_t>();
  if (more >= layers)
    k.refuse("nextn_predict_layers",
             std::to_string(more) + " of " + std::to_string(layers) + " layers");
  out["num_hidden_layers"] = layers - more;
  out[name] = more;
}

const char* layers_key(const Json& config, const Family& family) {
  if (family.gguf == "mpt") return "n_layers";
  const bool short_name =
      family.gguf == "gpt2" || (family.gguf == "bloom" && config.contains("n_layer"));
  return short_name ? "n_layer" : "num_hidden_layers";
}

const Family& family_of_config(const Json& config, const std::string& file) {
  const std::string type = field<std::string>(config, "model_type", file).value_or("");
  const bool grouped = field<bool>(config, "new_decoder_architecture", file).value_or(false);
  return family_of_folder(
      type, file,
      type == "falcon" && grouped &&
          field<int64_t>(config, "num_ln_in_parallel_attn", file).value_or(2) == 2);
}

int64_t dense_layers(const Json& config, const Family& family, const std::string& file) {
  if (family.gguf == "lfm2moe") return field<int64_t>(config, "num_dense_layers", file).value_or(2);
  if (!family.as_deepseek()) return 0;
  const int64_t otherwise = family.model_type == "deepseek_v3" ? 3
                            : family.model_type == "glm4_moe"  ? 1
                                                               : 0;
  return field<int64_t>(config, "first_k_dense_replace", file).value_or(otherwise);
}

int64_t extra_layers(const Json& config, const Family& family, const std::string& file) {
  if (family.has_linear_attention())
    return field<int64_t>(config, "mtp_num_hidden_layers", file).value_or(0);
  if (!family.as_deepseek()) return 0;
  const bool glm = family.model_type == "glm4_moe";
  if (glm)
    if (const auto more = field<int64_t>(config, "num_mtp_layers", file)) return *more;
  return field<int64_t>(config, "num_nextn_predict_layers", file).value_or(glm ? 1 : 0);
}

}  // namespace tenon::llm::files
