// SPDX-License-Identifier: Apache-2.0
// An op of one's own: my:softcap keeps values between -cap and cap, as some language models do with their logits. Its
// rules are written in ops of tenon, so it runs and trains on every device.
#pragma once

#include <tenon/op.hpp>

namespace my {

using tenon::Function, tenon::Value;
#define TENON_OPS "softcap.def"
#define TENON_OPS_DOMAIN "my"
#include <tenon/op_structs.inl>

inline void softcap_shape(tenon::rules::Shape& s, const softcap& n) {
  s.want_float(n.x, "x");
  if (!(n.cap > 0))
    s.fail(TENON_INVALID_ARGUMENT, "attribute cap: expected > 0, got " + std::to_string(n.cap));
  s.out(0, s.type(n.x));
}

inline void softcap_decompose(tenon::rules::Decompose& d, const softcap& n) {
  d.out(0, d.times(d.unary("tanh", d.over(n.x, n.cap)), n.cap));
}

// dx = dy · (1 - (y / cap)²)
inline void softcap_gradient(tenon::rules::Gradient& g, const softcap& n) {
  if (!g.wants(n.x)) return;
  const Value share = g.over(g.y(), n.cap);
  g.give(n.x, g.times(g.dy(), g.minus(1, g.times(share, share))));
}

inline constexpr tenon::OpRules<softcap> kSoftcap{
    .shape = softcap_shape, .decompose = softcap_decompose, .gradient = softcap_gradient};

}  // namespace my
