// SPDX-License-Identifier: Apache-2.0
// The vector steps of attention on one tile, dispatched by instruction set. A tile holds up to
// `width` query rows side by side, a row a lane: scores, weights and sums over keys are then
// vertical, and k and v are read as they lie. Blocks are [n][width] in the accumulation type (float
// or double, told by `sum`).
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

// Rows of a tile: what tile_products takes as one panel.
int64_t attention_width(tenon_dtype sum);

// to[c * to_stride + r] = scale * from[r * from_stride + c].
void attention_transpose(tenon_dtype sum, const void* from, int64_t from_stride, int64_t rows,
                         int64_t cols, double scale, void* to, int64_t to_stride);

// What turns products into scores, for keys [key, key + keys).
struct AttentionScores {
  tenon_dtype sum;
  int64_t width, lanes;  // of the blocks; lanes in use
  int64_t key, keys;
  double softcap;         // 0 = off
  const void* added;      // block or nullptr: added to the scores
  const uint8_t* attend;  // block or nullptr: 0 = not allowed
  const int64_t* first;   // per lane: the keys [first, last) are allowed
  const int64_t* last;
  bool edges;  // some lane does not allow some of these keys
};

// scores becomes softcap, mask and edges applied (-inf where not allowed), then weights e^(s - m)
// for the running maximum m, whose update scales the running sum l; correction is what the weighted
// sum so far is to be multiplied by.
void attention_weights(const AttentionScores& s, void* scores, void* m, void* l, void* correction);

// to[lane] = sum over c of x[c][lane] * y[c][lane], in the order of tile_products. In a row whose
// only weight is 1, delta thus equals dout·v to the bit, and the slopes are exactly 0.
void attention_dots(tenon_dtype sum, int64_t width, int64_t cols, const void* x, const void* y,
                    void* to);

// What the gradient knows of each lane's row: the weights are factor * e^(s - shift), where shift
// is -inf in a row without keys; delta is the row's dout·o.
struct AttentionRowFacts {
  const void *shift, *factor, *delta;
};

// scores becomes the weights, zero where not allowed; slopes, which holds dout·v, becomes
// weights * (slopes - delta) * (1 - (capped / softcap)^2). added_slopes, if given, gets the same
// without the factor of the softcap.
void attention_slopes(const AttentionScores& s, void* scores, void* slopes,
                      const AttentionRowFacts& rows, void* added_slopes);

}  // namespace tenon::cpu
