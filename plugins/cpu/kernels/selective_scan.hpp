// SPDX-License-Identifier: Apache-2.0
// A vector of channels through all steps of selective_scan, dispatched by instruction set.
#pragma once

#include <algorithm>
#include <cstdint>

#include "blocks.hpp"
#include "tenon/types.h"

namespace tenon::cpu {

int64_t scan_lanes();  // channels of a block

struct Scan {
  tenon_dtype dtype;  // of u, dt, b, c, z: f32 or a half
  int64_t batch, channels, steps, states, groups;
  bool bdl, softplus;

  int64_t each() const { return groups ? channels / groups : 0; }     // channels of a group
  int64_t blocks() const { return divide_up(each(), scan_lanes()); }  // of a group
};

// Some channels of one sequence, all of one group.
struct ScanBlock {
  int64_t sequence, group, first, count;
};
// Block k of a group.
inline ScanBlock scan_block_at(const Scan& s, int64_t sequence, int64_t group, int64_t k) {
  const int64_t lanes = scan_lanes(), begin = k * lanes;
  return {sequence, group, group * s.each() + begin, std::min(lanes, s.each() - begin)};
}

// Operands; absent ones are nullptr. b and c: floats [B, G, N, L].
struct ScanOperands {
  const void *u, *dt, *z;
  const float *a, *b, *c, *d, *dt_bias, *h0;
};

// Floats of the work area of a block, forward and backward.
int64_t scan_forward_area(const Scan& s);
int64_t scan_backward_area(const Scan& s);

// h_last may be nullptr.
void scan_forward(const Scan& s, const ScanOperands& in, const ScanBlock& block, float* area,
                  void* y, float* h_last);

// Gradients; those that are not wanted are nullptr. da [B, D, N], dd and ddt_bias [B, D]: of each
// sequence. db and dc [N, L]: the sums over the block's channels are added.
struct ScanGradients {
  const void* dy = nullptr;
  const float* dh_last = nullptr;
  void *du = nullptr, *ddt = nullptr, *dz = nullptr;
  float *da = nullptr, *db = nullptr, *dc = nullptr, *dd = nullptr, *ddt_bias = nullptr;
  float* dh0 = nullptr;
};
void scan_backward(const Scan& s, const ScanOperands& in, const ScanBlock& block, float* area,
                   const ScanGradients& out);

}  // namespace tenon::cpu
