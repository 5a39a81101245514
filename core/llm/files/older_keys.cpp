// SPDX-License-Identifier: Apache-2.0
// Keys of Falcon, MPT and BLOOM, both ways. The engine reads config.json; what it found becomes
// keys.
#include "llm/files/older_keys.hpp"

#include <cmath>

#include "llm/arch/config.hpp"

namespace tenon::llm::files {
namespace {

void set_common(Fields& f, const ModelConfig& c) {
  f.set("context_length", c.context);
  f.set("embedding_length", c.dim);
  f.set("block_count", c.layers);
  f.set("feed_forward_length", c.ffn);
  f.set("attention.head_count", c.heads);
  f.set("attention.head_count_kv", c.kv_heads);
  f.set("vocab_size", c.vocab);
  f.set_real("attention.layer_norm_epsilon", c.norm_eps);
}

void set_falcon(Fields& f, const ModelConfig& c) {
  if (!c.alibi.slopes.empty()) f.refuse("alibi", "true", "false");
  if (!c.parallel) f.refuse("parallel_attn", "false", "true");
  f.expect("bias", false);
  if (f.text("activation", "gelu") != "gelu")
    f.refuse("activation", f.text("activation", "gelu"), "gelu");
  if (c.rope.type != llm::RopeConfig::Type::plain)
    f.refuse("rope_parameters", "a scaled rope", "rope_type 'default'");
  f.set("rope.dimension_count", c.rope.dims);
  f.set_real("rope.freq_base", c.rope.theta);
  f.set_text("tensor_data_layout", "jploski");  // of attn_qkv: q, k and v apart
}

void set_mpt(Fields& f, const ModelConfig& c, const Json& config, const std::string& file) {
  if (c.attention_scale > 0) f.refuse("softmax_scale", std::to_string(c.attention_scale), "null");
  const auto attention = field<Json>(config, "attn_config", file);
  const int64_t most =
      attention ? field<int64_t>(*attention, "alibi_bias_max", file).value_or(8) : 8;
  f.set_real("attention.max_alibi_bias", static_cast<double>(most));
  if (c.clip_qkv > 0) f.set_real("attention.clamp_kqv", c.clip_qkv);
}

void read_falcon(const FileKeys& k, const Family& family, Json& out) {
  const int64_t heads = k.integer("attention.head_count"),
                keys = k.integer("attention.head_count_kv", heads);
  const bool grouped = keys > 1 || family.two_norms;
  out["hidden_size"] = k.integer("embedding_length");
  out["num_hidden_layers"] = k.integer("block_count");
  out["num_attention_heads"] = heads;
  out["num_kv_heads"] = keys;
  out["ffn_hidden_size"] = k.integer("feed_forward_length");
  out["max_position_embeddings"] = k.integer("context_length");
  out["layer_norm_epsilon"] = k.real("attention.layer_norm_epsilon");
  out["rope_theta"] = k.has("rope.freq_base") ? k.real("rope.freq_base") : 10000.0;
  out["activation"] = "gelu";
  out["new_decoder_architecture"] = grouped;
  out["multi_query"] = true;
  out["parallel_attn"] = true;
  out["num_ln_in_parallel_attn"] = family.two_norms ? 2 : 1;
  out["alibi"] = false;
  out["bias"] = false;
}

void read_mpt(const FileKeys& k, Json& out) {
  const int64_t heads = k.integer("attention.head_count");
  if (const int64_t keys = k.integer("attention.head_count_kv", heads); keys != heads)
    k.refuse("attention.head_count_kv",
             std::to_string(keys) + "; expected the " + std::to_string(heads) + " of head_count");
  Json attention{{"alibi", true}};
  const double most = k.has("attention.max_alibi_bias") ? k.real("attention.max_alibi_bias") : 0;
  if (most < 1 || most > 64 || most != std::floor(most))
    k.refuse("attention.max_alibi_bias",
             std::to_string(most) + "; expected a whole number, 1 to 64");
  attention["alibi_bias_max"] = static_cast<int64_t>(most);
  if (k.has("attention.clamp_kqv") && k.real("attention.clamp_kqv") > 0)
    attention["clip_qkv"] = k.real("attention.clamp_kqv");
  out["attn_config"] = attention;
  out["d_model"] = k.integer("embedding_length");
  out["n_layers"] = k.integer("block_count");
  out["n_heads"] = heads;
  out["max_seq_len"] = k.integer("context_length");
  out["layer_norm_epsilon"] = k.real("attention.layer_norm_epsilon");
}

void read_bloom(const FileKeys& k, Json& out) {
  out["hidden_size"] = k.integer("embedding_length");
  out["n_layer"] = k.integer("block_count");
  out["n_head"] = k.integer("attention.head_count");
  out["seq_length"] = k.integer("context_length");
  out["layer_norm_epsilon"] = k.real("attention.layer_norm_epsilon");
}

}  // namespace

bool set_older_keys(Fields& f, const Family& family, const Json& config, const std::string& file) {
  const std::string_view gguf = family.gguf;
  if (gguf != "falcon" && gguf != "mpt" && gguf != "bloom") return false;
  const ModelConfig c =
      parse_config(config.dump(-1, ' ', false, Json::error_handler_t::replace), file);
  set_common(f, c);
  if (gguf == "falcon") set_falcon(f, c);
  if (gguf == "mpt") set_mpt(f, c, config, file);
  return true;
}

bool read_older_keys(const FileKeys& k, const Family& family, Json& out) {
  if (family.gguf == "falcon")
    read_falcon(k, family, out);
  else if (family.gguf == "mpt")
    read_mpt(k, out);
  else if (family.gguf == "bloom")
    read_bloom(k, out);
  else
    return false;
  return true;
}

}  // namespace tenon::llm::files
