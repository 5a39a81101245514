// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3, Mistral, which adds a window, and Ministral 3, which scales queries by their
// position; Seed-OSS, which differs by its biases.
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

void read_seed_oss(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.head_dim = 128});
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = r.flag("attention_bias", true);
  c.o_bias = r.flag("attention_out_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
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
const Architecture kMinistral3 = {"ministral3",    "Ministral3ForCausalLM",
                                  read_ministral3, decoder_hidden,
                                  decoder_norm,    decoder_head};

}  // namespace tenon::llm
