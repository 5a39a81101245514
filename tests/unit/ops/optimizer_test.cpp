// SPDX-License-Identifier: Apache-2.0
// sgd, adamw and lion: types, refusals, values beside the published rules.
#include <cmath>

#include "evaluate.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/optimizer");

namespace {

// Runs one update; `pick` chooses among its outputs.
template <class Write>
double updated(const std::vector<Tensor>& at, Write write, size_t pick) {
  return forward(
      [&](Builder& b, const std::vector<Value>& in) -> Value { return b.add(write(in))[pick]; },
      at)[0];
}
Tensor one(double v, DType t = kF64) { return tensor(t, {}, {v}); }

}  // namespace

TEST_CASE("optimizers: types") {
  Rig r;
  const Value w = r(kBF16, {2, 3}), g = r(kBF16, {2, 3}), m = r(kF32, {2, 3}), lr = r(kF32, {}),
              step = r(kI64, {});
  CHECK(r.infer(op::sgd{.w = w, .g = g, .lr = lr}) == "bf16[2,3]");
  CHECK(r.infer(op::adamw{.w = w, .g = g, .m = m, .v = m, .lr = lr, .step = step}) == "bf16[2,3]");
  CHECK(r.infer(op::adamw{.w = m, .g = g, .m = m, .v = m, .lr = lr, .step = step}, 2) ==
        "f32[2,3]");
  CHECK(r.infer(op::lion{.w = m, .g = g, .m = m, .lr = lr, .apply = r(kBool, {})}, 1) ==
        "f32[2,3]");
}

TEST_CASE("optimizers: refusals") {
  Rig r;
  const Value w = r(kF32, {3}), lr = r(kF32, {}), step = r(kI64, {});
  using Sgd = op::sgd;
  using Adam = op::adamw;
  r.refuses(Sgd{.momentum = 0.9, .w = w, .g = w, .lr = lr}, Code::invalid_argument,
            {"momentum_buf", "0.9"});
  r.refuses(Sgd{.w = w, .g = w, .lr = lr, .momentum_buf = w}, Code::invalid_argument,
            {"momentum_buf"});
  r.refuses(Sgd{.nesterov = true, .w = w, .g = w, .lr = lr}, Code::invalid_argument, {"nesterov"});
  r.refuses(Sgd{.momentum = 0.9, .dampening = 0.1, .w = w, .g = w, .lr = lr, .momentum_buf = w},
            Code::invalid_argument, {"step", "dampening"});
  r.refuses(Sgd{.weight_decay = -1, .w = w, .g = w, .lr = lr}, Code::invalid_argument,
            {"weight_decay", "-1"});
  r.refuses(Sgd{.w = w, .g = r(kF32, {1}), .lr = lr}, Code::shape_mismatch,
            {"operand g", "[3]", "f32[1]"});
  r.refuses(Sgd{.w = w, .g = r(kF64, {3}), .lr = lr}, Code::dtype_mismatch,
            {"operand g", "f32", "f64[3]"});
  r.refuses(Sgd{.w = w, .g = w, .lr = r(kF32, {1})}, Code::shape_mismatch, {"lr", "rank 0"});
  r.refuses(Sgd{.w = w, .g = w, .lr = r(kF16, {})}, Code::dtype_mismatch, {"lr", "f32", "f16[]"});
  r.refuses(Sgd{.w = w, .g = w, .lr = lr, .apply = step}, Code::dtype_mismatch, {"apply", "bool"});
  r.refuses(Adam{.beta1 = 1, .w = w, .g = w, .m = w, .v = w, .lr = lr, .step = step},
            Code::invalid_argument, {"beta1", "1"});
  r.refuses(Adam{.eps = -1, .w = w, .g = w, .m = w, .v = w, .lr = lr, .step = step},
            Code::invalid_argument, {"eps", "-1"});
  r.refuses(Adam{.w = w, .g = w, .m = r(kBF16, {3}), .v = w, .lr = lr, .step = step},
            Code::dtype_mismatch, {"operand m", "f32", "bf16[3]"});
  r.refuses(Adam{.w = w, .g = w, .m = w, .v = w, .lr = lr, .step = lr}, Code::dtype_mismatch,
            {"step", "i64"});
}

TEST_CASE("sgd: momentum, dampening, nesterov and decay as torch.optim.SGD") {
  const std::vector<Tensor> at = {one(2), one(0.5), one(0.1), one(3, kI64), one(0.4)};
  const double g = 0.5 + 0.01 * 2;
  const auto run = [&](op::sgd n, const std::vector<Tensor>& t, size_t pick) {
    return updated(
        t,
        [=](const std::vector<Value>& in) mutable {
          n.w = in[0], n.g = in[1], n.lr = in[2];
          if (n.momentum != 0)
            n.step = in[3], n.momentum_buf = in[4], n.want_momentum_buf_out = true;
          return n;
        },
        pick);
  };
  CHECK(run({.weight_decay = 0.01}, at, 0) == doctest::Approx(2 - 0.1 * g));
  const double buf = 0.9 * 0.4 + 0.7 * g;
  CHECK(run({.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}, at, 1) ==
        doctest::Approx(buf));
  CHECK(run({.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}, at, 0) ==
        doctest::Approx(2 - 0.1 * buf));
  const double plain = 0.9 * 0.4 + g;
  CHECK(run({.momentum = 0.9, .nesterov = true, .weight_decay = 0.01}, at, 0) ==
        doctest::Approx(2 - 0.1 * (g + 0.9 * plain)));
  // The first step takes the gradient as it is.
  std::vector<Tensor> first = at;
  first[3] = one(1, kI64);
  CHECK(run({.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}, first, 1) ==
        doctest::Approx(g));
}

TEST_CASE("adamw: one step by hand, at the first step and later") {
  for (double t : {1.0, 7.0}) {
    const std::vector<Tensor> at = {one(2), one(0.5), one(0.1), one(0.2), one(1e-3), one(t, kI64)};
    const auto run = [&](size_t pick) {
      return updated(
          at,
          [](const std::vector<Value>& in) {
            return op::adamw{
                .w = in[0], .g = in[1], .m = in[2], .v = in[3], .lr = in[4], .step = in[5]};
          },
          pick);
    };
    const double m = 0.9 * 0.1 + 0.1 * 0.5, v = 0.999 * 0.2 + 0.001 * 0.25;
    const double root = std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8;
    CHECK(run(1) == doctest::Approx(m).epsilon(1e-12));
    CHECK(run(2) == doctest::Approx(v).epsilon(1e-12));
    CHECK(
        run(0) ==
        doctest::Approx(2 * (1 - 1e-5) - 1e-3 * m / (1 - std::pow(0.9, t)) / root).epsilon(1e-12));
  }
}

TEST_CASE("adamw: f32 keeps the bias correction of the first step") {
  // 1 - f32(0.999) is 3e-5 off; from zero moments the first step is lr·sign(g).
  const std::vector<Tensor> at = {one(0, kF32), one(0.25, kF32), one(0, kF32),
                                  one(0, kF32), one(1, kF32),    one(1, kI64)};
  const double w = updated(
      at,
      [](const std::vector<Value>& in) {
        return op::adamw{.weight_decay = 0,
                         .w = in[0],
                         .g = in[1],
                         .m = in[2],
                         .v = in[3],
                         .lr = in[4],
                         .step = in[5]};
      },
      0);
  CHECK(std::fabs(w + 1) < 5e-7);
}

TEST_CASE("lion: the sign of the blend, then the moment") {
  const std::vector<Tensor> at = {one(2), one(-0.5), one(0.05), one(0.1)};
  const auto run = [&](size_t pick) {
    return updated(
        at,
        [](const std::vector<Value>& in) {
          return op::lion{.weight_decay = 0.1, .w = in[0], .g = in[1], .m = in[2], .lr = in[3]};
        },
        pick);
  };
  CHECK(run(0) == doctest::Approx(2 * (1 - 0.01) + 0.1));
  CHECK(run(1) == doctest::Approx(0.99 * 0.05 - 0.01 * 0.5));
}

TEST_CASE("optimizers: grad_scale scales, apply false changes nothing") {
  std::vector<Tensor> at = {one(2, kF32),   one(NAN, kF32),         one(0.1, kF32),
                            one(0.5, kF32), tensor(kBool, {}, {0}), one(0.25, kF32)};
  const auto run = [&](size_t pick) {
    return updated(
        at,
        [](const std::vector<Value>& in) {
          return op::lion{
              .w = in[0], .g = in[1], .m = in[5], .lr = in[2], .grad_scale = in[3], .apply = in[4]};
        },
        pick);
  };
  CHECK(run(0) == 2);
  CHECK(run(1) == 0.25);
  at[1] = one(8, kF32);
  at[4] = tensor(kBool, {}, {1});
  CHECK(run(1) == doctest::Approx(0.99 * 0.25 + 0.01 * 4));
}
