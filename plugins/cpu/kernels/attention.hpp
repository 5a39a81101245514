// SPDX-License-Identifier: Apache-2.0
// Shared by attention and its gradient: sizes and strides, tiles of query rows, and which keys each
// row may attend to. A tile contains the Hq/Hk query heads of one key head side by side, so it
// reads its keys once for all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "attention_core.hpp"
#include "gemm_core.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

// Strides in elements between batches, heads and steps. The last axis is dense.
struct HeadStrides {
  int64_t batch, head, step;
  int64_t at(int64_t b, int64_t h, int64_t s) const { return b * batch + h * head + s * step; }
};

// Query rows [begin, begin + count) of a key head.
struct AttentionTile {
  int64_t batch, k_head, begin, count;
};
struct AttentionRow {
  int64_t head, step;
};

struct AttentionProblem {
  tenon_dtype dtype, sum;
  tenon_dtype stored;      // dtype of k and v: `dtype`, or q8_0
  int64_t size, sum_size;  // bytes of an element
  int64_t batch, q_heads, k_heads, q_len, k_len, dim, v_dim, group;
  HeadStrides q, k, v, o;
  double scale, softcap;
  bool causal;
  int64_t left, right, offset;                                           // windows: -1 = none
  int q_in, k_in, v_in, mask_in = -1, kv_len_in = -1, past_len_in = -1;  // positions, -1 = absent
  tenon_dtype mask_dtype = TENON_DTYPE_NONE, kv_len_dtype = TENON_DTYPE_NONE,
              past_len_dtype = TENON_DTYPE_NONE;
  // Blocks of keys: keys of each, in a table of `table` numbers per batch entry; 0 = none. Strides
  // of k and v are then those of pools: `batch` is that of blocks.
  int64_t block = 0, table = 0, pool = 0;
  int table_in = -1;
  tenon_dtype table_dtype = TENON_DTYPE_NONE;
  std::array<int64_t, 4> mask_strides{};
  int64_t width, vector;  // rows per tile, rows per vector

  int64_t rows() const { return q_len * group; }  // per key head
  int64_t tiles() const { return (rows() + width - 1) / width; }
  AttentionTile tile(int64_t batch_index, int64_t k_head, int64_t index) const {
    return {batch_index, k_head, index * width, std::min(width, rows() - index * width)};
  }
  AttentionRow row(const AttentionTile& t, int64_t lane) const {
    const int64_t r = t.begin + lane;
    return {t.k_head * group + r % group, r / group};
  }
  // Bytes of so many elements of k or v, whole blocks.
  int64_t stored_bytes(int64_t elements) const {
    return static_cast<int64_t>(tenon_dense_bytes(stored, elements));
  }
  bool in_blocks() const { return stored != dtype; }
  int64_t padded(int64_t lanes) const { return (lanes + vector - 1) / vector * vector; }
};

template <class Op>
// for attention and attention_backward; throws Refusal
AttentionProblem attention_problem(const Op& n);

// Keys of a batch entry.
int64_t attention_keys(const AttentionProblem& p, const sdk::Call& c, int64_t batch);
// Throws Failure if the number of a block that has keys is out of range.
void check_blocks(const AttentionProblem& p, const sdk::Call& c);

inline constexpr int64_t kMaxWidth = 64;
// Tiles with at most this many rows read k and v in place, row by row.
inline constexpr int64_t kFewRows = kSkinny;

// The keys that each lane of a tile may attend to, without the mask, and their union.
struct AttentionLimits {
  int64_t first[kMaxWidth], last[kMaxWidth];
  int64_t begin, end;

  AttentionLimits(const AttentionProblem& p, const sdk::Call& c, const AttentionTile& t);
  // True if some lane excludes some of the keys [key, key + keys).
  bool edges(const AttentionTile& t, int64_t key, int64_t keys) const;
};

// Divides scratch into blocks. The first pass, without a base, only counts bytes.
class Carver {
 public:
  explicit Carver(void* base = nullptr) : base_(static_cast<char*>(base)) {}
  char* take(int64_t bytes) {
    char* const at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (bytes + 63) / 64 * 64;
    return at;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

// Rows of k or v of one head. A range of keys must begin at a multiple of kKeyBlock and have at most
// so many keys, or be a part of such a range.
class KeyRows {
 public:
  KeyRows(const AttentionProblem& p, const sdk::Call& c, int operand, const HeadStrides& strides,
          int64_t cols, const AttentionTile& t, char* buffer);
  // In the accumulation type: in place, or converted block by block.
  const char* block(int64_t key, int64_t keys);
  int64_t stride() const { return stride_; }  // elements between rows
  // Elements [col, col + cols) of these rows, which are in_blocks(), `cols` apart.
  const char* columns(int64_t key, int64_t keys, int64_t col, int64_t cols);
  // Without conversion, raw_stride() apart: in place, or copied where a range is spread over blocks.
  // Not for rows in_blocks().
  const char* raw(int64_t key, int64_t keys);
  int64_t raw_stride() const { return spread_ ? cols_ : step_; }
  // Where a row is. `key` is before kv_len.
  const char* at(int64_t key) const;

  // Bytes of a buffer for rows of `cols` elements.
  static int64_t bytes(const AttentionProblem& p, int64_t cols);

 private:
  const AttentionProblem& p_;
  bool direct_;
  bool spread_;  // a range may be in several blocks
  const char* base_;
  const char* table_ = nullptr;  // of the batch entry
  int64_t step_, block_step_, cols_, stride_;
  char* buffer_;
};

// The mask for the rows of a tile and a block of keys, in the form that attention_core takes.
class MaskBlock {
 public:
  static int64_t bytes(const AttentionProblem& p) {
    return p.mask_in < 0 ? 0 : kKeyBlock * p.width * p.sum_size;
  }
  MaskBlock(const AttentionProblem& p, const sdk::Call& c, const AttentionTile& t, char* buffer);
  // Sets s.added or s.attend for the keys [s.key, s.key + s.keys).
  void fill(AttentionScores* s) const;

 private:
  template <class T, class Get>
  void gather(const AttentionScores& s, T* to, Get get) const;

  const AttentionProblem& p_;
  const char* mask_;
  char* buffer_;
  int64_t lanes_;
  bool shared_ = false;  // all lanes share one row of the mask
  int64_t rows_[kMaxWidth];
};

// The arguments of attention_core for the rows of a tile and the keys [key, key + keys).
AttentionScores attention_scores(const AttentionProblem& p, const AttentionTile& t,
                                 const AttentionLimits& limits, const MaskBlock& mask, int64_t key,
                                 int64_t keys, bool by_row = false);

// Widens one row to the accumulation type, or rounds it from there.
void attention_widen(const AttentionProblem& p, const char* from, char* to, int64_t n);

sdk::Kernel make_attention(const sdk::op::attention& n, const sdk::Node& node);
sdk::Kernel make_attention_backward(const sdk::op::attention_backward& n, const sdk::Node& node);

}  // namespace tenon::cpu
