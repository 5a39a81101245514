// SPDX-License-Identifier: Apache-2.0
// How each form of the planner is spelled, with the mutations that are its own.
#pragma once

#include <cmath>
#include <numbers>
#include <numeric>

#include "random_form.hpp"

namespace tenon::test {

using S = Spelling;

// ---- parts of several forms

// Is anything left of the axes but this one? Where not, it does not matter which one is meant.
inline Effect breaks_if(bool differs) { return differs ? Effect::breaks : Effect::may; }

// Folds one axis, which stays as 1.
inline Value folded(S& s, const char* kind, Value x, int axis) {
  const Dims d = s.dims_of(x);
  const int rank = static_cast<int>(d.size());
  Dims axes{axis};
  if (rank > 1 && s.here(Effect::breaks, "another axis"))
    axes[0] = (axis + 1 + s.pick(static_cast<uint64_t>(rank - 1))) % rank;
  if (rank > 1 && s.here(Effect::breaks, "one axis more")) axes.push_back((axis + 1) % rank);
  if (s.here(Effect::breaks, "another reduction"))
    kind = std::string_view(kind) == "sum"   ? "mean"
           : std::string_view(kind) == "max" ? "min"
                                             : "sum";
  Dims kept = d;
  for (int64_t& a : axes) {
    kept[static_cast<size_t>(a)] = 1;
    if (s.flip()) a -= rank;
  }
  if (s.pick(4)) return s.reduce(kind, x, axes, true);
  const Value flat = s.reduce(kind, x, axes, false);
  const bool equal = std::ranges::all_of(d, [&](int64_t n) { return n == d[0]; });
  if (equal && rank > 1 && axes.size() == 1) {
    // With all dims equal the folded values fit along another axis as well.
    if (s.here(breaks_if(d[0] != 1), "an axis not put back")) return flat;
    if (s.here(breaks_if(d[0] != 1), "an axis put back elsewhere")) {
      Dims elsewhere = d;
      elsewhere[static_cast<size_t>((axis + 1) % rank)] = 1;
      return s.reshape(flat, elsewhere);
    }
  }
  return s.reshape(flat, kept);
}

inline Value one_over(S& s, Value x) {
  return s.flip() ? s.unary("reciprocal", x) : s.binary("div", s.formula_number(1, true), x);
}

// x, or another value in its place.
inline Value same(S& s, Value x, Effect effect = Effect::breaks) {
  return s.here(effect, "another value") ? s.other(s.dims_of(x)) : x;
}

inline Value difference(S& s, Value a, Value b) {
  if (s.here(Effect::breaks, "a difference the other way round")) std::swap(a, b);
  return s.binary("sub", a, b);
}
inline Value function(S& s, const char* kind, const char* mutant, Value x) {
  return s.unary(s.here(Effect::breaks, "another function") ? mutant : kind, x);
}

// ---- softmax, cross entropy

inline Value softmax_of(S& s, Value x, int axis) {
  const Value e = function(s, "exp", "expm1", difference(s, x, folded(s, "max", same(s, x), axis)));
  const Value sum = folded(s, "sum", same(s, e), axis);
  if (s.here(Effect::breaks, "a quotient the other way round")) return s.binary("div", sum, e);
  return s.flip() ? s.binary("div", e, sum) : s.binary("mul", s.unary("reciprocal", sum), e);
}
inline Value spell_softmax(S& s) {
  const Dims d = s.dims(1, 4);
  return softmax_of(s, s.operand(d), static_cast<int>(s.pick(d.size())));
}

inline Value log_softmax_of(S& s, Value x, int axis) {
  const Value d = difference(s, x, folded(s, "max", same(s, x), axis));
  const Value sum = folded(s, "sum", function(s, "exp", "cosh", same(s, d)), axis);
  return difference(s, d, function(s, "log", "log1p", sum));
}
inline Value spell_log_softmax(S& s) {
  const Dims d = s.dims(1, 4);
  return log_softmax_of(s, s.operand(d), static_cast<int>(s.pick(d.size())));
}

inline Value spell_cross_entropy(S& s) {
  const Dims d = s.dims(1, 3);
  const int rank = static_cast<int>(d.size()), axis = static_cast<int>(s.pick(d.size()));
  const Value x = s.operand(d);
  Value log;
  if (s.flip())
    log = s.now(s.g.add(op::softmax{.axis = s.flip() ? axis : axis - rank,
                                    .log = !s.here(Effect::breaks, "no logarithm"),
                                    .x = x}));
  else
    log = log_softmax_of(s, x, axis);
  int picked_axis = axis;
  if (rank > 1 && s.here(Effect::breaks, "labels along another axis"))
    picked_axis = (axis + 1) % rank;
  Dims picked = d;
  picked[static_cast<size_t>(picked_axis)] = 1;
  if (s.here(Effect::breaks, "several labels per item"))
    picked[static_cast<size_t>(picked_axis)] = 2;
  if (rank > 1 && s.here(Effect::may, "labels of some items"))
    picked[static_cast<size_t>((picked_axis + 1) % rank)] = 1;
  const int64_t classes = d[static_cast<size_t>(picked_axis)];
  const bool outside = s.here(Effect::may, "labels that do not exist");
  const uint64_t key = s.pick(1000);
  const Value labels = s.whole(picked, s.flip() ? i64 : i32, [classes, key, outside](size_t i) {
    const double span = static_cast<double>(outside ? 2 * classes : classes);
    return std::floor(noise(700 + key, i) * span);  // negative ones count from the end
  });
  return s.now(s.g.add(op::gather_elements{.axis = s.flip() ? picked_axis : picked_axis - rank,
                                           .oob = outside ? s.one_of({"clamp", "skip"}) : "error",
                                           .data = log,
                                           .indices = labels}));
}

// ---- activations

inline Value times_irrational(S& s, Value x, double number) {
  return s.flip() ? s.binary("mul", x, s.formula_number(number, false))
                  : s.binary("div", x, s.formula_number(1 / number, false));
}
inline Value plus_one(S& s, Value x) { return s.binary("add", x, s.formula_number(1, true)); }

inline Value spell_gelu(S& s) {
  const Value x = s.operand(s.dims(1, 3));
  const double root = std::numbers::sqrt2 / 2;
  Value t;
  switch (s.pick(3)) {
    case 0:
      t = plus_one(s, function(s, "erf", "tanh", times_irrational(s, same(s, x), root)));
      break;
    case 1: {
      Value u = same(s, x);
      if (s.flip())
        u = times_irrational(s, s.unary("neg", u), root);
      else
        u = times_irrational(s, u, -root);
      t = s.unary("erfc", u);
      break;
    }
    default: {
      const double outer = std::sqrt(2 / std::numbers::pi);
      Value u;
      if (s.flip()) {
        Value cube;
        if (s.flip())
          cube = s.binary("pow", same(s, x), s.formula_number(3, true));
        else if (s.flip())
          cube = s.product({x, x, same(s, x)});
        else
          cube = s.product({same(s, x), s.square(x)});
        u = times_irrational(s, s.binary("add", x, times_irrational(s, cube, 0.044715)), outer);
      } else {
        const Value inner = plus_one(s, times_irrational(s, s.square(same(s, x)), 0.044715));
        u = s.product({times_irrational(s, x, outer), inner});
      }
      t = plus_one(s, function(s, "tanh", "erf", u));
    }
  }
  return s.product({x, t}, 0.5);
}

// 1 + e^-x
inline Value one_plus_exp(S& s, Value x) {
  const bool sign = s.here(Effect::breaks, "a sign lost");
  return plus_one(s, function(s, "exp", "expm1", sign ? s.unary("abs", x) : s.unary("neg", x)));
}
inline Value spell_sigmoid(S& s) { return one_over(s, one_plus_exp(s, s.operand(s.dims(0, 3)))); }
inline Value spell_silu(S& s) {
  const Value x = s.operand(s.dims(0, 3));
  if (s.pick(3) == 0) return s.product({x, s.unary("sigmoid", same(s, x))});
  if (s.flip()) return s.product({x, one_over(s, one_plus_exp(s, same(s, x)))});
  return s.binary("div", x, one_plus_exp(s, same(s, x)));
}

// ---- norms

struct Axes {
  Dims dims;  // of x
  int first;  // of the normalized axes
  Dims all() const {
    Dims axes(dims.size() - static_cast<size_t>(first));
    std::iota(axes.begin(), axes.end(), first);
    return axes;
  }
  Dims row() const { return {dims.begin() + first, dims.end()}; }
};
inline Axes some_axes(S& s) {
  const Dims d = s.dims(1, 4);
  const size_t first = s.flip() ? d.size() - 1 : s.pick(d.size());
  int64_t length = 1;
  for (size_t k = first; k < d.size(); ++k) length *= d[k];
  // A norm of one number is zero, of two it is their order, but for eps: its slopes are what is
  // left of a difference of equal numbers.
  if (length < 3) s.wants_gradient = false;
  return {d, static_cast<int>(first)};
}

inline Value mean_over(S& s, Value x, const Axes& a) {
  Dims axes = a.all();
  if (a.first > 0 && s.here(Effect::breaks, "one axis more")) axes.push_back(a.first - 1);
  if (axes.size() > 1 && s.here(Effect::breaks, "one axis less")) axes.pop_back();
  if (a.first > 0 && axes.size() == 1 && s.here(Effect::breaks, "a leading axis")) axes[0] = 0;
  for (int64_t& axis : axes)
    if (s.flip()) axis -= static_cast<int64_t>(a.dims.size());
  std::reverse(axes.begin(), axes.end());
  const char* kind = s.here(Effect::breaks, "another reduction") ? "sum" : "mean";
  if (s.here(Effect::may, "a mean put back by a reshape")) {
    Dims kept = a.dims;
    for (const int64_t axis : axes)
      kept[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(a.dims.size()) : axis)] = 1;
    return s.reshape(s.reduce(kind, x, axes, false), kept);
  }
  return s.reduce(kind, x, axes, true);
}
// mean(c²) + eps
inline Value mean_square(S& s, Value c, const Axes& a) {
  double eps = s.one_of({1e-5, 1e-3, 0.5});
  if (s.here(Effect::breaks, "a negative eps")) eps = -1e-6;
  return s.binary("add", mean_over(s, s.square(same(s, c)), a), s.number(eps));
}
// The scale of a norm; it may have a shape that broadcasts otherwise.
inline Value scale_of(S& s, const Axes& a) {
  Dims d = a.row();
  if (s.here(Effect::may, "a scale with an axis more")) d.insert(d.begin(), 1);
  if (s.here(Effect::may, "one scale")) d = Dims(d.size(), 1);
  if (a.first > 0 && s.here(Effect::may, "a scale per row")) {
    d = a.dims;
    for (size_t k = static_cast<size_t>(a.first); k < d.size(); ++k) d[k] = 1;
  }
  if (s.here(Effect::may, "a scale per element")) d = a.dims;
  return s.parameter(d);
}
// c / √(mean(c²) + eps), times the other factors.
inline Value normalized(S& s, Value c, const Axes& a, std::vector<Value> factors) {
  const Value inside = mean_square(s, c, a);
  if (s.flip()) {
    const Value y = s.binary("div", same(s, c), function(s, "sqrt", "abs", inside));
    if (factors.empty()) return y;
    s.loose(y);  // may be a norm by itself
    factors.push_back(y);
    return s.product(factors);
  }
  const Value r =
      s.flip() ? function(s, "rsqrt", "reciprocal", inside) : one_over(s, s.unary("sqrt", inside));
  factors.push_back(same(s, c, Effect::may));  // x may be the scale, too
  factors.push_back(r);
  return s.product(factors);
}

inline Value spell_rms_norm(S& s) {
  const Axes a = some_axes(s);
  const Value x = s.operand(a.dims);
  std::vector<Value> factors = {scale_of(s, a)};
  if (s.here(Effect::may, "two scales")) factors.push_back(s.parameter(a.row()));
  if (s.here(Effect::breaks, "no scale")) factors.clear();
  return normalized(s, x, a, factors);
}
inline Value spell_layer_norm(S& s) {
  s.strict = false;  // a part of it is a norm, too
  const Axes a = some_axes(s);
  const Value x = s.operand(a.dims);
  const Value mean = mean_over(s, same(s, x), a);
  const Value c = difference(s, x, mean);
  std::vector<Value> factors;
  if (s.flip()) factors.push_back(scale_of(s, a));
  if (s.here(Effect::breaks, "the mean of squares less the square of the mean")) {
    const Value v =
        s.binary("sub", s.reduce("mean", s.square(x), a.all(), true), s.binary("mul", mean, mean));
    factors.push_back(c);
    factors.push_back(s.unary("rsqrt", s.binary("add", v, s.number(0.1))));
    return s.product(factors);
  }
  return normalized(s, c, a, factors);
}
inline Value spell_scaled_norm(S& s) {
  const Axes a = some_axes(s);
  const Value x = s.operand(a.dims);
  const bool rms = s.flip(), has_scale = rms || s.flip();
  const bool has_offset = s.here(Effect::may, "a norm with an offset");
  const int64_t axis = s.flip() ? a.first : a.first - static_cast<int64_t>(a.dims.size());
  const Value gamma = has_scale ? s.parameter(a.row()) : Value{},
              beta = has_offset ? s.parameter(a.row()) : Value{};
  Value y;
  if (rms)
    y = s.now(
        s.g.add(op::rms_norm{.axis = axis, .eps = 1e-3, .x = x, .gamma = gamma, .beta = beta}));
  else
    y = s.now(
        s.g.add(op::layer_norm{.axis = axis, .eps = 1e-3, .x = x, .gamma = gamma, .beta = beta}));
  const bool scales = !has_scale && s.flip();
  if (s.here(Effect::may, "the norm times itself")) return s.binary("mul", y, y);
  if (scales) y = s.binary("mul", y, scale_of(s, a)), s.loose(y);
  if (scales && s.flip()) return y;
  if (s.here(Effect::may, "an offset taken away")) return s.binary("sub", y, scale_of(s, a));
  return s.binary("add", y, scale_of(s, a));
}

// ---- attention

struct AttentionSizes {
  int64_t batch, heads, queries, keys, dim, v_dim;
  Dims scores() const { return {batch, heads, queries, keys}; }
};

// Any shape that broadcasts to the scores.
inline Dims mask_dims(S& s, const AttentionSizes& z) {
  Dims d = z.scores();
  const bool usual = s.pick(4) == 0;
  for (size_t k = 0; k < 4; ++k)
    if (usual ? k < 2 : s.flip()) d[k] = 1;
  while (!d.empty() && d[0] == 1 && s.flip()) d.erase(d.begin());
  return d;
}
// Contents by their last two axes of length > 1, or as the last two axes have it.
inline std::vector<uint8_t> mask_bits(S& s, const Dims& d) {
  Dims longer;
  for (const int64_t n : d)
    if (n != 1) longer.push_back(n);
  if (s.flip()) longer = d;
  while (longer.size() < 2) longer.insert(longer.begin(), 1);
  const int64_t keys = longer.back(), rows = longer[longer.size() - 2];
  size_t count = 1;
  for (const int64_t n : d) count *= static_cast<size_t>(n);
  const uint32_t what = s.pick(8), key = s.pick(1000);
  std::vector<uint8_t> bits(count);
  for (size_t at = 0; at < count; ++at) {
    const int64_t j = static_cast<int64_t>(at) % keys, i = static_cast<int64_t>(at) / keys % rows;
    const bool dice = noise(800 + key, at) < 0;
    bits[at] = what <= 2   ? j <= i
               : what == 3 ? j >= i
               : what == 4 ? j <= i + 1
               : what == 5 ? j < i
               : what == 6 ? true
                           : dice;
  }
  // One bit off.
  if (count > 0 && s.pick(6) == 0) bits[s.pick(count)] ^= 1;
  return bits;
}
// key <= query of counters, or nearly.
inline Value counted_mask(S& s, const AttentionSizes& z) {
  const auto counter = [&](bool of_keys) {
    const bool full = s.pick(4) == 0;
    Dims d{full || !of_keys ? z.queries : 1, full || of_keys ? z.keys : 1};
    int64_t axis = of_keys ? 1 : 0;
    const double start = s.here(Effect::may, "a counter that starts at 1") ? 1 : 0,
                 step = s.here(Effect::may, "a counter of every other") ? 2 : 1;
    if (s.here(Effect::may, "a counter along another axis")) {
      axis = 1 - axis;
      if (!full) std::swap(d[0], d[1]);
      if (d[0] != 1 && d[0] != z.queries) d[0] = z.queries, d[1] = z.keys;
      if (d[1] != 1 && d[1] != z.keys) d[0] = z.queries, d[1] = z.keys;
    }
    const tenon_dtype t = s.flip() ? i64 : i32;
    return std::pair(t,
                     op::iota{.shape = d, .axis = axis, .dtype = t, .start = start, .step = step});
  };
  auto [key_type, key_node] = counter(true);
  auto [query_type, query_node] = counter(false);
  query_node.dtype = key_node.dtype;
  const Value key = s.g.add(key_node), query = s.g.add(query_node);
  const char* kind =
      s.here(Effect::may, "another comparison") ? s.one_of({"lt", "gt", "eq", "ge"}) : "le";
  if (std::string_view(kind) == "le" && s.flip())
    return s.g.add(op::compare{.kind = "ge", .a = query, .b = key});
  return s.g.add(op::compare{.kind = kind, .a = key, .b = query});
}

inline Value masked(S& s, Value scores, const AttentionSizes& z) {
  const uint32_t what = s.one_of({0u, 1u, 2u, 2u, 2u, 3u, 4u, 5u});
  if (what == 0) return scores;
  if (what <= 3) {  // of bools
    Value cond;
    if (what == 1) {
      cond = counted_mask(s, z);
    } else {
      const Dims d = mask_dims(s, z);
      const std::vector<uint8_t> bits = mask_bits(s, d);
      cond =
          what == 2 ? s.bools(d, bits) : s.whole(d, boolean, [bits](size_t i) { return bits[i]; });
    }
    const double fill = s.here(Effect::breaks, "a finite fill") ? -1e4 : -INFINITY;
    Value a = scores, b = s.number(fill);
    if (s.here(Effect::breaks, "a mask the other way round")) std::swap(a, b);
    return s.now(s.g.add(op::where{.cond = cond, .a = a, .b = b}));
  }
  const Dims d = mask_dims(s, z);
  Value mask;
  if (what == 4) {  // numbers that hide, or hide nearly
    const std::vector<uint8_t> bits = mask_bits(s, d);
    const double low = s.flip() ? -1e4 : s.dtype != f16 && s.flip() ? -1e9 : -INFINITY;
    std::vector<double> numbers;
    for (const uint8_t bit : bits) numbers.push_back(bit ? 0 : low);
    mask = s.constant(d, numbers);
  } else {
    mask = s.parameter(d);
  }
  if (s.here(Effect::breaks, "a mask taken away")) return s.binary("sub", scores, mask);
  return s.binary("add", scores, mask);
}

inline Value spell_attention(S& s) {
  if (s.is_special()) s.data = Data::usual;  // q, k and v are finite
  s.prefer_equal();
  AttentionSizes z{s.side(), s.side(), s.side(), s.side(), s.side(), s.side()};
  Value q = s.operand({z.batch, z.heads, z.queries, z.dim});
  const Dims k_dims{z.batch, z.heads, z.keys, z.dim};
  Value k = s.operand(k_dims);
  // A scaled operand that others read too is taken as it is.
  const auto scaled = [&](Value x) {
    if (s.pick(4)) return x;
    x = s.binary("mul", x, s.number(s.one_of({0.5, -1.0, 0.25})));
    s.loose(x);
    return x;
  };
  q = scaled(q), k = scaled(k);
  const Value v = s.operand({z.batch, z.heads, z.keys, z.v_dim});
  op::matmul product{.alpha = s.pick(3) ? 1.0 : 0.5, .a = q, .b = k};
  if (s.flip()) {
    product.trans_b = true;
  } else {
    Dims perm{0, 1, 3, 2};
    if (s.pick(3) == 0) {
      k = s.operand({z.batch, z.keys, z.heads, z.dim});
      perm = {0, 2, 3, 1};
    }
    const bool equal = z.heads == z.keys && z.keys == z.dim;
    if (equal && s.here(breaks_if(z.dim != 1), "keys not transposed"))
      product.b = k;
    else
      product.b = scaled(s.now(s.g.add(op::transpose{.perm = perm, .x = k})));
  }
  if (z.queries == z.dim && s.here(Effect::breaks, "queries transposed")) product.trans_a = true;
  Value scores = s.matmul(product);
  switch (s.pick(4)) {
    case 0:
      scores = s.binary("mul", scores, s.number(s.one_of({0.25, -1.0, 0.0, 3.0})));
      break;
    case 1:
      scores = s.binary("div", scores, s.number(4));
      break;
    default:
      break;
  }
  scores = masked(s, scores, z);
  Value p;
  if (s.flip()) {
    const int64_t axis = s.here(Effect::breaks, "a softmax over another axis") ? 2
                         : s.flip()                                            ? 3
                                                                               : -1;
    p = s.now(s.g.add(op::softmax{
        .axis = axis, .log = s.here(Effect::breaks, "a logarithm of a softmax"), .x = scores}));
  } else {
    p = softmax_of(s, scores, 3);
  }
  op::matmul out{.a = p, .b = v};
  if (s.here(Effect::breaks, "a result times 2")) out.alpha = 2;
  if (z.keys == z.queries && s.here(Effect::breaks, "weights transposed")) out.trans_a = true;
  if (z.keys == z.v_dim && s.here(Effect::breaks, "values transposed")) out.trans_b = true;
  return s.matmul(out);
}

inline Value spell_attention_layout(S& s) {
  if (s.is_special()) s.data = Data::usual;
  s.prefer_equal();
  const AttentionSizes z{s.side(), s.side(), s.side(), s.side(), s.side(), s.side()};
  const auto turned = [&](Value x, const Dims& perm) {
    return s.now(s.g.add(op::transpose{.perm = perm, .x = x}));
  };
  const auto heads_first = [&](int64_t length, int64_t dim) {
    return turned(s.operand({z.batch, length, z.heads, dim}), {0, 2, 1, 3});
  };
  op::attention n{.causal = s.flip(), .q = heads_first(z.queries, z.dim)};
  n.k = heads_first(z.keys, z.dim);
  n.v = s.here(Effect::breaks, "values that are not transposed")
            ? s.operand({z.batch, z.heads, z.keys, z.v_dim})
            : heads_first(z.keys, z.v_dim);
  if (s.flip()) n.mask = s.parameter({z.queries, z.keys});
  const Value o = s.now(s.g.add(n));
  return turned(o, s.here(Effect::breaks, "a result that is transposed otherwise")
                       ? Dims{0, 1, 3, 2}
                       : Dims{0, 2, 1, 3});
}

// ---- what devices join

inline Value spell_gate(S& s) {
  s.strict = false;
  const Dims d = s.dims(1, 3);
  // Not of an elementwise node alone: that would go into a fused body.
  const Value gate = s.input(d);
  const char* kind = s.one_of({"silu", "gelu", "gelu_tanh", "relu", "sigmoid"});
  if (s.here(Effect::breaks, "an activation that gates nothing"))
    kind = s.one_of({"tanh", "mish", "softplus", "exp", "neg"});
  Dims other = d;
  if (s.here(Effect::breaks, "a gated value of another shape")) {
    if (s.flip())
      other.erase(other.begin());
    else
      other.insert(other.begin(), 2);
  }
  const Value act = s.unary(kind, gate);
  const Value up = s.here(Effect::may, "gated by itself") ? gate : s.operand(other);
  return s.binary(s.here(Effect::breaks, "no product") ? "max" : "mul", act, up);
}

inline Value spell_product(S& s) {
  s.strict = false;
  const bool deep = s.flip();
  const int64_t rows = s.side(), terms = s.side(), columns = s.side();
  op::matmul n{.trans_a = s.flip(), .trans_b = s.flip(), .alpha = s.pick(3) ? 1.0 : 0.5};
  Dims a = n.trans_a ? Dims{terms, rows} : Dims{rows, terms};
  Dims y_dims{rows, columns};
  if (deep) {
    const int64_t batch = s.side();
    a.insert(a.begin(), batch);
    y_dims.insert(y_dims.begin(), batch);
  }
  n.a = s.operand(a);
  n.b = s.input(n.trans_b ? Dims{columns, terms} : Dims{terms, columns}, s.dtype, s.flip());
  Value y = s.matmul(n);
  int parts = 0;
  if (s.flip()) {
    Dims bias{columns};
    if (s.here(Effect::may, "a bias of rank 2")) bias.insert(bias.begin(), 1);
    if (s.here(Effect::may, "a bias per row")) bias = {rows, 1};
    if (s.here(Effect::may, "one bias")) bias = {1};
    y = s.binary("add", y, s.parameter(bias));
    ++parts;
  }
  if (s.flip()) {
    const char* kind =
        s.one_of({"silu", "gelu", "gelu_tanh", "relu", "tanh", "sigmoid", "neg", "abs"});
    op::unary act{.kind = kind, .x = y};
    if (s.here(Effect::may, "an activation that rounds")) act.kind = "round", act.ste = s.flip();
    if (s.here(Effect::may, "an activation with a parameter"))
      act.kind = "leaky_relu", act.alpha = 0.25;
    y = s.now(s.g.add(act));
    ++parts;
  }
  if (parts == 0 || s.flip()) {
    Dims residual = y_dims;
    if (s.here(Effect::may, "a residual that broadcasts")) residual[0] = 1;
    if (s.here(Effect::may, "a residual that makes the result larger"))
      residual.insert(residual.begin(), 2);
    const Value r = s.dims_of(n.a) == residual && s.flip() ? n.a : s.operand(residual);
    y = s.binary(s.here(Effect::may, "a residual taken away") ? "sub" : "add", y, r);
  }
  return y;
}

template <class Norm>
Value spell_residual(S& s) {
  s.strict = false;
  const Axes a = some_axes(s);
  const Value x = s.operand(a.dims);
  Dims residual = a.dims;
  if (s.here(Effect::breaks, "a residual that broadcasts")) residual.erase(residual.begin());
  const Value r = s.here(Effect::may, "twice the same value") ? x : s.operand(residual);
  const Value sum = s.binary(s.here(Effect::breaks, "no sum") ? "max" : "add", x, r);
  Norm n{.axis = a.first, .eps = s.one_of({1e-5, 1e-2}), .x = sum};
  if (s.here(Effect::may, "a scale that is the sum") && a.first == 0)
    n.gamma = sum;
  else if (std::string_view(Norm::kName) == "rms_norm" || s.flip())
    n.gamma = s.parameter(a.row());
  if (s.flip()) n.beta = s.parameter(a.row());
  const bool stats = s.here(Effect::may, "statistics that leave");
  if constexpr (requires { n.want_inv_rms; })
    n.want_inv_rms = stats;
  else
    n.want_mean = n.want_inv_std = stats;
  const Node y = s.g.add(n);
  if (stats) s.leave("stat", y.outputs.back());
  return s.now(y);
}

inline Value spell_siblings(S& s) {
  s.strict = false;
  const int64_t rows = s.side(), terms = s.side();
  const bool trans_a = s.pick(4) == 0, trans_b = s.flip();
  const Value a = s.operand(trans_a ? Dims{terms, rows} : Dims{rows, terms});
  Value y;
  const uint32_t count = 2 + s.pick(3);
  const bool bias = s.pick(3) == 0;
  for (uint32_t k = 0; k < count; ++k) {
    const int64_t columns = s.side();
    op::linear n{.trans_a = trans_a, .trans_b = trans_b, .a = a};
    if (rows == terms && s.here(Effect::may, "another transposed")) n.trans_a = !trans_a;
    if (s.here(Effect::may, "another factor")) n.alpha = 0.5;
    n.b = s.input(n.trans_b ? Dims{columns, terms} : Dims{terms, columns}, s.dtype, true);
    if (s.here(Effect::may, "a matrix that a node makes")) n.b = s.unary("tanh", n.b);
    if (bias != s.here(Effect::may, "a bias more or less"))
      n.bias = s.input({columns}, s.dtype, true);
    if (s.here(Effect::may, "an activation")) n.act = "gelu";
    const Value part = s.now(s.g.add(n));
    // So that shapes agree.
    const Value mean = s.reduce("mean", part, {1}, true);
    y = y ? s.binary("add", y, mean) : mean;
    if (s.here(Effect::may, "a result that leaves")) s.leave("part" + std::to_string(k), part);
  }
  return y;
}

inline Value spell_half(S& s) {
  s.strict = false;
  const int64_t rows = s.side(), terms = s.side(), columns = s.side();
  const tenon_dtype half = s.flip() ? bf16 : f16;
  op::matmul n{.trans_b = s.flip()};
  const bool left = s.pick(4) == 0;
  Dims dims[2] = {{rows, terms}, n.trans_b ? Dims{columns, terms} : Dims{terms, columns}};
  Value operands[2];
  for (const int k : {0, 1}) {
    const bool is_half = (k == 0) == left || s.here(Effect::may, "two halves");
    operands[k] = is_half ? s.to_dtype(s.input(dims[k], half, k == 1), s.dtype) : s.input(dims[k]);
    if (is_half && s.here(Effect::may, "a widened half that leaves")) s.leave("wide", operands[k]);
    if (is_half && s.here(Effect::breaks, "a half that is changed before"))
      operands[k] = s.unary("tanh", operands[k]);
  }
  n.a = operands[0], n.b = operands[1];
  Value y = s.matmul(n);
  if (s.flip()) y = s.binary("add", y, s.parameter({columns}));
  return y;
}

// Elementwise steps on values of one shape, rows and columns of it and numbers.
inline Value some_steps(S& s, std::vector<Value> values, const Dims& d, uint32_t count) {
  for (uint32_t k = 0; k < count; ++k) {
    const Value a = values[values.size() - 1 - s.pick(std::min<size_t>(values.size(), 2))],
                b = values[s.pick(values.size())];
    switch (s.pick(8)) {
      case 0:
      case 1:
        values.push_back(s.binary(s.one_of({"add", "sub", "mul", "max", "min"}), a, b));
        break;
      case 2:
      case 3:
        values.push_back(s.unary(s.one_of({"neg", "tanh", "sigmoid", "square", "silu", "erf"}), a));
        break;
      case 4:
        values.push_back(
            s.binary(s.one_of({"add", "mul"}), a, s.number(s.one_of({0.5, 2.0, -1.0}))));
        break;
      case 5: {  // a row, or a column, of the shape
        Dims part = d;
        if (part.size() > 1 && s.flip()) part[s.pick(part.size())] = 1;
        if (part.size() > 1 && s.flip()) part.erase(part.begin());
        values.push_back(s.binary("add", a, s.operand(part)));
        break;
      }
      case 6: {
        const Value cond = s.g.add(op::unary{.kind = s.one_of({"is_nan", "is_inf"}), .x = a});
        values.push_back(s.now(s.g.add(op::where{.cond = cond, .a = b, .b = a})));
        break;
      }
      default:
        if (s.here(Effect::may, "a cast of its own")) {
          const tenon_dtype via = s.one_of<tenon_dtype>({f16, bf16});
          values.push_back(s.to_dtype(s.to_dtype(a, via), s.dtype));
        } else {
          values.push_back(s.binary("sub", a, b));
        }
    }
    if (s.here(Effect::may, "a step that leaves"))
      s.leave("step" + std::to_string(s.outputs.size()), values.back());
  }
  return values.back();
}
inline Value spell_fused_body(S& s) {
  s.strict = false;
  const Dims d = s.dims(1, 3);
  const Value x = s.operand(d);
  if (s.here(Effect::may, "one step")) return s.unary("tanh", s.input(d));
  if (s.here(Effect::may, "steps with a view between them")) {
    Value y = s.unary("tanh", s.input(d));
    y = s.now(s.g.add(op::transpose{.x = y}));
    return s.unary("sigmoid", y);
  }
  if (s.here(Effect::may, "a reduction of what no step makes"))
    return s.unary("tanh", s.reduce("mean", s.input(d), {0}, s.flip()));
  Value y = some_steps(s, {x, s.operand(d)}, d, 2 + s.pick(8));
  if (s.dims_of(y) == d && s.flip()) {
    Dims axes{-1};
    if (s.here(Effect::may, "a reduction of the first axis")) axes = {0};
    if (s.here(Effect::may, "a reduction of all")) axes.clear();
    y = s.reduce(s.one_of({"sum", "mean", "max", "min", "sum_square"}), y, axes, s.flip());
    if (s.here(Effect::may, "a step behind the reduction")) y = s.unary("tanh", y);
  }
  return y;
}
// The same steps on several sets.
inline Value spell_batch(S& s) {
  s.strict = false;
  const uint32_t count = 2 + s.pick(3), steps = 1 + s.pick(3);
  const char* kinds[3];
  for (const char*& kind : kinds) kind = s.one_of({"add", "mul", "sub"});
  Value y, before;
  for (uint32_t k = 0; k < count; ++k) {
    Dims d{s.side(), s.side()};
    Value x = s.input(d);
    if (before && s.here(Effect::may, "a set that reads another"))
      d = s.dims_of(before), x = before;
    const Value b =
        s.here(Effect::may, "an operand that broadcasts") ? s.input({d[1]}) : s.input(d);
    for (uint32_t i = 0; i < steps; ++i) {
      const char* kind = s.here(Effect::may, "another step") ? "max" : kinds[i];
      x = s.now(s.g.add(op::binary{.kind = kind, .a = x, .b = i ? s.number(0.5 + i) : b}));
    }
    before = x;
    if (k > 0) s.leave("set" + std::to_string(k), x);
    y = x;
  }
  return y;
}

}  // namespace tenon::test
