// SPDX-License-Identifier: Apache-2.0
// What Gemma 3n and Gemma 4 share: inputs of each layer, and layers at the end that read the keys and
// values of earlier ones.
#pragma once

#include "llm/arch/step.hpp"

namespace tenon::llm {

// The keys that both have: those of a decoder, of windows, and of c.per_layer.
struct GemmaDefaults {
  int64_t period = 6;  // one layer of so many has no window
  int64_t shared_keys = 0;
  double logit_softcap = 0;
};
void read_gemma_parts(ConfigReader& r, ModelConfig& c, const GemmaDefaults& defaults);
// Throws if layers with shared keys lack an earlier one of their kind.
void check_shared_keys(const ConfigReader& r, const ModelConfig& c);
// The layer whose keys and values a layer reads; -1: its own.
int64_t layer_of_keys(const ModelConfig& c, int64_t layer);

// Attention with norms of q, k and v.
Value gemma_attention(Step& step, Value normed, int64_t layer, const std::string& name,
                      Value residual);
// Makes the inputs of all layers, of the tokens and their embedding x, for layer_input().
void make_layer_inputs(Step& step, Value x);
// What a layer adds because of its input: x chooses from it.
Value layer_input(Step& step, Value x, int64_t layer, const std::string& name);

}  // namespace tenon::llm
