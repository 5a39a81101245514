// SPDX-License-Identifier: Apache-2.0
//
// The norm ops by their two shapes. layer_norm, rms_norm and their residual forms are one kernel to
// most backends, and so are the two backward ops. norm_op() and norm_backward_op() read any of
// them:
//
//   template <class Op>
//   Kernel make(const Op& n, const Node& node) { return forward(norm_op(n), node); }
//   constexpr Row kRows[] = {row<op::layer_norm, make>(), row<op::residual_rms_norm, make>()};
//
// Absent operands are empty Values. Absent outputs have position -1, for which Call::out() returns
// nullptr. The host has checked dtypes and shapes:
//   - y, sum, residual and the gradients of x have the type of x;
//   - gamma, beta and bias have the normalized dims, in x's dtype or f32;
//   - mean and inv have one element per row, in the accumulation dtype (acc_dtype).
#pragma once

#include "axis.hpp"

namespace tenon::sdk {

// x as `count` rows of `length` elements each: axes [axis, rank) are normalized.
struct NormRows {
  int64_t count = 1, length = 1;
};
inline NormRows norm_rows_of(const Type& x, int64_t axis) {
  NormRows r;
  const int first = axis_of(axis, x.rank);
  for (int i = 0; i < x.rank; ++i) (i < first ? r.count : r.length) *= x.dims[i];
  return r;
}

// y = norm(x + residual + bias) * gamma + beta. Output 0 is y.
struct NormOp {
  bool rms;  // without mean
  double eps;
  NormRows rows;
  Value x, residual, bias, gamma, beta;
  int sum = -1, mean = -1, inv = -1;  // outputs: x + residual + bias, mean, 1 / deviation
};
template <class Op>
NormOp norm_op(const Op& n) {
  constexpr bool kHasMean = requires { n.want_mean; };
  NormOp f{};
  f.rms = !kHasMean;
  f.eps = n.eps;
  f.rows = norm_rows_of(n.x.type(), n.axis);
  f.x = n.x, f.gamma = n.gamma, f.beta = n.beta;
  int stats = 1;  // position of the first statistic
  if constexpr (requires { n.residual; }) {
    f.residual = n.residual, f.bias = n.bias;
    f.sum = n.want_sum ? 1 : -1;
    stats = 2;
  }
  if constexpr (kHasMean) {
    f.mean = n.want_mean ? stats : -1;
    f.inv = n.want_inv_std ? stats + 1 : -1;
  } else {
    f.inv = n.want_inv_rms ? stats : -1;
  }
  return f;
}

// The gradients of y = norm(x) * gamma + beta, given dy. dsum, if present, is added to dx before dx
// is rounded. The kernel recomputes mean and inv if they are absent.
struct NormBackwardOp {
  bool rms;
  double eps;
  NormRows rows;
  Value dy, x, gamma, mean, inv, dsum;
  int dx, dgamma, dbeta;  // outputs
};
template <class Op>
NormBackwardOp norm_backward_op(const Op& n) {
  constexpr bool kHasMean = requires { n.mean; };
  NormBackwardOp b{};
  b.rms = !kHasMean;
  b.eps = n.eps;
  b.rows = norm_rows_of(n.x.type(), n.axis);
  b.dy = n.dy, b.x = n.x, b.gamma = n.gamma, b.dsum = n.dsum;
  if constexpr (kHasMean) {
    b.mean = n.mean, b.inv = n.inv_std;
  } else {
    b.inv = n.inv_rms;
  }
  b.dx = n.want_dx ? 0 : -1;
  b.dgamma = n.want_dgamma ? 1 : -1;
  b.dbeta = n.want_dbeta ? 2 : -1;
  return b;
}

// x of group_norm and layer_norm2d: [batch, channels, pixels].
struct NormImages {
  int64_t batch, channels, pixels = 1;
};
inline NormImages norm_images_of(const Type& x) {
  NormImages m{x.dims[0], x.dims[1]};
  for (int i = 2; i < x.rank; ++i) m.pixels *= x.dims[i];
  return m;
}

}  // namespace tenon::sdk
