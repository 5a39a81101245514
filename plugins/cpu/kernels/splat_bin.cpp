// SPDX-License-Identifier: Apache-2.0
// splat_bin splat_sort. Entries are counted, then written; they are dealt to their tiles, and each
// tile sorts its own by depth.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "../parallel.hpp"
#include "radix.hpp"
#include "splat.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kUnusedKey = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostChunks = 64;

// Calls f(chunk, begin, end) for `count` chunks of [0, n), in parallel.
template <class F>
void each_chunk(int64_t n, int64_t count, F&& f) {
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) f(k, n * k / count, n * (k + 1) / count);
  });
}
int64_t chunks_of(int64_t n) { return std::clamp<int64_t>(n / 1024, 1, kMostChunks); }

// ---- splat_bin

// The tiles that a Gaussian touches: none if it is not visible.
struct Reach {
  int64_t left = 0, right = 0, top = 0, bottom = 0;
  int64_t count() const { return (right - left) * (bottom - top); }
};

template <class T>
Reach reach_of(const SplatGrid& g, int32_t radius, const T* mean, float depth) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (radius <= 0 || !(depth > 0) || !(depth < kInf)) return {};
  if (!std::isfinite(mean[0]) || !std::isfinite(mean[1])) return {};
  const T r = static_cast<T>(radius), tile = static_cast<T>(g.size);
  const auto clamped = [](T v, int64_t most) {
    return static_cast<int64_t>(std::max(std::min(v, static_cast<T>(most)), T{0}));
  };
  return {clamped(std::floor((mean[0] - r) / tile), g.columns()),
          clamped(std::ceil((mean[0] + r) / tile), g.columns()),
          clamped(std::floor((mean[1] - r) / tile), g.rows()),
          clamped(std::ceil((mean[1] + r) / tile), g.rows())};
}

template <class T>
sdk::Kernel bin(const sdk::op::splat_bin& n) {
  const sdk::Type& radii = n.radii.type();
  const SplatGrid g{.images = radii.dims[0],
                    .points = radii.dims[1],
                    .width = n.width,
                    .height = n.height,
                    .size = n.tile};
  const int64_t chunks = chunks_of(g.pairs()), entries = n.max_intersections;
  sdk::Kernel kernel{.scratch = static_cast<uint64_t>(chunks) * sizeof(int64_t)};
  kernel.run = [=, radii = n.radii.position(), means = n.means2d.position(),
                depths = n.depths.position()](const sdk::Call& c) {
    int64_t* const starts = static_cast<int64_t*>(c.scratch);
    const auto reach = [&](int64_t pair) {
      return reach_of(g, c.in<int32_t>(radii)[pair], c.in<T>(means) + 2 * pair,
                      static_cast<float>(c.in<T>(depths)[pair]));
    };
    each_chunk(g.pairs(), chunks, [&](int64_t k, int64_t begin, int64_t end) {
      int64_t sum = 0;
      for (int64_t pair = begin; pair < end; ++pair) sum += reach(pair).count();
      starts[k] = sum;
    });
    int64_t total = 0;
    for (int64_t k = 0; k < chunks; ++k) total += std::exchange(starts[k], total);
    if (total > entries)
      throw sdk::Failure(TENON_OUT_OF_MEMORY,
                         "attribute max_intersections: expected at least the number of entries, " +
                             std::to_string(total) + ", given " + std::to_string(entries),
                         -1);
    int64_t* const keys = c.out<int64_t>(0);
    int32_t* const ids = c.out<int32_t>(1);
    *c.out<int64_t>(2) = total;
    each_chunk(g.pairs(), chunks, [&](int64_t k, int64_t begin, int64_t end) {
      int64_t at = starts[k];
      for (int64_t pair = begin; pair < end; ++pair) {
        const Reach r = reach(pair);
        if (r.count() == 0) continue;
        const int64_t first = pair / g.points * g.each();
        const auto depth = std::bit_cast<uint32_t>(static_cast<float>(c.in<T>(depths)[pair]));
        for (int64_t y = r.top; y < r.bottom; ++y)
          for (int64_t x = r.left; x < r.right; ++x, ++at) {
            keys[at] = (first + y * g.columns() + x) << 32 | int64_t{depth};
            ids[at] = static_cast<int32_t>(pair);
          }
      }
    });
    parallel_for(entries - total, grain_for(12), [&](int64_t begin, int64_t end) {
      std::fill(keys + total + begin, keys + total + end, kUnusedKey);
      std::fill(ids + total + begin, ids + total + end, -1);
    });
  };
  return kernel;
}

// ---- splat_sort

// An entry in its tile: the depth above its place in the list, so that equal depths keep their order.
using Ranked = uint64_t;

struct Sort {
  int64_t entries, tiles, chunks;

  int64_t key_end() const { return tiles << 32; }
  int64_t count_bytes() const { return (chunks * (tiles + 1) * 4 + 63) / 64 * 64; }
  // Counts of each chunk and tile, and twice the entries.
  uint64_t scratch() const { return static_cast<uint64_t>(count_bytes() + 2 * entries * 8); }

  void run(const int64_t* keys, const int32_t* ids, char* scratch, int32_t* sorted,
           int32_t* offsets) const {
    auto* const counts = reinterpret_cast<int32_t*>(scratch);
    auto* const ranked = reinterpret_cast<Ranked*>(scratch + count_bytes());
    std::fill_n(counts, chunks * (tiles + 1), 0);
    // Column 0 counts the keys below all tiles.
    each_chunk(entries, chunks, [&](int64_t k, int64_t begin, int64_t end) {
      int32_t* const own = counts + k * (tiles + 1);
      for (int64_t e = begin; e < end; ++e)
        if (keys[e] < key_end()) ++own[keys[e] < 0 ? 0 : (keys[e] >> 32) + 1];
    });
    int32_t place = 0;
    for (int64_t t = 0; t <= tiles; ++t) {
      if (t > 0) offsets[t - 1] = place;
      for (int64_t k = 0; k < chunks; ++k)
        place += std::exchange(counts[k * (tiles + 1) + t], place);
    }
    const int64_t used = place, first = tiles > 0 ? offsets[0] : used;
    each_chunk(entries, chunks, [&](int64_t k, int64_t begin, int64_t end) {
      int32_t* const own = counts + k * (tiles + 1);
      for (int64_t e = begin; e < end; ++e)
        if (keys[e] >= 0 && keys[e] < key_end())
          ranked[own[(keys[e] >> 32) + 1]++] =
              static_cast<uint64_t>(keys[e]) << 32 | static_cast<uint64_t>(e);
    });
    std::fill_n(sorted, first, -1);
    std::fill_n(sorted + used, entries - used, -1);
    parallel_for(tiles, 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t from = offsets[t], to = t + 1 < tiles ? offsets[t + 1] : used;
        const Ranked* const now = radix_sort(ranked + from, ranked + entries + from, to - from, 32,
                                             [](Ranked r) { return r >> 32; });
        for (int64_t i = from; i < to; ++i) sorted[i] = ids[now[i - from] & 0xFFFFFFFFu];
      }
    });
  }
};

}  // namespace

sdk::Kernel make_splat_bin(const sdk::op::splat_bin& n, const sdk::Node&) {
  const tenon_dtype t = n.means2d.type().dtype;
  if (t == TENON_DTYPE_F32) return bin<float>(n);
  if (t == TENON_DTYPE_F64) return bin<double>(n);
  throw sdk::Refusal::dtype("means2d", t);
}

sdk::Kernel make_splat_sort(const sdk::op::splat_sort& n, const sdk::Node&) {
  const SplatGrid g{
      .images = n.images, .points = 0, .width = n.width, .height = n.height, .size = n.tile};
  const int64_t entries = n.keys.type().dims[0], tiles = g.tiles();
  // Counts take less memory than the entries, unless one chunk does not.
  const int64_t affordable = std::max<int64_t>(4 * entries / (tiles + 1), 1);
  const Sort sort{entries, tiles, std::min(chunks_of(entries), affordable)};
  sdk::Kernel kernel{.scratch = sort.scratch()};
  kernel.run = [=, keys = n.keys.position(), ids = n.ids.position()](const sdk::Call& c) {
    sort.run(c.in<int64_t>(keys), c.in<int32_t>(ids), static_cast<char*>(c.scratch),
             c.out<int32_t>(0), c.out<int32_t>(1));
  };
  return kernel;
}

}  // namespace tenon::cpu
