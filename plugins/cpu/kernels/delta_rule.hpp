// SPDX-License-Identifier: Apache-2.0
// The tokens of one sequence through gated_delta_rule, for some columns of the state, dispatched by
// instruction set. Columns are independent of each other.
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

int64_t delta_columns();  // of a tile of the state: two vectors

// A value head of a sequence. Rows of consecutive tokens are `..._step` elements apart.
struct DeltaHead {
  tenon_dtype dtype;  // of v, beta, o and dout: f32 or a half
  int64_t tokens, keys, values;
  bool by_key;  // a decay for each row of the state
  float scale;
  const float *q, *k, *g;  // floats; q without the scale
  const void *v, *beta;
  int64_t key_step, g_step, value_step, beta_step;
  const float* state;  // [K, V]; nullptr: zeros
};

// Floats of the work areas.
int64_t delta_forward_area(int64_t keys);
int64_t delta_backward_area(int64_t keys, int64_t tokens);

// Columns from `first` on, delta_columns() of them or those that exist. state_out: nullptr or [K, V].
void delta_forward(const DeltaHead& head, int64_t first, float* area, void* o, float* state_out);

// The same in chunks of tokens, for heads with one decay (delta_rule_chunk_forward.cpp): `count` tiles of
// delta_columns() columns from tile `first` on.
int64_t delta_chunks_area(int64_t keys, int64_t count);
void delta_chunks(const DeltaHead& head, int64_t first, int64_t count, float* area, void* o,
                  float* state_out);

// Gradients of a head. dq, dk [T, K] and dbeta [T] and dg [T] or [T, K]: the sums over the columns
// are added, rows of consecutive tokens behind each other. dstate: nullptr or [K, V].
struct DeltaGradients {
  const void* dout = nullptr;         // like v
  const float* dstate_out = nullptr;  // nullptr: zeros
  float *dq = nullptr, *dk = nullptr, *dg = nullptr, *dbeta = nullptr, *dstate = nullptr;
  void* dv = nullptr;  // like v; nullptr: not wanted
};
void delta_backward(const DeltaHead& head, int64_t first, float* area, const DeltaGradients& out);

// All columns of a head in chunks of tokens, for heads with one decay (delta_rule_chunk_backward.cpp).
// Returns false, and has written nothing, if a number is not finite or a decay is above 1. The area is
// that for `longest` tokens.
int64_t delta_chunks_backward_area(int64_t keys, int64_t values, int64_t tokens);
bool delta_chunks_backward(const DeltaHead& head, int64_t longest, float* area,
                           const DeltaGradients& out);

}  // namespace tenon::cpu
