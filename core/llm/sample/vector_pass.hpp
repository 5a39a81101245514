// SPDX-License-Identifier: Apache-2.0
// Passes over a row of logits. They give the same bits on each processor.
#pragma once

#include <cstddef>

namespace tenon::llm {

// The weight of a logit x is e^((x - most) * scale), with a relative error below 2e-7, and 0 where the
// power is below -87. most: at least the largest x, and finite.
void weights(const float* x, size_t n, float most, float scale, float* out);

inline constexpr size_t kMassBlock = 1024;
constexpr size_t mass_blocks(size_t n) { return (n + kMassBlock - 1) / kMassBlock; }
// The sum of the weights of each kMassBlock logits, in f64.
void block_masses(const float* x, size_t n, float most, float scale, double* masses);

// Of each kMaximaBlock logits, number i is in group i % kLanes.
inline constexpr size_t kLanes = 8, kMaximaBlock = 512;
constexpr size_t maxima_groups(size_t n) { return (n + kMaximaBlock - 1) / kMaximaBlock * kLanes; }
// The largest logit of each group. False if there is a NaN or +infinity: then they are undefined.
bool group_maxima(const float* x, size_t n, float* maxima);

// Makes logits below `least` -infinity.
void exclude_below(float* x, size_t n, float least);

}  // namespace tenon::llm
