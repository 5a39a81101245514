// SPDX-License-Identifier: Apache-2.0
// Records of the random family: random_bits random_uniform random_normal dropout sample. They are
// pure functions of operand rng; the caller advances its offset.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/place.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- random_bits

void random_bits_shape(Infer& i, const op::random_bits& n) {
  want_rng(i, n.rng);
  i.out(0, {kU32, shape_attr(i, n.shape)});
}

// A number depends on its position in the whole tensor, so only the outermost axis may be padded.
template <class Op>
bool random_padded(Padded& p, const Op&) {
  const Shape& shape = p.result(0).shape;
  int64_t outer = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (p.result_length(0, i) && outer != 1)
      return p.refuse("its numbers depend on axes behind a padded one");
    outer *= shape[i];
  }
  return true;
}

constexpr Record<op::random_bits> kRandomBits{.shape = random_bits_shape,
                                              .padded = random_padded<op::random_bits>,
                                              .flops = no_products,
                                              .bytes = each_once};

// ---- random_uniform, random_normal

template <class Op>
void random_float_shape(Infer& i, const Op& n) {
  want_rng(i, n.rng);
  // Rounding to a half dtype could turn numbers below 1 into 1.
  if (n.dtype != kF32 && n.dtype != kF64)
    i.fail(is_float(n.dtype) ? Code::unsupported : Code::dtype_mismatch,
           "attribute dtype: expected f32 or f64, given ", dtype_name(n.dtype));
  i.out(0, {n.dtype, shape_attr(i, n.shape)});
}

// Converts two u32 words to an f64 in [0, 1).
Value wide_uniform(Builder& b, Value high, Value low) {
  const Value a = b.cast(b.over(high, b.scalar_int(kU32, 1 << 5)), kF64);
  const Value c = b.cast(b.over(low, b.scalar_int(kU32, 1 << 6)), kF64);
  return b.times(b.plus(b.times(a, 0x1p26), c), 0x1p-53);
}

bool random_uniform_lower(Lower& l, const op::random_uniform& n) {
  Builder& b = l.b;
  if (n.dtype == kF64) {
    const Shape shape{std::span<const Dim>(n.shape)};
    const int64_t count = shape.elements();
    const Value words = b.add(op::random_bits{.shape = {count, 2}, .rng = n.rng});
    const Value u = wide_uniform(b, b.narrow(words, 1, 0, 1), b.narrow(words, 1, 1, 1));
    l.out(0, b.reshape(u, shape));
    return true;
  }
  const Value words = b.add(op::random_bits{.shape = n.shape, .rng = n.rng});
  const Value top = b.over(words, b.scalar_int(kU32, 1 << 8));
  l.out(0, b.times(b.cast(top, kF32), 0x1p-24));
  return true;
}

constexpr Record<op::random_uniform> kRandomUniform{.shape = random_float_shape<op::random_uniform>,
                                                    .words = {{"dtype", "f32 f64"}},
                                                    .lower = random_uniform_lower,
                                                    .padded = random_padded<op::random_uniform>,
                                                    .flops = no_products,
                                                    .bytes = each_once};

// Cosine and sine of the fraction u of a full turn. The turn is reduced to an eighth before it
// becomes an angle, so that both are accurate near their zeros.
std::pair<Value, Value> cos_sin_turn(Builder& b, Value u) {
  const Value quarter = b.unary("round", b.times(u, 4.0));
  const Value angle = b.times(b.minus(u, b.times(quarter, 0.25)), 2 * std::numbers::pi);
  const Value c = b.unary("cos", angle), s = b.unary("sin", angle);
  const Value one = b.compare("eq", quarter, 1.0), two = b.compare("eq", quarter, 2.0);
  const Value odd = b.logical("or", one, b.compare("eq", quarter, 3.0));
  const Value x = b.where(odd, s, c), y = b.where(odd, c, s);
  const Value left = b.logical("or", one, two);
  const Value below = b.logical("or", two, b.compare("eq", quarter, 3.0));
  return {b.where(left, b.neg(x), x), b.where(below, b.neg(y), y)};
}

// Box-Muller: elements 2j and 2j + 1 are the cosine and sine of uniforms 2j and 2j + 1.
bool random_normal_lower(Lower& l, const op::random_normal& n) {
  Builder& b = l.b;
  const Shape shape{std::span<const Dim>(n.shape)};
  const int64_t count = shape.elements(), pairs = (count + 1) / 2;
  const Value u = b.add(op::random_uniform{.shape = {pairs, 2}, .dtype = n.dtype, .rng = n.rng});
  const Value u1 = b.minus(b.scalar(n.dtype, 1), b.narrow(u, 1, 0, 1));  // in (0, 1]
  const Value radius = b.unary("sqrt", b.times(b.log(u1), -2.0));
  const auto [cos, sin] = cos_sin_turn(b, b.narrow(u, 1, 1, 1));
  const Value both = b.concat({b.times(radius, cos), b.times(radius, sin)}, 1);
  l.out(0, b.reshape(b.narrow(b.reshape(both, {2 * pairs}), 0, 0, count), shape));
  return true;
}

constexpr Record<op::random_normal> kRandomNormal{.shape = random_float_shape<op::random_normal>,
                                                  .words = {{"dtype", "f32 f64"}},
                                                  .lower = random_normal_lower,
                                                  .padded = random_padded<op::random_normal>,
                                                  .flops = no_products,
                                                  .bytes = each_once};

// ---- dropout

void dropout_shape(Infer& i, const op::dropout& n) {
  i.want_float(n.x, "x");
  want_rng(i, n.rng);
  if (!(n.p >= 0 && n.p < 1))
    i.fail(Code::invalid_argument, "attribute p: expected one in [0, 1), given ", n.p);
  i.out(0, i.type(n.x));
}

void dropout_grad(Grad& g, const op::dropout& n) {
  if (g.wants(n.x)) g.give(n.x, g.b.add(op::dropout{.p = n.p, .x = g.dy(), .rng = n.rng}));
}

// The draw is f32 for every dtype of x, so that the mask does not depend on the dtype.
bool dropout_lower(Lower& l, const op::dropout& n) {
  Builder& b = l.b;
  const Type type = b.type(n.x);
  const Value u = b.add(op::random_uniform{
      .shape = Ints(type.shape.begin(), type.shape.end()), .dtype = kF32, .rng = n.rng});
  const Value scaled = b.over(b.widen(n.x), 1 - n.p);
  const Value y = b.where(b.compare("ge", u, n.p), scaled, b.scalar(acc_dtype(type.dtype), 0));
  l.out(0, b.cast(y, type.dtype));
  return true;
}

constexpr Record<op::dropout> kDropout{.shape = dropout_shape,
                                       .grad = dropout_grad,
                                       .lower = dropout_lower,
                                       .padded = random_padded<op::dropout>,
                                       .flops = no_products,
                                       .bytes = each_once};

// ---- sample

void sample_shape(Infer& i, const op::sample& n) {
  i.want_float(n.logits, "logits");
  i.want_rank(n.logits, "logits", 2);
  want_rng(i, n.rng);
  if (!(n.temperature >= 0 && std::isfinite(n.temperature)))
    i.fail(Code::invalid_argument, "attribute temperature: expected one >= 0, given ",
           n.temperature);
  if (n.top_k < 0)
    i.fail(Code::invalid_argument, "attribute top_k: expected 0 (off) or more, given ", n.top_k);
  if (std::isnan(n.top_p))
    i.fail(Code::invalid_argument, "attribute top_p: expected a number, given ", n.top_p);
  if (!(n.min_p >= 0 && n.min_p <= 1))
    i.fail(Code::invalid_argument, "attribute min_p: expected one in [0, 1], given ", n.min_p);
  const Shape& logits = i.shape(n.logits);
  if (logits[1] == 0 && logits[0] > 0)
    i.fail(Code::shape_mismatch, "operand logits: expected at least one column, got ",
           i.type(n.logits).text());
  i.out(0, {kI64, {logits[0]}});
  i.out(1, {kF32, {logits[0]}});
}

// The weights e^(x - max) of the columns that pass the filters, 0 for the others; f32, in index
// order.
Value kept_weights(Builder& b, const op::sample& n, Value logits, Value top) {
  const int64_t columns = b.shape(logits)[1];
  // Subtracts first, then divides by a number that f32 represents: x stays <= 0, so nothing
  // overflows.
  const double temperature = std::max(n.temperature, 1e-30);
  const auto weigh = [&](Value x) { return b.exp(b.over(b.minus(x, top), temperature)); };
  const Value zero = b.scalar(kF32, 0);
  const bool by_count = n.top_k > 0 && n.top_k < columns, by_mass = n.top_p < 1;
  Value weights, order;
  if (by_count || by_mass) {
    const auto sorted = b.add(op::sort{.axis = 1, .descending = true, .x = logits});
    const int64_t count = by_count ? n.top_k : columns;
    order = b.narrow(sorted[1], 1, 0, count);
    weights = weigh(b.narrow(sorted[0], 1, 0, count));
    if (by_mass) {
      const Value p = b.over(weights, b.sum(weights, {1}));
      const Value before = b.add(op::cumsum{.axis = 1, .exclusive = true, .x = p});
      const Value first = b.compare("eq", b.iota({1, count}, 1, kI64), b.scalar_int(kI64, 0));
      const Value keep = b.logical("or", b.compare("lt", before, n.top_p), first);
      weights = b.where(keep, weights, zero);
    }
  } else {
    weights = weigh(logits);
  }
  // The largest weight is 1, and p preserves the ratios of the weights.
  if (n.min_p > 0) weights = b.where(b.compare("ge", weights, n.min_p), weights, zero);
  return order ? put_along(b, weights, order, 1, columns) : weights;
}

bool sample_lower(Lower& l, const op::sample& n) {
  Builder& b = l.b;
  const Shape shape = b.shape(n.logits);
  const int64_t rows = shape[0], columns = shape[1];
  if (columns == 0) {  // then there are no rows
    l.out(0, b.zeros({kI64, {0}}));
    l.out(1, b.zeros({kF32, {0}}));
    return true;
  }
  const Value logits = b.cast(n.logits, kF32);
  const Value top = b.reduce("max", logits, {1}, true);
  Value ids, logprob;
  if (n.temperature == 0) {
    ids = b.add(op::argmax{.axis = 1, .x = logits});
    logprob = b.zeros({kF32, {rows}});
  } else {
    const Value weights = b.cast(kept_weights(b, n, logits, top), kF64);
    const Value sums = b.add(op::cumsum{.axis = 1, .x = weights});
    const Value drawable = b.compare("gt", weights, 0.0);
    const Value total = b.reduce("max", b.where(drawable, sums, b.scalar(kF64, 0)), {1}, true);
    // Row i uses block i of the generator.
    const Value words = b.add(op::random_bits{.shape = {rows, 4}, .rng = n.rng});
    const Value u = wide_uniform(b, b.narrow(words, 1, 0, 1), b.narrow(words, 1, 1, 1));
    const Value past = b.compare("gt", sums, b.times(u, total));
    const Value position = b.iota({1, columns}, 1, kI64);
    const Value id = b.reduce(
        "min", b.where(b.logical("and", past, drawable), position, b.scalar_int(kI64, columns)),
        {1}, true);
    const Value drawn =
        b.sum(b.where(b.compare("eq", position, id), weights, b.scalar(kF64, 0)), {1});
    ids = b.reshape(id, {rows});
    logprob = b.reshape(b.cast(b.log(b.over(drawn, total)), kF32), {rows});
  }
  // A row with NaN, +inf or no finite logit must fail. Primitives have no error of their own to
  // raise, so such a row gathers its result from past the end: the run reports index_out_of_range
  // where a native kernel says numeric_error.
  const Value finite = b.compare("lt", b.unary("abs", b.reshape(top, {rows})),
                                 std::numeric_limits<double>::infinity());
  const Value row = b.where(finite, b.iota({rows}, 0, kI64), b.scalar_int(kI64, rows));
  l.out(0, b.add(op::gather{.data = ids, .indices = row}));
  if (l.wanted(1)) l.out(1, b.add(op::gather{.data = logprob, .indices = row}));
  return true;
}

// Rows of padding are drawn too, from logits that are fine.
bool sample_padded(Padded& p, const op::sample& n) {
  if (p.along(n.logits, -1)) return p.refuse("its choices are padded");
  p.fill_all(n.logits, Fill::zero);
  return random_padded(p, n);
}

constexpr Record<op::sample> kSample{.shape = sample_shape,
                                     .lower = sample_lower,
                                     .padded = sample_padded,
                                     .flops = no_products,
                                     .bytes = each_once,
                                     .traits = kNotDifferentiable};

}  // namespace

const OpRecord random_bits_def = record<op::random_bits, kRandomBits>();
const OpRecord random_uniform_def = record<op::random_uniform, kRandomUniform>();
const OpRecord random_normal_def = record<op::random_normal, kRandomNormal>();
const OpRecord dropout_def = record<op::dropout, kDropout>();
const OpRecord sample_def = record<op::sample, kSample>();

}  // namespace tenon::core
