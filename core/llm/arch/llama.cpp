// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3, Mistral, which adds a window, Ministral, where some layers have it, and Ministral 3,
// which scales queries by their position; Seed-OSS, which differs by its biases; InternLM 3, and
// Helium, which rotates neighbours; CWM, where every fourth layer has no window; IQuest-Coder.
#include <algorithm>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_llama(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
}

void read_mistral(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  c.rope = read_rope(r, c.head_dim, c.context);
  read_window(r, c, 4096);
}

void read_ministral(ConfigReader& r, ModelConfig& c) {
  read_mistral(r, c);
  if (!r.has("layer_types")) return;
  read_layer_types(r, c, nullptr);
  if (c.window == 0 && std::ranges::find(c.local, true) != c.local.end())
    r.refuse("sliding_window", "a size, as layer_types has 'sliding_attention'");
}

void read_seed_oss(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.head_dim = 128});
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = r.flag("attention_bias", true);
  c.o_bias = r.flag("attention_out_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
}

// transformers runs it as Llama, where qkv_bias is attention_bias and bias is mlp_bias.
void read_internlm3(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = 128});
  c.rope = read_rope(r, c.head_dim, c.context);
  const auto flag = [&](const char* old_key, const char* key) {
    const bool value = r.flag(key, r.flag(old_key, false));
    if (r.has(old_key) && r.flag(old_key) != value)
      r.refuse(old_key, std::string("the value of '") + key + "'");
    return value;
  };
  c.qkv_bias = c.o_bias = flag("qkv_bias", "attention_bias");
  c.mlp_bias = flag("bias", "mlp_bias");
  if (c.qkv_bias != c.mlp_bias)
    r.refuse(r.has("bias") ? "bias" : "mlp_bias", "that of queries, keys and values");
}

void read_helium(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-8, .head_dim = 128});
  if (c.heads * c.head_dim != c.dim) r.refuse("head_dim", "hidden_size / num_attention_heads");
  c.rope = read_rope(r, c.head_dim, c.context, 1e5);
  c.rope_interleaved = true;
  c.qkv_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
}

// transformers runs it as Llama.
void read_iquestcoder(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = r.is_null("head_dim") ? 0 : 128});
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  r.expect_nothing("clip_qkv");
  r.expect("use_sliding_window", false);
  r.ignore({"sliding_window", "max_window_layers"});
}

void read_cwm(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = r.is_null("head_dim") ? 0 : 128});
  for (const char* const key : {"rope_parameters", "rope_scaling"})
    if (const auto rope = r.object(key); rope && !rope->has("rope_type") && !rope->has("type"))
      r.refuse(key, "an object with rope_type, or none");
  if (r.has("rope_parameters") || r.has("rope_scaling")) {
    c.rope = read_rope(r, c.head_dim, c.context, 1e6);
  } else {
    // transformers then has these numbers, whatever stands beside them.
    if (r.positive("rope_theta", 1e6) != 1e6)
      r.refuse("rope_theta", "1000000, or rope_parameters beside it");
    c.rope = {.type = RopeConfig::Type::llama3,
              .dims = c.head_dim,
              .theta = 1e6,
              .factor = 16,
              .original_context = 8192};
    check_rope(c.rope, r.where());
  }
  r.expect("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  read_layer_types(r, c, [](int64_t layer) { return layer % 4 != 0; });
  read_window_of_types(r, c, 8192);
  if (c.end_tokens.empty()) c.end_tokens = {128001, 128008, 128009};
}

void read_ministral3(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .head_dim = 128});
  // transformers would scale the embedding of a file that says nothing.
  if (!r.has("rope_parameters") && !r.has("rope_scaling"))
    r.refuse("rope_parameters", "an object, also for rope_type 'default'");
  c.rope = read_rope(r, c.head_dim, c.context, 1e6);
  read_window(r, c, 0);
}

}  // namespace

const Architecture kLlama = {"llama",        "LlamaForCausalLM", read_llama,
                             decoder_hidden, decoder_norm,       decoder_head};
const Architecture kSeedOss = {"seed_oss",     "SeedOssForCausalLM", read_seed_oss,
                               decoder_hidden, decoder_norm,         decoder_head};
const Architecture kMistral = {"mistral",      "MistralForCausalLM", read_mistral,
                               decoder_hidden, decoder_norm,         decoder_head};
const Architecture kMinistral = {"ministral",    "MinistralForCausalLM", read_ministral,
                                 decoder_hidden, decoder_norm,           decoder_head};
const Architecture kInternLm3 = {"internlm3",       "InternLM3ForCausalLM", read_internlm3,
                                 decoder_hidden,    decoder_norm,           decoder_head,
                                 "LlamaForCausalLM"};
const Architecture kHelium = {"helium",       "HeliumForCausalLM", read_helium,
                              decoder_hidden, decoder_norm,        decoder_head};
const Architecture kIQuestCoder = {
    "iquestcoder", "IQuestCoderForCausalLM", read_iquestcoder, decoder_hidden, decoder_norm,
    decoder_head,  "LlamaForCausalLM"};
const Architecture kCwm = {"cwm",          "CwmForCausalLM", read_cwm,
                           decoder_hidden, decoder_norm,     decoder_head};
const Architecture kMinistral3 = {"ministral3",    "Ministral3ForCausalLM",
                                  read_ministral3, decoder_hidden,
                                  decoder_norm,    decoder_head};

}  // namespace tenon::llm
