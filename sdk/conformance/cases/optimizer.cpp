// SPDX-License-Identifier: Apache-2.0
// sgd adamw lion: against the reference, and against their formulas written out here.
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Step {
  const char* id;
  const char* sentence;
  bool scaled = false;  // grad_scale is given
  int apply = -1;       // -1 absent
  int64_t step = 3;
  double decay = 0.1;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  Dims dims = {3, 35};
};

// The operands that all three share.
template <class Op>
void set_common(CaseBuilder& b, const Step& c, Op& n) {
  n.weight_decay = c.decay;
  n.w = b.input("w", c.dims);
  n.g = b.input("g", c.dims);
  n.lr = b.input("lr", f32, {}, Fill::list({0.0625}));
  if (c.scaled) n.grad_scale = b.input("grad_scale", f32, {}, Fill::list({0.375}));
  if (c.apply >= 0)
    n.apply = b.input("apply", boolean, {}, Fill::list({static_cast<double>(c.apply)}));
}

void judged(CaseBuilder& b, const Node& y, std::initializer_list<const char*> names) {
  size_t k = 0;
  for (const char* name : names) {
    const Value v = y[k++];
    b.output(name, v);
    b.scale(name, [&] { return b.binary("add", b.abs(v), b.number(4)); });
  }
}

void sgd_row(Suite& s, const Step& c) {
  s.add({.id = std::string("sgd-") + c.id,
         .sentence = std::string("sgd: ") + c.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::sgd n{.momentum = c.momentum, .dampening = c.dampening, .nesterov = c.nesterov};
               set_common(b, c, n);
               n.step = b.ints("step", {}, {c.step});
               if (c.momentum != 0) {
                 n.momentum_buf = b.input("momentum_buf", b.own_acc(), c.dims, Fill::normal());
                 n.want_momentum_buf_out = true;
               }
               const Node y = b.add(n);
               if (c.momentum != 0)
                 judged(b, y, {"w", "momentum"});
               else
                 judged(b, y, {"w"});
             },
         .tolerance = scaled(16),
         .decomposed = 2});
}

void adamw_row(Suite& s, const Step& c) {
  s.add({.id = std::string("adamw-") + c.id,
         .sentence = std::string("adamw: ") + c.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::adamw n{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6};
               set_common(b, c, n);
               n.m = b.input("m", b.own_acc(), c.dims, Fill::normal(0.3));
               n.v = b.input("v", b.own_acc(), c.dims, Fill::uniform(0.1, 1));
               n.step = b.ints("step", {}, {c.step});
               judged(b, b.add(n), {"w", "m", "v"});
             },
         .tolerance = scaled(24),
         .decomposed = 2});
}

void lion_row(Suite& s, const Step& c) {
  s.add({.id = std::string("lion-") + c.id,
         .sentence = std::string("lion: ") + c.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::lion n{.beta1 = 0.9, .beta2 = 0.99};
               set_common(b, c, n);
               n.m = b.input("m", b.own_acc(), c.dims, Fill::normal());
               judged(b, b.add(n), {"w", "m"});
             },
         .tolerance = scaled(16),
         .decomposed = 2});
}

// Plain numbers, so that the reference is not its own judge.
const std::vector<double> kW = {1, -2, 0.5, 0}, kG = {0.5, -0.25, 2, -1},
                          kM = {0.125, 0.5, -0.25, 1}, kV = {0.25, 1, 0.5, 2};
constexpr double kLr = 0.0625, kDecay = 0.125;

template <class Rule>
std::vector<double> by_hand(Rule rule) {
  std::vector<double> out;
  for (size_t k = 0; k < kW.size(); ++k) out.push_back(rule(kW[k], kG[k], kM[k], kV[k]));
  return out;
}

template <class Op>
Op known_operands(CaseBuilder& b) {
  Op n{};
  n.weight_decay = kDecay;
  n.w = b.input("w", {4}, Fill::list(kW));
  n.g = b.input("g", {4}, Fill::list(kG));
  n.lr = b.input("lr", f32, {}, Fill::list({kLr}));
  return n;
}

void known_rows(Suite& s) {
  const auto add = [&](const char* id, Build build) {
    s.add({.id = id,
           .sentence = "one step by the formula",
           .dtypes = {f32, f64},
           .build = std::move(build),
           .tolerance = scaled(64)});
  };
  add("sgd-known", [](CaseBuilder& b) {
    op::sgd n = known_operands<op::sgd>(b);
    n.momentum = 0.75;
    n.nesterov = true;
    n.step = b.ints("step", {}, {2});
    n.momentum_buf = b.input("momentum_buf", {4}, Fill::list(kM));
    n.want_momentum_buf_out = true;
    const Node y = b.add(n);
    const auto buf = [](double w, double g, double m) { return 0.75 * m + g + kDecay * w; };
    b.output("w", y[0]);
    b.expect("w", by_hand([&](double w, double g, double m, double) {
               return w - kLr * (g + kDecay * w + 0.75 * buf(w, g, m));
             }));
    b.output("momentum", y[1]);
    b.expect("momentum",
             by_hand([&](double w, double g, double m, double) { return buf(w, g, m); }));
  });
  // Up to step 1 the buffer begins as the gradient, whatever it holds.
  for (const int64_t step : {-3, 0, 1})
    add(step < 0    ? "sgd-known-negative"
        : step == 0 ? "sgd-known-zeroth"
                    : "sgd-known-first",
        [step](CaseBuilder& b) {
          op::sgd n = known_operands<op::sgd>(b);
          n.momentum = 0.75;
          n.dampening = 0.5;
          n.step = b.ints("step", {}, {step});
          n.momentum_buf = b.input("momentum_buf", {4}, Fill::list({9, kNan, -kInf, 7}));
          n.want_momentum_buf_out = true;
          const Node y = b.add(n);
          b.output("w", y[0]);
          b.expect("w", by_hand([](double w, double g, double, double) {
                     return w - kLr * (g + kDecay * w);
                   }));
          b.output("momentum", y[1]);
          b.expect("momentum",
                   by_hand([](double w, double g, double, double) { return g + kDecay * w; }));
        });
  add("adamw-known", [](CaseBuilder& b) {
    op::adamw n = known_operands<op::adamw>(b);
    n.beta1 = 0.75;
    n.beta2 = 0.5;
    n.eps = 0.25;
    n.m = b.input("m", {4}, Fill::list(kM));
    n.v = b.input("v", {4}, Fill::list(kV));
    n.step = b.ints("step", {}, {3});
    const Node y = b.add(n);
    const auto m1 = [](double g, double m) { return 0.75 * m + 0.25 * g; };
    const auto v1 = [](double g, double v) { return 0.5 * v + 0.5 * g * g; };
    const double c1 = 1 - 0.75 * 0.75 * 0.75, c2 = 1 - 0.125;
    b.output("w", y[0]);
    b.expect("w", by_hand([&](double w, double g, double m, double v) {
               return w * (1 - kLr * kDecay) -
                      kLr * (m1(g, m) / c1) / (std::sqrt(v1(g, v) / c2) + 0.25);
             }));
    b.output("m", y[1]);
    b.expect("m", by_hand([&](double, double g, double m, double) { return m1(g, m); }));
    b.output("v", y[2]);
    b.expect("v", by_hand([&](double, double g, double, double v) { return v1(g, v); }));
  });
  add("lion-known", [](CaseBuilder& b) {
    op::lion n = known_operands<op::lion>(b);
    n.beta1 = 0.75;
    n.beta2 = 0.5;
    n.m = b.input("m", {4}, Fill::list(kM));
    const Node y = b.add(n);
    b.output("w", y[0]);
    b.expect("w", by_hand([](double w, double g, double m, double) {
               const double u = 0.75 * m + 0.25 * g;
               return w * (1 - kLr * kDecay) - kLr * (u > 0 ? 1 : u < 0 ? -1 : 0);
             }));
    b.output("m", y[1]);
    b.expect("m", by_hand([](double, double g, double m, double) { return 0.5 * m + 0.5 * g; }));
  });
}

}  // namespace

void optimizer_cases(Suite& s) {
  s.floor({.joined = 130, .own_joined = 0});
  for (const Step& c :
       {Step{.id = "plain", .sentence = "one step"},
        Step{.id = "no-decay", .sentence = "no weight decay", .decay = 0},
        Step{.id = "scaled", .sentence = "the gradient scaled", .scaled = true},
        Step{.id = "applied", .sentence = "apply is true", .scaled = true, .apply = 1},
        Step{.id = "skipped", .sentence = "apply is false: nothing changes", .apply = 0},
        Step{.id = "first", .sentence = "the first step", .step = 1},
        Step{.id = "late", .sentence = "a late step", .step = 100000},
        Step{.id = "long", .sentence = "many weights", .dims = {5003}},
        Step{.id = "empty", .sentence = "no weights", .dims = {0, 3}}}) {
    sgd_row(s, c);
    adamw_row(s, c);
    lion_row(s, c);
  }
  for (const Step& c :
       {Step{.id = "momentum", .sentence = "momentum", .momentum = 0.9},
        Step{
            .id = "nesterov", .sentence = "Nesterov's momentum", .momentum = 0.9, .nesterov = true},
        Step{.id = "dampening", .sentence = "dampening", .momentum = 0.9, .dampening = 0.3},
        Step{.id = "dampening-first",
        .sentence = "dampening spares the first step",
        .step = 1,
        .momentum = 0.9,
        .dampening = 0.3},
        Step{.id = "dampening-zeroth",
        .sentence = "a step before the first counts as the first",
        .step = 0,
        .momentum = 0.9,
        .dampening = 0.3},
        Step{.id = "momentum-skipped",
        .sentence = "momentum, apply is false",
        .apply = 0,
        .momentum = 0.9}})
    sgd_row(s, c);
  known_rows(s);
}

}  // namespace tenon::conform
