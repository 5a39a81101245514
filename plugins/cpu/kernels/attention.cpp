// SPDX-License-Identifier: Apache-2.0
// Shared by attention and attention_backward: reads a node, computes limits and masks, loads rows
// of k and v.
#include "attention.hpp"

#include <cmath>
#include <cstring>
#include <string>

#include "../kernels.hpp"
#include "convert.hpp"
#include "gemm.hpp"

namespace tenon::cpu {
namespace {

// larger windows count as no window; offsets are clamped to it
constexpr int64_t kFar = int64_t{1} << 60;

HeadStrides head_strides(bool bshd, int64_t heads, int64_t len, int64_t dim) {
  if (bshd) return {len * heads * dim, dim, heads * dim};
  return {heads * len * dim, len * dim, dim};
}

// Strides of the mask over [B, Hq, Sq, Sk]; 0 on broadcast dims.
std::array<int64_t, 4> mask_strides(const sdk::Type& mask) {
  std::array<int64_t, 4> strides{};
  int64_t step = 1;
  for (int i = mask.rank - 1; i >= 0; --i) {
    strides[i + 4 - mask.rank] = mask.dims[i] == 1 ? 0 : step;
    step *= mask.dims[i];
  }
  return strides;
}

int64_t index_at(const void* data, tenon_dtype dtype, int64_t i) {
  return dtype == TENON_DTYPE_I32 ? static_cast<const int32_t*>(data)[i]
                                  : static_cast<const int64_t*>(data)[i];
}

}  // namespace

template <class Op>
AttentionProblem attention_problem(const Op& n) {
  const sdk::Type &q = n.q.type(), &k = n.k.type(), &v = n.v.type();
  AttentionProblem p{};
  p.dtype = q.dtype, p.sum = gemm_sum_dtype(q.dtype), p.stored = k.dtype;
  if (!is_float(q.dtype)) throw sdk::Refusal::dtype("q", q.dtype);
  // Blocks are decoded to f32.
  if (p.in_blocks() && (p.stored != TENON_DTYPE_Q8_0 || p.sum != TENON_DTYPE_F32))
    throw sdk::Refusal::dtype("k", k.dtype);
  const bool bshd = n.layout == "bshd";
  if (!bshd && n.layout != "bhsd") throw sdk::Refusal::attribute("layout", n.layout);
  const int heads = bshd ? 2 : 1, len = 3 - heads;
  p.size = element_bytes(p.dtype), p.sum_size = element_bytes(p.sum);
  p.batch = q.dims[0], p.q_heads = q.dims[heads], p.q_len = q.dims[len], p.dim = q.dims[3];
  p.k_heads = k.dims[heads], p.k_len = k.dims[len], p.v_dim = v.dims[3];
  p.group = p.k_heads == 0 ? 1 : p.q_heads / p.k_heads;
  p.q = head_strides(bshd, p.q_heads, p.q_len, p.dim),
  p.o = head_strides(bshd, p.q_heads, p.q_len, p.v_dim);
  p.k = head_strides(bshd, p.k_heads, p.k_len, p.dim),
  p.v = head_strides(bshd, p.k_heads, p.k_len, p.v_dim);
  p.scale = is_unset(n.scale) ? 1 / std::sqrt(static_cast<double>(p.dim)) : n.scale;
  p.softcap = n.softcap, p.causal = n.causal, p.offset = n.offset;
  p.left = n.left_window >= kFar ? -1 : n.left_window,
  p.right = n.right_window >= kFar ? -1 : n.right_window;
  p.q_in = n.q.position(), p.k_in = n.k.position(), p.v_in = n.v.position();
  if (n.mask) {
    p.mask_in = n.mask.position(), p.mask_dtype = n.mask.type().dtype;
    p.mask_strides = mask_strides(n.mask.type());
  }
  if (n.kv_len) p.kv_len_in = n.kv_len.position(), p.kv_len_dtype = n.kv_len.type().dtype;
  if (n.past_len) p.past_len_in = n.past_len.position(), p.past_len_dtype = n.past_len.type().dtype;
  if constexpr (requires { n.block_table; }) {
    if (n.block_table) {
      const sdk::Type& table = n.block_table.type();
      p.block = p.k_len, p.pool = k.dims[0], p.table = table.dims[1], p.k_len = p.block * p.table;
      p.table_in = n.block_table.position(), p.table_dtype = table.dtype;
    }
  }
  p.width = attention_width(p.sum), p.vector = p.width / 3;
  return p;
}
template AttentionProblem attention_problem(const sdk::op::attention&);
template AttentionProblem attention_problem(const sdk::op::attention_backward&);

int64_t attention_keys(const AttentionProblem& p, const sdk::Call& c, int64_t batch) {
  if (p.kv_len_in < 0) return p.k_len;
  return std::clamp<int64_t>(index_at(c.inputs[p.kv_len_in], p.kv_len_dtype, batch), 0, p.k_len);
}

void check_blocks(const AttentionProblem& p, const sdk::Call& c) {
  if (p.block == 0) return;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t keys = attention_keys(p, c, b);
    for (int64_t i = 0; i * p.block < keys; ++i) {
      const int64_t at = b * p.table + i,
                    number = index_at(c.inputs[p.table_in], p.table_dtype, at);
      if (number >= 0 && number < p.pool) continue;
      throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                         "operand block_table: number " + std::to_string(number) + " at position " +
                             std::to_string(at) + " is outside a pool of " +
                             std::to_string(p.pool) + " blocks",
                         at);
    }
  }
}

AttentionLimits::AttentionLimits(const AttentionProblem& p, const sdk::Call& c,
                                 const AttentionTile& t) {
  const int64_t keys = attention_keys(p, c, t.batch);
  const int64_t offset = std::clamp(
      p.past_len_in < 0 ? p.offset : index_at(c.inputs[p.past_len_in], p.past_len_dtype, t.batch),
      -kFar, kFar);
  begin = keys, end = 0;
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const int64_t at = p.row(t, lane).step + offset;
    int64_t low = 0, high = keys;
    if (p.causal) high = std::min(high, at + 1);
    if (p.right >= 0) high = std::min(high, at + p.right + 1);
    if (p.left >= 0) low = std::max(low, at - p.left);
    if (low >= high) low = high = 0;
    first[lane] = low, last[lane] = high;
    if (low < high) begin = std::min(begin, low), end = std::max(end, high);
  }
}

bool AttentionLimits::edges(const AttentionTile& t, int64_t key, int64_t keys) const {
  for (int64_t lane = 0; lane < t.count; ++lane)
    if (first[lane] > key || last[lane] < key + keys) return true;
  return false;
}

void attention_widen(const AttentionProblem& p, const char* from, char* to, int64_t n) {
  if (p.dtype == p.sum) {
    std::memcpy(to, from, n * p.size);
  } else {
    widen(p.dtype, from, reinterpret_cast<float*>(to), n);
  }
}

KeyRows::KeyRows(const AttentionProblem& p, const sdk::Call& c, int operand,
                 const HeadStrides& strides, int64_t cols, const AttentionTile& t, char* buffer)
    : p_(p),
      direct_(p.stored == p.sum),
      spread_(p.block % kKeyBlock != 0),
      base_(c.in<char>(operand) +
            p.stored_bytes(strides.at(p.block > 0 ? 0 : t.batch, t.k_head, 0))),
      step_(strides.step),
      block_step_(strides.batch),
      cols_(cols),
      stride_(direct_ && !spread_ ? step_ : cols),
      buffer_(buffer) {
  if (p.block > 0)
    table_ = c.in<char>(p.table_in) + t.batch * p.table * element_bytes(p.table_dtype);
}

int64_t KeyRows::bytes(const AttentionProblem& p, int64_t cols) {
  return p.stored == p.sum && p.block % kKeyBlock == 0 ? 0 : kKeyBlock * cols * p.sum_size;
}

const char* KeyRows::at(int64_t key) const {
  if (p_.block == 0) return base_ + p_.stored_bytes(key * step_);
  const int64_t number = index_at(table_, p_.table_dtype, key / p_.block);
  return base_ + p_.stored_bytes(number * block_step_ + key % p_.block * step_);
}

const char* KeyRows::block(int64_t key, int64_t keys) {
  if (p_.in_blocks()) return columns(key, keys, 0, cols_);
  if (direct_) return raw(key, keys);
  const char* from = at(key);
  for (int64_t j = 0; j < keys; ++j, from += step_ * p_.size) {
    if (spread_) from = at(key + j);
    widen(p_.dtype, from, reinterpret_cast<float*>(buffer_) + j * cols_, cols_);
  }
  return buffer_;
}

const char* KeyRows::columns(int64_t key, int64_t keys, int64_t col, int64_t cols) {
  auto* const to = reinterpret_cast<float*>(buffer_);
  const int64_t skipped = p_.stored_bytes(col), step = p_.stored_bytes(step_);
  if (!spread_) {
    attention_decode(at(key) + skipped, step, keys, cols, to);
  } else {
    for (int64_t j = 0; j < keys; ++j)
      attention_decode(at(key + j) + skipped, step, 1, cols, to + j * cols);
  }
  return buffer_;
}

const char* KeyRows::raw(int64_t key, int64_t keys) {
  if (!spread_) return at(key);
  for (int64_t j = 0; j < keys; ++j)
    std::memcpy(buffer_ + j * cols_ * p_.size, at(key + j), cols_ * p_.size);
  return buffer_;
}

MaskBlock::MaskBlock(const AttentionProblem& p, const sdk::Call& c, const AttentionTile& t,
                     char* buffer)
    : p_(p),
      mask_(p.mask_in < 0 ? nullptr : c.in<char>(p.mask_in)),
      buffer_(buffer),
      lanes_(t.count) {
  if (mask_ == nullptr) return;
  shared_ = p.mask_strides[2] == 0 && (p.mask_strides[1] == 0 || p.group == 1);
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    const AttentionRow row = p.row(t, lane);
    rows_[lane] =
        t.batch * p.mask_strides[0] + row.head * p.mask_strides[1] + row.step * p.mask_strides[2];
  }
}

template <class T, class Get>
void MaskBlock::gather(const AttentionScores& s, T* to, Get get) const {
  const int64_t step = p_.mask_strides[3];
  if (s.by_row) {
    for (int64_t lane = 0; lane < lanes_; ++lane)
      for (int64_t j = 0; j < s.keys; ++j)
        to[lane * kKeyBlock + j] = static_cast<T>(get(rows_[lane] + (s.key + j) * step));
    return;
  }
  if (shared_) {
    for (int64_t j = 0; j < s.keys; ++j)
      std::fill_n(to + j * p_.width, p_.width, static_cast<T>(get(rows_[0] + (s.key + j) * step)));
    return;
  }
  for (int64_t lane = 0; lane < lanes_; ++lane)
    for (int64_t j = 0; j < s.keys; ++j)
      to[j * p_.width + lane] = static_cast<T>(get(rows_[lane] + (s.key + j) * step));
}

void MaskBlock::fill(AttentionScores* s) const {
  if (mask_ == nullptr) return;
  const auto from = [this]<class T>(T) {
    return [mask = reinterpret_cast<const T*>(mask_)](int64_t i) {
      if constexpr (sizeof(T) == 2) {
        return to_float(mask[i]);
      } else {
        return mask[i];
      }
    };
  };
  float* const single = reinterpret_cast<float*>(buffer_);
  switch (p_.mask_dtype) {
    case TENON_DTYPE_BOOL:
      gather(*s, reinterpret_cast<uint8_t*>(buffer_), from(uint8_t{}));
      break;
    case TENON_DTYPE_F32:
      gather(*s, single, from(float{}));
      break;
    case TENON_DTYPE_F16:
      gather(*s, single, from(F16{}));
      break;
    case TENON_DTYPE_BF16:
      gather(*s, single, from(Bf16{}));
      break;
    case TENON_DTYPE_F64:
      gather(*s, reinterpret_cast<double*>(buffer_), from(double{}));
      break;
  }
  if (p_.mask_dtype == TENON_DTYPE_BOOL) {
    s->attend = reinterpret_cast<const uint8_t*>(buffer_);
  } else {
    s->added = buffer_;
  }
}

AttentionScores attention_scores(const AttentionProblem& p, const AttentionTile& t,
                                 const AttentionLimits& limits, const MaskBlock& mask, int64_t key,
                                 int64_t keys, bool by_row) {
  AttentionScores s{p.sum,
                    p.width,
                    t.count,
                    key,
                    keys,
                    p.softcap,
                    nullptr,
                    nullptr,
                    limits.first,
                    limits.last,
                    limits.edges(t, key, keys),
                    by_row};
  mask.fill(&s);
  return s;
}

namespace {

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::attention, make_attention>(sdk::kBlocks),
    sdk::row<sdk::op::attention_backward, make_attention_backward>(),
};

}  // namespace

std::span<const sdk::Row> attention_rows() { return kRows; }

}  // namespace tenon::cpu
