// SPDX-License-Identifier: Apache-2.0
// Shared by the norms over rows (norm.cpp) and over channels (channel_norm.cpp).
#pragma once

#include <cmath>

#include "ops/record.hpp"

namespace tenon::core {

inline void want_eps(const Infer& i, double eps) {
  if (!(eps >= 0) || std::isinf(eps))
    i.fail(Code::invalid_argument, "attribute eps: expected a finite number >= 0, given ", eps);
}

// gamma, beta or bias: x's dtype or f32.
inline void want_norm_parameter(const Infer& i, Value p, std::string_view operand, DType x,
                                const Shape& dims) {
  if (!p) return;
  if (i.dtype(p) != x && i.dtype(p) != kF32)
    i.fail(Code::dtype_mismatch, "operand ", operand, ": expected ", dtype_name(x), " or f32, got ",
           i.type(p).text());
  i.want_shape(p, operand, dims);
}

// True if the dbeta of a backward op is as wide as beta. It has the dtype of gamma, or without
// gamma that of x.
template <class Op>
bool gives_dbeta(const Builder& b, const Op& n) {
  const DType given = b.dtype(n.gamma ? n.gamma : n.x);
  return n.beta && (b.dtype(n.beta) == given || b.dtype(n.beta) != acc_dtype(given));
}
// dbeta = Σ dy in the accumulation dtype, in the shape of `kept`.
inline Value wide_dbeta(Builder& b, Value dy, const Shape& kept) {
  return b.sum_to(b.widen(dy), kept);
}

inline void want_like(const Infer& i, Value v, std::string_view operand, const Type& type) {
  i.want_dtype(v, operand, type.dtype);
  i.want_shape(v, operand, type.shape);
}

// 1/sqrt(mean(v²) + eps)
inline Value inverse_root(Builder& b, Value v, const Ints& axes, double eps) {
  return b.unary("rsqrt", b.plus(b.mean(b.times(v, v), axes), eps));
}

struct Centred {
  Value values, mean;
};
// x - mean(x); the mean may be given. A second step corrects the rounding of the mean, which
// matters if the mean is much larger than the deviation.
inline Centred centre(Builder& b, Value x, const Ints& axes, Value mean = {}) {
  const Value first = mean ? mean : b.mean(x, axes);
  const Value near = b.minus(x, first);
  const Value rest = b.mean(near, axes);
  return {b.minus(near, rest), b.plus(first, rest)};
}

inline void out_if_wanted(Lower& l, size_t k, Value v) {
  if (l.wanted(k)) l.out(k, v);
}

// Propagates the upstream gradients of the statistics to the normalized values: mean(x) gives
// dmean/n, and r = (mean(c²) + eps)^-½ gives -dr·r³·c/n. Absent if there are none. Without mean, c
// is x.
struct StatsUpstream {
  Value dmean, dinverse, mean, inverse;
};
inline Value stats_gradient(Builder& b, const Ints& axes, double count, Value x,
                            const StatsUpstream& up) {
  if (!up.dmean && !up.dinverse) return {};
  const Type t = b.type(x);
  Value dx;
  if (up.dinverse) {
    const Value wide = b.widen(x);
    const Value c = up.mean ? centre(b, wide, axes, up.mean).values : wide;
    const Value cube = b.times(b.times(up.inverse, up.inverse), up.inverse);
    dx = b.times(c, b.over(b.times(b.neg(up.dinverse), cube), count));
  }
  if (up.dmean) {
    const Value each = b.over(up.dmean, count);
    dx = dx ? b.plus(dx, each) : b.expand(each, t.shape);
  }
  return b.cast(dx, t.dtype);
}

}  // namespace tenon::core
