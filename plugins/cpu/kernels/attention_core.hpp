// SPDX-License-Identifier: Apache-2.0
// Vector steps of attention on one tile, dispatched by instruction set. A tile holds up to `width`
// query rows, one per lane. So scores, weights and sums over keys are vertical operations, and k
// and v are read in their own layout. Blocks are [n][width] (but see by_row) in the accumulation
// type (float or double, given by `sum`).
#pragma once

#include <cstdint>

#include "tenon/types.h"

namespace tenon::cpu {

// Keys per step of the inner loop. The scores of a tile stay in the first-level cache.
inline constexpr int64_t kKeyBlock = 96;

// Rows per tile: tile_products reads them as one panel.
int64_t attention_width(tenon_dtype sum);

// to[c * to_stride + r] = scale * from[r * from_stride + c].
void attention_transpose(tenon_dtype sum, const void* from, int64_t from_stride, int64_t rows,
                         int64_t cols, double scale, void* to, int64_t to_stride);

// Writes `rows` rows of `cols` numbers, `cols` apart. The rows are blocks of q8_0 and `step` bytes
// apart.
void attention_decode(const char* from, int64_t step, int64_t rows, int64_t cols, float* to);

// The parameters that turn products into scores, for keys [key, key + keys).
struct AttentionScores {
  tenon_dtype sum;
  int64_t width, lanes;  // row length of blocks; number of lanes in use
  int64_t key, keys;
  double softcap;         // 0 = off
  const void* added;      // block or nullptr: added to the scores
  const uint8_t* attend;  // block or nullptr: 0 = not allowed
  const int64_t* first;   // per lane: keys [first, last) are allowed
  const int64_t* last;
  bool edges;  // some lane excludes some of these keys
  // For attention_weights only: scores, added and attend are [lanes][kKeyBlock]. With few lanes,
  // vectors run along the keys.
  bool by_row = false;
};

// Applies softcap, mask and limits to `scores` (-inf where not allowed). Then replaces them by the
// weights e^(s - m), where m is the running maximum. Rescales the running sum l. `correction`
// receives the factor for the weighted sum so far. The order of the sums does not depend on the lane,
// on by_row, nor on keys that a lane does not attend to, if blocks start at the same keys.
void attention_weights(const AttentionScores& s, void* scores, void* m, void* l, void* correction);

// The result of a tile for some of its keys: maxima m [width], sums of weights l [width], and sums
// of weighted rows of v, o [v_dim][width].
struct AttentionSums {
  tenon_dtype sum;
  int64_t width;
  void *m, *l, *o;
};
// o = o * correction + rows, in the order of tile_products with scale_add; rows: [lanes][v_dim].
void attention_add_rows(const AttentionSums& to, int64_t lanes, int64_t v_dim, const void* rows,
                        const void* correction);
// Adds the result for further keys to `to`. Lanes without keys in `from` stay as they are. Reads and
// writes whole vectors of lanes.
void attention_merge(const AttentionSums& to, const AttentionSums& from, int64_t lanes,
                     int64_t v_dim);

// to[lane] = sum over c of x[c][lane] * y[c][lane], in the order of tile_products. So in a row with
// a single weight of 1, delta equals dout·v bit for bit, and the slopes are exactly 0.
void attention_dots(tenon_dtype sum, int64_t width, int64_t cols, const void* x, const void* y,
                    void* to);

// Per lane: the weights are factor * e^(s - shift); shift is -inf in a row without keys. delta is
// dout·o of the row.
struct AttentionRowFacts {
  const void *shift, *factor, *delta;
};

// Replaces `scores` by the weights (zero where not allowed), and `slopes`, which holds dout·v, by
// weights * (slopes - delta) * (1 - (capped / softcap)^2). `added_slopes`, if not null, receives
// the slopes without the softcap factor.
void attention_slopes(const AttentionScores& s, void* scores, void* slopes,
                      const AttentionRowFacts& rows, void* added_slopes);

}  // namespace tenon::cpu
