// SPDX-License-Identifier: Apache-2.0
// Configurations of models, read from text.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "llm/arch/config.hpp"
#include "llm/arch/config_reader.hpp"

namespace tenon::llm {

inline Json llama() {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 128256},
          {"hidden_size", 2048},
          {"intermediate_size", 8192},
          {"num_hidden_layers", 16},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"max_position_embeddings", 131072}};
}

inline Json with(Json j, const Json& more) {
  j.update(more);
  return j;
}

inline ModelConfig parse(const Json& j) { return parse_config(j.dump(), "config.json"); }

// The message of the Error that the config causes.
inline std::string refusal(const Json& j, tenon_code code) {
  try {
    parse(j);
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  return "accepted";
}

}  // namespace tenon::llm
