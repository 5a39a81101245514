// SPDX-License-Identifier: Apache-2.0
// Describes the decoder to core/llm/arch.
#include "cli/lm/decoder.hpp"

#include "llm/arch/families.hpp"

namespace tenon::lm {
namespace {

llm::RopeConfig rope_of(const Config& c) {
  using To = llm::RopeConfig::Type;
  const To types[] = {To::plain, To::linear, To::llama3};  // as Rope::Type lists them
  return {.type = types[static_cast<size_t>(c.rope.type)],
          .dims = c.head_dim(),
          .theta = c.rope.theta,
          .factor = c.rope.factor,
          .original_context = c.rope.original_context,
          .low_freq_factor = c.rope.low_freq_factor,
          .high_freq_factor = c.rope.high_freq_factor};
}

llm::ModelConfig config_of(const Config& c) {
  const auto layers = static_cast<size_t>(c.layers);
  return {.architecture = &llm::kLlama,
          .vocab = c.vocab,
          .dim = c.dim,
          .layers = c.layers,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim(),
          .ffn = c.ffn,
          .context = c.context,
          .norm_eps = c.norm_eps,
          .activation = c.activation,
          .tied = c.tied,
          .qkv_bias = c.attention_bias,
          .o_bias = c.attention_bias,
          .mlp_bias = c.mlp_bias,
          .rope = rope_of(c),
          .local = std::vector<bool>(layers, false),
          .sparse = std::vector<bool>(layers, false),
          .dtype = c.dtype};
}

llm::TensorSource tensors_of(const Config& c) {
  llm::TensorSource out;
  for (const WeightSpec& w : weight_specs(c))
    out.types.emplace(w.name, TensorType(w.dtype, w.dims));
  return out;
}

}  // namespace

Decoder::Decoder(const Config& config) : config_(config_of(config)), weights_(tensors_of(config)) {}

llm::StepShape Decoder::shape(const std::vector<int64_t>& dims) const {
  return {.slots = dims[0],
          .capacity = config_.context,
          .batch = dims[0],
          .time = dims[1],
          .compute = config_.dtype,
          .cache = config_.dtype,
          .constants = true};
}

Value Decoder::sequence_logits(Graph& g, Value tokens, bool trainable, bool checkpoint) {
  const std::vector<int64_t> dims = g.type(tokens).dims;
  llm::StepShape s = shape(dims);
  s.whole = true, s.trainable = trainable, s.checkpoint = checkpoint;
  llm::Step step(g, config_, s, weights_, {.tokens = tokens});
  return step.logits(config_.architecture->hidden(step));
}

Value Decoder::next_logits(Graph& g, Value tokens, Value past, Value count) {
  const llm::StepShape s = shape(g.type(tokens).dims);
  llm::Step step(g, config_, s, weights_, {.tokens = tokens, .past = past, .count = count});
  return step.logits(step.wanted_rows(config_.architecture->hidden(step)));
}

}  // namespace tenon::lm
