// SPDX-License-Identifier: Apache-2.0
// The choice of experts for one token, dispatched by instruction set.
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

enum class GateScore : uint8_t { sigmoid, softmax, identity };

struct Gate {
  tenon_dtype dtype;  // of logits: f32 or a half
  int64_t experts, groups, kept_groups, chosen;
  float scaling;
  GateScore score;
  bool by_max, normalize;

  int64_t size() const { return experts / groups; }
  // Floats of a work area: scores, ranks, and the ranks of kept groups, each with a vector of room.
  static constexpr int64_t kRoom = 16;
  int64_t area() const { return 3 * (experts + kRoom) + 2 * groups; }
};
// logits: of the token. bias: nullptr = none. Writes `chosen` experts and their weights.
void gate_token(const Gate& g, const void* logits, const float* bias, float* area, int32_t* index,
                float* weight);

}  // namespace tenon::cpu
