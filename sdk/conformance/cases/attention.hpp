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

// decode_attention.
struct DecodeForm {
  std::string id{};
  const char* sentence = "";
  int64_t heads = 4, k_heads = 2, dim = 8, v_dim = 8;
  int64_t keys = 7;                 // that a sequence has room for
  std::vector<int64_t> past{4, 0};  // one number for each entry
  std::vector<bool> without_row{};  // entries that append nothing; absent: none
  bool rope = false;
  int64_t n_rot = 0;
  bool interleaved = false;
  int64_t block = 0;  // keys of a block of a pool; 0: without blocks
  int64_t left = -1;
  double softcap = 0, scale = TENON_UNSET;
  bool narrow = false;    // indices are i32, those of blocks i64; else the other way round
  bool packed = false;    // q, k and v are parts of one value
  bool nan_rest = false;  // rows that are not read, and those that are replaced, hold NaN
  DTypes dtypes = kFloats;

  int64_t batch() const { return static_cast<int64_t>(past.size()); }
  int64_t blocks() const { return block > 0 ? (keys + block - 1) / block : 0; }
  int64_t rows() const { return block > 0 ? (batch() * blocks() + 1) * block : batch() * keys; }
  bool appends(size_t entry) const { return without_row.empty() || !without_row[entry]; }
  // Those without a new key: every second one has no key at past_len, either.
  int64_t kv_len(size_t entry) const {
    return past[entry] + (appends(entry) || entry % 2 == 0 ? 1 : 0);
  }
  // Sequences share their first block, if no row of it is written. The others lie backwards.
  int64_t block_at(size_t entry, int64_t k) const {
    if (k == 0 && *std::ranges::min_element(past) >= block) return 0;
    return batch() * blocks() - static_cast<int64_t>(entry) * blocks() - k;
  }
  int64_t row_at(size_t entry, int64_t key) const {
    return block > 0 ? block_at(entry, key / block) * block + key % block
                     : static_cast<int64_t>(entry) * keys + key;
  }
};

// A case of attention; one of attention_backward, and one of decode_attention.
void attention_forward_row(Suite& s, const AttentionForm& f);
void attention_backward_row(Suite& s, const AttentionForm& f);
void decode_attention_row(Suite& s, const DecodeForm& f);
// Those with numbers of their own; those whose keys are in blocks, and of 8-bit integers; those of
// decode_attention, and those of it with numbers of their own.
void attention_known_rows(Suite& s);
void attention_blocks_rows(Suite& s);
void attention_decode_rows(Suite& s);
void attention_decode_known_rows(Suite& s);
void attention_q8_0_rows(Suite& s);

}  // namespace tenon::conform
