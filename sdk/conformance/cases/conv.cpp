// SPDX-License-Identifier: Apache-2.0
// conv conv_backward_input conv_backward_weight, and convolutions known by hand. Other files have
// conv_transpose, and im2col with col2im. The error scale is the same op on absolute values.
#include <algorithm>
#include <string_view>
#include <utility>

#include "cases/conv.hpp"
#include "cases/families.hpp"

namespace tenon::conform {
namespace {

bool is_small(const ConvForm& f) {
  int64_t n = f.out * f.terms();
  for (const int64_t d : f.x) n *= d;
  return n < kFewProducts;
}

void forward_rows(Suite& s, const ConvForm& f) {
  s.add({.id = std::string("conv-") + f.id,
         .sentence = std::string("conv: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::conv>();
               n.x = b.input("x", f.x), n.w = b.input("w", f.w());
               b.output("y", b.add(n)[0]);
               b.scale("y", [&] {
                 auto m = n;
                 m.x = b.abs(n.x), m.w = b.abs(n.w);
                 return b.add(m)[0];
               });
             },
         .tolerance = product_of(f.terms()),
         .decomposed = 2,
         .gradient = is_small(f),
         .scales = {0.05, 4}});
}

void backward_rows(Suite& s, const ConvForm& f) {
  s.add({.id = std::string("conv-backward-input-") + f.id,
         .sentence = std::string("gradient of conv for x: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::conv_backward_input>();
               n.size = {f.x.begin() + 2, f.x.end()};
               n.dy = b.input("dy", f.y()), n.w = b.input("w", f.w());
               b.output("dx", b.add(n));
               b.scale("dx", [&] {
                 auto m = n;
                 m.dy = b.abs(n.dy), m.w = b.abs(n.w);
                 return b.add(m);
               });
             },
         .tolerance = product_of(f.terms() * f.out),
         .decomposed = 2,
         .gradient = is_small(f),
         .scales = {1}});
  int64_t windows = f.x[0];
  for (const int64_t d : f.windows_along()) windows *= d;
  s.add({.id = std::string("conv-backward-weight-") + f.id,
         .sentence = std::string("gradient of conv for w: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::conv_backward_weight>();
               n.kernel = f.kernel;
               n.dy = b.input("dy", f.y()), n.x = b.input("x", f.x);
               b.output("dw", b.add(n));
               b.scale("dw", [&] {
                 auto m = n;
                 m.dy = b.abs(n.dy), m.x = b.abs(n.x);
                 return b.add(m);
               });
             },
         .tolerance = product_of(windows),
         .decomposed = 2,
         .gradient = is_small(f),
         .scales = {1}});
}

const ConvForm& form_of(std::string_view id) {
  return *std::ranges::find_if(conv_forms(), [&](const ConvForm& f) { return f.id == id; });
}

// y = act(conv + bias + residual).
void end_rows(Suite& s) {
  const ConvForm f{"ends", "", {2, 4, 6, 5}, 6, {3, 3}, {}, {1, 1, 1, 1}, {}, 2};
  struct Ends {
    const char* id;
    const char* act;
    bool bias, residual, pre_act;
    double alpha = TENON_UNSET;
  };
  for (const Ends& e : {Ends{"bias", "none", true, false, false},
                        {"residual", "none", false, true, false},
                        {"bias-relu", "relu", true, false, false},
                        {"all", "silu", true, true, false},
                        {"all-relu", "relu", true, true, true},
                        {"leaky", "leaky_relu", true, false, false, 0.2},
                        {"pre-act", "hard_swish", true, false, true}})
    for (const char* form : {"groups1", "groups2", "groups4", "many-tiles"}) {
      const bool large = form == std::string_view("many-tiles");
      if (large && !(e.bias && e.residual && e.pre_act)) continue;
      ConvForm g = large ? form_of(form) : f;
      if (!large) g.groups = form[6] - '0';
      if (g.groups == 4) g.out = 8;
      s.add({.id = std::string("conv-") + e.id + "-" + form,
             .sentence = "conv with what follows it",
             .build =
                 [=](CaseBuilder& b) {
                   auto n = g.windows<op::conv>();
                   n.act = e.act, n.act_alpha = e.alpha;
                   n.x = b.input("x", g.x), n.w = b.input("w", g.w());
                   if (e.bias) n.bias = b.input("bias", {g.out});
                   if (e.residual) n.residual = b.input("residual", g.y());
                   n.want_pre_act = e.pre_act;
                   const Node y = b.add(n);
                   b.output("y", y[0]);
                   if (e.pre_act) b.output("pre_act", y[1]);
                   const auto bound = [&] {
                     auto m = n;
                     m.act = "none", m.act_alpha = TENON_UNSET, m.want_pre_act = false;
                     m.x = b.abs(n.x), m.w = b.abs(n.w);
                     if (n.bias) m.bias = b.abs(n.bias);
                     if (n.residual) m.residual = b.abs(n.residual);
                     return b.add(m)[0];
                   };
                   b.scale("y", bound);
                   if (e.pre_act) b.scale("pre_act", bound);
                 },
             .tolerance = product_of(g.terms() + 2),
             .decomposed = 2,
             .gradient = !large && std::string_view(e.act) != "relu" &&
                         std::string_view(e.act) != "leaky_relu",
             .second_order = false,
             .scales = {1}});
    }
  s.add({.id = "conv-bias-f32",
         .sentence = "conv of halves with a bias in f32",
         .dtypes = kHalves,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::conv>();
               n.x = b.input("x", f.x), n.w = b.input("w", f.w());
               n.bias = b.input("bias", b.own_acc(), {f.out}, Fill::normal());
               b.output("y", b.add(n)[0]);
               b.scale("y", [&] {
                 auto m = n;
                 m.x = b.abs(n.x), m.w = b.abs(n.w), m.bias = b.abs(n.bias);
                 return b.add(m)[0];
               });
             },
         .tolerance = product_of(f.terms() + 1),
         .scales = {1}});
}

// By hand: x = 1..9 in a square, w = [[1, 2], [3, 4]].
void known_rows(Suite& s) {
  s.add({.id = "conv-known",
         .sentence = "convolutions of a small image, with numbers known by hand",
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {1, 1, 3, 3}, Fill::list({1, 2, 3, 4, 5, 6, 7, 8, 9}));
           const Value w = b.input("w", {1, 1, 2, 2}, Fill::list({1, 2, 3, 4}));
           b.output("y", b.add(op::conv{.x = x, .w = w})[0]);
           b.expect("y", {37, 47, 67, 77});
           b.output(
               "corners",
               b.add(op::conv{
                   .stride = {3, 3}, .pads = {1, 1, 1, 1}, .dilation = {3, 3}, .x = x, .w = w})[0]);
           b.expect("corners", {36});
           const Value dy = b.input("dy", {1, 1, 2, 2}, Fill::list({1, -1, 2, 5}));
           b.output("dx", b.add(op::conv_backward_input{.size = {3, 3}, .dy = dy, .w = w}));
           b.expect("dx", {1, 1, -2, 5, 10, 6, 6, 23, 20});
           b.output("dw", b.add(op::conv_backward_weight{.kernel = {2, 2}, .dy = dy, .x = x}));
           b.expect("dw", {32, 39, 53, 60});
           b.output("doubled", b.add(op::conv_transpose{.stride = {2, 2}, .x = dy, .w = w}));
           b.expect("doubled", {1, 2, -1, -2, 3, 4, -3, -4, 2, 4, 5, 10, 6, 8, 15, 20});
         }});
}

void refusals(Suite& s) {
  const auto error = [&](const char* id, op::conv n, Dims x, Dims w, tenon_code code,
                         const char* text) {
    s.add({.id = std::string("conv-") + id + "-refused",
           .sentence = std::string("conv: ") + id + " that does not fit is refused",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 op::conv m = n;
                 m.x = b.input("x", x), m.w = b.input("w", w);
                 b.output("y", b.add(m)[0]);
               },
           .error = code,
           .error_text = text});
  };
  const Dims image = {1, 4, 5, 5}, filter = {2, 4, 3, 3};
  error("rank", {}, {4, 5}, {2, 4}, TENON_SHAPE_MISMATCH, "operand x");
  error("filter-rank", {}, image, {2, 4, 3}, TENON_SHAPE_MISMATCH, "operand w");
  error("channels", {}, image, {2, 3, 3, 3}, TENON_SHAPE_MISMATCH, "operand w");
  error("groups", {.groups = 3}, image, filter, TENON_SHAPE_MISMATCH, "groups");
  error("no-groups", {.groups = 0}, image, filter, TENON_INVALID_ARGUMENT, "groups");
  error("filters", {.groups = 4}, image, {6, 1, 3, 3}, TENON_SHAPE_MISMATCH, "operand w");
  error("window", {}, image, {2, 4, 6, 3}, TENON_SHAPE_MISMATCH, "extent 6");
  error("stride", {.stride = {0, 1}}, image, filter, TENON_INVALID_ARGUMENT, "stride");
  error("pads", {.pads = {0, -1, 0, 0}}, image, filter, TENON_INVALID_ARGUMENT, "pads");
  error("pads-length", {.pads = {1, 1}}, image, filter, TENON_INVALID_ARGUMENT, "pads");
  error("dilation", {.dilation = {3, 3}}, image, filter, TENON_SHAPE_MISMATCH, "extent 7");
  error("act", {.act = "unknown"}, image, filter, TENON_INVALID_ARGUMENT, "act");
}

}  // namespace

void conv_cases(Suite& s) {
  s.floor({.joined = 1000, .own_joined = 8});
  for (const ConvForm& f : conv_forms()) {
    forward_rows(s, f);
    backward_rows(s, f);
  }
  end_rows(s);
  conv_transpose_rows(s);
  known_rows(s);
  conv_column_rows(s);
  refusals(s);
  s.add(
      {.id = "conv-empty",
       .sentence = "convolutions of no images, and of no channels",
       .dtypes = {f32, bf16},
       .build =
           [](CaseBuilder& b) {
             const Value x = b.input("x", {0, 3, 4, 4}), w = b.input("w", {2, 3, 3, 3});
             b.output("none", b.add(op::conv{.x = x, .w = w})[0]);
             const Value dy = b.input("dy", {0, 2, 2, 2});
             b.output("dw", b.add(op::conv_backward_weight{.kernel = {3, 3}, .dy = dy, .x = x}));
             const Value flat = b.input("flat", {2, 0, 4, 4}), thin = b.input("thin", {3, 0, 2, 2});
             op::conv n{.x = flat, .w = thin};
             n.bias = b.input("bias", {3});
             b.output("bias_alone", b.add(n)[0]);
           },
       .strided = false});
}

}  // namespace tenon::conform
