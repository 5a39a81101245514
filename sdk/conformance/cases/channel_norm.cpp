// SPDX-License-Identifier: Apache-2.0
// group_norm layer_norm2d and their backward ops.
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
  int64_t groups = 0;  // 0: over the channels of a pixel
  bool gamma = true, beta = true;
  bool wide_parameters = false;  // f32 beside half data
  double mean = 0;
  double eps = 1e-5;
  double x_scale = 1;  // of the data of backward ops
  bool large = false;  // f32 alone, without strides

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t d : dims) n *= d;
    return n;
  }
  int64_t terms() const {  // of the statistics
    return groups == 0 ? dims[1] : elements() / (dims[0] * groups);
  }
  bool small() const { return elements() < 200 && terms() > 1 && mean == 0; }
  Fill data() const { return mean == 0 ? Fill::normal() : Fill::uniform(mean - 2, mean + 2); }
};

std::vector<Form> group_forms() {
  return {
      {"odd", "groups of two channels, an odd image", {2, 6, 3, 5}, 3},
      {"instance", "a group for each channel", {2, 4, 7, 3}, 4},
      {"one-group", "one group, one spatial axis", {3, 4, 5}, 1},
      {"flat", "no spatial axis", {5, 12}, 3},
      {"volume", "three spatial axes", {2, 4, 2, 3, 3}, 2},
      {"plain", "no beta", {2, 6, 3, 3}, 2, true, false},
      {"bare", "no gamma and no beta", {2, 6, 3, 3}, 2, false, false},
      {"wide", "parameters in the accumulation dtype", {2, 4, 5}, 2, true, true, true},
      {"eps", "a large eps", {2, 4, 5}, 2, true, true, false, 0, 0.3},
      {"large", "few groups of large planes", {1, 4, 31, 37}, 2},
      {"many", "many groups", {21, 8, 3, 3}, 4},
      {"single", "groups of one element", {3, 4, 1}, 4},
      {"offset", "a mean far from zero", {2, 4, 5, 5}, 2, true, true, false, 512},
      {"wide-odd", "groups of 64 KiB and more, an odd image", {1, 4, 95, 131}, 2},
      {"huge", "a group of 512 KiB and more", {1, 3, 208, 212}, 1},
  };
}
std::vector<Form> pixel_forms() {
  return {
      {"odd", "an odd image", {2, 7, 3, 5}},
      {"pixel", "one pixel", {3, 9, 1, 1}},
      {"plain", "no beta", {2, 6, 3, 3}, 0, true, false},
      {"bare", "no gamma and no beta", {2, 6, 3, 3}, 0, false, false},
      {"wide", "parameters in the accumulation dtype", {2, 5, 2, 3}, 0, true, true, true},
      {"eps", "a large eps", {2, 5, 2, 3}, 0, true, true, false, 0, 0.3},
      {"deep", "many channels, pixels over a tile", {2, 131, 9, 13}},
      {"deeper", "channels by the hundred, an even image", {1, 516, 6, 12}},
      {"even", "channels in part of a tile, an even image", {2, 120, 6, 12}},
      {"large", "more pixels than a block of tiles", {3, 3, 67, 71}},
      {"single", "one channel", {2, 1, 3, 3}},
      {"offset", "a mean far from zero", {2, 33, 5, 5}, 0, true, true, false, 512},
  };
}

template <class Op>
void set_parameters(CaseBuilder& b, const Form& f, Op& n) {
  if constexpr (requires { n.groups; }) n.groups = f.groups;
  n.eps = f.eps;
  const tenon_dtype t = f.wide_parameters ? b.own_acc() : b.own();
  if (f.gamma) n.gamma = b.input("gamma", t, {f.dims[1]}, Fill::uniform(0.5, 1.5));
  if constexpr (requires { n.beta; })
    if (f.beta) n.beta = b.input("beta", t, {f.dims[1]}, Fill::normal());
}

// What the statistics and the differences to the mean may cost: the data's size over their spread.
template <class Op>
Value forward_scale(CaseBuilder& b, const Op& n, Value inv) {
  Value size =
      b.binary("mul", b.binary("mul", largest_of(b, n.x), b.number(2)), largest_of(b, inv));
  if (n.gamma) size = b.binary("mul", size, largest_of(b, n.gamma));
  return n.beta ? b.binary("add", size, largest_of(b, n.beta)) : size;
}

template <class Op>
void forward_row(Suite& s, const std::string& name, const Form& f) {
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
               b.scale("y", [&] { return forward_scale(b, n, y[2]); });
               b.output("mean", y[1]);
               b.scale("mean", [&] { return largest_of(b, n.x); });
               b.output("inv_std", y[2]);
             },
         .tolerance = sum_of(f.terms()),
         .decomposed = 2,
         .gradient = f.small(),
         .second_order = f.small() && f.elements() < 100});
}

template <class Op, class Forward>
void backward_row(Suite& s, const std::string& name, const Form& f, bool stats) {
  s.add({.id = name + "-" + f.id + (stats ? "-stats" : ""),
         .sentence = name + ": " + f.sentence,
         .dtypes = f.large ? DTypes{f32} : kFloats,
         .build =
             [=](CaseBuilder& b) {
               Op n{};
               n.dy = b.input("dy", f.dims);
               n.x = b.input("x", f.dims, Fill::normal(f.x_scale));
               set_parameters(b, f, n);
               if (stats) {
                 Forward y{};
                 if constexpr (requires { y.groups; }) y.groups = f.groups;
                 y.eps = f.eps, y.x = n.x, y.want_mean = y.want_inv_std = true;
                 const Node made = b.add(y);
                 n.mean = made[1], n.inv_std = made[2];
               }
               n.want_dx = n.want_dgamma = n.want_dbeta = true;
               gradient_outputs(b, b.add(n), f.terms());
             },
         .tolerance = sum_of(std::max(f.terms(), f.elements())),
         .decomposed = 2,
         .strided = !f.large});
}

template <class Op>
void forward_edges(Suite& s, const std::string& name) {
  s.add(
      {.id = name + "-edges",
       .sentence = name + ": constant data, a NaN that stays in its group, zeros",
       .build =
           [](CaseBuilder& b) {
             Op n{};
             if constexpr (requires { n.groups; }) n.groups = 2;
             // Images of two channels of two pixels.
             n.x = b.input("x", {3, 2, 1, 2}, Fill::list({2, 2, 2, 2, 1, kNan, 3, 1, 0, 0, 0, 4}));
             n.gamma = b.input("gamma", {2}, Fill::list({1, 2}));
             b.output("y", b.add(n)[0]);
             b.scale("y", [&] { return b.number(8); });
           },
       .tolerance = sum_of(4)});
  norm_refusal_rows<Op>(s, name, {1, 4, 2, 2});
  s.add({.id = name + "-rank-refused",
         .sentence = name + ": x without channels is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               Op n{};
               n.x = b.input("x", {4});
               b.output("y", b.add(n)[0]);
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "operand x"});
}

// Images without channels: their pixels have NaN as mean, and nothing is written.
void no_channels_rows(Suite& s) {
  s.add({.id = "layer-norm2d-no-channels",
         .sentence = "layer_norm2d of images without channels",
         .dtypes = {f32, bf16},
         .build =
             [](CaseBuilder& b) {
               const Node y = b.add(op::layer_norm2d{.x = b.input("x", {3, 0, 17, 17}),
                                                     .gamma = b.input("gamma", {0}),
                                                     .want_mean = true});
               b.output("y", y[0]);
               b.output("mean", y[1]);
             },
         .strided = false});
  s.add({.id = "layer-norm2d-backward-no-channels",
         .sentence = "gradients of layer_norm2d of images without channels",
         .dtypes = {f32, bf16},
         .build =
             [](CaseBuilder& b) {
               const Node d = b.add(op::layer_norm2d_backward{.dy = b.input("dy", {3, 0, 17, 17}),
                                                              .x = b.input("x", {3, 0, 17, 17}),
                                                              .gamma = b.input("gamma", {0}),
                                                              .want_dx = true,
                                                              .want_dgamma = true,
                                                              .want_dbeta = true});
               b.output("dx", d[0]);
               b.output("dgamma", d[1]);
               b.output("dbeta", d[2]);
             },
         .strided = false});
}

template <class Op, class Backward>
void rows_of(Suite& s, const std::string& name, const std::vector<Form>& forms) {
  std::vector<Form> backward;
  for (const Form& f : forms) {
    forward_row<Op>(s, name, f);
    if (f.mean == 0) backward.push_back(f);
  }
  const Form& odd = forms[0];
  backward.push_back({.id = "small-data",
                      .sentence = "data of size 0.05",
                      .dims = odd.dims,
                      .groups = odd.groups,
                      .x_scale = 0.05});
  backward.push_back({.id = "large-data",
                      .sentence = "data of size 4",
                      .dims = odd.dims,
                      .groups = odd.groups,
                      .x_scale = 4});
  for (const Form& f : backward)
    for (const bool stats : {false, true})
      backward_row<Backward, Op>(s, name + "-backward", f, stats);
  parameter_gradient_rows<Op>(s, name, {5, 4, 3, 5}, 4, 75);
  forward_edges<Op>(s, name);
  const std::string back = name + "-backward";
  some_gradients_row<Backward>(s, back, {2, 4, 3, 5}, 4, 120);
  empty_gradients_row<Backward>(s, back + "-no-pixels", back, {2, 3, 0, 4});
  empty_gradients_row<Backward>(s, back + "-no-images", back, {0, 3, 2, 4});
}

}  // namespace

void channel_norm_cases(Suite& s) {
  s.floor({.joined = 280, .own_joined = 0});
  rows_of<op::group_norm, op::group_norm_backward>(s, "group-norm", group_forms());
  rows_of<op::layer_norm2d, op::layer_norm2d_backward>(s, "layer-norm2d", pixel_forms());
  no_channels_rows(s);
  const Form tiles = {.id = "tiles",
                      .sentence = "more tiles than are worked at together",
                      .dims = {2, 65, 96, 104},
                      .large = true};
  for (const bool stats : {false, true})
    backward_row<op::layer_norm2d_backward, op::layer_norm2d>(s, "layer-norm2d-backward", tiles,
                                                              stats);
  s.add({.id = "group-norm-groups-refused",
         .sentence = "group_norm: channels that groups do not divide are refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::group_norm{.groups = 3, .x = b.input("x", {2, 4, 5})})[0]);
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "groups"});
}

}  // namespace tenon::conform
