// SPDX-License-Identifier: Apache-2.0
// Keys of experts of single families, both ways.
#include "llm/files/expert_keys.hpp"

#include "llm/arch/config.hpp"

namespace tenon::llm::files {
namespace {

ModelConfig engine_config_of(const Json& config, const std::string& file) {
  return parse_config(config.dump(-1, ' ', false, Json::error_handler_t::replace), file);
}

// ---- GLM-4.5 and dots.llm1: sigmoids of the scores, and a correction

void set_sigmoid_experts(Fields& f, const Family& family, const Json& config,
                         const std::string& file) {
  f.set("leading_dense_block_count", dense_layers(config, family, file));
  f.set("expert_count", f.size("n_routed_experts"));
  f.set("expert_used_count", f.size("num_experts_per_tok"));
  f.set("expert_shared_count", f.integer("n_shared_experts", 1));
  f.set("expert_feed_forward_length", f.size("moe_intermediate_size"));
  f.set("expert_gating_func", 2);  // sigmoid
  f.set_real("expert_weights_scale", f.real("routed_scaling_factor", 1));
  f.set_flag("expert_weights_norm", f.flag("norm_topk_prob", family.gguf == "glm4moe"));
  for (const char* name : {"n_group", "topk_group"})
    if (const int64_t n = f.integer(name, 1); n != 1) f.refuse(name, std::to_string(n), "1");
}

void read_sigmoid_experts(const FileKeys& k, Json& out) {
  out["first_k_dense_replace"] = k.integer("leading_dense_block_count", 0);
  out["n_routed_experts"] = k.integer("expert_count");
  out["num_experts_per_tok"] = k.integer("expert_used_count");
  out["n_shared_experts"] = k.integer("expert_shared_count", 0);
  out["moe_intermediate_size"] = k.integer("expert_feed_forward_length");
  out["routed_scaling_factor"] = k.has("expert_weights_scale") ? k.real("expert_weights_scale") : 1;
  out["norm_topk_prob"] = !k.has("expert_weights_norm") || k.flag("expert_weights_norm");
}

void set_dots1(Fields& f, const Json& config, const std::string& file) {
  const ModelConfig c = engine_config_of(config, file);
  for (const bool local : c.local)
    if (local) f.refuse("sliding_window", std::to_string(c.window), "null");
}

// ---- ERNIE 4.5

void set_ernie(Fields& f, const Json& config, const std::string& file) {
  const ModelConfig c = engine_config_of(config, file);
  const int64_t first = f.integer("moe_layer_start_index", 1),
                step = f.integer("moe_layer_interval", 1);
  for (int64_t i = 0; i < c.layers; ++i)
    if (c.sparse[static_cast<size_t>(i)] != (i >= first && (i + 1) % step == 0))
      f.refuse("moe_layer_end_index", std::to_string(f.integer("moe_layer_end_index", -1)), "-1");
  f.set("leading_dense_block_count", first);
  f.set("interleave_moe_layer_step", step);
  f.set("expert_count", c.moe.experts);
  f.set("expert_used_count", c.moe.per_token);
  f.set("expert_shared_count", c.moe.shared_ffn / c.moe.ffn);
  f.set("expert_feed_forward_length", c.moe.ffn);
  f.set("expert_shared_feed_forward_length", c.moe.shared_ffn);
}

void read_ernie(const FileKeys& k, Json& out) {
  out["moe_num_experts"] = k.integer("expert_count");
  out["moe_k"] = k.integer("expert_used_count");
  out["moe_intermediate_size"] = k.integer("expert_feed_forward_length");
  out["moe_num_shared_experts"] = k.integer("expert_shared_count", 0);
  out["moe_layer_start_index"] = k.integer("leading_dense_block_count", 0);
  out["moe_layer_interval"] = k.integer("interleave_moe_layer_step", 1);
  out["moe_layer_end_index"] = -1;
}

// ---- Hunyuan

void set_hunyuan(Fields& f, const Json& config, const std::string& file) {
  const ModelConfig c = engine_config_of(config, file);
  f.set("expert_count", c.moe.experts);
  f.set("expert_used_count", c.moe.per_token);
  f.set("expert_shared_count", 1);
  f.set("expert_feed_forward_length", c.moe.ffn);
  f.set("expert_shared_feed_forward_length", c.moe.shared_ffn);
}

void read_hunyuan(const FileKeys& k, Json& out) {
  out["num_experts"] = k.integer("expert_count");
  out["moe_topk"] = k.integer("expert_used_count");
  out["moe_intermediate_size"] = k.integer("expert_feed_forward_length");
  out["num_shared_expert"] = k.integer("expert_shared_count", 1);
}

// ---- Llama 4

constexpr int64_t kChunk = 8192;  // llama.cpp has these numbers, and no keys for them
constexpr double kScale = 0.1;
constexpr int64_t kNoNorms = 128;  // experts of models without norms of q and k

void set_llama4(Fields& f, const Json& config, const std::string& file) {
  const ModelConfig c = engine_config_of(config, file);
  const int64_t step = f.integer("interleave_moe_layer_step", 1);
  if (c.chunk != kChunk) f.refuse("attention_chunk_size", std::to_string(c.chunk), "8192");
  if (c.query_every != kChunk || c.query_beta != kScale)
    f.refuse("attn_temperature_tuning", "another scale of queries",
             "true, with a floor_scale of 8192 and an attn_scale of 0.1");
  if (c.qk_norm != (c.moe.experts != kNoNorms))
    f.refuse("use_qk_norm", c.qk_norm ? "true" : "false",
             "false with 128 experts, and true with other numbers");
  for (int64_t i = 0; i < c.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    if (c.no_rope[at] != ((i + 1) % 4 == 0) || c.local[at] == c.no_rope[at])
      f.refuse("no_rope_layers", "other layers",
               "every fourth layer without rope and chunks, and all others with both");
    if (c.sparse[at] != ((i + 1) % step == 0))
      f.refuse("moe_layers", "other layers", "every interleave_moe_layer_step-th layer");
  }
  f.set("interleave_moe_layer_step", step);
  f.set("expert_count", c.moe.experts);
  f.set("expert_used_count", c.moe.per_token);
  f.set("expert_feed_forward_length", c.moe.ffn);
}

void read_llama4(const FileKeys& k, Json& out) {
  if (k.has("attention.sliding_window") && k.integer("attention.sliding_window") != kChunk)
    k.refuse("attention.sliding_window",
             std::to_string(k.integer("attention.sliding_window")) + "; expected 8192");
  out.erase("sliding_window");
  out["num_local_experts"] = k.integer("expert_count");
  out["num_experts_per_tok"] = k.integer("expert_used_count");
  out["intermediate_size_mlp"] = out["intermediate_size"];
  out["intermediate_size"] = k.integer("expert_feed_forward_length");
  out["interleave_moe_layer_step"] = k.integer("interleave_moe_layer_step");
  out["use_qk_norm"] = k.integer("expert_count") != kNoNorms;
}

// ---- AFMoE

constexpr int64_t kEvery = 4;  // layers with a full view: llama.cpp rotates nothing in these

void set_afmoe(Fields& f, const Json& config, const std::string& file) {
  const ModelConfig c = engine_config_of(config, file);
  if (c.embed_scale == 1) f.refuse("mup_enabled", "false", "true");
  int64_t dense = 0;
  for (int64_t i = 0; i < c.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    if (c.local[at] != ((i + 1) % kEvery != 0))
      f.refuse("layer_types", "other layers",
               "full_attention in every fourth layer, and sliding_attention in all others");
    dense += c.sparse[at] ? 0 : 1;
  }
  f.set("attention.sliding_window", c.window);
  f.set("leading_dense_block_count", dense);
  f.set("expert_count", c.moe.experts);
  f.set("expert_used_count", c.moe.per_token);
  f.set("expert_shared_count", c.moe.shared_ffn / c.moe.ffn);
  f.set("expert_feed_forward_length", c.moe.ffn);
  f.set("expert_gating_func", 2);  // sigmoid
  f.set_real("expert_weights_scale", c.moe.scaling);
  f.set_flag("expert_weights_norm", true);
}

void read_afmoe(const FileKeys& k, Json& out) {
  if (const int64_t gating = k.integer("expert_gating_func", 2); gating != 2)
    k.refuse("expert_gating_func", std::to_string(gating) + "; expected 2, sigmoids");
  if (k.has("expert_weights_norm") && !k.flag("expert_weights_norm"))
    k.refuse("expert_weights_norm", "false; expected true");
  if (const int64_t window = k.integer("attention.sliding_window"); window < 1)
    k.refuse("attention.sliding_window", std::to_string(window) + "; expected a window");
  if (const int64_t every = k.integer("attention.sliding_window_pattern", kEvery); every != kEvery)
    k.refuse("attention.sliding_window_pattern", std::to_string(every) + "; expected 4");
  out["num_dense_layers"] = k.integer("leading_dense_block_count", 0);
  out["num_experts"] = k.integer("expert_count");
  out["num_experts_per_tok"] = k.integer("expert_used_count");
  out["num_shared_experts"] = k.integer("expert_shared_count");
  out["moe_intermediate_size"] = k.integer("expert_feed_forward_length");
  out["route_scale"] = k.has("expert_weights_scale") ? k.real("expert_weights_scale") : 1;
  out["mup_enabled"] = true;
  out["global_attn_every_n_layers"] = kEvery;
}

}  // namespace

void set_expert_keys(Fields& f, const Family& family, const Json& config, const std::string& file) {
  if (family.gguf == "glm4moe" || family.gguf == "dots1")
    set_sigmoid_experts(f, family, config, file);
  if (family.gguf == "dots1") set_dots1(f, config, file);
  if (family.gguf == "ernie4_5-moe") set_ernie(f, config, file);
  if (family.gguf == "hunyuan-moe") set_hunyuan(f, config, file);
  if (family.gguf == "llama4") set_llama4(f, config, file);
  if (family.gguf == "afmoe") set_afmoe(f, config, file);
}

void read_expert_keys(const FileKeys& k, const Family& family, Json& out) {
  if (family.gguf == "glm4moe" || family.gguf == "dots1") read_sigmoid_experts(k, out);
  if (family.gguf == "glm4moe") {
    out["num_nextn_predict_layers"] = 0;
    read_extra_layers(k, out);
  }
  if (family.gguf == "dots1") out["sliding_window"] = nullptr;
  if (family.gguf == "ernie4_5-moe") read_ernie(k, out);
  if (family.gguf == "hunyuan-moe") read_hunyuan(k, out);
  if (family.gguf == "llama4") read_llama4(k, out);
  if (family.gguf == "afmoe") read_afmoe(k, out);
}

bool sets_own_experts(const Family& family) {
  return family.gguf == "glm4moe" || family.gguf == "dots1" || family.gguf == "ernie4_5-moe" ||
         family.gguf == "hunyuan-moe" || family.gguf == "llama4" || family.gguf == "afmoe";
}

}  // namespace tenon::llm::files
