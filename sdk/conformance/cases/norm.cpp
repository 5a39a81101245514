// SPDX-License-Identifier: Apache-2.0
// layer_norm rms_norm, their residual forms and backward ops.
#include <cmath>
#include <limits>

#include "cases/families.hpp"
#include "norm_rows.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Form {
  const char* id;
  const char* sentence;
  Dims dims;
  int64_t axis = -1;
  bool gamma = true, beta = true;
  bool wide_parameters = false;  // f32 beside half data
  double mean = 0;
  double eps = 1e-5;
  double x_scale = 1;  // of the data of backward ops
  int64_t terms() const {
    int64_t n = 1;
    for (size_t k = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(dims.size()) : axis);
         k < dims.size(); ++k)
      n *= dims[k];
    return n;
  }
  Dims parameter_dims() const {
    return {dims.begin() + (axis < 0 ? axis + static_cast<int64_t>(dims.size()) : axis),
            dims.end()};
  }
  Fill data() const { return mean == 0 ? Fill::normal() : Fill::uniform(mean - 2, mean + 2); }
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"last", "rows of odd length", {3, 4, 7}},
      {"axes", "the last two axes", {3, 5, 7}, 1},
      {"plain", "no beta", {5, 13}, -1, true, false},
      {"wide", "parameters in the accumulation dtype", {4, 9}, -1, true, true, true},
      {"eps", "a large eps", {4, 9}, -1, true, true, false, 0, 0.3},
      {"long", "long rows", {3, 1031}},
      {"even", "long rows that vectors divide", {5, 1544}},
      {"many", "more rows than a block", {203, 33}},
      {"one", "rows of one element", {5, 1}},
  };
  return all;
}

template <class Op>
constexpr bool kRms =
    std::is_same_v<Op, op::rms_norm> || std::is_same_v<Op, op::rms_norm_backward> ||
    std::is_same_v<Op, op::residual_rms_norm>;

template <class Op>
void set_parameters(CaseBuilder& b, const Form& f, Op& n) {
  n.axis = f.axis;
  n.eps = f.eps;
  const tenon_dtype t = f.wide_parameters ? b.own_acc() : b.own();
  if (f.gamma || kRms<Op>)
    n.gamma = b.input("gamma", t, f.parameter_dims(), Fill::uniform(0.5, 1.5));
  if constexpr (requires { n.beta; })
    if (f.beta) n.beta = b.input("beta", t, f.parameter_dims(), Fill::normal());
}

// What the statistics and the differences to the mean may cost: the row's size over its spread.
template <class Op>
Value forward_scale(CaseBuilder& b, const Form& f, Value x, const Op& n, Value inv) {
  Value size = b.binary("add", b.abs(x), largest_of(b, x));
  size = b.binary("mul", size, inv);
  if (n.gamma) size = b.binary("mul", size, b.abs(n.gamma));
  if constexpr (requires { n.beta; })
    if (n.beta) size = b.binary("add", size, b.abs(n.beta));
  static_cast<void>(f);
  return size;
}

void stats(CaseBuilder& b, const op::layer_norm&, const Node& y, Value x) {
  b.output("mean", y[1]);
  b.scale("mean", [&] { return largest_of(b, x); });
  b.output("inv_std", y[2]);
}
void stats(CaseBuilder& b, const op::rms_norm&, const Node& y, Value) { b.output("inv_rms", y[1]); }

template <class Op>
void forward_rows(Suite& s, const std::string& name) {
  constexpr bool rms = kRms<Op>;
  std::vector<Form> all = forms();
  if (!rms) {
    all.push_back({"bare", "no gamma and no beta", {5, 13}, -1, false, false});
    all.push_back({"offset", "a mean far from zero", {4, 37}, -1, true, true, true, 512});
    all.push_back(
        {"offset-long", "a long row far from zero", {3, 2100}, -1, true, true, true, 2048});
  }
  for (const Form& f : all) {
    const bool small = f.terms() < 100 && f.dims[0] < 100 && f.mean == 0;
    s.add({.id = name + "-" + f.id,
           .sentence = name + ": " + f.sentence,
           .dtypes = f.mean == 0 ? kFloats : DTypes{f32, f64},
           .build =
               [=](CaseBuilder& b) {
                 Op n{};
                 n.x = b.input("x", f.dims, f.data());
                 set_parameters(b, f, n);
                 want_statistics(n);
                 const Node y = b.add(n);
                 b.output("y", y[0]);
                 b.scale("y", [&] { return forward_scale(b, f, n.x, n, y.outputs.back()); });
                 stats(b, n, y, n.x);
               },
           .tolerance = sum_of(f.terms()),
           .decomposed = 2,
           .gradient = small && f.terms() > 1,
           .second_order = small && f.terms() > 1});
  }
  s.add({.id = name + "-edges",
         .sentence = name + ": a constant row, a NaN that poisons its row only, zeros",
         .build =
             [](CaseBuilder& b) {
               Op n{};
               n.x = b.input("x", {4, 3}, Fill::list({2, 2, 2, 1, kNan, 3, 0, 0, 0, 1, 2, 4}));
               n.gamma = b.input("gamma", {3}, Fill::list({1, 2, 0.5}));
               const Node y = b.add(n);
               b.output("y", y[0]);
               b.scale("y", [&] { return b.number(8); });
             },
         .tolerance = sum_of(3)});
  s.add({.id = name + "-empty",
         .sentence = name + " of empty rows and of no rows",
         .dtypes = {f32, bf16},
         .build =
             [](CaseBuilder& b) {
               Op n{}, m{};
               n.x = b.input("x", {3, 0});
               n.gamma = b.input("gamma", {0});
               m.x = b.input("z", {0, 3});
               m.gamma = b.input("gamma3", {3});
               b.output("y", b.add(n)[0]);
               b.output("w", b.add(m)[0]);
             },
         .strided = false});
  norm_refusal_rows<Op>(s, name, {3, 4});
}

template <class Op>
void residual_rows(Suite& s, const std::string& name) {
  for (const bool bias : {false, true})
    for (const Form& f : forms()) {
      const bool small = f.terms() < 100 && f.dims[0] < 100;
      if (bias && !small) continue;
      s.add({.id = name + "-" + f.id + (bias ? "-bias" : ""),
             .sentence = name + ": " + f.sentence,
             .build =
                 [=](CaseBuilder& b) {
                   Op n{};
                   n.x = b.input("x", f.dims);
                   n.residual = b.input("residual", f.dims);
                   if (bias) n.bias = b.input("bias", f.parameter_dims());
                   set_parameters(b, f, n);
                   n.want_sum = true;
                   want_statistics(n);
                   const Node y = b.add(n);
                   b.output("y", y[0]);
                   b.scale("y", [&] {
                     Value size = b.binary("add", b.abs(n.x), b.abs(n.residual));
                     if (bias) size = b.binary("add", size, b.abs(n.bias));
                     return forward_scale(b, f, size, n, y.outputs.back());
                   });
                   b.output("sum", y[1]);
                   b.scale("sum", [&] { return largest_of(b, y[1]); });
                   for (size_t k = 2; k < y.outputs.size(); ++k) {
                     const std::string stat = "stat " + std::to_string(k);
                     b.output(stat, y[k]);
                     b.scale(stat, [&] {
                       return b.binary("add", b.abs(y[k]), b.number(kRms<Op> ? 0 : 1));
                     });
                   }
                 },
             .tolerance = sum_of(f.terms()),
             .decomposed = 2,
             .gradient = small && f.terms() > 1,
             .scales = {0.05, 4}});
    }
}

// In halves 4 + 1/128 rounds to 4. The gradient must be that of one sum, rounded or not: statistics
// of the one beside the other would give -808 or 0.001 here.
template <class Op>
void rounded_sum_row(Suite& s, const std::string& name) {
  s.add({.id = name + "-gradient-rounded",
         .sentence = name + ": the gradient where the sum is rounded",
         .build =
             [](CaseBuilder& b) {
               const Dims dims{1, kRms<Op> ? 1 : 2};
               Op n{.eps = kRms<Op> ? 0 : 1e-5};
               n.x = b.input("x", dims, Fill::list({4}).fixed());
               n.residual = b.input("residual", dims, Fill::list({1.0 / 128}).fixed());
               n.gamma = b.input("gamma", {dims[1]}, Fill::list({1}).fixed());
               const Value first = b.input("first", dims, Fill::list({1, 0}).fixed());
               const Value y = b.add(n)[0];
               const Value loss = b.reduce("sum", b.binary("mul", y, first), {}, false);
               b.output("dx", b.graph().gradients(loss, {n.x})[0]);
               if (kRms<Op>)
                 b.expect("dx", {0});
               else
                 b.expect("dx", {std::sqrt(1e5) / 2, -std::sqrt(1e5) / 2});
               b.scale("dx", [&] { return b.number(kRms<Op> ? 1 : 160); });
             },
         .tolerance = scaled(64)});
}

template <class Op>
void backward_rows(Suite& s, const std::string& name) {
  std::vector<Form> all = forms();
  all.push_back(
      {.id = "small-data", .sentence = "data of size 0.05", .dims = {6, 37}, .x_scale = 0.05});
  all.push_back({.id = "large-data", .sentence = "data of size 4", .dims = {6, 37}, .x_scale = 4});
  for (const Form& f : all) {
    for (const int given : {0, 1, 2}) {  // nothing, the statistics, and dsum too
      if (given == 2 && f.dims[0] > 100) continue;
      static constexpr const char* kGiven[] = {"", "-stats", "-dsum"};
      s.add({.id = name + "-" + f.id + kGiven[given],
             .sentence = name + ": " + f.sentence,
             .build =
                 [=](CaseBuilder& b) {
                   Op n{};
                   n.dy = b.input("dy", f.dims);
                   n.x = b.input("x", f.dims, Fill::normal(f.x_scale));
                   set_parameters(b, f, n);
                   if (given > 0) {
                     if constexpr (kRms<Op>) {
                       n.inv_rms = b.add(op::rms_norm{.axis = f.axis,
                                                      .eps = f.eps,
                                                      .x = n.x,
                                                      .gamma = n.gamma,
                                                      .want_inv_rms = true})[1];
                     } else {
                       const Node y = b.add(op::layer_norm{.axis = f.axis,
                                                           .eps = f.eps,
                                                           .x = n.x,
                                                           .want_mean = true,
                                                           .want_inv_std = true});
                       n.mean = y[1];
                       n.inv_std = y[2];
                     }
                   }
                   if (given > 1) n.dsum = b.input("dsum", f.dims);
                   n.want_dx = n.want_dgamma = n.want_dbeta = true;
                   gradient_outputs(b, b.add(n), f.terms());
                 },
             .tolerance = sum_of(std::max(f.terms(), f.dims[0] * 4)),
             .decomposed = 2});
    }
  }
  some_gradients_row<Op>(s, name, {3, 4, 7}, 7, 28);
  empty_gradients_row<Op>(s, name + "-empty", name, {0, 3});
}

}  // namespace

void norm_cases(Suite& s) {
  s.floor({.joined = 380, .own_joined = 200});
  forward_rows<op::layer_norm>(s, "layer-norm");
  forward_rows<op::rms_norm>(s, "rms-norm");
  residual_rows<op::residual_layer_norm>(s, "residual-layer-norm");
  residual_rows<op::residual_rms_norm>(s, "residual-rms-norm");
  parameter_gradient_rows<op::layer_norm>(s, "layer-norm", {33, 7}, 7, 33 * 7);
  rounded_sum_row<op::residual_layer_norm>(s, "residual-layer-norm");
  rounded_sum_row<op::residual_rms_norm>(s, "residual-rms-norm");
  backward_rows<op::layer_norm_backward>(s, "layer-norm-backward");
  backward_rows<op::rms_norm_backward>(s, "rms-norm-backward");
}

}  // namespace tenon::conform
