// SPDX-License-Identifier: Apache-2.0
// The record of spectrum_peaks: specification 11.2. Peaks are found by comparisons of neighbours;
// distances and prominences take a loop.
#include "ops/control.hpp"
#include "ops/padded.hpp"
#include "ops/spectrum.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

void spectrum_peaks_shape(Infer& i, const op::spectrum_peaks& n) {
  const Type& x = i.type(n.x);
  const bool complex = is_complex(x.dtype);
  if (!complex && x.dtype != kF32 && x.dtype != kF64)
    i.fail(Code::dtype_mismatch, "operand x: expected f32, f64, c64 or c128, got ", x.text());
  i.want_rank(n.x, "x", complex ? 3 : 2);
  if (complex && x.shape[1] < 1)
    i.fail(Code::invalid_argument, "operand x: expected at least one segment, got ", x.text());
  peaks_shape(i, n, complex ? sdk::part_dtype(x.dtype) : x.dtype, x.shape[0],
              x.shape[complex ? 2 : 1]);
}

// ---- the peaks of x [B, F], as a mask

class Finder {
 public:
  Finder(Builder& builder, Value spectrum)
      : b(builder),
        x(spectrum),
        shape(b.shape(x)),
        at(b.expand(b.iota({1, width()}, 1, kI64), shape)) {}

  Value maxima();
  Value apart(Value mask, int64_t distance);
  Value prominent(Value mask, double least);

 private:
  int64_t width() const { return shape[1]; }
  Value from(Builder& g, Value data, Value indices) const {
    return g.add(op::gather_elements{.axis = 1, .data = data, .indices = indices});
  }
  Value put(Value updates, Value indices) {
    return b.add(op::scatter_elements_add{
        .axis = 1, .shape = {shape[0], shape[1]}, .updates = updates, .indices = indices});
  }
  Value lowest_up_to(Value mask, int64_t direction);

  Builder& b;
  Value x;
  Shape shape;
  Value at;  // the place of each element
};

// A peak is a run of equal numbers between smaller ones; it is in the middle of the run.
Value Finder::maxima() {
  const Value none = b.full({kBool, {shape[0], 1}}, 0);
  const Value before = b.narrow(x, 1, 0, width() - 1), after = b.narrow(x, 1, 1, width() - 1);
  const Value begins = b.concat({none, b.compare("ne", before, after)}, 1);
  const Value rises = b.concat({none, b.compare("lt", before, after)}, 1);
  const Value run = b.add(op::cumsum{.axis = 1, .x = b.cast(begins, kI64)});
  const Value one = b.scalar_int(kI64, 1);
  const Value length = from(b, put(b.expand(b.reshape(one, {1, 1}), shape), run), run);
  const Value last = b.scalar_int(kI64, width() - 1);
  const Value next = b.plus(at, length);
  const Value falls = b.compare("lt", from(b, x, b.min(next, last)), x);
  const Value peak = b.logical("and", rises, b.logical("and", b.compare("le", next, last), falls));
  const Value middle = b.plus(at, b.binary("div", b.minus(length, one), b.scalar_int(kI64, 2)));
  return b.compare("gt", put(b.cast(peak, kI64), b.where(peak, middle, at)), b.scalar_int(kI64, 0));
}

// Runs `step` while any flag of the first carried value [B, F] is true, at most F times: each step
// closes a flag of a row, or moves by a bin. Returns the carried values.
using Step = std::vector<Value> (*)(Builder& b, std::span<const Value> carry,
                                    std::span<const Value> captured, int64_t parameter);
Results while_any(Builder& b, std::vector<Value> carry, std::vector<Value> captured,
                  int64_t parameter, Step step) {
  const Control loop{.kind = Control::Kind::loop,
                     .carry = carry,
                     .captured = captured,
                     .trips = b.shape(carry[0])[1]};
  return add_while(
      b, loop,
      [](Builder& in, std::span<const Value> now) {
        return in.reduce("any", now[0], {0, 1}, false);
      },
      [&](Builder& in, std::span<const Value> now, std::span<const Value> given) {
        return step(in, now, given, parameter);
      });
}

// Keeps the best of the open peaks, and closes those that are too near, until none is open. Of equal
// peaks the last one is the best.
Value Finder::apart(Value mask, int64_t distance) {
  const Value order = b.add(op::sort{.axis = 1, .x = x})[1];
  const Value rank = put(at, order);
  const Value kept = b.full({kBool, shape}, 0);
  return while_any(
      b, {mask, kept}, {rank, at}, distance,
      [](Builder& g, std::span<const Value> carry, std::span<const Value> captured, int64_t least) {
        const Value open = carry[0], place = captured[1];
        const Value score = g.where(open, captured[0], g.scalar_int(kI64, -1));
        const Value best =
            g.logical("and", open, g.compare("eq", score, g.reduce("max", score, {1}, true)));
        const Value where =
            g.reduce("max", g.where(best, place, g.scalar_int(kI64, -1)), {1}, true);
        const Value away =
            g.compare("ge", g.unary("abs", g.minus(place, where)), g.scalar_int(kI64, least));
        return std::vector<Value>{g.logical("and", open, away), g.logical("or", carry[1], best)};
      })[1];
}

// The lowest number on the way from each peak up to a larger one, or to the end.
Value Finder::lowest_up_to(Value mask, int64_t direction) {
  return while_any(
      b, {mask, x, at}, {x}, direction,
      [](Builder& g, std::span<const Value> carry, std::span<const Value> captured,
         int64_t towards) {
        const Value spectrum = captured[0];
        const int64_t end = g.shape(spectrum)[1] - 1;
        const Value place = g.plus(carry[2], g.scalar_int(kI64, towards));
        const Value there = g.min(g.max(place, g.scalar_int(kI64, 0)), g.scalar_int(kI64, end));
        const Value v = g.add(op::gather_elements{.axis = 1, .data = spectrum, .indices = there});
        const Value goes = g.logical(
            "and", carry[0],
            g.logical("and", g.compare("eq", place, there), g.compare("le", v, spectrum)));
        return std::vector<Value>{goes, g.where(goes, g.min(carry[1], v), carry[1]), place};
      })[1];
}
Value Finder::prominent(Value mask, double least) {
  const Value base = b.max(lowest_up_to(mask, -1), lowest_up_to(mask, 1));
  return b.logical("and", mask, b.compare("ge", b.minus(x, base), least));
}

// ---- decomposition

struct Peaks {
  Value index, power, count;  // i64 [B, k], [B, k], i64 [B]
};

Peaks top_bins(Builder& b, const op::spectrum_peaks& n, Value x) {
  // NaN comes last.
  const Value order = b.add(op::sort{.axis = 1, .x = b.neg(x)})[1];
  const Value index = b.narrow(order, 1, 0, n.k);
  const Value power = b.add(op::gather_elements{.axis = 1, .data = x, .indices = index});
  return {index, power, b.expand(b.reshape(b.scalar_int(kI64, n.k), {1}), {b.shape(x)[0]})};
}

Peaks local_maxima(Builder& b, const op::spectrum_peaks& n, Value x) {
  const Shape shape = b.shape(x);
  const DType t = b.dtype(x);
  const Value none = b.scalar_int(kI64, -1), zero = b.scalar(t, 0);
  if (shape[1] < 3)  // the first and the last bin are no peaks
    return {b.expand(b.reshape(none, {1, 1}), {shape[0], n.k}), b.zeros({t, {shape[0], n.k}}),
            b.zeros({kI64, {shape[0]}})};
  Finder finder(b, x);
  Value mask = finder.maxima();
  if (!is_unset(n.height)) mask = b.logical("and", mask, b.compare("ge", x, n.height));
  if (n.min_distance > 1) mask = finder.apart(mask, n.min_distance);
  if (n.prominence > 0) mask = finder.prominent(mask, n.prominence);
  // A peak is larger than some number, so it is not -inf.
  const Value lowest = b.scalar(t, -std::numeric_limits<double>::infinity());
  const Results best =
      b.add(op::topk{.k = std::min(n.k, shape[1]), .axis = 1, .x = b.where(mask, x, lowest)});
  const Value there = b.compare("gt", best[0], lowest);
  Value index = b.where(there, best[1], none), power = b.where(there, best[0], zero);
  const Value count = b.sum(b.cast(there, kI64), {1}, false);
  if (const int64_t more = n.k - shape[1]; more > 0) {
    index = b.concat({index, b.expand(b.reshape(none, {1, 1}), {shape[0], more})}, 1);
    power = b.concat({power, b.zeros({t, {shape[0], more}})}, 1);
  }
  return {index, power, count};
}

Value powers(Builder& b, Value x) {
  if (!is_complex(b.dtype(x))) return x;
  return b.mean(b.add(op::complex_norm_sq{.x = x}), {1}, false);
}

bool spectrum_peaks_lower(Lower& l, const op::spectrum_peaks& n) {
  Builder& b = l.b;
  const Value x = powers(b, n.x);
  const Peaks p = n.select == "top_bins" ? top_bins(b, n, x) : local_maxima(b, n, x);
  l.out(0, b.cast(p.index, kI32));
  l.out(1, p.power);
  l.out(2, b.cast(p.count, kI32));
  return true;
}

// Powers pass their gradients to their bins.
void spectrum_peaks_grad(Grad& g, const op::spectrum_peaks& n) {
  const Value dy = g.dy(1);
  if (!dy || !g.wants(n.x)) return;
  Builder& b = g.b;
  const Shape shape = b.shape(n.x);
  const bool complex = is_complex(b.dtype(n.x));
  const int64_t width = shape[complex ? 2 : 1];
  const Value index = b.cast(g.y(0), kI64);
  const Value outside = b.scalar_int(kI64, width);
  Value dx = b.add(op::scatter_elements_add{
      .axis = 1,
      .shape = {shape[0], width},
      .oob = "skip",
      .updates = dy,
      .indices = b.where(b.compare("lt", index, b.scalar_int(kI64, 0)), outside, index)});
  if (complex) {
    dx = b.times(b.reshape(dx, {shape[0], 1, width, 1}), 2 / static_cast<double>(shape[1]));
    dx = b.as_complex(b.times(b.as_real(n.x), dx));
  }
  g.give(n.x, dx);
}

constexpr Record<op::spectrum_peaks> kPeaks{.shape = spectrum_peaks_shape,
                                            .words = {{"select", "local_maxima top_bins"}},
                                            .grad = spectrum_peaks_grad,
                                            .lower = spectrum_peaks_lower,
                                            .padded = padded_examples<op::spectrum_peaks>,
                                            .flops = no_products,
                                            .bytes = each_once};

}  // namespace

constinit const OpRecord spectrum_peaks_def = record<op::spectrum_peaks, kPeaks>();

}  // namespace tenon::core
