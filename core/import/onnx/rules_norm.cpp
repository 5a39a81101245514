// SPDX-License-Identifier: Apache-2.0
// Rules for norms over channels and axes.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

// [C] along axis 1 of a tensor of this rank.
Value along_channels(Builder& b, Value v, int rank) {
  Shape s;
  for (int k = 0; k < rank; ++k) s.push(k == 1 ? b.shape(v).elements() : 1);
  return b.reshape(v, s);
}

Value as_parameter(Call& c, size_t k, const Shape& dims) { return c.b.expand(c.value(k), dims); }

Shape normalized(const Shape& s, int axis) {
  Shape out;
  for (int k = axis; k < s.rank(); ++k) out.push(s[k]);
  return out;
}

// The dtype in which statistics are computed.
DType stash(const Call& c) { return c.dtype_attr("stash_type", 1); }

void layer_norm(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int axis = c.axis(c.i("axis", -1), s.rank());
  const Shape dims = normalized(s, axis);
  op::layer_norm n{.axis = axis, .eps = c.f("epsilon", 1e-5f), .x = c.value(0)};
  n.gamma = as_parameter(c, 1, dims);
  if (c.has(2)) n.beta = as_parameter(c, 2, dims);
  n.want_mean = c.wants(1);
  n.want_inv_std = c.wants(2);
  const Results y = b.add(n);
  c.out(0, y[0]);
  if (c.wants(1)) c.out(1, b.cast(y[1], stash(c)));
  if (c.wants(2)) c.out(2, b.cast(y[2], stash(c)));
}

void rms_norm(Call& c) {
  const Shape s = c.shape(0);
  const int axis = c.axis(c.i("axis", -1), s.rank());
  c.out(c.b.add(op::rms_norm{.axis = axis,
                             .eps = c.f("epsilon", 1e-5f),
                             .x = c.value(0),
                             .gamma = as_parameter(c, 1, normalized(s, axis))}));
}

void instance_norm(Call& c) {
  const Shape s = c.shape(0);
  if (s.rank() < 2) c.wrong("input 0: expected rank 2 or more, got ", s.text());
  c.out(c.b.add(op::group_norm{.groups = s[1],
                               .eps = c.f("epsilon", 1e-5f),
                               .x = c.value(0),
                               .gamma = c.value(1),
                               .beta = c.value(2)}));
}

void group_norm(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int64_t groups = c.i("num_groups", 0);
  if (s.rank() < 2 || groups < 1 || s[1] % groups)
    c.wrong("expected [N, C, ..] with C a multiple of num_groups ", groups, ", got ", s.text());
  // Before opset 21, one number for each group.
  const auto parameter = [&](size_t k) {
    const Value v = c.value(k);
    if (b.shape(v).elements() == s[1]) return b.reshape(v, {s[1]});
    return b.reshape(b.expand(b.reshape(v, {groups, 1}), {groups, s[1] / groups}), {s[1]});
  };
  c.out(b.add(op::group_norm{.groups = groups,
                             .eps = c.f("epsilon", 1e-5f),
                             .x = c.value(0),
                             .gamma = parameter(1),
                             .beta = parameter(2)}));
}

void batch_norm(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  if (s.rank() < 2) c.wrong("input 0: expected rank 2 or more, got ", s.text());
  if (c.opset < 9 && c.i("spatial", 1) == 0) c.refuse("attribute spatial of 0");
  const double eps = c.f("epsilon", 1e-5f), momentum = c.f("momentum", 0.9f);
  const bool training = c.opset >= 14 ? c.flag("training_mode", false) : c.wants(1);
  const DType t = c.dtype(0);
  Value x = b.widen(c.value(0)), mean = b.cast(c.value(3), b.dtype(x)),
        var = b.cast(c.value(4), b.dtype(x));
  if (training) {
    Ints axes = other_axes({1}, s.rank());
    const Value now = b.mean(x, axes), centred = b.minus(x, now);
    const Value spread = b.mean(b.times(centred, centred), axes);
    const Value now_mean = b.reshape(now, {s[1]}), now_var = b.reshape(spread, {s[1]});
    const auto running = [&](Value old, Value fresh) {
      return b.plus(b.times(old, momentum), b.times(fresh, 1 - momentum));
    };
    c.out(1, b.cast(running(mean, now_mean), c.dtype(3)));
    c.out(2, b.cast(running(var, now_var), c.dtype(4)));
    mean = now_mean, var = now_var;
  }
  const Value scale = b.times(b.cast(c.value(1), b.dtype(x)), b.unary("rsqrt", b.plus(var, eps)));
  const Value shift = b.minus(b.cast(c.value(2), b.dtype(x)), b.times(mean, scale));
  const Value y =
      b.plus(b.times(x, along_channels(b, scale, s.rank())), along_channels(b, shift, s.rank()));
  c.out(0, b.cast(y, t));
}

// y = x / (bias + alpha/size · sum of the squares of `size` neighbouring channels)^beta
void lrn(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int64_t size = c.i("size", 0);
  if (s.rank() < 2 || size < 1 || size > kMostParts)
    c.wrong("attribute size: expected 1 to ", kMostParts, " for ", s.text(), ", got ", size);
  const Value x = b.widen(c.value(0));
  Ints before(static_cast<size_t>(s.rank()), 0), after = before;
  before[1] = (size - 1) / 2;
  after[1] = size - 1 - before[1];
  const Value squares = b.add(op::pad{.before = before, .after = after, .x = b.times(x, x)});
  Value sum = b.narrow(squares, 1, 0, s[1]);
  for (int64_t k = 1; k < size; ++k) sum = b.plus(sum, b.narrow(squares, 1, k, s[1]));
  const Value base =
      b.plus(b.times(sum, c.f("alpha", 1e-4f) / static_cast<double>(size)), c.f("bias", 1));
  c.out(b.cast(b.over(x, b.binary("pow", base, c.f("beta", 0.75))), c.dtype(0)));
}

void lp_norm(Call& c) {
  Builder& b = c.b;
  const int axis = c.axis(c.i("axis", -1), c.rank(0));
  const int64_t p = c.i("p", 2);
  if (p != 1 && p != 2) c.wrong("attribute p: expected 1 or 2, got ", p);
  const Value x = b.widen(c.value(0)), norm = b.reduce(p == 1 ? "l1" : "l2", x, {axis}, true);
  // A line of zeros stays zeros.
  const Value safe = b.where(b.compare("eq", norm, 0.0), b.scalar(b.dtype(x), 1), norm);
  c.out(b.cast(b.over(x, safe), c.dtype(0)));
}

void mean_variance(Call& c) {
  Builder& b = c.b;
  Ints axes = c.has_attr("axes") ? c.is("axes") : Ints{0, 2, 3};
  axes = c.axes(axes, c.rank(0));
  const Value x = b.widen(c.value(0)), centred = b.minus(x, b.mean(x, axes));
  const Value deviation = b.unary("sqrt", b.mean(b.times(centred, centred), axes));
  c.out(b.cast(b.over(centred, b.plus(deviation, 1e-9)), c.dtype(0)));
}

constexpr Rule kRules[] = {
    {"LayerNormalization", 17, layer_norm},
    {"RMSNormalization", 23, rms_norm},
    {"InstanceNormalization", 6, instance_norm},
    {"GroupNormalization", 18, group_norm},
    {"BatchNormalization", 7, batch_norm},
    {"LRN", 1, lrn},
    {"LpNormalization", 1, lp_norm},
    {"MeanVarianceNormalization", 9, mean_variance},
};

}  // namespace

std::span<const Rule> norm_rules() { return kRules; }

}  // namespace tenon::core::onnx
