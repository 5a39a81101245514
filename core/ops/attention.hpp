// SPDX-License-Identifier: Apache-2.0
// Shared by attention and attention_backward: sizes, checks, scores, and the rules that they have in
// common. Internally, everything is [B, heads, S, D]. The Hq query heads are folded into rows of
// their Hk key heads, so k and v are never repeated. Op: op::attention or op::attention_backward.
#pragma once

#include <string>

#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core::attending {

struct Sizes {
  int64_t batch, q_heads, k_heads, q_len, k_len, dim, v_dim;
  Shape scores() const { return {batch, q_heads, q_len, k_len}; }
  // The rows of all query heads of a key head, one after another.
  Shape folded(int64_t last) const {
    return {batch, k_heads, k_heads == 0 ? 0 : q_heads / k_heads * q_len, last};
  }
};

// Converts [B, heads, S, last] to the layout.
Shape laid_out(const std::string& layout, int64_t batch, int64_t heads, int64_t len, int64_t last);
Value swap_layout(Builder& b, const std::string& layout, Value x);

// Checks the options that decode_attention has, too.
void check_scores(const Infer& i, double scale, double softcap, int64_t left_window);
// Checks options and operands.
template <class Op>
Sizes check_all(const Infer& i, const Op& n);

struct Scores {
  Sizes sizes;
  double scale;
  Value q, k, v;  // folded, in the accumulation dtype; k and v are 0 beyond kv_len
  Value capped;   // [B,Hq,Sq,Sk] after scale and softcap
  Value masked;   // and with the mask added, -inf where not allowed
  Value allowed;  // bool, broadcastable to the scores; absent: all are
  Value e;        // e^(masked - maximum of the row): 0 where not allowed
  Value sum;      // of e: [B,Hq,Sq,1]; 0 in a row without keys
};

template <class Op>
Scores scores_of(Builder& b, const Op& n);
// Fills in e and sum. Returns the maximum of each row, and the lowest finite number for a row
// without keys: e is 0 there, not NaN.
Value weigh(Builder& b, Scores& r);
// The sum of the weights is at least 1 in a row with keys, or NaN.
Value has_no_key(Builder& b, Value sum);

// Twice the number of multiplied pairs of query and key, over all batches and heads, after causal
// mask and windows.
template <class Op>
double pair_flops(const Cost& c, const Op& n);
// The batch joins that of the op. A mask keeps its shape where it is the same for all.
template <class Op>
bool attention_batch(Batch& v, const Op& n);
// Keys that are padding get no weight: by kv_len.
template <class Op>
bool attend_to_counted(Padded& p, const Op& n);

// ---- blocks of keys

// Of attention only: its gradient reads keys one after another.
template <class Op>
Value table_of(const Op& n) {
  if constexpr (requires { n.block_table; }) return n.block_table;
  return {};
}
// The shape of a pool of keys or values [blocks, ..] in the order of a table [B, blocks].
Shape contiguous(const std::string& layout, const Shape& pool, const Shape& table);

}  // namespace tenon::core::attending
