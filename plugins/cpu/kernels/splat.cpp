// SPDX-License-Identifier: Apache-2.0
// splat_rasterize splat_rasterize_backward. Threads share the tiles; each entry of a tile has its own
// place for gradients, which are added up for each Gaussian in the order of the entries.
#include "splat.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "../kernels.hpp"
#include "../parallel.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The distance from the mean beyond which no power is within `reach`, along x and along y.
struct Reach {
  double x, y;
};
// Along rays, the pixels within `reach` fill an ellipse whose centre is not the mean:
//   form <= r·(1 + p·dx + q·dy)², r = reach/(1 - 2·near·reach).
Reach ray_reach(double a, double b, double c, double p, double q, double near, double reach) {
  constexpr double kAll = std::numeric_limits<double>::infinity();
  const double rest = 1 - 2 * near * reach;
  if (!(rest > 0)) return {kAll, kAll};  // the camera is inside the Gaussian
  const double r = reach / rest;
  const double xx = a / 2 - r * p * p, xy = b / 2 - r * p * q, yy = c / 2 - r * q * q;
  const double det = xx * yy - xy * xy;
  if (!(xx > 0) || !(det > 0)) return {kAll, kAll};                               // no ellipse
  const double x = r * (yy * p - xy * q) / det, y = r * (xx * q - xy * p) / det;  // the centre
  const double size = r * (1 + p * x + q * y);
  return {std::abs(x) + std::sqrt(size * yy / det), std::abs(y) + std::sqrt(size * xx / det)};
}

template <class T>
SplatPair<T> prepare(const T* mean, const T* conic, T opacity, bool rays) {
  const double a = conic[0], b = conic[1], c = conic[2];
  SplatPair<T> p{.x = mean[0],
                 .y = mean[1],
                 .ratio = 0,
                 .square = conic[0] / 2,
                 .mixed = conic[1],
                 .rest = conic[2] / 2,
                 .slant = conic[1],
                 .opacity = opacity,
                 .reach = -1,
                 .half_x = std::numeric_limits<T>::infinity(),
                 .half_y = std::numeric_limits<T>::infinity()};
  // A little more than ln(255·opacity), because powers are rounded.
  constexpr double kMargin = 1e-3;
  if (!(opacity > 0) || !std::isfinite(opacity)) return p;
  const double reach = std::log(255.0 * static_cast<double>(opacity)) + kMargin;
  p.reach = static_cast<T>(reach);
  if (rays) p.along_x = conic[3], p.along_y = conic[4], p.near = conic[5];
  if (!(a > 0)) return p;
  // a·c - b² with the rounding error of b² added.
  const double square = b * b, error = std::fma(-b, b, square);
  const double det = std::fma(a, c, -square) + error;
  p.ratio = b / a;
  p.mixed = 0;
  p.rest = static_cast<T>(det / a / 2);
  if (det > 0) {
    const Reach most = rays ? ray_reach(a, b, c, conic[3], conic[4], conic[5], reach)
                            : Reach{std::sqrt(2 * reach * c / det), std::sqrt(2 * reach * a / det)};
    p.half_x = static_cast<T>(most.x * (1 + 1e-5));
    p.half_y = static_cast<T>(most.y * (1 + 1e-5));
    for (T* half : {&p.half_x, &p.half_y})
      if (std::isnan(*half)) *half = std::numeric_limits<T>::infinity();
  }
  return p;
}

// The operands, by their positions, and the scratch of both ops.
struct Raster {
  SplatGrid grid;
  int64_t entries;
  int slots;
  int means2d, conics, colors, opacities, offsets, ids, background;

  // Throws Failure if an id or an offset is out of range. Returns the number of entries up to the
  // last one that is used.
  int64_t check(const sdk::Call& c) const {
    const int32_t* const id = c.in<int32_t>(ids);
    const int32_t* const offset = c.in<int32_t>(offsets);
    const auto first_bad = [](int64_t count, auto&& bad) {
      std::atomic<int64_t> first{count};
      parallel_for(count, grain_for(4), [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end && k < first.load(std::memory_order_relaxed); ++k) {
          if (!bad(k)) continue;
          int64_t seen = first.load();
          while (k < seen && !first.compare_exchange_weak(seen, k)) {
          }
          return;
        }
      });
      return first.load();
    };
    const auto fail = [](const std::string& text, int64_t at) {
      throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE, text, at);
    };
    const int64_t tiles = grid.tiles();
    if (const int64_t k = first_bad(tiles,
                                    [&](int64_t t) {
                                      return offset[t] < (t > 0 ? offset[t - 1] : 0) ||
                                             offset[t] > entries;
                                    });
        k < tiles)
      fail("operand tile_offsets: expected numbers from 0 to " + std::to_string(entries) +
               " that do not decrease, got " + std::to_string(offset[k]) + " at position " +
               std::to_string(k),
           k);
    const int64_t pairs = grid.pairs();
    if (const int64_t k =
            first_bad(entries, [&](int64_t e) { return id[e] < -1 || id[e] >= pairs; });
        k < entries)
      fail("operand ids: expected numbers from -1 to " + std::to_string(pairs - 1) + ", got " +
               std::to_string(id[k]) + " at position " + std::to_string(k),
           k);
    int64_t used = entries;
    while (used > 0 && id[used - 1] < 0) --used;
    return used;
  }

  template <class T>
  int64_t pair_bytes() const {
    return aligned(grid.pairs() * static_cast<int64_t>(sizeof(SplatPair<T>)));
  }
  template <class T>
  void prepare_all(const sdk::Call& c, SplatPair<T>* to) const {
    const T *const m = c.in<T>(means2d), *const q = c.in<T>(conics), *const o = c.in<T>(opacities);
    parallel_for(grid.pairs(), grain_for(256), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        to[k] = prepare(m + 2 * k, q + grid.conic() * k, o[k % grid.points], grid.rays);
    });
  }
  template <class T>
  SplatTile<T> tile(const sdk::Call& c, const SplatPair<T>* pairs, int64_t used, int64_t t,
                    char* area) const {
    const int32_t* const offset = c.in<int32_t>(offsets);
    const int64_t image = t / grid.each(), place = t % grid.each();
    const int64_t x = place % grid.columns() * grid.size, y = place / grid.columns() * grid.size;
    const int64_t end = t + 1 < grid.tiles() ? offset[t + 1] : entries;
    const int64_t begin = std::min<int64_t>(offset[t], used);
    const T* const behind = c.in<T>(background);
    return {.grid = grid,
            .pairs = pairs,
            .colors = c.in<T>(colors),
            .ids = c.in<int32_t>(ids),
            .begin = begin,
            .end = std::min(end, used),
            .x = static_cast<double>(x) + 0.5,
            .y = static_cast<double>(y) + 0.5,
            .rows = std::min(grid.size, grid.height - y),
            .columns = std::min(grid.size, grid.width - x),
            .background = behind ? behind + image * grid.channels : nullptr,
            .area = area,
            .pixel = (image * grid.height + y) * grid.width + x};
  }
  template <class Body>
  void each_tile(char* areas, int64_t bytes, Body&& body) const {
    parallel_for_slots(grid.tiles(), 1, slots, [&](int slot, int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) body(t, areas + slot * bytes);
    });
  }
};

template <class Op>
Raster raster_of(const Op& n) {
  const sdk::Type& means = n.means2d.type();
  if (means.dtype != TENON_DTYPE_F32 && means.dtype != TENON_DTYPE_F64)
    throw sdk::Refusal::dtype("means2d", means.dtype);
  return {.grid = {.images = means.dims[0],
                   .points = means.dims[1],
                   .width = n.width,
                   .height = n.height,
                   .size = n.tile,
                   .channels = n.colors.type().dims[2],
                   .rays = n.response == "ray3d"},
          .entries = n.ids.type().dims[0],
          .slots = widest_arena(),
          .means2d = n.means2d.position(),
          .conics = n.conics.position(),
          .colors = n.colors.position(),
          .opacities = n.opacities.position(),
          .offsets = n.tile_offsets.position(),
          .ids = n.ids.position(),
          .background = n.background.position()};
}

template <class T>
sdk::Kernel forward(const Raster& r) {
  const int64_t area = aligned(splat_area_bytes<T>(r.grid));
  sdk::Kernel kernel{.scratch = static_cast<uint64_t>(r.pair_bytes<T>() + r.slots * area)};
  kernel.run = [=](const sdk::Call& c) {
    const int64_t used = r.check(c);
    char* const scratch = static_cast<char*>(c.scratch);
    auto* const pairs = reinterpret_cast<SplatPair<T>*>(scratch);
    r.prepare_all<T>(c, pairs);
    const SplatOutputs<T> to{c.out<T>(0), c.out<T>(1), c.out<int32_t>(2)};
    r.each_tile(scratch + r.pair_bytes<T>(), area,
                [&](int64_t t, char* own) { splat_tile(r.tile<T>(c, pairs, used, t, own), to); });
  };
  return kernel;
}

sdk::Kernel make_rasterize(const sdk::op::splat_rasterize& n, const sdk::Node&) {
  const Raster r = raster_of(n);
  return n.means2d.type().dtype == TENON_DTYPE_F32 ? forward<float>(r) : forward<double>(r);
}

// ---- backward

// The outputs of splat_rasterize_backward; null where it is not wanted.
template <class T>
struct Sums {
  T *means2d, *conics, *colors, *opacities;
};

// Adds up the gradients of the entries of Gaussians [first, end) in all images.
template <class T>
void add_up(const SplatGrid& g, const int32_t* ids, int64_t begin_entry, int64_t end_entry,
            const T* gradients, int64_t first, int64_t end, const Sums<T>& to) {
  const int64_t channels = g.channels, width = g.gradients();
  const auto clear = [&](T* out, int64_t each) {
    for (int64_t i = 0; out && i < g.images; ++i)
      std::fill_n(out + (i * g.points + first) * each, (end - first) * each, T{0});
  };
  clear(to.means2d, 2), clear(to.conics, g.conic()), clear(to.colors, channels);
  if (to.opacities) std::fill_n(to.opacities + first, end - first, T{0});
  for (int64_t e = begin_entry; e < end_entry; ++e) {
    const int64_t id = ids[e];
    if (id < 0) continue;
    const int64_t point = g.images == 1 ? id : id % g.points;
    if (point < first || point >= end) continue;
    const T* const from = gradients + e * width;
    const auto add = [&](T* out, int64_t each, int64_t column) {
      for (int64_t k = 0; out && k < each; ++k) out[id * each + k] += from[column + k];
    };
    add(to.means2d, 2, 0), add(to.conics, g.conic(), 2), add(to.colors, channels, 3 + g.conic());
    if (to.opacities) to.opacities[point] += from[2 + g.conic()];
  }
}

struct BackOperands {
  int dimage, dalpha, last;
  int outs[5];  // -1 where not wanted
};

template <class T>
sdk::Kernel backward(const Raster& r, const BackOperands& n) {
  const SplatGrid g = r.grid;
  const int64_t area = aligned(splat_backward_area_bytes<T>(g)), width = g.gradients();
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  const int64_t rows = aligned(r.entries * width * kSize);
  const int64_t behind = n.outs[4] < 0 ? 0 : aligned(g.tiles() * g.channels * kSize);
  sdk::Kernel kernel{.scratch =
                         static_cast<uint64_t>(r.pair_bytes<T>() + rows + behind + r.slots * area)};
  kernel.run = [=](const sdk::Call& c) {
    const int64_t used = r.check(c);
    char* scratch = static_cast<char*>(c.scratch);
    auto* const pairs = reinterpret_cast<SplatPair<T>*>(scratch);
    T* const gradients = reinterpret_cast<T*>(scratch += r.pair_bytes<T>());
    T* const background = reinterpret_cast<T*>(scratch += rows);
    r.prepare_all<T>(c, pairs);
    r.each_tile(scratch + behind, area, [&](int64_t t, char* own) {
      const SplatTile<T> tile = r.tile<T>(c, pairs, used, t, own);
      splat_tile_backward(tile, {.dimage = c.in<T>(n.dimage),
                                 .dalpha = c.in<T>(n.dalpha),
                                 .last = c.in<int32_t>(n.last),
                                 .gradients = gradients + tile.begin * width,
                                 .dbackground = behind ? background + t * g.channels : nullptr});
    });
    const Sums<T> sums{c.out<T>(n.outs[0]), c.out<T>(n.outs[1]), c.out<T>(n.outs[2]),
                       c.out<T>(n.outs[3])};
    // Entries before the first tile belong to none.
    const int32_t* const ids = c.in<int32_t>(r.ids);
    const int64_t first = g.tiles() > 0 ? c.in<int32_t>(r.offsets)[0] : used;
    const int64_t pieces = std::min<int64_t>(cpu::width(), std::max<int64_t>(g.points, 1));
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        add_up(g, ids, first, used, gradients, g.points * k / pieces, g.points * (k + 1) / pieces,
               sums);
    });
    if (T* const to = c.out<T>(n.outs[4])) {
      for (int64_t i = 0; i < g.images; ++i)
        for (int64_t ch = 0; ch < g.channels; ++ch) {
          T sum = 0;
          for (int64_t t = i * g.each(); t < (i + 1) * g.each(); ++t)
            sum += background[t * g.channels + ch];
          to[i * g.channels + ch] = sum;
        }
    }
  };
  return kernel;
}

sdk::Kernel make_rasterize_backward(const sdk::op::splat_rasterize_backward& n, const sdk::Node&) {
  const Raster r = raster_of(n);
  BackOperands back{.dimage = n.dimage.position(),
                    .dalpha = n.dalpha.position(),
                    .last = n.last_ids.position(),
                    .outs = {}};
  const bool wanted[] = {n.want_dmeans2d, n.want_dconics, n.want_dcolors, n.want_dopacities,
                         n.want_dbackground};
  for (int k = 0; k < 5; ++k) back.outs[k] = wanted[k] ? k : -1;
  return n.means2d.type().dtype == TENON_DTYPE_F32 ? backward<float>(r, back)
                                                   : backward<double>(r, back);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::splat_sh, make_splat_sh>(),
    sdk::row<sdk::op::splat_bin, make_splat_bin>(),
    sdk::row<sdk::op::splat_sort, make_splat_sort>(),
    sdk::row<sdk::op::splat_rasterize, make_rasterize>(),
    sdk::row<sdk::op::splat_rasterize_backward, make_rasterize_backward>(),
};

}  // namespace

std::span<const sdk::Row> splat_rows() { return kRows; }

}  // namespace tenon::cpu
