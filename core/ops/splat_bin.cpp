// SPDX-License-Identifier: Apache-2.0
// Records of splat_bin and splat_sort: the list of entries, one for each tile that a Gaussian
// touches. The key of an entry is its tile in the high 32 bits and the bits of its depth as f32 in
// the low ones; positive floats have the order of their bits.
#include <cmath>
#include <limits>

#include "ops/splat.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr int64_t kUnusedKey = std::numeric_limits<int64_t>::max();

// ---- shape

void splat_bin_shape(Infer& i, const op::splat_bin& n) {
  i.want_dtype(n.radii, "radii", kI32);
  i.want_rank(n.radii, "radii", 2);
  const Dim images = i.shape(n.radii)[0], points = i.shape(n.radii)[1];
  want_f32_or_f64(i, n.means2d, "means2d");
  i.want_shape(n.means2d, "means2d", {images, points, 2});
  i.want_same_dtype(n.depths, "depths", n.means2d, "means2d");
  i.want_shape(n.depths, "depths", {images, points});
  want_tiles(i, images, n);
  want_ids(i, images, points);
  want_capacity(i, n.max_intersections);
  i.out(0, {kI64, {n.max_intersections}});
  i.out(1, {kI32, {n.max_intersections}});
  i.out(2, {kI64, {}});
}

void splat_sort_shape(Infer& i, const op::splat_sort& n) {
  i.want_dtype(n.keys, "keys", kI64);
  i.want_rank(n.keys, "keys", 1);
  i.want_dtype(n.ids, "ids", kI32);
  i.want_shape(n.ids, "ids", i.shape(n.keys));
  if (n.images < 0)
    i.fail(Code::invalid_argument, "attribute images: expected a number >= 0, given ", n.images);
  const Tiles tiles = want_tiles(i, n.images, n);
  const int64_t entries = i.shape(n.keys)[0];
  if (entries > std::numeric_limits<int32_t>::max())
    i.fail(Code::invalid_argument, "operand keys: expected at most 2^31 - 1 entries, got ",
           entries);
  i.out(0, i.type(n.ids));
  i.out(1, {kI32, tiles.shape()});
}

// ---- decomposition

// The bits of positive floats, as i64. The exponent is found by exact products with powers of two.
Value bits_of(Builder& b, Value x) {
  const Value zero = b.scalar_int(kI64, 0);
  const auto power = [&](int exponent) { return b.scalar(kF32, std::ldexp(1.0, exponent)); };
  constexpr int kBits = 23, kBias = 127;
  const Value tiny = b.compare("lt", x, power(1 - kBias));  // subnormal: a multiple of 2^-149
  const Value units = b.cast(b.times(b.times(x, power(kBits)), power(kBias - 1)), kI64);
  Value rest = b.where(tiny, b.scalar(kF32, 1), x), exponent = zero;
  const auto scale = [&](Value where, int by) {
    rest = b.where(where, b.times(rest, power(by)), rest);
    exponent = b.where(where, b.minus(exponent, b.scalar_int(kI64, by)), exponent);
  };
  for (int step = 64; step >= 1; step /= 2) {
    scale(b.compare("lt", rest, power(1 - step)), step);
    scale(b.compare("ge", rest, power(step)), -step);
  }
  // rest is in [1, 2).
  const Value fraction = b.cast(b.times(b.minus(rest, 1), power(kBits)), kI64);
  const Value high =
      b.times(b.plus(exponent, b.scalar_int(kI64, kBias)), b.scalar_int(kI64, int64_t{1} << kBits));
  return b.where(tiny, units, b.plus(high, fraction));
}

// The tiles that the boxes of Gaussians touch along an axis: i64 [N].
struct Span {
  Value begin, length;
};
Span span_of(Builder& b, Value centre, Value radius, int64_t size, int64_t tiles) {
  const DType t = b.dtype(centre);
  const auto clamped = [&](Value v) {
    return b.cast(b.max(b.min(v, b.scalar(t, static_cast<double>(tiles))), b.scalar(t, 0)), kI64);
  };
  const auto tile = static_cast<double>(size);
  const Value begin = clamped(b.unary("floor", b.over(b.minus(centre, radius), tile)));
  const Value end = clamped(b.unary("ceil", b.over(b.plus(centre, radius), tile)));
  return {begin, b.minus(end, begin)};
}

bool splat_bin_lower(Lower& l, const op::splat_bin& n) {
  Builder& b = l.b;
  const Shape pairs = b.shape(n.radii);
  const Tiles tiles = tiles_of(pairs[0], n);
  const int64_t all = pairs[0] * pairs[1], entries = n.max_intersections;
  const auto number = [&](int64_t v) { return b.scalar_int(kI64, v); };
  const auto no = [&](Value v) { return b.logical("not", v); };
  if (all == 0) {
    l.out(0, b.expand(b.reshape(number(kUnusedKey), {1}), {entries}));
    l.out(1, b.expand(b.reshape(b.scalar_int(kI32, -1), {1}), {entries}));
    l.out(2, number(0));
    return true;
  }

  // Visible: a radius above 0, a finite centre and a depth whose f32 is positive and finite.
  const DType t = b.dtype(n.means2d);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto column = [&](int64_t k) { return b.reshape(b.narrow(n.means2d, 2, k, 1), {all}); };
  const Value depth = b.cast(b.reshape(n.depths, {all}), kF32);
  const Value radii = b.reshape(n.radii, {all});
  Value seen = b.compare("gt", radii, b.scalar_int(kI32, 0));
  const auto keep = [&](Value condition) { seen = b.logical("and", seen, condition); };
  keep(b.compare("gt", depth, 0));
  keep(b.compare("lt", depth, kInf));
  for (int64_t k = 0; k < 2; ++k) keep(b.compare("lt", b.unary("abs", column(k)), kInf));
  const auto centre = [&](int64_t k) { return b.where(seen, column(k), b.scalar(t, 0)); };
  const Value radius = b.cast(radii, t);
  const Span x = span_of(b, centre(0), radius, n.tile, tiles.columns());
  const Span y = span_of(b, centre(1), radius, n.tile, tiles.rows());
  const Value counts = b.where(seen, b.times(x.length, y.length), number(0));
  const Value ends = b.add(op::cumsum{.axis = 0, .x = counts});
  // The read fails if there are more entries than the capacity.
  const Value total = b.add(
      op::gather{.data = b.iota({entries + 1}, 0, kI64), .indices = b.narrow(ends, 0, all - 1, 1)});

  // The Gaussian of each entry: the number of Gaussians whose entries end before or there.
  const Value ones = b.expand(b.reshape(number(1), {1}), {all});
  const Value closed =
      b.add(op::scatter_add{.dim = entries, .oob = "skip", .updates = ones, .indices = ends});
  const Value owner = b.min(b.add(op::cumsum{.axis = 0, .x = closed}), number(all - 1));
  const auto of_owner = [&](Value v) { return b.add(op::gather{.data = v, .indices = owner}); };
  const Value slot = b.iota({entries}, 0, kI64), used = b.compare("lt", slot, total);
  const Value place = b.minus(slot, of_owner(b.minus(ends, counts)));
  const Value wide = b.max(of_owner(x.length), number(1));
  const Value column_of = b.plus(of_owner(x.begin), b.binary("mod", place, wide));
  const Value row_of = b.plus(of_owner(y.begin), b.binary("div", place, wide));
  const Value image = b.binary("div", owner, number(pairs[1]));
  const Value tile =
      b.plus(b.times(b.plus(b.times(image, number(tiles.rows())), row_of), number(tiles.columns())),
             column_of);
  const Value safe = b.where(seen, depth, b.scalar(kF32, 1));
  const Value key = b.plus(b.times(tile, number(int64_t{1} << 32)), of_owner(bits_of(b, safe)));
  l.out(0, b.where(no(used), number(kUnusedKey), key));
  l.out(1, b.where(used, b.cast(owner, kI32), b.scalar_int(kI32, -1)));
  l.out(2, b.reshape(total, {}));
  return true;
}

bool splat_sort_lower(Lower& l, const op::splat_sort& n) {
  Builder& b = l.b;
  const Tiles tiles = tiles_of(n.images, n);
  const auto number = [&](int64_t v) { return b.scalar_int(kI64, v); };
  const int64_t entries = b.shape(n.keys)[0], high = int64_t{1} << 32;
  const Value end = number(tiles.count() * high);
  const Results sorted = b.add(op::sort{.axis = 0, .x = n.keys});
  if (entries > 0) {
    const Value inside =
        b.logical("and", b.compare("ge", sorted[0], number(0)), b.compare("lt", sorted[0], end));
    const Value ids = b.add(op::gather{.data = n.ids, .indices = sorted[1]});
    l.out(0, b.where(inside, ids, b.scalar_int(kI32, -1)));
  } else {
    l.out(0, n.ids);
  }
  if (tiles.count() == 0 || entries == 0) {
    l.out(1, b.zeros({kI32, tiles.shape()}));
    return true;
  }
  // Entries of tile k count for the offsets from k + 1 on; those of negative keys for all.
  const Value next = b.plus(b.binary("div", n.keys, number(high)), number(1));
  const Value from = b.where(b.compare("lt", n.keys, number(0)), number(0), next);
  const Value ones = b.expand(b.reshape(number(1), {1}), {entries});
  const Value counts =
      b.add(op::scatter_add{.dim = tiles.count(), .oob = "skip", .updates = ones, .indices = from});
  const Value offsets = b.add(op::cumsum{.axis = 0, .x = counts});
  l.out(1, b.reshape(b.cast(offsets, kI32), tiles.shape()));
  return true;
}

// Neither has a gradient: all results are integers.
constexpr Record<op::splat_bin> kBin{.shape = splat_bin_shape,
                                     .lower = splat_bin_lower,
                                     .batch = batch_one_by_one<op::splat_bin>,
                                     .flops = no_products,
                                     .bytes = each_once,
                                     .traits = kNotDifferentiable};
constexpr Record<op::splat_sort> kSort{.shape = splat_sort_shape,
                                       .lower = splat_sort_lower,
                                       .batch = batch_one_by_one<op::splat_sort>,
                                       .flops = no_products,
                                       .bytes = each_once,
                                       .traits = kNotDifferentiable};

}  // namespace

const OpRecord splat_bin_def = record<op::splat_bin, kBin>();
const OpRecord splat_sort_def = record<op::splat_sort, kSort>();

}  // namespace tenon::core
