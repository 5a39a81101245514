// SPDX-License-Identifier: Apache-2.0
// attention: blocks of keys with a running maximum and sum. Blocks start at fixed keys, and so do
// parts of several blocks, whose results are merged in order. If there are few tiles, the parts of a
// tile are spread over threads. So the bits of a row do not depend on the other rows, nor on keys
// beyond its own.
#include <cmath>
#include <cstring>
#include <limits>

#include "../parallel.hpp"
#include "attention.hpp"
#include "epilogue.hpp"
#include "gemm_core.hpp"

namespace tenon::cpu {
namespace {

constexpr double kPieceFlops = 2e6;
constexpr int64_t kFewTiles = 8;
// Of keys: blocks per part, and parts; beyond this limit parts are longer.
constexpr int64_t kPartBlocks = 2, kMostParts = 32;
constexpr int64_t kDecodedColumns = 64;

// The partial result of a tile for some of its keys.
struct Partial {
  char *m, *l, *o;  // [width], [width], [v_dim][width]

  static Partial take(const AttentionProblem& p, Carver& carver) {
    const int64_t row = p.width * p.sum_size;
    return {carver.take(row), carver.take(row), carver.take(p.v_dim * row)};
  }
};

// Scratch memory of one thread.
struct Area {
  char *rows, *q, *scores, *weights, *correction, *mask, *k, *v;
  Partial partial, further;

  static Area take(const AttentionProblem& p, Carver& carver) {
    const int64_t row = p.width * p.sum_size;
    Area a;
    a.rows = carver.take(p.width * std::max(p.dim, p.v_dim) * p.sum_size);
    a.q = carver.take(p.dim * row), a.scores = carver.take(kKeyBlock * row),
    a.correction = carver.take(row);
    a.weights = carver.take(kFewRows * (kKeyBlock + p.v_dim) * p.sum_size);
    a.mask = carver.take(MaskBlock::bytes(p));
    a.k = carver.take(KeyRows::bytes(p, p.dim));
    a.v = carver.take(KeyRows::bytes(p, p.v_dim));
    a.partial = Partial::take(p, carver);
    a.further = Partial::take(p, carver);
    return a;
  }
};

struct Forward {
  AttentionProblem p;
  int lse_out;  // -1 if not requested
  int64_t part_keys, parts;
  bool spread;  // the parts of a tile over threads
  int slots;
  int64_t area, partial;  // bytes

  int64_t tiles() const { return p.batch * p.k_heads * p.tiles(); }
  AttentionTile tile(int64_t index) const {
    const int64_t head = index / p.tiles();
    return p.tile(head / p.k_heads, head % p.k_heads, index % p.tiles());
  }
  void run(const sdk::Call& c) const;
  AttentionSums sums_of(const Partial& of) const { return {p.sum, p.width, of.m, of.l, of.o}; }
  void attend(const sdk::Call& c, const AttentionTile& t, const AttentionLimits& limits,
              int64_t part, const Area& a, const Partial& to) const;
  void attend_parts(const sdk::Call& c, const AttentionTile& t, const Area& a) const;
  void merge_parts(const sdk::Call& c, const AttentionTile& t, char* partials, const Area& a) const;
  int64_t first_part(const AttentionLimits& limits) const { return limits.begin / part_keys; }
  int64_t last_part(const AttentionLimits& limits) const {
    return limits.begin < limits.end ? (limits.end + part_keys - 1) / part_keys
                                     : first_part(limits);
  }
  void clear(const Partial& to) const;
  void load_rows(const sdk::Call& c, const AttentionTile& t, const Area& a) const;
  void multiply_few(const AttentionTile& t, int64_t key, int64_t keys, int64_t end, KeyRows& k,
                    const KeyRows& v, const Area& a) const;
  void add_few(const AttentionTile& t, int64_t key, int64_t keys, KeyRows& v, const Area& a,
               const Partial& to) const;
  void finish(const sdk::Call& c, const AttentionTile& t, const Area& a, const Partial& from) const;
  template <class T>
  void finish_as(const sdk::Call& c, const AttentionTile& t, const Area& a,
                 const Partial& from) const;
};

template <class T>
void fill(char* to, int64_t n, double value) {
  std::fill_n(reinterpret_cast<T*>(to), n, static_cast<T>(value));
}
void fill(tenon_dtype sum, char* to, int64_t n, double value) {
  if (sum == TENON_DTYPE_F64) {
    fill<double>(to, n, value);
  } else {
    fill<float>(to, n, value);
  }
}

// Prefetches rows of keys or values into the second-level cache.
void prefetch_rows(const char* rows, int64_t step, int64_t bytes, int64_t count) {
  constexpr int64_t kLine = 64;
  for (int64_t j = 0; j < count; ++j, rows += step)
    for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(rows + i, 0, 2);
}

// Scales query rows; stores them one after the other, and for tiles also lane by lane.
void Forward::load_rows(const sdk::Call& c, const AttentionTile& t, const Area& a) const {
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const AttentionRow row = p.row(t, lane);
    char* const to = a.rows + lane * p.dim * p.sum_size;
    attention_widen(p, c.in<char>(p.q_in) + p.q.at(t.batch, row.head, row.step) * p.size, to,
                    p.dim);
    epilogue_scale(p.sum, to, p.scale, nullptr, p.sum, p.dim);
  }
  if (t.count <= kFewRows) return;
  if (t.count < p.width) fill(p.sum, a.q, p.dim * p.width, 0);
  attention_transpose(p.sum, a.rows, p.dim, t.count, p.dim, 1, a.q, p.width);
}

void Forward::clear(const Partial& to) const {
  fill(p.sum, to.m, p.width, -std::numeric_limits<double>::infinity());
  fill(p.sum, to.l, p.width, 0);
  fill(p.sum, to.o, p.v_dim * p.width, 0);
}

// Computes part `part` of the keys. The rows of the tile are loaded.
void Forward::attend(const sdk::Call& c, const AttentionTile& t, const AttentionLimits& limits,
                     int64_t part, const Area& a, const Partial& to) const {
  clear(to);
  const int64_t begin = std::max(part * part_keys, limits.begin / kKeyBlock * kKeyBlock),
                end = std::min((part + 1) * part_keys, limits.end);
  const bool few = t.count <= kFewRows;
  const MaskBlock mask(p, c, t, a.mask);
  KeyRows k(p, c, p.k_in, p.k, p.dim, t, a.k), v(p, c, p.v_in, p.v, p.v_dim, t, a.v);
  const int64_t lanes = p.padded(t.count);
  for (int64_t key = begin; key < end; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, end - key);
    if (few) {
      multiply_few(t, key, keys, end, k, v, a);
    } else {
      tile_products({p.sum, TileMode::set, keys, lanes, p.dim, k.block(key, keys), k.stride(), 1,
                     a.q, p.width, p.width, a.scores, p.width, nullptr});
    }
    const AttentionScores s = attention_scores(p, t, limits, mask, key, keys, few);
    attention_weights(s, a.scores, to.m, to.l, a.correction);
    if (few) {
      add_few(t, key, keys, v, a, to);
    } else {
      tile_products({p.sum, TileMode::scale_add, p.v_dim, lanes, keys, v.block(key, keys), 1,
                     v.stride(), a.scores, p.width, p.width, to.o, p.width, a.correction});
    }
  }
}

// Products of a few rows with a block of keys, some keys at a time. Each time, prefetches the rows
// of v of these keys, and the rows of k one block ahead. Reading takes most of the time with few
// query rows. To prefetch a whole block at once would fill the core's queue and delay the products.
void Forward::multiply_few(const AttentionTile& t, int64_t key, int64_t keys, int64_t end,
                           KeyRows& k, const KeyRows& v, const Area& a) const {
  constexpr int64_t kBytesAtOnce = 2048, kFewestAtOnce = 16;  // as gemm_skinny takes them
  const int64_t k_bytes = p.stored_bytes(p.dim), v_bytes = p.stored_bytes(p.v_dim);
  const int64_t k_apart = p.stored_bytes(p.k.step), v_apart = p.stored_bytes(p.v.step);
  const int64_t at_once =
      std::max(kFewestAtOnce, kBytesAtOnce / std::max<int64_t>(1, std::max(k_bytes, v_bytes)) /
                                  kFewestAtOnce * kFewestAtOnce);
  const char* const rows = p.in_blocks() ? nullptr : k.raw(key, keys);
  const int64_t step = p.in_blocks() ? p.dim : k.raw_stride();
  for (int64_t j = 0; j < keys; j += at_once) {
    const int64_t n = std::min(at_once, keys - j), next = key + kKeyBlock + j;
    prefetch_rows(v.at(key + j), v_apart, v_bytes, n);
    if (next < end) prefetch_rows(k.at(next), k_apart, k_bytes, std::min(n, end - next));
    const char* const many =
        p.in_blocks() ? k.columns(key + j, n, 0, p.dim) : rows + j * step * p.size;
    gemm_skinny({p.in_blocks() ? p.sum : p.dtype, t.count, n, p.dim, p.dim, a.rows, many, 1, step,
                 a.scores + j * p.sum_size, kKeyBlock, 1});
  }
}

// o = o * correction + weights·v for a few rows.
void Forward::add_few(const AttentionTile& t, int64_t key, int64_t keys, KeyRows& v, const Area& a,
                      const Partial& to) const {
  char* const sums = a.weights + kFewRows * kKeyBlock * p.sum_size;
  for (int64_t lane = 0; lane < t.count; ++lane)  // gemm_skinny requires dense rows
    std::memcpy(a.weights + lane * keys * p.sum_size, a.scores + lane * kKeyBlock * p.sum_size,
                keys * p.sum_size);
  // Columns that are decoded at a time stay in the first-level cache.
  const int64_t at_once = p.in_blocks() ? kDecodedColumns : p.v_dim;
  for (int64_t col = 0; col < p.v_dim; col += at_once) {
    const int64_t cols = std::min(at_once, p.v_dim - col);
    const char* const many = p.in_blocks() ? v.columns(key, keys, col, cols) : v.raw(key, keys);
    gemm_skinny({p.in_blocks() ? p.sum : p.dtype, t.count, cols, keys, keys, a.weights, many,
                 p.in_blocks() ? cols : v.raw_stride(), 1, sums + col * p.sum_size, p.v_dim, 1});
  }
  attention_add_rows(sums_of(to), t.count, p.v_dim, sums, a.correction);
}

// Computes the parts one after the other, in a.partial.
void Forward::attend_parts(const sdk::Call& c, const AttentionTile& t, const Area& a) const {
  const AttentionLimits limits(p, c, t);
  const int64_t first = first_part(limits), last = last_part(limits);
  if (first == last) return clear(a.partial);
  load_rows(c, t, a);
  attend(c, t, limits, first, a, a.partial);
  for (int64_t part = first + 1; part < last; ++part) {
    attend(c, t, limits, part, a, a.further);
    attention_merge(sums_of(a.partial), sums_of(a.further), t.count, p.v_dim);
  }
}

// Merges the parts of a tile in order, and stores its rows.
void Forward::merge_parts(const sdk::Call& c, const AttentionTile& t, char* partials,
                          const Area& a) const {
  const auto of = [&](int64_t part) {
    Carver carver(partials + part * partial);
    return Partial::take(p, carver);
  };
  const AttentionLimits limits(p, c, t);
  const int64_t first = first_part(limits), last = last_part(limits);
  if (first == last) {
    clear(a.partial);
    return finish(c, t, a, a.partial);
  }
  for (int64_t part = first + 1; part < last; ++part)
    attention_merge(sums_of(of(first)), sums_of(of(part)), t.count, p.v_dim);
  finish(c, t, a, of(first));
}

template <class T>
void Forward::finish_as(const sdk::Call& c, const AttentionTile& t, const Area& a,
                        const Partial& from) const {
  const T* m = reinterpret_cast<const T*>(from.m);
  const T* l = reinterpret_cast<const T*>(from.l);
  attention_transpose(p.sum, from.o, p.width, p.v_dim, t.count, 1, a.rows, p.v_dim);
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const AttentionRow row = p.row(t, lane);
    char* const sums = a.rows + lane * p.v_dim * p.sum_size;
    if (l[lane] == 0) {
      // A row without keys gives 0. Its sums are NaN if v is not finite, for its weights are 0.
      fill(p.sum, sums, p.v_dim, 0);
    } else {
      epilogue_scale(p.sum, sums, 1.0 / static_cast<double>(l[lane]), nullptr, p.sum, p.v_dim);
    }
    epilogue_store(p.sum, sums, c.out<char>(0) + p.o.at(t.batch, row.head, row.step) * p.size,
                   p.dtype, p.v_dim);
    if (lse_out >= 0)
      c.out<T>(lse_out)[(t.batch * p.q_heads + row.head) * p.q_len + row.step] =
          m[lane] + std::log(l[lane]);
  }
}
void Forward::finish(const sdk::Call& c, const AttentionTile& t, const Area& a,
                     const Partial& from) const {
  if (p.sum == TENON_DTYPE_F64) return finish_as<double>(c, t, a, from);
  finish_as<float>(c, t, a, from);
}

void Forward::run(const sdk::Call& c) const {
  check_blocks(p, c);
  const auto area_of = [&](int slot) {
    Carver carver(static_cast<char*>(c.scratch) + slot * area);
    return Area::take(p, carver);
  };
  const int64_t pieces = spread ? parts : 1;
  const double flops = 2.0 * static_cast<double>(p.width * p.k_len * (p.dim + p.v_dim)) /
                       static_cast<double>(pieces);
  const int64_t grain =
      std::max<int64_t>(1, static_cast<int64_t>(kPieceFlops / std::max(flops, 1.0)));
  char* const partials = static_cast<char*>(c.scratch) + slots * area;
  parallel_for_slots(tiles() * pieces, grain, slots, [&](int slot, int64_t begin, int64_t end) {
    const Area a = area_of(slot);
    for (int64_t i = begin; i < end; ++i) {
      const AttentionTile t = tile(i / pieces);
      if (!spread) {
        attend_parts(c, t, a);
        finish(c, t, a, a.partial);
        continue;
      }
      const AttentionLimits limits(p, c, t);
      const int64_t part = i % pieces;
      if (part < first_part(limits) || part >= last_part(limits)) continue;
      load_rows(c, t, a);
      Carver carver(partials + i * partial);
      attend(c, t, limits, part, a, Partial::take(p, carver));
    }
  });
  if (!spread) return;
  parallel_for_slots(tiles(), 1, slots, [&](int slot, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      merge_parts(c, tile(i), partials + i * parts * partial, area_of(slot));
  });
}

}  // namespace

sdk::Kernel make_attention(const sdk::op::attention& n, const sdk::Node& node) {
  Forward work{};
  const AttentionProblem& p = work.p = attention_problem(n);
  work.lse_out = n.want_lse ? node.out(1).position() : -1;
  const auto up = [](int64_t n, int64_t of) { return (n + of - 1) / of; };
  work.part_keys = std::max(kPartBlocks, up(up(p.k_len, kMostParts), kKeyBlock)) * kKeyBlock;
  work.parts = up(p.k_len, work.part_keys);
  work.spread = work.tiles() < kFewTiles && work.parts > 1;
  work.slots = widest_arena();
  Carver area, partial;
  Area::take(p, area);
  Partial::take(p, partial);
  work.area = area.used(), work.partial = partial.used();

  sdk::Kernel kernel;
  kernel.scratch =
      work.slots * work.area + (work.spread ? work.tiles() * work.parts * work.partial : 0);
  kernel.cost =
      2.0 * static_cast<double>(work.tiles() * p.width * p.k_len * (p.dim + p.v_dim)) / 1e11;
  kernel.run = [work](const sdk::Call& c) { work.run(c); };
  return kernel;
}

}  // namespace tenon::cpu
