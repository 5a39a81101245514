// SPDX-License-Identifier: Apache-2.0
// Low-rank changes of products (LoRA; Hu and others: arXiv 2106.09685): y += scale * (x Aᵀ) Bᵀ,
// with A [rank, in] and B [out, rank].
#pragma once

#include <cstdint>
#include <string>

#include "tenon/tenon.hpp"

namespace tenon::llm {

// rank 0: the product has no change.
struct LowRank {
  int64_t rank = 0;
  double scale = 1;
};

// Which products of a graph have a change.
class LowRankPlan {
 public:
  virtual ~LowRankPlan() = default;
  // Asked for each product while a graph is built. module: its name in the folder, such as
  // "model.layers.0.self_attn.q_proj". With experts > 0 the product has so many matrices: '#'
  // stands for their number in `module`, and both weights have an axis of experts in front.
  virtual LowRank of(const std::string& module, int64_t in, int64_t out, int64_t experts) = 0;

  bool trainable = false;
  double dropout = 0;  // of x in front of A
};

// The names of the weights of a graph, which are those of PEFT's files.
inline std::string lora_a_name(const std::string& module) {
  return "base_model.model." + module + ".lora_A.weight";
}
inline std::string lora_b_name(const std::string& module) {
  return "base_model.model." + module + ".lora_B.weight";
}

}  // namespace tenon::llm
