// SPDX-License-Identifier: Apache-2.0
// selective_scan and its backward op. Errors grow with the steps that a state remembers.
#include "cases/families.hpp"

namespace tenon::conform {
namespace {

struct Form {
  const char* id;
  const char* sentence;
  int64_t batch, channels, steps, states, groups = 0;  // groups 0: b and c of rank 3
  bool bld = false, softplus = false;
  bool d = false, z = false, bias = false, h0 = false, last = false;
  bool growing = false;     // a > 0
  bool forgetting = false;  // a far below 0
  bool gradient = false;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {.id = "plain",
       .sentence = "no optional operands",
       .batch = 2,
       .channels = 3,
       .steps = 4,
       .states = 2,
       .gradient = true},
      {.id = "all",
       .sentence = "all operands, in groups",
       .batch = 2,
       .channels = 6,
       .steps = 3,
       .states = 2,
       .groups = 3,
       .softplus = true,
       .d = true,
       .z = true,
       .bias = true,
       .h0 = true,
       .last = true,
       .gradient = true},
      {.id = "bld",
       .sentence = "channels behind steps, in groups",
       .batch = 2,
       .channels = 4,
       .steps = 3,
       .states = 3,
       .groups = 2,
       .bld = true,
       .softplus = true,
       .d = true,
       .z = true,
       .bias = true,
       .h0 = true,
       .last = true,
       .gradient = true},
      {.id = "bld-plain",
       .sentence = "channels behind steps, one group without an axis",
       .batch = 1,
       .channels = 19,
       .steps = 5,
       .states = 5,
       .bld = true},
      {.id = "gate",
       .sentence = "a gate, and the last state",
       .batch = 1,
       .channels = 3,
       .steps = 4,
       .states = 1,
       .z = true,
       .last = true,
       .gradient = true},
      {.id = "skip",
       .sentence = "the input added to the output",
       .batch = 1,
       .channels = 2,
       .steps = 3,
       .states = 2,
       .d = true,
       .h0 = true,
       .gradient = true},
      {.id = "softplus",
       .sentence = "softplus without a bias",
       .batch = 2,
       .channels = 17,
       .steps = 9,
       .states = 4,
       .softplus = true},
      {.id = "bias",
       .sentence = "a bias of the steps without softplus",
       .batch = 1,
       .channels = 5,
       .steps = 4,
       .states = 3,
       .bias = true,
       .gradient = true},
      {.id = "mamba",
       .sentence = "as Mamba has it: 16 states",
       .batch = 2,
       .channels = 40,
       .steps = 70,
       .states = 16,
       .softplus = true,
       .d = true,
       .z = true,
       .bias = true,
       .last = true},
      {.id = "states-17",
       .sentence = "17 states, an odd number of channels in each group",
       .batch = 2,
       .channels = 42,
       .steps = 33,
       .states = 17,
       .groups = 2,
       .softplus = true,
       .h0 = true,
       .last = true},
      {.id = "states-33",
       .sentence = "33 states, a number of steps that vectors do not divide",
       .batch = 1,
       .channels = 7,
       .steps = 21,
       .states = 33,
       .softplus = true,
       .z = true,
       .h0 = true,
       .last = true},
      {.id = "states-96",
       .sentence = "96 states, channels behind steps",
       .batch = 1,
       .channels = 12,
       .steps = 18,
       .states = 96,
       .bld = true,
       .softplus = true,
       .d = true,
       .last = true},
      {.id = "states-64",
       .sentence = "64 states",
       .batch = 1,
       .channels = 16,
       .steps = 20,
       .states = 64,
       .softplus = true,
       .h0 = true,
       .last = true},
      {.id = "states-1",
       .sentence = "one state, many steps",
       .batch = 3,
       .channels = 18,
       .steps = 300,
       .states = 1,
       .softplus = true,
       .last = true},
      {.id = "long",
       .sentence = "more steps than any block",
       .batch = 1,
       .channels = 9,
       .steps = 1100,
       .states = 3,
       .bld = true,
       .softplus = true,
       .d = true,
       .h0 = true,
       .last = true},
      {.id = "decode",
       .sentence = "one step from a state",
       .batch = 3,
       .channels = 33,
       .steps = 1,
       .states = 16,
       .softplus = true,
       .d = true,
       .z = true,
       .bias = true,
       .h0 = true,
       .last = true},
      {.id = "decode-bld",
       .sentence = "one step from a state, channels behind steps",
       .batch = 2,
       .channels = 32,
       .steps = 1,
       .states = 16,
       .bld = true,
       .softplus = true,
       .h0 = true,
       .last = true},
      {.id = "growing",
       .sentence = "states that grow",
       .batch = 1,
       .channels = 4,
       .steps = 6,
       .states = 2,
       .softplus = true,
       .h0 = true,
       .last = true,
       .growing = true,
       .gradient = true},
      {.id = "forgets",
       .sentence = "states that a step forgets: e^(δ·a) is below the smallest number",
       .batch = 1,
       .channels = 8,
       .steps = 24,
       .states = 16,
       .softplus = true,
       .d = true,
       .h0 = true,
       .last = true,
       .forgetting = true},
      {.id = "no-steps",
       .sentence = "no steps: the state stays",
       .batch = 2,
       .channels = 3,
       .steps = 0,
       .states = 4,
       .d = true,
       .h0 = true,
       .last = true},
      {.id = "no-steps-wide",
       .sentence = "no steps and many states",
       .batch = 1,
       .channels = 3,
       .steps = 0,
       .states = 70,
       .last = true,
       .gradient = true},
      {.id = "no-batch",
       .sentence = "no sequences",
       .batch = 0,
       .channels = 3,
       .steps = 4,
       .states = 2,
       .last = true},
  };
  return all;
}

// Operands of both ops.
template <class Op>
void fill(CaseBuilder& b, const Form& f, Op& n) {
  const Dims rows = f.bld ? Dims{f.batch, f.steps, f.channels} : Dims{f.batch, f.channels, f.steps};
  Dims shared = {f.batch};
  if (f.bld) shared.push_back(f.steps);
  if (f.groups) shared.push_back(f.groups);
  shared.push_back(f.states);
  if (!f.bld) shared.push_back(f.steps);
  const tenon_dtype wide = b.own_acc();
  n.dt_softplus = f.softplus;
  n.layout = f.bld ? "bld" : "bdl";
  n.u = b.input("u", rows);
  n.dt = b.input("dt", rows, f.softplus ? Fill::normal() : Fill::uniform(0.05, 0.9));
  const double sign = f.growing ? 0.3 : f.forgetting ? -400 : -1;
  n.a = b.input("a", wide, {f.channels, f.states},
                Fill::uniform(std::min(0.1 * sign, sign), std::max(0.1 * sign, sign)));
  n.b = b.input("b", shared);
  n.c = b.input("c", shared);
  if (f.d) n.d = b.input("d", wide, {f.channels}, Fill::normal());
  if (f.z) n.z = b.input("z", rows);
  if (f.bias) n.dt_bias = b.input("dt_bias", wide, {f.channels}, Fill::uniform(-0.5, 0.5));
  if (f.h0) n.h0 = b.input("h0", wide, {f.batch, f.channels, f.states}, Fill::normal());
}

// Sums may cancel: errors are relative to the largest number.
void give(CaseBuilder& b, const char* name, Value v) {
  b.output(name, v);
  b.scale(name, [&] { return b.binary("add", largest_of(b, v), b.number(1)); });
}

void forward_rows(Suite& s, const Form& f) {
  s.add({.id = std::string("selective-scan-") + f.id,
         .sentence = std::string("selective_scan: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::selective_scan n;
               fill(b, f, n);
               n.want_h_last = f.last;
               const Node y = b.add(n);
               give(b, "y", y[0]);
               if (f.last) give(b, "h_last", y[1]);
             },
         .tolerance = scaled(64),
         .decomposed = 2,
         .strided = f.steps < 1000,
         .gradient = f.gradient,
         .second_order = f.gradient && f.batch * f.channels * f.steps <= 24,
         .scales = {0.05, 0.7}});
}

void backward_rows(Suite& s, const Form& f) {
  s.add({.id = std::string("selective-scan-backward-") + f.id,
         .sentence = std::string("gradient of selective_scan: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::selective_scan_backward n;
               fill(b, f, n);
               n.dy = b.input("dy", b.graph().type(n.u).dims);
               if (f.last)
                 n.dh_last = b.input("dh_last", b.own_acc(), {f.batch, f.channels, f.states},
                                     Fill::normal());
               n.want_du = n.want_ddt = n.want_da = n.want_db = n.want_dc = true;
               n.want_dd = f.d, n.want_dz = f.z, n.want_ddt_bias = f.bias, n.want_dh0 = f.h0;
               const Node d = b.add(n);
               const char* const names[] = {"du", "ddt", "da",       "db", "dc",
                                            "dd", "dz",  "ddt_bias", "dh0"};
               const bool given[] = {true, true, true, true, true, f.d, f.z, f.bias, f.h0};
               for (size_t k = 0; k < std::size(names); ++k)
                 if (given[k]) give(b, names[k], d[k]);
             },
         .tolerance = scaled(200),
         .decomposed = 2,
         .strided = f.steps < 1000});
}

// By hand: e^(δ·a) is a half and a quarter.
void known_rows(Suite& s) {
  s.add({.id = "selective-scan-known",
         .sentence = "selective_scan: states that halve",
         .build =
             [](CaseBuilder& b) {
               const double half = -0.6931471805599453;
               const auto in = [&](const char* name, const Dims& dims, std::vector<double> values) {
                 return b.input(name, dims, Fill::list(std::move(values)));
               };
               op::selective_scan n{.u = in("u", {1, 1, 3}, {2, 4, -1}),
                                    .dt = in("dt", {1, 1, 3}, {1, 2, 1})};
               n.a = b.input("a", b.own_acc(), {1, 1}, Fill::list({half}));
               n.b = in("b", {1, 1, 3}, {1, 0.5, 2}), n.c = in("c", {1, 1, 3}, {1, 2, 1});
               n.d = b.input("d", b.own_acc(), {1}, Fill::list({10}));
               n.h0 = b.input("h0", b.own_acc(), {1, 1, 1}, Fill::list({4}));
               n.want_h_last = true;
               const Node y = b.add(n);
               // h: 2 + 2, 1 + 4, 2.5 - 2
               b.output("y", y[0]);
               b.expect("y", {24, 50, -9.5});
               b.output("h_last", y[1]);
               b.expect("h_last", {0.5});
             },
         .tolerance = scaled(64)});
  s.add({.id = "selective-scan-edge",
         .sentence = "selective_scan: e^88.5 and e^-88.5 are numbers of f32",
         .dtypes = {f32, bf16, f64},
         .build =
             [](CaseBuilder& b) {
               op::selective_scan n{.u = b.input("u", {1, 2, 1}, Fill::list({0.5, 2})),
                                    .dt = b.input("dt", {1, 2, 1}, Fill::list({88.5, 88.5}))};
               n.a = b.input("a", b.own_acc(), {2, 1}, Fill::list({1, -1}));
               n.b = b.input("b", {1, 1, 1}, Fill::list({2}));
               n.c = b.input("c", {1, 1, 1}, Fill::list({1}));
               n.want_h_last = true;
               const Node y = b.add(n);  // the first state is 0
               b.output("y", y[0]);
               b.expect("y", {88.5, 354});
               b.output("h_last", y[1]);
               b.expect("h_last", {88.5, 354});
             },
         .tolerance = scaled(64)});
}

// Mamba-2: all channels of a head, and all their states, have one a and one dt.
void heads_row(Suite& s) {
  constexpr int64_t kBatch = 2, kHeads = 3, kWidth = 4, kSteps = 5, kStates = 3;
  s.add({.id = "selective-scan-heads",
         .sentence = "selective_scan as Mamba-2 has it: one a and one dt for each head",
         .build =
             [](CaseBuilder& b) {
               Graph& g = b.graph();
               const auto spread = [&](Value v, const Dims& full, const Dims& flat) {
                 const Value all = g.add(op::expand{.shape = full, .x = v});
                 return Value(g.add(op::reshape{.shape = flat, .x = all}));
               };
               const int64_t channels = kHeads * kWidth;
               op::selective_scan n{.dt_softplus = true};
               n.u = b.input("u", {kBatch, channels, kSteps});
               n.dt = spread(b.input("dt", {kBatch, kHeads, 1, kSteps}),
                             {kBatch, kHeads, kWidth, kSteps}, {kBatch, channels, kSteps});
               n.a = spread(b.input("a", b.own_acc(), {kHeads, 1, 1}, Fill::uniform(-1, -0.1)),
                            {kHeads, kWidth, kStates}, {channels, kStates});
               n.b = b.input("b", {kBatch, kStates, kSteps});
               n.c = b.input("c", {kBatch, kStates, kSteps});
               give(b, "y", b.add(n)[0]);
             },
         .tolerance = scaled(64),
         .decomposed = 2,
         .gradient = true,
         .scales = {0.05, 0.7}});
}

}  // namespace

void selective_scan_cases(Suite& s) {
  s.floor({.joined = 150, .own_joined = 35});
  for (const Form& f : forms()) forward_rows(s, f), backward_rows(s, f);
  known_rows(s);
  heads_row(s);
}

}  // namespace tenon::conform
