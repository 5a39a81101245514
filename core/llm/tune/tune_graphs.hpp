// SPDX-License-Identifier: Apache-2.0
// The graphs of a fine-tuning.
#pragma once

#include "llm/arch/step.hpp"
#include "llm/tune/tuned_adapter.hpp"

namespace tenon::llm {

// Labels of tokens that are not learned.
constexpr int64_t kIgnored = -100;

// Inputs: tokens i64 [batch, time]; labels i64 [batch, time], the token behind each, or kIgnored; and
// in trainings `scale` f32 [], and rng as Step says. Output: loss f32 [], the sum over the labels.
// Trainings add the gradients of scale * loss to those of the runs before.
Graph tune_graph(const ModelConfig& config, const StepShape& shape, Weights& weights, bool trains);

// A step of AdamW with the mean of these gradients. Input: lr f32 []. Output: norm f32 [].
Graph tune_apply_graph(const TunedAdapter& adapter, Optimizer optimizer);

}  // namespace tenon::llm
