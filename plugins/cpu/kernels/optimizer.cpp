// SPDX-License-Identifier: Apache-2.0
// sgd, adamw and lion: one pass over weight, gradient and moments, in place where the plan allows.
// Weights may have half precision; moments have the accumulation type.
#include <string>
#include <utility>
#include <vector>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "block_copy.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd-inl.h"

#ifndef TENON_CPU_OPTIMIZER_ONCE
#define TENON_CPU_OPTIMIZER_ONCE
namespace tenon::cpu {

// Addresses and coefficients of one update. Unused ones are empty.
struct Update {
  const void* w = nullptr;
  const void* g = nullptr;
  const void* moment[2] = {};
  void* w_out = nullptr;
  void* moment_out[2] = {};
  double grad_scale = 1;
  // learning rate of the step; for adamw, includes the bias correction of the first moment
  double rate = 0;
  double decay = 0;       // weight decay; for sgd, added to the gradient
  double keep[2] = {};    // factors of the moments
  double take[2] = {};    // factors of the gradient
  double root_scale = 1;  // adamw: 1/sqrt of the bias correction of the second moment
  double eps = 0;
  double look_ahead = 0;  // sgd with nesterov: the momentum
  bool nesterov = false;
  bool first = false;  // sgd with momentum: the first step initializes the buffer with the gradient
};

// Updates elements [begin, end).
using UpdateRange = void (*)(const Update& u, int64_t begin, int64_t end);

}  // namespace tenon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// A whole vector of a tensor, or its last n elements.
struct Whole {
  template <class D, class T>
  HWY_INLINE hn::Vec<D> get(D d, const T* p) const {
    return load(d, p);
  }
  template <class D, class T>
  HWY_INLINE void put(D d, hn::Vec<D> v, T* p) const {
    store(d, v, p);
  }
};
struct Part {
  size_t n;
  template <class D, class T>
  HWY_INLINE hn::Vec<D> get(D d, const T* p) const {
    return load_n(d, p, n);
  }
  template <class D, class T>
  HWY_INLINE void put(D d, hn::Vec<D> v, T* p) const {
    store_n(d, v, p, n);
  }
};

template <class D>
struct Sgd {
  static constexpr int kMoments = 0;
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;
  Sgd(D d, const Update& u)
      : rate(hn::Set(d, static_cast<T>(u.rate))), decay(hn::Set(d, static_cast<T>(u.decay))) {}
  HWY_INLINE void operator()(D, V& w, V g, V*) const {
    w = hn::NegMulAdd(rate, hn::MulAdd(decay, w, g), w);
  }
  V rate, decay;
};

template <class D>
struct Momentum {
  static constexpr int kMoments = 1;
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;
  Momentum(D d, const Update& u)
      : plain(d, u),
        keep(hn::Set(d, static_cast<T>(u.keep[0]))),
        take(hn::Set(d, static_cast<T>(u.take[0]))),
        look_ahead(hn::Set(d, static_cast<T>(u.look_ahead))),
        nesterov(u.nesterov),
        first(u.first) {}
  HWY_INLINE void operator()(D, V& w, V g, V* m) const {
    const V slope = hn::MulAdd(plain.decay, w, g);
    m[0] = first ? slope : hn::MulAdd(keep, m[0], hn::Mul(take, slope));
    w = hn::NegMulAdd(plain.rate, nesterov ? hn::MulAdd(look_ahead, m[0], slope) : m[0], w);
  }
  Sgd<D> plain;
  V keep, take, look_ahead;
  bool nesterov, first;
};

template <class D>
struct AdamW {
  static constexpr int kMoments = 2;
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;
  AdamW(D d, const Update& u)
      : rate(hn::Set(d, static_cast<T>(u.rate))),
        decay(hn::Set(d, static_cast<T>(u.decay))),
        root_scale(hn::Set(d, static_cast<T>(u.root_scale))),
        eps(hn::Set(d, static_cast<T>(u.eps))) {
    for (int i = 0; i < 2; ++i) {
      keep[i] = hn::Set(d, static_cast<T>(u.keep[i]));
      take[i] = hn::Set(d, static_cast<T>(u.take[i]));
    }
  }
  HWY_INLINE void operator()(D, V& w, V g, V* m) const {
    m[0] = hn::MulAdd(keep[0], m[0], hn::Mul(take[0], g));
    m[1] = hn::MulAdd(keep[1], m[1], hn::Mul(take[1], hn::Mul(g, g)));
    const V root = hn::MulAdd(hn::Sqrt(m[1]), root_scale, eps);
    w = hn::Sub(w, hn::MulAdd(decay, w, hn::Div(hn::Mul(rate, m[0]), root)));
  }
  V rate, decay, root_scale, eps;
  V keep[2], take[2];
};

template <class D>
struct Lion {
  static constexpr int kMoments = 1;
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;
  Lion(D d, const Update& u)
      : rate(hn::Set(d, static_cast<T>(u.rate))), decay(hn::Set(d, static_cast<T>(u.decay))) {
    for (int i = 0; i < 2; ++i) {
      keep[i] = hn::Set(d, static_cast<T>(u.keep[i]));
      take[i] = hn::Set(d, static_cast<T>(u.take[i]));
    }
  }
  HWY_INLINE void operator()(D d, V& w, V g, V* m) const {
    const V mixed = hn::MulAdd(keep[0], m[0], hn::Mul(take[0], g));
    const V zero = hn::Zero(d), one = hn::Set(d, T{1});
    // preserves 0 and NaN
    const V negative = hn::IfThenElse(hn::Lt(mixed, zero), hn::Neg(one), mixed);
    const V sign = hn::IfThenElse(hn::Gt(mixed, zero), one, negative);
    w = hn::Sub(w, hn::MulAdd(decay, w, hn::Mul(rate, sign)));
    m[0] = hn::MulAdd(keep[1], m[0], hn::Mul(take[1], g));
  }
  V rate, decay;
  V keep[2], take[2];
};

template <template <class> class Rule, class W, class G>
void update(const Update& u, int64_t begin, int64_t end) {
  using A = Acc<W>;
  const hn::ScalableTag<A> d;
  using D = hn::ScalableTag<A>;
  constexpr int kMoments = Rule<D>::kMoments;
  const Rule<D> rule(d, u);
  const auto scale = hn::Set(d, static_cast<A>(u.grad_scale));
  const auto step = [&](int64_t i, auto part) HWY_ATTR {
    auto w = part.get(d, static_cast<const W*>(u.w) + i);
    const auto g = hn::Mul(scale, part.get(d, static_cast<const G*>(u.g) + i));
    hn::Vec<D> moment[2];
    for (int k = 0; k < kMoments; ++k)
      moment[k] = part.get(d, static_cast<const A*>(u.moment[k]) + i);
    rule(d, w, g, moment);
    part.put(d, w, static_cast<W*>(u.w_out) + i);
    for (int k = 0; k < kMoments; ++k) part.put(d, moment[k], static_cast<A*>(u.moment_out[k]) + i);
  };
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) step(i, Whole{});
  if (i < end) step(i, Part{static_cast<size_t>(end - i)});
}

// The gradient has the weight's dtype, f32, or, with an f32 master weight, a half-precision dtype.
template <template <class> class Rule>
UpdateRange update_for(tenon_dtype w, tenon_dtype g) {
  if (w == TENON_DTYPE_F32) {
    if (g == TENON_DTYPE_F32) return update<Rule, float, float>;
    if (g == TENON_DTYPE_F16) return update<Rule, float, F16>;
    if (g == TENON_DTYPE_BF16) return update<Rule, float, Bf16>;
  }
  if (w == TENON_DTYPE_F16) {
    if (g == TENON_DTYPE_F16) return update<Rule, F16, F16>;
    if (g == TENON_DTYPE_F32) return update<Rule, F16, float>;
  }
  if (w == TENON_DTYPE_BF16) {
    if (g == TENON_DTYPE_BF16) return update<Rule, Bf16, Bf16>;
    if (g == TENON_DTYPE_F32) return update<Rule, Bf16, float>;
  }
  if (w == TENON_DTYPE_F64 && g == TENON_DTYPE_F64) return update<Rule, double, double>;
  return nullptr;
}

UpdateRange sgd_for(tenon_dtype w, tenon_dtype g) { return update_for<Sgd>(w, g); }
UpdateRange momentum_for(tenon_dtype w, tenon_dtype g) { return update_for<Momentum>(w, g); }
UpdateRange adamw_for(tenon_dtype w, tenon_dtype g) { return update_for<AdamW>(w, g); }
UpdateRange lion_for(tenon_dtype w, tenon_dtype g) { return update_for<Lion>(w, g); }

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {
HWY_EXPORT(sgd_for);
HWY_EXPORT(momentum_for);
HWY_EXPORT(adamw_for);
HWY_EXPORT(lion_for);
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Value;

// An optional scalar operand, read at run time.
struct Scalar {
  int position = -1;
  tenon_dtype dtype = TENON_DTYPE_NONE;

  explicit Scalar(const Value& v) : position(v.position()) {
    if (v) dtype = v.type().dtype;
  }
  double read(const Call& c, double otherwise) const {
    if (position < 0) return otherwise;
    return with_type(sdk::Types<float, double, int64_t, uint8_t>{}, dtype,
                     [&]<class T>(T) { return static_cast<double>(*c.in<T>(position)); });
  }
};

// Shared by the three ops: the tensors and the common operands.
struct Operands {
  int64_t count = 0;
  int64_t w_bytes = 0;
  int64_t moment_bytes = 0;
  int64_t grain = 0;
  std::vector<int> moments;  // positions of the inputs; the outputs are 1 and 2
  UpdateRange range = nullptr;
  Scalar lr, grad_scale, apply;

  Operands(const Value& w, const Value& g, const std::vector<Value>& buffers, const Value& rate,
           const Value& scale, const Value& when, UpdateRange update)
      : count(w.type().elements()),
        w_bytes(static_cast<int64_t>(w.type().bytes())),
        range(update),
        lr(rate),
        grad_scale(scale),
        apply(when) {
    if (!is_float(w.type().dtype)) throw sdk::Refusal::dtype("w", w.type().dtype);
    if (range == nullptr) throw sdk::Refusal::dtype("g", g.type().dtype);
    for (const Value& buffer : buffers) {
      moments.push_back(buffer.position());
      moment_bytes = static_cast<int64_t>(buffer.type().bytes());
    }
    constexpr int64_t kLine = 64;  // elements: pieces start at cache lines
    const int64_t each = 8 + 16 * static_cast<int64_t>(moments.size());
    grain = (grain_for(each) + kLine - 1) / kLine * kLine;
  }

  std::vector<sdk::InPlace> in_place() const {
    std::vector<sdk::InPlace> list{{0, 0}};
    for (size_t k = 0; k < moments.size(); ++k)
      list.push_back({moments[k], static_cast<int>(k) + 1});
    return list;
  }

  // u holds the coefficients of the op, without the learning rate.
  void run(const Call& c, Update u) const {
    const auto keep = [&](int input, int output, int64_t bytes) {
      if (c.inputs[input] != c.outputs[output])
        copy_bytes(c.inputs[input], c.outputs[output], bytes);
    };
    if (apply.read(c, 1) == 0) {
      keep(0, 0, w_bytes);
      for (size_t k = 0; k < moments.size(); ++k)
        keep(moments[k], static_cast<int>(k) + 1, moment_bytes);
      return;
    }
    u.w = c.inputs[0];
    u.g = c.inputs[1];
    u.w_out = c.outputs[0];
    for (size_t k = 0; k < moments.size(); ++k) {
      u.moment[k] = c.inputs[moments[k]];
      u.moment_out[k] = c.outputs[k + 1];
    }
    u.grad_scale = grad_scale.read(c, 1);
    parallel_for(count, grain, [&](int64_t begin, int64_t end) { range(u, begin, end); });
  }
};

Kernel make_sgd(const sdk::op::sgd& n, const Node&) {
  const tenon_dtype w = n.w.type().dtype, g = n.g.type().dtype;
  const bool with_momentum = n.momentum != 0;
  const Operands o = with_momentum ? Operands(n.w, n.g, {n.momentum_buf}, n.lr, n.grad_scale,
                                              n.apply, HWY_DYNAMIC_DISPATCH(momentum_for)(w, g))
                                   : Operands(n.w, n.g, {}, n.lr, n.grad_scale, n.apply,
                                              HWY_DYNAMIC_DISPATCH(sgd_for)(w, g));
  if (with_momentum != n.want_momentum_buf_out)
    throw sdk::Refusal::shape("output momentum_buf_out goes with momentum");
  const Scalar step(n.step);
  Update u;
  u.look_ahead = n.momentum;
  u.nesterov = n.nesterov;
  return {.run =
              [o, u, step, decay = n.weight_decay, momentum = n.momentum,
               take = 1 - n.dampening](const Call& c) {
                Update now = u;
                now.first = step.read(c, 2) <= 1;  // without `step`, the buffer continues
                now.rate = o.lr.read(c, 0);
                now.decay = decay;
                now.keep[0] = momentum;
                now.take[0] = take;
                o.run(c, now);
              },
          .in_place = o.in_place()};
}

Kernel make_adamw(const sdk::op::adamw& n, const Node&) {
  const Operands o(n.w, n.g, {n.m, n.v}, n.lr, n.grad_scale, n.apply,
                   HWY_DYNAMIC_DISPATCH(adamw_for)(n.w.type().dtype, n.g.type().dtype));
  const Scalar step(n.step);
  Update u;
  u.keep[0] = n.beta1, u.take[0] = 1 - n.beta1;
  u.keep[1] = n.beta2, u.take[1] = 1 - n.beta2;
  u.eps = n.eps;
  return {.run =
              [o, u, step, decay = n.weight_decay](const Call& c) {
                Update now = u;
                const double lr = o.lr.read(c, 0), t = step.read(c, 1);
                now.rate = lr / (1 - std::pow(u.keep[0], t));
                now.decay = lr * decay;
                now.root_scale = 1 / std::sqrt(1 - std::pow(u.keep[1], t));
                o.run(c, now);
              },
          .in_place = o.in_place()};
}

Kernel make_lion(const sdk::op::lion& n, const Node&) {
  const Operands o(n.w, n.g, {n.m}, n.lr, n.grad_scale, n.apply,
                   HWY_DYNAMIC_DISPATCH(lion_for)(n.w.type().dtype, n.g.type().dtype));
  Update u;
  u.keep[0] = n.beta1, u.take[0] = 1 - n.beta1;
  u.keep[1] = n.beta2, u.take[1] = 1 - n.beta2;
  return {.run =
              [o, u, decay = n.weight_decay](const Call& c) {
                Update now = u;
                now.rate = o.lr.read(c, 0);
                now.decay = now.rate * decay;
                o.run(c, now);
              },
          .in_place = o.in_place()};
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::sgd, make_sgd>(),
    sdk::row<sdk::op::adamw, make_adamw>(),
    sdk::row<sdk::op::lion, make_lion>(),
};

}  // namespace

std::span<const sdk::Row> optimizer_rows() { return kRows; }

}  // namespace tenon::cpu
#endif
