// SPDX-License-Identifier: Apache-2.0
// SmolLM3: Llama with layers that do not rotate queries and keys.
#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.tied = true});
  c.rope = read_rope(r, c.head_dim, c.context, 2e6);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  const int64_t interval = r.size("no_rope_layer_interval", 4);
  std::vector<int64_t> rotates = r.integers("no_rope_layers");  // 1 where a layer has rope
  if (rotates.empty())
    for (int64_t i = 0; i < c.layers; ++i) rotates.push_back((i + 1) % interval != 0);
  if (static_cast<int64_t>(rotates.size()) < c.layers)
    r.refuse("no_rope_layers", "one entry for each of the " + std::to_string(c.layers) + " layers");
  for (int64_t i = 0; i < c.layers; ++i) c.no_rope.push_back(rotates[static_cast<size_t>(i)] == 0);
  if (!r.flag("use_sliding_window", false) || !r.has("sliding_window")) {
    r.ignore({"sliding_window", "layer_types"});
    return;
  }
  c.window = r.size("sliding_window", {}, int64_t{1} << 30);
  if (r.has("layer_types"))
    read_layer_types(r, c, nullptr);
  else
    c.local = c.no_rope;
}

}  // namespace

const Architecture kSmolLm3 = {"smollm3",      "SmolLM3ForCausalLM", read,
                               decoder_hidden, decoder_norm,         decoder_head};

}  // namespace tenon::llm
