// SPDX-License-Identifier: Apache-2.0
// attention_backward in two passes. The first computes delta and the normalization of each query
// row. In the second, each piece of work takes a range of keys of one key head and visits all of
// its query rows, so dk and dv have one writer. Partial sums of dq from several pieces are added in
// a fixed order.
#include <cmath>
#include <cstring>
#include <limits>

#include "../parallel.hpp"
#include "attention.hpp"
#include "epilogue.hpp"
#include "gemm_core.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kManyPieces = 16, kFewestKeys = 256;

// Up to this magnitude, the weights are e^(score - lse): rounding lse changes them by at most 1e-6.
// For larger lse, the logarithm of the row sum loses digits (all of them at 1e9, which masks can
// add). Then the row maximum and the row sum are recomputed.
constexpr double kTrustedLse = 16;

// Scratch memory of one thread. Rows are [lanes][dim]; rows that a product reads are padded to
// whole panels.
struct Area {
  char *q_rows, *dout_rows;          // q scaled
  char *q, *dout, *o, *dq;           // [dim][width]
  char *scores, *slopes, *added;     // [kKeyBlock][width]
  char *row_max, *sum, *correction;  // [width]
  char *mask, *k, *v, *dk,
      *dv;  // sums for the keys of a piece, if the outputs have another dtype
};

struct Backward {
  AttentionProblem p;
  int dout_in, o_in, lse_in;
  bool want_dmask;
  int64_t mask_count;
  int64_t splits;  // pieces of the keys
  int64_t span;    // keys per piece
  int slots;
  int64_t area_size;
  bool by_batch;  // for dmask: one piece per batch, else one piece in total

  bool convert() const { return p.dtype != p.sum; }
  Area take(Carver& carver) const;
  void run(const sdk::Call& c) const;
  void find_rows(const sdk::Call& c, int64_t index, const Area& a) const;
  template <class T>
  void find_rows_as(const sdk::Call& c, int64_t index, const Area& a) const;
  void sum_weights(const sdk::Call& c, const AttentionTile& t, const Area& a) const;
  void run_piece(const sdk::Call& c, int64_t head, int64_t split, const Area& a) const;
  AttentionScores products(const AttentionTile& t, const AttentionLimits& limits,
                           const MaskBlock& mask, const KeyRows& k, const char* k_rows, int64_t key,
                           int64_t keys, const Area& a) const;
  void load_queries(const sdk::Call& c, const AttentionTile& t, const Area& a) const;
  void load_rows(const sdk::Call& c, const AttentionTile& t, int input, const Area& a,
                 char* by_lanes, const char* shift = nullptr) const;
  bool has_no_key(const char* shift, int64_t lane) const {
    const auto none = [&]<class T>(const T* of) {
      return of[lane] == -std::numeric_limits<T>::infinity();
    };
    return p.sum == TENON_DTYPE_F64 ? none(reinterpret_cast<const double*>(shift))
                                    : none(reinterpret_cast<const float*>(shift));
  }
  void run_tile(const sdk::Call& c, int64_t index, int64_t begin, int64_t end, int64_t split,
                const Area& a, char* dk, char* dv, int64_t dk_stride, int64_t dv_stride) const;
  void store_dq(const sdk::Call& c, int64_t index, int64_t split, const Area& a) const;
  template <class T>
  void add_dmask(const sdk::Call& c, const AttentionTile& t, int64_t key, int64_t keys,
                 const Area& a) const;

  // Index of a tile among the tiles of all heads.
  int64_t tiles() const { return p.batch * p.k_heads * p.tiles(); }
  AttentionTile tile(int64_t index) const {
    const int64_t head = index / p.tiles();
    return p.tile(head / p.k_heads, head % p.k_heads, index % p.tiles());
  }

  // Layout of scratch: thread areas; dq of each split, in q's layout; sums of dmask; three numbers
  // per row.
  char* partial_dq(const sdk::Call& c, int64_t split) const {
    return static_cast<char*>(c.scratch) + slots * area_size + split * dq_bytes();
  }
  int64_t dq_bytes() const {
    return splits == 1 ? 0 : (p.batch * p.q_heads * p.q_len * p.dim * p.sum_size + 63) / 64 * 64;
  }
  char* dmask_sums(const sdk::Call& c) const { return partial_dq(c, splits); }
  int64_t dmask_bytes() const { return want_dmask ? (mask_count * p.sum_size + 63) / 64 * 64 : 0; }
  // One of the three numbers of each lane of a tile: kind 0 (shift), 1 (factor) or 2 (delta).
  char* facts(const sdk::Call& c, int kind, int64_t index) const {
    return dmask_sums(c) + dmask_bytes() + (kind * tiles() + index) * p.width * p.sum_size;
  }
  int64_t facts_bytes() const { return 3 * tiles() * p.width * p.sum_size; }
};

Area Backward::take(Carver& carver) const {
  const int64_t row = p.width * p.sum_size;
  const auto padded = [&](int64_t dim) { return (p.width * dim + p.width) * p.sum_size; };
  Area a;
  a.q_rows = carver.take(padded(p.dim)), a.dout_rows = carver.take(padded(p.v_dim));
  a.q = carver.take(p.dim * row), a.dq = carver.take(p.dim * row);
  a.dout = carver.take(p.v_dim * row), a.o = carver.take(p.v_dim * row);
  a.scores = carver.take(kKeyBlock * row), a.slopes = carver.take(kKeyBlock * row);
  a.added = carver.take(want_dmask ? kKeyBlock * row : 0);
  a.row_max = carver.take(row), a.sum = carver.take(row), a.correction = carver.take(row);
  a.mask = carver.take(MaskBlock::bytes(p));
  const int64_t keys = convert() ? kKeyBlock * p.sum_size : 0,
                sums = convert() ? span * p.sum_size : 0;
  a.k = carver.take(keys * p.dim), a.v = carver.take(keys * p.v_dim);
  a.dk = carver.take(sums * p.dim), a.dv = carver.take(sums * p.v_dim);
  return a;
}

// Loads the scaled query rows, by rows and by lanes.
void Backward::load_queries(const sdk::Call& c, const AttentionTile& t, const Area& a) const {
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const AttentionRow row = p.row(t, lane);
    char* const q = a.q_rows + lane * p.dim * p.sum_size;
    attention_widen(p, c.in<char>(p.q_in) + p.q.at(t.batch, row.head, row.step) * p.size, q, p.dim);
    epilogue_scale(p.sum, q, p.scale, nullptr, p.sum, p.dim);
  }
  if (t.count < p.width) std::memset(a.q, 0, p.dim * p.width * p.sum_size);
  attention_transpose(p.sum, a.q_rows, p.dim, t.count, p.dim, 1, a.q, p.width);
}

// Loads rows of dout, or of o, which has the same layout, by rows and by lanes. With the shift of
// each lane, rows without keys become 0: their weights are 0, and 0 times NaN is NaN.
void Backward::load_rows(const sdk::Call& c, const AttentionTile& t, int input, const Area& a,
                         char* by_lanes, const char* shift) const {
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const AttentionRow row = p.row(t, lane);
    char* const to = a.dout_rows + lane * p.v_dim * p.sum_size;
    if (shift && has_no_key(shift, lane)) {
      std::memset(to, 0, p.v_dim * p.sum_size);
    } else {
      attention_widen(p, c.in<char>(input) + p.o.at(t.batch, row.head, row.step) * p.size, to,
                      p.v_dim);
    }
  }
  if (t.count < p.width) std::memset(by_lanes, 0, p.v_dim * p.width * p.sum_size);
  attention_transpose(p.sum, a.dout_rows, p.v_dim, t.count, p.v_dim, 1, by_lanes, p.width);
}

template <class T>
void Backward::find_rows_as(const sdk::Call& c, int64_t index, const Area& a) const {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const AttentionTile t = tile(index);
  T* const shift = reinterpret_cast<T*>(facts(c, 0, index));
  T* const factor = reinterpret_cast<T*>(facts(c, 1, index));
  std::fill_n(shift, p.width, kNone);
  std::fill_n(factor, p.width, T{1});
  load_rows(c, t, o_in, a, a.o);
  load_rows(c, t, dout_in, a, a.dout);
  attention_dots(p.sum, p.width, p.v_dim, a.dout, a.o, facts(c, 2, index));
  const auto is_large = [](T lse) { return std::abs(lse) > T{kTrustedLse} && lse != kNone; };
  bool large = false;
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const AttentionRow row = p.row(t, lane);
    shift[lane] = c.in<T>(lse_in)[(t.batch * p.q_heads + row.head) * p.q_len + row.step];
    large |= is_large(shift[lane]);
  }
  if (!large) return;
  sum_weights(c, t, a);
  for (int64_t lane = 0; lane < t.count; ++lane) {
    // per lane, so that a row does not depend on its neighbours
    if (!is_large(shift[lane])) continue;
    const T sum = reinterpret_cast<const T*>(a.sum)[lane];
    shift[lane] = sum == 0 ? kNone : reinterpret_cast<const T*>(a.row_max)[lane];
    factor[lane] = 1 / sum;
  }
}
void Backward::find_rows(const sdk::Call& c, int64_t index, const Area& a) const {
  if (p.sum == TENON_DTYPE_F64) return find_rows_as<double>(c, index, a);
  find_rows_as<float>(c, index, a);
}

// The row maximum and the row sum of each lane.
void Backward::sum_weights(const sdk::Call& c, const AttentionTile& t, const Area& a) const {
  if (p.sum == TENON_DTYPE_F64) {
    std::fill_n(reinterpret_cast<double*>(a.row_max), p.width,
                -std::numeric_limits<double>::infinity());
  } else {
    std::fill_n(reinterpret_cast<float*>(a.row_max), p.width,
                -std::numeric_limits<float>::infinity());
  }
  std::memset(a.sum, 0, p.width * p.sum_size);
  load_queries(c, t, a);
  const AttentionLimits limits(p, c, t);
  const MaskBlock mask(p, c, t, a.mask);
  KeyRows k(p, c, p.k_in, p.k, p.dim, t, a.k);
  for (int64_t key = limits.begin; key < limits.end; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, limits.end - key);
    const AttentionScores s = products(t, limits, mask, k, k.block(key, keys), key, keys, a);
    attention_weights(s, a.scores, a.row_max, a.sum, a.correction);
  }
}

// Products of a tile's queries with keys from `key` on, and the parameters that turn them into
// scores. Equal to those of the forward pass, bit for bit, so that the weights match o and delta.
AttentionScores Backward::products(const AttentionTile& t, const AttentionLimits& limits,
                                   const MaskBlock& mask, const KeyRows& k, const char* k_rows,
                                   int64_t key, int64_t keys, const Area& a) const {
  if (t.count <= kFewRows) {
    gemm_skinny({p.dtype, t.count, keys, p.dim, p.dim, a.q_rows, k.at(key), 1, p.k.step, a.scores,
                 1, p.width});
  } else {
    tile_products({p.sum, TileMode::set, keys, p.padded(t.count), p.dim, k_rows, k.stride(), 1, a.q,
                   p.width, p.width, a.scores, p.width, nullptr});
  }
  return attention_scores(p, t, limits, mask, key, keys);
}

// Adds to dk and dv of keys [begin, end), which start at `dk` and `dv`, and computes the part of
// dq.
void Backward::run_tile(const sdk::Call& c, int64_t index, int64_t begin, int64_t end,
                        int64_t split, const Area& a, char* dk, char* dv, int64_t dk_stride,
                        int64_t dv_stride) const {
  const AttentionTile t = tile(index);
  const AttentionLimits limits(p, c, t);
  const int64_t from = std::max(begin, limits.begin), to = std::min(end, limits.end);
  std::memset(a.dq, 0, p.dim * p.width * p.sum_size);
  if (from < to) {
    load_queries(c, t, a);
    load_rows(c, t, dout_in, a, a.dout, facts(c, 0, index));
  }
  const AttentionRowFacts rows{facts(c, 0, index), facts(c, 1, index), facts(c, 2, index)};
  const MaskBlock mask(p, c, t, a.mask);
  KeyRows k(p, c, p.k_in, p.k, p.dim, t, a.k), v(p, c, p.v_in, p.v, p.v_dim, t, a.v);
  const int64_t lanes = p.padded(t.count), width = p.width;
  for (int64_t key = from; key < to; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, to - key);
    const char* const k_rows = k.block(key, keys);
    const AttentionScores s = products(t, limits, mask, k, k_rows, key, keys, a);
    tile_products({p.sum, TileMode::set, keys, lanes, p.v_dim, v.block(key, keys), v.stride(), 1,
                   a.dout, width, width, a.slopes, width, nullptr});
    attention_slopes(s, a.scores, a.slopes, rows, want_dmask ? a.added : nullptr);
    if (want_dmask) {
      if (p.sum == TENON_DTYPE_F64) {
        add_dmask<double>(c, t, key, keys, a);
      } else {
        add_dmask<float>(c, t, key, keys, a);
      }
    }
    tile_products({p.sum, TileMode::add, keys, p.v_dim, t.count, a.scores, width, 1, a.dout_rows,
                   width, p.v_dim, dv + (key - begin) * dv_stride * p.sum_size, dv_stride,
                   nullptr});
    tile_products({p.sum, TileMode::add, keys, p.dim, t.count, a.slopes, width, 1, a.q_rows, width,
                   p.dim, dk + (key - begin) * dk_stride * p.sum_size, dk_stride, nullptr});
    tile_products({p.sum, TileMode::add, p.dim, lanes, keys, k_rows, 1, k.stride(), a.slopes, width,
                   width, a.dq, width, nullptr});
  }
  store_dq(c, index, split, a);
}

void Backward::store_dq(const sdk::Call& c, int64_t index, int64_t split, const Area& a) const {
  const AttentionTile t = tile(index);
  attention_transpose(p.sum, a.dq, p.width, p.dim, t.count, p.scale, a.q_rows, p.dim);
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const AttentionRow row = p.row(t, lane);
    char* const sums = a.q_rows + lane * p.dim * p.sum_size;
    // Rows without keys have slopes 0, and k may hold NaN.
    if (has_no_key(facts(c, 0, index), lane)) std::memset(sums, 0, p.dim * p.sum_size);
    const int64_t at = p.q.at(t.batch, row.head, row.step);
    if (splits == 1) {
      epilogue_store(p.sum, sums, c.out<char>(0) + at * p.size, p.dtype, p.dim);
    } else {
      std::memcpy(partial_dq(c, split) + at * p.sum_size, sums, p.dim * p.sum_size);
    }
  }
}

template <class T>
void Backward::add_dmask(const sdk::Call& c, const AttentionTile& t, int64_t key, int64_t keys,
                         const Area& a) const {
  T* const sums = reinterpret_cast<T*>(dmask_sums(c));
  const T* const slopes = reinterpret_cast<const T*>(a.added);
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const AttentionRow row = p.row(t, lane);
    T* const to = sums + t.batch * p.mask_strides[0] + row.head * p.mask_strides[1] +
                  row.step * p.mask_strides[2];
    for (int64_t j = 0; j < keys; ++j)
      to[(key + j) * p.mask_strides[3]] += slopes[j * p.width + lane];
  }
}

void Backward::run_piece(const sdk::Call& c, int64_t head, int64_t split, const Area& a) const {
  const int64_t b = head / p.k_heads, h = head % p.k_heads;
  const int64_t begin = split * span, end = std::min(p.k_len, begin + span);
  // dk and dv of keys [begin, end): accumulated in the outputs if these have the accumulation type.
  char* const k_out = c.out<char>(1) + p.k.at(b, h, begin) * p.size;
  char* const v_out = c.out<char>(2) + p.v.at(b, h, begin) * p.size;
  char* const dk = convert() ? a.dk : k_out;
  char* const dv = convert() ? a.dv : v_out;
  const int64_t dk_stride = convert() ? p.dim : p.k.step,
                dv_stride = convert() ? p.v_dim : p.v.step;
  for (int64_t j = 0; j < end - begin; ++j) {
    std::memset(dk + j * dk_stride * p.sum_size, 0, p.dim * p.sum_size);
    std::memset(dv + j * dv_stride * p.sum_size, 0, p.v_dim * p.sum_size);
  }
  for (int64_t i = 0; i < p.tiles(); ++i)
    run_tile(c, head * p.tiles() + i, begin, end, split, a, dk, dv, dk_stride, dv_stride);
  if (!convert()) return;
  for (int64_t j = 0; j < end - begin; ++j) {
    epilogue_store(p.sum, dk + j * p.dim * p.sum_size, k_out + j * p.k.step * p.size, p.dtype,
                   p.dim);
    epilogue_store(p.sum, dv + j * p.v_dim * p.sum_size, v_out + j * p.v.step * p.size, p.dtype,
                   p.v_dim);
  }
}

void Backward::run(const sdk::Call& c) const {
  const auto area_of = [&](int slot) {
    Carver carver(static_cast<char*>(c.scratch) + slot * area_size);
    return take(carver);
  };
  parallel_for_slots(tiles(), 1, slots, [&](int slot, int64_t begin, int64_t end) {
    const Area a = area_of(slot);
    for (int64_t i = begin; i < end; ++i) find_rows(c, i, a);
  });
  const int64_t heads = p.batch * p.k_heads;
  if (want_dmask) std::memset(dmask_sums(c), 0, mask_count * p.sum_size);
  // With dmask, one thread computes all heads that share an element of the mask.
  const int64_t together = !want_dmask ? 1 : by_batch ? p.k_heads * splits : heads * splits;
  if (together > 0)
    parallel_for_slots(heads * splits / together, 1, slots,
                       [&](int slot, int64_t begin, int64_t end) {
                         const Area a = area_of(slot);
                         for (int64_t i = begin * together; i < end * together; ++i)
                           run_piece(c, i / splits, i % splits, a);
                       });
  if (splits > 1) {
    const int64_t count = p.batch * p.q_heads * p.q_len * p.dim;
    parallel_for(count, grain_for((splits + 1) * p.sum_size), [&](int64_t begin, int64_t end) {
      char* const sums = partial_dq(c, 0) + begin * p.sum_size;
      for (int64_t s = 1; s < splits; ++s)
        epilogue_add(p.sum, sums, partial_dq(c, s) + begin * p.sum_size, p.sum, end - begin);
      epilogue_store(p.sum, sums, c.out<char>(0) + begin * p.size, p.dtype, end - begin);
    });
  }
  if (want_dmask) epilogue_store(p.sum, dmask_sums(c), c.out<char>(3), p.mask_dtype, mask_count);
}

}  // namespace

sdk::Kernel make_attention_backward(const sdk::op::attention_backward& n, const sdk::Node&) {
  Backward work{};
  const AttentionProblem& p = work.p = attention_problem(n);
  work.dout_in = n.dout.position(), work.o_in = n.o.position(), work.lse_in = n.lse.position();
  work.want_dmask = n.want_dmask;
  if (n.want_dmask) {
    work.mask_count = n.mask.type().elements();
    work.by_batch = p.mask_strides[0] != 0;
  }
  const int64_t heads = std::max<int64_t>(1, p.batch * p.k_heads);
  work.splits = 1;
  if (!n.want_dmask && heads < kManyPieces)
    work.splits = std::clamp<int64_t>(p.k_len / kFewestKeys, 1, (kManyPieces - 1) / heads + 1);
  work.span = (p.k_len + work.splits - 1) / work.splits;
  work.slots = widest_arena();
  Carver area;
  work.take(area);
  work.area_size = area.used();

  sdk::Kernel kernel;
  kernel.scratch = work.slots * work.area_size + work.splits * work.dq_bytes() +
                   work.dmask_bytes() + work.facts_bytes();
  kernel.cost = 2.0 * static_cast<double>(p.batch * p.q_heads * p.q_len) *
                static_cast<double>(p.k_len * (3 * p.dim + 2 * p.v_dim)) / 1e11;
  kernel.run = [work](const sdk::Call& c) { work.run(c); };
  return kernel;
}

}  // namespace tenon::cpu
