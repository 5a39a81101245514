// SPDX-License-Identifier: Apache-2.0
// Forms of attention, shared by the case files of the family.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cases/families.hpp"

namespace tenon::conform {

// far, lowest: every third query adds a number far below zero (-1e9, -3e38) to all its scores, the
// others to those of their first keys. shift: each query adds a number of its own to all its
// scores. later: the first batch sees nothing, the others all keys.
enum class AttentionMask : uint8_t {
  none,
  flags,
  numbers,
  numbers_inf,
  keys,
  row,
  key_numbers,
  far,
  lowest,
  shift,
  later
};

struct AttentionForm {
  std::string id;
  const char* sentence;
  using Mask = AttentionMask;
  int64_t batch = 2, q_heads = 2, k_heads = 2, q_len = 5, k_len = 7, dim = 6, v_dim = 6;
  Mask mask = Mask::none;
  bool causal = false;
  int64_t offset = 0, left = -1, right = -1;
  double scale = TENON_UNSET, softcap = 0;
  bool kv_len = false, past_len = false, bshd = false;
  bool dead_rows = false;  // rows without a key: lse is -inf
  int64_t nan_douts = 0;   // so many first queries have no key, and a dout of NaN and infinities
  bool nan_keys = false;   // k and v of the first batch hold NaN and infinities
  bool dmask = true;       // the gradient of a float mask is wanted
  int64_t block = 0;       // not 0: k and v are pools of blocks of so many keys
  bool q8_0 = false;       // the dtype of k and v
  // Queries whose scores are far from zero are zero themselves: what is left of their scores beside
  // the mask would be lost in rounding, and differently in each dtype.
  bool is_far() const { return mask == Mask::far || mask == Mask::lowest || mask == Mask::shift; }
  bool is_far(int64_t query, int64_t key) const {
    return mask == Mask::shift || query % 3 == 0 || key * 3 < k_len * 2;
  }
  bool is_all_far(int64_t query) const {
    return is_far(query, causal ? std::min(query, k_len - 1) : k_len - 1);
  }
  DTypes dtypes() const {  // -1e9 is infinite in f16
    return mask == Mask::far || mask == Mask::lowest ? DTypes{f32, bf16, f64} : kFloats;
  }
};

// A case of attention; one of attention_backward.
void attention_forward_row(Suite& s, const AttentionForm& f);
void attention_backward_row(Suite& s, const AttentionForm& f);
// Those with numbers of their own; those whose keys are in blocks, and of 8-bit integers.
void attention_known_rows(Suite& s);
void attention_blocks_rows(Suite& s);
void attention_q8_0_rows(Suite& s);

}  // namespace tenon::conform
