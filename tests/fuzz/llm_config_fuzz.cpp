// SPDX-License-Identifier: Apache-2.0
// Any bytes as the config.json of a language model whose folder has the weights of a small Llama:
// refused with an Error, or the graph of what was read can be built.
#include "check.hpp"
#include "llm/arch/step.hpp"

using namespace tenon;
using namespace tenon::fuzz;

namespace {

llm::TensorSource small_llama() {
  llm::TensorSource t;
  const auto add = [&](const std::string& name, std::vector<int64_t> dims) {
    t.types.emplace("model." + name + ".weight", TensorType(f32, std::move(dims)));
  };
  add("embed_tokens", {96, 64});
  for (const char* layer : {"layers.0.", "layers.1."}) {
    const std::string name = layer;
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(name + norm, {64});
    for (const char* norm : {"q_norm", "k_norm"}) add(name + "self_attn." + norm, {16});
    for (const char* full : {"q_proj", "o_proj"}) add(name + "self_attn." + full, {64, 64});
    for (const char* less : {"k_proj", "v_proj"}) add(name + "self_attn." + less, {32, 64});
    for (const char* up : {"gate_proj", "up_proj"}) add(name + "mlp." + up, {112, 64});
    add(name + "mlp.down_proj", {64, 112});
  }
  add("norm", {64});
  t.types.emplace("lm_head.weight", TensorType(f32, {96, 64}));
  return t;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const llm::TensorSource tensors = small_llama();
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const llm::ModelConfig config = llm::parse_config(text, "config.json");
    llm::Weights weights(tensors);
    llm::step_graph(config, {.slots = 2, .capacity = 4, .batch = 1, .time = 3}, weights);
  } catch (const Error& e) {
    must(e.code() != TENON_INTERNAL, e.what());
  }
  return 0;
}
